"""Checks the threshold for a wanted precision or recall, and what is measured at it, against plain search."""

import itertools

import numpy as np
import pytest
from helpers import make_timeline, tiny_model

from modeling_tempoformer.evaluation.alarms import alarm_sentence, choose_alarm, choose_threshold, measure_alarm
from modeling_tempoformer.evaluation.predictions import Predictions


DAY = 86_400


def posts_of(scores: list[float], labels: list[int], timelines: list[int] | None = None) -> Predictions:
    """Returns posts of two classes with these probabilities of the second."""
    scores = np.array(scores)
    timelines = np.arange(len(scores)) if timelines is None else np.array(timelines)
    return Predictions(
        labels=np.array(labels),
        predictions=np.zeros(len(scores), int),
        names=["no", "Turn"],
        probabilities=np.stack([1 - scores, scores], axis=1),
        timelines=timelines,
    )


# From the surest: right, wrong, right, right, wrong, right, wrong.
SCORES, LABELS = [0.9, 0.81, 0.7, 0.6, 0.5, 0.31, 0.1], [1, 0, 1, 1, 0, 1, 0]


@pytest.mark.parametrize(
    ("wanted", "threshold"),
    [
        # Alone the surest is right.
        ({"precision": 0.8}, 0.85),
        # Three of four, which is more than one of one.
        ({"precision": 0.75}, 0.55),
        ({"precision": 0.66}, 0.2),
        # All posts are alarms, four of seven right.
        ({"precision": 0.5}, 0.05),
        ({"recall": 0.25}, 0.85),
        ({"recall": 0.26}, 0.65),
        ({"recall": 0.75}, 0.55),
        ({"recall": 1.0}, 0.2),
    ],
)
def test_the_threshold_for_a_wanted_share(wanted, threshold):
    """It is in the middle half between two posts. Whatever the order of the posts, it is the same."""
    for order in ([0, 1, 2, 3, 4, 5, 6], [3, 6, 0, 5, 2, 4, 1]):
        posts = posts_of([SCORES[post] for post in order], [LABELS[post] for post in order])
        chosen = choose_threshold(posts, 1, wanted)
        edges = [1.0, *SCORES, 0.0]
        low, high = next((low, high) for high, low in itertools.pairwise(edges) if low < threshold <= high)
        assert low + (high - low) / 4 <= chosen <= high - (high - low) / 4
        # Shorter than the middle, where there is a shorter one.
        assert len(str(chosen)) <= len(str(round((low + high) / 2, 3)))


@pytest.mark.parametrize("kind", ["precision", "recall"])
@pytest.mark.parametrize("seed", range(5))
def test_no_other_threshold_is_better(kind, seed):
    """Probabilities are multiples of 0.05, so many posts tie and cannot be separated."""
    generator = np.random.default_rng(seed)
    scores = generator.integers(1, 20, 60) / 20
    labels = (generator.random(60) < scores).astype(int)
    posts, least = posts_of(scores, labels), 0.7
    chosen = choose_threshold(posts, 1, {kind: least})
    found = {}
    for threshold in [chosen, *np.arange(0.025, 1, 0.05)]:
        alarms = scores >= threshold
        if alarms.any():
            hits = (alarms & (labels == 1)).sum()
            shares = {"precision": hits / alarms.sum(), "recall": hits / labels.sum()}
            found[threshold] = (shares, alarms.sum())
    shares, count = found[chosen]
    assert shares[kind] >= least
    enough = [(others, number) for others, number in found.values() if others[kind] >= least]
    if kind == "precision":
        assert shares["recall"] == max(others["recall"] for others, _ in enough)
    else:
        assert count == min(number for _, number in enough)


def test_a_precision_that_no_threshold_gives_is_refused_with_the_best_one():
    """The best is two of three. The surest post is wrong."""
    posts = posts_of([0.9, 0.8, 0.7, 0.6, 0.2, 0.1], [0, 1, 1, 0, 0, 0])
    with pytest.raises(
        ValueError, match=r"Turn.*0\.8 on the 6 held-out.*0\.667, from.* 0\.7000.*3 alarms, recall 1\.000"
    ):
        choose_threshold(posts, 1, {"precision": 0.8})
    # A recall can always be had.
    assert choose_threshold(posts, 1, {"recall": 1.0}) < 0.7
    with pytest.raises(ValueError, match="None of the 2 held-out posts is Turn"):
        choose_threshold(posts_of([0.9, 0.8], [0, 0]), 1, {"recall": 0.5})
    with pytest.raises(ValueError, match="--watch"):
        choose_alarm(posts, None, {"recall": 0.5}, [])


