"""What is looked at after classifying posts: a table of the classes' scores, and a confusion matrix as a figure."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from sklearn.metrics import confusion_matrix

from .figures import new_figure
from .metrics import StreamClassificationMetric
from .text_tables import format_table, printable


if TYPE_CHECKING:
    from matplotlib.figure import Figure


def class_table(actual: Sequence[int], predicted: Sequence[int], label_names: Sequence[str]) -> str:
    """Precision, recall, F1 and support (posts) of each class, and the unweighted means, as text in columns."""
    scores = StreamClassificationMetric().compute(
        predictions=predicted, references=actual, label_names=list(label_names)
    )
    kinds = ("precision", "recall", "f1")
    rows = [
        {"class": name, **{kind: scores[f"{kind}_{name}"] for kind in kinds}, "support": scores[f"support_{name}"]}
        for name in label_names
    ]
    rows.append({"class": "(macro)", **{kind: scores[f"macro_{kind}"] for kind in kinds}, "support": len(actual)})
    return format_table(rows)


def confusion_figure(
    actual: Sequence[int], predicted: Sequence[int], label_names: Sequence[str], num_seeds: int = 1
) -> "Figure":
    """
    The posts of each actual class (rows) by predicted class (columns): their number, and their share of the row as
    number and colour. The title says so where each post is counted once for each of several seeds. Raises an
    `ImportError` without matplotlib.
    """
    places = range(len(label_names))
    counts = confusion_matrix(actual, predicted, labels=places)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    size = 2.5 + 0.9 * len(label_names)
    figure = new_figure(size + 1, size)
    axes = figure.subplots()
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(image, ax=axes, label="share of the actual class")
    for row in places:
        for column in places:
            share = shares[row, column]
            text, color = f"{counts[row, column]}\n{share:.0%}", "white" if share > 0.65 else "black"
            axes.text(column, row, text, ha="center", va="center", color=color)
    # Names with dollars are no formulas.
    names = [printable(name) for name in label_names]
    axes.set_xticks(places, names, rotation=45, ha="right", rotation_mode="anchor", parse_math=False)
    axes.set_yticks(places, names, parse_math=False)
    axes.set(xlabel="predicted", ylabel="actual")
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
    Writes the figure `confusion_matrix.png` of the labelled posts.

    Args:
        output_dir: Folder of the figure; made if it is not there.
        actual: The class id of each post, -100 for a post without a label, which is left out.
        predicted: The class id that each post was given.
        label_names: Names of the classes in the order of their ids.
        num_seeds: How often each post is among them, once for each seed; said in the title of the figure.

    Returns:
        The table of [`class_table`]. Raises a `ValueError` for an id without a name or where no post has a label, an
        `ImportError` without matplotlib.
    """
    actual, predicted = np.asarray(actual), np.asarray(predicted)
    if actual.ndim != 1 or actual.shape != predicted.shape:
        raise ValueError(f"`actual` and `predicted` must be one list each, got {actual.shape} and {predicted.shape}.")
    labelled = np.flatnonzero(actual != -100)
    if not labelled.size:
        raise ValueError(f"None of the {len(actual)} posts has a label.")
    for name, ids in (("actual", actual), ("predicted", predicted)):
        wrong = labelled[~np.isin(ids[labelled], np.arange(len(label_names)))]
        if wrong.size:
            raise ValueError(f"`{name}`: post {wrong[0]} has {ids[wrong[0]]}, there are {len(label_names)} classes.")
    actual, predicted = actual[labelled], predicted[labelled]
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    confusion_figure(actual, predicted, label_names, num_seeds).savefig(folder / "confusion_matrix.png", dpi=150)
    return class_table(actual, predicted, label_names)
