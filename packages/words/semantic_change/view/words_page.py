"""
The page of words by change of meaning: a table of words, and for each word its frequency, a map of its usages, their
senses, first attestations, and quotations to read and to save. Needs the extra `view`.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.colors import to_hex
from scipy.stats import t

from modeling_tempoformer.common.markdown import escape_control_characters
from modeling_tempoformer.common.pages import COLOURS, render_page

from ..citations import sentence_of
from ..entries import Entry, Periods
from ..known_senses import GivenTexts
from ..measures import interval_of_change
from ..report import COUNTS, STEP, measures_of
from ..sense_shares import ABSENT, LITTLE, NEARLY_ABSENT, VERDICTS, Groups
from ..senses import principal_components
from ..usages import Frequencies, Frequency, Usage, number_documents


# It holds texts, so its name begins with an underscore: such files are never pushed.
PAGE = "_changes.html"
# Words with usages on the page; many more make browsers slow.
MAX_WORDS = 200
# The points of curves. Where there are more senses than colours, such as a lexicographer's and clusters beside them,
# each shape has all colours.
SHAPES = ("circle", "square", "triangle-up", "diamond")
# The kind of a column of changes.csv, which sets how the page writes and sorts it, and its meaning. Other columns are
# scores.
COLUMNS = {
    "rank": ("rank", "The word of rank 1 changed most."),
    "word": ("word", ""),
    "change": (
        "points",
        "From 0 to 100, between the first and the last time: the geometric mean of apd and of prt_corrected, two "
        "distances between the usages of the two times.",
    ),
    "change_low": ("points", "Lower end of the 95 % interval of change (bootstrap over documents)."),
    "change_high": ("points", "Upper end of the 95 % interval of change."),
    "change_step": (
        "points",
        "The largest change between two neighbouring times. It finds words that changed and changed back.",
    ),
    "change_of_texts": (
        "points",
        "A baseline: the change of the whole texts with the word. What is not above it may be the topic of the texts.",
    ),
    STEP: ("text", "The two neighbouring times of change_step."),
    "above_steady": (
        "points",
        "The first measure less its median over the words that are known to be steady (--steady).",
    ),
    "times_chance": (
        "times",
        "How much more than chance the word changed: prt divided by its mean when whole documents are assigned to the "
        "first and the last time at random. At 1 there is no more change than by chance. It grows with the number of "
        "documents, and is empty where p is.",
    ),
    "apd": (
        "score",
        "Average pairwise distance: the mean cosine distance (0 to 2) of a usage at the first time and one at the "
        "last. It is also large for a word that always had several senses.",
    ),
    "prt": (
        "score",
        "Cosine distance (0 to 2) of the mean vectors of the two times. It is also large for a rare word.",
    ),
    "prt_corrected": ("score", "prt less its mean by chance."),
    "p": (
        "p",
        "The share of random assignments of whole documents to the two times whose prt is at least as large "
        "(permutation test). Empty if documents are too few for a p below 0.05, which is no evidence against change.",
    ),
    "p_fdr": (
        "p",
        "p, adjusted for the number of words (Benjamini and Hochberg). If the words were found by a search, it is "
        "adjusted for all words that the search compared.",
    ),
    "gold": ("score", "The score that people gave."),
    # Columns of words without a score
    "when": ("text", ""),
    "frequency_change": ("points", ""),
}


def words_page(
    table: pd.DataFrame,
    times: Sequence[str],
    entries: Mapping[str, Entry],
    frequencies: Frequencies | None = None,
    unranked: pd.DataFrame | None = None,
    remarks: Sequence[str] = (),
    texts: GivenTexts | None = None,
) -> str:
    """
    Renders the page of words as HTML.

    Args:
        table: The [`ranked_table`].
        times: The time points in their order.
        entries: The entries of all words. The first [`MAX_WORDS`] words show theirs.
        frequencies: The frequencies in the whole corpus.
        unranked: The [`unranked_table`]: words without a score, which have entries too.
        remarks: Texts about the words, a paragraph each.
        texts: The texts of known senses, which the page saves with the reader's own.
    """
    names = [escape_control_characters(time) for time in times]
    columns = table_columns(table, times)
    apart = pd.DataFrame(columns=["word"]) if unranked is None else unranked
    words = [*table["word"], *apart["word"]]
    shown = set(words[:MAX_WORDS])
    periods = Periods(entry for word, entry in entries.items() if word in shown)
    spans = [f"{first}" if first == last else f"{first}-{last}" for first, last in periods.spans]
    described = [
        {
            "word": escape_control_characters(word),
            "frequency": [per_million(frequency) for frequency in frequencies[word].values()] if frequencies else None,
            "entry": describe_entry(entries[word], times, periods) if word in shown else None,
            "texts": [
                [escape_control_characters(row.sense), escape_control_characters(row.text), row.start]
                for row in (texts or {}).get(word, ())
            ],
        }
        for word in words
    ]
    charts = {"map": usage_map(names), "shares": curves(names, "share of the usages", several=True, format=".0%")}
    if len(spans) > len(names):
        charts["trend"] = curves(spans, "share of the usages", several=True, format=".0%")
    if frequencies:
        charts["frequency"] = curves(names, "per million words")
    data = {
        "times": names,
        "spans": spans,
        "columns": columns,
        "words": described,
        "ranked": len(table),
        "unranked": unranked_columns(apart),
        "verdicts": {"absent": ABSENT, "nearly": NEARLY_ABSENT, "little": LITTLE},
        "quantiles": t_quantiles(entry for word, entry in entries.items() if word in shown),
    }
    # A reader's choices name usages by their number, so they belong to pages with the same usages and senses.
    digest = hashlib.sha256(json.dumps([names, described]).encode()).hexdigest()[:16]
    return render_page(
        "words_page.html.jinja",
        {"id": digest, **data},
        charts,
        Path(__file__).parent,
        title=f"Words by change of meaning, {names[0]} to {names[-1]}",
        times=names,
        columns=columns,
        unranked=data["unranked"],
        verdicts=VERDICTS,
        remarks=[escape_control_characters(text) for text in remarks],
        shown_charts=charts,
    )


def table_columns(table: pd.DataFrame, times: Sequence[str]) -> list[dict[str, Any]]:
    """Makes the columns of the page's table. A reader first sees those that are `main`, none of them empty."""
    by_time = "per_million_" if f"per_million_{times[0]}" in table else "usages_"
    main = ["word", measures_of(table)[0], "above_steady", "times_chance", "change_step", STEP]
    main += [f"{by_time}{times[0]}", f"{by_time}{times[-1]}"]
    main = [name for name in main if name in table and table[name].replace("", np.nan).notna().any()]
    return [{**describe_column(table[name]), "main": name in main} for name in dict.fromkeys([*main, *table])]


