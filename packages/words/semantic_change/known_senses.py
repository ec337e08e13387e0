"""The senses of a lexicographer: a table of definitions and quotations, which usages are compared with."""

import csv
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from transformers.utils import logging

from modeling_tempoformer.common.files import find_separator, naming_broken_file, open_text
from modeling_tempoformer.common.markdown import escape_control_characters

from .citations import sentence_of
from .reading.files_read import count
from .reading.passages import compose_accents, fold, untagged
from .usages import Usage, Usages, UsagesByText


logger = logging.get_logger(__name__)

COLUMNS = ("word", "sense", "text")
START = "start"


class GivenText(NamedTuple):
    """
    A row of the table.

    Attributes:
        sense (`str`): The name of the sense.
        text (`str`): A definition or a quotation.
        start (`int`, *optional*): The first character of the word in a quotation.
        where (`str`): The file and the line.
    """

    sense: str
    text: str
    start: int | None
    where: str


# The texts of each word.
GivenTexts = dict[str, list[GivenText]]
# The texts of each word as usages, and whether each is a quotation.
GivenUsages = dict[str, dict[Usage, tuple[GivenText, bool]]]
# A sentence, and the first character of the word in it.
Place = tuple[str, int]


@dataclass(frozen=True)
class KnownSenses:
    """
    The senses of a word in a lexicographer's table.

    Attributes:
        names (`list[str]`): The names of the senses, in the order of the table.
        vectors (`np.ndarray` of shape `(texts, width)`): The vectors of the texts.
        labels (`np.ndarray` of shape `(texts,)`): The sense of each text.
        is_quotation (`np.ndarray` of shape `(texts,)`): Whether a text is a quotation, not a definition.
        quoted (`dict[tuple[str, int], int]`): The sense of each quotation, by its text and the word's first character.
    """

    names: list[str]
    vectors: np.ndarray
    labels: np.ndarray
    is_quotation: np.ndarray
    quoted: dict[Place, int]

    def describe(self) -> str:
        """Returns the numbers of senses and texts."""
        num_quotations = np.count_nonzero(self.is_quotation)
        quotations = count(num_quotations, "quotation")
        definitions = count(len(self.labels) - num_quotations, "definition")
        return f"{count(len(self.names), 'sense')}, by {quotations} and {definitions}"


def place_of(usage: Usage) -> Place:
    """Returns the sentence of a usage, as the page shows it, and the first character of the word in it."""
    before, form, after = map(escape_control_characters, sentence_of(usage))
    return before + form + after, len(before)


def read_known_senses(path: str | Path) -> GivenTexts:
    """
    Reads the texts of known senses by word.

    Args:
        path (`str` or `Path`): A CSV file in UTF-8 with the columns `word`, `sense` (its name) and `text`, which is a
            definition or a quotation; a sense may have several rows. `start` may number the first character of the
            word in a quotation, from 0. Without it a text with the word is a quotation, and is read at the first one.

    Raises a `ValueError` that names the first line of another form, or if the file has no row.
    """
    texts: GivenTexts = {}
    alike: dict[tuple[str, str], GivenText] = {}
    with naming_broken_file(path), open_text(path, newline="") as file:
        header = file.readline()
        rows = csv.DictReader(chain([header], file), delimiter=find_separator(header), strict=True)
        if missing := [name for name in COLUMNS if name not in (rows.fieldnames or ())]:
            found = ", ".join(rows.fieldnames or ()) or "none"
            raise ValueError(
                f"{path}, line 1: the column {', '.join(map(repr, missing))} is missing. It must be a CSV file with "
                f"the columns {', '.join(COLUMNS)}; it has {found}."
            )
        try:
            for row in rows:
                word, text = read_example(row, f"{path}, line {rows.line_num}")
                texts.setdefault(word, []).append(text)
                other = alike.setdefault((word, fold(text.sense).lower()), text)
                if other.sense != text.sense:
                    raise ValueError(
                        f"{text.where}: the sense {text.sense!r} is written {other.sense!r} in {other.where}: give a "
                        "sense one name."
                    )
        except csv.Error as problem:
            raise ValueError(
                f"{path}, line {rows.line_num + 1}: {problem}. A text in quotation marks must end with one, and those "
                "inside it must be doubled."
            ) from None
    if not texts:
        raise ValueError(f"{path} has no rows.")
    return texts


