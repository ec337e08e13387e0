"""Checks the words of the post model against plain counts, and that no member learns what it holds out."""

from collections import Counter

import numpy as np
import pytest
import torch
from helpers import inputs_only, make_timeline, tiny_batch, tiny_encoder, tiny_model, tiny_reader
from huggingface_hub.errors import StrictDataclassClassValidationError
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression

from modeling_tempoformer import StreamCollator, embed_rows, fit_words, grow_experts, to_rows
from modeling_tempoformer.configuration_post_tempoformer import PostTempoFormerConfig
from modeling_tempoformer.experts_tempoformer import Words, compare_addressees


READER = {"model_type": "post_tempoformer", "num_labels": 2, "num_words": 512, "num_trees": 20, "num_members": 3}
PLAIN = ["the plane flew", "trees and air", "so sad today", "we walked home", "nothing new here", "it rained again"]


def plain_shares(tokens: list[int], num_words: int) -> dict[int, float]:
    """Returns the share of each bucket of a post, from its tokens one after the other."""
    hashes = [2_654_435_761 * token for token in tokens]
    hashes += [2_654_435_761 * token + 2_246_822_519 * (before + 1) for before, token in zip(tokens, tokens[1:])]
    counts = Counter(value % 2**32 * num_words // 2**32 for value in hashes)
    return {bucket: count / len(hashes) ** 0.5 for bucket, count in counts.items()}


@pytest.mark.parametrize("num_words", [7, 1000, 2**20])
def test_words_are_those_of_a_plain_count(num_words):
    generator = torch.Generator().manual_seed(0)
    words = Words(PostTempoFormerConfig(num_words=num_words, num_members=2, num_labels=3))
    words.weight.normal_(generator=generator)
    words.bias.normal_(generator=generator)
    # Ids as large as in the largest vocabularies
    posts = [torch.randint(0, 300_000, (length,), generator=generator) for length in (1, 2, 5, 9, 3)]
    expected = torch.stack(
        [
            sum(share * words.weight[bucket] for bucket, share in plain_shares(post.tolist(), num_words).items())
            + words.bias
            for post in posts
        ]
    )
    for side in ("right", "left"):
        ids, mask = torch.full((6, 9), 77), torch.zeros(6, 9, dtype=torch.long)
        for row, post in enumerate(posts):
            place = slice(0, len(post)) if side == "right" else slice(9 - len(post), 9)
            ids[row, place], mask[row, place] = post, 1
        found = words(ids, mask)
        torch.testing.assert_close(found[:5, :6], expected, atol=1e-5, rtol=1e-5)
        # An absent post says nothing.
        assert not found[5].any()


def test_the_one_addressed_is_known_by_the_name_before_a_mark():
    """The first token is [CLS]; 7 and 8 are the marks. A name has at most eight tokens."""
    words = Words(PostTempoFormerConfig(num_words=8))
    words.marks.copy_(torch.tensor([7, 8]))
    ann, bob = [1, 20, 21], [1, 30]
    posts = [
        [*ann, 7, 5],
        [*ann, 8, 9, 7],
        [*bob, 7],
        [1, 21, 20, 7],
        [*ann, 5, 6],
        [1, 7, 20],
        [1, *range(40, 50), 7],
    ]
    posts += [[1, *range(40, 48), 7], [*bob, 8, 30, 7, 7, 7]]
    # Tokens at padding are none, whatever they are.
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(post) for post in posts], True, 7)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(len(post)) for post in posts], True)
    codes = words.addressees(ids, mask)
    names = ["ann", "ann", "bob", "nna", None, None, None, "long", "bob"]
    for name, code in zip(names, codes, strict=True):
        for other, other_code in zip(names, codes, strict=True):
            assert torch.equal(code, other_code) == (name == other)
        assert (code.abs() == (name is not None)).all()


@pytest.mark.parametrize("window", [1, 3])
def test_addressees_of_a_stream_are_compared(window):
    names = ["ann", "bob", "ann", None, "ann", "ann", "cy"]
    signs = {None: torch.zeros(16)}
    for seed, name in enumerate(("ann", "bob", "cy")):
        signs[name] = torch.randint(0, 2, (16,), generator=torch.Generator().manual_seed(seed)) * 2.0 - 1
    codes = torch.stack([signs[name] for name in names])
    index = torch.arange(7)[:, None] + torch.arange(1 - window, 1)
    found = compare_addressees(codes, index.clamp_min(0), index >= 0)
    for post, name in enumerate(names):
        earlier = names[max(0, post - window + 1) : post]
        before = earlier[-1] if earlier else None
        expected = [name is not None, before is not None, name is not None and name == before]
        expected += [name is not None and name in earlier]
        assert found[post].tolist() == expected


def make_timelines(rule, count: int = 30) -> list:
    """
    Returns timelines of twelve posts of some plain words; by chance every second post has an opener more.
    `rule` gives the label of a post from whether it has the opener and from its timeline's number.
    """
    chance, timelines = np.random.default_rng(0), []
    for number in range(count):
        opened = chance.random(12) < 0.5
        texts = [f"anyway {text}" if one else text for one, text in zip(opened, chance.choice(PLAIN, 12), strict=True)]
        labels = [int(rule(bool(one), number)) for one in opened]
        timelines.append(make_timeline(labels, str(number), texts, held_out=number % 3))
    return timelines