def unranked_columns(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Makes the columns of the table of words without a score, with usages if there are no frequencies."""
    prefix = "per_million_" if any(name.startswith("per_million_") for name in table) else "usages_"
    names = ["word", "when", "frequency_change", *(name for name in table if name.startswith(prefix))]
    return [describe_column(table[name]) for name in names if name in table]


def describe_column(column: pd.Series) -> dict[str, Any]:
    """Returns heading, kind, meaning and cells of a column."""
    heading, (kind, meaning) = column.name, COLUMNS.get(column.name, ("score", ""))
    for prefix, prefix_kind in zip(COUNTS, ("count", "count", "frequency"), strict=True):
        if heading.startswith(prefix):
            heading, kind = f"{prefix[:-1].replace('_', ' ')}, {heading.removeprefix(prefix)}", prefix_kind
    if kind in ("word", "text"):
        column = column.map(escape_control_characters)
    if column.dtype == float:
        column = column.round(4)
    cells = column.astype(object).where(column.notna(), None).tolist()
    return {"name": escape_control_characters(heading), "kind": kind, "meaning": meaning, "cells": cells}


def per_million(frequency: Frequency) -> list[float | None]:
    """Returns a frequency per million words, and the ends of its 95 % interval, None if they are not known."""
    return [None if math.isnan(share) else round(1e6 * share, 4) for share in interval_of_change(*frequency)]


def describe_entry(entry: Entry, times: Sequence[str], periods: Periods) -> dict[str, Any]:
    """
    Describes an entry for the page's script. The script itself counts the senses and their shares, because a reader
    may choose the number of senses, merge them, and take usages out.
    """
    points, variance = principal_components(entry.vectors, 2)
    points -= (points.max(axis=0) + points.min(axis=0)) / 2
    # A map has no unit, so its longer side goes from -1 to 1.
    points = np.round(points / (np.abs(points).max() or 1), 3)
    return {
        "variance": np.round(variance, 4).tolist(),
        # The usages without a place on the map are not in the sample.
        "x": points[:, 0].tolist(),
        "y": (points[:, 1] if points.shape[1] > 1 else np.zeros(len(points))).tolist(),
        **describe_quotations(entry.usages, times),
        "document": number_documents(entry.usages).tolist(),
        # A text may have several sentences with the word.
        "passage": pd.factorize(np.array([usage.text for usage in entry.usages], dtype=object))[0].tolist(),
        # The period of each usage in the sample, -1 without a date.
        "span": periods.find(entry.sampled).tolist(),
        "earliest": entry.earliest,
        "neighbours": entry.neighbours,
        "sure": entry.num_sure,
        "collocates": [
            [[escape_control_characters(word), count, round(strength, 1)] for word, count, strength in found]
            for found in entry.collocates
        ],
        "chosen": entry.chosen,
        "options": [
            {
                "silhouette": round(senses.silhouette, 3),
                "labels": labels.tolist(),
                "nearest": senses.nearest.tolist(),
                "p": None if math.isnan(senses.p) else round(senses.p, 4),
                **describe_known(entry, option, times, periods),
                "names": [escape_control_characters(name) for name in senses.names],
                "keywords": [[escape_control_characters(word) for word in words] for words in senses.keywords],
            }
            for option, (senses, labels) in enumerate(zip(entry.options, entry.labels, strict=True))
        ],
    }


def describe_known(entry: Entry, option: int, times: Sequence[str], periods: Periods) -> dict[str, Any]:
    """
    Describes the known senses of an option: which senses are `known`, how `right` their quotations are, and their
    corrected `shares` by time and by span, None where they are not to be counted.
    """
    senses = entry.options[option]
    if senses.known is None:
        return {"known": []}
    spans = Groups(periods.find(entry.sampled), number_documents(entry.sampled), len(periods.spans))
    shares = {"times": entry.shares(option, entry.by_time(times)), "spans": entry.shares(option, spans)}
    number = len(senses.known.outcomes)
    return {
        "known": [sense < number for sense in range(len(senses.counts))],
        "right": f"{entry.describe_right().capitalize()}.",
        "shares": {name: [[describe_share(share) for share in row] for row in rows] for name, rows in shares.items()},
    }


def describe_share(share: np.ndarray) -> list[float | None] | None:
    """Returns a share and the ends of its interval, None if they are not known; None without a share."""
    return None if np.isnan(share[0]) else [None if math.isnan(value) else round(value, 4) for value in share.tolist()]


def t_quantiles(entries: Iterable[Entry]) -> list[float]:
    """Returns the quantiles of 95 % intervals by their degrees of freedom, from 1, as many as the documents need."""
    most = max((int(number_documents(entry.usages).max()) for entry in entries), default=0)
    return np.round(t.ppf(0.975, np.arange(1, most + 1)), 5).tolist()


def describe_quotations(usages: Sequence[Usage], times: Sequence[str]) -> dict[str, list]:
    """Returns the columns of quotations: the index of their time, text, date and source."""
    return {
        "time": [times.index(usage.time) for usage in usages],
        "text": [[escape_control_characters(part) for part in sentence_of(usage)] for usage in usages],
        "date": [escape_control_characters(usage.date) for usage in usages],
        "source": [escape_control_characters(usage.source) for usage in usages],
    }


def time_colours(number: int) -> list[str]:
    """Returns colours of times from dark to light, in the order of viridis, which the colour-blind see too."""
    return [to_hex(colour) for colour in colormaps["viridis"](np.linspace(0.05, 0.92, number))]


def usage_map(names: list[str]) -> alt.LayerChart:
    """
    Charts a map of a word's usages. The signal `tall` is the end of its vertical scale (the horizontal scale ends at
    1), `sense` the sense whose usages are not faint, `chosen` the usage with a ring; -1 is none.
    """
    sense, chosen = alt.param(name="sense", value=-1), alt.param(name="chosen", value=-1)
    tall = alt.param(name="tall", value=1)
    across = alt.Scale(domainMin=-1.05, domainMax=1.05, nice=False, zero=False)
    up = alt.Scale(domainMin=alt.ExprRef("-tall - 0.05"), domainMax=alt.ExprRef("tall + 0.05"), nice=False, zero=False)
    position = {"x": alt.X("x:Q", scale=across, axis=None), "y": alt.Y("y:Q", scale=up, axis=None)}
    # Times have the colours of a scale from dark to light. An outline shows both ends on any paper.
    colours = alt.Scale(domain=names, range=time_colours(len(names)))
    columns = alt.ExprRef("max(1, floor(width / 120))")
    legend = alt.Legend(title=None, orient="top", direction="horizontal", columns=columns, symbolSize=90)
    usages, means = (alt.Chart(alt.NamedData(name)) for name in ("usages", "means"))
    outline = {"stroke": "var(--quiet)", "strokeWidth": 0.6}
    points = usages.mark_circle(size=60, aria=False, **outline).encode(
        **position,
        color=alt.Color("time:O", sort=names, scale=colours, legend=legend),
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
    legend = alt.Legend(title=None, orient="top", direction="vertical", labelLimit=340) if several else None
    look = {
        "x": alt.X(
            "time:O", scale=alt.Scale(domain=names), title=None, axis=alt.Axis(labelAngle=0, labelOverlap=True)
        ),
        # Beside each other, so that intervals do not overlap.
        "xOffset": alt.XOffset("series:N", sort=None),
        "opacity": alt.when("sense < 0 || datum.index == sense").then(alt.value(1)).otherwise(alt.value(0.15)),
    }
    colours, shapes = alt.Scale(range=COLOURS), alt.Scale(range=[shape for shape in SHAPES for _ in COLOURS])
    # Lines have the colours of points, and no legend of their own.
    lined = {"stroke": alt.Stroke("series:N", sort=None, scale=colours, legend=None), **look}
    filled = {
        "fill": alt.Fill("series:N", sort=None, scale=colours, legend=legend),
        "shape": alt.Shape("series:N", sort=None, scale=shapes, legend=legend),
        **look,
    }
    rows = alt.Chart(alt.NamedData("rows"))
    intervals = rows.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q"), y2="high:Q", **lined)
    lines = rows.mark_line().encode(y=up, **lined)
    points = rows.mark_point(filled=True, size=60).encode(y=up, description="label:N", **filled)
    return alt.layer(intervals, lines, points).add_params(sense).properties(width=400, height=220)
