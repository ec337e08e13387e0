"""A figure of the confusion matrix."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from sklearn.metrics import ConfusionMatrixDisplay, confusion_matrix

from modeling_tempoformer.semantic_change.report import escape_control_characters


def confusion_figure(
    actual: Sequence[int], predicted: Sequence[int], label_names: Sequence[str], num_seeds: int = 1
) -> Figure:
    """
    The confusion matrix with actual classes as rows. A cell has the number of posts and their share of the row, which
    is also its colour. With several seeds the title says that each post is counted once for each seed.
    """
    counts = confusion_matrix(actual, predicted, labels=range(len(label_names)))
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    size = 2.5 + 0.9 * len(label_names)
    figure = Figure(figsize=(size + 1, size), layout="constrained")
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
