"""Entries of words, as in a dictionary: usages, senses, first attestations and collocates."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.spatial.distance import cdist

from modeling_tempoformer import read_date
from modeling_tempoformer.common.files import written_whole
from modeling_tempoformer.common.progress import Progress

from .attestations import Search, VectorsByWord, first_usage, search_all
from .citations import sentence_of
from .durel import identify
from .keywords import Collocate, Keywords
from .known_senses import KnownSenses
from .measures import LEVEL
from .sense_shares import Groups, judge_sense, shares_of_senses
from .senses import NUM_NEIGHBOURS, SUPPORTED, Senses
from .usages import Usage, Usages, UsagesByText, number_documents


# They hold texts, so their names begin with an underscore: such files are never pushed.
USAGES = "_usages.parquet"
SENSES = "senses.csv"
TRENDS = "trends.csv"
USAGES_TABLE = "_usages.csv"
SPLITS = "splits.csv"
ENTRY_FILES = (SENSES, SPLITS, TRENDS, USAGES, USAGES_TABLE)
# With more years than these a trend is by decade.
FEW_YEARS = 10


@dataclass(frozen=True)
class Entry:
    """
    The usages of a word, its senses and its collocates.

    Attributes:
        usages (`list[Usage]`): The sampled usages in the order of times, then those outside the sample that are among
            the five earliest of a sense.
        vectors (`np.ndarray` of shape `(sampled, width)`): The vectors of the sampled usages.
        options (`list[Senses]`): Its senses, for each number of them.
        chosen (`int`): The index of the option that [`choose_senses`] chooses.
        labels (`np.ndarray` of shape `(options, usages)`): The sense of each usage. Outside the sample it is the sense
            whose middle is nearest.
        earliest (`list[int]`): The usages from the earliest to the latest.
        neighbours (`dict[int, list[int]]`): The ten sampled usages that are nearest to each usage that may be among
            the five earliest of a sense. The more of them have the same sense, the surer is the usage's sense.
        num_sure (`int`): The number of usages in `earliest` that are older than all that were not read. Behind them,
            the corpus may have earlier ones.
        collocates (`list[list[Collocate]]`): The collocates at each time.
    """

    usages: list[Usage]
    vectors: np.ndarray
    options: list[Senses]
    chosen: int
    labels: np.ndarray
    earliest: list[int]
    neighbours: dict[int, list[int]]
    num_sure: int
    collocates: list[list[Collocate]]

    @property
    def sampled(self) -> list[Usage]:
        """The usages in the sample."""
        return self.usages[: len(self.vectors)]

    @property
    def senses(self) -> Senses:
        """The senses of the chosen option."""
        return self.options[self.chosen]

    def first_usages(self, option: int, sense: int) -> list[int]:
        """Returns the five earliest usages of a sense, one from each text."""
        return first_usage(self.earliest, self.labels[option] == sense, self.usages)

    def is_sure(self, usage: int) -> bool:
        """Tells whether all usages in the corpus that are older than this one were read."""
        return usage in self.earliest[: self.num_sure]

    def by_time(self, times: Sequence[str]) -> Groups:
        """Returns the sampled usages by time."""
        groups = np.array([times.index(usage.time) for usage in self.sampled], dtype=int)
        return Groups(groups, number_documents(self.sampled), len(times))

    def shares(self, option: int, groups: Groups) -> np.ndarray:
        """Returns the [`shares_of_senses`] of an option in groups of the sampled usages."""
        senses = self.options[option]
        return shares_of_senses(senses, senses.labels, senses.are_quoted(self.sampled), groups)

    @property
    def largest_share(self) -> float:
        """The share of the largest known sense among the sampled usages of all times, NaN if it is not counted."""
        usages = np.zeros(len(self.vectors), dtype=int)
        shares = self.shares(self.chosen, Groups(usages, number_documents(self.sampled), 1))[:, 0, 0]
        return math.nan if np.isnan(shares).all() else float(np.nanmax(shares))

    def describe_right(self) -> str:
        """Tells how right known senses are, and whether their shares can be counted."""
        known = self.senses.known
        if math.isnan(known.share_right):
            return "shares are not to be counted, because no sense has two quotations that tell how right it is"
        right = f"{percent(known.share_right)} of the quotations have their sense, each assigned by the other texts"
        num_right, number = known.supported
        worth = f"; with a support of {SUPPORTED} and more, {num_right} of {number} are right"
        if not known.tells_senses:
            return f"{right}, which is not more than by chance, so shares are not to be counted{worth}"
        return f"{right} (the largest sense has {percent(self.largest_share)} of the usages){worth}"

    def support(self, option: int, usage: int) -> float:
        """Returns the share of a usage's neighbours that have its sense, NaN for the only usage of a word."""
        labels, near = self.labels[option], self.neighbours[usage]
        return float(np.mean(labels[near] == labels[usage])) if near else math.nan


