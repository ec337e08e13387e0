"""Dated sentences with target words, and gold scores of how much the words changed."""

import math
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from transformers.utils import logging

from ..data.dated_texts import count_by_reason, numbers_in, read_sentences, untagged
from ..data.files import read_lines
from ..data.tables import check_column, read_tables
from ..time_points_temporal_bert import TimePoints, as_name, is_missing


logger = logging.get_logger(__name__)

TABLE_SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".parquet")
# Names, or the forms of each name.
Targets = Iterable[str] | Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class DatedSentence:
    """
    A sentence of a time point, and where the target words are in it.

    Attributes:
        time (`str`): The name of the time point.
        text (`str`): Plain text, for encoders.
        targets (`tuple[tuple[str, int, int], ...]`): For each occurrence of a target: its name in the list of targets,
            its first character in `text`, and the character after its last.
        tokens (`tuple[str, ...]`): Tokens or lemmas, for static embeddings. An occurrence of a target is one token,
            the target's name.
        date, source (`str`): When and where it was written; empty if the corpus does not say.
    """

    time: str
    text: str
    targets: tuple[tuple[str, int, int], ...]
    tokens: tuple[str, ...]
    date: str = ""
    source: str = ""


class Columns(NamedTuple):
    """The columns of a table of texts. Those of dates and of sources may be missing under their usual names."""

    text: str = "text"
    time: str = "date"
    source: str = "source"


def read_targets(path: str | Path) -> dict[str, list[str]]:
    """
    Reads the target words and the forms of each: itself, if no others are given.

    Args:
        path (`str` or `Path`): UTF-8, plain or `.gz`, with a word or a phrase ("social security") on each line. A
            colon may follow it, and its forms with commas between them ("economy: economy, economies"). Where there
            is no comma, a colon without a space after it belongs to the word ("S:t").

    Raises a `ValueError` that names the first line of another form or with a word again; and if the file is empty.
    """
    words: dict[str, list[str]] = {}
    for number, line in read_lines(path):
        where, line = f"{path}, line {number}", line.strip()
        word, colon, others = line.partition(": ")
        if not colon and ("," in line or line.endswith(":")):
            word, colon, others = line.partition(":")
        forms = [" ".join(form.split()) for form in (others.split(",") if colon else [word])]
        if "\t" in line or not all([word, *forms]):
            raise ValueError(f"{where}: expected a word or a phrase, or one with its forms (a: b, c), got {line!r}.")
        add_word(words, where, word, forms)
    if not words:
        raise ValueError(f"{path} is empty.")
    return words


def read_truth(path: str | Path) -> dict[str, float]:
    """
    Reads gold scores by word.

    Args:
        path (`str` or `Path`): UTF-8, plain or `.gz`, with a word, a tab and a score on each line, as in
            SemEval-2020; or the `stats_groupings.csv` of a DWUG data set, whose column `change_graded` is read. Its
            words with the score `nan` are left out.

    Raises a `ValueError` that names the first line without a finite number or with a word again; and if the file is
    empty.
    """
    _, header = next(read_lines(path), (0, ""))
    if "change_graded" in header.split("\t"):
        found = ((where, [row["lemma"], row["change_graded"]]) for where, row in read_tsv(path))
        rows = ((where, cells) for where, cells in found if cells[1] != "nan")
    else:
        rows = ((f"{path}, line {number}", line.strip().split("\t")) for number, line in read_lines(path))
    truth: dict[str, float] = {}
    for where, cells in rows:
        try:
            word, score = cells
            if not math.isfinite(float(score)):
                raise ValueError
        except ValueError:
            raise ValueError(
                f"{where}: expected a word, a tab and a finite number, got {' '.join(cells)!r}."
            ) from None
        add_word(truth, where, word, float(score))
    if not truth:
        raise ValueError(f"{path} is empty.")
    return truth


