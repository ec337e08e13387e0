"""The report on scored words: a ranked table, the agreement with gold scores, and figures."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import false_discovery_control

from ..cards.markdown import escape_control_characters
from ..data.files import written_whole
from ..evaluation.figures import new_figure
from .measures import Agreement, agreement
from .usages import describe_counts


# The columns of the ends of the 95 % interval of `apd`.
INTERVAL = ("apd_low", "apd_high")


def format_table(rows: pd.DataFrame | Iterable[dict]) -> str:
    """A table in aligned columns. Numbers have three digits, missing values are blank."""
    table = pd.DataFrame(rows).rename(columns=escape_control_characters)
    table = table.map(lambda cell: escape_control_characters(cell) if isinstance(cell, str) else cell)
    return table.to_string(index=False, na_rep="", float_format="{:.3f}".format)


def ranked_table(
    scores: dict[str, dict[str, float]],
    counts: dict[str, dict[str, int]],
    truth: dict[str, float] | None,
    p_values: dict[str, float],
    intervals: dict[str, tuple[float, float]],
) -> pd.DataFrame:
    """
    One row for each word, from the most changed to the least by the first measure; words without a score come last.
    Rank 1 changed most, and words with the same score share their mean rank. Gold ranks are among the words that have
    both scores. Arguments as for [`write_report`].
    """
    first, *_ = scores
    table = pd.DataFrame(scores, index=pd.Index(scores[first], name="word"))
    ranks = {"rank": table[first].rank(ascending=False)}
    if p_values:
        table["p"] = pd.Series(p_values, dtype=float)
        table["p_fdr"] = false_discovery_control(table["p"])
    if intervals:
        table[list(INTERVAL)] = pd.DataFrame.from_dict(intervals, orient="index")
    if truth is not None:
        table["gold"] = pd.Series(truth, dtype=float)
        ranks["gold_rank"] = table["gold"].where(table[first].notna()).rank(ascending=False)
    for name, of_words in ranks.items():
        table[name] = of_words.map("{:g}".format, na_action="ignore")
    usages = pd.DataFrame.from_dict(counts, orient="index").add_prefix("usages_")
    table = table.join(usages).sort_values(first, ascending=False, kind="stable").reset_index()
    table.insert(0, "rank", table.pop("rank"))
    return table


def plot_ranks(path: Path, scores: dict[str, float], truth: dict[str, float], title: str):
    """Draws predicted against gold ranks."""
    ranks = pd.DataFrame({"predicted": pd.Series(scores), "gold": pd.Series(truth)}).dropna().rank(ascending=False)
    figure = new_figure(7, 7)
    axes = figure.subplots()
    axes.plot([1, len(ranks)], [1, len(ranks)], color="0.8", zorder=0)
    axes.scatter(ranks["gold"], ranks["predicted"], s=18)
    for word, predicted, gold in ranks.itertuples():
        # A word with dollar signs is not a formula.
        style = {"xytext": (4, 3), "textcoords": "offset points", "fontsize": 8, "parse_math": False}
        axes.annotate(escape_control_characters(word), (gold, predicted), **style)
    axes.set(xlabel="gold rank (1: changed most)", ylabel="predicted rank")
    axes.set_title(title, fontsize=10, parse_math=False)
    axes.margins(x=0.15, y=0.05)
    axes.invert_xaxis()
    axes.invert_yaxis()
    with written_whole(path) as partial:
        figure.savefig(partial, dpi=150)


def plot_scores(
    scores: dict[str, float],
    measure: str,
    counts: dict[str, dict[str, int]],
    intervals: dict[str, tuple[float, float]],
    max_words: int = 50,
) -> Figure:
    """
    Bars of the words with a score, from the most changed to the least; at most `max_words` of them. Beside them are
    their numbers of usages at the first and the last time, and their intervals where there are some.
    """
    ranked = pd.Series(scores).dropna().sort_values(ascending=False, kind="stable")
    shown = ranked.head(max_words)
    first, *_, last = next(iter(counts.values()))
    figure = new_figure(8, 1.6 + 0.22 * len(shown))
    axes = figure.subplots()
    axes.barh(range(len(shown)), shown, height=0.6)
    if intervals:
        ends = np.array([intervals[word] for word in shown.index])
        lengths = np.abs(ends - shown.to_numpy()[:, None]).T
        axes.errorbar(shown, range(len(shown)), xerr=lengths, fmt="none", ecolor="black", elinewidth=1, capsize=2)
    # A word with dollar signs is not a formula.
    plain = {"fontsize": 8, "parse_math": False}
    axes.set_yticks(range(len(shown)), map(escape_control_characters, shown.index), **plain)
    axes.invert_yaxis()
    right = axes.secondary_yaxis("right")
    numbers = [f"{counts[word][first]} | {counts[word][last]}" for word in shown.index]
    right.set_yticks(range(len(shown)), numbers, **plain)
    right.tick_params(length=0)
    first, last = map(escape_control_characters, (first, last))
    right.set_ylabel(f"usages in {first} | in {last}", **plain)
    chosen = (
        f"{len(shown)} words" if len(shown) == len(ranked) else f"The {len(shown)} most changed of {len(ranked)} words"
    )
    axes.set_title(f"{chosen} by change from {first} to {last}", parse_math=False)
    axes.set_xlabel(f"{measure}, with 95 % intervals" if intervals else measure)
    axes.margins(y=0.01)
    return figure


def compare_with_gold(
    scores: dict[str, dict[str, float]], truth: dict[str, float], seed: int
) -> tuple[dict[str, Agreement], list[str]]:
    """
    The agreement of each measure with the gold scores; a table of it, and notes on measures and words without one.
    Raises a `ValueError` if the first measure has no correlation.
    """
    found, notes = {}, []
    for name, of_word in scores.items():
        try:
            found[name] = value = agreement(of_word, truth, seed)
        except ValueError as problem:
            if not found:
                raise
            notes.append(f"{name}: no correlation. {problem}")
            continue
        if value.missing:
            notes.append(f"{name}: no score for {', '.join(value.missing)}, which have a gold score.")
        if value.extra:
            notes.append(f"{name}: no gold score for {', '.join(value.extra)}.")
    table = format_table(
        {
            "measure": name,
            "words": value.num_words,
            "pearson r": value.pearson,
            "p": value.pearson_p,
            "95 %": "{:.3f} to {:.3f}".format(*value.pearson_interval),
            "spearman rho": value.spearman,
            "p ": value.spearman_p,
            "95 % ": "{:.3f} to {:.3f}".format(*value.spearman_interval),
        }
        for name, value in found.items()
    )
    return found, [table, *notes]


def write_report(
    output_dir: str | Path,
    scores: dict[str, dict[str, float]],
    counts: dict[str, dict[str, int]],
    truth: dict[str, float] | None = None,
    seed: int = 0,
    p_values: dict[str, float] | None = None,
    left_out: dict[str, dict[str, int]] | None = None,
    intervals: dict[str, tuple[float, float]] | None = None,
) -> str:
    """
    Writes `changes.csv`, `results.json` and, for the first measure, `changes.png` and, with gold scores, `ranks.png`.

    Args:
        output_dir: Folder of the files; created if needed.
        scores: For each measure the score of each word, NaN if it has none.
        counts: For each word its number of usages at each time.
        truth: Gold scores by word.
        seed: Seed of the bootstrap.
        p_values: For each word the p-value of its change. Beside it, `p_fdr` is adjusted for the number of words
            (Benjamini and Hochberg, 1995).
        left_out: For each word that is too rare to score its number of usages at each time.
        intervals: For each word the ends of the 95 % interval of `apd`. The figure shows it if `apd` is the first
            measure.

    Returns:
        The table and the agreement with gold scores as text, which also names the words that are left out and the
        measures without a correlation. Raises a `ValueError` if the first measure has no score for any word, or no
        correlation with the gold scores.
    """
    folder = Path(output_dir)
    first, *_ = scores
    if pd.Series(scores[first]).isna().all():
        raise ValueError(f"'{first}' has no score for any of the {len(counts)} words: {', '.join(counts)}.")
    table = ranked_table(scores, counts, truth, p_values or {}, intervals or {})
    with written_whole(folder / "changes.csv") as partial:
        table.to_csv(partial, index=False)
    lines = [format_table(table), ""]
    if left_out:
        lines.append(f"Left out, with too few usages: {escape_control_characters(describe_counts(left_out))}.")
    found: dict[str, Agreement] = {}
    if truth is None:
        missing = {name: [word for word in of_word if pd.isna(of_word[word])] for name, of_word in scores.items()}
        lines += [f"{name}: no score for {', '.join(words)}." for name, words in missing.items() if words]
    else:
        found, compared = compare_with_gold(scores, truth, seed)
        lines += ["", *compared]
        start, *_, end = map(escape_control_characters, next(iter(counts.values())))
        agreed = found[first]
        interval = "{:.2f} to {:.2f}".format(*agreed.spearman_interval)
        title = (
            f"{first} of {agreed.num_words} words, {start} to {end}\nSpearman {agreed.spearman:.2f} (95 %: {interval})"
        )
        plot_ranks(folder / "ranks.png", scores[first], truth, title)
    results = {"left_out": left_out or {}, "agreement": {name: asdict(value) for name, value in found.items()}}
    with written_whole(folder / "results.json") as partial:
        partial.write_text(json.dumps(results, indent=2, ensure_ascii=False), encoding="utf-8")
    bars = plot_scores(scores[first], first, counts, (intervals or {}) if first == "apd" else {})
    with written_whole(folder / "changes.png") as partial:
        bars.savefig(partial, dpi=150)
    return "\n".join(lines)
