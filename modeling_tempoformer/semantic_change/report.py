"""The report on scored words: a ranked table, the agreement with gold scores, and figures."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from scipy.stats import false_discovery_control
from transformers.utils import logging

from ..cards.markdown import escape_control_characters
from ..data.files import written_whole
from .measures import Agreement, agreement
from .usages import describe_counts


if TYPE_CHECKING:
    from matplotlib.figure import Figure

logger = logging.get_logger(__name__)


def format_table(rows: pd.DataFrame | Iterable[dict]) -> str:
    """A table in aligned columns. Numbers have three digits, missing values are blank."""
    table = pd.DataFrame(rows).rename(columns=escape_control_characters)
    table = table.map(lambda cell: escape_control_characters(cell) if isinstance(cell, str) else cell)
    return table.to_string(index=False, na_rep="", float_format="{:.3f}".format)


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure, sizes in inches."""
    from matplotlib.figure import Figure  # Only here, because it belongs to the extra `change`.

    return Figure(figsize=(width, height), layout="constrained")


def ranked_table(
    scores: dict[str, dict[str, float]],
    counts: dict[str, dict[str, int]],
    truth: dict[str, float] | None,
    p_values: dict[str, float],
) -> pd.DataFrame:
    """
    One row for each word, from the most changed to the least by the first measure; words without a score come last.
    Rank 1 changed most, and words with the same score share their mean rank. Gold ranks are among the words that have
    both scores.
    """
    first, *_ = scores
    table = pd.DataFrame(scores, index=pd.Index(scores[first], name="word"))
    ranks = {"rank": table[first].rank(ascending=False)}
    if p_values:
        table["p"] = pd.Series(p_values, dtype=float)
        table["p_fdr"] = false_discovery_control(table["p"])
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
    axes.set(xlabel="gold rank (1: changed most)", ylabel="predicted rank", title=title)
    axes.margins(x=0.15, y=0.05)
    axes.invert_xaxis()
    axes.invert_yaxis()
    with written_whole(path) as partial:
        figure.savefig(partial, dpi=150)


def plot_scores(scores: dict[str, float], measure: str, max_words: int = 50) -> "Figure":
    """Bars of the words with a score, from the most changed to the least; at most `max_words` of them."""
    ranked = pd.Series(scores).dropna().sort_values(ascending=False, kind="stable")
    shown = ranked.head(max_words)
    figure = new_figure(7, 1.2 + 0.22 * len(shown))
    axes = figure.subplots()
    axes.barh(range(len(shown)), shown, height=0.6)
    # A word with dollar signs is not a formula.
    axes.set_yticks(range(len(shown)), map(escape_control_characters, shown.index), fontsize=8, parse_math=False)
    axes.invert_yaxis()
    title = "words by change" if len(shown) == len(ranked) else f"the {len(shown)} most changed of {len(ranked)} words"
    axes.set(xlabel=measure, title=title)
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
) -> str:
    """
    Writes `changes.csv`, `results.json` and, for the first measure, `changes.png` (if matplotlib is installed) and,
    with gold scores, `ranks.png`.

    Args:
        output_dir: Folder of the files; created if needed.
        scores: For each measure the score of each word, NaN if it has none.
        counts: For each word its number of usages at each time.
        truth: Gold scores by word.
        seed: Seed of the bootstrap.
        p_values: For each word the p-value of its change. Beside it, `p_fdr` is adjusted for the number of words
            (Benjamini and Hochberg, 1995).
        left_out: For each word that is too rare to score its number of usages at each time.

    Returns:
        The table and the agreement with gold scores as text, which also names the words that are left out and the
        measures without a correlation. Raises a `ValueError` if the first measure has no score for any word, or no
        correlation with the gold scores.
    """
    folder = Path(output_dir)
    first, *_ = scores
    if pd.Series(scores[first]).isna().all():
        raise ValueError(f"'{first}' has no score for any of the {len(counts)} words: {', '.join(counts)}.")
    table = ranked_table(scores, counts, truth, p_values or {})
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
        plot_ranks(folder / "ranks.png", scores[first], truth, f"{first}: Spearman {found[first].spearman:.2f}")
    results = {"left_out": left_out or {}, "agreement": {name: asdict(value) for name, value in found.items()}}
    with written_whole(folder / "results.json") as partial:
        partial.write_text(json.dumps(results, indent=2, ensure_ascii=False), encoding="utf-8")
    if find_spec("matplotlib") is None:
        logger.warning('No changes.png without matplotlib: pip install "modeling-tempoformer[change]".')
    else:
        with written_whole(folder / "changes.png") as partial:
            plot_scores(scores[first], first).savefig(partial, dpi=150)
    return "\n".join(lines)
