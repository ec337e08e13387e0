"""The results of a part: nested and explained in a file, in a table, and in plain words."""

import json

import numpy as np
import pytest
from datasets import Dataset

from modeling_tempoformer.evaluation.metrics import compute_scores
from modeling_tempoformer.evaluation.predictions import Predictions
from modeling_tempoformer.evaluation.report import remarks, results_table, verdict, worth
from modeling_tempoformer.evaluation.results import nest, read_test, score_part, write_results


NAMES = ["No-Switch", "Switch"]


def of_predictions(actual: list[int], predicted: list[int], names: list[str] = NAMES) -> dict:
    scores = compute_scores(Predictions(np.array(actual), np.array(predicted), names))
    return nest({f"eval_{name}": value for name, value in scores.items()}, "eval", names)


@pytest.mark.parametrize(
    ("actual", "predicted", "words"),
    [
        ([0, 0, 0, 1], [0, 0, 0, 0], ["No-Switch", "0.429"]),
        ([0, 0, 0, 1], [1, 1, 1, 1], ["every", "Switch", "0.200"]),
        # F1 of 2/3 and of 0: less than the half that guessing has.
        ([0, 0, 0, 1], [0, 0, 1, 0], ["0.333", "0.500"]),
        # Both classes are predicted, and all posts of one of them are found.
        ([0, 0, 0, 1], [0, 0, 0, 1], None),
        ([0, 0, 1, 1], [0, 0, 0, 1], None),
        # A class that no post has.
        ([0, 0, 0, 0], [1, 1, 1, 1], ["0.000", "0.500"]),
    ],
)
def test_one_class_and_guessing_are_called_so(actual, predicted, words):
    said = verdict(of_predictions(actual, predicted))
    assert said is None if words is None else all(word in said for word in words)


def test_guessing_is_a_third_with_three_classes():
    """A macro F1 of 0.44 would be less than guessing with two."""
    names, actual, predicted = ["IE", "IS", "O"], [0, 0, 1, 1, 2, 2], [0, 0, 1, 0, 1, 0]
    results = of_predictions(actual, predicted, names)
    assert 1 / 3 < results["macro_f1"] < 1 / 2 and verdict(results) is None
    assert "0.333" in verdict(of_predictions(actual, [1, 2, 2, 0, 0, 1], names))
    assert verdict(nest({"train_loss": 1.0}, "train", names)) is None


def make_part(num_labelled: int = 6) -> tuple[Dataset, np.ndarray, np.ndarray]:
    """Two timelines, predictions with one error, and their probabilities."""
    labels = np.array([0, 1, 0, 0, 1, 1])
    labels[num_labelled:] = -100
    columns = {"labels": [labels[:3].tolist(), labels[3:].tolist()], "timestamps": [[0, 60, 90], [0, 10, 20]]}
    predicted = np.array([0, 1, 0, 0, 1, 0])
    return Dataset.from_dict(columns), predicted, np.eye(2)[predicted] * 0.8 + 0.1


def test_a_class_has_its_own_scores_whatever_its_name():
    """Names that look like those of other scores."""
    names = ["posts_f1", "f1"]
    scores = score_part(*make_part(), names)
    results = nest({f"predict_{name}": value for name, value in scores.items()}, "predict", names)
    assert results["classes"]["f1"]["recall"] == pytest.approx(2 / 3) and results["classes"]["f1"]["posts"] == 3
    assert results["classes"]["posts_f1"]["precision"] == pytest.approx(3 / 4)
    assert results["classes"]["f1"]["median_delay_seconds"] == pytest.approx(0)
    assert results["classes"]["posts_f1"]["window_recall"] == scores["window_recall_posts_f1"]


def test_every_name_in_the_file_is_explained(tmp_path):
    train = {"train_runtime": 3.0, "train_loss": 0.5, "train_samples_per_second": 2.0, "epoch": 4.0, "total_flos": 1.0}
    timelines, *predictions = make_part()
    scores = score_part(timelines, *predictions, NAMES, timelines)
    parts = {"train": nest(train, "train", NAMES), "test": nest(scores, "predict", NAMES)}
    write_results(tmp_path, parts)
    written = json.loads((tmp_path / "all_results.json").read_text())
    assert written["train"]["seconds"] == 3.0 and written["train"]["epochs"] == 4.0

    def check(values):
        for name, value in values.items() if isinstance(values, dict) else ():
            assert name in NAMES or written["explained"][name].endswith(".")
            check(value)

    for part in parts:
        check(written[part])


