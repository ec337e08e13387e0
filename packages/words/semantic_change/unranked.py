"""Words without a score of change: they are new or gone, or have too few usages at a time."""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import chi2_contingency

from modeling_tempoformer.common.files import written_whole

from .usages import Frequencies


UNRANKED = "unranked.csv"


def describe_presence(counts: Sequence[int], few: Sequence[str], times: Sequence[str]) -> str:
    """
    Describes at which times a word occurs.

    Args:
        counts: Its occurrences at each time, not all 0.
        few: The times with too few of them for a score.
        times: All times.
    """
    present = np.flatnonzero(counts)
    first, last = times[present[0]], times[present[-1]]
    begins_later, ends_earlier = present[0] > 0, present[-1] < len(times) - 1
    if begins_later and ends_earlier:
        return f"only in {first}" if first == last else f"only from {first} to {last}"
    if begins_later:
        return f"new in {first}"
    if ends_earlier:
        return f"last in {last}"
    return f"rare in {', '.join(few)}"


def frequency_change(counts: Sequence[int], corpus_words: Sequence[int]) -> float:
    """Log-likelihood ratio (G²) of a word's occurrences at all times against the same frequency at each time."""
    others = np.subtract(corpus_words, counts)
    return float(chi2_contingency([counts, others], correction=False, lambda_="log-likelihood").statistic)


def unranked_table(
    left_out: Mapping[str, Mapping[str, int]],
    times: Sequence[str],
    min_usages: int,
    frequencies: Frequencies | None = None,
    documents: Mapping[str, Mapping[str, int]] | None = None,
) -> pd.DataFrame:
    """
    Makes a table of the words that are left out and have usages, with a row for each. Words that do not occur at some
    time come before rare ones. Within both, words are in the order of the change of their frequency, the largest
    first; without frequencies, of their number of usages.

    Args:
        left_out: Their numbers of sampled usages, by word and time.
        times: The time points.
        min_usages: The number of usages at each time that a score needs.
        frequencies: Frequencies in the whole corpus.
        documents: The numbers of documents of the sampled usages, by word and time.
    """
    rows = []
    for word, by_time in left_out.items():
        if not any(by_time.values()):
            continue
        frequency = (frequencies or {}).get(word)
        counts = [frequency[time].count for time in times] if frequency else [by_time[time] for time in times]
        row = {
            "word": word,
            "when": describe_presence(counts, [time for time in times if by_time[time] < min_usages], times),
            **{f"usages_{time}": by_time[time] for time in times},
            **({f"documents_{time}": documents[word][time] for time in times} if documents else {}),
        }
        place = sum(counts)
        if frequency:
            place = frequency_change(counts, [frequency[time].corpus_words for time in times])
            row |= {f"per_million_{time}": frequency[time].per_million for time in times} | {"frequency_change": place}
        rows.append(((row["when"].startswith("rare"), -place), row))
    ranked = [row for _, row in sorted(rows, key=itemgetter(0))]
    return pd.DataFrame(ranked, columns=list(ranked[0]) if ranked else ["word"])


def write_unranked(folder: Path, *settings) -> pd.DataFrame:
    """Writes the table of [`unranked_table`] to `unranked.csv`, unless it is empty. Returns the table."""
    table = unranked_table(*settings)
    (folder / UNRANKED).unlink(missing_ok=True)
    if len(table):
        with written_whole(folder / UNRANKED) as partial:
            table.to_csv(partial, index=False)
    return table
