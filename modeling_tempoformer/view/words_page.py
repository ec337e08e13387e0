"""
A page of words by change of meaning: a table of them, and for each word its frequency, a map of its usages, their
senses, and quotations to read and to take along. Needs the extra `view`.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..cards.markdown import escape_control_characters
from ..data.dated_texts import numbers_in
from ..semantic_change.report import INTERVAL, LEVEL, measures_of
from ..semantic_change.senses import Senses, keywords, project
from ..semantic_change.usages import Frequencies, Frequency, Usage, Usages, context
from .page import COLOURS, render_page


if TYPE_CHECKING:
    import altair

# Files whose names begin with an underscore are never pushed: it holds texts.
PAGE = "_changes.html"
# Characters on each side of the word.
AROUND = 120
# Sentences for each sense and time.
NEAREST = 3
# Usages on the page. Of each word and time there are MIN_SHOWN at least, so that many words make a larger page.
MAX_SHOWN = 20_000
MIN_SHOWN = 20
SHAPES = ["circle", "triangle-up", "square", "cross", "diamond", "triangle-down", "triangle-left", "triangle-right"]
# Heading, kind and meaning of columns of changes.csv. The kind says how the page writes and sorts a column; others are
# scores, under their own name.
COLUMNS = {
    "rank": ("rank", "rank", "1 changed most."),
    "word": ("word", "word", ""),
    "change": (
        "change",
        "points",
        "From 0 to 100: how far apart the usages of the two times are, each by each (average distance) and in the "
        "mean (distance of means, less chance), together: the geometric mean of both.",
    ),
    INTERVAL[0]: (
        "95 % interval of change",
        "interval",
        "In repeated samples of usages, such intervals hold the true change 95 times in 100 (bootstrap).",
    ),
    "sure": (
        "more than chance",
        "sure",
        f"Whether the usages differ more than chance makes them: p among all words is below {LEVEL}.",
    ),
    "per_million_": ("per million, ", "frequency", ""),
    "usages_": ("usages, ", "count", ""),
    "apd": (
        "average distance",
        "score",
        "Mean cosine distance (0 to 2) of a usage at the first time and one at the last. It is large also for words "
        "of many senses that stayed as they were.",
    ),
    "prt": (
        "distance of means",
        "score",
        "Cosine distance (0 to 2) of the mean vectors. It is large also for rare words.",
    ),
    "prt_corrected": ("distance of means, less chance", "score", "Distance of means, less the one that chance makes."),
    "p": ("p", "p", "How often chance alone makes the distance of means as large (permutation test)."),
    "p_fdr": ("p among all words", "p", "p, adjusted for the number of words (Benjamini and Hochberg)."),
    "time_diff": (
        "difference of predicted times",
        "score",
        "How sure the model is of when the sentences were written (0 to 1).",
    ),
    "sgns": ("distance of static vectors", "score", "Distance (0 to 2) of static vectors, aligned across times."),
    "neighbours": (
        "other neighbours",
        "score",
        "Share of nearest neighbours that differ (0 to 1), by static vectors.",
    ),
    "gold": ("gold score", "score", "The score that people gave."),
    "gold_rank": ("gold rank", "rank", "Its rank among the words that have a score and a gold score."),
}


def words_page(
    table: pd.DataFrame,
    times: Sequence[str],
    usages: Usages,
    vectors: dict[str, dict[str, np.ndarray]],
    senses: dict[str, Senses],
    frequencies: Frequencies | None = None,
) -> str:
    """
    Makes the page of words.

    Args:
        table (`pd.DataFrame`): As [`ranked_table`] returns it.
        times (`Sequence[str]`): The names of the time points in order.
        usages: For each word and time a list of [`Usage`].
        vectors: For each word and time their vectors (usages, width). Words without them are in the table only, as
            all words are where only measures on static embeddings were taken.
        senses: Their [`Senses`], for each word with vectors.
        frequencies (*optional*): For each word and time its [`Frequency`]; empty if the corpus is not whole.

    Returns:
        The page as HTML. Of each word and time it shows all usages, or a part of them where the page would be too
        large; senses are of all usages.
    """
    names = [escape_control_characters(time) for time in times]
    columns = table_columns(table, times)
    limit = max(MIN_SHOWN, MAX_SHOWN // (len(times) * max(len(vectors), 1)))
    # The page has each date and each source once.
    known: dict[str, int] = {}
    words = [
        {
            "word": escape_control_characters(word),
            "frequency": [of_time(frequencies[word][time]) for time in times] if frequencies else None,
            "usages": describe_usages(
                [usages[word][time] for time in times],
                [vectors[word][time] for time in times],
                senses[word],
                known,
                limit,
            )
            if word in vectors
            else None,
        }
        for word in table["word"]
    ]
    charts = {"map": usage_map(names)}
    if len(times) > 2:
        charts["shares"] = curves(names, "share of the usages", several=True, format=".0%")
        charts["frequency"] = curves(names, "per million words")
    else:
        charts |= {"shares": bars(names), "frequency": bars(names)}
    if not frequencies:
        del charts["frequency"]
    return render_page(
        "words_page.html.jinja",
        {
            "times": names,
            "columns": [{key: column[key] for key in ("name", "kind", "main", "cells")} for column in columns],
            "words": words,
            "known": list(known),
        },
        charts,
        title=f"Words by change of meaning, {names[0]} to {names[-1]}",
        columns=columns,
        has_usages=bool(vectors),
        shown_charts=charts,
    )


def table_columns(table: pd.DataFrame, times: Sequence[str]) -> list[dict[str, Any]]:
    """
    The columns of the page's table with their cells. A reader sees those that are `main` at first: the measure that
    orders the table, whether the change is more than chance, and how frequent the word is at the first and the last
    time. The two of the interval are one, and the steps between more than two times stay in the CSV file.
    """
    first, *others = measures_of(table)
    if "p_fdr" in table:
        table = table.assign(sure=table["p_fdr"] < LEVEL)
    by_time = "per_million_" if f"per_million_{times[0]}" in table else "usages_"
    ends = (f"{by_time}{time}" for time in (times[0], times[-1]))
    main = [name for name in ("word", first, "sure", *ends) if name in table]
    left_out = {*main, INTERVAL[1], *(name for name in others if name.startswith("prt "))}
    return [
        {**describe_column(table, name), "main": name in main}
        for name in (*main, *(name for name in table if name not in left_out))
    ]


def describe_column(table: pd.DataFrame, name: str) -> dict[str, Any]:
    """Heading, kind, meaning and cells of a column."""
    of_time = next((prefix for prefix in ("usages_", "per_million_") if name.startswith(prefix)), "")
    heading, kind, meaning = COLUMNS.get(of_time or name, (name.replace("_", " "), "score", ""))
    heading += name.removeprefix(of_time) if of_time else ""
    if name == INTERVAL[0]:
        ends = [[number(low), number(high)] for low, high in table[list(INTERVAL)].to_numpy()]
        cells = [None if None in pair else pair for pair in ends]
    elif kind == "word":
        cells = table[name].map(escape_control_characters).tolist()
    else:
        cells = table[name].tolist() if kind == "sure" else table[name].map(number).replace(np.nan, None).tolist()
    own = f" In changes.csv: {name}." if meaning and name not in (heading, "sure") else ""
    return {"name": escape_control_characters(heading), "kind": kind, "meaning": meaning + own, "cells": cells}


def number(value: Any, digits: int = 4) -> float | None:
    return None if pd.isna(value) else round(float(value), digits)


def of_time(frequency: Frequency) -> list[float]:
    """Per million words, with the ends of the interval."""
    return [number(value) for value in (frequency.per_million, *frequency.interval)]


def describe_usages(
    usages: list[list[Usage]],
    vectors: list[np.ndarray],
    senses: Senses,
    known: dict[str, int],
    limit: int,
) -> dict[str, Any]:
    """What the page has of one word; its usages are numbered from time to time. `known` numbers dates and sources."""
    coordinates, variance = project(vectors)
    snippets = [[cut_around(usage) for usage in found] for found in usages]
    nearest = [
        [distinct(members, snippets[time]) for time, members in enumerate(by_time)] for by_time in senses.nearest
    ]
    first = [first_attestation(usages, by_time) for by_time in senses.nearest]
    kept = [{*range(min(limit, len(found)))} for found in snippets]
    for time, place in filter(None, first):
        kept[time].add(place)
    for by_time in nearest:
        for shown, of_sense in zip(kept, by_time, strict=True):
            shown.update(of_sense)
    places = [(time, place) for time, shown in enumerate(kept) for place in sorted(shown)]
    numbers = {place: index for index, place in enumerate(places)}
    everything = np.concatenate(coordinates)
    middle = (everything.max(axis=0) + everything.min(axis=0)) / 2
    # A map has no unit: its longer side is from -1 to 1.
    size = np.abs(everything - middle).max() or 1
    points = np.stack([coordinates[time][place] for time, place in places])
    shown = [usages[time][place] for time, place in places]
    contexts = [context(usage) for found in usages for usage in found]
    collocates = keywords(contexts, np.repeat(range(len(usages)), [len(found) for found in usages]))
    shares = np.concatenate([senses.shares[..., None], senses.intervals], axis=-1)
    return {
        "variance": [number(share) for share in variance],
        "x": np.round((points[:, 0] - middle[0]) / size, 3).tolist(),
        "y": np.round((points[:, 1] - middle[1]) / size, 3).tolist(),
        "time": [time for time, _ in places],
        "sense": [int(senses.labels[time][place]) for time, place in places],
        "text": [snippets[time][place] for time, place in places],
        "date": [known.setdefault(escape_control_characters(usage.date), len(known)) for usage in shown],
        "source": [known.setdefault(escape_control_characters(usage.source), len(known)) for usage in shown],
        "keywords": [[escape_control_characters(keyword) for keyword in found] for found in senses.keywords],
        "collocates": [[escape_control_characters(word) for word in found] for found in collocates],
        "counts": senses.counts.tolist(),
        "shares": [[[number(value) for value in at_time] for at_time in of_sense] for of_sense in shares],
        "first": [numbers.get(place) for place in first],
        "nearest": [
            [[numbers[time, place] for place in of_time] for time, of_time in enumerate(by_time)]
            for by_time in nearest
        ],
    }


def first_attestation(usages: list[list[Usage]], members: list[np.ndarray]) -> tuple[int, int] | None:
    """Time and place of the usage with the earliest date among the members of a sense, None if none has a date."""
    dated = [
        (numbers_in(usages[time][place].date), time, place)
        for time, places in enumerate(members)
        for place in places.tolist()
        if usages[time][place].date
    ]
    return min(dated)[1:] if dated else None


def distinct(members: np.ndarray, snippets: list[list[str]]) -> list[int]:
    """The first members with a text of their own; a sentence may have the word twice, or be there twice."""
    found: dict[str, int] = {}
    for place in members.tolist():
        if len(found) < NEAREST:
            found.setdefault("".join(snippets[place]), place)
    return list(found.values())


def cut_around(usage: Usage) -> list[str]:
    """The text before a word, the word, and the text after it, both cut; nothing in them is invisible."""
    before, word, after = usage.text[: usage.start], usage.text[usage.start : usage.end], usage.text[usage.end :]
    if len(before) > AROUND:
        before = "…" + re.sub(r"^\S{0,20}\s", "", before[-AROUND:])
    if len(after) > AROUND:
        after = re.sub(r"\s\S{0,20}$", "", after[:AROUND]) + "…"
    return [escape_control_characters(part) for part in (before, word, after)]


def by_time(names: list[str]) -> dict[str, "altair.Color | altair.Shape"]:
    """Colour and shape for each time, in one legend."""
    import altair as alt

    repeats = -(-len(names) // len(SHAPES))
    legend = alt.Legend(title=None, orient="top", columns=2, symbolSize=90)
    ranges = {"color": COLOURS * repeats, "shape": SHAPES * repeats}
    scales = {name: alt.Scale(domain=names, range=found[: len(names)]) for name, found in ranges.items()}
    return {
        "color": alt.Color("time:N", scale=scales["color"], legend=legend),
        "shape": alt.Shape("time:N", scale=scales["shape"], legend=legend),
    }


def usage_map(names: list[str]) -> "altair.LayerChart":
    """
    The map of a word's usages. Its signals are `tall`, the end of its vertical scale where that of the horizontal one
    is 1, `sense`, beside which the others are faint, and `chosen`, the usage with a ring; -1 is none.
    """
    import altair as alt

    sense, chosen, tall = (
        alt.param(name=name, value=value) for name, value in (("sense", -1), ("chosen", -1), ("tall", 1))
    )
    place = {
        axis: field(f"{axis}:Q", scale=alt.Scale(domainMin=low, domainMax=high, nice=False, zero=False), axis=None)
        for axis, field, low, high in (
            ("x", alt.X, -1.05, 1.05),
            ("y", alt.Y, alt.ExprRef("-tall - 0.05"), alt.ExprRef("tall + 0.05")),
        )
    }
    usages, means = (alt.Chart(alt.NamedData(name)) for name in ("usages", "means"))
    points = usages.mark_point(filled=True, size=60, aria=False).encode(
        **place,
        **by_time(names),
        opacity=alt.when("sense < 0 || datum.sense == sense").then(alt.value(0.75)).otherwise(alt.value(0.12)),
    )
    ring = (
        usages.transform_filter("datum.index == chosen")
        .mark_point(size=260, strokeWidth=3, color="var(--ink)", aria=False)
        .encode(**place)
    )
    number = {"text": "name:N", **place}
    style = {"fontSize": 17, "fontWeight": "bold", "aria": False}
    halo = means.mark_text(stroke="var(--paper)", strokeWidth=5, **style).encode(**number)
    names_of_senses = means.mark_text(**style).encode(**number)
    return (
        alt.layer(points, ring, halo, names_of_senses)
        .add_params(sense, chosen, tall)
        .properties(width=400, height=400, view=alt.ViewConfig(stroke="var(--line)"))
    )


def bars(names: list[str]) -> "altair.LayerChart":
    """Bars for each series and time, with intervals. The signal `reach` is the end of the scale."""
    import altair as alt

    reach = alt.param(name="reach", value=1)
    lines = alt.Axis(ticks=False, domain=False, labelPadding=8, labelLimit=150, labelExpr="split(datum.label, ': ')")
    along = {"scale": alt.Scale(domainMin=0, domainMax=reach, nice=False), "axis": None}
    place = {
        "y": alt.Y("series:N", sort=None, title=None, axis=lines),
        "yOffset": alt.YOffset("time:N", scale=alt.Scale(domain=names)),
    }
    rows = alt.Chart(alt.NamedData("rows"))
    drawn = rows.mark_bar().encode(
        **place, x=alt.X("value:Q", **along), color=by_time(names)["color"].legend(None), description="label:N"
    )
    intervals = rows.mark_rule(color="var(--ink)", strokeWidth=1.5, aria=False)
    labels = rows.mark_text(align="left", dx=5, aria=False).encode(**place, x=alt.X("high:Q", **along), text="label:N")
    return (
        alt.layer(drawn, intervals.encode(**place, x=alt.X("low:Q", **along), x2="high:Q"), labels)
        .add_params(reach)
        .properties(width=400, height=alt.Step(20))
    )


def curves(names: list[str], title: str, several: bool = False, **axis: Any) -> "altair.LayerChart":
    """
    A curve for each series over the times, with intervals, which stand beside each other. Beside the series whose
    index is the signal `sense` the others are faint; -1 is none.
    """
    import altair as alt

    sense = alt.param(name="sense", value=-1)
    along = {
        "x": alt.X("time:O", sort=names, title=None, axis=alt.Axis(labelAngle=0, labelOverlap=True)),
        "xOffset": alt.XOffset("series:N", sort=None),
    }
    up = alt.Y("value:Q", title=title, axis=alt.Axis(**axis))
    # From the last colour on: the first ones are of times.
    legend = alt.Legend(title=None, orient="top", direction="vertical", labelLimit=340) if several else None
    look = {
        "color": alt.Color("series:N", sort=None, scale=alt.Scale(range=COLOURS[::-1]), legend=legend),
        "opacity": alt.when("sense < 0 || datum.index == sense").then(alt.value(1)).otherwise(alt.value(0.15)),
    }
    rows = alt.Chart(alt.NamedData("rows"))
    return (
        alt.layer(
            rows.mark_rule(strokeWidth=1.5).encode(**along, **look, y=alt.Y("low:Q"), y2="high:Q"),
            rows.mark_line().encode(**along, **look, y=up),
            rows.mark_point(filled=True, size=60).encode(**along, **look, y=up, description="label:N"),
        )
        .add_params(sense)
        .properties(width=400, height=220)
    )
