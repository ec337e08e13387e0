"""Checks the threshold for a wanted precision or recall, and what is measured at it, against plain search."""

import itertools

import numpy as np
import pytest
from helpers import make_timeline, tiny_model

from modeling_tempoformer.evaluation.alarm_goals import AlarmGoal
from modeling_tempoformer.evaluation.alarms import (
    alarm_sentence,
    alarms_in_turn,
    choose_alarm,
    choose_threshold,
    compare_alarms,
    measure_alarms,
    measured_words,
)
from modeling_tempoformer.evaluation.predictions import Predictions
from modeling_tempoformer.posts.metadata import Metadata


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
    ("goal", "threshold"),
    [
        # Alone the surest is right.
        (AlarmGoal("precision", 0.8), 0.85),
        # Three of four, which is more than one of one.
        (AlarmGoal("precision", 0.75), 0.55),
        (AlarmGoal("precision", 0.66), 0.2),
        # All posts are alarms, four of seven right.
        (AlarmGoal("precision", 0.5), 0.05),
        (AlarmGoal("recall", 0.25), 0.85),
        (AlarmGoal("recall", 0.26), 0.65),
        (AlarmGoal("recall", 0.75), 0.55),
        (AlarmGoal("recall", 1.0), 0.2),
    ],
)
def test_the_threshold_for_a_wanted_share(goal, threshold):
    """It is in the middle half between two posts. Whatever the order of the posts, it is the same."""
    for order in ([0, 1, 2, 3, 4, 5, 6], [3, 6, 0, 5, 2, 4, 1]):
        posts = posts_of([SCORES[post] for post in order], [LABELS[post] for post in order])
        chosen = choose_threshold(posts, 1, goal)
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
    chosen = choose_threshold(posts, 1, AlarmGoal(kind, least))
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
        choose_threshold(posts, 1, AlarmGoal("precision", 0.8))
    # A recall can always be had.
    assert choose_threshold(posts, 1, AlarmGoal("recall", 1.0)) < 0.7
    with pytest.raises(ValueError, match="None of the 2 held-out posts is Turn"):
        choose_threshold(posts_of([0.9, 0.8], [0, 0]), 1, AlarmGoal("recall", 0.5))
    with pytest.raises(ValueError, match="--watch"):
        choose_alarm([], np.zeros(0), np.zeros((0, 2)), ["no", "Turn"], None, AlarmGoal("recall", 0.5))


