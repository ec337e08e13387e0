"""Figures of a run, beside its results: learning curve, confusion matrix, reliability diagram."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset
from sklearn.calibration import CalibrationDisplay, calibration_curve
from sklearn.metrics import ConfusionMatrixDisplay, confusion_matrix

from ..data.files import written_whole
from .calibration import NUM_BINS, bin_numbers, expected_calibration_error
from .predictions import labels_of


if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEARNING_CURVE, RELIABILITY, CONFUSION = "learning_curve.png", "reliability.png", "confusion_matrix.png"
# What each shows, for those who cannot see it. A push sends them.
FIGURES = {
    CONFUSION: "Confusion matrix of the test posts: labels as rows, predictions as columns",
    RELIABILITY: "Reliability diagram of the test posts: the share of right predictions by how sure they are",
    LEARNING_CURVE: "Learning curve: training loss, and the scores of each evaluation, by step",
}
LONGEST_LINE, LONGEST_NAME = 16, 48  # characters of a class name
# They differ in brightness as well, for print and for readers who do not see colours.
DARK, LIGHT, MIDDLE = "#0b3c5d", "#e08214", "#5f6b73"
COLUMN = 3.3  # inches, of a paper with two
DOTS = 300  # of a PNG, to the inch
# Beside each PNG: the same for a paper.
FOR_PAPER = (".svg", ".pdf")
# What is read at this size, and fonts that journals take.
STYLE = {
    "pdf.fonttype": 42,
    "font.size": 7.5,
    "lines.markersize": 3.5,
    "lines.linewidth": 1.0,
    "axes.titlesize": "medium",
}


def for_column(draw: Callable) -> Callable:
    """Makes a function draw or save its figure with letters and lines that fit a column."""

    @wraps(draw)
    def drawn(*args, **kwargs):
        # Only here, because it takes long.
        from matplotlib import rc_context

        with rc_context(STYLE):
            return draw(*args, **kwargs)

    return drawn


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure, sizes in inches. Who draws in it is [`for_column`]."""
    # Only here, because it takes long.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


@for_column
def save_figure(figure: "Figure", path: Path):
    """Writes a figure as PNG to `path`, and as SVG and PDF beside it, each there whole or not at all."""
    for ending in (".png", *FOR_PAPER):
        with written_whole(path.with_suffix(ending)) as partial:
            figure.savefig(partial, dpi=DOTS, format=ending[1:])


def all_forms(name: str) -> list[str]:
    """The names of the files of a figure, whose PNG is `name`."""
    return [name, *(str(Path(name).with_suffix(ending)) for ending in FOR_PAPER)]


def figures_in(folder: str | Path) -> dict[str, str]:
    """The names of the figures that a folder has, and what each shows."""
    return {name: shown for name, shown in FIGURES.items() if (Path(folder) / name).exists()}


def print_figures(folder: str | Path):
    """Names the figures of a folder in a line, if it has any."""
    if names := figures_in(folder):
        print(f"Figures in {folder}, as PNG, SVG and PDF: {', '.join(names)}")


@for_column
def learning_curve(history: Sequence[Mapping[str, Any]], kept_step: int, num_classes: int) -> "Figure | None":
    """
    Training and validation loss by step, and below them the macro F1 of each evaluation, where it is known, beside
    that of guessing each class by its share, which is 1 / classes. `history` is the `log_history` of a
    [`TrainerState`]; `kept_step`, whose weights are kept, is marked. None if nothing was logged.
    """
    names = {"loss": "training loss", "eval_loss": "validation loss", "eval_macro_f1": "validation macro F1"}
    scores = {name: [(entry["step"], entry[name]) for entry in history if name in entry] for name in names}
    panels = {"loss": ("loss", "eval_loss"), "macro F1": ("eval_macro_f1",)}
    panels = {title: shown for title, shown in panels.items() if any(scores[name] for name in shown)}
    if not panels:
        return None
    styles = {"loss": {"color": LIGHT, "marker": ".", "linestyle": "--"}}
    figure = new_figure(COLUMN, 0.5 + 1.4 * len(panels))
    for axes, (title, shown) in zip(figure.subplots(len(panels), sharex=True, squeeze=False).flat, panels.items()):
        for name in shown:
            if scores[name]:
                axes.plot(*zip(*scores[name]), label=names[name], **styles.get(name, {"color": DARK, "marker": "s"}))
        if title == "macro F1":
            guessed = 1 / num_classes
            label = f"guessing by the classes' shares: {guessed:.3f}"
            axes.axhline(guessed, color=MIDDLE, linestyle="-.", label=label)
            axes.set_ylim(-0.02, 1.02)
        axes.axvline(kept_step, color="black", linestyle=":", label=f"weights that are kept: step {kept_step}")
        axes.set_ylabel(title)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    axes.set_xlabel("step")
    axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    return figure


