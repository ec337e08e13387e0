"""Draws what more labels would be worth."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from modeling_tempoformer.common.figures import COLUMN, DARK, LIGHT, in_style, new_figure


@in_style
def more_labels_figure(worth: Mapping[str, Any]) -> Figure:
    """The macro F1 by the number of labelled timelines, from [`expect_more`], with intervals of 95 %."""
    figure = new_figure(COLUMN, 0.85 * COLUMN)
    axes, number = figure.subplots(), worth["timelines"]
    twice = number + worth["more_timelines"]
    score, expected = worth["macro_f1"], worth["expected_macro_f1"]
    sizes = [point["timelines"] for point in worth["stand_in"]]
    draw_points(axes, sizes, worth["stand_in"], "this model without its network, held out in turn", **LIGHT)
    draw_points(axes, [number], [worth], "this model, held out in turn", **DARK, linestyle="")
    then = {"macro_f1": expected, "macro_f1_interval": worth["expected_interval"]}
    draw_points(
        axes, [twice], [then], "expected", color=DARK["color"], marker="D", markerfacecolor="white", linestyle=""
    )
    axes.plot([number, twice], [score, expected], color=DARK["color"], linestyle=":")
    guessing = worth["guessing"]
    axes.axhline(guessing, color="gray", linestyle="-.", label=f"guessing by the classes' shares: {guessing:.3f}")
    axes.set(xscale="log", xlabel="labelled timelines", ylabel="macro F1")
    axes.set_xticks([*sizes, twice], [str(size) for size in (*sizes, twice)])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, frameon=False)
    return figure


def draw_points(axes: Axes, sizes: Sequence[int], points: Sequence[Mapping[str, Any]], label: str, **style: Any):
    """Draws the `macro_f1` of points by their sizes, with intervals."""
    scores = np.array([point["macro_f1"] for point in points])
    ends = np.array([point["macro_f1_interval"] for point in points])
    axes.errorbar(sizes, scores, np.abs(ends.T - scores), label=label, capsize=2, **style)
