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

from modeling_tempoformer.posts.files import written_whole

from .citations import sentence_of
from .keywords import Collocate, WordsAround
from .measures import design_effects, share_interval
from .senses import Senses, SenseSpace, choose_senses, find_senses
from .usages import Usage, Usages, UsagesByText, by_age, context, number_documents


# They hold texts, so their names begin with an underscore: such files are never pushed.
USAGES = "_usages.parquet"
SENSES = "senses.csv"
NUM_EARLIEST = 5
NUM_NEIGHBOURS = 10
# The vectors of usages by word and time.
VectorsByWord = Mapping[str, Mapping[str, np.ndarray]]


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
        is_whole (`bool`): Whether the earliest usages were sought among all usages in the corpus. If not, they are the
            earliest in the sample.
        collocates (`list[list[Collocate]]`): The collocates at each time.
    """

    usages: list[Usage]
    vectors: np.ndarray
    options: list[Senses]
    chosen: int
    labels: np.ndarray
    earliest: list[int]
    neighbours: dict[int, list[int]]
    is_whole: bool
    collocates: list[list[Collocate]]

    @property
    def senses(self) -> Senses:
        """The senses of the chosen option."""
        return self.options[self.chosen]

    def first_usages(self, option: int, sense: int) -> list[int]:
        """Returns the five earliest usages of a sense, one from each text."""
        return first_of(self.earliest, self.labels[option] == sense, self.usages)

    def support(self, option: int, usage: int) -> float:
        """Returns the share of a usage's neighbours that have its sense."""
        labels = self.labels[option]
        return float(np.mean(labels[self.neighbours[usage]] == labels[usage]))


def first_of(earliest: Iterable[int], is_member: np.ndarray, usages: Sequence[Usage]) -> list[int]:
    """Returns the first five usages that are members, one from each text."""
    by_text: dict[str, int] = {}
    for usage in earliest:
        if is_member[usage] and len(by_text) < NUM_EARLIEST:
            by_text.setdefault(usages[usage].text, usage)
    return list(by_text.values())


def make_entry(
    usages: Mapping[str, Sequence[Usage]],
    vectors: Mapping[str, np.ndarray],
    everything: Iterable[Usage] = (),
    others: tuple[Sequence[Usage], np.ndarray] | None = None,
    seed: int = 0,
    frequent: Collection[str] = (),
) -> Entry:
    """
    Makes the entry of a word.

    Args:
        usages, vectors: Its sampled usages, and their vectors, by time in the order of times.
        everything: All its usages in the order of the corpus, which is the order of usages of the same date.
        others: The usages outside the sample and their vectors, if the earliest are sought among all.
        seed: Seed of the clustering.
        frequent: Words that are no keywords and no collocates.
    """
    sampled = [usage for part in usages.values() for usage in part]
    joined = np.concatenate(list(vectors.values()))
    options, space = find_senses(usages, vectors, seed, frequent), SenseSpace(joined)
    points = space.place(joined)
    pool, labels = sampled, np.stack([option.labels for option in options])
    if others is not None and len(others[0]):
        outside = space.place(others[1])
        pool, points = [*sampled, *others[0]], np.concatenate([points, outside])
        labels = np.hstack([labels, np.stack([option.find_nearest(outside) for option in options])])
    # Equal usages share one position in the order.
    place = {usage: number for number, usage in enumerate(by_age([*everything, *pool], list(usages)))}
    order = sorted(range(len(pool)), key=lambda index: place[pool[index]])
    first = {
        index for row in labels for sense in range(row.max() + 1) for index in first_of(order, row == sense, pool)
    }
    kept = [*range(len(sampled)), *sorted(index for index in first if index >= len(sampled))]
    number = {index: new for new, index in enumerate(kept)}
    distances = cdist(points[sorted(first)], points[: len(sampled)])
    neighbours = {}
    for index, row in zip(sorted(first), distances, strict=True):
        near = [other for other in np.argsort(row, kind="stable").tolist() if other != index]
        neighbours[number[index]] = near[:NUM_NEIGHBOURS]
    times = np.repeat(np.arange(len(usages)), [len(part) for part in usages.values()])
    return Entry(
        usages=[pool[index] for index in kept],
        vectors=joined,
        options=options,
        chosen=choose_senses(options),
        labels=labels[:, kept],
        earliest=[number[index] for index in order if index in number],
        neighbours=neighbours,
        is_whole=others is not None,
        collocates=WordsAround(list(map(context, sampled)), frequent).collocates(times, len(usages)),
    )


