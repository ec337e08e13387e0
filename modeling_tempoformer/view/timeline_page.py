"""
The page of timelines: posts with their probabilities, alarms at a threshold, and explanations. Its script fills the
named data sets of the charts, and sets their signals.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import torch

from ..common.pages import COLOURS, render_page
from ..common.silences import SILENCE, find_silences
from ..decisions_tempoformer import alarm_threshold, class_alarm, find_alarms
from ..names_tempoformer import read_number
from ..posts.states import to_numbers
from ..timeline_tempoformer import Timeline
from ..times_tempoformer import are_since_start


# The page's probabilities are integers, in 1 / UNIT: short in the file, and compared with a threshold exactly.
UNIT = 10_000
LOG_ODDS_UNIT = 100
# An alarm is "barely" one if it would be none with this much less probability, in units.
BARELY = 500
# The opacity of the mark of a post that is barely an alarm
PALE = 0.35
# The shape and the colour of each outcome of a post at the threshold. The page also writes the outcome.
OUTCOMES = {
    "hit": ("circle", "var(--good)"),
    "miss": ("cross", "var(--bad)"),
    "false alarm": ("triangle-up", "var(--warn)"),
    "alarm": ("square", "var(--accent)"),
    "no alarm": ("circle", "var(--edge)"),
}
# The dashes of classes, which can be told apart without colour.
DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4], [4, 1], [1, 3], [10, 2, 2, 2, 2, 2]]
WIDTH = 800  # replaced by the script
CLASS_ROW = 22
STATE_HEIGHT = 120
STATE_ROOM = 0.06  # above and below the states, as a share of their range
# The strip of a state is this faint where the model is not sure at all.
FAINTEST = 0.15
OTHER_STATES = "other"
LEAST_REACH = 0.5  # of the axis of effects, in log-odds
# Makes a part of the chart of a timeline, for its horizontal axis.
ChartMaker = Callable[[alt.X], alt.LayerChart]
WATCHED = alt.param(name="watched", value="")
# The script sets the positions and the words of ticks.
TICKS, TICK_WORDS = alt.param(name="ticks", value=[]), alt.param(name="tick_words", value=[])
PROBABILITY = alt.Y("p:Q", title="probability", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(values=[0, 0.5, 1]))
LEGEND = alt.Legend(
    orient="top", title=None, columns=alt.ExprRef("width < 480 ? 3 : 8"), symbolStrokeColor="var(--quiet)"
)
STATE_LEGEND = alt.Legend(orient="top", title=None, columns=alt.ExprRef("width < 480 ? 3 : 8"), symbolType="square")
KIND_AXIS = alt.Axis(grid=False, ticks=False, domain=False, labelLimit=90)


def timeline_page(
    timelines: Sequence[Timeline],
    names: Sequence[str],
    calibration: dict[str, Any] | None = None,
    title: str = "Timelines",
    verdict: Sequence[str] = (),
    watched_speakers: Sequence[str] | None = None,
    no_change: int | None = None,
    watched: int | None = None,
    model: str | None = None,
    confusion: Sequence[Sequence[str]] = (),
) -> str:
    """
    Renders timelines as one HTML file that a person looks at. It makes no request to any server.

    Args:
        timelines (`Sequence[Timeline]`): Timelines that the pipeline has explained.
        names (`Sequence[str]`): The classes in the order of their ids.
        calibration (`dict`, *optional*): The calibration of the model's configuration.
        title (`str`, *optional*, defaults to `"Timelines"`): Heading of the page.
        verdict (`Sequence[str]`, *optional*): Sentences on the results of the model's test.
        watched_speakers (`Sequence[str]`, *optional*): Only posts of these speakers give alarms; all if omitted.
        no_change (`int`, *optional*): The class that is not a change.
        watched (`int`, *optional*): The class that the page watches at first; the rarest one but `no_change` if
            omitted.
        model (`str`, *optional*): The folder of the model. The page then has the command that gives the model the
            threshold to which a reader has moved the slider.
        confusion (`Sequence[Sequence[str]]`, *optional*): The rows of a table of how many test posts of each given
            state the model predicts as each, the header first.
    """
    calibration = calibration or {}
    packed = [pack_timeline(timeline, names, calibration, watched_speakers) for timeline in timelines]
    labels = [label for timeline in packed for label in timeline["actual"]]
    layers = max((len(layers) for timeline in packed for layers in timeline["attention"]), default=0)
    states = describe_states(timelines, packed)
    times = [time for timeline in timelines for time in timeline.timestamps or ()]
    data = {
        "names": list(names),
        "watched": rarest_class(packed, len(names), no_change) if watched is None else watched,
        "thresholds": first_thresholds(calibration, len(names)),
        "rules": alarm_rules(names, calibration),
        "barely": BARELY,
        "model": model,
        "silence": SILENCE,
        "dated": bool(times) and not are_since_start(min(times), max(times)),
        "states": states,
        "timelines": packed,
    }
    below = state_charts(packed, states) if states else None
    charts = timeline_charts(names, data["watched"], {label >= 0 for label in labels}, layers, below)
    values = {"title": title, "verdict": verdict, "confusion": confusion, "speakers": watched_speakers}
    values |= {"posts": len(labels), "timelines": len(packed)}
    return render_page("timeline_page.html.jinja", data, charts, Path(__file__).parent, **values)


def pack_timeline(
    timeline: Timeline,
    names: Sequence[str],
    calibration: dict[str, Any] | None = None,
    watched_speakers: Sequence[str] | None = None,
) -> dict[str, Any]:
    """
    Packs a timeline for the page's script: lists with a value for each post, in the order of time. Labels are
    indices into `names`, -1 without a label; `heeded` says whether a post may be an alarm, as all may, or those by
    `watched_speakers`; `alarms` and `barely` are the results of [`decided_alarms`] for each class, by the model's
    `calibration`; `stream` holds indices into these lists.
    """
    posts, times = timeline.explanations, timeline.timestamps
    silence, silences = (None, []) if times is None else find_silences(times)
    lengths = [len(post["stream"]) for post in posts]
    ids = {name: index for index, name in enumerate(names)}
    predicted, speakers = [ids[post["label"]] for post in posts], timeline.speakers or [""] * len(timeline)
    heeded = [watched_speakers is None or speaker in watched_speakers for speaker in speakers]
    shares = np.array([list(post["probabilities"].values()) for post in posts]).reshape(-1, len(names))
    decided = [
        decided_alarms(shares, np.array(predicted), np.array(heeded), label, calibration or {})
        for label in range(len(names))
    ]

    def effects(measure: str, unit: int) -> list[list[list[int]]]:
        return [
            [[None if effect is None else round(effect * unit) for effect in post[measure][name]] for post in posts]
            for name in names
        ]

    return {
        "id": timeline.timeline_id,
        "texts": timeline.texts,
        "speakers": speakers,
        "heeded": heeded,
        "times": None if times is None else [round(time, 3) for time in times],
        "silence": silence,
        "silences": silences,
        "actual": [max(label, -1) for label in timeline.labels],
        "predicted": predicted,
        "alarms": [alarms.tolist() for alarms, _ in decided],
        "barely": [barely.tolist() for _, barely in decided],
        "probabilities": [[floor_units(post["probabilities"][name]) for post in posts] for name in names],
        "stream": [list(range(post - length + 1, post + 1)) for post, length in enumerate(lengths)],
        "attention": [[[round(weight * UNIT) for weight in layer] for layer in post["attention"]] for post in posts],
        "effects": effects("effects", UNIT),
        "log_odds_effects": effects("log_odds_effects", LOG_ODDS_UNIT),
        "states": pack_states(timeline),
    }


def decided_alarms(
    shares: np.ndarray, predicted: np.ndarray, heeded: np.ndarray, label: int, calibration: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """
    Returns a mask (posts,) of the alarms of a class by the model's own rule ([`find_alarms`]), and one of barely
    alarms, which would be none if `BARELY` units of the class's probability went to another class.

    Args:
        shares (`np.ndarray` of shape `(posts, classes)`): The probabilities.
        predicted (`np.ndarray` of shape `(posts,)`): The labels of the model.
        heeded (`np.ndarray` of shape `(posts,)`): Whether a post may be an alarm.
        label (`int`): The class.
        calibration (`dict`): The calibration of the model.
    """
    alarms = find_alarms(torch.from_numpy(shares), torch.from_numpy(predicted), label, calibration).numpy() & heeded
    units = np.array([[floor_units(share) for share in post] for post in shares]).reshape(shares.shape)
    less = units[:, label] - BARELY
    if (alarm := class_alarm(label, calibration)) is not None:
        return alarms, alarms & (less < round(alarm["threshold"] * UNIT, 3))
    # The label is the class whose probability is the largest multiple of its threshold.
    thresholds = np.array(calibration.get("thresholds") or [1.0] * shares.shape[1])
    others = np.delete((units + BARELY) / thresholds, label, axis=1)
    return alarms, alarms & (others > less[:, None] / thresholds[label]).any(1)


def alarm_rules(names: Sequence[str], calibration: dict[str, Any]) -> list[str]:
    """Returns a sentence for each class, which says what an alarm of it is by the model's own rule."""
    rules = []
    for label, (name, threshold) in enumerate(zip(names, first_thresholds(calibration, len(names)), strict=True)):
        if (alarm := class_alarm(label, calibration)) is not None:
            least = f"{in_digits(alarm['threshold'])}, the model's own threshold, until you move it."
            rules.append(f"An alarm is a post where the probability of {name} is at least {least}")
        else:
            least = "" if threshold is None else f" (from {in_digits(threshold / UNIT)} on)"
            rule = f"An alarm is a post that the model predicts as {name}{least}, as in its tables, until you move the"
            rules.append(f"{rule} threshold.")
    return rules


