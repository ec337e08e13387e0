"""
Measures whether alarms keep their promises on predictions of `benchmarks/quality.py`.

    python benchmarks/risk_control.py outputs/quality --method default

For each corpus the test timelines of all seeds are dealt in two, 200 times: a threshold is chosen on one half
(`--alarm rate=0.1`, `--alarm missed=0.2`), and what it promised is observed on the other. The last rows are of
simulated timelines, which are exchangeable for certain.

The second table is the promise as a training makes it: chosen on the posts that the members held out
(`_held_out.parquet`), observed on the test, for each run.

A third table compares policies of alarms where each finds the same share of the changes: the false alarms of a
timeline, and how many more they are than by the threshold alone, with a 95 % interval over timelines.
"""

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from modeling_tempoformer.metrics.change_detection import change_detection
from scipy.stats import bootstrap
from transformers import AutoConfig

from modeling_tempoformer.common.data_frames import split_values
from modeling_tempoformer.common.rounding import round_between
from modeling_tempoformer.decisions_tempoformer import class_names
from modeling_tempoformer.evaluation.alarm_goals import AlarmGoal
from modeling_tempoformer.evaluation.alarms import find_threshold
from modeling_tempoformer.evaluation.prediction_table import read_held_out, read_predictions
from modeling_tempoformer.evaluation.risk_control import edges_of, find_cases, measure_risk
from modeling_tempoformer.timeline_tempoformer import Timeline
from tempoformer_live.policy import RAISED, SECONDS, lag_of
from tempoformer_live.policy_comparison import POLICIES, at_threshold, follow_all, last_before, levels_of


NUM_SPLITS = 200
GOALS = tuple(map(AlarmGoal.read, ("rate=0.05", "rate=0.1", "rate=0.2", "missed=0.2", "missed=0.4")))
Scored = list[tuple[Timeline, np.ndarray]]


def make_timeline(name: str, labels: np.ndarray, times: list[float] | None = None) -> Timeline:
    """Returns a timeline of an id, labels (posts,), 1 of the watched class and 0 of all others, and times."""
    posts = list(range(len(labels)))
    return Timeline(name, posts, [""] * len(posts), times, list(map(str, posts)), labels.tolist())


def read_corpora(folder: Path, method: str) -> Iterator[tuple[str, Scored]]:
    """Yields the name and the scored test timelines, of all seeds, of each corpus."""
    tables: dict[str, list[pd.DataFrame]] = {}
    for path in sorted(folder.glob(f"*/{method}/_predictions.parquet")):
        corpus, seed = re.fullmatch(r"(.+)-\w+-(\d+)", path.parent.parent.name).groups()
        table = read_predictions(path)
        # A seed may test the same timeline as another.
        table["timeline_id"] += f" {seed}"
        tables.setdefault(corpus, []).append(table[table["label"].notna()])
    for corpus, parts in tables.items():
        yield (
            corpus,
            [
                (
                    make_timeline(name, (posts["label"] == posts["watched"]).to_numpy(int), times_of(posts)),
                    posts["watched_probability"],
                )
                for name, posts in pd.concat(parts).groupby("timeline_id", sort=False)
            ],
        )


def observe_tests(folder: Path, method: str) -> Iterator[dict]:
    """Yields for each run and goal the rate that was observed on its test."""
    for path in sorted(folder.glob(f"*/{method}/_held_out.parquet")):
        config = AutoConfig.from_pretrained(path.parent)
        names = class_names(config)
        held_out, probabilities = read_held_out(path.parent)
        table = read_predictions(path.parent / "_predictions.parquet")
        table = table[table["label"].notna()]
        tested = [
            (make_timeline(name, posts["label"].map(names.index).to_numpy(int)), posts["watched_probability"])
            for name, posts in table.groupby("timeline_id", sort=False)
        ]
        timelines, scores = [timeline for timeline, _ in tested], np.concatenate([values for _, values in tested])
        for goal in GOALS:
            row = {"run": path.parent.parent.name, "goal": str(goal)}
            threshold = find_threshold(held_out, probabilities[:, config.watched], config.watched, goal)
            if threshold is not None:
                risk = measure_risk(goal, timelines, scores >= threshold, config.watched)
                row |= {"observed": risk.get("rate"), "cases": risk["promised_of"]}
            yield row