def timelines_of(times: list[list[float]]) -> list:
    return [make_timeline([-100] * len(own), name=str(number), timestamps=own) for number, own in enumerate(times)]


def test_what_is_measured_at_a_threshold():
    """Three of the eight posts of three days have no label, and count among the posts of a day."""
    labels, scores, of = [1, 0, 1, 1, 0], [0.9, 0.8, 0.7, 0.2, 0.1], [0, 0, 1, 1, 2]
    start = 1_700_000_000 // DAY * DAY
    times = [[start, start + 60, start + 5 * DAY], [start, start + 1, start + 2], [start + 9 * DAY, start + 9 * DAY]]
    facts = measure_alarm(posts_of(scores, labels, of), 1, 0.5, timelines_of(times))
    assert (facts["posts"], facts["timelines"], facts["alarms"], facts["alarmed_timelines"]) == (5, 3, 3, 2)
    assert facts["precision"] == facts["recall"] == pytest.approx(2 / 3)
    assert facts["alarms_per_hundred_posts"] == pytest.approx(60)
    assert facts["posts_per_day"] == pytest.approx(8 / 3) and facts["alarms_per_day"] == pytest.approx(0.6 * 8 / 3)
    # Without dates there is no day.
    for times in (None, [0.0, 60.0, 4000.0]):
        untimed = [make_timeline([-100] * 3, timestamps=times)]
        facts = measure_alarm(posts_of(scores, labels, of), 1, 0.5, untimed)
        assert "alarms_per_day" not in facts and facts["alarms_per_hundred_posts"] == pytest.approx(60)


def test_the_interval_is_over_timelines():
    """All samples of three timelines are listed. Those without an alarm have no precision."""
    labels, scores, of = [1, 0, 0, 1, 1, 0], [0.9, 0.8, 0.7, 0.6, 0.9, 0.1], [0, 0, 0, 1, 1, 2]
    facts = measure_alarm(posts_of(scores, labels, of), 1, 0.5, timelines_of([[0.0]]))
    hits, alarms, of_class = {0: 1, 1: 2, 2: 0}, {0: 3, 1: 2, 2: 0}, {0: 1, 1: 2, 2: 0}
    for name, judged in (("precision", alarms), ("recall", of_class)):
        samples = [
            sum(map(hits.get, sample)) / number
            for sample in itertools.product(range(3), repeat=3)
            if (number := sum(map(judged.get, sample)))
        ]
        if len(set(samples)) == 1:
            assert f"{name}_interval" not in facts
        else:
            assert facts[f"{name}_interval"] == pytest.approx(np.quantile(samples, [0.025, 0.975]), abs=0.02)


def test_shares_that_resampling_cannot_tell_have_no_interval():
    """Two right alarms would be right in every sample, and a single timeline gives one sample."""
    facts = measure_alarm(posts_of([0.9, 0.8, 0.1, 0.2], [1, 1, 0, 1]), 1, 0.5, timelines_of([[0.0]]))
    assert facts["precision"] == 1 and "precision_interval" not in facts and "recall_interval" in facts
    facts = measure_alarm(posts_of([0.9, 0.8, 0.1], [1, 0, 1], [4, 4, 4]), 1, 0.5, timelines_of([[0.0]]))
    assert facts["precision"] == 0.5 and not {"precision_interval", "recall_interval"} & set(facts)
    # No alarm at all has no precision.
    facts = measure_alarm(posts_of([0.4, 0.3], [1, 0]), 1, 0.5, timelines_of([[0.0]]))
    assert facts["alarms"] == 0 and "precision" not in facts and facts["recall"] == 0


@pytest.mark.parametrize("model_type", ["tempoformer", "post_tempoformer"])
def test_an_alarm_is_saved_with_the_model_and_said_in_one_sentence(tmp_path, model_type):
    labels = {"id2label": {0: "no", 1: "Turn"}, "label2id": {"no": 0, "Turn": 1}}
    model = tiny_model(num_labels=2, model_type=model_type, watched=1, **labels)
    assert alarm_sentence(model.config) is None
    alarm = choose_alarm(posts_of(SCORES, LABELS), 1, {"precision": 0.75}, timelines_of([[1.7e9]]))
    model.config.calibration = {"alarm": alarm}
    model.save_pretrained(tmp_path)
    config = type(model.config).from_pretrained(tmp_path)
    said = alarm_sentence(config)
    for words in (
        "Turn",
        f"{alarm['threshold']}",
        "precision of 0.75",
        "7 held-out",
        "0.750",
        "4 alarms",
        "by chance",
    ):
        assert words in said
    config.calibration = {"alarm": {"label": 1, "threshold": 0.4}}
    assert "0.4 " in alarm_sentence(config) and "by hand" in alarm_sentence(config)
