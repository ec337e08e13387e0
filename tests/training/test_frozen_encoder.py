"""Checks rows that hold vectors of posts instead of tokens."""

import pytest
import torch
from datasets import Dataset
from helpers import ENCODERS, MODELS, VOCABULARY, tiny_batch, tiny_encoder, tiny_model
from transformers import BertTokenizer

from modeling_tempoformer import StreamCollator
from modeling_tempoformer.modeling_tempoformer_encoders import get_encoder_adapter
from modeling_tempoformer.posts.rows import to_rows
from modeling_tempoformer.posts.timelines import to_timelines
from modeling_tempoformer.training.frozen_encoder import embed_rows, freeze_layers, post_vectors


NAMES = ["x", "y"]


def post(timeline: str, second: int, text: str, label: str = "x") -> dict:
    return {"timeline_id": timeline, "timestamp": second, "text": text, "label": label}


PARTS = {
    "train": [post("a", 0, "the plane flew"), post("a", 9, "sad", "y"), post("b", 3, "trees"), post("b", 4, "sad")],
    "test": [post("c", 5, "sad"), post("c", 6, "the trees flew the plane")],
}


def make_rows(tokenizer) -> dict[str, Dataset]:
    """Returns rows of one target each, so each post is in several rows."""
    return {
        part: to_rows(to_timelines(Dataset.from_list(posts), NAMES), tokenizer, window=4, targets_per_row=1)
        for part, posts in PARTS.items()
    }


def make_model():
    encoder = {**tiny_encoder(), "initializer_range": 0.3}
    return tiny_model(model_type="post_tempoformer", num_labels=2, encoder_config=encoder)


def test_logits_are_those_of_the_tokens():
    tokenizer = BertTokenizer(vocab=VOCABULARY)
    # The vectors are computed without dropout, although the model is in training mode.
    model, rows = make_model().train(), make_rows(tokenizer)
    embedded = embed_rows(rows, model, tokenizer)
    collator = StreamCollator(tokenizer, window=4)
    for part, part_rows in rows.items():
        tokens, vectors = collator(list(part_rows)), collator(list(embedded[part]))
        assert "input_ids" not in vectors and torch.equal(tokens["labels"], vectors["labels"])
        with torch.no_grad():
            torch.testing.assert_close(model(**vectors).logits, model(**tokens).logits, atol=1e-5, rtol=0)


def test_equal_posts_of_all_parts_are_read_once_and_have_one_vector():
    tokenizer = BertTokenizer(vocab=VOCABULARY)
    model, read = make_model(), []
    model.tempoformer.encoder.embeddings.register_forward_pre_hook(
        lambda module, args, inputs: read.append((inputs["input_ids"] == tokenizer.cls_token_id).sum()),
        with_kwargs=True,
    )
    embedded = embed_rows(make_rows(tokenizer), model, tokenizer)
    assert sum(read) == 4, "of six posts, three with the same text"
    # Another split of the same posts reads no post again. Other weights read all of them.
    rows = make_rows(tokenizer)
    again = embed_rows({"train": rows["test"], "test": rows["train"]}, model, tokenizer)
    assert sum(read) == 4
    assert torch.equal(again["train"][1]["post_embeds"], embedded["test"][1]["post_embeds"])
    torch.nn.init.ones_(model.tempoformer.encoder.embeddings.LayerNorm.bias)
    changed = embed_rows(make_rows(tokenizer), model, tokenizer)
    assert not torch.allclose(changed["test"][1]["post_embeds"], embedded["test"][1]["post_embeds"])


def test_vectors_of_all_posts_of_timelines():
    """The vectors are in the order of the posts, and 0 for a post that is in no stream."""
    posts = [post("a", second, text, None if second > 1 else "x") for second, text in enumerate(["sad", "trees"] * 2)]
    timelines = to_timelines(Dataset.from_list([*posts, post("b", 0, "the plane")]), NAMES)
    tokenizer, model = BertTokenizer(vocab=VOCABULARY), make_model()
    rows = to_rows(timelines, tokenizer, window=2, targets_per_row=1, only_labelled=True)
    vectors = post_vectors(embed_rows({"train": rows}, model, tokenizer)["train"], timelines)
    for vector, text in zip(vectors, ["sad", "trees", None, None, "the plane"], strict=True):
        inputs = None if text is None else tokenizer([text], return_tensors="pt")
        with torch.no_grad():
            expected = torch.zeros(16) if inputs is None else model.tempoformer.embed_posts(**inputs)[0]
        torch.testing.assert_close(torch.from_numpy(vector), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", MODELS, ids=str)
def test_lower_layers_stay_and_all_above_them_learns(kind):
    torch.manual_seed(0)
    layers = {"num_hidden_layers": 3, "hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.5}
    model = tiny_model(**{**kind, "num_stream_layers": 1, "encoder_config": tiny_encoder() | layers})
    freeze_layers(model, 2)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    seen = []
    lower, upper = (model.base_model.encoder.encoder.layer[number] for number in (1, 2))
    for layer in (lower, upper):
        layer.register_forward_hook(lambda module, args, output: seen.append(output))
    for _ in range(2):
        model.train()(**tiny_batch()).loss.backward()
    first, first_above, second, second_above = (seen[i] for i in (0, len(seen) // 2 - 1, len(seen) // 2, -1))
    # Frozen layers answer alike each time, those above with their dropout.
    torch.testing.assert_close(first, second)
    assert not torch.allclose(first_above, second_above, atol=1e-2)
    optimizer.step()
    frozen = ("encoder.embeddings.", "encoder.encoder.layer.0.", "encoder.encoder.layer.1.")
    changed = {name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])}
    assert not any(part in name for name in changed for part in frozen)
    assert {name for name in before if "encoder.layer.2.attention" in name and "weight" in name} <= changed


@pytest.mark.parametrize("kind", MODELS, ids=str)
@pytest.mark.parametrize("family", list(ENCODERS))
def test_lower_layers_have_no_dropout_in_any_family(family, kind):
    names = ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "mlp_dropout", "embedding_dropout")
    model = tiny_model(**kind, encoder_config=tiny_encoder(family) | dict.fromkeys(names, 0.5))
    freeze_layers(model, 1)
    learning = get_encoder_adapter(model.config.encoder_config).layers(model.base_model.encoder)[1]
    seen = []
    # In the paper's model a position with dropout comes before a stream layer.
    below = model.base_model.stream_layers[0].position if kind["model_type"] == "tempoformer" else learning
    below.register_forward_pre_hook(lambda module, args: seen.append(args[0].detach()))
    for _ in range(2):
        model.train()(**tiny_batch())
    half = len(seen) // 2
    assert half
    torch.testing.assert_close(seen[:half], seen[half:])


def test_a_wrong_number_of_layers_is_refused():
    for count in (0, 2, 3):
        with pytest.raises(ValueError, match="between 1 and 1, as the encoder has 2 layers"):
            freeze_layers(tiny_model(encoder_config=tiny_encoder() | {"num_hidden_layers": 2}), count)
