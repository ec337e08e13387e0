"""Per-class and macro precision, recall and F1."""

from functools import partial

import datasets
import evaluate
from sklearn.metrics import precision_recall_fscore_support
from transformers import EvalPrediction


class StreamClassificationMetric(evaluate.Metric):
    """
    Precision, recall and F1 of each class, their unweighted means (macro) and the number of labelled posts. Needs no
    network. A class that is neither among the references nor the predictions counts as 0.

    `compute(predictions=, references=, label_names=)` takes class ids and the names in the order of the ids; it
    returns `macro_f1`, `macro_precision`, `macro_recall`, and `f1_NAME`, `precision_NAME`, `recall_NAME`,
    `support_NAME` for each class.
    """

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=self.__doc__,
            citation="",
            inputs_description="Class ids.",
            features=datasets.Features(
                {"predictions": datasets.Value("int64"), "references": datasets.Value("int64")}
            ),
        )

    def _compute(self, predictions, references, label_names: list[str]) -> dict[str, float]:
        per_class = precision_recall_fscore_support(
            references, predictions, labels=range(len(label_names)), zero_division=0.0
        )
        kinds = dict(zip(("precision", "recall", "f1", "support"), per_class, strict=True))
        macro = {f"macro_{kind}": kinds[kind].mean().item() for kind in ("f1", "precision", "recall")}
        classes = {
            f"{kind}_{name}": value.item()
            for kind, values in kinds.items()
            for name, value in zip(label_names, values, strict=True)
        }
        return {**macro, **classes}


def compute_metrics(label_names: list[str]):
    """
    What the Trainer's `compute_metrics` takes: scores of the posts that have a label.

    Args:
        label_names (`list[str]`): Of the classes, in the order of their ids.

    Returns:
        A function of an `EvalPrediction` with logits (rows, streams, classes) and labels (rows, streams), -100 for
        none, that returns the scores of [`StreamClassificationMetric`]; nothing where no post has a label.
    """
    return partial(score_streams, metric=StreamClassificationMetric(), label_names=label_names)


def score_streams(prediction: EvalPrediction, metric: evaluate.Metric, label_names: list[str]) -> dict[str, float]:
    """Scores logits (rows, streams, classes) against labels (rows, streams) where these are not -100, if anywhere."""
    labelled = prediction.label_ids != -100
    if not labelled.any():
        return {}
    predicted = prediction.predictions.argmax(-1)[labelled]
    return metric.compute(predictions=predicted, references=prediction.label_ids[labelled], label_names=label_names)
