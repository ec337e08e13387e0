"""Fits the experts of a post model over a frozen encoder, after its members are trained, and their weights."""

from typing import Any

import numpy as np
import torch
from datasets import Dataset
from scipy.optimize import minimize
from scipy.special import log_softmax
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
    read = [read_batch(model, collator, part) for part in DataLoader(rows, BATCH_SIZE, collate_fn=list)]
    logits, labels, held_out, *rest = (torch.cat(parts).cpu() for parts in zip(*read, strict=True))
    words = rest.pop() if config.num_words else None
    tree_inputs, states, known = rest[:4], rest[4:6], rest[6:]
    if config.reads_known_states:
        # Learned together, so that one model serves people whose states are known, known now and then, and unknown.
        known = torch.cat((*known, torch.zeros_like(known[0])))
        logits, labels, held_out, *tree_inputs, probabilities, has_previous = (
            torch.cat([values] * KNOWLEDGES) for values in (logits, labels, held_out, *tree_inputs, *states)
        )
        words = None if words is None else torch.cat([words] * KNOWLEDGES)
        states = [model.states.cpu().with_known(probabilities, known), has_previous]
    labels, members = labels.numpy(), held_out.numpy()
    changes = changes_for_members(model.states, tables, members, *states) if states else None
    levels = model.states.levels(states[0], known) if config.reads_known_states else None
    experts = [logits.numpy()]
    if model.trees is not None:
        experts.append(grow_trees(model, labels, members, seed, changes, levels, *tree_inputs))
    if changes is not None:
        experts.append(changes[members, np.arange(len(labels))].numpy())
    if words is not None:
        experts.append(words.numpy())
    experts, counts = np.stack(experts), np.ones(len(labels))
    if config.class_weights is not None:
        counts = np.array(config.class_weights)[labels]
    model.mixture.weights.copy_(torch.from_numpy(choose_weights(experts, labels, members, counts)))
    for member, weights in enumerate(model.mixture.held_out):
        others = members != member
        chosen = choose_weights(experts[:, others], labels[others], members[others], counts[others])
        weights.copy_(torch.from_numpy(chosen))
    model.to(model.device)


def read_batch(
    model: PostTempoFormerForStreamClassification, collator: StreamCollator, rows: list[dict[str, Any]]
) -> list[torch.Tensor]:
    """
    Returns, for each labelled post, its logits by the member that has not learned from it, its label and that member,
    the arguments of [`Trees.read`] but those of states, and if the model has states
    [`~PostTempoFormerForStreamClassification.compared_states`] and, if it reads known ones, these and half of them. If
    the model reads words, their logits by that member are the last.
    """
    batch = {name: values.to(model.device) for name, values in collator(rows).items()}
    labels, held_out, timeline_position = (batch.pop(name) for name in ("labels", "held_out", "timeline_position"))
    known = []
    if "earlier_states" in batch:
        thinned = [{**row, "earlier_states": row["thinned_states"]} for row in rows]
        known = [batch.pop("earlier_states"), collator(thinned)["earlier_states"].to(model.device)]
    if not model.config.reads_speakers:
        batch.pop("speaker_posts", None)
    outputs = model.base_model(**batch, return_dict=True)
    logits = of_members(model.member_logits(outputs), held_out)
    inputs = model.tree_inputs(outputs, timeline_position, batch.get("elapsed"))
    states = () if model.states is None else model.compared_states(outputs, held_out)
    values = [logits, labels, held_out.unsqueeze(-1).expand_as(labels), *inputs, *states, *known]
    values += [] if outputs.word_logits is None else [model.ask_words(outputs, held_out)]
    return [tensor[labels >= 0] for tensor in values]


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
    (experts,), with the arguments of [`choose_weights`].
    """
    log_p = log_softmax(np.tensordot(weights, experts, 1), axis=-1)
    posts, shares = np.arange(len(labels)), counts / counts.sum()
    gradient = (np.exp(log_p) * experts).sum(-1) - experts[:, posts, labels]
    return -log_p[posts, labels] @ shares, gradient @ shares
