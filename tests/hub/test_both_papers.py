"""A TempoFormer that reads each post in the light of its calendar time."""

import pytest
import torch
from datasets import Dataset
from dense_reference import dense_logits
from helpers import TIMES, TINY, tiny_batch, tiny_model
from helpers import dated_bert as bert

from modeling_tempoformer import (
    StreamCollator,
    StreamState,
)
from modeling_tempoformer.data.rows import to_rows
from modeling_tempoformer.data.timelines import to_timelines


MODES = [
    {},
    {"temporal_residual": True},
    {"temporal_attention": "scaled"},
    {"temporal_attention": "none", "prepend_time": True},
]

VARIANTS = [
    {"head": "lstm"},
    {"num_stream_layers": 0},
    {"num_stream_layers": 1},
    {"model_type": "post_tempoformer"},
]


def make_model(family: str = "temporal_bert", **settings) -> torch.nn.Module:
    encoder = {"model_type": family, "pad_token_id": 1 if "roberta" in family else 0, "times": TIMES, **TINY}
    encoder |= {"initializer_range": 0.3, "time_initializer_range": 1.0, **settings.pop("encoder", {})}
    model = tiny_model(encoder_config=encoder, **settings)
    for name, parameter in model.named_parameters():
        if name.endswith("residual.weight"):
            torch.nn.init.normal_(parameter)
    return model


def make_batch(family: str = "temporal_bert", seed: int = 0) -> dict[str, torch.Tensor]:
    """As `tiny_batch`, with a calendar time for each token."""
    batch = tiny_batch(seed, pad=1 if "roberta" in family else 0)
    generator = torch.Generator().manual_seed(seed)
    batch["time_ids"] = torch.randint(1, 5, batch["input_ids"].shape, generator=generator) * batch["attention_mask"]
    del batch["labels"]
    return batch


@pytest.mark.parametrize(
    ("family", "mode", "variant"),
    [
        *(("temporal_bert", mode, {}) for mode in MODES),
        *(("temporal_bert", {}, variant) for variant in VARIANTS),
        ("temporal_roberta", {}, {}),
    ],
    ids=str,
)
def test_agrees_with_the_plain_form(family, mode, variant):
    model, batch = make_model(family, encoder=mode, **variant), make_batch(family)
    with torch.no_grad():
        torch.testing.assert_close(model(**batch).logits, dense_logits(model, batch), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("mode", MODES[:3], ids=str)
def test_calendar_time_matters_and_must_be_given(mode):
    model, batch = make_model(encoder=mode), make_batch()
    other = {**batch, "time_ids": batch["time_ids"].where(batch["time_ids"] != 3, 4)}
    with torch.no_grad():
        assert (model(**batch).logits - model(**other).logits).abs().max() > 1e-3
    del other["time_ids"]
    with pytest.raises(ValueError, match="`time_ids` are needed"):
        model(**other)


@pytest.mark.parametrize("variant", [{}, {"num_stream_layers": 0}, {"model_type": "post_tempoformer"}], ids=str)
def test_post_by_post_gives_the_logits_of_the_whole(variant):
    model, batch = make_model(**variant), make_batch()
    times = 1e9 + torch.arange(6).double() * 1000
    batch["elapsed"] = (times[batch["stream_index"].clamp_min(0)[..., -1:]] - times[batch["stream_index"]]).float()
    batch["elapsed"] = batch["elapsed"].masked_fill(batch["stream_index"] < 0, 0)
    with torch.no_grad():
        expected = model(**batch).logits[0]
    state = None
    for post in range(6):
        inputs = {name: batch[name][0, post : post + 1] for name in ("input_ids", "attention_mask", "time_ids")}
        output = model.step(**inputs, timeline_ids=["a"], timestamps=[float(times[post])], state=state)
        torch.testing.assert_close(output.logits[0], expected[post], atol=1e-5, rtol=1e-5)
        state = StreamState.from_state_dict(output.state.state_dict())


POSTS = [
    {"timeline_id": "a", "timestamp": "1815-06-18", "text": "the plane flew", "label": "x"},
    {"timeline_id": "a", "timestamp": "1990-01-01", "text": "trees", "label": "y"},
    {"timeline_id": "a", "timestamp": "1990-01-02", "text": "the trees flew the plane", "label": "x"},
]


def test_rows_have_the_calendar_time_of_their_posts():
    tokenizer = bert(model_max_length=5)
    rows = to_rows(to_timelines(Dataset.from_list(POSTS), ["x", "y"]), tokenizer, window=4)
    assert rows[0]["time_ids"] == [[3] * 5, [4] * 4, [4] * 5]
    batch = StreamCollator(tokenizer, 4)([rows[0]])
    assert torch.equal(batch["time_ids"] > 0, batch["attention_mask"] > 0)
    untimed = [{name: value for name, value in post.items() if name != "timestamp"} for post in POSTS]
    with pytest.raises(ValueError, match="A text has no time"):
        to_rows(to_timelines(Dataset.from_list(untimed), ["x", "y"]), tokenizer, window=4)
    tokenizer = bert(unknown_times="unknown")
    rows = to_rows(to_timelines(Dataset.from_list(untimed), ["x", "y"]), tokenizer, window=4)
    assert rows[0]["time_ids"][1] == [2] * 4
