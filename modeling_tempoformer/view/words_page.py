"""
A page of words by change of meaning: a table of them, and for each word a map of its usages, their clusters as senses,
and the sentences nearest to each. Needs the extra `view`.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..cards.markdown import escape_control_characters
from ..semantic_change.report import INTERVAL
from ..semantic_change.senses import distances_from_first, find_senses, project
from ..semantic_change.usages import Usage, Usages
from .page import COLOURS, DASHES, render_page


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
# How the page writes and sorts a column; others are scores.
KINDS = {"word": "word", "rank": "rank", "gold_rank": "rank", "p": "p", "p_fdr": "p"}


def words_page(
    table: pd.DataFrame,
    times: Sequence[str],
    usages: Usages,
    vectors: dict[str, dict[str, np.ndarray]],
    num_clusters: int = 5,
    seed: int = 0,
) -> str:
    """
    Makes the page of words.

    Args:
        table (`pd.DataFrame`): As [`ranked_table`] returns it.
        times (`Sequence[str]`): The names of the time points in order.
        usages: For each word and time a list of [`Usage`].
        vectors: For each word and time their vectors (usages, width). Words without them are in the table only, as
            all words are where only measures on static embeddings were taken.
        num_clusters (`int`, *optional*, defaults to 5): Number of senses, as of [`find_senses`].
        seed (`int`, *optional*, defaults to 0): Seed of k-means and of the bootstrap.

    Returns:
        The page as HTML. Of each word and time it shows all usages, or a part of them where the page would be too
        large; senses and distances are of all usages.
    """
    names = [escape_control_characters(time) for time in times]
    columns = table_columns(table)
    limit = max(MIN_SHOWN, MAX_SHOWN // (len(times) * max(len(vectors), 1)))
    data = {
        "times": names,
        "columns": [{"name": heading(name), "kind": kind} for name, kind in columns],
        "words": [
            {
                "word": escape_control_characters(row["word"]),
                "cells": [cell(row, name) for name, _ in columns],
                "usages": describe_usages(
                    [usages[row["word"]][time] for time in times],
                    [vectors[row["word"]][time] for time in times],
                    limit,
                    num_clusters,
                    seed,
                )
                if row["word"] in vectors
                else None,
            }
            for row in table.to_dict("records")
        ],
    }
    charts = {"map": usage_map(names), "shares": share_bars(names)}
    if len(times) > 2:
        charts["curve"] = distance_curve(names)
    return render_page(
        "words_page.html.jinja",
        data,
        charts,
        title=f"Words by change of meaning, {names[0]} to {names[-1]}",
        columns=[name for name, _ in columns],
        has_usages=bool(vectors),
        has_curve=len(times) > 2,
    )


def heading(name: str) -> str:
    return escape_control_characters(name.replace("usages_", "usages ", 1))


def table_columns(table: pd.DataFrame) -> list[tuple[str, str]]:
    """
    The columns of the page's table and their kinds: the two of the interval are one, beside its measure, and the steps
    between more than two times stay in the CSV file.
    """
    columns = []
    for name in table.columns.drop(list(INTERVAL), errors="ignore"):
        if name.startswith("prt "):
            continue
        kind = KINDS.get(name, "count" if name.startswith("usages_") else "score")
        columns.append((name, kind))
        if name == "apd" and INTERVAL[0] in table:
            columns.append(("95 % of apd", "interval"))
    return columns


def cell(row: dict[str, Any], name: str) -> Any:
    """What JSON has of a cell: a text, a number, two numbers, or None."""
    if name == "word":
        return escape_control_characters(row["word"])
    if name == "95 % of apd":
        ends = [number(row[end]) for end in INTERVAL]
        return None if None in ends else ends
    return number(row[name])


def number(value: Any, digits: int = 4) -> float | None:
    return None if pd.isna(value) else round(float(value), digits)


def describe_usages(
    usages: list[list[Usage]], vectors: list[np.ndarray], limit: int, num_clusters: int, seed: int
) -> dict[str, Any]:
    """What the page has of one word; its usages are numbered from time to time."""
    coordinates, variance = project(vectors)
    senses = find_senses(vectors, num_clusters, seed)
    snippets = [[cut_around(usage) for usage in found] for found in usages]
    nearest = [
        [distinct(members, snippets[time]) for time, members in enumerate(by_time)] for by_time in senses.nearest
    ]
    kept = [
        sorted({*range(min(limit, len(found))), *(place for of_sense in nearest for place in of_sense[time])})
        for time, found in enumerate(snippets)
    ]
    places = [(time, place) for time, shown in enumerate(kept) for place in shown]
    numbers = {place: index for index, place in enumerate(places)}
    everything = np.concatenate(coordinates)
    middle = (everything.max(axis=0) + everything.min(axis=0)) / 2
    # A map has no unit: its longer side is from -1 to 1.
    size = np.abs(everything - middle).max() or 1
    points = np.stack([coordinates[time][place] for time, place in places])
    return {
        "variance": [number(share) for share in variance],
        "x": np.round((points[:, 0] - middle[0]) / size, 3).tolist(),
        "y": np.round((points[:, 1] - middle[1]) / size, 3).tolist(),
        "time": [time for time, _ in places],
        "sense": [int(senses.labels[time][place]) for time, place in places],
        "text": [snippets[time][place] for time, place in places],
        "counts": senses.counts.tolist(),
        "nearest": [
            [[numbers[time, place] for place in of_time] for time, of_time in enumerate(by_time)]
            for by_time in nearest
        ],
        "curve": [[number(value) for value in point] for point in distances_from_first(vectors, seed)]
        if len(vectors) > 2
        else [],
    }


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
    The map of a word's usages. Its signals are `sense`, beside which the others are faint, and `chosen`, the usage
    with a ring; -1 is none.
    """
    import altair as alt

    sense, chosen = (alt.param(name=name, value=-1) for name in ("sense", "chosen"))
    around = alt.Scale(domain=[-1.05, 1.05], nice=False, zero=False)
    place = {axis: field(f"{axis}:Q", scale=around, axis=None) for axis, field in (("x", alt.X), ("y", alt.Y))}
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
        .add_params(sense, chosen)
        .properties(width=400, height=400, view=alt.ViewConfig(stroke="var(--line)"))
    )


