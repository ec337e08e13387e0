"""A report on classified posts: a table with the scores of each class, and a figure of the confusion matrix."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from sklearn.metrics import ConfusionMatrixDisplay, classification_report, confusion_matrix

from .figures import new_figure
from .text_tables import escape_control_characters


if TYPE_CHECKING:
    from matplotlib.figure import Figure


def confusion_figure(
    actual: Sequence[int], predicted: Sequence[int], label_names: Sequence[str], num_seeds: int = 1
) -> "Figure":
    """
    The confusion matrix with actual classes as rows. A cell has the number of posts and their share of the row, which
    is also its colour. With several seeds the title says that each post is counted once for each seed. Raises an
    `ImportError` without matplotlib.
    """
    counts = confusion_matrix(actual, predicted, labels=range(len(label_names)))
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    size = 2.5 + 0.9 * len(label_names)
    figure = new_figure(size + 1, size)
    axes = figure.subplots()
    names = [escape_control_characters(name) for name in label_names]
    display = ConfusionMatrixDisplay(shares, display_labels=names)
    display.plot(ax=axes, cmap="Blues", im_kw={"vmin": 0, "vmax": 1}, xticks_rotation=45)
    for text, count, share in zip(display.text_.flat, counts.flat, shares.flat, strict=True):
        text.set_text(f"{count}\n{share:.0%}")
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        # A name with dollar signs is not a formula.
        label.set_parse_math(False)
    if num_seeds > 1:
        axes.set_title(f"each post {num_seeds} times, once for each seed")
    return figure


def write_classification_report(
    output_dir: str | Path,
    actual: Sequence[int],
    predicted: Sequence[int],
    label_names: Sequence[str],
    num_seeds: int = 1,
) -> str:
    """
    Writes the confusion matrix of the labelled posts to `confusion_matrix.png`.

    Args:
        output_dir: Folder of the figure; created if needed.
        actual: The class id of each post; posts with -100 have no label and are left out.
        predicted: The predicted class id of each post. A post without a prediction (-1) counts as wrong in the table,
            and is not in the figure.
        label_names: Names of the classes in the order of their ids.
        num_seeds: How often each post is in the lists, once for each seed; the title of the figure says so.

    Returns:
        scikit-learn's table of precision, recall, F1 and support (number of posts) of each class, and their averages.
        Raises a `ValueError` if no post has a label, and an `ImportError` without matplotlib.
    """
    actual, predicted = np.asarray(actual), np.asarray(predicted)
    actual, predicted = actual[actual != -100], predicted[actual != -100]
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    confusion_figure(actual, predicted, label_names, num_seeds).savefig(folder / "confusion_matrix.png", dpi=150)
    return classification_report(
        actual,
        predicted,
        labels=range(len(label_names)),
        target_names=[escape_control_characters(name) for name in label_names],
        digits=3,
        zero_division=0,
    )