def test_the_table_has_the_scores_of_each_class_and_what_costs_nothing():
    timelines, *predictions = make_part()
    results = nest(score_part(timelines, *predictions, NAMES, timelines), "predict", NAMES)
    table = results_table("test", results | {"posts_per_second": 12.3})
    (of_switch,) = (line.split() for line in table.splitlines() if line.startswith("Switch"))
    assert of_switch == ["Switch", "1.000", "0.667", "0.800", "3"]
    rows = {line[:16].strip(): line[24:].split() for line in table.splitlines()}
    assert rows["this model"][0] == f"{results['macro_f1']:.3f}"
    larger = results["compared_with"]["larger_class"]
    assert rows["always No-Switch"][:2] == [f"{larger['macro_f1']:.3f}", f"{larger['difference']:+.3f}"]
    assert "position and time alone" in table and "12 posts a second" in table
    assert "no better" not in table and "every post" not in table.lower()


def test_the_table_says_what_the_model_is_no_better_than():
    """Position alone is always right."""
    timelines = Dataset.from_list([{"labels": [0, 1, 1]}] * 40)
    predicted = np.array([0, 1, 1] * 38 + [1, 1, 0] * 2)
    results = nest(score_part(timelines, predicted, np.eye(2)[predicted], NAMES, timelines), "predict", NAMES)
    *_, last = results_table("test", results).splitlines()
    assert "no better than position alone" in last and "always" not in last
    constant = np.ones_like(predicted)
    results = nest(score_part(timelines, constant, np.eye(2)[constant], NAMES, timelines), "predict", NAMES)
    *_, verdict_line, last = results_table("test", results).splitlines()
    assert "predicted as Switch" in verdict_line and "no better than always Switch or position alone" in last


def test_the_table_of_unlabelled_posts_has_no_scores():
    results = nest(score_part(*make_part(num_labelled=0), NAMES), "predict", NAMES)
    assert results == {"posts": 6, "labelled_posts": 0, "timelines": 2}
    assert results_table("test", results) == "test: 6 posts of 2 timelines, none labelled"
    partly = nest(score_part(*make_part(num_labelled=4), NAMES), "predict", NAMES)
    assert partly["labelled_posts"] == 4 and "macro F1" in results_table("test", partly)


def test_a_score_of_one_timeline_is_called_so(tmp_path):
    """All posts of the second class but one are in the first of twelve timelines."""
    timelines = Dataset.from_list([{"labels": [1] * 9 + [0]}, {"labels": [1] + [0] * 9}, *[{"labels": [0] * 9}] * 10])
    actual = np.concatenate(timelines["labels"])
    results = nest(score_part(timelines, actual, np.eye(2)[actual], NAMES), "predict", NAMES)
    *others, remark = remarks(results)
    assert "12 timelines (Switch: 1)" in remark and "No-Switch" not in remark
    said = worth(results)
    assert said[1:] == [*others, remark] and "1.000" in said[0] and "110 labelled posts of 12 timelines" in said[0]
    write_results(tmp_path, {"test": results})
    assert worth(read_test(str(tmp_path))) == said
    spread = Dataset.from_list([{"labels": [1, 0, 0]}] * 12)
    actual = np.concatenate(spread["labels"])
    assert remarks(nest(score_part(spread, actual, np.eye(2)[actual], NAMES), "predict", NAMES)) == []


def test_a_model_without_a_test_has_no_score(tmp_path):
    unlabelled = nest(score_part(*make_part(num_labelled=0), NAMES), "predict", NAMES)
    assert read_test(str(tmp_path)) == {} and worth({}) == worth(unlabelled)
    assert len(worth({})) == 1 and "No score" in worth({})[0] and remarks({}) == []
