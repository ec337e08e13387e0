"""The charts of the page of timelines. Its script gives them their data, in the named data sets, and their signals."""

from collections.abc import Collection, Sequence

import altair as alt

from .page import COLOURS, DASHES


# What became of a post at the threshold: its shape, its colour, its size. The page says each as a word as well.
OUTCOMES = {
    "hit": ("circle", "var(--good)", 110),
    "miss": ("cross", "var(--bad)", 110),
    "false alarm": ("triangle-up", "var(--warn)", 110),
    "alarm": ("square", "var(--accent)", 90),
    "no alarm": ("circle", "var(--edge)", 22),
}
WIDTH = 800  # The script sets the true one.
CLASS_ROW = 22


def rows(name: str) -> alt.NamedData:
    """A data set that the page's script fills. Its values are numbers and words already."""
    return alt.NamedData(name=name, format=alt.DataFormat(parse=None))


def timeline_charts(names: Sequence[str], labelled: Collection[bool], layers: int) -> dict[str, alt.TopLevelMixin]:
    """
    The charts by name: `by_time` and `by_position` of one timeline, `why` of one post, `sparkline` of one timeline.

    Args:
        names (`Sequence[str]`): The classes.
        labelled (`Collection[bool]`): Whether there are posts with a label, and posts without.
        layers (`int`): Stream layers with attention.
    """
    outcomes = [
        outcome for outcome in OUTCOMES if outcome == "no alarm" or (False if outcome == "alarm" else True) in labelled
    ]
    axis = {"scale": alt.Scale(nice=False, padding=14), "axis": alt.Axis(grid=False, labelOverlap=True)}
    time = alt.X("x:T", title="time (UTC)", **{**axis, "scale": alt.Scale(type="utc", nice=False, padding=14)})
    position = alt.X("x:Q", title="post", **{**axis, "axis": alt.Axis(grid=False, tickMinStep=1, format="d")})
    return {
        "by_time": timeline_chart(time, names, outcomes, True in labelled),
        "by_position": timeline_chart(position, names, outcomes, True in labelled),
        "why": why_chart(layers),
        "sparkline": sparkline(),
    }


def timeline_chart(x: alt.X, names: Sequence[str], outcomes: Sequence[str], labelled: bool) -> alt.VConcatChart:
    """Probabilities and alarms over time, and below them the class that each post has and is predicted as."""
    watched = alt.param(name="watched", value=names[0])
    y = alt.Y("p:Q", title="probability", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(values=[0, 0.5, 1]))
    is_watched = f"datum.class === {watched.name}"
    legend = {"orient": "top", "title": None, "columns": alt.ExprRef("width < 480 ? 3 : 8")}

    gaps = alt.Chart(rows("silences")).mark_rect(fill="var(--raised)", aria=False).encode(x=x, x2="end")
    gap_words = (
        alt.Chart(rows("silences"))
        .mark_text(fill="var(--quiet)", fontSize=11, baseline="top", y=3, aria=False)
        .encode(x=alt.X("middle", type=x.to_dict()["type"]), text="words:N")
    )
    lines = (
        alt.Chart(rows("lines"))
        .mark_line(strokeCap="round", aria=False)
        .encode(
            x=x,
            y=y,
            detail="run:N",
            color=alt.Color("class:N", scale=alt.Scale(domain=list(names), range=COLOURS), legend=legend),
            strokeDash=alt.StrokeDash("class:N", scale=alt.Scale(domain=list(names), range=DASHES), legend=legend),
            strokeWidth=alt.condition(is_watched, alt.value(2.25), alt.value(1)),
            opacity=alt.condition(is_watched, alt.value(1), alt.value(0.6)),
        )
    )
    rule = alt.Chart(rows("threshold")).mark_rule(stroke="var(--ink)", strokeDash=[4, 4], aria=False)
    rule = rule.encode(y=alt.Y("p:Q"))
    shapes, fills, sizes = (list(column) for column in zip(*(OUTCOMES[name] for name in outcomes), strict=True))
    marks = (
        alt.Chart(rows("posts"))
        .mark_point(filled=True, opacity=1, stroke="var(--paper)", strokeWidth=1)
        .encode(
            x=x,
            y=y,
            shape=alt.Shape("outcome:N", scale=alt.Scale(domain=outcomes, range=shapes), legend=legend),
            fill=alt.Fill("outcome:N", scale=alt.Scale(domain=outcomes, range=fills), legend=legend),
            size=alt.Size("outcome:N", scale=alt.Scale(domain=outcomes, range=sizes), legend=None),
            description="description:N",
        )
    )
    ring = alt.Chart(rows("current")).mark_point(size=320, stroke="var(--ink)", strokeWidth=2, opacity=1, aria=False)
    line = alt.Chart(rows("chosen")).mark_rule(stroke="var(--ink)", strokeWidth=1, aria=False)
    top = alt.layer(gaps, gap_words, line.encode(x=x), lines, rule, marks, ring.encode(x=x, y=y))
    top = top.resolve_scale(color="independent", shape="independent").properties(width=WIDTH, height=240)
    parts = [top]
    if labelled:
        parts.append(label_chart(x, names))
    chart = alt.vconcat(*parts, spacing=12).resolve_scale(x="shared")
    return chart.add_params(watched)