def in_digits(probability: float) -> str:
    """Returns a probability without an exponent, with seven decimals at most."""
    return np.format_float_positional(round(probability, 7), trim="-")


def pack_states(timeline: Timeline) -> dict[str, list] | None:
    """
    Packs the states of a timeline, with a value for each post: the number of the `likeliest` state, its probability
    (`sure`), for numbers the `mean` and the standard deviation (`spread`), the state that was `given` (text), and the
    post `before`, which it is compared with. None if the model has not answered states.
    """
    answers = [post["state"] for post in timeline.explanations if "state" in post]
    if not answers:
        return None
    names = list(answers[0]["probabilities"])
    packed = {
        "likeliest": [names.index(answer["label"]) for answer in answers],
        "sure": [floor_units(answer["score"]) for answer in answers],
        "given": timeline.states or [""] * len(timeline),
        "before": timeline.compared_posts(),
    }
    if "mean" in answers[0]:
        means = np.array([answer["mean"] for answer in answers])
        shares = np.array([list(answer["probabilities"].values()) for answer in answers])
        # The names are the numbers, rounded.
        spreads = np.sqrt((shares * np.subtract.outer(means, np.array(names, dtype=float)) ** 2).sum(-1))
        numbers = [read_number(state) for state in packed["given"]]
        packed["given"] = ["" if number is None else f"{number:.15g}" for number in numbers]
        measured = {"mean": means, "spread": spreads}
        packed |= {name: [float(f"{value:.4g}") for value in values] for name, values in measured.items()}
    return packed