def fit(timelines: list):
    """Returns a model whose words are fitted, its rows with vectors, and the words' logits of its labelled posts."""
    model, tokenizer = tiny_reader(**READER)
    rows = to_rows(timelines, tokenizer, model.config.window, targets_per_row=4, only_labelled=True)
    fit_words(model, rows, tokenizer)
    rows = embed_rows({"train": rows}, model, tokenizer, keeps=False)["train"]
    batch = StreamCollator(None, model.config.window, timed=False)(list(rows))
    with torch.no_grad():
        outputs = model.base_model(**{name: batch[name] for name in ("post_embeds", "attention_mask", "stream_index")})
        logits = model.ask_words(outputs, batch["held_out"])
    is_post = batch["labels"] >= 0
    return model, rows, logits[is_post].numpy(), batch["labels"][is_post].numpy()


def test_an_opener_is_learned_out_of_fold():
    model, rows, logits, labels = fit(make_timelines(lambda opened, number: opened))
    assert (logits.argmax(-1) == labels).mean() > 0.99
    grow_experts(model, rows)
    batch = StreamCollator(None, model.config.window, timed=False)(list(rows))
    predicted = model(**{name: values for name, values in batch.items() if name != "labels"}).logits.argmax(-1)
    is_post = batch["labels"] >= 0
    assert (predicted == batch["labels"])[is_post].float().mean() > 0.99


def test_labels_of_chance_are_not_learned_out_of_fold():
    """
    Few posts have the same words, so that the words know in part what they have learned from. Neither they nor all
    experts together, with their weights, know the posts that a member holds out.
    """
    chance, words, timelines = np.random.default_rng(1), " ".join(PLAIN).split(), []
    for number in range(60):
        texts = [" ".join(chance.choice(words, 3)) for _ in range(12)]
        labels = chance.integers(0, 2, 12).tolist()
        timelines.append(make_timeline(labels, str(number), texts, held_out=number % 3))
    model, rows, logits, labels = fit(timelines)
    grow_experts(model, rows)
    batch = StreamCollator(None, model.config.window, timed=False)(list(rows))
    is_post, inputs = batch["labels"] >= 0, {name: values for name, values in batch.items() if name != "labels"}
    with torch.no_grad():
        held_out = model(**inputs).logits.argmax(-1)[is_post].numpy()
        inputs.pop("held_out")
        learned = model(**inputs).expert_logits[..., -1, :].argmax(-1)[is_post].numpy()
    # The standard deviation of 720 guesses is 0.019.
    assert abs((logits.argmax(-1) == labels).mean() - 0.5) < 0.07
    assert abs((held_out == labels).mean() - 0.5) < 0.07
    assert (learned == labels).mean() > 0.6


def test_a_member_does_not_learn_what_it_holds_out():
    # One timeline differs, so that the penalty, which is chosen on the held-out posts of all members, does not.
    one, other = (
        fit(make_timelines(rule))[0].base_model.words.weight.unflatten(1, (3, 2))
        for rule in (lambda opened, number: opened, lambda opened, number: opened != (number == 1))
    )
    same = [torch.allclose(one[:, member], other[:, member], atol=1e-5) for member in range(3)]
    assert same == [False, True, False]


def test_the_regression_is_that_of_scikit_learn():
    """One penalty of three is chosen, on held-out posts. The balanced regression of plain counts gives its logits."""
    timelines = make_timelines(lambda opened, number: opened != (number % 7 == 0))
    model, _, logits, labels = fit(timelines)
    _, tokenizer = tiny_reader(**READER)
    texts = [text for timeline in timelines for text in timeline.texts]
    held_out = np.repeat([timeline.held_out for timeline in timelines], 12)
    counts = np.zeros((len(texts), 512))
    for row, text in enumerate(texts):
        for bucket, share in plain_shares(tokenizer(text)["input_ids"], 512).items():
            counts[row, bucket] = share
    counts *= 1 + np.log((1 + len(texts)) / (1 + (counts > 0).sum(0)))
    losses, expected = {}, {}
    for strength in (0.01, 0.03, 0.1):
        found = np.zeros((len(texts), 2))
        for member in range(3):
            part = held_out != member
            regression = LogisticRegression(C=strength, class_weight="balanced", tol=1e-8).fit(
                counts[part], labels[part]
            )
            found[~part] = regression.predict_log_proba(counts[~part])
        shares = len(labels) / np.bincount(labels)[labels]
        losses[strength] = -np.average(found[np.arange(len(labels)), labels], weights=shares)
        expected[strength] = found
    best = min(losses, key=losses.get)
    assert np.allclose(log_softmax(logits, axis=-1), expected[best], atol=0.02)


def test_what_cannot_be_read_is_refused():
    model, rows, *_ = fit(make_timelines(lambda opened, number: opened))
    _, tokenizer = tiny_reader(**READER)
    model.base_model.words.weight.zero_()
    with pytest.raises(ValueError, match="fit_words"):
        grow_experts(model, rows)
    with pytest.raises(ValueError, match="input_ids"):
        fit_words(model, rows, tokenizer)
    model, batch = tiny_model(**READER, expert_weights=[0.5, 0.8, 0.4]), inputs_only(tiny_batch())
    embeds = model.get_input_embeddings()(batch.pop("input_ids"))
    with pytest.raises(ValueError, match="num_words"):
        model(**batch, inputs_embeds=embeds)
    with pytest.raises(StrictDataclassClassValidationError, match="num_words"):
        PostTempoFormerConfig(encoder_config=tiny_encoder(), num_words=2**20 + 1)
