"""
Measures whether alarms have the rate asked for on predictions of `benchmarks/quality.py`.

    python benchmarks/risk_control.py outputs/quality --method default

The first table is risk control as a training does it (`--alarm missed=0.2`, `--alarm rate=0.1`): for each run the
threshold is chosen on posts that the members held out (`_held_out.parquet`), and the rate observed on the test, 200
times, each time on four fifths of the held-out timelines and half of the test's. `alarms` are those on the test for
each alarm of the threshold that has the rate on these same test timelines. The means over runs follow, with their
standard error and the number of runs above the rate, also `by the mean alone`, without the standard error that missed
changes have.

The second table needs no training: for each corpus the test timelines of all seeds are dealt in two, 200 times; a
threshold is chosen on one half and the rate observed on the other. The last rows are of simulated timelines, which are
exchangeable for certain.

A third table compares policies of alarms where each finds the same share of the changes: the false alarms of a
timeline, and how many more they are than by the threshold alone, with a 95 % interval over timelines.
"""

import argparse
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from modeling_tempoformer.metrics.change_detection import change_detection
from scipy.stats import bootstrap

from modeling_tempoformer.common.data_frames import split_values
from modeling_tempoformer.common.rounding import round_between
from modeling_tempoformer.evaluation.alarm_goals import AlarmGoal
from modeling_tempoformer.evaluation.prediction_table import PROBABILITY, read_held_out, read_predictions
from modeling_tempoformer.evaluation.risk_control import LOSS_ROUNDING, edges_of, find_cases
from modeling_tempoformer.timeline_tempoformer import Timeline
from tempoformer_live.policy import RAISED, SECONDS, lag_of
from tempoformer_live.policy_comparison import POLICIES, at_threshold, follow_all, last_before, levels_of


NUM_SPLITS = 200
MISSED = tuple(AlarmGoal("missed", share) for share in (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4))
GOALS = (*(AlarmGoal("rate", share) for share in (0.05, 0.1, 0.2)), *MISSED)
Deal = tuple[np.ndarray, np.ndarray]
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
        yield corpus, score_timelines(pd.concat(parts))


def score_timelines(table: pd.DataFrame) -> Scored:
    """Returns the timelines of a table of labelled posts, with the probability of the watched class."""
    return [
        (
            make_timeline(name, (posts["label"] == posts["watched"]).to_numpy(int), times_of(posts)),
            posts["watched_probability"].to_numpy(),
        )
        for name, posts in table.groupby("timeline_id", sort=False)
    ]


class Judged(NamedTuple):
    """
    Timelines whose posts have scores.

    Attributes:
        scores, of (`np.ndarray` of shape `(posts,)`): The score of each labelled post and the number of its timeline.
        cases (`dict[str, pd.DataFrame]`): The cases of each kind of goal ([`~evaluation.risk_control.Cases.judge`]);
            the unit of a case is the number of its timeline.
        count (`int`): The number of timelines.
    """

    scores: np.ndarray
    of: np.ndarray
    cases: dict[str, pd.DataFrame]
    count: int

    @classmethod
    def read(cls, scored: Scored) -> "Judged":
        """Judges timelines, all of whose posts have labels."""
        timelines, parts = zip(*scored, strict=True)
        scores, of = np.concatenate(parts), np.repeat(np.arange(len(parts)), list(map(len, parts)))
        cases = {goal.kind: find_cases(goal, timelines, 1).judge(scores) for goal in GOALS}
        return cls(scores, of, cases, len(scored))

    def keep(self, is_kept: np.ndarray) -> "Judged":
        """Returns the timelines that are kept (timelines,)."""
        posts = is_kept[self.of]
        cases = {kind: cases[is_kept[cases["unit"]]] for kind, cases in self.cases.items()}
        return Judged(self.scores[posts], self.of[posts], cases, int(is_kept.sum()))


def read_runs(folder: Path, method: str) -> Iterator[tuple[str, Judged, Judged]]:
    """Yields the name of each run, its held-out timelines and its test timelines."""
    for path in sorted(folder.glob(f"*/{method}/_held_out.parquet")):
        table = read_predictions(path.parent / "_predictions.parquet")
        table = table[table["label"].notna()]
        watched = table["watched"].iloc[0]
        label = [name.removeprefix(PROBABILITY) for name in table if name.startswith(PROBABILITY)].index(watched)
        timelines, probabilities = read_held_out(path.parent)
        held_out = []
        for timeline, scores in zip(timelines, split_values(timelines, probabilities[:, label]), strict=True):
            labels = np.array(timeline.labels)
            is_class = labels[labels >= 0] == label
            if len(is_class):
                held_out.append((make_timeline(timeline.timeline_id, is_class.astype(int)), scores[labels >= 0]))
        yield path.parent.parent.name, Judged.read(held_out), Judged.read(score_timelines(table))


