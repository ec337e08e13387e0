"""What is looked at after scoring words: a ranked table, the agreement with gold scores, and a figure."""

import csv
import json
import math
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from scipy.stats import rankdata
from transformers.utils import logging

from ..evaluation.figures import new_figure
from ..evaluation.text_tables import format_table, printable
from .measures import agreement


if TYPE_CHECKING:
    from matplotlib.figure import Figure

logger = logging.get_logger(__name__)


def rank(scores: dict[str, float]) -> dict[str, int | float]:
    """1 for the word that changed most; words with the same score share their mean rank; NaN has none."""
    words = [word for word, score in scores.items() if not math.isnan(score)]
    ranks = rankdata([-scores[word] for word in words]).tolist()
    return {word: int(place) if place == int(place) else place for word, place in zip(words, ranks, strict=True)}


def ranked_rows(
    scores: dict[str, dict[str, float]], counts: dict[str, dict[str, int]], truth: dict[str, float] | None
) -> list[dict[str, str | float | int]]:
    """
    One row per word, by the first measure from the most changed to the least; words without a score come last.

    Args:
        scores: For each measure the score of each word, NaN where there is none.
        counts: For each word its usages at each time.
        truth: Gold scores by word.
    """
    first = next(iter(scores.values()))
    order = sorted(
        first, key=lambda word: (math.isnan(first[word]), -first[word] if first[word] == first[word] else 0)
    )
    ranks = rank(first)
    gold_ranks = rank({word: score for word, score in (truth or {}).items() if word in ranks})
    rows = []
    for word in order:
        row = {"rank": ranks.get(word, ""), "word": word}
        row |= {name: "" if math.isnan(of_word[word]) else of_word[word] for name, of_word in scores.items()}
        if truth is not None:
            row |= {"gold": truth.get(word, ""), "gold_rank": gold_ranks.get(word, "")}
        rows.append(row | {f"usages_{time}": count for time, count in counts[word].items()})
    return rows


def plot_ranks(path: Path, scores: dict[str, float], truth: dict[str, float], title: str):
    """Predicted against gold ranks, each word at its place. Raises an `ImportError` without matplotlib."""
    words = [word for word in truth if not math.isnan(scores.get(word, math.nan))]
    predicted, gold = (rank({word: values[word] for word in words}) for values in (scores, truth))
    figure = new_figure(7, 7)
    axes = figure.subplots()
    axes.plot([1, len(words)], [1, len(words)], color="0.8", zorder=0)
    axes.scatter([gold[word] for word in words], [predicted[word] for word in words], s=18)
    for word in words:
        # Words with dollars are no formulas.
        place = {"xytext": (4, 3), "textcoords": "offset points", "fontsize": 8, "parse_math": False}
        axes.annotate(printable(word), (gold[word], predicted[word]), **place)
    axes.set(xlabel="gold rank (1: changed most)", ylabel="predicted rank", title=title)
    axes.margins(x=0.15, y=0.05)
    axes.invert_xaxis()
    axes.invert_yaxis()
    figure.savefig(path, dpi=150)


def plot_scores(scores: dict[str, float], measure: str, most: int = 50) -> "Figure":
    """The words from the most changed to the least, those without a score left out; of many only the first."""
    ranked = sorted((word for word in scores if not math.isnan(scores[word])), key=lambda word: -scores[word])
    shown = ranked[:most]
    figure = new_figure(7, 1.2 + 0.22 * len(shown))
    axes = figure.subplots()
    places = range(len(shown))
    axes.barh(places, [scores[word] for word in shown], height=0.6)
    # Words with dollars are no formulas.
    axes.set_yticks(places, [printable(word) for word in shown], fontsize=8, parse_math=False)
    axes.invert_yaxis()
    which = f"the {len(shown)} most changed of {len(ranked)} words" if len(shown) < len(ranked) else "words by change"
    axes.set(xlabel=measure, title=which)
    axes.margins(y=0.01)
    return figure


def write_report(
    output_dir: str | Path,
    scores: dict[str, dict[str, float]],
    counts: dict[str, dict[str, int]],
    truth: dict[str, float] | None = None,
    seed: int = 0,
) -> str:
    """
    Writes `changes.csv`, `results.json` and, for the first measure, `changes.png` (where matplotlib is installed) and,
    with gold scores, `ranks.png`.

    Returns:
        The table and the agreement as text; a further measure whose correlation cannot be had is said there. Raises a
        `ValueError` where no word has a score of the first measure, or where these and the gold scores have too few
        words in common.
    """
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    first = next(iter(scores))
    if all(math.isnan(score) for score in scores[first].values()):
        raise ValueError(f"'{first}' has no score for any of the {len(counts)} words: {', '.join(counts)}.")
    rows = ranked_rows(scores, counts, truth)
    with (folder / "changes.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    gaps = {word: [time for time, count in of_time.items() if not count] for word, of_time in counts.items()}
    gaps = {word: times for word, times in gaps.items() if times}
    results = {"gaps": gaps, "agreement": {}}
    lines = [format_table(rows), ""]
    if gaps:
        lines += [f"No usage of '{word}' in {', '.join(times)}." for word, times in gaps.items()] + [""]
    if truth is None:
        for name, of_word in scores.items():
            if without := [word for word, score in of_word.items() if math.isnan(score)]:
                lines.append(f"{name}: no score for {', '.join(without)}.")
    else:
        found, refused = {first: agreement(scores[first], truth, seed)}, []
        for name, of_word in scores.items():
            if name != first:
                try:
                    found[name] = agreement(of_word, truth, seed)
                except ValueError as problem:
                    refused.append(f"{name}: no correlation. {problem}")
        results["agreement"] = {name: asdict(value) for name, value in found.items()}
        table = [
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
        ]
        lines += [format_table(table), *refused]
        for name, value in found.items():
            if value.missing:
                lines.append(f"{name}: no score for {', '.join(value.missing)}, which have a gold score.")
            if value.extra:
                lines.append(f"{name}: no gold score for {', '.join(value.extra)}.")
    (folder / "results.json").write_text(json.dumps(results, indent=2, ensure_ascii=False), encoding="utf-8")
    if find_spec("matplotlib") is None:
        logger.warning('No changes.png without matplotlib: pip install "modeling-tempoformer[change]".')
    else:
        plot_scores(scores[first], first).savefig(folder / "changes.png", dpi=150)
    if truth is not None:
        plot_ranks(folder / "ranks.png", scores[first], truth, f"{first}: Spearman {found[first].spearman:.2f}")
    return "\n".join(lines)
