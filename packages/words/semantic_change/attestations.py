"""Finds the first usages of words and of their senses: usages are read from the oldest until none can be missing."""

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np

from modeling_tempoformer.common.progress import Progress

from .known_senses import KnownSenses
from .senses import SenseSpace, choose_senses, find_senses
from .usages import Usage, Usages, by_age


NUM_EARLIEST = 5
# The usages of each word that are read at once; each turn reads twice as many as the one before.
FIRST_TURN = 25
# The vectors of usages by word and time.
VectorsByWord = Mapping[str, Mapping[str, np.ndarray]]


def first_usage(earliest: Iterable[int], is_member: np.ndarray, usages: Sequence[Usage]) -> list[int]:
    """Returns the first five usages that are members, one from each text."""
    by_text: dict[str, int] = {}
    for usage in earliest:
        if is_member[usage] and len(by_text) < NUM_EARLIEST:
            by_text.setdefault(usages[usage].text, usage)
    return list(by_text.values())


class Search:
    """
    The search for the first usages of a word and of each of its senses, among all usages in a corpus.

    Attributes:
        vectors (`np.ndarray` of shape `(sampled, width)`): The vectors of the sampled usages.
        options (`list[Senses]`), chosen (`int`): The senses for each number of them, and the option that is chosen.
        pool (`list[Usage]`): The sampled usages in the order of times, then those that were read since.
        points (`np.ndarray`), labels (`np.ndarray` of shape `(options, usages)`): Their places in the space of senses,
            and their senses. Outside the sample it is the sense whose middle is nearest.
        outside (`list[Usage]`): The usages outside the sample, the oldest first.
        num_read (`int`): How many of these were read.
    """

    def __init__(
        self,
        usages: Mapping[str, Sequence[Usage]],
        vectors: Mapping[str, np.ndarray],
        everything: Iterable[Usage] = (),
        seed: int = 0,
        frequent: Collection[str] = (),
        known: KnownSenses | None = None,
    ):
        """
        Clusters the sampled `usages` of a word by their `vectors`, both by time in the order of times; `everything` is
        all its usages in the order of the corpus. `seed` is the clustering's; `frequent` words are no keywords; with
        `known` senses, clusters hold only the usages that fit none of these.
        """
        self.times, self.vectors = list(usages), np.concatenate(list(vectors.values()))
        self.options, self.space = find_senses(usages, vectors, seed, frequent, known), SenseSpace(self.vectors)
        self.chosen = choose_senses(self.options) if known is None else len(self.options) - 1
        self.pool, self.points = [usage for part in usages.values() for usage in part], self.space.place(self.vectors)
        self.labels = np.stack([option.labels for option in self.options])
        # Equal usages share the place of the first of them in the corpus.
        place: dict[Usage, int] = {}
        for usage in by_age([*everything, *self.pool], self.times):
            place.setdefault(usage, len(place))
        sampled = set(self.pool)
        self.outside, self.num_read = [usage for usage in place if usage not in sampled], 0
        self.places, self.outside_places = ([place[each] for each in part] for part in (self.pool, self.outside))

    @property
    def order(self) -> list[int]:
        """The usages of the pool, from the earliest to the latest."""
        return np.argsort(self.places, kind="stable").tolist()

    @property
    def num_sure(self) -> int:
        """The number of usages in `order` that are older than all that were not read."""
        unread = self.outside_places[self.num_read :]
        return sum(place < unread[0] for place in self.places) if unread else len(self.places)

    def end(self, option: int) -> float:
        """Returns the place behind which no usage can be among the first five of a sense."""
        order, ends = self.order, []
        for sense in range(len(self.options[option].counts)):
            first = first_usage(order, self.labels[option] == sense, self.pool)
            ends.append(self.places[first[-1]] if len(first) == NUM_EARLIEST else math.inf)
        return max(ends)

    def oldest(self) -> list[Usage]:
        """Returns the oldest usages outside the sample, up to those that are among the first five of the word."""
        older = self.outside[: bisect_left(self.outside_places, self.end(0))]
        texts = list(dict.fromkeys(usage.text for usage in older))
        last = next((number for number, usage in enumerate(older) if usage.text in texts[NUM_EARLIEST:]), None)
        return older[:last]

    def wanted(self) -> list[Usage]:
        """Returns the unread usages that may be among the first of the word or of a sense of the chosen option."""
        return self.outside[self.num_read : bisect_left(self.outside_places, max(map(self.end, {0, self.chosen})))]

    def add(self, number: int, known: Sequence[Usage], vectors: np.ndarray):
        """Adds the next `number` usages. An encoder knows some of them, `known`, by these `vectors`."""
        added = slice(self.num_read, self.num_read + number)
        place = dict(zip(self.outside[added], self.outside_places[added], strict=True))
        self.num_read += number
        if known:
            points = self.space.place(vectors)
            self.pool, self.points = [*self.pool, *known], np.concatenate([self.points, points])
            self.places += [place[usage] for usage in known]
            labels = np.stack([option.find_nearest(points, known) for option in self.options])
            self.labels = np.hstack([self.labels, labels])


def search_all(searches: Mapping[str, Search], read: Callable[[Usages], tuple[Usages, VectorsByWord]], most: int):
    """
    Reads the five oldest usages of each word, then in turns of all words further ones from the oldest, until the first
    usages of all senses are found or `most` are read. `read` returns the usages that an encoder knows, and their
    vectors.
    """

    def read_next(usages_by_word: Mapping[str, Sequence[Usage]]):
        by_time = {
            word: {time: [usage for usage in usages if usage.time == time] for time in searches[word].times}
            for word, usages in usages_by_word.items()
        }
        known, vectors = read(by_time)
        for word, usages in usages_by_word.items():
            joined = np.concatenate(list(vectors[word].values()))
            searches[word].add(len(usages), [usage for part in known[word].values() for usage in part], joined)

    read_next({word: oldest for word, search in searches.items() if (oldest := search.oldest())})
    size, progress = FIRST_TURN, Progress(f"First attestations, in at most {most:,} usages", most)
    while most > 0:
        wanted = {word: usages for word, search in searches.items() if (usages := search.wanted())}
        share = min(size, max(1, most // max(1, len(wanted))))
        usages_by_word = {word: usages[:share] for word, usages in list(wanted.items())[:most]}
        if not usages_by_word:
            return
        read_next(usages_by_word)
        num_usages = sum(map(len, usages_by_word.values()))
        most -= num_usages
        progress.add(num_usages)
        size *= 2
