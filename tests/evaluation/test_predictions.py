"""Checks the way from logits of rows to scores and a table of posts."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from datasets import Dataset
from helpers import make_timeline
from sklearn.metrics import f1_score

from modeling_tempoformer import PostTempoFormerConfig
from modeling_tempoformer.common.data_frames import to_arrow
from modeling_tempoformer.evaluation.metrics import compute_scores
from modeling_tempoformer.evaluation.prediction_table import (
    GIVEN,
    GIVEN_BUT_TEXTS,
    prediction_rows,
    read_predictions,
    write_mistakes,
    write_predictions,
)
from modeling_tempoformer.evaluation.predictions import attach_logits, decide_posts, labelled_posts
from modeling_tempoformer.posts.timelines import to_timelines
from modeling_tempoformer.timeline_tempoformer import Timeline


NAMES = ["No-Switch", "Switch"]


@pytest.fixture
def timelines() -> list[Timeline]:
    """Returns two timelines whose posts alternate in the input. One post has no label."""
    first = make_timeline([0, 1], "a", timestamps=[0, 5], input_rows=[0, 2], post_ids=["p0", "p2"])
    rest = {"timestamps": [0, 60, 90], "input_rows": [1, 3, 4], "post_ids": ["p1", "p3", "p4"]}
    return [first, make_timeline([-100, 1, 1], "b", **rest)]


def test_logits_are_attached_to_their_posts_whatever_follows_them(timelines):
    """The first posts of rows are context, except in one row."""
    columns = ("timeline", "num_before", "num_context", "labels", "is_target")
    rows = [(1, 0, 1, [-100, 1], [False, True]), (0, 0, 0, [0, 1], [True] * 2), (1, 0, 0, [-100], [True])]
    items = Dataset.from_list([dict(zip(columns, row, strict=True)) for row in rows])
    logits = np.array([[[4.0, 5.0], [-100.0] * 2], [[0.0, 1.0], [2.0, 9.0]], [[3.0, 1.0], [-100.0] * 2]])
    attach_logits(timelines, items, logits)
    assert timelines[0].logits.tolist() == [[0, 1], [2, 9]]
    assert timelines[1].logits[[0, 2]].tolist() == [[3, 1], [4, 5]] and timelines[1].logits[1].isnan().all()
    predictions, probabilities = decide_posts(timelines, None)
    assert predictions.tolist() == [1, 1, 0, -1, 1]
    assert probabilities[4] == pytest.approx(np.exp([0, 1]) / np.exp([0, 1]).sum()) and not probabilities[3].any()
    # The calibration decides. Its threshold makes one class almost impossible.
    assert decide_posts(timelines, {"thresholds": [1e-6, 0.99]})[0].tolist() == [0, 0, 0, -1, 0]


def test_alarms_stand_in_the_table_of_a_model_that_watches_a_class(timelines):
    """The threshold decides, and not the label. A post that was not asked about is no alarm, even from 0 on."""
    shares = [[0.5, 0.2], [0.6, np.nan, 0.1]]
    for timeline, part in zip(timelines, shares, strict=True):
        timeline.logits = torch.tensor([[1 - share, share] for share in part]).log()
    for threshold, expected in ((0.5, [True, True, False, None, False]), (0.0, [True, True, True, None, True])):
        fields = {"watched": 1, "num_labels": 2, "calibration": {"alarm": {"label": 1, "threshold": threshold}}}
        config = SimpleNamespace(**fields)
        table = prediction_rows(timelines, *decide_posts(timelines, config.calibration), NAMES, config=config)
        assert table["alarm"].astype(object).where(table["alarm"].notna(), None).tolist() == expected
        assert set(table["watched"]) == {"Switch"} and set(table["watched_threshold"]) == {threshold}
        assert table["watched_probability"].dropna().tolist() == pytest.approx([0.5, 0.6, 0.2, 0.1])


def test_a_logit_that_is_not_finite_names_its_post(timelines):
    items = Dataset.from_list([{"timeline": 1, "num_before": 0, "num_context": 0, "labels": [0, 0, 0]}])
    with pytest.raises(ValueError, match="'p3'.*nan"):
        attach_logits(timelines, items, np.array([[[0.0, 1.0], [math.nan, 1.0], [0.0, 1.0]]]))


def test_scores_of_labelled_posts_timelines_and_probabilities(timelines):
    predicted = np.array([0, 1, 1, 0, 1])
    probabilities = np.eye(2)[predicted] * 0.8 + 0.1
    scores = compute_scores(labelled_posts(timelines, predicted, NAMES, probabilities))
    assert scores["macro_f1"] == pytest.approx(f1_score([0, 1, 1, 1], [0, 1, 0, 1], average="macro"))
    assert scores["support_Switch"] == 3
    # Every confidence is 0.9, and three of four are right.
    assert scores["expected_calibration_error"] == pytest.approx(0.9 - 0.75)
    # The region of a is flagged at its first post, the region of b at its second post, 30 seconds late.
    assert scores["median_delay_posts_Switch"] == pytest.approx(0.5)
    assert scores["median_delay_seconds_Switch"] == pytest.approx(15)


# Texts have all kinds of line breaks, a spreadsheet's formulas, missing cells of pandas, and quotes.
TEXTS = ["a\rb", "a\r\nb\n", "=1+1", "@sum(a1)", "NA", "", '"so," she said', "007", "ｅ\u2028🙂"]
# All times are the same moment, except the last two: the earliest possible time, and a fraction of a second.
TIMES = [
    *("2024-05-01T09:00:00Z", "2024-05-01T11:00:00+02:00", "2024-05-01 09:00", "2024-04-30T23:00:00-10:00"),
    *("2024-05-01T09:00Z", "2024-05-01T09:00:00.000Z", "2024-05-01T14:30+05:30"),
    *("0001-01-02", "2024-05-01T09:00:00.5Z"),
]


def write(posts: list[dict], folder) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Writes the predictions in both formats. The i-th post of the timelines has the probability i / 10 of Switch."""
    timelines = to_timelines(Dataset.from_list(posts), NAMES)
    share = np.arange(len(posts)) / 10
    probabilities = np.stack([1 - share, share], axis=1)
    predicted = probabilities.argmax(axis=1)
    write_predictions(str(folder), prediction_rows(timelines, predicted, probabilities, NAMES))
    as_text = pd.read_csv(folder / "_predictions.csv", dtype=str, keep_default_na=False)
    return as_text, pd.read_parquet(folder / "_predictions.parquet")


