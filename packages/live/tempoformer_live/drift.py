"""Compares two sets of predictions: whether probabilities have drifted, or where two models differ."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import entropy, fisher_exact, ks_2samp, permutation_test

from modeling_tempoformer import read_predictions
from modeling_tempoformer.common.data_frames import to_table
from modeling_tempoformer.common.figures import COLUMN, DARK, LIGHT, in_style, new_figure


SIDES = ("before", "after")
# Columns of predictions: those that name a post, and the prefix of the classes' probabilities
KEY, PROBABILITY = ["timeline_id", "post_id"], "probability_"
# The bins of the shown histogram and of the index: tenths of the posts of the first predictions.
SHOWN_BINS, INDEX_BINS = 10, 10
RESAMPLES = 999


def read_answered_posts(path: str | Path) -> pd.DataFrame:
    """
    Reads predictions ([`read_predictions`]), without the posts that the model was not asked about. Raises a
    `ValueError` if no post is left.
    """
    table = read_predictions(path)
    if table["prediction"].isna().all():
        raise ValueError(f"{path} has no prediction.")
    return table[table["prediction"].notna()].reset_index(drop=True)


def find_drift(before: pd.DataFrame, after: pd.DataFrame, watched: str) -> dict[str, Any]:
    """
    Compares the probabilities of a class in two sets of predictions.

    Args:
        before, after (`pd.DataFrame`): The results of [`read_answered_posts`], such as of a test and of last week.
        watched (`str`): The class.

    Returns:
        A dict, valid as JSON. `before` and `after` have `posts`, `timelines`, `alarms` (of the model if it watches the
        class, else predictions of the class), `alarmed_timelines` (those with an alarm), `mean` (of the probability)
        and `histogram`, the shares of posts in ten
        equal bins of the probability. `population_stability_index` is the sum over ten bins of `(p - q) log(p / q)`,
        with `p` and `q` the shares of the two sets; a bin holds a tenth of `before` if all probabilities differ, and
        every count is smoothed by half a post. `kolmogorov_smirnov` is the largest difference of the two cumulative
        distributions. `alarmed_p` is the probability, if nothing has changed, that the shares of timelines with an
        alarm differ as much (Fisher's exact test).

        If both sets are of the same posts, as with two models: `same_posts`, the number of posts by the two
        predictions, as a list of `[before, after, posts]`. Else `by_chance`, the index that 95 % of random divisions
        of all timelines stay below, and `p`, the share of divisions that reach the index. Timelines are divided whole,
        because the posts of a timeline depend on each other. Raises a `ValueError` for an unknown class, and for a set
        of only one timeline.
    """
    column = PROBABILITY + watched
    for table in (before, after):
        names = [name.removeprefix(PROBABILITY) for name in table if name.startswith(PROBABILITY)]
        if watched not in names:
            raise ValueError(f"--watch {watched} is not a class of the predictions, which are: {', '.join(names)}.")
    shares = [table[column].to_numpy(float) for table in (before, after)]
    tables = zip(SIDES, (before, after), strict=True)
    found: dict[str, Any] = {name: describe_side(table, column, watched) for name, table in tables}
    edges = np.unique(np.quantile(shares[0], np.arange(1, INDEX_BINS) / INDEX_BINS))
    counts = [
        count_bins(table["timeline_id"], np.searchsorted(edges, values), len(edges) + 1)
        for table, values in zip((before, after), shares, strict=True)
    ]
    index = stability_index(*(each.sum(axis=0) for each in counts))
    found["population_stability_index"] = float(index)
    found["kolmogorov_smirnov"] = float(ks_2samp(*shares).statistic)
    alarmed = [[found[name]["alarmed_timelines"], found[name]["timelines"]] for name in SIDES]
    found["alarmed_p"] = float(
        fisher_exact([[with_alarm, every - with_alarm] for with_alarm, every in alarmed]).pvalue
    )
    pairs = before[[*KEY, "prediction"]].merge(after[[*KEY, "prediction"]], on=KEY)
    if len(pairs) == len(before) == len(after):
        by_both = pairs.groupby(["prediction_x", "prediction_y"]).size()
        return {**found, "same_posts": [[*names, int(number)] for names, number in by_both.items()]}
    return {**found, **compare_to_chance(*counts)}


def describe_side(table: pd.DataFrame, column: str, watched: str) -> dict[str, Any]:
    """Returns the counts of a set of predictions, and the histogram of a column of probabilities."""
    # Older files have no columns of alarms.
    is_watched = "alarm" in table and (table["watched"] == watched).all()
    in_bins, _ = np.histogram(table[column], SHOWN_BINS, (0, 1))
    is_alarm = (table["alarm"] if is_watched else table["prediction"] == watched).fillna(False).astype(bool)
    return {
        "posts": len(table),
        "timelines": table["timeline_id"].nunique(),
        "alarms": int(is_alarm.sum()),
        "alarmed_timelines": table["timeline_id"][is_alarm].nunique(),
        "mean": float(table[column].mean()),
        "histogram": (in_bins / len(table)).tolist(),
    }


def count_bins(timeline_ids: Sequence, bins: np.ndarray, num_bins: int) -> np.ndarray:
    """Returns the number of posts (timelines, bins) of each timeline in each bin."""
    numbers, names = pd.factorize(pd.Series(timeline_ids))
    counts = np.zeros((len(names), num_bins))
    np.add.at(counts, (numbers, bins), 1)
    return counts


def stability_index(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Returns the population stability index of counts (..., bins): the two relative entropies, added."""
    before, after = before + 0.5, after + 0.5
    return entropy(before, after, axis=-1) + entropy(after, before, axis=-1)


def compare_to_chance(before: np.ndarray, after: np.ndarray) -> dict[str, float]:
    """Compares the index of counts (timelines, bins) with the indices of random divisions of the timelines."""
    if min(len(before), len(after)) < 2:
        raise ValueError("Predictions of one timeline say nothing about drift: give several timelines.")
    counts = np.concatenate([before, after])

    def index(*groups: np.ndarray, axis: int) -> np.ndarray:
        """The index of two groups of timelines (..., timelines)."""
        return stability_index(*(counts[np.moveaxis(group, axis, -1)].sum(axis=-2) for group in groups))

    numbers = np.split(np.arange(len(counts)), [len(before)])
    # Batches of divisions that take some hundred megabytes.
    settings = {"vectorized": True, "batch": max(1, 10**6 // len(counts)), "rng": 0, "alternative": "greater"}
    result = permutation_test(numbers, index, n_resamples=RESAMPLES, **settings)
    return {"by_chance": float(np.quantile(result.null_distribution, 0.95)), "p": float(result.pvalue)}


def drift_text(found: dict[str, Any], watched: str) -> str:
    """Returns the result of [`find_drift`] as a table and sentences."""
    sides = [found[name] for name in SIDES]
    alarms = [f"{side['alarms']} ({side['alarms'] / side['posts']:.1%})" for side in sides]
    rows = [["", *SIDES], ["posts", *(str(side["posts"]) for side in sides)]]
    rows += [["timelines", *(str(side["timelines"]) for side in sides)], [f"alarms of {watched}", *alarms]]
    alarmed = [f"{side['alarmed_timelines']} ({side['alarmed_timelines'] / side['timelines']:.1%})" for side in sides]
    rows += [["timelines with an alarm", *alarmed]]
    rows += [[f"mean probability of {watched}", *(f"{side['mean']:.3f}" for side in sides)]]
    for number, both in enumerate(zip(*(side["histogram"] for side in sides), strict=True)):
        low, high = number / SHOWN_BINS, (number + 1) / SHOWN_BINS
        rows.append([f"probability {low:.1f} to {high:.1f}", *(f"{share:.1%}" for share in both)])
    lines = [
        f"Population stability index: {found['population_stability_index']:.3f}.",
        f"Largest difference of the cumulative distributions (Kolmogorov-Smirnov): {found['kolmogorov_smirnov']:.3f}.",
    ]
    if "same_posts" in found:
        changed = [row for row in found["same_posts"] if row[0] != row[1]]
        total = sum(number for *_, number in changed)
        lines.append(f"Both predict the same posts: {total} of {sides[0]['posts']} have another prediction.")
        lines += [f"  {number} from {one} to {other}" for one, other, number in changed]
    else:
        more = "more" if found["p"] < 0.05 else "no more"
        chance = f"95 % have an index below {found['by_chance']:.3f}, and p = {found['p']:.3g}."
        lines += [f"Random divisions of the same timelines: {chance}", f"The two differ {more} than by chance."]
        if found["alarmed_p"] < 0.05:
            lines.append(
                f"Another share of timelines has an alarm (Fisher's exact test, p = {found['alarmed_p']:.3g}): what "
                "alarms asked for was of timelines like those before, as long and with as many changes."
            )
    return "\n".join([to_table(rows), "", *lines])


@in_style
def drift_figure(found: dict[str, Any], watched: str) -> Figure:
    """Draws the two histograms of the result of [`find_drift`], beside each other in each bin."""
    figure = new_figure(COLUMN, 0.7 * COLUMN)
    axes = figure.subplots()
    left, width = np.arange(SHOWN_BINS) / SHOWN_BINS, 0.4 / SHOWN_BINS
    for place, (name, style) in enumerate(zip(SIDES, (DARK, LIGHT), strict=True)):
        centres = left + (0.3 + 0.4 * place) / SHOWN_BINS
        axes.bar(centres, found[name]["histogram"], width, color=style["color"], label=name)
    axes.set(xlabel=f"probability of {watched}", ylabel="share of posts")
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.legend(fontsize="small", frameon=False)
    return figure