def add_word(words: dict[str, Any], where: str, word: str, value: Any):
    """Some lists have two spaces in a phrase, some have accents apart from their letters."""
    word = unicodedata.normalize("NFC", " ".join(word.split()))
    if word in words:
        raise ValueError(f"{where}: '{word}' is there twice.")
    words[word] = value


def read_tsv(path: str | Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a table of a DWUG data set, in which quotes are characters like any other, and where they are."""
    lines = read_lines(path)
    columns = next(lines, (0, ""))[1].split("\t")
    for number, line in lines:
        where, cells = f"{path}, line {number}", line.split("\t")
        if len(cells) != len(columns):
            raise ValueError(f"{where}: {len(cells)} cells in a table of {len(columns)} columns.")
        yield where, dict(zip(columns, cells, strict=True))


def read_semeval(
    paths_by_time: Mapping[str, str | Path],
    targets: Targets,
    ignore_case: bool = False,
    columns: Columns = Columns(),
) -> Iterator[DatedSentence]:
    """
    Reads a corpus for each time point lazily: text files in the layout of SemEval-2020 Task 1 (Schlechtweg et al.,
    2020), one sentence on each line and tokens separated by whitespace; or tables with a text in each row.

    A token is a target if it is equal to one of its forms after removing punctuation around the token; a phrase is as
    many tokens with nothing between them. The longest target wins: where "social security" is a target, its "security"
    is no usage of "security". The English corpora tag their targets with a part of speech ("walk_nn", "walk_vb"). In a
    corpus without any such tag the target is found by its form without the tag, and a warning says so. Accents are
    compared in their composed form (NFC), which `text` also has.

    Args:
        paths_by_time (`Mapping[str, str | Path]`): For each time point a text file, a `.gz` of one, a table (CSV, TSV,
            JSON lines, Parquet), or a folder, whose `.txt` and `.txt.gz` files are read, including subfolders.
        targets (`Iterable[str]` or `Mapping[str, Sequence[str]]`): Words and phrases, or as of [`read_targets`].
        ignore_case (`bool`, *optional*, defaults to `False`): Whether "Plane" is a usage of "plane".
        columns ([`Columns`], *optional*): The columns of tables.

    Returns:
        An iterator over [`DatedSentence`], also those without targets. `text` has no tags and single spaces; `source`
        is the one of the table, or the file and the line or row (from 0, as in pandas). Raises a `ValueError` if a
        file cannot be read or a corpus has no sentence, and if two targets cannot be told apart.
    """
    for time, path in paths_by_time.items():
        find_targets = target_finder(Path(path), targets, ignore_case, columns)
        sentence = None
        for date, source, text in read_texts(Path(path), columns):
            sentence = find_targets(time, date, source, text)
            yield sentence
        if sentence is None:
            raise ValueError(f"The corpus of '{time}', {path}, is empty.")


def read_dated_table(
    path: str | Path,
    times: Sequence[str],
    targets: Targets,
    ignore_case: bool = False,
    columns: Columns = Columns(),
) -> Iterator[DatedSentence]:
    """
    Reads one table of the texts of all times. Each belongs to the time point that holds its date; a warning counts
    those that are of none: outside of all, with a date that is not read, or without one.

    Args:
        path (`str` or `Path`): CSV, TSV, JSON lines or Parquet, plain or `.gz`, with dates as of [`read_date`].
        times (`Sequence[str]`): Time points, as for [`TimePoints`]: "1810-1860".
        targets, ignore_case, columns: As for [`read_semeval`].

    Raises a `ValueError` if a time has no text.
    """
    points = TimePoints(list(times))
    # Many texts have the same few dates.
    time_of = cache(lambda date: points.find(date) if points.holds(date) else None)
    find_targets = target_finder(Path(path), targets, ignore_case, columns)
    counts: Counter[str] = Counter()
    others: Counter[str] = Counter()
    for date, source, text in read_texts(Path(path), columns):
        if (time := time_of(date)) is None:
            others[date] += 1
        else:
            counts[time] += 1
            yield find_targets(time, date, source, text)
    total, why = counts.total() + others.total(), count_by_reason(others, points)
    left_out = f"{others.total():,} of {total:,} texts are left out: {why}." if others else ""
    if empty := [time for time in times if not counts[time]]:
        raise ValueError(
            f"{path}: no date in the column '{columns.time}' (--time_column) is in {', '.join(empty)}. {left_out}"
        )
    if others:
        logger.warning_once(f"{path}: {left_out}")


def is_table(path: str | Path) -> bool:
    """Whether a file is a table by its name."""
    return Path(path).name.lower().removesuffix(".gz").endswith(TABLE_SUFFIXES)


def read_texts(path: Path, columns: Columns) -> Iterator[tuple[str, str, str]]:
    """The texts of a corpus, without blank ones, each after its date (empty if unknown) and its source."""
    if is_table(path):
        yield from read_rows(path, columns)
    elif not path.is_dir():
        yield from read_text_file(path, path.name)
    elif all((path / version).is_dir() for version in ("lemma", "token")):
        raise ValueError(f"{path} has each sentence twice: give its folder 'lemma' or 'token'.")
    else:
        for file in sorted(path.rglob("*")):
            if file.name.endswith((".txt", ".txt.gz")):
                yield from read_text_file(file, str(file.relative_to(path)))


def read_text_file(file: Path, name: str) -> Iterator[tuple[str, str, str]]:
    for number, line in read_sentences(file):
        yield "", f"{name}, line {number}", line


def read_rows(path: Path, columns: Columns) -> Iterator[tuple[str, str, str]]:
    """The texts of a table, as of [`read_texts`]."""
    number = -1
    for table in read_tables(str(path)):
        cells = []
        for role, column in columns._asdict().items():
            if column in ("date", "source") and column not in table.column_names:
                cells.append([None] * table.num_rows)
            else:
                check_column(table.column_names, column, role)
                cells.append(table[column].to_pylist())
        for number, (text, date, source) in enumerate(zip(*cells, strict=True), number + 1):
            if not is_missing(text):
                date = "" if is_missing(date) else as_name(date)
                yield date, f"{path.name}, row {number}" if is_missing(source) else str(source), str(text)


def target_forms(path: Path, targets: Targets, key: Callable[[str], str], columns: Columns) -> dict[str, str]:
    """The targets by the keys of the forms that they have in a corpus."""
    given = targets.items() if isinstance(targets, Mapping) else ((target, [target]) for target in targets)
    pairs = [(target, form) for target, forms in given for form in forms]
    tagged = [form for _, form in pairs if untagged(form) != form]
    # Looks at all words, because a corpus with tags may not have any of the targets.
    has_tags = bool(tagged) and any(
        untagged(word) != word for _, _, text in read_texts(path, columns) for word in text.split()
    )
    if tagged and not has_tags:
        logger.warning(f"{path} has no tags: looking for {untagged(tagged[0])} instead of {tagged[0]}, and so on.")
    found: dict[str, str] = {}
    for target, form in pairs:
        # A list of words and a corpus may write accents differently: together with their letters, or apart.
        form = key(unicodedata.normalize("NFC", form if has_tags else untagged(form)))
        if (other := found.setdefault(form, target)) != target:
            raise ValueError(f"'{other}' and '{target}' cannot be told apart in {path}: both are '{form}' there.")
    return found


def target_finder(
    path: Path, targets: Targets, ignore_case: bool, columns: Columns
) -> Callable[[str, str, str, str], DatedSentence]:
    """A function that makes a [`DatedSentence`] of a time, a date, a source and a text of a corpus."""
    key = str.lower if ignore_case else str
    forms = target_forms(path, targets, key, columns)
    sizes = sorted({len(form.split()) for form in forms}, reverse=True)
    first_words = {form.split()[0] for form in forms if " " in form}

    # Most words of a corpus are the same few.
    @lru_cache(2**16)
    def look_up(token: str) -> tuple[str | None, str, int, int, bool]:
        """The target or None, the token without a tag, where its word begins and ends, if it may begin a phrase."""
        # Punctuation, symbols and invisible characters of any script, which a target may also have itself.
        marks = "".join(char for char in token if unicodedata.category(char)[0] in "PSC")
        bare = token if key(token) in forms else token.strip(marks)
        word, start = untagged(bare), token.index(bare)
        shown = token[:start] + word + token[start + len(bare) :]
        begins = not first_words.isdisjoint((key(token), key(token.lstrip(marks))))
        return forms.get(key(bare)), shown, start, start + len(word), begins

    def find_targets(time: str, date: str, source: str, text: str) -> DatedSentence:
        given = unicodedata.normalize("NFC", text).split()
        words, found, tokens, place, index = [], [], [], 0, 0
        while index < len(given):
            token = given[index]
            name, shown, start, end, begins = look_up(token)
            size = 1
            if begins:
                for longer in sizes:
                    phrase = " ".join(given[index : index + longer])
                    if (of_phrase := look_up(phrase))[0] is not None:
                        token, size, (name, shown, start, end, _) = phrase, longer, of_phrase
                        break
            if name is not None:
                found.append((name, place + start, place + end))
            words.append(shown)
            tokens.append(name or token)
            place += len(shown) + 1
            index += size
        return DatedSentence(time, " ".join(words), tuple(found), tuple(tokens), date, source)

    return find_targets


def dwug_groupings(path: str | Path) -> list[str]:
    """The groupings of the uses of a DWUG data set, in the order of the numbers in their names."""
    names = {row.get("grouping", "").strip() for _, row in read_uses(path)}
    return sorted(names, key=lambda name: (not numbers_in(name), numbers_in(name), name))


def read_dwug(path: str | Path, times: Sequence[str] | None = None) -> Iterator[DatedSentence]:
    """
    Reads the uses of a Diachronic Word Usage Graph data set (Schlechtweg et al., 2021) lazily.

    Args:
        path (`str` or `Path`): The folder of a published data set, in any language: with files `data/LEMMA/uses.csv`.
        times (`Sequence[str]`, *optional*): The time points, one for each grouping in the order of the numbers in
            their names. Default: the groupings.

    Returns:
        An iterator over [`DatedSentence`], one for each use. `targets` has this use only, even if the word is in the
        sentence twice; `source` is the identifier of the use. Raises a `ValueError` that names the first line with
        another form, or if there is no use, or if `times` are more or fewer than the groupings.
    """
    groupings = dwug_groupings(path)
    if times is not None and len(times) != len(groupings):
        raise ValueError(f"--times must name {len(groupings)} time points ({', '.join(groupings)}), got {len(times)}.")
    names = dict(zip(groupings, times or groupings, strict=True))
    for where, row in read_uses(path):
        try:
            text, place = row["context"], row["indexes_target_token"]
            first, last = place.split(":")
            # The end is missing where it is the text's.
            start, end = int(first), int(last or len(text))
            if not 0 <= start < end <= len(text):
                raise ValueError(f"'indexes_target_token' is out of range: {place!r}")
            # File names and lists of words may write accents differently: together with their letters, or apart.
            word = unicodedata.normalize("NFC", row["lemma"])
            tokens = (*text[:start].split(), word, *text[end:].split())
            time, date = names[row["grouping"].strip()], row["date"].strip()
            yield DatedSentence(time, text, ((word, start, end),), tokens, date, row["identifier"])
        except (KeyError, ValueError) as problem:
            raise ValueError(f"{where} is no use as DWUG has them: {problem}.") from None


def read_uses(path: str | Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The uses of a DWUG data set as they are in its files, and where they are."""
    files = sorted(Path(path).glob("data/*/uses.csv"))
    if not files:
        raise ValueError(f"{path} has no file data/LEMMA/uses.csv.")
    for file in files:
        yield from read_tsv(file)