def test_each_prediction_stands_beside_its_post(tmp_path):
    """Two timelines alternate, with equal texts, equal times, times in several zones, and a missing label."""
    posts = [
        {"timeline_id": "ab"[row % 2], "timestamp": time, "text": text, "label": NAMES[row % 3 % 2]}
        for row, (time, text) in enumerate(zip(TIMES, TEXTS, strict=True))
    ]
    posts[3]["text"], posts[5]["label"] = posts[1]["text"], None
    as_text, typed = write(posts, tmp_path)
    assert list(as_text)[:6] == ["timeline_id", "post_id", "time", "text", "label", "prediction"]
    for table in (as_text, typed):
        assert table["post_id"].tolist() == [str(row) for row in range(9)]
        for column in ("timeline_id", "text"):
            assert table[column].tolist() == [post[column] for post in posts]
    assert as_text["label"].tolist() == [post["label"] or "" for post in posts]
    assert as_text["time"].tolist() == [
        *["2024-05-01T09:00:00.000000Z"] * 7,
        *("0001-01-02T00:00:00.000000Z", "2024-05-01T09:00:00.500000Z"),
    ]
    # Posts are in order of time. The input of b runs backwards, and so do its ties: a has 0 2 4 6 8, b has 7 5 3 1.
    order = [0, 2, 4, 6, 8, 7, 5, 3, 1]
    assert typed["probability_Switch"].tolist() == [order.index(row) / 10 for row in range(9)]
    assert as_text["probability_Switch"].astype(float).tolist() == typed["probability_Switch"].tolist()
    schema = pq.read_schema(tmp_path / "_predictions.parquet")
    assert schema.names == list(as_text) and str(schema.field("time").type) == "timestamp[us, tz=UTC]"
    assert typed["time"].tolist() == pd.to_datetime(as_text["time"]).tolist()


@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        (["00:16:16,059", "00:00:02.877"], [976.059, 2.877]),
        (["0 days 00:00:01", "364 days 23:59:59.5"], [1.0, 31535999.5]),
        ([0, 7.25], [0.0, 7.25]),
    ],
)
def test_times_since_a_start_stay_seconds(tmp_path, times, seconds):
    posts = [{"timeline_id": "ab"[row], "timestamp": time, "text": "so"} for row, time in enumerate(times)]
    as_text, typed = write(posts, tmp_path)
    assert as_text["time"].tolist() == [str(second) for second in seconds]
    assert typed["time"].tolist() == seconds


