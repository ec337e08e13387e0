"""Finds target words and phrases in the passages of a corpus, and makes dated sentences of the passages."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from transformers.utils import logging

from .reading.passages import HYPHENS, UNSEEN, Passage, TextColumns, fold, split_tag, untagged
from .reading.text_layouts import read_passages


logger = logging.get_logger(__name__)

# If a corpus does not mark its documents, blocks of neighbouring passages are used instead: this many at the time with
# the fewest passages. Fewer, longer blocks divide fewer documents, but give tests less power
# (`benchmarks/results/semantic_change.md`).
NUM_BLOCKS = 20
BETWEEN_HYPHENS = re.compile(f"[^-{HYPHENS}]+")
# Names, or the forms of each name.
Targets = Iterable[str] | Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class DatedSentence:
    """
    A sentence of a time point, and the positions of target words in it.

    Attributes:
        time (`str`): The name of the time point.
        text (`str`): Plain text, for encoders.
        targets (`tuple[tuple[str, int, int], ...]`): Each occurrence of a target: its name in the list of targets,
            its first character in `text`, and the character after its last.
        tokens (`tuple[str, ...]`): The keys ([`fold`]) of tokens or lemmas, for static embeddings and counts. An
            occurrence of a target is one token, the target's name.
        date, source (`str`): Its date and its source; empty if the corpus does not tell them.
        places (`tuple[tuple[int, int], ...]`): Where the word of each token begins and ends in `text`.
        document (`str`): The document of the sentence. Documents of two times are different, even with the same name.
        sources (`tuple[tuple[int, str], ...]`): The characters in `text` from which on the source is another page or
            line, and that source.
    """

    time: str
    text: str
    targets: tuple[tuple[str, int, int], ...]
    tokens: tuple[str, ...]
    date: str = ""
    source: str = ""
    places: tuple[tuple[int, int], ...] = field(default=(), compare=False)
    document: str = field(default="", compare=False)
    sources: tuple[tuple[int, str], ...] = field(default=(), compare=False)

    def cite(self, start: int) -> str:
        """Returns the source of the word that begins at a character."""
        return next((source for first, source in reversed(self.sources) if first <= start), self.source)


class Capitals:
    """Counts occurrences of targets, and words that differ from a target by their capitals only."""

    def __init__(self):
        self.found: Counter[str] = Counter()
        self.written: dict[str, Counter[str]] = {}

    def add_other(self, target: str, word: str):
        self.written.setdefault(target, Counter())[word] += 1

    def say(self):
        """Warns of the targets that are mostly written with other capitals."""
        others = {target: words for target, words in self.written.items() if words.total() > self.found[target]}
        if others:
            parts = []
            for target, words in others.items():
                word, count = words.most_common(1)[0]
                parts.append(f"{target} ({self.found[target]:,} times, but {count:,} times {word})")
            logger.warning(
                f"The encoder tells capitals apart, and the texts have others than the list: {', '.join(parts)}. "
                "Write the words as the texts do, give forms (america: america, America), or take an uncased encoder."
            )


class Compounds:
    """
    Finds targets that are parts of words with hyphens, such as "car" in "motor-car".

    Args:
        are_read (`bool`, *optional*, defaults to `False`): Whether such a part is a usage. If not, it is counted.
    """

    def __init__(self, are_read: bool = False):
        self.are_read = are_read
        self.found: dict[str, Counter[str]] = {}

    def add(self, target: str, word: str):
        self.found.setdefault(target, Counter())[fold(word).lower()] += 1

    def say(self):
        """Tells the number of compounds with each target, and the most frequent one."""
        if self.found:
            most = sorted(self.found.items(), key=lambda item: -item[1].total())
            parts = (f"{target} ({words.total():,}, such as {max(words, key=words.get)})" for target, words in most)
            are = "read as usages" if self.are_read else "no usages, unless --with_compounds reads them, too"
            logger.warning(f"Parts of words with hyphens are {are}: {', '.join(parts)}.")


class Blocks:
    """
    Blocks of neighbouring passages, which replace documents if a corpus does not mark these. All times have blocks of
    the same size, because random assignment to the times is fair only for documents of one kind.

    Args:
        paths (`Sequence[str | Path]`): The corpora. The smallest one has [`NUM_BLOCKS`] for each of its times.
        columns ([`TextColumns`]): The columns of tables, and of tokens.
        num_times (`int`, *optional*, defaults to 1): The number of times in a corpus.
    """

    def __init__(self, paths: Sequence[str | Path], columns: TextColumns, num_times: int = 1):
        self.paths, self.columns, self.num_times = paths, columns, num_times

    @cached_property
    def size(self) -> int:
        """The number of passages of a block, which a warning tells. The corpora are read once more to count them."""
        smallest = min(sum(1 for _ in read_passages(path, self.columns)) for path in self.paths)
        size = max(math.ceil(smallest / (NUM_BLOCKS * self.num_times)), 1)
        logger.warning_once(
            f"The corpora do not tell where their documents begin, so blocks of {size:,} neighbouring texts stand in "
            "their place for p and intervals, which are right if documents are shorter. A folder of files, or a table "
            "with sources, tells them."
        )
        return size

    def name(self, number: int) -> str:
        """Returns the block of a passage, from its number in its corpus, from 1."""
        return f"block {math.ceil(number / self.size)}"


def target_forms(
    path: str | Path, targets: Targets, key: Callable[[str], str], columns: TextColumns
) -> dict[str, str]:
    """Returns the target of each form in a corpus, by the form's key."""
    forms_by_target = targets if isinstance(targets, Mapping) else {target: [target] for target in targets}
    pairs = [(target, form) for target, forms in forms_by_target.items() for form in forms]
    tags = {split_tag(form)[1]: form for _, form in pairs}
    tags.pop("", None)
    # Looks at all words, because a corpus with tags may have none of the targets.
    has_tags = bool(tags) and any(
        split_tag(word)[1] in tags for passage in read_passages(path, columns) for word in passage.keys
    )
    if tags and not has_tags:
        tagged = next(iter(tags.values()))
        logger.warning(f"{path} has no tags: looking for {untagged(tagged)} instead of {tagged}, and so on.")
    target_by_form: dict[str, str] = {}
    for target, form in pairs:
        form = key(form if has_tags else untagged(form))
        if (other := target_by_form.setdefault(form, target)) != target:
            raise ValueError(f"'{other}' and '{target}' cannot be told apart in {path}: both are '{form}' there.")
    return target_by_form


