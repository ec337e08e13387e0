"""Checks the comparison of two sets of predictions against plain loops, and its command."""

import math
import random

import numpy as np
import pandas as pd
import pytest
from helpers import read_json

from modeling_tempoformer.evaluation.prediction_table import write_predictions
from tempoformer_live.commands.drift import main
from tempoformer_live.drift import drift_text, find_drift, read_answered_posts


def predictions(seed: int, timelines: int = 30, shift: float = 0.0, first: int = 0) -> pd.DataFrame:
    """
    Returns predictions of timelines of different lengths. A timeline has a level of its own, so that its posts depend
    on each other.
    """
    draw, rows = random.Random(seed), []
    for number in range(first, first + timelines):
        level = draw.gauss(-1, 1)
        for post in range(draw.randint(2, 20)):
            turn = 1 / (1 + math.exp(-draw.gauss(level + shift, 0.5)))
            rows.append((f"room {number}", str(post), "Turn" if turn > 0.5 else "Calm", 1 - turn, turn))
    columns = ["timeline_id", "post_id", "prediction", "probability_Calm", "probability_Turn"]
    return pd.DataFrame(rows, columns=columns)


def plain_index(before: pd.DataFrame, after: pd.DataFrame) -> float:
    """Computes the population stability index over tenths of `before`, half a post added to each bin."""
    values = sorted(before["probability_Turn"])
    edges = np.quantile(values, [number / 10 for number in range(1, 10)])
    shares = []
    for table in (before, after):
        counts = [0.5] * 10
        for value in table["probability_Turn"]:
            counts[sum(value > edge for edge in edges)] += 1
        shares.append([count / sum(counts) for count in counts])
    return sum((p - q) * math.log(p / q) for p, q in zip(*shares, strict=True))


def test_it_agrees_with_plain_loops():
    before, after = predictions(0), predictions(1, shift=0.5)
    found = find_drift(before, after, "Turn")
    assert found["population_stability_index"] == pytest.approx(plain_index(before, after))
    values = [sorted(table["probability_Turn"]) for table in (before, after)]
    distances = [abs(np.subtract(*(sum(v <= x for v in one) / len(one) for one in values))) for x in sum(values, [])]
    assert found["kolmogorov_smirnov"] == pytest.approx(max(distances))
    for name, table in (("before", before), ("after", after)):
        side = found[name]
        assert (side["posts"], side["timelines"]) == (len(table), 30)
        assert side["alarms"] == sum(value > 0.5 for value in table["probability_Turn"])
        assert side["mean"] == pytest.approx(sum(table["probability_Turn"]) / len(table))
        low = sum(value < 0.1 for value in table["probability_Turn"])
        assert side["histogram"][0] == pytest.approx(low / len(table)) and sum(side["histogram"]) == pytest.approx(1)


def test_alarms_are_those_of_the_model_where_it_watches_the_class():
    """They need not be the posts that are predicted as the class. Predictions of another class are counted."""
    before, after = predictions(0), predictions(1)
    tables = [
        table.assign(alarm=table["probability_Turn"] >= 0.8, watched="Turn", watched_threshold=0.8)
        for table in (before, after)
    ]
    found, other = find_drift(*tables, "Turn"), find_drift(*tables, "Calm")
    for name, table in (("before", before), ("after", after)):
        surest = sum(value >= 0.8 for value in table["probability_Turn"])
        assert found[name]["alarms"] == surest < sum(table["prediction"] == "Turn")
        assert other[name]["alarms"] == sum(table["prediction"] == "Calm")


@pytest.mark.parametrize(("number", "differs"), [(3, False), (9, True)])
def test_another_share_of_timelines_with_an_alarm_is_said(number, differs):
    """Before, 2 of 12 timelines have an alarm; Fisher's exact test by sums of the hypergeometric distribution."""

    def predictions(alarmed: int, name: str) -> pd.DataFrame:
        rows = [(f"{name} {one}", post, one < alarmed and post == 1) for one in range(12) for post in range(3)]
        table = pd.DataFrame(rows, columns=["timeline_id", "post_id", "alarm"])
        table["post_id"] = table["post_id"].astype(str)
        return table.assign(prediction="No", probability_Switch=0.3, probability_No=0.7, watched="Switch")

    found = find_drift(predictions(2, "a"), predictions(number, "b"), "Switch")
    total = 2 + number
    ways = [math.comb(12, one) * math.comb(12, total - one) for one in range(max(0, total - 12), min(12, total) + 1)]
    divisions = math.comb(12, 2) * math.comb(12, number)
    assert found["alarmed_p"] == pytest.approx(sum(way for way in ways if way <= divisions) / sum(ways))
    assert (found["before"]["alarmed_timelines"], found["after"]["alarmed_timelines"]) == (2, number)
    text = drift_text(found, "Switch")
    assert ("Another share" in text) == differs and f"{number} ({number / 12:.1%})" in text