def test_numbers_that_are_not_all_in_1970_are_dates(tmp_path):
    posts = [{"timeline_id": "a", "timestamp": time, "text": "so"} for time in (5, 31_536_000)]
    assert write(posts, tmp_path)[0]["time"].tolist() == ["1970-01-01T00:00:05Z", "1971-01-01T00:00:00Z"]


def test_posts_without_times_or_labels(tmp_path):
    as_text, typed = write([{"timeline_id": "a", "text": text} for text in TEXTS], tmp_path)
    assert "time" not in as_text and "time" not in typed
    assert set(as_text["label"]) == {""} and typed["label"].isna().all()
    # The column has the same type where some posts have labels.
    assert "string" in str(pq.read_schema(tmp_path / "_predictions.parquet").field("label").type)


def test_states_stand_beside_the_labels(timelines):
    """Two timelines alternate in the input. The model was not asked about one post, and one has no state."""
    config = PostTempoFormerConfig(states=["-1", "0", "2"], state_values=[-1.0, 0.0, 2.0])
    plain = prediction_rows(timelines, np.ones(5, int), np.ones((5, 2)) / 2, NAMES, config=config)
    assert not [name for name in plain if name.startswith("state")]
    timelines[0].states, timelines[1].states = ["2", "0"], ["", "-1", "0"]
    logits = np.log([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2], [0.6, 0.2, 0.2], [math.nan] * 3, [0.2, 0.5, 0.3]])
    timelines[0].state_logits, timelines[1].state_logits = map(torch.from_numpy, (logits[:2], logits[2:]))
    table = prediction_rows(timelines, np.ones(5, int), np.ones((5, 2)) / 2, NAMES, config=config)
    assert list(table.drop(columns=list(plain))) == [
        *("state", "state_prediction", "state_mean"),
        *("state_probability_-1", "state_probability_0", "state_probability_2"),
    ]
    # In the input a has the rows 0 and 2, b has 1, 3 and 4.
    assert table["state"].fillna("none").tolist() == ["2", "none", "0", "-1", "0"]
    assert table["state_prediction"].fillna("none").tolist() == ["2", "-1", "-1", "none", "0"]
    assert table["state_mean"].tolist() == pytest.approx([1.3, -0.2, -0.1, math.nan, 0.4], nan_ok=True)
    assert table["state_probability_0"].tolist() == pytest.approx([0.2, 0.2, 0.3, math.nan, 0.5], nan_ok=True)
    config = PostTempoFormerConfig(states=["joy", "fear", "no"])
    assert "state_mean" not in prediction_rows(timelines, np.ones(5, int), np.ones((5, 2)) / 2, NAMES, config=config)


@pytest.mark.parametrize("times", [[1714554000, 1714554000.5, -62135510400, 1, 9], [2.5, 7.25, 0, 0, 1], None])
def test_what_is_written_is_read_with_its_types_from_both_files(timelines, tmp_path, times):
    """Classes and ids look like missing values and numbers, and one post was not asked about."""
    names, shares = ["None", "NA"], [[0.1, 1 / 3], [0.7, np.nan, 1e-17]]
    for timeline, part in zip(timelines, shares, strict=True):
        timeline.logits = torch.tensor([[1 - share, share] for share in part]).log()
        timeline.post_ids = [f"00{row}" for row in timeline.input_rows]
        timeline.timestamps = times and sorted(times[row] for row in timeline.input_rows)
        timeline.states = [["", "1", "nan"][row % 3] for row in timeline.input_rows]
        timeline.state_logits = timeline.logits
    fields = {"watched": 1, "num_labels": 2, "calibration": {"alarm": {"label": 1, "threshold": 0.3}}}
    config = SimpleNamespace(**fields, states=["1", "nan"], state_values=None)
    written = prediction_rows(timelines, *decide_posts(timelines, config.calibration), names, config=config)
    write_predictions(str(tmp_path), written)
    for path in (tmp_path, tmp_path / "_predictions.parquet", tmp_path / "_predictions.csv"):
        read = read_predictions(path)
        assert list(read) == [name for name in written if name != "text"]
        assert read["post_id"].tolist() == ["000", "001", "002", "003", "004"]
        assert read["prediction"].fillna("-").tolist() == ["None", "NA", "None", "-", "None"]
        assert read["label"].fillna("-").tolist() == ["None", "-", "NA", "NA", "NA"]
        assert read["alarm"].astype(object).fillna("-").tolist() == [False, True, True, "-", False]
        assert to_arrow(read).equals(to_arrow(written.drop(columns="text")))