def share_threshold(cases: pd.DataFrame, goal: AlarmGoal, more: float = 0.0) -> float:
    """Returns the largest threshold by which `cases`, and `more` that are missed, miss at most a goal's share."""
    cases, units = cases.sort_values("score"), cases["unit"].nunique() + more
    missed = cases["weight"].cumsum() + more
    is_over = (missed > goal.share * units + LOSS_ROUNDING).to_numpy()
    return float(cases["score"].to_numpy()[is_over][0]) if is_over.any() else 1.0


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


def deal_in_two(count: int) -> Iterator[Deal]:
    """Yields for each split which of the timelines (count,) are chosen on, and which are observed."""
    generator = np.random.default_rng(0)
    for _ in range(NUM_SPLITS):
        is_chosen = generator.permutation(count) < count / 2
        yield is_chosen, ~is_chosen


def deal_parts(held_out: int, tested: int) -> Iterator[Deal]:
    """Yields for each split four fifths of the held-out timelines (held_out,) and half of the test's (tested,)."""
    generator = np.random.default_rng(0)
    for _ in range(NUM_SPLITS):
        yield generator.permutation(held_out) < 0.8 * held_out, generator.permutation(tested) < tested / 2


def observe(chosen_on: Judged, tested: Judged, goal: AlarmGoal, deals: Iterable[Deal]) -> dict[str, float]:
    """
    Returns the mean over splits of the observed `rate` and, of missed changes, of the rate `by the mean alone`;
    `alarms`, and `alarms by the mean alone`, for each of the threshold that has the rate on the same test timelines;
    and the share of splits that have a threshold and a case (`possible`).
    """
    seen = []
    for is_chosen, is_tested in deals:
        known, new = chosen_on.keep(is_chosen), tested.keep(is_tested)
        cases = known.cases[goal.kind], new.cases[goal.kind]
        if (edges := edges_of(goal, cases[0], known.scores)) is None or not len(cases[1]):
            continue
        thresholds = {"": round_between(*edges)}
        if goal.kind == "missed":
            thresholds |= {" by the mean alone": share_threshold(cases[0], goal, 1.0)}
        row = {}
        for rule, threshold in thresholds.items():
            lost = (cases[1]["score"] >= threshold) == (goal.kind == "rate")
            row["rate" + rule] = np.average(lost, weights=cases[1]["weight"])
            row["alarms" + rule] = (new.scores >= threshold).sum()
        if goal.kind == "missed":
            row["own alarms"] = (new.scores >= share_threshold(cases[1], goal)).sum()
        seen.append(row)
    if not seen:
        return {"possible": 0.0}
    means = pd.DataFrame(seen).mean()
    own = means.pop("own alarms") if goal.kind == "missed" else np.nan
    ratios = {name: mean / own if name.startswith("alarms") else mean for name, mean in means.items()}
    return {"possible": len(seen) / NUM_SPLITS, **ratios}


def sum_up(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns the means over runs of [`observe`] for each goal, their `error`, and the number of runs `above`."""
    runs = runs[runs["possible"] == 1]
    share = runs["goal"].str.partition("=")[2].astype(float)
    columns = runs.drop(columns=["run", "possible"])
    table = columns.groupby("goal", sort=False).mean()
    table.insert(1, "error", runs.groupby("goal", sort=False)["rate"].sem())
    table.insert(2, "above", (runs["rate"] > share).groupby(runs["goal"], sort=False).sum())
    table.insert(3, "runs", runs.groupby("goal", sort=False).size())
    return table


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
    runs = pd.DataFrame(
        {"run": name, "goal": str(goal), **observe(held_out, tested, goal, deal_parts(held_out.count, tested.count))}
        for name, held_out, tested in read_runs(args.folder, args.method)
        for goal in GOALS
    )
    if len(runs):
        print(runs.set_index(["run", "goal"]).to_string(float_format="%.3f"))
        print(f"\n{sum_up(runs).to_string(float_format='%.3f')}\n")
    corpora = [*read_corpora(args.folder, args.method), ("simulated", simulate())]
    rows = []
    for corpus, scored in corpora:
        judged = Judged.read(scored)
        for goal in GOALS:
            seen = observe(judged, judged, goal, deal_in_two(judged.count))
            rows.append({"corpus": corpus, "timelines": judged.count, "goal": str(goal), **seen})
    print(pd.DataFrame(rows).set_index(["corpus", "timelines", "goal"]).to_string(float_format="%.3f"))
    compared = [
        {"corpus": corpus, **row} for corpus, scored in corpora for row in compare_policies(scored, args.found)
    ]
    print(f"\n{pd.DataFrame(compared).set_index(['corpus', 'policy']).to_string(float_format='%.3f')}")


if __name__ == "__main__":
    main()
