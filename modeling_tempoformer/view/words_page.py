"""
The page of words by change of meaning: a table of words, and for each word its frequency, a map of its usages, their
senses, and quotations to read and to save. Needs the extra `view`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from scipy.stats import binomtest

from ..cards.markdown import escape_control_characters
from ..semantic_change.report import LEVEL, measures_of
from ..semantic_change.senses import find_senses, keywords, principal_components
from ..semantic_change.usages import Frequencies, Usage, Usages, context
from .page import COLOURS, render_page


# It holds texts, so its name begins with an underscore: such files are never pushed.
PAGE = "_changes.html"
# Characters of a quotation on each side of the word.
AROUND = 120
# Sentences for each sense and time.
NEAREST = 3
# Words with usages on the page; many more make browsers slow.
MAX_WORDS = 200
SHAPES = ["circle", "triangle-up", "square", "cross", "diamond", "triangle-down", "triangle-left", "triangle-right"]
SURE = "more than chance"
# The kind of a column of changes.csv, which sets how the page writes and sorts it, and its meaning. Other columns are
# scores.
COLUMNS = {
    "rank": ("rank", "1 changed most."),
    "word": ("word", ""),
    "change": (
        "points",
        "From 0 to 100: the geometric mean of apd and of prt less chance, two measures of the distance between the "
        "usages of the two times.",
    ),
    "change_low": ("points", "Lower end of the 95 % interval of change (bootstrap over usages)."),
    "change_high": ("points", "Upper end of the 95 % interval of change."),
    SURE: ("sure", f"Whether the usages differ more than by chance: p_fdr is below {LEVEL}."),
    "apd": (
        "score",
        "Average pairwise distance: the mean cosine distance (0 to 2) of a usage at the first time and one at the "
        "last. It is also large for words of many senses that did not change.",
    ),
    "prt": ("score", "Cosine distance (0 to 2) of the mean vectors. It is also large for rare words."),
    "prt_corrected": ("score", "prt less its mean by chance."),
    "p": ("p", "How often chance alone makes the prt as large (permutation test)."),
    "p_fdr": ("p", "p, adjusted for the number of words (Benjamini and Hochberg)."),
    "gold": ("score", "The score that people gave."),
}


def words_page(
    table: pd.DataFrame,
    times: Sequence[str],
    usages: Usages,
    vectors: dict[str, dict[str, np.ndarray]],
    frequencies: Frequencies | None = None,
    seed: int = 0,
    earliest: Mapping[str, list[Usage]] | None = None,
) -> str:
    """
    Renders the page of words as HTML. Only the first [`MAX_WORDS`] words show their usages; the table has all words.
    `earliest` has the usages of [`keep_earliest`].
    """
    names = [escape_control_characters(time) for time in times]
    columns = table_columns(table, times)
    shown = set(table["word"][:MAX_WORDS])
    words = [
        {
            "word": escape_control_characters(word),
            "frequency": [with_interval(*frequency, unit=1e6) for frequency in frequencies[word].values()]
            if frequencies
            else None,
            "usages": describe_usages(usages[word], vectors[word], seed) if word in shown else None,
            "earliest": describe_quotations((earliest or {}).get(word, []), times) if word in shown else None,
        }
        for word in table["word"]
    ]
    charts = {"map": usage_map(names), "shares": curves(names, "share of the usages", several=True, format=".0%")}
    if frequencies:
        charts["frequency"] = curves(names, "per million words")
    return render_page(
        "words_page.html.jinja",
        {"times": names, "columns": columns, "words": words},
        charts,
        title=f"Words by change of meaning, {names[0]} to {names[-1]}",
        columns=columns,
        shown_charts=charts,
    )


def table_columns(table: pd.DataFrame, times: Sequence[str]) -> list[dict[str, Any]]:
    """Makes the columns of the page's table. At first a reader sees only those that are `main`."""
    if "p_fdr" in table:
        table = table.assign(**{SURE: table["p_fdr"] < LEVEL})
    by_time = "per_million_" if f"per_million_{times[0]}" in table else "usages_"
    main = ["word", measures_of(table)[0], SURE, f"{by_time}{times[0]}", f"{by_time}{times[-1]}"]
    main = [name for name in main if name in table]
    return [{**describe_column(table[name]), "main": name in main} for name in dict.fromkeys([*main, *table])]


def describe_column(column: pd.Series) -> dict[str, Any]:
    """Returns heading, kind, meaning and cells of a column."""
    heading, (kind, meaning) = column.name, COLUMNS.get(column.name, ("score", ""))
    for prefix, prefix_kind in (("usages_", "count"), ("per_million_", "frequency")):
        if heading.startswith(prefix):
            heading, kind = f"{prefix[:-1].replace('_', ' ')}, {heading.removeprefix(prefix)}", prefix_kind
    if kind == "word":
        column = column.map(escape_control_characters)
    if column.dtype == float:
        column = column.round(4)
    cells = column.astype(object).where(column.notna(), None).tolist()
    return {"name": escape_control_characters(heading), "kind": kind, "meaning": meaning, "cells": cells}


def with_interval(count: int, total: int, unit: float = 1) -> list[float]:
    """Returns a share, in a unit, and the ends of its 95 % interval (Wilson)."""
    ends = binomtest(int(count), int(total)).proportion_ci(method="wilson")
    return [round(unit * share, 4) for share in (count / total, ends.low, ends.high)]