def make_entries(
    usages: Usages,
    vectors: VectorsByWord,
    found: UsagesByText,
    read: Callable[[Usages], tuple[Usages, VectorsByWord]],
    most: int,
    seed: int = 0,
    frequent: Collection[str] = (),
) -> dict[str, Entry]:
    """
    Makes the entries of words.

    Args:
        usages, vectors: The sampled usages and their vectors.
        found: All usages in the corpus.
        read: Returns the usages that an encoder knows, and their vectors.
        most: The most usages outside the sample that are read for first attestations. Words are taken in their order,
            each with all of its usages or none.
        seed, frequent: See [`make_entry`].
    """
    outside: Usages = {}
    for word, by_time in usages.items():
        sampled = {usage for part in by_time.values() for usage in part}
        others = {
            time: [usage for part in found[word][time] for usage in part if usage not in sampled] for time in by_time
        }
        if (count := sum(map(len, others.values()))) <= most:
            outside[word], most = others, most - count
    known, their_vectors = read(outside)
    return {
        word: make_entry(
            by_time,
            vectors[word],
            [usage for parts in found[word].values() for part in parts for usage in part],
            join(known[word], their_vectors[word]) if word in known else None,
            seed,
            frequent,
        )
        for word, by_time in usages.items()
    }


def join(by_time: Mapping[str, Sequence[Usage]], vectors: Mapping[str, np.ndarray]) -> tuple[list[Usage], np.ndarray]:
    """Joins the usages of all times, and their vectors."""
    return [usage for part in by_time.values() for usage in part], np.concatenate(list(vectors.values()))


def sense_rows(word: str, entry: Entry, times: Sequence[str]) -> Iterable[dict[str, Any]]:
    """Yields a row of `senses.csv` for each sense of a word."""
    labels, sampled = entry.senses.labels, entry.usages[: len(entry.senses.labels)]
    documents = number_documents(sampled)
    # Documents are numbered in the order of times, as usages are.
    ends = np.cumsum([len({usage.document for usage in sampled if usage.time == time}) for time in times])
    totals = np.split(np.bincount(documents), ends[:-1])
    for sense in range(len(entry.senses.counts)):
        row = {"word": word, "sense": sense + 1, "keywords": ", ".join(entry.senses.keywords[sense])}
        counts = np.split(np.bincount(documents[labels == sense], minlength=ends[-1]), ends[:-1])
        for time, part, total, effect in zip(times, counts, totals, design_effects(counts, totals), strict=True):
            share = share_interval(part.sum(), total.sum(), effect) if len(total) else [math.nan] * 3
            names = (f"{name}_{time}" for name in ("share", "share_low", "share_high"))
            row |= {f"usages_{time}": int(part.sum()), f"documents_{time}": np.count_nonzero(part)}
            row |= {name: round(value, 4) for name, value in zip(names, share, strict=True)}
        earliest = entry.first_usages(entry.chosen, sense)[0]
        usage = entry.usages[earliest]
        yield row | {
            "first_time": usage.time,
            "first_date": usage.date,
            "first_source": usage.source,
            "first_support": entry.support(entry.chosen, earliest),
            "first_among": "all usages" if entry.is_whole else "the sample",
        }


def write_entries(folder: Path, entries: Mapping[str, Entry], times: Sequence[str]):
    """
    Writes `senses.csv`, and a Parquet file with a row for each sampled usage: `word`, `sense`, the attributes of
    [`Usage`], its `sentence`, and `vector` (float32).
    """
    senses = [row for word, entry in entries.items() for row in sense_rows(word, entry, times)]
    with written_whole(folder / SENSES) as partial:
        pd.DataFrame(senses).to_csv(partial, index=False)
    rows = [
        {"word": word, "sense": sense + 1, **asdict(usage), "sentence": "".join(sentence_of(usage))}
        for word, entry in entries.items()
        for usage, sense in zip(entry.usages, entry.senses.labels.tolist(), strict=False)
    ]
    joined = np.concatenate([entry.vectors for entry in entries.values()])
    column = pa.FixedSizeListArray.from_arrays(joined.ravel(), joined.shape[1])
    with written_whole(folder / USAGES) as partial:
        pq.write_table(pa.Table.from_pylist(rows).append_column("vector", column), partial)