def test_the_surest_mistakes_are_written_the_surest_first(tmp_path):
    """Every other prediction of 60 posts is wrong. Thresholds make some predictions the less likely class."""
    chance = np.random.default_rng(0)
    labels = chance.integers(2, size=60)
    predicted = np.where(np.arange(60) % 2, labels, 1 - labels)
    sure = chance.permutation(60) / 60
    probabilities = np.where(np.arange(2) == predicted[:, None], sure[:, None], 1 - sure[:, None])
    labels[:6] = -100
    half = {"timestamps": list(range(30)), "speakers": ["ann"] * 30}
    timelines = [
        make_timeline(
            labels[rows].tolist(),
            name,
            texts=[f"text {row}" for row in rows],
            input_rows=rows,
            post_ids=[f"p{row}" for row in rows],
            **half,
        )
        for name, rows in (("a", list(range(0, 60, 2))), ("b", list(range(1, 60, 2))))
    ]
    # In the order of the timelines
    order = [*range(0, 60, 2), *range(1, 60, 2)]
    for with_texts in (True, False):
        given = GIVEN if with_texts else GIVEN_BUT_TEXTS
        table = prediction_rows(timelines, predicted[order], probabilities[order], NAMES, given)
        write_mistakes(str(tmp_path), table, timelines)
        mistakes = pd.read_csv(tmp_path / "_mistakes.csv", dtype=str)
        expected = sorted(range(6, 60, 2), key=lambda post: -sure[post])[:20]
        assert mistakes["post_id"].tolist() == [f"p{post}" for post in expected]
        assert mistakes["probability"].astype(float).tolist() == pytest.approx(sure[expected])
        columns = ["timeline_id", "post_id", "time", "speaker", "label", "prediction", "probability"]
        assert list(mistakes) == columns + ["previous_text", "compared_text", "text"] * with_texts
        assert (mistakes["label"] != mistakes["prediction"]).all()
        if with_texts:
            # Every other post is of the other timeline.
            assert mistakes["previous_text"].tolist() == [f"text {post - 2}" for post in expected]
            assert mistakes["compared_text"].tolist() == mistakes["previous_text"].tolist()
    # No file is written if all predictions are right.
    write_mistakes(str(tmp_path / "none"), table[table["label"] == table["prediction"]], timelines)
    assert not (tmp_path / "none").exists()


def test_a_mistake_stands_beside_the_post_that_its_label_compares(tmp_path):
    """Two people speak in turn by chance; the first two posts are of another part, and without answers."""
    chance, count = np.random.default_rng(1), 24
    speakers, moods = chance.choice(["ann", "bob"], count), chance.choice(["calm", "sad", ""], count)
    rows = chance.permutation(count)
    timeline = make_timeline(
        chance.integers(2, size=count).tolist(),
        speakers=speakers.tolist(),
        states=moods.tolist(),
        texts=[f"text {post}" for post in range(count)],
        input_rows=rows.tolist(),
    )
    timeline.num_context = 2
    predicted = 1 - np.array(timeline.labels)
    table = prediction_rows([timeline], predicted, np.eye(2)[predicted], NAMES)
    found = dict(zip(table["post_id"], chance.choice(["calm", "sad"], len(table)), strict=True))
    write_mistakes(str(tmp_path), table.assign(state_prediction=table["post_id"].map(found)), [timeline])
    mistakes = pd.read_csv(tmp_path / "_mistakes.csv", dtype=str, keep_default_na=False)
    assert len(mistakes) == 20
    for _, mistake in mistakes.iterrows():
        post = int(mistake["post_id"])
        own = [other for other in range(post) if speakers[other] == speakers[post]]
        assert mistake["previous_text"] == f"text {post - 1}"
        assert mistake["compared_text"] == (f"text {own[-1]}" if own else "")
        is_known = bool(own) and own[-1] >= 2
        expected = (moods[own[-1]], found[str(own[-1])]) if is_known else ("", "")
        assert (mistake["compared_state"], mistake["compared_state_prediction"]) == expected
        assert (mistake["state"], mistake["state_prediction"]) == (moods[post], found[str(post)])