def test_alarms_in_turn_are_those_of_a_loop_over_parts():
    """Timelines make five parts, or a part for each member that holds them out; a family is in one part."""
    generator = np.random.default_rng(0)
    for by_member in (False, True):
        timelines, families = [], []
        for number in range(12):
            families.append(number // 2)
            held_out = number // 4 if by_member else None
            metadata = [Metadata(None, f"family {number // 2}", {})] * 5
            labels = generator.integers(-1, 2, size=5)
            labels[labels < 0] = -100
            timelines.append(make_timeline(labels.tolist(), str(number), held_out=held_out, metadata=metadata))
        parts = np.repeat([number // 4 if by_member else families[number] % 5 for number in range(12)], 5)
        labels = np.concatenate([timeline.labels for timeline in timelines])
        scores = np.clip(0.3 * (labels == 1) + generator.random(60), 0, 1) / 1.3
        for goal in (AlarmGoal("precision", 0.7), AlarmGoal("recall", 0.6)):
            found = alarms_in_turn(timelines, scores, 1, goal)
            for post in range(60):
                others = (labels >= 0) & (parts != parts[post])
                threshold = choose_threshold(posts_of(scores[others], labels[others]), 1, goal)
                assert found[post] == (scores[post] >= threshold)


def test_alarms_are_measured_by_thresholds_that_have_not_seen_the_posts():
    """The labels are random: the best of many thresholds has 0.9 on its own posts, and a half on others."""
    generator, hits, in_turn = np.random.default_rng(0), [], []
    for _ in range(80):
        timelines = [make_timeline(generator.integers(2, size=10).tolist(), str(number)) for number in range(20)]
        scores = generator.random(200)
        probabilities, predictions = np.stack([1 - scores, scores], axis=1), (scores > 0.5).astype(int)
        labels = np.concatenate([timeline.labels for timeline in timelines])
        try:
            alarm = choose_alarm(timelines, predictions, probabilities, ["no", "Turn"], 1, AlarmGoal("precision", 0.9))
        except ValueError:
            continue
        is_alarm = scores >= alarm["threshold"]
        hits += (labels[is_alarm] == 1).tolist()
        measured = alarm["measured"]
        in_turn += [measured["precision"]] * measured["alarms"] if measured["alarms"] else []
    assert np.mean(hits) > 0.9 and len(in_turn) > 30 and np.mean(in_turn) < 0.75


def measure(labels: list[int], scores: list[float], of: list[int], times=None, threshold: float = 0.5, **rule) -> dict:
    """Measures the alarms from a threshold on. Posts with NaN were not asked about."""
    numbers = sorted(set(of))
    places = [[post for post, number in enumerate(of) if number == timeline] for timeline in numbers]
    timelines = [
        make_timeline(
            [labels[post] for post in timeline], timestamps=None if times is None else [times[p] for p in timeline]
        )
        for timeline in places
    ]
    scores = np.array([scores[post] for timeline in places for post in timeline])
    return measure_alarms(timelines, scores >= threshold, ~np.isnan(scores), 1, **rule)


NEVER = float("nan")


def test_what_is_measured_at_a_threshold():
    """Three of the eight posts of three days have no label and were not asked about. They alarm as often as others."""
    labels, scores = [1, 0, -100, 1, 1, -100, 0, -100], [0.9, 0.8, NEVER, 0.7, 0.2, NEVER, 0.1, NEVER]
    start = 1_700_000_000 // DAY * DAY
    times = [start, start + 60, start + 5 * DAY, start, start + 1, start + 2, start + 9 * DAY, start + 9 * DAY]
    of = [0, 0, 0, 1, 1, 1, 2, 2]
    values = measure(labels, scores, of, times)
    assert (values["posts"], values["timelines"], values["alarms"], values["alarmed_timelines"]) == (5, 3, 3, 2)
    assert values["precision"] == values["recall"] == pytest.approx(2 / 3)
    assert values["alarms_per_hundred_posts"] == pytest.approx(60)
    assert values["posts_per_day"] == pytest.approx(8 / 3) and values["alarms_per_day"] == pytest.approx(0.6 * 8 / 3)
    # Without dates there is no day.
    for times in (None, list(range(8))):
        values = measure(labels, scores, of, times)
        assert "alarms_per_day" not in values and values["alarms_per_hundred_posts"] == pytest.approx(60)


def test_first_posts_that_cannot_be_an_alarm_do_not_count_as_if_they_could():
    """
    Two timelines of four posts in a day. Their first posts have no label and cannot alarm; of the labelled posts half
    are alarms, and so are half of the others that can be one: of eight posts three.
    """
    labels, of = [-100, 1, 0, -100] * 2, [0] * 4 + [1] * 4
    scores, times = [NEVER, 0.9, 0.1, NEVER] * 2, [1.7e9 + post for post in range(8)]
    values = measure(labels, scores, of, times, first_posts="timeline")
    assert values["alarms_per_day"] == pytest.approx(3) and values["alarms_per_hundred_posts"] == pytest.approx(37.5)
    assert measure(labels, scores, of, times)["alarms_per_day"] == pytest.approx(4)
    # Where all posts were asked about, as in a test, alarms are counted.
    values = measure(labels, [0.0, 0.9, 0.1, 0.8, 0.0, 0.9, 0.1, 0.2], of, times, first_posts="timeline")
    assert values["alarms_per_day"] == pytest.approx(3) and values["alarms"] == 2


def test_numbers_of_alarms_have_no_exponent():
    values = measure([1, 0, 1], [0.9, 0.9, 0.9], [0, 0, 1], [1.7e9] * 3)
    assert "100 of a hundred" in measured_words(values) and "e+" not in measured_words(values)
    words = measured_words(values | {"alarms_per_day": 1234.5, "posts_per_day": 123456.0})
    assert "1200 a day at 123000 posts" in words


def test_the_interval_is_over_timelines():
    """All samples of three timelines are listed. Those without an alarm have no precision."""
    labels, scores, of = [1, 0, 0, 1, 1, 0], [0.9, 0.8, 0.7, 0.6, 0.9, 0.1], [0, 0, 0, 1, 1, 2]
    values = measure(labels, scores, of)
    hits, alarms, of_class = {0: 1, 1: 2, 2: 0}, {0: 3, 1: 2, 2: 0}, {0: 1, 1: 2, 2: 0}
    for name, judged in (("precision", alarms), ("recall", of_class)):
        samples = [
            sum(map(hits.get, sample)) / number
            for sample in itertools.product(range(3), repeat=3)
            if (number := sum(map(judged.get, sample)))
        ]
        if len(set(samples)) == 1:
            assert f"{name}_interval" not in values
        else:
            assert values[f"{name}_interval"] == pytest.approx(np.quantile(samples, [0.025, 0.975]), abs=0.02)


def test_shares_that_resampling_cannot_tell_have_no_interval():
    """Two right alarms would be right in every sample, and a single timeline gives one sample."""
    values = measure([1, 1, 0, 1], [0.9, 0.8, 0.1, 0.2], [0, 1, 2, 3])
    assert values["precision"] == 1 and "precision_interval" not in values and "recall_interval" in values
    values = measure([1, 0, 1], [0.9, 0.8, 0.1], [4, 4, 4])
    assert values["precision"] == 0.5 and not {"precision_interval", "recall_interval"} & set(values)
    # No alarm at all has no precision.
    values = measure([1, 0], [0.4, 0.3], [0, 1])
    assert values["alarms"] == 0 and "precision" not in values and values["recall"] == 0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["precision", "recall"])
def test_a_rival_has_the_threshold_that_is_best_for_it_at_the_same_share(kind, seed):
    """All its thresholds are tried, and all samples of its four timelines listed."""
    generator = np.random.default_rng(seed)
    of, is_class = np.repeat(np.arange(4), 6), generator.random(24) < 0.4
    # The second half of the posts of each timeline are in no class in some samples.
    is_alarm = np.where(generator.random(24) < 0.75, is_class, ~is_class)
    scores = generator.integers(0, 8, 24) / 8 + is_class / 8

    def shares(alarms, posts=slice(None)) -> dict[str, float]:
        hits = (alarms & is_class)[posts].sum()
        return {"precision": hits / max(1, alarms[posts].sum()), "recall": hits / max(1, is_class[posts].sum())}

    least, other = shares(is_alarm)[kind], {"precision": "recall", "recall": "precision"}[kind]
    # Of all with a recall the best has the fewest alarms, so that its precision need not be the largest.
    enough = [alarms for cut in set(scores) if shares(alarms := scores >= cut)[kind] >= least]
    best = max(enough, key=sum, default=None) if kind == "precision" else min(enough, key=sum)
    found = compare_alarms(scores, is_alarm, is_class, of, kind)
    if best is None:
        assert found["alarms"] == 0 and found["recall"] == 0 and "precision" not in found
        return
    assert found["alarms"] == best.sum()
    assert {name: found[name] for name in ("precision", "recall")} == pytest.approx(shares(best))
    assert found["difference"] == pytest.approx(shares(is_alarm)[other] - shares(best)[other])
    samples = []
    for sample in itertools.product(range(4), repeat=4):
        posts = np.concatenate([np.flatnonzero(of == timeline) for timeline in sample])
        judged = [(is_class if other == "recall" else alarms)[posts].any() for alarms in (is_alarm, best)]
        if all(judged):
            samples.append(shares(is_alarm, posts)[other] - shares(best, posts)[other])
    # The samples have few values, between which the quantile of a bootstrap may jump.
    for end, share in zip(found["difference_interval"], (0.025, 0.975), strict=True):
        low, high = np.quantile(samples, [share - 0.01, share + 0.01])
        assert low - 1e-9 <= end <= high + 1e-9


def test_a_rival_that_is_never_so_precise_raises_no_alarm():
    """Its surest post is wrong, and the model's alarm is right. A single timeline has no interval."""
    is_class = np.array([False, True, True, False])
    found = compare_alarms(
        np.array([0.9, 0.8, 0.1, 0.7]), np.array([False, True, False, False]), is_class, np.zeros(4), "precision"
    )
    assert found == {"alarms": 0, "recall": 0.0, "difference": pytest.approx(0.5)}


@pytest.mark.parametrize("model_type", ["tempoformer", "post_tempoformer"])
def test_an_alarm_is_saved_with_the_model_and_said_in_one_sentence(tmp_path, model_type):
    labels = {"id2label": {0: "no", 1: "Turn"}, "label2id": {"no": 0, "Turn": 1}}
    model = tiny_model(num_labels=2, model_type=model_type, watched=1, **labels)
    assert alarm_sentence(model.config) is None
    shares = np.array(SCORES)
    timelines = [make_timeline([label], str(number), timestamps=[1.7e9]) for number, label in enumerate(LABELS)]
    decided = (shares > 0.5).astype(int), np.stack([1 - shares, shares], 1)
    alarm = choose_alarm(timelines, *decided, ["no", "Turn"], 1, AlarmGoal("precision", 0.75))
    model.config.calibration = {"alarm": alarm}
    model.save_pretrained(tmp_path)
    config = type(model.config).from_pretrained(tmp_path)
    sentence = alarm_sentence(config)
    for words in (
        "Turn",
        f"{alarm['threshold']}",
        "precision of 0.75",
        "7 held-out",
        f"precision {alarm['measured']['precision']:.3f}",
        f"{alarm['measured']['alarms']} alarms",
        "by chance",
    ):
        assert words in sentence
    # A single timeline leaves none to measure on.
    alone = choose_alarm([make_timeline(LABELS)], *decided, ["no", "Turn"], 1, AlarmGoal("precision", 0.75))
    config.calibration = {"alarm": alone}
    assert "measured" not in alone and "too few" in alarm_sentence(config)
    config.calibration = {"alarm": {"label": 1, "threshold": 0.4}}
    assert "0.4 " in alarm_sentence(config) and "by hand" in alarm_sentence(config)