def test_chance_divides_whole_timelines():
    """The plain loop divides the same timelines at random, and draws other numbers."""
    before, after = predictions(0, 12), predictions(1, 9, first=100)
    found, draw = find_drift(before, after, "Turn"), random.Random(5)
    everything = pd.concat([before, after])
    edges = np.quantile(before["probability_Turn"], np.arange(1, 10) / 10)
    bins = (everything["probability_Turn"].to_numpy()[:, None] > edges).sum(axis=1)
    names, indexes = list(everything["timeline_id"].unique()), []
    for _ in range(1000):
        chosen = everything["timeline_id"].isin(draw.sample(names, 12)).to_numpy()
        p, q = (np.bincount(bins[each], minlength=10) + 0.5 for each in (chosen, ~chosen))
        p, q = p / p.sum(), q / q.sum()
        indexes.append(((p - q) * np.log(p / q)).sum())
    assert found["by_chance"] == pytest.approx(np.quantile(indexes, 0.95), rel=0.1)
    reached = np.mean([index >= found["population_stability_index"] for index in indexes])
    assert found["p"] == pytest.approx(reached, abs=0.05)


def test_a_shift_is_found_and_chance_is_not_taken_for_one():
    """Levels of timelines differ, so that the index of two equal weeks is far from 0."""
    equal = [find_drift(predictions(seed), predictions(seed + 50, first=100), "Turn") for seed in range(20)]
    assert sum(found["p"] < 0.05 for found in equal) <= 3
    assert all(find_drift(predictions(s), predictions(s + 50, shift=1.5), "Turn")["p"] < 0.01 for s in range(5))


def test_two_models_on_the_same_posts_are_compared_post_by_post():
    before, after = predictions(0), predictions(0).sample(frac=1, random_state=0)
    after.loc[after["post_id"] == "0", "prediction"] = "Turn"
    found = find_drift(before, after, "Turn")
    calm = sum((before["post_id"] == "0") & (before["prediction"] == "Calm"))
    assert ["Calm", "Turn", calm] in found["same_posts"] and "p" not in found
    assert sum(number for *_, number in found["same_posts"]) == len(before)


def test_probabilities_of_one_number_are_compared():
    """A model that has learned nothing gives every post the same."""
    before, after = (predictions(seed).assign(probability_Turn=0.3) for seed in (0, 1))
    found = find_drift(before, after.iloc[:100], "Turn")
    assert found["kolmogorov_smirnov"] == 0 and found["p"] > 0.05


def write(folder, table: pd.DataFrame, kind: str) -> str:
    """Writes predictions as a run, as scoring, or as one file, and returns the path to give."""
    folder.mkdir()
    if kind == "scored":
        for number, part in enumerate((table.iloc[:50], table.iloc[50:])):
            part.to_parquet(folder / f"part-{number:05}.parquet")
        (folder / "_scored.json").write_text("{}")
        return str(folder)
    write_predictions(str(folder), table)
    return str(folder / kind) if kind else str(folder)


@pytest.mark.parametrize("kind", ["", "scored", "_predictions.csv", "_predictions.parquet"])
def test_the_command_reads_what_runs_and_scoring_write(kind, tmp_path, capsys, all_forms):
    before, after = predictions(0), predictions(1, shift=1.5)
    # A post that the model was not asked about.
    before.loc[3, "prediction"] = None
    paths = [write(tmp_path / "test", before, kind), write(tmp_path / "week", after, "scored")]
    assert len(read_answered_posts(paths[0])) == len(before) - 1
    arguments = ["--before", paths[0], "--after", paths[1], "--watch", "Turn"]
    main([*arguments, "--output_dir", str(tmp_path / "out")])
    found = read_json(tmp_path / "out" / "drift.json")
    expected = find_drift(before.dropna(), after, "Turn")
    assert found["population_stability_index"] == pytest.approx(expected["population_stability_index"])
    assert found["after"]["histogram"] == pytest.approx(expected["after"]["histogram"])
    assert (tmp_path / "out" / "drift.png").stat().st_size > 5000
    printed = capsys.readouterr().out
    assert f"{expected['population_stability_index']:.3f}" in printed and str(len(after)) in printed


def test_what_cannot_be_compared_is_one_sentence(tmp_path):
    before = write(tmp_path / "test", predictions(0), "")
    one = write(tmp_path / "one", predictions(1, timelines=1), "")
    (tmp_path / "empty").mkdir()
    (tmp_path / "posts.csv").write_text("timeline_id,post_id,text\na,1,so sad\n")
    nothing = write(tmp_path / "nothing", predictions(0).assign(prediction=None), "")
    for after, watched, problem in (
        (before, "Spin", "--watch Spin.*Calm, Turn"),
        (one, "Turn", "one timeline"),
        (str(tmp_path / "empty"), "Turn", "empty has neither"),
        (str(tmp_path / "posts.csv"), "Turn", "no column prediction"),
        (nothing, "Turn", "no prediction"),
    ):
        with pytest.raises(ValueError, match=problem):
            main(["--before", before, "--after", after, "--watch", watched])
    with pytest.raises(OSError, match=r"no_such\.csv"):
        main(["--before", before, "--after", "no_such.csv", "--watch", "Turn"])
