"""Checks the post model's trees against scikit-learn and a plain walk. A post gets the same answer in any batch."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import inputs_only, tiny_batch, tiny_encoder, tiny_model, tiny_reader
from scipy.special import log_softmax
from sklearn.ensemble import ExtraTreesClassifier

from modeling_tempoformer import StreamCollator
from modeling_tempoformer.timeline_tempoformer import cut_rows
from modeling_tempoformer.training.tree_growing import copy_tree, grow_experts, weigh
from modeling_tempoformer.trees_tempoformer import DEPTH


GROWN = {"model_type": "post_tempoformer", "num_trees": 20, "expert_weights": [0.5, 0.8]}


def test_a_tree_of_scikit_learn_is_copied():
    generator = np.random.default_rng(0)
    posts = generator.integers(-9, 9, (300, 4)) * 1e3
    labels = (posts[:, 0] > posts[:, 1]).astype(int) + (posts[:, 2] > 4e3)
    forest = ExtraTreesClassifier(20, max_depth=DEPTH, min_samples_leaf=3, random_state=0).fit(posts, labels)
    trees = tiny_model(**GROWN).trees
    for number, tree in enumerate(forest.estimators_):
        buffers = (values[1, number] for values in (trees.feature, trees.threshold, trees.leaves))
        trees.leaves[1, number] = 0
        copy_tree(tree.tree_, forest.classes_, *buffers)
    wide = torch.zeros(300, len(trees.center))
    wide[:, :4] = torch.from_numpy(posts)
    expected = np.maximum(forest.predict_proba(posts), 1e-3)
    assert np.allclose(trees(wide)[1].exp().numpy(), expected, atol=1e-4)


def test_features_are_of_the_two_newest_posts_and_their_place():
    model = tiny_model(**GROWN)
    trees = model.trees
    pairs, cosines, position = torch.randn(2, 2, 16), torch.rand(2, 2), torch.tensor([[0.0, 0.0], [7.0, 5000.0]])
    pairs[0, 0] = 0
    elapsed = torch.tensor([[0.0, 0.0, 0.0], [900.0, 60.0, 0.0]])
    # A head reads other things before it reads the cosines of posts.
    outputs = SimpleNamespace(compared=pairs, last_hidden_state=torch.cat((torch.rand(2, 5), cosines), -1))
    features = trees.read(*model.tree_inputs(outputs, position, elapsed)) * trees.scale + trees.center
    first, second = ((pairs - trees.mean) @ trees.components.T).unbind(1)
    first[0] = 0
    step = second - first
    step[0] = 0
    seconds = torch.tensor([[0.0, 0.0, 0.0], [7.0, 5000.0, 60.0]]).log1p()
    torch.testing.assert_close(features, torch.cat((second, first, step, cosines, seconds), -1), atol=1e-4, rtol=1e-4)


def timelines(model, rule) -> list[dict]:
    """Returns rows of 20 timelines whose labels follow from a post's position, not from its vector."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for number in range(20):
        vectors = torch.randn(12, model.config.encoder_config.hidden_size, generator=generator).tolist()
        columns = {"input_ids": [[1]] * 12, "post_embeds": vectors, "labels": [rule(post) for post in range(12)]}
        columns["timestamps"] = [1.7e9 + 60 * post for post in range(12)]
        for row in cut_rows(columns, window=4, targets_per_row=5):
            row["labels"] = row["labels"][row["num_context"] :]
            del row["input_ids"]
            rows.append({**row, "held_out": number % 2})
    return rows


def grow(rule, change=None):
    model, tokenizer = tiny_reader(model_type="post_tempoformer", num_labels=2, num_trees=20)
    rows = timelines(model, rule)
    for row in rows if change else ():
        row["labels"] = [change(row, label) for label in row["labels"]]
    batch = StreamCollator(tokenizer, 4)(rows)
    grow_experts(model, [dict(batch)], seed=0)
    return model, batch


def test_what_follows_from_the_place_is_learned():
    model, batch = grow(lambda post: int(post < 4))
    predicted = model(**inputs_only(batch)).logits.argmax(-1)
    is_post = batch["labels"] >= 0
    assert (predicted == batch["labels"])[is_post].float().mean() > 0.95


def test_a_member_s_trees_have_not_seen_what_it_holds_out():
    model, _ = grow(lambda post: int(post < 4))
    other, _ = grow(lambda post: int(post < 4), lambda row, label: 1 - label if row["held_out"] else label)
    same = [torch.allclose(*pair, atol=1e-5) for pair in zip(model.trees.leaves, other.trees.leaves, strict=True)]
    assert same == [False, True]


@pytest.mark.parametrize("count", [1, 5, 20, 40])
def test_rounding_errors_of_few_texts_are_no_reason(count):
    """
    Posts repeat a few texts, a day and up to a second apart. The trees give a post the same answer in every batch.
    Errors of vectors are as large as MiniLM's.
    """
    encoder = {**tiny_encoder(), "hidden_size": 64}
    model = tiny_model(model_type="post_tempoformer", num_labels=2, num_trees=40, encoder_config=encoder)
    generator = torch.Generator().manual_seed(count)
    texts = torch.randn(count, 64, generator=generator) + 1
    said = torch.randint(0, count, (40, 12), generator=generator)
    labels = (said % 2 != said.roll(1, 1) % 2).long() ^ (torch.rand(40, 12, generator=generator) < 0.2)
    gaps = 86400 + torch.rand(40, 12, generator=generator, dtype=torch.float64)

    def batch(error: float) -> dict[str, torch.Tensor]:
        rows, tokenizer = [], tiny_reader()[1]
        for number, (posts, classes, times) in enumerate(zip(said, labels, gaps.cumsum(1), strict=True)):
            vectors = texts[posts] + error * torch.randn(12, 64, generator=generator)
            row = {"post_embeds": vectors, "labels": classes.tolist(), "timestamps": times.tolist()}
            rows.append({**row, "held_out": number % 2})
        return dict(StreamCollator(tokenizer, 4)(rows))

    grow_experts(model, [batch(3e-7)], 0)
    model.config.expert_weights = [1.0, 1.0]
    first, second = (model(**inputs_only(batch(error))).logits.softmax(-1) for error in (0.0, 3e-7))
    torch.testing.assert_close(first, second, atol=1e-5, rtol=0)


def test_an_expert_that_knows_nothing_gets_no_weight():
    labels = np.random.default_rng(0).integers(0, 2, 500)
    knows = np.eye(2)[labels] * 2 + np.random.default_rng(1).normal(size=(500, 2))
    noise = np.random.default_rng(2).normal(size=(500, 2))
    network, trees = weigh([knows, noise], labels, [1.0, 1.0])
    assert network > 10 * trees
    best = -log_softmax(network * knows + trees * noise, -1)[np.arange(500), labels].mean()
    for other in ((1.0, 0.0), (network, trees + 0.1), (network + 0.1, trees), (network - 0.1, trees)):
        assert best <= -log_softmax(other[0] * knows + other[1] * noise, -1)[np.arange(500), labels].mean() + 1e-6


def test_a_place_is_needed_once_there_are_trees():
    with pytest.raises(ValueError, match="`timeline_position`"):
        tiny_model(**GROWN)(**inputs_only(tiny_batch()))