def label_chart(x: alt.X, names: Sequence[str]) -> alt.LayerChart:
    """A row for each class: an open square where posts have it, a dot where they are predicted as it."""
    y = alt.Y("class:N", title=None, scale=alt.Scale(domain=list(names)), axis=alt.Axis(grid=True, labelLimit=90))
    actual = alt.Chart(rows("actual")).mark_point(shape="square", size=90, stroke="var(--ink)", opacity=1, aria=False)
    predicted = alt.Chart(rows("predicted")).mark_point(
        shape="circle", size=18, filled=True, fill="var(--ink)", opacity=1, aria=False
    )
    chart = alt.layer(actual.encode(x=x, y=y), predicted.encode(x=x, y=y))
    return chart.properties(width=WIDTH, height=CLASS_ROW * len(names))


def why_chart(layers: int) -> alt.VConcatChart:
    """How the posts of a stream moved the newest: leave-one-out effects, and below them attention of each layer."""
    x = alt.X("post:O", title="post", axis=alt.Axis(labelAngle=0, labelOverlap=True), scale=alt.Scale(padding=0.2))
    hidden = alt.X("post:O", title=None, axis=alt.Axis(labels=False, ticks=False), scale=alt.Scale(padding=0.2))
    effect = alt.Y("effect:Q", title="moved it by", axis=alt.Axis(format="+.2~f", tickCount=3))
    colour = alt.condition("datum.effect < 0", alt.value("var(--warn)"), alt.value("var(--accent)"))
    bars = alt.Chart(rows("stream")).mark_bar().encode(x=hidden, y=effect, color=colour, description="description:N")
    zero = alt.Chart(rows("stream")).mark_rule(stroke="var(--edge)", aria=False).encode(y=alt.datum(0))
    charts = [alt.layer(bars, zero).properties(width=WIDTH, height=110)]
    for layer in range(layers):
        y = alt.Y(f"attention_{layer}:Q", title=f"layer {layer + 1}", axis=alt.Axis(format=".0%", tickCount=2))
        attention = alt.Chart(rows("stream")).mark_bar(color="var(--edge)", aria=False)
        attention = attention.encode(x=x if layer == layers - 1 else hidden, y=y)
        charts.append(attention.properties(width=WIDTH, height=48))
    return alt.vconcat(*charts, spacing=8).resolve_scale(x="shared")


def sparkline() -> alt.Chart:
    """The probability of the watched class over the posts of a timeline."""
    chart = alt.Chart(rows("posts")).mark_line(stroke="var(--accent)", strokeWidth=1.25, aria=False)
    y = alt.Y("p:Q", scale=alt.Scale(domain=[0, 1]), axis=None)
    return chart.encode(x=alt.X("x:Q", axis=None, scale=alt.Scale(nice=False)), y=y).properties(width=110, height=24)