def make_entry(search: Search, frequent: Collection[str] = ()) -> Entry:
    """Makes the entry of a word from its senses and what was read. `frequent` words are collocates only beside it."""
    sampled = search.pool[: len(search.options[0].labels)]
    order, labels, pool = search.order, search.labels, search.pool
    first = {
        index for row in labels for sense in range(row.max() + 1) for index in first_usage(order, row == sense, pool)
    }
    kept = [*range(len(sampled)), *sorted(index for index in first if index >= len(sampled))]
    number = {index: new for new, index in enumerate(kept)}
    distances = cdist(search.points[sorted(first)], search.points[: len(sampled)])
    neighbours = {}
    for index, row in zip(sorted(first), distances, strict=True):
        near = [other for other in np.argsort(row, kind="stable").tolist() if other != index]
        neighbours[number[index]] = near[:NUM_NEIGHBOURS]
    times = np.array([search.times.index(usage.time) for usage in sampled])
    return Entry(
        usages=[pool[index] for index in kept],
        vectors=search.vectors,
        options=search.options,
        chosen=search.chosen,
        labels=labels[:, kept],
        earliest=[number[index] for index in order if index in number],
        neighbours=neighbours,
        num_sure=sum(index in number for index in order[: search.num_sure]),
        collocates=Keywords(sampled, frequent).collocates(times, len(search.times)),
    )


def make_entries(
    usages: Usages,
    vectors: VectorsByWord,
    found: UsagesByText,
    read: Callable[[Usages], tuple[Usages, VectorsByWord]],
    most: int,
    seed: int = 0,
    frequent: Collection[str] = (),
    known: Mapping[str, KnownSenses] | None = None,
) -> dict[str, Entry]:
    """
    Makes the entries of words.

    Args:
        usages, vectors: The sampled usages and their vectors, of each word by time in the order of times.
        found: All usages in the corpus, in its order, which is the order of usages of the same date.
        read: Returns the usages that an encoder knows, and their vectors.
        most: The most usages to read for attestations, beside the five oldest of each word.
        seed: Seed of the clustering.
        frequent: Words that are no keywords and no collocates, unless they stand right beside the word.
        known: The known senses of words; the usages of others are clustered.
    """
    searches, progress = {}, Progress("Words whose senses were found", len(usages))
    for word, by_time in usages.items():
        everything = [usage for parts in found[word].values() for part in parts for usage in part]
        searches[word] = Search(by_time, vectors[word], everything, seed, frequent, (known or {}).get(word))
        progress.add(1)
    search_all(searches, read, most)
    return {word: make_entry(search, frequent) for word, search in searches.items()}


def sense_rows(word: str, entry: Entry, times: Sequence[str]) -> Iterable[dict[str, Any]]:
    """Yields a row of `senses.csv` for each sense of a word."""
    senses, groups = entry.senses, entry.by_time(times)
    shares, is_one = entry.shares(entry.chosen, groups), len(senses.counts) == 1
    for sense in range(len(senses.counts)):
        names = {"name": senses.names[sense], "keywords": ", ".join(senses.keywords[sense])}
        row = {"word": word, "sense": sense + 1, **names}
        if not is_one:
            row["verdict"] = judge_sense(shares[sense, 0], shares[sense, -1])
        for time, part, share in zip(times, groups.count(senses.labels == sense), shares[sense], strict=True):
            row |= {f"usages_{time}": part["usages"], f"documents_{time}": part["documents"]} | name_share(share, time)
        if senses.known is not None:
            row |= {
                "quotations_right": round(senses.known.share_right, 4),
                "largest_share": round(entry.largest_share, 4),
            }
        # A known sense may have no usage.
        for earliest in entry.first_usages(entry.chosen, sense)[:1]:
            usage = entry.usages[earliest]
            row |= {
                "first_time": usage.time,
                "first_date": usage.date,
                "first_source": usage.source,
                # All usages have the only sense.
                "first_support": math.nan if is_one else entry.support(entry.chosen, earliest),
                "first_among": "all usages" if entry.is_sure(earliest) else "those read",
            }
        yield row


def percent(share: float) -> str:
    return f"{round(100 * share)} %"


def split_row(word: str, entry: Entry, times: Sequence[str]) -> dict[str, Any]:
    """Returns the row of `splits.csv` of a word: its usages in two clusters."""
    split = entry.options[1]
    shares = entry.shares(1, entry.by_time(times))
    row = {"word": word, "senses": len(entry.senses.counts), "silhouette": round(split.silhouette, 4), "p": split.p}
    for sense, keywords in enumerate(split.keywords):
        row[f"keywords_{sense + 1}"] = ", ".join(keywords)
        for time, share in zip(times, shares[sense, :, 0].round(4).tolist(), strict=True):
            row[f"share_{sense + 1}_{time}"] = share
    return row