@for_column
def confusion_figure(
    labels: Sequence[int], predictions: Sequence[int], label_names: Sequence[str], num_seeds: int = 1
) -> "Figure":
    """
    The confusion matrix with the labels as rows. A cell has the number of posts and their share of the row, which
    is also its colour. With several seeds the title says that each post is counted once for each seed.
    """
    counts = confusion_matrix(labels, predictions, labels=range(len(label_names)))
    shares = counts / np.maximum(np.bincount(labels, minlength=len(label_names)), 1)[:, None]
    # More than four classes take more than a column.
    width = max(COLUMN, 1.3 + 0.5 * len(label_names))
    figure = new_figure(width, 0.85 * width)
    axes = figure.subplots()
    display = ConfusionMatrixDisplay(shares, display_labels=[short(name) for name in label_names])
    display.plot(ax=axes, cmap="Blues", im_kw={"vmin": 0, "vmax": 1}, xticks_rotation=45)
    for text, count, share in zip(display.text_.flat, counts.flat, shares.flat, strict=True):
        text.set(text=f"{count}\n{share:.0%}", color="white" if share > 0.65 else "black")
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        # A name with dollar signs is not a formula.
        label.set_parse_math(False)
    axes.set(xlabel="prediction", ylabel="label")
    display.im_.colorbar.set_label("share of the row")
    if num_seeds > 1:
        axes.set_title(f"each post {num_seeds} times, once for each seed")
    return figure


def short(name: str) -> str:
    """A class name that fits beside an axis."""
    name = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    return textwrap.fill(name, LONGEST_LINE)


@for_column
def reliability_figure(labels: np.ndarray, probabilities: Mapping[str, np.ndarray]) -> "Figure":
    """
    The reliability diagram: the share of right predictions among posts of about the same confidence, and below it how
    many posts those are. The confidence of a post is the probability of its most probable class, in the bins of
    [`expected_calibration_error`], which the title has. `probabilities` are (posts, classes), by one or two names.
    """
    figure = new_figure(COLUMN, COLUMN)
    upper, lower = figure.subplots(2, sharex=True, height_ratios=(5, 2))
    edges, errors = np.linspace(0, 1, NUM_BINS + 1), {}
    styles = ({"color": DARK, "marker": "s"}, {"color": LIGHT, "marker": "o", "linestyle": "--"})
    width = 0.9 / NUM_BINS / len(probabilities)
    for number, (name, of_classes) in enumerate(probabilities.items()):
        confidence, is_right = of_classes.max(axis=1), of_classes.argmax(axis=1) == labels
        curve = calibration_curve(is_right, confidence, n_bins=NUM_BINS, pos_label=1)
        CalibrationDisplay(*curve, confidence).plot(ax=upper, name=name, **styles[number])
        errors[name] = expected_calibration_error(of_classes, labels)
        counts = np.bincount(bin_numbers(confidence), minlength=NUM_BINS)
        left = edges[:-1] + 0.05 / NUM_BINS + number * width
        bars = lower.bar(left, counts, width, align="edge", color=styles[number]["color"], hatch=("", "//")[number])
        lower.bar_label(bars, [count or "" for count in counts], rotation=90, padding=3, fontsize="small")
    upper.set(xlabel="", ylabel="share of right predictions", ylim=(-0.02, 1.02))
    title = "\n".join(f"{error:.3f} ({name})" for name, error in errors.items())
    upper.set_title(f"Expected calibration error\n{title}")
    lower.set(xlabel="confidence (probability of the most probable class)", ylabel="posts")
    # No post is less sure than by chance.
    lower.set_xlim(np.ceil(NUM_BINS / of_classes.shape[1] - 1) / NUM_BINS, 1.01)
    lower.margins(y=0.5)
    for axes in (upper, lower):
        axes.grid(alpha=0.3)
        axes.set_axisbelow(True)
    return figure


def write_test_figures(
    output_dir: str,
    timelines: Dataset,
    predictions: np.ndarray,
    probabilities: np.ndarray,
    names: list[str],
    uncalibrated: np.ndarray | None = None,
):
    """
    Writes `confusion_matrix` and `reliability` of the labelled posts, if there are any. Arguments as of
    [`labelled_posts`]; `uncalibrated` has the probabilities before the calibration of a model that has one.
    """
    labels = labels_of(timelines)
    labelled = labels >= 0
    if not labelled.any():
        return
    figure = confusion_figure(labels[labelled], predictions[labelled], names)
    save_figure(figure, Path(output_dir) / CONFUSION)
    shown = {"this model": probabilities}
    if uncalibrated is not None:
        shown = {"after calibration": probabilities, "before calibration": uncalibrated}
    figure = reliability_figure(labels[labelled], {name: of[labelled] for name, of in shown.items()})
    save_figure(figure, Path(output_dir) / RELIABILITY)