def share_bars(names: list[str]) -> "altair.LayerChart":
    """The share of each sense at each time, as bars with their numbers. Its signal `reach` is the end of the scale."""
    import altair as alt

    reach = alt.param(name="reach", value=1)
    place = {
        "y": alt.Y("sense:N", sort=None, title=None, axis=alt.Axis(ticks=False, domain=False, labelPadding=8)),
        "yOffset": alt.YOffset("time:N", scale=alt.Scale(domain=names)),
        "x": alt.X("share:Q", scale=alt.Scale(domainMin=0, domainMax=reach, nice=False), axis=None),
    }
    shares = alt.Chart(alt.NamedData("shares"))
    bars = shares.mark_bar().encode(**place, color=by_time(names)["color"].legend(None), description="label:N")
    labels = shares.mark_text(align="left", dx=4, aria=False).encode(**place, text="label:N")
    return alt.layer(bars, labels).add_params(reach).properties(width=400, height=alt.Step(18))


def distance_curve(names: list[str]) -> "altair.LayerChart":
    """The distance of each time from the first, with its interval; a dashed line is the distance within the first."""
    import altair as alt

    place = {
        "x": alt.X("time:O", sort=names, title=None, axis=alt.Axis(labelAngle=0, labelOverlap=True)),
        "y": alt.Y("value:Q", title=f"apd to {names[0]}", scale=alt.Scale(zero=False)),
    }
    points = alt.Chart(alt.NamedData("curve"))
    within = points.transform_filter("datum.low === null").mark_rule(strokeDash=DASHES[1], color="var(--quiet)")
    intervals = points.transform_filter("datum.low !== null").mark_rule(strokeWidth=2, color="var(--accent)")
    return alt.layer(
        within.encode(y=place["y"]),
        intervals.encode(x=place["x"], y=place["y"].copy(), y2="high:Q").transform_calculate(value="datum.low"),
        points.mark_line(color="var(--accent)").encode(**place),
        points.mark_point(filled=True, opacity=1, size=70, color="var(--accent)").encode(
            **place, description="label:N"
        ),
    ).properties(width=400, height=220)
