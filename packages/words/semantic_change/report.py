"""The report on scored words: a ranked table, the agreement with gold scores, and figures."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import false_discovery_control

from modeling_tempoformer.common.figures import new_figure, save_figure
from modeling_tempoformer.common.files import written_whole
from modeling_tempoformer.common.markdown import escape_control_characters

from .measures import LEVEL, agreement
from .usages import Frequencies, describe_counts


CHANGES, RESULTS, FIGURE = "changes.csv", "results.json", "changes.png"
# The columns of the ends of the 95 % interval of `change`.
INTERVAL = ("change_low", "change_high")
# Columns about the certainty of scores. They follow the scores, and are no scores themselves.
CERTAINTY = ("above_steady", "times_chance", "p", "p_fdr", *INTERVAL)
# The two neighbouring times with the largest change.
STEP = "step"
# Prefixes of the columns of numbers for each time
COUNTS = ("usages_", "documents_", "per_million_")
DARK, LIGHT = "#1f6fb4", "#b7c4d1"
MOST_BARS = 50
# A word with so many usages at both ends may be scored, if the reader wants it.
FEW = 10


def format_table(rows: pd.DataFrame | Iterable[dict]) -> str:
    """Writes a table in aligned columns. Missing values are blank, and p-values below 0.001 become `<0.001`."""

    def format_cell(cell: Any) -> Any:
        if isinstance(cell, tuple):
            return "{:.3f} to {:.3f}".format(*cell)
        return escape_control_characters(cell) if isinstance(cell, str) else cell

    table = pd.DataFrame(rows).rename(columns=escape_control_characters).map(format_cell)
    for name in table.columns.intersection(("p", "p_fdr")):
        table[name] = ["<0.001" if p < 0.001 else "" if pd.isna(p) else f"{p:.3f}" for p in table[name]]
    return table.to_string(index=False, na_rep="", float_format="{:.3f}".format)


def ranked_table(
    columns: Mapping[str, Mapping[str, float]],
    counts: dict[str, dict[str, int]],
    truth: Mapping[str, float] | None = None,
    frequencies: Frequencies | None = None,
    documents: Mapping[str, Mapping[str, int]] | None = None,
    steady: Collection[str] = (),
    num_searched: int = 0,
) -> pd.DataFrame:
    """
    Makes a table with a row for each word, from the most changed to the least by the first measure. Words without a
    score come last, and words with the same score share their mean rank.

    Args:
        columns: The measures and, if there are any, `step` and the columns of [`CERTAINTY`], each by word. Beside `p`
            the table has `p_fdr`, adjusted for the number of words with a p-value (Benjamini and Hochberg, 1995), or
            for `num_searched`.
        counts: The number of usages of each word and time.
        truth: Gold scores by word.
        frequencies: The frequency of each word and time in the whole corpus.
        documents: The number of documents of these usages.
        steady: Words that are known to be steady. The table has `above_steady`, the first measure less its median over
            the steady words with a score.
        num_searched: The number of words among which the words of the table changed most.
    """
    table = pd.DataFrame(columns, index=pd.Index(list(counts), name="word"))
    measures = [name for name in table if name not in (*CERTAINTY, STEP)]
    first = measures[0]
    if "p" in table:
        table["p_fdr"] = table["p"]
        is_tested = table["p"].notna()
        tested = table.loc[is_tested, "p"]
        # Words that were passed over have a larger p, at most 1.
        passed_over = np.ones(max(num_searched - len(tested), 0))
        table.loc[is_tested, "p_fdr"] = false_discovery_control([*tested, *passed_over])[: len(tested)]
    if steady:
        table["above_steady"] = table[first] - table.loc[table.index.isin(steady), first].median()
    table = table[[*measures, *(name for name in (STEP, *CERTAINTY) if name in table)]]
    if truth is not None:
        table["gold"] = pd.Series(truth, dtype=float)
    per_million = {
        word: {time: frequency.per_million for time, frequency in by_time.items()}
        for word, by_time in (frequencies or {}).items()
    }
    for prefix, numbers in zip(COUNTS, (counts, documents or {}, per_million), strict=True):
        table = table.join(pd.DataFrame.from_dict(numbers, orient="index").add_prefix(prefix))
    table = table.sort_values(first, ascending=False, kind="stable").reset_index()
    table.insert(0, "rank", table[first].rank(ascending=False).map("{:g}".format, na_action="ignore"))
    return table


def measures_of(table: pd.DataFrame) -> list[str]:
    """Returns the names of the measures in a [`ranked_table`]; the first one orders it."""
    others = ("rank", "word", STEP, *CERTAINTY, "gold")
    return [name for name in table if name not in others and not name.startswith(COUNTS)]


def plot_scores(table: pd.DataFrame, times: Sequence[str]) -> Figure:
    """Plots bars of the [`MOST_BARS`] most changed words, with intervals if the first measure is `change`."""
    measure = measures_of(table)[0]
    scored = table.dropna(subset=measure)
    shown = scored.head(MOST_BARS)
    figure = new_figure(8, 1.6 + 0.22 * len(shown))
    axes = figure.subplots()
    is_chance = ~(shown["p_fdr"] < LEVEL) if "p_fdr" in shown else [False] * len(shown)
    axes.barh(range(len(shown)), shown[measure], height=0.6, color=[LIGHT if pale else DARK for pale in is_chance])
    axes.set_xlabel(measure)
    if measure == "change":
        lengths = shown[list(INTERVAL)].sub(shown["change"], axis=0).abs().T
        axes.errorbar(
            shown["change"], range(len(shown)), xerr=lengths, fmt="none", ecolor="black", elinewidth=1, capsize=2
        )
        axes.set_xlabel("change (0 to 100), with 95 % intervals")
    # Words with dollar signs are no formulas.
    axes.set_yticks(range(len(shown)), shown["word"].map(escape_control_characters), fontsize=8, parse_math=False)
    axes.invert_yaxis()
    first, last = escape_control_characters(times[0]), escape_control_characters(times[-1])
    most = f"The {len(shown)} most changed of " if len(shown) < len(scored) else ""
    pale = "\npale: not shown to be more than chance" if any(is_chance) else ""
    axes.set_title(f"{most}{len(scored)} words by change from {first} to {last}{pale}", parse_math=False)
    axes.margins(y=0.01)
    return figure


def conclude(
    table: pd.DataFrame, times: Sequence[str], steady: Collection[str] = (), drawn: bool = False
) -> list[str]:
    """
    Returns sentences about the words. The first counts those that changed more than chance and says how much more.
    Others count those that changed more than words that are known to be steady, or than nine in ten words that were
    `drawn` as steady ones, and name the words with too few documents for a test, those whose interval ends below a
    quarter of the largest change and, if there are more than two times, those with the largest change between
    neighbouring times.
    """
    changed, is_tested = table[table["p_fdr"] < LEVEL], table["p"].notna()
    sentences = []
    if is_tested.any():
        sentences.append(
            f"{len(changed)} of {is_tested.sum()} words changed more than chance from {times[0]} to {times[-1]} "
            f"(p_fdr below {LEVEL})"
        )
    known = changed.dropna(subset="times_chance")
    if len(known) > 1:
        least, most = (known.loc[known["times_chance"].agg(end)] for end in ("idxmin", "idxmax"))
        sentences[0] += (
            f": their usages are from {least['times_chance']:.1f} ('{least['word']}') to {most['times_chance']:.1f} "
            f"('{most['word']}') times as far apart as in shuffled documents"
        )
    is_steady = table["word"].isin(steady)
    if len(changed) and not is_steady.any():
        sentences[0] += ". With many documents steady words do, too: compare with some, which --steady names or draws"
    if is_steady.any():
        changes, others = table.loc[is_steady].set_index("word")["change"], table.loc[~is_steady, "change"]
        middle = f"with a median change of {changes.median():.1f}"
        if drawn:
            # Some of these may have changed.
            bound = changes.quantile(0.9)
            sentences.append(
                f"Words drawn from the corpora, most of them steady: {len(changes)}, {middle}, and nine in ten "
                f"have at most {bound:.1f} ({', '.join(changes.index)})"
            )
        else:
            bound = changes.max()
            sentences.append(
                f"Words that are known to be steady: {len(changes)}, {middle} and a largest one of {bound:.1f} "
                f"('{changes.idxmax()}')"
            )
        than = "nine in ten" if drawn else "each"
        sentences.append(f"{(others > bound).sum()} of the other {len(others)} changed more than {than} of them")
    if not is_tested.all():
        sentences.append(describe_untested(table[~is_tested], times))
    little_changed = table.loc[table[INTERVAL[1]] < table["change"].max() / 4, "word"]
    if len(changed) and len(little_changed):
        sentences.append(
            "These words changed little, because their whole interval is below a quarter of the change of "
            f"'{table['word'].iloc[0]}': {', '.join(little_changed)}"
        )
    if STEP in table and table["change_step"].notna().any():
        steps = table.dropna(subset="change_step").nlargest(3, "change_step")
        named = (f"{row['word']} ({row[STEP]}, {row['change_step']:.1f})" for _, row in steps.iterrows())
        sentences.append(f"Largest changes between neighbouring times: {', '.join(named)}")
    return [f"{sentence}." for sentence in sentences]


def describe_untested(table: pd.DataFrame, times: Sequence[str]) -> str:
    """Names the words without a p-value, with the numbers of their documents if they are known."""
    ends = [name for time in (times[0], times[-1]) if (name := f"documents_{time}") in table]
    words = [
        f"{row['word']} ({' and '.join(str(row[name]) for name in ends)})" if ends else row["word"]
        for _, row in table.iterrows()
    ]
    return (
        f"{len(words)} words are in too few documents at {times[0]} or {times[-1]} to tell their change from "
        f"differences between documents of the same time, so they have no p and no interval, which is not evidence "
        f"against change: {', '.join(words)}"
    )


def write_report(
    output_dir: str | Path,
    table: pd.DataFrame,
    times: Sequence[str],
    truth: Mapping[str, float] | None = None,
    left_out: dict[str, dict[str, int]] | None = None,
    seed: int = 0,
    concluded: Sequence[str] = (),
) -> str:
    """
    Writes `changes.csv`, `results.json` and the figure `changes`. Returns table, notes and agreement as text; the
    first note is what was `concluded`.
    """
    folder, left_out = Path(output_dir), left_out or {}
    scores = table.set_index("word")[measures_of(table)]
    missing: dict[str, list[str]] = {}
    # A word without a step has no path, either.
    without: dict[tuple[str, ...], list[str]] = {}
    for name in scores:
        if words := tuple(scores.index[scores[name].isna()]):
            without.setdefault(words, []).append(name)
    agreements: dict[str, dict] = {}
    notes = [" ".join(concluded)] if concluded else []
    if left_out:
        notes.append(f"Not compared, with too few usages at {times[0]} or {times[-1]}: {describe_counts(left_out)}.")
    nearly = {word: fewest for word, by in left_out.items() if (fewest := min(by[times[0]], by[times[-1]])) >= FEW}
    if nearly:
        notes.append(
            f"With --min_usages {min(nearly.values())} these of them have a score, with more noise: "
            f"{', '.join(nearly)}."
        )
    if truth is not None:
        missing["No gold score"] = [word for word in scores.index if word not in truth]
        missing["Not looked for"] = [word for word in truth if word not in {*scores.index, *left_out}]
        for name in scores:
            try:
                agreements[name] = agreement(scores[name], truth, seed)
            except ValueError as problem:
                notes.append(f"{name}: no correlation. {problem}")
    notes += [f"No score in {', '.join(names)}: {', '.join(words)}." for words, names in without.items()]
    notes += [f"{problem}: {', '.join(words)}." for problem, words in missing.items() if words]

    with written_whole(folder / CHANGES) as partial:
        table.to_csv(partial, index=False)
    with written_whole(folder / RESULTS) as partial:
        results = {"left_out": left_out, "agreement": agreements}
        partial.write_text(json.dumps(results, indent=2, ensure_ascii=False), encoding="utf-8")
    save_figure(plot_scores(table, times), folder / FIGURE)
    parts = [format_table(table), "", *map(escape_control_characters, notes)]
    if agreements:
        parts += ["", format_table({"measure": name, **values} for name, values in agreements.items())]
    return "\n".join(parts)
