"""Per-class and macro precision, recall and F1."""

from collections.abc import Callable, Sequence

import datasets
import evaluate
from sklearn.metrics import precision_recall_fscore_support
from transformers import EvalPrediction


class StreamClassificationMetric(evaluate.Metric):
    """
    Precision, recall and F1 of each class, their unweighted means (macro) and the number of labelled posts. Works
    without network access. A class that is neither in the references nor in the predictions scores 0.

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


def score_names(label_names: Sequence[str]) -> list[str]:
    """The names of the scores that [`StreamClassificationMetric`] computes."""
    return list(StreamClassificationMetric()._compute([0], [0], label_names))


def compute_metrics(label_names: list[str]) -> Callable[[EvalPrediction], dict[str, float]]:
    """
    Makes the argument `compute_metrics` of the Trainer, which scores the posts that have a label.

    Args:
        label_names (`list[str]`): Names of the classes in the order of their ids.

    Returns:
        A function from an `EvalPrediction` with logits (rows, streams, classes) and labels (rows, streams), -100
        without a label, to the scores of [`StreamClassificationMetric`]; empty if no post has a label.
    """
    metric = StreamClassificationMetric()

    def score(prediction: EvalPrediction) -> dict[str, float]:
        labelled = prediction.label_ids != -100
        if not labelled.any():
            return {}
        predicted, actual = prediction.predictions.argmax(-1)[labelled], prediction.label_ids[labelled]
        return metric.compute(predictions=predicted, references=actual, label_names=label_names)

    return score