def describe_states(timelines: Sequence[Timeline], packed: Sequence[dict]) -> dict[str, Any] | None:
    """
    Returns the `names` of the states that a model has answered, those that have a colour of their own (`coloured`, the
    most frequent if there are more states than colours), and the name of the `other` ones. None without states.
    """
    first = next((post for timeline in timelines for post in timeline.explanations), {})
    if "state" not in first:
        return None
    names = list(first["state"]["probabilities"])
    coloured = names
    if len(names) > len(COLOURS):
        counts = Counter(state for states in answered(packed) for state in states["likeliest"])
        most = sorted(range(len(names)), key=lambda state: -counts[state])[: len(COLOURS) - 1]
        coloured = [names[state] for state in sorted(most)]
    return {"names": names, "coloured": coloured, "other": OTHER_STATES}


def answered(timelines: Sequence[dict]) -> list[dict[str, list]]:
    """Returns the states of the packed timelines that have posts."""
    return [timeline["states"] for timeline in timelines if timeline["states"]]


def floor_units(probability: float) -> int:
    """Rounds a probability down to units, so that it reaches a threshold in units only if it is as large."""
    # The addition is smaller than the rounding error of the pipeline's 32 bits.
    return math.floor(probability * UNIT + 1e-6)


def rarest_class(timelines: Sequence[dict], num_classes: int, no_change: int | None) -> int:
    """
    Returns the class with the fewest posts: by labels if there are several classes, else by probabilities. The class
    `no_change` does not count.
    """
    counts = Counter(label for timeline in timelines for label in timeline["actual"] if label >= 0)
    if len(counts) < 2:
        sums = (sum(sum(timeline["probabilities"][label]) for timeline in timelines) for label in range(num_classes))
        counts = Counter(dict(enumerate(sums)))
    return min((label for label in counts if label != no_change), key=counts.__getitem__)


