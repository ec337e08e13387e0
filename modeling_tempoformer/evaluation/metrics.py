"""Scores predictions by the metric in `metrics/change_detection`, which defines each score."""

from collections.abc import Callable, Sequence
from tempfile import TemporaryDirectory
from types import ModuleType

import numpy as np
from transformers import EvalPrediction, PreTrainedConfig

from .predictions import Predictions


def change_detection() -> ModuleType:
    """Returns the module of the metric, with its class `ChangeDetection` and its table `SCORES`."""
    # Imported here, because it brings Evaluate.
    from ..metrics.change_detection import change_detection as module

    return module


def compute_scores(posts: Predictions, no_change: int | None = None) -> dict[str, float]:
    """
    Scores predictions.

    Args:
        posts ([`Predictions`]): Predictions. Posts with -100 as their label are left out.
        no_change (`int`, *optional*): The class that is no change. Scores of changes need it.

    Returns:
        The scores of `ChangeDetection` by name: `macro_NAME` is a mean over the classes, and `NAME_CLASS` the score of
        a class. Scores that are not defined, or that need facts which are not given, are left out. Without labels
        there are none.
    """
    # The metric makes a cache folder, but writes nothing into it with `keep_in_memory`: a temporary one is enough.
    with TemporaryDirectory() as folder:
        metric = change_detection().ChangeDetection(keep_in_memory=True, cache_dir=folder)
    return metric.compute(
        predictions=[posts.predictions],
        references=[posts.labels],
        timelines=posts.timelines,
        times=posts.times,
        probabilities=posts.probabilities,
        label_names=posts.names,
        no_change=None if no_change is None else posts.names[no_change],
    )


def choose_no_change(config: PreTrainedConfig | None, labels: np.ndarray, names: Sequence[str]) -> int:
    """
    Returns the class that scores take for no change: the class of the model's first posts, if it has such a rule; of
    labels that were derived from states the first; of two classes the unwatched one; else the largest of the training,
    which has the smallest weight in a model's loss.

    Args:
        config (`PreTrainedConfig`, *optional*): The model's configuration.
        labels (`np.ndarray` of shape `(posts,)`): Class ids of posts, -100 without a label, which count if the
            configuration does not say which class is the largest.
        names (`Sequence[str]`): The classes.
    """
    if (no_change := getattr(config, "no_change", None)) is not None:
        return no_change
    if getattr(config, "change_step", None) is not None:
        return 0
    if len(names) == 2 and (watched := getattr(config, "watched", None)) is not None:
        return 1 - watched
    if (weights := getattr(config, "class_weights", None)) is not None:
        return int(np.argmin(weights))
    return int(np.bincount(labels[labels >= 0], minlength=len(names)).argmax())


def score_names(label_names: Sequence[str]) -> list[str]:
    """The names of the scores that [`compute_metrics`] computes."""
    return list(compute_scores(Predictions(np.array([0]), np.array([0]), list(label_names))))


def card_titles() -> dict[str, str]:
    """The titles of the scores on a model card, by name."""
    return {score.name: score.title[0].upper() + score.title[1:] for score in change_detection().SCORES if score.title}


def compute_metrics(label_names: list[str]) -> Callable[[EvalPrediction, bool], dict[str, float]]:
    """
    Makes the argument `compute_metrics` of the Trainer, which scores the posts that have a label, also with
    `batch_eval_metrics`.

    Args:
        label_names (`list[str]`): Names of the classes in the order of their ids.

    Returns:
        A function from an `EvalPrediction` with logits (rows, streams, classes) and labels (rows, streams), -100
        without a label, to the scores of [`compute_scores`] that need labels and predictions alone: precision, recall
        and F1 (`macro_f1`, `f1_NAME`), and `support_NAME` of each class. Empty if no post has a label.
    """

    batches: list[tuple[np.ndarray, np.ndarray]] = []

    def score(prediction: EvalPrediction, compute_result: bool = True) -> dict[str, float]:
        # Logits of states may follow. Batches are tensors.
        logits = prediction.predictions[0] if isinstance(prediction.predictions, tuple) else prediction.predictions
        batches.append(tuple(np.ravel(values) for values in (prediction.label_ids, logits.argmax(-1))))
        if not compute_result:
            return {}
        labels, predictions = (np.concatenate(parts) for parts in zip(*batches, strict=True))
        batches.clear()
        return compute_scores(Predictions(labels, predictions, label_names))

    return score