def describe_splits(entries: Mapping[str, Entry]) -> list[str]:
    """Counts the words whose usages have one cluster. Returns a sentence, or none without such words."""
    clustered = [entry for entry in entries.values() if entry.senses.known is None]
    ones = [entry for entry in clustered if len(entry.senses.counts) == 1]
    moving = sum(len(entry.options) > 1 and entry.options[1].p < LEVEL for entry in ones)
    if not ones:
        return []
    return [
        f"One sense is proposed for {len(ones)} of {len(clustered)} words, which is no evidence that they have one: "
        f"{SPLITS} has each word in two, and for {moving} of these the shares of the two change more than chance "
        f"(p below {LEVEL})."
    ]


def name_share(share: np.ndarray, time: str = "") -> dict[str, float]:
    """Returns the columns of a share and of the ends of its interval, of a time or without one."""
    names = [f"{name}_{time}" if time else name for name in ("share", "share_low", "share_high")]
    return dict(zip(names, share.round(4).tolist(), strict=True))


class Periods:
    """
    The decades of the dated usages of words in the sample, or their years if there are at most ten.

    Attributes:
        spans (`list[tuple[int, int]]`): The first and the last year of each, in their order.
    """

    def __init__(self, entries: Iterable[Entry]):
        dates = {usage.date for entry in entries for usage in entry.sampled}
        years = {date: read[0] for date in dates if (read := read_date(date)) is not None}
        self._size = 1 if len(set(years.values())) <= FEW_YEARS else 10
        self._first = {date: year // self._size * self._size for date, year in years.items()}
        firsts = sorted(set(self._first.values()))
        self.spans = [(first, first + self._size - 1) for first in firsts]
        self._index = {first: index for index, first in enumerate(firsts)}

    def find(self, usages: Iterable[Usage]) -> np.ndarray:
        """Returns the index of each usage's period (usages,), -1 without a date."""
        return np.array([self._index.get(self._first.get(usage.date), -1) for usage in usages], dtype=int)


def trend_rows(word: str, entry: Entry, periods: Periods) -> Iterable[dict[str, Any]]:
    """Yields a row of `trends.csv` for each sense of a word and each period with a dated usage."""
    groups = Groups(periods.find(entry.sampled), number_documents(entry.sampled), len(periods.spans))
    shares = entry.shares(entry.chosen, groups)
    for sense, name in enumerate(entry.senses.names):
        parts = groups.count(entry.senses.labels == sense)
        for (first, last), part, share in zip(periods.spans, parts, shares[sense], strict=True):
            if part["total"]:
                about = {"word": word, "sense": sense + 1, "name": name, "from": first, "to": last}
                yield about | part | name_share(share)


def write_entries(folder: Path, entries: Mapping[str, Entry], times: Sequence[str]):
    """
    Writes `senses.csv`, `splits.csv` and `trends.csv`; a Parquet file with a row for each sampled usage: `word`,
    `sense`, `name` (of the sense), the attributes of [`Usage`], its `sentence`, `identifier` ([`identify`]) and
    `vector` (float32); and a CSV file with the same usages for spreadsheets, with the text on the left, the form and
    the text on the right.
    """
    periods = Periods(entries.values())
    tables = {
        SENSES: [row for word, entry in entries.items() for row in sense_rows(word, entry, times)],
        SPLITS: [
            split_row(word, entry, times)
            for word, entry in entries.items()
            if entry.senses.known is None and len(entry.options) > 1
        ],
        TRENDS: [row for word, entry in entries.items() for row in trend_rows(word, entry, periods)],
    }
    tables[SPLITS].sort(key=lambda row: (math.isnan(row["p"]), row["p"]))
    for name, table in tables.items():
        # Texts without dates have no trend, and few usages no split.
        if table:
            with written_whole(folder / name) as partial:
                pd.DataFrame(table).to_csv(partial, index=False)
    rows, cells = [], []
    for word, entry in entries.items():
        for usage, sense in zip(entry.usages, entry.senses.labels.tolist(), strict=False):
            about = {"word": word, "sense": sense + 1, "name": entry.senses.names[sense]}
            left, form, right = sentence_of(usage)
            shown = {"sentence": left + form + right, "identifier": identify(word, usage)}
            rows.append({**about, **asdict(usage), **shown})
            dated = {name: getattr(usage, name) for name in ("time", "date", "source", "document")}
            cells.append(
                {**about, **dated, "left": left, "form": form, "right": right, "identifier": shown["identifier"]}
            )
    joined = np.concatenate([entry.vectors for entry in entries.values()])
    column = pa.FixedSizeListArray.from_arrays(joined.ravel(), joined.shape[1])
    with written_whole(folder / USAGES) as partial:
        pq.write_table(pa.Table.from_pylist(rows).append_column("vector", column), partial)
    with written_whole(folder / USAGES_TABLE) as partial:
        # The mark at the start tells spreadsheets that it is UTF-8.
        pd.DataFrame(cells).to_csv(partial, index=False, encoding="utf-8-sig")