def read_example(row: Mapping[str | None, str | None], where: str) -> tuple[str, GivenText]:
    """Reads a word and its text from a row of the table of [`read_known_senses`]."""
    if None in row:
        raise ValueError(f"{where}: there are more cells than columns: put a text with commas in quotation marks.")
    word, sense, text = (compose_accents(" ".join((row[name] or "").split())) for name in COLUMNS)
    if empty := [name for name, cell in zip(COLUMNS, (word, sense, text), strict=True) if not cell]:
        raise ValueError(f"{where}: the cell of {repr(empty[0])} is empty.")
    start = (row.get(START) or "").strip()
    if not start:
        return fold(word), GivenText(sense, text, None, where)
    # As it is written, because its characters are numbered.
    text = row["text"]
    if not (start.isdecimal() and int(start) < len(text)):
        raise ValueError(
            f"{where}: the column {START!r} has {start!r}, and must number a character of the text, from 0."
        )
    # Accents are composed in corpora, too, which may move the word.
    before, rest = map(compose_accents, (text[: int(start)], text[int(start) :]))
    return fold(word), GivenText(sense, before + rest, len(before), where)


def take_words(texts: GivenTexts, words: Iterable[str]) -> GivenTexts:
    """Returns the texts of some words. A warning counts the texts of others."""
    words = set(words)
    if others := {word: len(rows) for word, rows in texts.items() if word not in words}:
        named = ", ".join(f"{word} ({count})" for word, count in others.items())
        logger.warning(f"Known senses of words that are not looked for, so their texts are not read: {named}.")
    return {word: rows for word, rows in texts.items() if word in words}


def forms_of(word: str, found: Mapping[str, Iterable[Iterable[Usage]]]) -> re.Pattern:
    """Returns a pattern of a word's name and of its forms in a corpus, from its usages."""
    forms = {usage.text[usage.start : usage.end] for parts in found.values() for part in parts for usage in part}
    longest_first = sorted({untagged(word), *forms}, key=len, reverse=True)
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)", re.IGNORECASE)


def to_usage(word: str, row: GivenText, forms: re.Pattern, time: str) -> tuple[Usage, bool]:
    """
    Makes a usage of a text, and tells whether it is a quotation. A definition is read as "word: definition", at the
    word.
    """
    match = forms.search(row.text) if row.start is None else re.compile(r"\w+|\S").match(row.text, row.start)
    if row.start is not None:
        match = forms.match(row.text, row.start) or match
        if match is None:
            raise ValueError(f"{row.where}: no word begins at the character {row.start} ({START!r}).")
    if match:
        return Usage(time, row.text, match.start(), match.end()), True
    name = untagged(word)
    return Usage(time, f"{name}: {row.text}", 0, len(name)), False


def to_usages(texts: GivenTexts, found: UsagesByText, time: str) -> GivenUsages:
    """
    Makes usages of the texts of words.

    Args:
        texts: The texts of words.
        found: All usages in the corpora, whose forms tell quotations from definitions.
        time: The time point at which temporal encoders read the texts.

    Raises a `ValueError` for a text of two senses.
    """
    made: GivenUsages = {}
    for word, rows in texts.items():
        forms, rows_of_usages, quoted = forms_of(word, found[word]), made.setdefault(word, {}), {}
        for row in rows:
            usage, is_quotation = to_usage(word, row, forms, time)
            rows_of_usages.setdefault(usage, (row, is_quotation))
            # One sentence may be quoted with others around it.
            other = quoted.setdefault(place_of(usage) if is_quotation else usage, row)
            if other.sense != row.sense:
                raise ValueError(
                    f"{row.where}: this text is of the sense {row.sense!r}, and in {other.where} of {other.sense!r}."
                )
    return made


def read_senses(
    given: GivenUsages, time: str, read: Callable[[Usages], tuple[Usages, Mapping[str, Mapping[str, np.ndarray]]]]
) -> dict[str, KnownSenses]:
    """
    Reads known senses by an encoder.

    Args:
        given: The texts of [`to_usages`] at the same `time`.
        read: Returns the usages that an encoder knows, and their vectors.
    """
    known, vectors = read({word: {time: list(usages)} for word, usages in given.items()})
    return {
        word: make_senses(given[word], known[word][time], vectors[word][time]) for word in given if known[word][time]
    }


def make_senses(
    texts: Mapping[Usage, tuple[GivenText, bool]], known: Sequence[Usage], vectors: np.ndarray
) -> KnownSenses:
    """Makes the senses of a word from its texts, and the vectors of those that an encoder knows."""
    number: dict[str, int] = {}
    labels = np.array([number.setdefault(texts[usage][0].sense, len(number)) for usage in known])
    is_quotation = np.array([texts[usage][1] for usage in known])
    quoted = {
        place_of(usage): label for usage, label, is_one in zip(known, labels, is_quotation, strict=True) if is_one
    }
    return KnownSenses(list(number), vectors, labels, is_quotation, quoted)
