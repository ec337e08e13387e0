"""Checks the post model's trees against scikit-learn and a plain walk. A post gets the same answer in any batch."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from datasets import Dataset
from helpers import (
    inputs_only,
    make_timeline,
    read_json,
    rows_of_vectors,
    tiny_batch,
    tiny_encoder,
    tiny_model,
    tiny_reader,
)
from safetensors.torch import load_file, save_file
from scipy.special import log_softmax
from sklearn.ensemble import ExtraTreesClassifier

from modeling_tempoformer import StreamCollator
from modeling_tempoformer.commands import upgrade
from modeling_tempoformer.common.files import write_json
from modeling_tempoformer.experts_tempoformer import DEPTH
from modeling_tempoformer.training.experts import choose_weights, grow_experts, weigh
from modeling_tempoformer.training.tree_growing import copy_tree


WITH_TREES = {"model_type": "post_tempoformer", "num_trees": 20, "expert_weights": [0.5, 0.8]}


def test_a_tree_of_scikit_learn_is_copied():
    generator = np.random.default_rng(0)
    posts = generator.integers(-9, 9, (300, 4)) * 1e3
    labels = (posts[:, 0] > posts[:, 1]).astype(int) + (posts[:, 2] > 4e3)
    forest = ExtraTreesClassifier(20, max_depth=DEPTH, min_samples_leaf=3, random_state=0).fit(posts, labels)
    trees = tiny_model(**WITH_TREES).trees
    for number, tree in enumerate(forest.estimators_):
        buffers = (values[1, number] for values in (trees.feature, trees.threshold, trees.leaves))
        trees.leaves[1, number] = 0
        copy_tree(tree.tree_, forest.classes_, *buffers)
    wide = torch.zeros(300, len(trees.center))
    wide[:, :4] = torch.from_numpy(posts)
    expected = np.maximum(forest.predict_proba(posts), 1e-3)
    assert np.allclose(trees(wide)[1].exp().numpy(), expected, atol=1e-4)


def test_features_are_of_the_two_newest_posts_and_their_place():
    model = tiny_model(**WITH_TREES)
    trees = model.trees
    pairs, cosines, position = torch.randn(2, 2, 16), torch.rand(2, 2), torch.tensor([[0.0, 0.0], [7.0, 5000.0]])
    pairs[0, 0] = 0
    elapsed = torch.tensor([[0.0, 0.0, 0.0], [900.0, 60.0, 0.0]])
    outputs = SimpleNamespace(compared=pairs, cosines=cosines, addressed=None)
    features = trees.read(**model.tree_inputs(outputs, position, elapsed)) * trees.scale + trees.center
    first, second = ((pairs - trees.mean) @ trees.components.T).unbind(1)
    first[0] = 0
    step = second - first
    step[0] = 0
    seconds = torch.tensor([[0.0, 0.0, 0.0], [7.0, 5000.0, 60.0]]).log1p()
    torch.testing.assert_close(features, torch.cat((second, first, step, cosines, seconds), -1), atol=1e-4, rtol=1e-4)


def grow(rule):
    """
    Grows trees on 20 timelines whose labels follow from a post's position and the member that holds the timeline out,
    not from its vector.
    """
    model, _ = tiny_reader(model_type="post_tempoformer", num_labels=2, num_trees=20)
    generator, times = torch.Generator().manual_seed(0), [1.7e9 + 60 * post for post in range(12)]
    timelines, vectors = [], []
    for number in range(20):
        labels, held_out = [rule(post, number % 2) for post in range(12)], number % 2
        timelines.append(make_timeline(labels, str(number), timestamps=times, held_out=held_out))
        vectors.append(torch.randn(12, model.config.encoder_config.hidden_size, generator=generator))
    rows = rows_of_vectors(timelines, vectors, 5)
    grow_experts(model, rows, seed=0)
    return model, StreamCollator(None, 4)(list(rows))


def test_weights_of_experts_are_kept_with_their_experts_alone(tmp_path):
    """With other classes, or without a head, the experts begin anew, and the network decides alone."""
    model = tiny_model(**WITH_TREES)
    model.save_pretrained(tmp_path / "whole")
    model.tempoformer.save_pretrained(tmp_path / "base")
    load = type(model).from_pretrained
    more_classes = load(tmp_path / "whole", num_labels=5, ignore_mismatched_sizes=True)
    others = more_classes, load(tmp_path / "base", num_labels=3)
    for loaded, weights in ((load(tmp_path / "whole"), [0.5, 0.8]), *((other, [1.0, 0.0]) for other in others)):
        assert loaded.mixture.weights.tolist() == pytest.approx(weights)
        assert loaded.mixture.held_out.tolist() == [pytest.approx(weights)] * 2


def test_a_model_of_0_2_0_is_converted_by_one_command(tmp_path):
    """It has the weights of its experts in the configuration, and lacks the tables of held-out posts."""
    model, tokenizer = tiny_reader(**{**WITH_TREES, "states": ["calm", "sad"], "expert_weights": [0.5, 0.8, 0.7]})
    model.states.held_out_change.fill_(1 / model.num_labels)
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "old")
    config, weights = read_json(tmp_path / "old" / "config.json"), load_file(tmp_path / "old" / "model.safetensors")
    write_json(tmp_path / "old" / "config.json", {**config, "expert_weights": [0.5, 0.8, 0.7]})
    new = ("mixture.weights", "mixture.held_out", "states.held_out_change")
    old = {name: values for name, values in weights.items() if name not in new}
    assert len(old) == len(weights) - 3
    save_file(old, tmp_path / "old" / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "old" / "README.md").write_text("# mine\n")
    with pytest.raises(ValueError, match="tempoformer upgrade"):
        type(model).from_pretrained(tmp_path / "old")
    upgrade.main(["--model_name_or_path", str(tmp_path / "old"), "--output_dir", str(tmp_path / "new")])
    loaded = type(model).from_pretrained(tmp_path / "new")
    assert not hasattr(loaded.config, "expert_weights") and (tmp_path / "new" / "README.md").read_text() == "# mine\n"
    for name, values in model.state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[name], values, atol=1e-6, rtol=0)
    with pytest.raises(ValueError, match="--output_dir"):
        upgrade.main(["--model_name_or_path", str(tmp_path / "old"), "--output_dir", str(tmp_path / "new")])


def test_what_follows_from_the_place_is_learned():
    model, batch = grow(lambda post, held_out: int(post < 4))
    predicted = model(**inputs_only(batch)).logits.argmax(-1)
    is_post = batch["labels"] >= 0
    assert (predicted == batch["labels"])[is_post].float().mean() > 0.95


def test_a_member_s_trees_have_not_seen_what_it_holds_out():
    model, _ = grow(lambda post, held_out: int(post < 4))
    other, _ = grow(lambda post, held_out: int((post < 4) != held_out))
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
    drawn_classes = torch.randint(0, count, (40, 12), generator=generator)
    labels = (drawn_classes % 2 != drawn_classes.roll(1, 1) % 2).long() ^ (
        torch.rand(40, 12, generator=generator) < 0.2
    )
    gaps = 86400 + torch.rand(40, 12, generator=generator, dtype=torch.float64)

    def rows(error: float) -> Dataset:
        timelines = [
            make_timeline(classes, str(number), timestamps=times, held_out=number % 2)
            for number, (classes, times) in enumerate(zip(labels.tolist(), gaps.cumsum(1).tolist(), strict=True))
        ]
        return rows_of_vectors(
            timelines, texts[drawn_classes] + error * torch.randn(40, 12, 64, generator=generator), 12
        )

    grow_experts(model, rows(3e-7), 0)
    for weights in model.mixture.buffers():
        weights.fill_(1.0)
    batches = [inputs_only(StreamCollator(None, 4)(list(rows(error)))) for error in (0.0, 3e-7)]
    first, second = (model(**batch).logits.softmax(-1) for batch in batches)
    torch.testing.assert_close(first, second, atol=1e-5, rtol=0)


def make_experts() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """
    Returns the logits of three experts (the second knows nothing, and the third repeats the first), and the labels,
    folds and counts of their posts.
    """
    labels = np.random.default_rng(0).integers(0, 2, 500)
    knows = np.eye(2)[labels] * 2 + np.random.default_rng(1).normal(size=(500, 2))
    noise = np.random.default_rng(2).normal(size=(500, 2))
    return np.stack((knows, noise, knows)), labels, np.arange(500) % 5, np.array([1.0, 3.0])[labels]


def test_weights_make_the_labels_most_likely():
    (knows, noise, _), labels, _, counts = make_experts()
    network, trees = weigh(np.stack((knows, noise)), labels, counts)

    def loss(network: float, trees: float) -> float:
        return -np.average(log_softmax(network * knows + trees * noise, -1)[np.arange(500), labels], weights=counts)

    for other in ((1.0, 0.0), (network, trees + 0.1), (network + 0.1, trees), (network - 0.1, trees)):
        assert loss(network, trees) <= loss(*other) + 1e-6


def test_experts_that_bring_nothing_are_left_out():
    experts, labels, folds, counts = make_experts()
    weights = choose_weights(experts, labels, folds, counts)
    assert sorted(weights > 0) == [False, False, True] and weights[1] == 0
    assert weights.max() == pytest.approx(weigh(experts[:1], labels, counts)[0], abs=1e-3)
    # Nothing is held out of a single fold, by which to judge.
    alone = choose_weights(experts[:2], labels, np.zeros(500), counts)
    assert np.allclose(alone, weigh(experts[:2], labels, counts), atol=1e-6)


def test_a_network_without_weight_is_not_computed():
    """It is where it has a weight, for held-out posts, and where its attention is asked for."""
    model = tiny_model(**WITH_TREES)
    batch = inputs_only(tiny_batch()) | {"timeline_position": torch.arange(24.0).reshape(2, 6, 2)}
    calls = []
    model.base_model.stream_layers.layers[-1].register_forward_hook(lambda *_: calls.append(1))
    held_out, weights = torch.tensor([0, 1]), model.mixture.weights
    trees = model(**batch).expert_logits[..., 1, :]
    weights.copy_(torch.tensor([0.0, 0.8]))
    calls.clear()
    is_post = batch["stream_index"][..., -1:] >= 0
    torch.testing.assert_close(model(**batch).logits, trees * 0.8 * is_post)
    assert not calls
    attention = model(**batch, output_attentions=True).stream_attentions
    assert len(attention) == len(model.base_model.stream_layers.layers) and attention[0].any()
    assert len(model(**batch, held_out=held_out).logits) == 2 and len(calls) == 2


def test_a_place_is_needed_once_there_are_trees():
    with pytest.raises(ValueError, match="`timeline_position`"):
        tiny_model(**WITH_TREES)(**inputs_only(tiny_batch()))