def times_of(posts: pd.DataFrame) -> list[float] | None:
    """Returns the seconds of posts, None without times."""
    if "time" not in posts:
        return None
    if isinstance(posts["time"].dtype, pd.DatetimeTZDtype):
        return ((posts["time"] - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(1, "s")).tolist()
    return posts["time"].tolist()


def simulate(count: int = 120, seed: int = 0) -> Scored:
    """Draws timelines of 2 to 20 posts, with levels of their own; half of them have changes."""
    generator, scored = np.random.default_rng(seed), []
    for name in range(count):
        labels = (generator.random(generator.integers(2, 21)) < 0.3) & (generator.random() < 0.5)
        logits = generator.normal() + generator.normal(size=len(labels)) + labels
        scored.append((make_timeline(str(name), labels.astype(int)), 1 / (1 + np.exp(-logits))))
    return scored


def observe(scored: Scored, goal: AlarmGoal) -> dict[str, float]:
    """
    Returns the mean over splits of the observed `rate`, its standard error (`error`), the share of changes `found` and
    of timelines without change with an alarm (`alarmed`), and the share of splits that have a threshold (`possible`).
    """
    timelines, parts = zip(*scored, strict=True)
    scores, of = np.concatenate(parts), np.repeat(np.arange(len(parts)), list(map(len, parts)))
    # The unit of a case is the number of its timeline.
    cases = {one.kind: find_cases(one, timelines, 1).judge(scores) for one in GOALS}
    generator, seen = np.random.default_rng(0), []
    for _ in range(NUM_SPLITS):
        is_chosen = generator.permutation(len(scored)) < len(scored) / 2
        edges = edges_of(goal, cases[goal.kind][is_chosen[cases[goal.kind]["unit"]]], scores[is_chosen[of]])
        if edges is None:
            continue
        threshold, alarmed = round_between(*edges), {}
        for name, every in cases.items():
            others = every[~is_chosen[every["unit"]]]
            alarmed[name] = np.nan
            if len(others):
                alarmed[name] = np.average(others["score"] >= threshold, weights=others["weight"])
        missed = 1 - alarmed["missed"]
        seen.append((missed if goal.kind == "missed" else alarmed["rate"], 1 - missed, alarmed["rate"]))
    if not seen:
        return {"possible": 0.0}
    rates, found, alarmed = np.array(seen).T
    table = pd.DataFrame({"rate": rates, "found": found, "alarmed": alarmed})
    return {"possible": len(seen) / NUM_SPLITS, "error": table["rate"].sem(), **table.mean()}


def compare_policies(scored: Scored, share: float) -> Iterator[dict]:
    """Yields for each policy what it costs with the largest threshold by which it finds a share of the changes."""
    timelines, scores = [timeline for timeline, _ in scored], np.concatenate([values for _, values in scored])
    plain = None
    for policy in POLICIES:
        if set(policy) & set(SECONDS) and timelines[0].timestamps is None:
            continue

        def judge(level: float, policy: dict = policy) -> list:
            events = follow_all(timelines, scores, at_threshold(policy, level))
            return [
                change_detection.judge_alarms(
                    change_detection.Posts(np.array(tested.labels) == 1, part == RAISED, np.full(len(part), np.nan)),
                    late=lag_of(policy),
                )
                for tested, part in zip(timelines, split_values(timelines, events), strict=True)
            ]

        levels = levels_of(scores)
        last = last_before(lambda level, judge=judge: change_detection.found_changes(judge(level)) >= share, levels)
        number = 0 if last is None else last + 1
        if number == len(levels):
            yield {"policy": json.dumps(policy), "threshold": np.nan}
            continue
        level = levels[number]
        judged = judge(level)
        false = np.array([one.is_false.sum() for one in judged])
        plain = false if plain is None else plain
        less = bootstrap([false - plain], np.mean, vectorized=True, rng=0, method="percentile").confidence_interval
        yield {
            "policy": json.dumps(policy),
            "threshold": level,
            "found": change_detection.found_changes(judged),
            "false alarms of a timeline": false.mean(),
            "more than by the threshold alone": (false - plain).mean(),
            "from": less.low,
            "to": less.high,
            "delay, posts": change_detection.median_alarm_delay_posts(judged),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="The --output_dir of benchmarks/quality.py.")
    parser.add_argument("--method", default="default", help="The method whose predictions are read.")
    parser.add_argument("--found", type=float, default=0.5, help="The share of changes that each policy finds.")
    args = parser.parse_args()
    corpora = [*read_corpora(args.folder, args.method), ("simulated", simulate())]
    rows = [
        {"corpus": corpus, "timelines": len(scored), "goal": str(goal), **observe(scored, goal)}
        for corpus, scored in corpora
        for goal in GOALS
    ]
    print(pd.DataFrame(rows).set_index(["corpus", "timelines", "goal"]).to_string(float_format="%.3f"))
    if tests := list(observe_tests(args.folder, args.method)):
        print(f"\n{pd.DataFrame(tests).set_index(['run', 'goal']).to_string(float_format='%.3f')}")
    compared = [
        {"corpus": corpus, **row} for corpus, scored in corpora for row in compare_policies(scored, args.found)
    ]
    print(f"\n{pd.DataFrame(compared).set_index(['corpus', 'policy']).to_string(float_format='%.3f')}")


if __name__ == "__main__":
    main()
