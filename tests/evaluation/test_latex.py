"""Checks the table of a test that is written for a paper."""

from types import SimpleNamespace

import numpy as np
from helpers import make_timeline

from modeling_tempoformer.evaluation.latex import TEST_TABLE, write_test_table
from modeling_tempoformer.evaluation.report import group_by_class, score_part


NAMES = ["a_b & c", "50 % {x}"]
ESCAPED = [r"a\_b \& c", r"50 \% \{x\}"]


def results_of(labels: list[int], predicted: list[int]) -> dict:
    timelines = [make_timeline(labels[:4]), make_timeline(labels[4:])]
    scores = score_part(timelines, np.array(predicted), np.eye(2)[predicted] * 0.8 + 0.1, NAMES, timelines)
    return group_by_class({f"predict_{name}": value for name, value in scores.items()}, "predict", NAMES)


def cells_of(text: str) -> dict[str, list[str]]:
    """Returns the cells of each row of all tables, by the first one."""
    rows = [line.removesuffix(r" \\").split(" & ") for line in text.replace(r"\&", "\0").splitlines() if " & " in line]
    return {first.replace("\0", r"\&"): cells for first, *cells in rows}


def captions_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(r"\caption")]


def test_the_table_has_the_scores_and_says_of_what(tmp_path):
    results = results_of([0, 1, 0, 0, 1, 1, -100], [0, 1, 0, 1, 1, 0, 1])
    write_test_table(tmp_path, results, "post_tempoformer", "my_encoder")
    text = (tmp_path / TEST_TABLE).read_text(encoding="utf-8")
    rows = cells_of(text)
    low, high = results["macro_f1_interval"]
    # F1 is 2/3 of both classes.
    assert rows["the default"] == [f"0.667 ({low:.3f} to {high:.3f})", ""]
    larger = results["compared_with"]["larger_class"]
    low, high = larger["difference_interval"]
    name = f"always {ESCAPED[NAMES.index(larger['class'])]}"
    expected = [f"{larger['macro_f1']:.3f}", f"{larger['difference']:+.3f} ({low:+.3f} to {high:+.3f})"]
    assert rows[name] == expected and "position alone" in rows
    for label in ESCAPED:
        assert rows[label] == ["0.667", "0.667", "0.667", "3"]
    for caption in captions_of(text):
        for words in (r"my\_encoder", "n = 6 ", "2 timelines", "the default"):
            assert words in caption
    assert r"95 \%" in captions_of(text)[0] and text.count("{tabular}") == 4


def test_posts_without_labels_have_no_table(tmp_path):
    write_test_table(tmp_path, {"posts": 6, "labelled_posts": 0, "timelines": 2}, "trees", None)
    assert not (tmp_path / TEST_TABLE).exists()


def test_alarms_have_a_table_beside_those_of_rivals(tmp_path):
    """Trees that know the position are right where the model's only alarm is."""
    timelines = [make_timeline([0, 0, 0, 1, 1, 0]) for _ in range(20)]
    shares = np.array([0.1, 0.2, 0.1, 0.3, 0.9, 0.2] * 20)
    config = SimpleNamespace(watched=1, calibration=None, first_posts=None)
    probabilities = np.stack([1 - shares, shares], 1)
    scores = score_part(timelines, probabilities.argmax(1), probabilities, NAMES, timelines, config=config)
    results = group_by_class({f"predict_{name}": value for name, value in scores.items()}, "predict", NAMES)
    results |= {"watched": NAMES[1], "watched_threshold": 0.5}
    write_test_table(tmp_path, results, "post_tempoformer", None)
    text = (tmp_path / TEST_TABLE).read_text(encoding="utf-8").partition(r"\label{tab:alarms}")[2]
    rows = cells_of(text)
    assert rows["the default"] == ["1.000", "0.500", "20", "", ""]
    assert rows["position alone"][:4] == ["1.000", "1.000", "40", "-0.500"]
