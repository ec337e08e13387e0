"""Checks the cutting of timelines to rows."""

import logging

from datasets import Dataset
from helpers import VOCABULARY
from transformers import BertTokenizer

from modeling_tempoformer import PostTempoFormerConfig
from modeling_tempoformer.posts.rows import to_rows
from modeling_tempoformer.posts.timelines import to_timelines


CLS, SEP, SAD, GLAD = (VOCABULARY[word] for word in ("[CLS]", "[SEP]", "sad", "glad"))
POSTS = [
    {"timeline_id": "a", "timestamp": "60", "text": "sad", "label": "IS"},
    {"timeline_id": "a", "timestamp": "30", "text": "glad", "label": None},
    {"timeline_id": "a", "timestamp": "60", "text": "sad sad glad", "label": "O"},
    {"timeline_id": "b", "timestamp": "5", "text": "", "label": "O"},
]


def test_rows_hold_every_target_once_with_its_context(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("modeling_tempoformer"), "propagate", True)
    tokenizer = BertTokenizer(vocab=VOCABULARY)
    timelines = to_timelines(Dataset.from_list(POSTS), ["IS", "O"])
    rows = list(to_rows(timelines, tokenizer, window=2, targets_per_row=2, max_seq_length=4, part="validation"))
    assert [row["labels"] for row in rows] == [[-100, 0], [1], [1]]
    assert [(row["timeline"], row["num_before"]) for row in rows] == [(0, 0), (0, 1), (1, 0)]
    assert [row["num_context"] for row in rows] == [0, 1, 0]
    assert rows[1]["input_ids"] == [[CLS, SAD, SEP], [CLS, SAD, SAD, SEP]] and rows[1]["timestamps"] == [60.0, 60.0]
    assert rows[2]["input_ids"] == [[CLS, SEP]]
    # Posts that are cut are counted, and their part is named.
    assert "validation: 1 of 4 posts" in caplog.text and "4 tokens" in caplog.text
    training = list(to_rows(timelines, tokenizer, window=2, targets_per_row=2, only_labelled=True))
    assert [row["is_target"] for row in training] == [[False, True], [True], [True]]


def test_the_states_that_a_training_leaves_out_do_not_depend_on_names():
    """About half of them: a file of one timeline, which is named after it, may be renamed."""
    config = PostTempoFormerConfig(states=["calm", "low"], reads_known_states=True)
    found = []
    for names in (("a", "b"), ("ann", "bob")):
        posts = [
            {"timeline_id": name, "text": f"{place} sad {number}", "label": "O", "state": "calm"}
            for place, name in enumerate(names)
            for number in range(40)
        ]
        timelines, tokenizer = to_timelines(Dataset.from_list(posts), ["IS", "O"]), BertTokenizer(vocab=VOCABULARY)
        rows = to_rows(timelines, tokenizer, window=2, only_labelled=True, targets_per_row=80, states_config=config)
        found.append([row["thinned_states"] for row in rows])
    assert found[0] == found[1] and found[0][0] != found[0][1]
    # How many states are known at the last post
    assert all(10 < sum(states[-1][2]) < 30 for states in found[0])
