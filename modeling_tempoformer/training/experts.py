"""Fits the experts of a post model over a frozen encoder, after its members are trained, and their weights."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from scipy.optimize import minimize
from scipy.special import log_softmax
from threadpoolctl import threadpool_limits
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..data_collator_tempoformer import StreamCollator
from ..modeling_post_tempoformer import PostTempoFormerForStreamClassification, of_members
from .state_fitting import changes_for_members, fit_states
from .tree_growing import KNOWLEDGES, grow_trees


BATCH_SIZE = 256  # rows
# Largest weight of an expert. If the experts separate all posts, the likelihood has no maximum.
LARGEST_WEIGHT = 5.0
# The least share of the loss on held-out posts that an expert must save
LEAST_GAIN = 1e-3


class GrowExperts(TrainerCallback):
    """
    Fits the experts of the model at the end of a training ([`grow_experts`]), on the rows of the training, with its
    seed. All processes fit the same experts.
    """

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: PreTrainedModel | None = None,
        train_dataloader: DataLoader | None = None,
        **kwargs,
    ):
        grow_experts(model, train_dataloader.dataset, args.seed)


# Threads of a BLAS wait for each other longer than they compute these small products.
@threadpool_limits.wrap(limits=1, user_api="blas")
@torch.no_grad()
def grow_experts(model: PostTempoFormerForStreamClassification, rows: Dataset, seed: int = 42):
    """
    Fits the states and the trees of each member on its training posts, and the weights of the experts on the held-out
    folds of all members. The weights for a member's held-out fold are fitted on the folds of the other members.

    Args:
        model ([`PostTempoFormerForStreamClassification`]): The model, whose members are trained. It is put in
            evaluation mode.
        rows (`Dataset`): The training rows, with vectors ([`embed_rows`]) and `held_out` ([`hold_out`]), and for a
            model with states with `states`, as [`to_rows`] makes them from such timelines.
        seed (`int`, *optional*, defaults to 42): Seed of the trees.

    Raises a `ValueError` for rows that lack one of these columns.
    """
    first = rows[0]
    needed = ["post_embeds", "held_out", *["states"] * (model.states is not None)]
    needed += ["earlier_states", "thinned_states"] if model.config.reads_known_states else []
    for name in needed:
        if name not in first:
            raise ValueError(f"The experts of a model grow on rows with '{name}', which these lack: see `to_rows`.")
    config = model.config
    if config.num_words and not model.base_model.words.weight.any():
        raise ValueError("The model reads words, which are not fitted: call `fit_words` before `embed_rows`.")
    model.eval()
    if model.states is not None:
        tables = fit_states(model.states.cpu(), config, rows)
        model.states.to(model.device)
    collator = StreamCollator(None, config.window, timed="timestamps" in first)
    posts = LearnedPosts.join(
        [read_batch(model, collator, part) for part in DataLoader(rows, BATCH_SIZE, collate_fn=list)]
    )
    states, levels = posts.states, None
    if config.reads_known_states:
        # Learned together, so that one model serves people whose states are known, known now and then, and unknown.
        known = torch.cat((posts.earlier_states, posts.thinned_states, torch.zeros_like(posts.earlier_states)))
        posts = LearnedPosts.join([posts] * KNOWLEDGES)
        states = model.states.cpu().with_known(posts.states, known)
        levels = model.states.levels(states, known)
    labels, members = posts.labels.numpy(), posts.held_out.numpy()
    changes = None
    if states is not None:
        changes = changes_for_members(model.states, tables, members, states, posts.has_previous)
    experts = [posts.logits.numpy()]
    if model.trees is not None:
        experts.append(grow_trees(model, labels, members, seed, posts.tree_inputs, changes, levels))
    if changes is not None:
        experts.append(changes[members, np.arange(len(labels))].numpy())
    if posts.word_logits is not None:
        experts.append(posts.word_logits.numpy())
    experts, counts = np.stack(experts), np.ones(len(labels))
    if config.class_weights is not None:
        counts = np.array(config.class_weights)[labels]
    model.mixture.weights.copy_(torch.from_numpy(choose_weights(experts, labels, members, counts)))
    for member, weights in enumerate(model.mixture.held_out):
        others = members != member
        chosen = choose_weights(experts[:, others], labels[others], members[others], counts[others])
        weights.copy_(torch.from_numpy(chosen))
    model.to(model.device)


@dataclass
class LearnedPosts:
    """
    Labelled posts from which experts learn, each read by the member that has not learned from it.

    Attributes:
        logits (`torch.Tensor` of shape `(posts, num_labels)`): The logits of the member's network.
        labels, held_out (`torch.Tensor` of shape `(posts,)`): The label, and the number of the member.
        tree_inputs (`dict[str, torch.Tensor]`): What [`Trees.read`] takes, by name, without states.
        states (`torch.Tensor` of shape `(posts, 2, num_states)`, *optional*), has_previous (`torch.Tensor` of shape
            `(posts,)`, *optional*): The result of [`~PostTempoFormerForStreamClassification.compared_states`].
        earlier_states, thinned_states (`torch.Tensor` of shape `(posts, 3, num_states)`, *optional*): What is known of
            the states of earlier posts, and what is known with half of these states.
        word_logits (`torch.Tensor` of shape `(posts, num_labels)`, *optional*): The logits from the post's words.
    """

    logits: torch.Tensor
    labels: torch.Tensor
    held_out: torch.Tensor
    tree_inputs: dict[str, torch.Tensor]
    states: torch.Tensor | None = None
    has_previous: torch.Tensor | None = None
    earlier_states: torch.Tensor | None = None
    thinned_states: torch.Tensor | None = None
    word_logits: torch.Tensor | None = None

    @classmethod
    def join(cls, parts: Sequence["LearnedPosts"]) -> "LearnedPosts":
        """Returns the posts of all parts, one part after the other, on the CPU."""

        def cat(first: Any, *others: Any) -> Any:
            if isinstance(first, dict):
                return {name: cat(values, *(other[name] for other in others)) for name, values in first.items()}
            return None if first is None else torch.cat((first, *others)).cpu()

        return cls(*(cat(*(getattr(part, field.name) for part in parts)) for field in fields(cls)))


def read_batch(
    model: PostTempoFormerForStreamClassification, collator: StreamCollator, rows: list[dict[str, Any]]
) -> LearnedPosts:
    """Returns the labelled posts of rows, as the model reads them."""
    batch = {name: values.to(model.device) for name, values in collator(rows).items()}
    labels, held_out, timeline_position = (batch.pop(name) for name in ("labels", "held_out", "timeline_position"))
    optional = {}
    if "earlier_states" in batch:
        thinned = collator([{**row, "earlier_states": row["thinned_states"]} for row in rows])["earlier_states"]
        optional |= {"earlier_states": batch.pop("earlier_states"), "thinned_states": thinned.to(model.device)}
    if not model.config.reads_speakers:
        batch.pop("speaker_posts", None)
    outputs = model.base_model(**batch, return_dict=True)
    if model.states is not None:
        optional["states"], optional["has_previous"] = model.compared_states(outputs, held_out)
    if outputs.word_logits is not None:
        optional["word_logits"] = model.ask_words(outputs, held_out)
    inputs, is_labelled = model.tree_inputs(outputs, timeline_position, batch.get("elapsed")), labels >= 0
    return LearnedPosts(
        logits=of_members(model.member_logits(outputs), held_out)[is_labelled],
        labels=labels[is_labelled],
        held_out=held_out.unsqueeze(-1).expand_as(labels)[is_labelled],
        tree_inputs={name: values[is_labelled] for name, values in inputs.items()},
        **{name: values[is_labelled] for name, values in optional.items()},
    )


def choose_weights(experts: np.ndarray, labels: np.ndarray, folds: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """
    Returns the weights (experts,) of experts' logits. An expert gets 0 if it saves less than a thousandth of the loss
    of all folds, each by weights of the other folds. The least useful one is left out first.

    Args:
        experts (`np.ndarray` of shape `(experts, posts, classes)`): Logits of posts from which no expert has learned.
        labels (`np.ndarray` of shape `(posts,)`): Class ids.
        folds (`np.ndarray` of shape `(posts,)`): The fold of each post. In a single one no expert is left out.
        counts (`np.ndarray` of shape `(posts,)`): How much each post counts, by its class's weight in the loss.
    """

    def held_out_loss(chosen: list[int]) -> float:
        loss = 0.0
        for fold in np.unique(folds):
            is_judged = folds == fold
            weights = weigh(experts[chosen][:, ~is_judged], labels[~is_judged], counts[~is_judged])
            judged = labels[is_judged], counts[is_judged]
            loss += judged[1].sum() * mixture_loss(weights, experts[chosen][:, is_judged], *judged)[0]
        return loss

    chosen = list(range(len(experts)))
    if len(np.unique(folds)) > 1:
        least = held_out_loss(chosen)
        while len(chosen) > 1:
            without = {expert: held_out_loss([other for other in chosen if other != expert]) for expert in chosen}
            useless = min(without, key=without.get)
            if without[useless] > least * (1 + LEAST_GAIN):
                break
            chosen.remove(useless)
            least = without[useless]
    weights = np.zeros(len(experts))
    weights[chosen] = weigh(experts[chosen], labels, counts)
    return weights


def weigh(experts: np.ndarray, labels: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """
    Returns the weights (experts,), from 0 to 5, that give the labels the largest likelihood, with the arguments of
    [`choose_weights`].
    """
    start = [1.0, *[0.3] * (len(experts) - 1)]
    bounds = [(0, LARGEST_WEIGHT)] * len(experts)
    return minimize(mixture_loss, start, (experts, labels, counts), jac=True, bounds=bounds).x


def mixture_loss(
    weights: np.ndarray, experts: np.ndarray, labels: np.ndarray, counts: np.ndarray
) -> tuple[float, np.ndarray]:
    """
    Returns the mean negative log-likelihood of labels under the weighted sum of the experts, and its gradient
    (experts,). `weights` are (experts,), `experts` logits (experts, posts, classes), `labels` (posts,) and `counts`,
    how much each post counts, (posts,).
    """
    log_p = log_softmax(np.tensordot(weights, experts, 1), axis=-1)
    posts, shares = np.arange(len(labels)), counts / counts.sum()
    gradient = (np.exp(log_p) * experts).sum(-1) - experts[:, posts, labels]
    return -log_p[posts, labels] @ shares, gradient @ shares