def describe_usages(usages: dict[str, list[Usage]], vectors: dict[str, np.ndarray], seed: int) -> dict[str, Any]:
    """Describes the usages of a word and their senses. Usages are numbered in the order of times."""
    flat = [usage for part in usages.values() for usage in part]
    quotations = describe_quotations(flat, list(usages))
    time = np.array(quotations["time"])
    senses = find_senses(usages, vectors, seed)
    points, variance = principal_components(np.concatenate(list(vectors.values())), 2)
    points -= (points.max(axis=0) + points.min(axis=0)) / 2
    # A map has no unit, so its longer side goes from -1 to 1.
    points = np.round(points / (np.abs(points).max() or 1), 3)
    nearest: list[list[list[int]]] = [[[] for _ in usages] for _ in senses.counts]
    for usage in senses.nearest.tolist():
        shown = nearest[senses.labels[usage]][time[usage]]
        # Each sentence once, even if it has the word twice.
        if len(shown) < NEAREST and all(flat[usage].text != flat[other].text for other in shown):
            shown.append(usage)
    totals = senses.counts.sum(axis=0)
    return {
        "variance": np.round(variance, 4).tolist(),
        "x": points[:, 0].tolist(),
        "y": points[:, 1].tolist(),
        **quotations,
        "sense": senses.labels.tolist(),
        "keywords": [[escape_control_characters(word) for word in words] for words in senses.keywords],
        "collocates": [
            [escape_control_characters(word) for word in words] for words in keywords(map(context, flat), time)
        ],
        "counts": senses.counts.tolist(),
        "shares": [[with_interval(*pair) for pair in zip(counts, totals, strict=True)] for counts in senses.counts],
        "nearest": nearest,
    }


def describe_quotations(usages: Sequence[Usage], times: Sequence[str]) -> dict[str, list]:
    """Returns the columns of quotations: the index of their time, text, date and source."""
    return {
        "time": [times.index(usage.time) for usage in usages],
        "text": [cut_around(usage) for usage in usages],
        "date": [escape_control_characters(usage.date) for usage in usages],
        "source": [escape_control_characters(usage.source) for usage in usages],
    }


def cut_around(usage: Usage) -> list[str]:
    """Returns the text before a word, cut, the word, and the text after it, cut, with control characters escaped."""
    before, word, after = usage.text[: usage.start], usage.text[usage.start : usage.end], usage.text[usage.end :]
    if len(before) > AROUND:
        before = "…" + re.sub(r"^\S{0,20}\s", "", before[-AROUND:])
    if len(after) > AROUND:
        after = re.sub(r"\s\S{0,20}$", "", after[:AROUND]) + "…"
    return [escape_control_characters(part) for part in (before, word, after)]


def usage_map(names: list[str]) -> alt.LayerChart:
    """
    Charts a map of a word's usages. The signal `tall` is the end of its vertical scale (that of the horizontal one is
    1), `sense` the sense whose usages are not faint, `chosen` the usage with a ring; -1 is none.
    """
    sense, chosen = alt.param(name="sense", value=-1), alt.param(name="chosen", value=-1)
    tall = alt.param(name="tall", value=1)
    across = alt.Scale(domainMin=-1.05, domainMax=1.05, nice=False, zero=False)
    up = alt.Scale(domainMin=alt.ExprRef("-tall - 0.05"), domainMax=alt.ExprRef("tall + 0.05"), nice=False, zero=False)
    position = {"x": alt.X("x:Q", scale=across, axis=None), "y": alt.Y("y:Q", scale=up, axis=None)}
    # Colour and shape share a legend.
    legend = alt.Legend(title=None, orient="top", columns=2, symbolSize=90)
    usages, means = (alt.Chart(alt.NamedData(name)) for name in ("usages", "means"))
    points = usages.mark_point(filled=True, size=60, aria=False).encode(
        **position,
        color=alt.Color("time:N", scale=alt.Scale(domain=names, range=COLOURS), legend=legend),
        shape=alt.Shape("time:N", scale=alt.Scale(domain=names, range=SHAPES), legend=legend),
        opacity=alt.when("sense < 0 || datum.sense == sense").then(alt.value(0.75)).otherwise(alt.value(0.12)),
    )
    is_chosen = usages.transform_filter("datum.index == chosen")
    ring = is_chosen.mark_point(size=260, strokeWidth=3, color="var(--ink)", aria=False).encode(**position)
    style = {"fontSize": 17, "fontWeight": "bold", "aria": False}
    halo = means.mark_text(stroke="var(--paper)", strokeWidth=5, **style).encode(text="name:N", **position)
    chart = alt.layer(points, ring, halo, halo.mark_text(**style)).add_params(sense, chosen, tall)
    return chart.properties(width=400, height=400, view=alt.ViewConfig(stroke="var(--line)"))


def curves(names: list[str], title: str, several: bool = False, **axis: Any) -> alt.LayerChart:
    """Charts a curve for each series over the times, with intervals. The signal `sense` makes the others faint."""
    sense = alt.param(name="sense", value=-1)
    up = alt.Y("value:Q", title=title, axis=alt.Axis(**axis))
    # The colours are reversed, because the first ones stand for times.
    legend = alt.Legend(title=None, orient="top", direction="vertical", labelLimit=340) if several else None
    look = {
        "x": alt.X("time:O", sort=names, title=None, axis=alt.Axis(labelAngle=0, labelOverlap=True)),
        # Beside each other, so that intervals do not overlap.
        "xOffset": alt.XOffset("series:N", sort=None),
        "color": alt.Color("series:N", sort=None, scale=alt.Scale(range=COLOURS[::-1]), legend=legend),
        "opacity": alt.when("sense < 0 || datum.index == sense").then(alt.value(1)).otherwise(alt.value(0.15)),
    }
    rows = alt.Chart(alt.NamedData("rows"))
    intervals = rows.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q"), y2="high:Q", **look)
    lines = rows.mark_line().encode(y=up, **look)
    points = rows.mark_point(filled=True, size=60).encode(y=up, description="label:N", **look)
    return alt.layer(intervals, lines, points).add_params(sense).properties(width=400, height=220)
