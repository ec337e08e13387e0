"""The page of timelines: posts with their probabilities, alarms at a threshold, and explanations."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..timeline_tempoformer import Timeline
from .page import render_page
from .timeline_charts import timeline_charts


# The page's probabilities are integers, in 1 / UNIT: short in the file, and compared with a threshold exactly.
UNIT = 10_000
LOG_ODDS_UNIT = 100
# A silence is more than this many times the timeline's median time between two posts.
SILENCE = 10


def timeline_page(
    timelines: Sequence[Timeline],
    names: Sequence[str],
    thresholds: Sequence[float] | None = None,
    title: str = "Timelines",
    verdict: Sequence[str] = (),
    watched_speakers: Sequence[str] | None = None,
) -> str:
    """
    Renders timelines as one HTML file that a person looks at. It makes no request to any server.

    Args:
        timelines (`Sequence[Timeline]`): Timelines that the pipeline has explained.
        names (`Sequence[str]`): The classes in the order of their ids.
        thresholds (`Sequence[float]`, *optional*): The decision thresholds of the model's calibration. With two
            classes they set the page's first threshold, which is 0.5 otherwise.
        title (`str`, *optional*, defaults to `"Timelines"`): Heading of the page.
        verdict (`Sequence[str]`, *optional*): Sentences on the results of the model's test.
        watched_speakers (`Sequence[str]`, *optional*): Only posts of these speakers give alarms; all if omitted.
    """
    packed = [pack_timeline(timeline, names) for timeline in timelines]
    for timeline in packed:
        speakers = timeline["speakers"]
        timeline["heeded"] = [watched_speakers is None or speaker in watched_speakers for speaker in speakers]
    labels = [label for timeline in packed for label in timeline["actual"]]
    layers = max((len(layers) for timeline in packed for layers in timeline["attention"]), default=0)
    data = {
        "names": list(names),
        "watched": rarest_class(packed, len(names)),
        "thresholds": first_thresholds(thresholds, len(names)),
        "silence": SILENCE,
        "timelines": packed,
    }
    charts = timeline_charts(names, data["watched"], {label >= 0 for label in labels}, layers)
    values = {"title": title, "verdict": verdict, "speakers": watched_speakers}
    values |= {"posts": len(labels), "timelines": len(packed)}
    return render_page("timeline_page.html.jinja", data, charts, **values)


def pack_timeline(timeline: Timeline, names: Sequence[str]) -> dict[str, Any]:
    """
    Packs a timeline for the page's script: lists with a value for each post, in the order of time. Labels are class
    ids, -1 without a label; `stream` holds indices into these lists.
    """
    posts, times = timeline.explanations, timeline.timestamps
    silence, silences = (None, []) if times is None else find_silences(times)
    lengths = [len(post["stream"]) for post in posts]
    ids = {name: index for index, name in enumerate(names)}

    def effects(measure: str, unit: int) -> list[list[list[int]]]:
        return [[[round(effect * unit) for effect in post[measure][name]] for post in posts] for name in names]

    return {
        "id": timeline.timeline_id,
        "texts": timeline.texts,
        "speakers": timeline.speakers or [""] * len(timeline),
        "times": None if times is None else [round(time, 3) for time in times],
        "silence": silence,
        "silences": silences,
        "actual": [max(label, -1) for label in timeline.labels],
        "predicted": [ids[post["label"]] for post in posts],
        "probabilities": [[floor_units(post["probabilities"][name]) for post in posts] for name in names],
        "stream": [list(range(post - length + 1, post + 1)) for post, length in enumerate(lengths)],
        "attention": [[[round(weight * UNIT) for weight in layer] for layer in post["attention"]] for post in posts],
        "effects": effects("effects", UNIT),
        "log_odds_effects": effects("log_odds_effects", LOG_ODDS_UNIT),
    }


def floor_units(probability: float) -> int:
    """Rounds a probability down to units, so that it reaches a threshold in units only if it is as large."""
    # The addition is smaller than the rounding error of the pipeline's 32 bits.
    return math.floor(probability * UNIT + 1e-6)


def find_silences(times: Sequence[float]) -> tuple[float | None, list[int]]:
    """Returns the longest time between two posts that is no silence, in seconds, and the posts that end silences."""
    gaps = np.diff(times)
    if not gaps.any():
        return None, []
    longest = SILENCE * float(np.median(gaps[gaps > 0]))
    return longest, (np.flatnonzero(gaps > longest) + 1).tolist()


def rarest_class(timelines: Sequence[dict], num_classes: int) -> int:
    """Returns the class with the fewest posts: by labels if there are several classes, else by probabilities."""
    counts = Counter(label for timeline in timelines for label in timeline["actual"] if label >= 0)
    if len(counts) > 1:
        return min(counts, key=counts.__getitem__)
    expected = [sum(sum(timeline["probabilities"][label]) for timeline in timelines) for label in range(num_classes)]
    return expected.index(min(expected))


def first_thresholds(thresholds: Sequence[float] | None, num_classes: int) -> list[int]:
    """Returns the page's first threshold for each class, in units, rounded to the thousandths of its slider."""
    shares = [0.5] * num_classes
    if thresholds is not None and num_classes == 2:
        # p / t is largest for a class if its p exceeds its share of the sum of both thresholds.
        shares = [threshold / sum(thresholds) for threshold in thresholds]
    return [round(share * 1000) * UNIT // 1000 for share in shares]
