"""Checks splits by date on timelines worked by hand: the parts, what streams read, and which posts are scored."""

import json
from collections import Counter
from itertools import chain

import numpy as np
import pytest
import torch
from helpers import ROOT, make_timeline, tiny_reader
from transformers import AutoTokenizer

from modeling_tempoformer import StreamClassificationPipeline, StreamCollator
from modeling_tempoformer.evaluation.alarms import measure_alarms
from modeling_tempoformer.evaluation.prediction_table import prediction_rows
from modeling_tempoformer.evaluation.predictions import attach_logits, decide_posts
from modeling_tempoformer.evaluation.report import count_line, score_part
from modeling_tempoformer.posts.date_splits import split_by_date
from modeling_tempoformer.posts.metadata import Metadata
from modeling_tempoformer.posts.rows import to_rows
from modeling_tempoformer.posts.splits import hash_id, hold_back, make_split, read_split, write_split
from modeling_tempoformer.posts.surveys import survey
from modeling_tempoformer.timeline_tempoformer import Timeline


START = 1_700_000_000


def written(name: str, days: list[int], labels: list[int], **fields) -> Timeline:
    """Returns a timeline with posts on these days."""
    rows = [100 * ord(name[0]) + number for number in range(len(days))]
    times = [START + 86_400.0 * day for day in days]
    ids = [f"{name}{day}" for day in days]
    fields = {"input_rows": rows, "texts": [f"day {post}" for post in ids], **fields}
    return make_timeline(labels, name, timestamps=times, post_ids=ids, **fields)


def people() -> list[Timeline]:
    """Returns three people. Ten posts have labels; two of these are of one moment, the sixth day."""
    return [
        written("ann", [1, 3, 5, 6, 7, 9], [0, 1, 0, 1, 0, 1]),
        written("bob", [2, 6, 8], [0, 0, -100]),
        written("cid", [7, 8], [1, 0]),
    ]


def targets_of(timelines: list[Timeline]) -> list[str]:
    return [post for timeline in timelines for post in timeline.post_ids[timeline.num_context :]]


def test_each_post_is_in_one_part_and_none_of_training_is_later():
    splits, dates = split_by_date(people(), 0.4, 0.5)
    # Four of ten labelled posts are after the sixth day, and three of the other six after the third.
    assert dates == {"test": START + 6 * 86_400, "validation": START + 3 * 86_400}
    assert targets_of(splits["test"]) == ["ann7", "ann9", "bob8", "cid7", "cid8"]
    assert targets_of(splits["validation"]) == ["ann5", "ann6", "bob6"]
    assert targets_of(splits["train"]) == ["ann1", "ann3", "bob2"]
    everything = chain.from_iterable(timeline.post_ids for timeline in people())
    assert Counter(chain.from_iterable(map(targets_of, splits.values()))) == Counter(everything)
    assert not any(timeline.num_context for timeline in splits["train"])
    ann, bob, cid = splits["test"]
    # Earlier posts are there, without labels. Cid is new.
    assert ann.post_ids == people()[0].post_ids and ann.num_context == 4 and ann.labels == [-100] * 4 + [0, 1]
    assert bob.num_context == 2 and cid.num_context == 0 and cid == people()[2]
    assert splits["validation"][0].post_ids == ["ann1", "ann3", "ann5", "ann6"]
    # Without validation, all the rest is for training.
    splits, dates = split_by_date(people(), 0.4, None)
    assert sorted(splits) == ["test", "train"] and list(dates) == ["test"] and len(targets_of(splits["train"])) == 6


@pytest.mark.parametrize(("fraction", "last"), [(0.1, 8), (0.2, 7), (0.29, 7), (0.45, 6), (0.55, 5), (0.9, 1)])
def test_posts_of_one_moment_are_on_one_side(fraction, last):
    """1, 2, 4, 6 and 9 of ten labelled posts are after the eighth, seventh, sixth, fifth and first day."""
    splits, dates = split_by_date(people(), fraction, None)
    assert dates["test"] == START + 86_400 * last
    is_later = {post: int(post[3:]) > last for timeline in people() for post in timeline.post_ids}
    assert sorted(targets_of(splits["test"])) == sorted(post for post, later in is_later.items() if later)


def test_posts_without_dates_and_without_two_parts_are_refused():
    untimed = [make_timeline([0, 1])]
    seconds = [make_timeline([0, 1], timestamps=[0.0, 60.0])]
    one_moment = [written("ann", [1, 1, 2], [0, 1, -100])]
    for timelines, fraction, words in (
        (untimed, 0.2, "--columns timestamp="),
        (seconds, 0.2, "--columns timestamp="),
        (one_moment, 0.2, "two moments"),
        (people(), 1.0, "between 0 and 1"),
        (people(), 0.0, "between 0 and 1"),
    ):
        with pytest.raises(ValueError, match=words):
            split_by_date(timelines, fraction, None)