class Found(NamedTuple):
    """A token that was looked up."""

    target: str | None
    key: str
    plain: str  # the token without a tag
    start: int  # of the word in `plain`
    end: int
    may_begin_phrase: bool
    other_case: str | None  # the target that differs by capitals only
    # the targets between its hyphens, with their first and last characters
    parts: tuple[tuple[str, int, int], ...] = ()


class TargetFinder:
    """
    Finds targets in the passages of a corpus.

    Args:
        path (`str` or `Path`): The corpus, which tells whether words have tags.
        targets, ignore_case, columns: Arguments of [`read_semeval`].
        capitals ([`Capitals`]): Counts what was found.
        compounds ([`Compounds`]): Counts the words with hyphens that have a target as a part.
        blocks ([`Blocks`]): Names the document of a passage that does not name its own.
    """

    def __init__(
        self,
        path: str | Path,
        targets: Targets,
        ignore_case: bool,
        columns: TextColumns,
        capitals: Capitals,
        compounds: Compounds,
        blocks: "Blocks",
    ):
        self.key = (lambda token: fold(token).lower()) if ignore_case else fold
        self.capitals, self.compounds = capitals, compounds
        self.forms = target_forms(path, targets, self.key, columns)
        self.lower = {form.lower(): target for form, target in self.forms.items()}
        self.sizes = sorted({len(form.split()) for form in self.forms}, reverse=True)
        self.first_words = {form.split()[0] for form in self.forms if " " in form}
        self.blocks, self.num_passages = blocks, 0
        # A few words are most of a corpus.
        self.look_up = lru_cache(2**16)(self.look_up_anew)

    def look_up_anew(self, token: str) -> Found:
        """Looks up a token as it stands, without its tag, and without the punctuation around it."""
        key, forms = self.key, self.forms
        # Punctuation, symbols and invisible characters of any script. A target may contain them, too.
        marks = "".join(char for char in token if unicodedata.category(char)[0] in "PSC")
        before, tag = split_tag(token)
        if tag:
            # In tagged text a token of punctuation has a tag, too.
            plain, word = before, before if key(token) in forms else before.strip(marks)
            start = before.index(word)
        else:
            bare = token.strip(UNSEEN)
            bare = bare if key(bare) in forms else token.strip(marks)
            (word, tag), start = split_tag(bare), token.index(bare)
            plain = token[:start] + word + token[start + len(bare) :]
        written = (word + tag, word) if tag else (word,)
        target = next((forms[key(form)] for form in written if key(form) in forms), None)
        lower = (self.lower.get(key(form).lower()) for form in written)
        other = None if target else next(filter(None, lower), None)
        keys = (key(token), key(token.lstrip(marks)), key(plain.lstrip(marks)))
        begins = not self.first_words.isdisjoint(keys)
        parts = () if target else tuple(self.find_between_hyphens(word, start))
        return Found(target, fold(token), plain, start, start + len(word), begins, other, parts)

    def find_between_hyphens(self, word: str, first: int) -> Iterator[tuple[str, int, int]]:
        """Yields the targets between the hyphens of a word that begins at the character `first`, with their places."""
        parts = list(BETWEEN_HYPHENS.finditer(word))
        for part in parts if len(parts) > 1 else ():
            if target := self.forms.get(self.key(part[0])):
                yield target, first + part.start(), first + part.end()

    def find_phrase(self, keys: list[str]) -> tuple[int, Found] | None:
        """Finds the longest phrase at the start of some words, with its number of words."""
        for size in self.sizes:
            for words in (keys[:size], [untagged(word) for word in keys[:size]]):
                if (found := self.look_up(" ".join(words))).target is not None:
                    return size, found
        return None

    def find_in_parts(self, token: str, found: Found) -> Found:
        """Finds a target among the words of a token, such as the lemmas of a multiword token."""
        parts = map(self.look_up, token.split()) if found.target is None else ()
        return next((part for part in parts if part.target is not None), found)

    def find(self, time: str, passage: Passage) -> DatedSentence:
        """Returns the sentence of a passage from `time`, with its targets."""
        keys, is_running = passage.keys, passage.keys is passage.words
        pieces, occurrences, tokens, places, offset, index = [], [], [], [], 0, 0
        others, sources = dict(passage.places), []
        while index < len(keys):
            size, found = 1, self.look_up(keys[index])
            if found.may_begin_phrase and (longer := self.find_phrase(keys[index : index + self.sizes[0]])):
                size, found = longer
            elif not is_running and " " in keys[index]:
                found = self.find_in_parts(keys[index], found)
            plain, start, end = found.plain, found.start, found.end
            if not is_running:
                # The keys, such as lemmas, are not what stands in the text.
                plain = passage.join(index, index + size)
                start, end = 0, len(plain)
            if pieces and index not in passage.glued:
                plain, start, end = f" {plain}", start + 1, end + 1
            if found.target is not None:
                occurrences.append((found.target, offset + start, offset + end))
                self.capitals.found[found.target] += 1
            elif is_running and found.parts:
                for target, first, last in found.parts:
                    self.compounds.add(target, plain[start:end])
                    if self.compounds.are_read:
                        before = offset + start - found.start
                        occurrences.append((target, before + first, before + last))
            elif found.other_case is not None:
                self.capitals.add_other(found.other_case, plain[start:end])
            if others:
                for number in range(index, index + size):
                    if number in others:
                        sources.append((offset, others[number]))
            pieces.append(plain)
            tokens.append(found.target or found.key)
            places.append((offset + start, offset + end))
            offset += len(plain)
            index += size
        text = "".join(pieces)
        found_words = (tuple(occurrences), tuple(tokens))
        self.num_passages += 1
        document = passage.document or self.blocks.name(self.num_passages)
        return DatedSentence(
            time, text, *found_words, passage.date, passage.source, tuple(places), document, tuple(sources)
        )
