"""Draws the figures of a run: learning curve, confusion matrix, reliability diagram, curve of alarms."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from transformers import PreTrainedConfig

from ..common.figures import COLUMN, DARK, LIGHT, in_style, new_figure, save_figure
from ..decisions_tempoformer import class_names
from ..timeline_tempoformer import Timeline
from .alarm_costs import PER_DAY, PER_HUNDRED, alarm_curve, false_alarm_rates
from .calibration import expected_calibration_error
from .metrics import change_detection
from .predictions import all_labels


if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEARNING_CURVE, RELIABILITY, CONFUSION = "learning_curve.png", "reliability.png", "confusion_matrix.png"
ALARMS = "alarms.png"
# Descriptions of the figures, for those who cannot see them. A push sends these figures.
FIGURES = {
    CONFUSION: "Confusion matrix of the test posts: labels as rows, predictions as columns",
    RELIABILITY: "Reliability diagram of the test posts: the share of right predictions by how sure they are",
    ALARMS: "Alarms of the test posts: the share of runs of the class that are found by the number of false alarms",
    LEARNING_CURVE: "Learning curve: training loss, and the scores of each evaluation, by step",
}
# Those that a test draws; the others are of a training.
OF_TEST = (CONFUSION, RELIABILITY, ALARMS)
# The share of right predictions of fewer posts is chance.
FEWEST_IN_BIN = 10
# The panels of the learning curve: for each entry of the Trainer's log its label and its style
CURVES = {
    "loss": {"loss": ("training loss", LIGHT), "eval_loss": ("validation loss", DARK)},
    "macro F1": {"eval_macro_f1": ("validation macro F1", DARK)},
}


def figures_in(folder: str | Path) -> dict[str, str]:
    """The names of the figures in a folder, and their descriptions."""
    return {name: description for name, description in FIGURES.items() if (Path(folder) / name).exists()}


def print_figures(folder: str | Path):
    """Prints the names of the figures in a folder, if it has any."""
    if names := figures_in(folder):
        print(f"Figures in {folder}, as PNG, SVG and PDF: {', '.join(names)}")


@in_style
def learning_curve(history: Sequence[Mapping[str, Any]], kept_step: int, num_classes: int) -> "Figure | None":
    """
    The losses and macro F1 of a `log_history` by step, with the macro F1 of guessing; None if nothing was logged.
    """
    logged = pd.DataFrame(list(history)).set_index("step")
    panels = {title: [name for name in curves if name in logged] for title, curves in CURVES.items()}
    panels = {title: shown for title, shown in panels.items() if shown}
    if not panels:
        return None
    figure = new_figure(COLUMN, 0.5 + 1.9 * len(panels))
    for axes, (title, shown) in zip(figure.subplots(len(panels), sharex=True, squeeze=False).flat, panels.items()):
        for name in shown:
            label, style = CURVES[title][name]
            axes.plot(logged[name].dropna(), label=label, **style)
        if title == "macro F1":
            guessed = 1 / num_classes
            label = f"guessing by the classes' shares: {guessed:.3f}"
            axes.axhline(guessed, color="gray", linestyle="-.", label=label)
            axes.set_ylim(-0.02, 1.02)
        axes.axvline(kept_step, color="black", linestyle=":", label=f"weights that are kept: step {kept_step}")
        axes.set_ylabel(title)
        axes.grid(alpha=0.3)
        # Above the panel, where it covers no curve.
        axes.legend(fontsize="small", loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, frameon=False)
    axes.set_xlabel("step")
    axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    return figure


@in_style
def confusion_figure(labels: Sequence[int], predictions: Sequence[int], label_names: Sequence[str]) -> "Figure":
    """
    The confusion matrix, with labels as rows. A cell has the number of posts and their share of the row, which is also
    its colour.
    """
    from sklearn.metrics import ConfusionMatrixDisplay, confusion_matrix

    classes = range(len(label_names))
    counts = confusion_matrix(labels, predictions, labels=classes)
    shares = confusion_matrix(labels, predictions, labels=classes, normalize="true")
    # More than four classes take more than a column.
    width = max(COLUMN, 1.3 + 0.5 * len(label_names))
    figure = new_figure(width, 0.85 * width)
    axes = figure.subplots()
    shown = [textwrap.fill(name, 16, max_lines=3, placeholder="…") for name in label_names]
    display = ConfusionMatrixDisplay(shares, display_labels=shown)
    display.plot(ax=axes, cmap="Blues", im_kw={"vmin": 0, "vmax": 1}, xticks_rotation=45)
    for text, count, share in zip(display.text_.flat, counts.flat, shares.flat, strict=True):
        text.set(text=f"{count}\n{share:.0%}", color="white" if share > 0.65 else "black")
    axes.set(xlabel="prediction", ylabel="label")
    display.im_.colorbar.set_label("share of the row")
    return figure


@in_style
def reliability_figure(labels: np.ndarray, probabilities: Mapping[str, np.ndarray]) -> "Figure":
    """
    The share of right predictions by confidence, in bins of at least 10 posts, and the number of posts by confidence.
    `probabilities` are one or two arrays (posts, classes) by name.
    """
    from sklearn.calibration import CalibrationDisplay, calibration_curve

    figure, num_bins = new_figure(COLUMN, COLUMN), change_detection().NUM_BINS
    upper, lower = figure.subplots(2, sharex=True, height_ratios=(5, 2))
    title, confidences = ["Expected calibration error"], []
    for (name, array), style in zip(probabilities.items(), (DARK, LIGHT)):
        confidence, is_right = array.max(axis=1), array.argmax(axis=1) == labels
        # The curve has a point for each bin that is not empty; an edge belongs to the lower one.
        bins = np.digitize(confidence, np.linspace(0, 1, num_bins + 1)[1:-1], right=True)
        is_shown = np.unique(bins, return_counts=True)[1] >= FEWEST_IN_BIN
        curve = calibration_curve(is_right, confidence, n_bins=num_bins, pos_label=1)
        CalibrationDisplay(*(values[is_shown] for values in curve), confidence).plot(ax=upper, name=name, **style)
        title.append(f"{expected_calibration_error(array, labels):.3f} ({name})")
        confidences.append(confidence)
    colors = [style["color"] for style in (DARK, LIGHT)][: len(confidences)]
    lower.hist(confidences, bins=num_bins, range=(0, 1), color=colors)
    share = f"share of right predictions\n(of {FEWEST_IN_BIN} posts or more)"
    upper.set(xlabel="", ylabel=share, title="\n".join(title))
    lower.set(xlabel="confidence (probability of the most probable class)", ylabel="posts")
    for axes in (upper, lower):
        axes.grid(alpha=0.3)
        axes.set_axisbelow(True)
    return figure


def write_test_figures(
    output_dir: str,
    timelines: Sequence[Timeline],
    predictions: np.ndarray,
    probabilities: np.ndarray,
    names: list[str],
    uncalibrated: np.ndarray | None = None,
):
    """Writes `confusion_matrix` and `reliability` of the labelled posts, if there are any."""
    labels = all_labels(timelines)
    labelled = labels >= 0
    if not labelled.any():
        return
    figure = confusion_figure(labels[labelled], predictions[labelled], names)
    save_figure(figure, Path(output_dir) / CONFUSION)
    shown = {"this model": probabilities[labelled]}
    if uncalibrated is not None:
        shown = {"after calibration": probabilities[labelled], "before calibration": uncalibrated[labelled]}
    save_figure(reliability_figure(labels[labelled], shown), Path(output_dir) / RELIABILITY)


@in_style
def alarm_figure(false: np.ndarray, found: np.ndarray, costs: Mapping[str, Any], name: str) -> "Figure":
    """
    The share of runs of the class that are found by the number of false alarms for all thresholds, and the model's own
    alarms.

    Args:
        false, found (`np.ndarray` of shape `(points,)`): The false alarms of a day, or without dates of a hundred
            posts, and the share of changes found.
        costs (`dict[str, Any]`): The [`score_costs`] of the model's own alarms.
        name (`str`): The name of the class that alarms are about.
    """
    figure = new_figure(COLUMN, 0.85 * COLUMN)
    axes, rate = figure.subplots(), PER_DAY if PER_DAY in costs else PER_HUNDRED
    axes.plot(false, found, drawstyle="steps-post", color=DARK["color"], label="all thresholds, without a policy")
    point = {key: np.array(costs[key]) for key in (rate, "found_changes")}
    # From the point to both ends of its interval
    bars = {key: np.abs(np.array(costs.get(f"{key}_interval", (at, at))) - at)[:, None] for key, at in point.items()}
    chosen = {"xerr": bars[rate], "yerr": bars["found_changes"], "fmt": "o", "capsize": 2, "color": LIGHT["color"]}
    axes.errorbar(point[rate], point["found_changes"], **chosen, label="this model's alarms, 95 % intervals")
    axes.set(xlabel=f"false alarms {'a day' if rate == PER_DAY else 'of a hundred posts'}", ylim=(-0.02, 1.02))
    axes.set_ylabel(textwrap.fill(f"share of runs of {name} found", 40, max_lines=2, placeholder="…"))
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, frameon=False)
    return figure


def write_alarm_figure(
    output_dir: str,
    timelines: Sequence[Timeline],
    probabilities: np.ndarray,
    config: PreTrainedConfig,
    measured: Mapping[str, Any],
):
    """
    Writes `alarms`, if a labelled post is of the class that the model watches.

    Args:
        output_dir (`str`): The output folder.
        timelines (`Sequence[Timeline]`): Timelines, some of whose posts have labels.
        probabilities (`np.ndarray` of shape `(posts, classes)`): The probability of each class.
        config (`PreTrainedConfig`): The model's configuration.
        measured (`dict[str, Any]`): The [`score_alarms`] of the same timelines.
    """
    costs = measured["costs"]
    if "found_changes" in costs:
        false, found = alarm_curve(timelines, probabilities[:, config.watched], config.watched)
        rates = false_alarm_rates(timelines, measured, config.first_posts)
        false = false * rates.get(PER_DAY, rates[PER_HUNDRED])
        figure = alarm_figure(false, found, costs, class_names(config)[config.watched])
        save_figure(figure, Path(output_dir) / ALARMS)