def test_context_is_counted_nowhere():
    metadata = [Metadata("calm", labels={"x": 0, "y": 1})] * 6
    timelines = [written("ann", [1, 3, 5, 6, 7, 9], [0, 1, 0, 1, 0, 1], metadata=metadata), *people()[1:]]
    splits, _ = split_by_date(timelines, 0.4, None)
    test, train = splits["test"], splits["train"]
    assert survey(test).labels == {0: 2, 1: 2, -100: 1}
    assert [sorted(one.labels) for one in test[0].metadata] == [[]] * 4 + [["x", "y"]] * 2
    for timeline in test:
        timeline.logits = torch.eye(2)[torch.tensor([1] * len(timeline))]
    predictions, probabilities = decide_posts(test, None)
    part = score_part(test, predictions, probabilities, ["No", "Yes"], train)
    assert (part["posts"], part["labelled_posts"], part["timelines"]) == (5, 4, 3)
    assert count_line("test", part) == "test: 5 posts of 3 timelines, 4 labelled"
    assert (part["people"]["people"], part["people"]["in_training"]) == (3, 2)
    assert part["people"]["seen"]["posts"] == 2 and part["people"]["unseen"]["posts"] == 2
    # Four of the five posts, on three days, and one of the context, which does not count
    alarms = measure_alarms(test, np.isin(np.arange(len(predictions)), [0, 4, 5, 9, 10]), predictions >= 0, 1)
    expected = {"alarms_per_hundred_posts": 80, "posts_per_day": 5 / 3, "alarms_per_day": 4 / 3}
    assert {name: alarms[name] for name in expected} == pytest.approx(expected)
    table = prediction_rows(test, predictions, probabilities, ["No", "Yes"])
    assert table["post_id"].tolist() == ["ann7", "ann9", "bob8", "cid7", "cid8"] and "is_target" not in table
    assert set(table["prediction"]) == {"Yes"}


@pytest.mark.parametrize("model_type", ["tempoformer", "post_tempoformer"])
@pytest.mark.parametrize("targets_per_row", [1, 2, 16])
def test_the_test_reads_what_was_written_before(model_type, targets_per_row):
    """Logits are the same as the pipeline's on the whole timeline."""
    model, tokenizer = tiny_reader(model_type=model_type, window=3)
    model.eval()
    whole = people()
    for _ in StreamClassificationPipeline(model=model, tokenizer=tokenizer)(whole):
        pass
    splits, _ = split_by_date(people(), 0.4, None)
    rows = to_rows(splits["test"], tokenizer, 3, targets_per_row)
    batch = StreamCollator(tokenizer, 3)([rows[number] for number in range(len(rows))])
    with torch.no_grad():
        logits = model(**batch).logits
    attach_logits(splits["test"], rows, logits.numpy())
    for timeline, expected in zip(splits["test"], whole, strict=True):
        # The logits of the context, too.
        torch.testing.assert_close(timeline.logits, expected.logits, atol=1e-5, rtol=0)


def test_rows_ask_about_labelled_posts_of_a_validation_alone():
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "tokenization")
    splits, _ = split_by_date(people(), 0.4, 0.5)
    rows = to_rows(splits["validation"], tokenizer, 3, only_labelled=True)
    assert sum(chain.from_iterable(rows["is_target"])) == 3
    rows = to_rows(splits["train"], tokenizer, 3)
    assert "is_target" not in rows.column_names


def test_a_saved_model_is_scored_on_later_posts_alone(tmp_path):
    timelines = people()
    splits, dates = split_by_date(timelines, 0.4, 0.5)
    ids = {name: [timeline.timeline_id for timeline in part] for name, part in splits.items()}
    write_split(tmp_path, make_split(ids, read_split(None), dates))
    before = read_split(tmp_path)
    assert json.loads((tmp_path / "_split.json").read_text())["dates"] == dates
    for name in ("test", "validation"):
        assert hold_back(name, timelines, before, "mine") == splits[name]
    # Later posts without the earlier ones, of a person of the training and of another one
    later = [written("ann", [10, 11], [0, 1]), written("dan", [1, 2], [0, 1])]
    assert hold_back("test", later, before, "mine") == later
    with pytest.raises(ValueError, match="mine has learned from all these posts"):
        hold_back("test", splits["train"], before, "mine")
    # Posts without labels are predicted, whoever wrote them.
    unlabelled = [written("ann", [1, 2], [-100, -100])]
    assert hold_back("test", unlabelled, before, "mine") == unlabelled
    # Without times nobody knows what is later.
    with pytest.raises(ValueError, match="learned.*ann"):
        hold_back("test", [make_timeline([0, 1], "ann")], before, "mine")


def test_who_is_new_in_a_calibration_is_not_tested():
    splits, dates = split_by_date(people(), 0.4, 0.5)
    ids = {name: [timeline.timeline_id for timeline in part] for name, part in splits.items()}
    nothing = read_split(None)
    first = make_split(ids, nothing, dates)
    before = {**{name: set(first[name]) for name in first if name != "dates"}, "dates": dates}
    again = make_split({"validation": ["ann", "eve"]}, before)
    assert again == {**first, "earlier": [hash_id("eve")]}
    assert make_split({"test": ["ann"]}, before) == first
    # A training that divides by timelines refuses what is in two parts.
    with pytest.raises(ValueError, match="in common.*ann"):
        make_split(ids, nothing)