def first_thresholds(calibration: dict[str, Any], num_classes: int) -> list[float | None]:
    """Returns the [`alarm_threshold`] of each class in units, of two classes in the thousandths of the slider."""
    found = [alarm_threshold(label, num_classes, calibration) for label in range(num_classes)]
    if num_classes == 2:
        return [round(threshold * 1000) * UNIT // 1000 for threshold in found]
    return [None if threshold is None else round(threshold * UNIT, 3) for threshold in found]


def rows(name: str) -> alt.Chart:
    """Makes a chart of a data set that the page's script fills. Its values need no parsing."""
    return alt.Chart(alt.NamedData(name=name, format=alt.DataFormat(parse=None)))


def timeline_charts(
    names: Sequence[str],
    watched: int,
    labelled: Collection[bool],
    layers: int,
    states: ChartMaker | None = None,
) -> dict[str, alt.TopLevelMixin]:
    """
    Makes the charts, by name; `labelled` contains True if any post has a label, and False if any has none. `states`
    makes the chart of states.
    """
    # The watched class comes first, because the first line is solid.
    classes = [names[watched], *(name for name in names if name != names[watched])]
    outcomes = [outcome for outcome in OUTCOMES if outcome != "alarm" or False in labelled]
    labels = names
    if True not in labelled:
        outcomes, labels = ["alarm", "no alarm"], ()
    charts = {"timeline_chart": timeline_chart(classes, outcomes, labels, states), "why_chart": why_chart(layers)}
    return {**charts, "sparkline": sparkline()}


def timeline_chart(
    classes: Sequence[str], outcomes: Sequence[str], labels: Sequence[str], states: ChartMaker | None = None
) -> alt.VConcatChart:
    """Charts probabilities and alarms over time; below them states, and labels and predictions, if there are any."""
    words = f"{TICK_WORDS.name}[indexof({TICKS.name}, datum.value)]"
    axis = alt.Axis(grid=False, values=alt.ExprRef(TICKS.name), labelExpr=words, labelOverlap=False, labelAlign="left")
    x = alt.X("x:Q", title=None, scale=alt.Scale(zero=False, nice=False, padding=14), axis=axis)
    # All parts share the axis of the lowest one.
    above = x.copy()
    above.axis = alt.Axis(labels=False, ticks=False, grid=False)
    makers = [partial(post_chart, classes=classes, outcomes=outcomes)]
    makers += [] if states is None else [states]
    makers += [partial(label_chart, names=labels)] if labels else []
    parts = [make(x if make is makers[-1] else above) for make in makers]
    # Each part has its own legends.
    scales = dict.fromkeys(("fill", "shape", "strokeDash"), "independent")
    chart = alt.vconcat(*parts, spacing=10).resolve_scale(x="shared", **scales)
    return chart.add_params(WATCHED, TICKS, TICK_WORDS)


def post_chart(x: alt.X, classes: Sequence[str], outcomes: Sequence[str]) -> alt.LayerChart:
    """Charts the probabilities of posts, silences between them, and the threshold."""
    chart = alt.layer(silence_layer(x), *line_layers(x, classes), *post_layers(x, outcomes))
    return chart.properties(width=WIDTH, height=240)


def silence_layer(x: alt.X) -> alt.LayerChart:
    gaps = rows("silences").mark_rect(fill="var(--raised)", aria=False).encode(x=x, x2="end")
    style = {"fill": "var(--quiet)", "fontSize": 11, "baseline": "top", "y": 3, "align": "center"}
    return gaps + rows("silences").mark_text(**style, aria=False).encode(x="middle:Q", text="words:N")


def line_layers(x: alt.X, classes: Sequence[str]) -> list[alt.Chart]:
    """Draws the probabilities of the watched class and, more faintly, of other classes, and the threshold."""
    is_watched = f"datum.class === {WATCHED.name}"
    legend = LEGEND if len(classes) > 2 else None
    dash = alt.StrokeDash("class:N", scale=alt.Scale(domain=classes, range=DASHES), legend=legend)
    lines = (
        rows("lines")
        .mark_line(strokeCap="round", aria=False)
        .encode(
            x=x,
            y=PROBABILITY,
            detail="run:N",
            stroke=alt.condition(is_watched, alt.value("var(--accent)"), alt.value("var(--edge)")),
            strokeDash=dash,
            strokeWidth=alt.condition(is_watched, alt.value(2), alt.value(1)),
        )
    )
    threshold = rows("threshold").mark_rule(stroke="var(--ink)", strokeDash=[3, 3], aria=False)
    return [lines, threshold.encode(y=PROBABILITY)]


def post_layers(x: alt.X, outcomes: Sequence[str]) -> list[alt.Chart]:
    """Draws a mark for each post, a ring around the current one, and a rule through the explained one."""
    shapes, fills = (list(column) for column in zip(*map(OUTCOMES.get, outcomes), strict=True))
    marks = (
        rows("posts")
        .mark_point(opacity=1, strokeWidth=1)
        .encode(
            x=x,
            y=PROBABILITY,
            shape=alt.Shape("outcome:N", scale=alt.Scale(domain=outcomes, range=shapes), legend=LEGEND),
            fill=alt.Fill("outcome:N", scale=alt.Scale(domain=outcomes, range=fills), legend=LEGEND),
            size=alt.condition("datum.outcome === 'no alarm'", alt.value(32), alt.value(110)),
            fillOpacity=alt.condition("datum.pale", alt.value(PALE), alt.value(1)),
            stroke=alt.condition("datum.pale", alt.value("var(--edge)"), alt.value("var(--paper)")),
            description="description:N",
        )
    )
    ring = rows("current").mark_point(size=320, stroke="var(--ink)", strokeWidth=2, opacity=1, aria=False)
    return [chosen_layer(x), marks, ring.encode(x=x, y=PROBABILITY)]


def state_charts(timelines: Sequence[dict], states: dict[str, Any]) -> ChartMaker:
    """Returns the maker of a chart of states: numbers as a line, classes as a strip of colours."""
    packed = answered(timelines)
    given = [state for timeline in packed for state in timeline["given"] if state]
    if "mean" in packed[0]:
        values = [float(name) for name in states["names"]]
        return partial(number_chart, values=values + (to_numbers(given) or []))
    colours = states["coloured"] + [OTHER_STATES] * (len(states["coloured"]) < len(states["names"]))
    return partial(strip_chart, colours=colours, kinds=["state", *["given"] * bool(given)])


def number_chart(x: alt.X, values: Sequence[float]) -> alt.LayerChart:
    """Charts states that are numbers: the mean, a band of one standard deviation to each side, and what was given."""

    room = STATE_ROOM * (max(values) - min(values))
    domain = [min(values) - room, max(values) + room]

    def y(name: str) -> alt.Y:
        return alt.Y(f"{name}:Q", title="state", scale=alt.Scale(domain=domain, nice=False))

    band = rows("states").mark_area(fill="var(--accent)", opacity=0.16, aria=False, clip=True)
    line = rows("states").mark_line(stroke="var(--accent)", strokeWidth=2, strokeCap="round", aria=False)
    dots = rows("states").mark_point(shape="circle", size=22, filled=True, fill="var(--accent)", opacity=1, aria=False)
    # A dash hides less of the line than a square would.
    given = rows("given").mark_point(
        shape="stroke", size=70, stroke="var(--ink)", strokeWidth=1.5, opacity=1, aria=False
    )
    layers = [
        band.encode(x=x, y=y("low"), y2="high", detail="run:N"),
        chosen_layer(x),
        line.encode(x=x, y=y("mean"), detail="run:N"),
        dots.encode(x=x, y=y("mean")),
        given.encode(x=x, y=y("value")),
    ]
    return alt.layer(*layers).properties(width=WIDTH, height=STATE_HEIGHT)


def strip_chart(x: alt.X, colours: Sequence[str], kinds: Sequence[str]) -> alt.LayerChart:
    """
    Charts states that are classes: a strip of colour for each post, fainter where the model is less sure, in a row for
    each of `kinds`. `colours` are the entries of the legend.
    """
    y = alt.Y("kind:N", title=None, scale=alt.Scale(domain=list(kinds), paddingInner=0.15), axis=KIND_AXIS)
    scale = alt.Scale(domain=list(colours), range=COLOURS[: len(colours)])
    sure = alt.Opacity("sure:Q", scale=alt.Scale(domain=[0, 1], range=[FAINTEST, 1]), legend=None)
    strips = rows("states").mark_rect(aria=False)
    strips = strips.encode(
        x=x, x2="end", y=y, fill=alt.Fill("state:N", scale=scale, legend=STATE_LEGEND), opacity=sure
    )
    return alt.layer(strips, chosen_layer(x)).properties(width=WIDTH, height=CLASS_ROW * len(kinds))


def chosen_layer(x: alt.X) -> alt.Chart:
    """Draws a rule through the post that is explained."""
    return rows("chosen").mark_rule(stroke="var(--ink)", strokeWidth=1, aria=False).encode(x=x)


def label_chart(x: alt.X, names: Sequence[str]) -> alt.LayerChart:
    """Charts a row for each class: an open square is a post's label, a dot is its prediction."""
    y = alt.Y("class:N", title=None, scale=alt.Scale(domain=list(names)), axis=alt.Axis(grid=True, labelLimit=90))
    actual = rows("actual").mark_point(shape="square", size=70, stroke="var(--ink)", opacity=1, aria=False)
    predicted = rows("predicted").mark_point(
        shape="circle", size=14, filled=True, fill="var(--ink)", opacity=1, aria=False
    )
    chart = alt.layer(actual.encode(x=x, y=y), predicted.encode(x=x, y=y))
    return chart.properties(width=WIDTH, height=CLASS_ROW * len(names))


def why_chart(layers: int) -> alt.VConcatChart:
    """Charts the effects of a stream's posts on its newest, in log-odds, and each layer's attention below them."""
    x = alt.X("post:O", title="post", axis=alt.Axis(labelAngle=0, labelOverlap=True), scale=alt.Scale(padding=0.2))
    hidden = alt.X("post:O", title=None, axis=alt.Axis(labels=False, ticks=False), scale=alt.Scale(padding=0.2))
    # Symmetric, and with a least reach, so that a small effect does not look large.
    reach = alt.param(name="reach", value=LEAST_REACH)
    scale = alt.Scale(domain=[alt.ExprRef(f"-{reach.name}"), alt.ExprRef(reach.name)], nice=False)
    axis = alt.Axis(format="+.1f", tickCount=5, labelOverlap=True)
    effect = alt.Y("effect:Q", title="log-odds", stack=None, scale=scale, axis=axis)
    colour = alt.condition("datum.effect < 0", alt.value("var(--warn)"), alt.value("var(--accent)"))
    bars = (
        rows("stream")
        .mark_bar()
        .encode(x=hidden if layers else x, y=effect, color=colour, description="description:N")
    )
    zero = rows("stream").mark_rule(stroke="var(--edge)", aria=False).encode(y=alt.datum(0))
    charts = [alt.layer(bars, zero).properties(width=WIDTH, height=110)]
    for layer in range(layers):
        share = alt.Axis(format=".0%", tickCount=2)
        y = alt.Y(f"attention_{layer}:Q", title=f"layer {layer + 1}", stack=None, axis=share)
        bars = rows("stream").mark_bar(color="var(--edge)", aria=False)
        bars = bars.encode(x=x if layer == layers - 1 else hidden, y=y)
        charts.append(bars.properties(width=WIDTH, height=48))
    return alt.vconcat(*charts, spacing=8).resolve_scale(x="shared").add_params(reach)


def sparkline() -> alt.Chart:
    """Charts the probability of the watched class over the posts of a timeline."""
    chart = rows("posts").mark_line(stroke="var(--accent)", strokeWidth=1.25, aria=False)
    y = alt.Y("p:Q", scale=alt.Scale(domain=[0, 1]), axis=None)
    return chart.encode(x=alt.X("x:Q", axis=None, scale=alt.Scale(nice=False)), y=y).properties(width=100, height=24)
