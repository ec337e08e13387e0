"""Reads dated sentences with target words, and gold scores of the words' change."""

import math
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from transformers.utils import logging

from ..data.dated_texts import (
    TABLE_SUFFIXES,
    TEXT_SUFFIXES,
    count_by_reason,
    read_sentences,
    time_order,
    untagged,
)
from ..data.files import read_lines
from ..data.tables import check_column, read_tables
from ..time_points_temporal_bert import TimePoints, as_name, is_missing


logger = logging.get_logger(__name__)

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
        tokens (`tuple[str, ...]`): Tokens or lemmas, for static embeddings. An occurrence of a target is one token,
            the target's name.
        date, source (`str`): Its date and its source; empty if the corpus does not tell them.
    """

    time: str
    text: str
    targets: tuple[tuple[str, int, int], ...]
    tokens: tuple[str, ...]
    date: str = ""
    source: str = ""


class Columns(NamedTuple):
    """The columns of a table of texts. A table may lack those of dates and sources if they have the default names."""

    text: str = "text"
    time: str = "date"
    source: str = "source"


def read_targets(path: str | Path) -> dict[str, list[str]]:
    """
    Reads the target words and the forms of each. A word without forms is its own only form.

    Args:
        path (`str` or `Path`): A UTF-8 file, plain or `.gz`, with a word or a phrase ("social security") on each line,
            which may be followed by a colon and its forms, separated by commas ("economy: economy, economies"). In a
            line without commas, a colon without a space after it belongs to the word ("S:t").

    Raises a `ValueError` that names the first line of another form or with a repeated word, or if the file is empty.
    """
    words: dict[str, list[str]] = {}
    for number, line in read_lines(path):
        where, line = f"{path}, line {number}", line.strip()
        word, colon, others = line.partition(": ")
        if not colon and ("," in line or line.endswith(":")):
            word, colon, others = line.partition(":")
        forms = [" ".join(form.split()) for form in (others.split(",") if colon else [word])]
        if "\t" in line or not all([word, *forms]):
            raise ValueError(f"{where}: expected a word or phrase, or one with its forms (a: b, c), got {line!r}.")
        add_word(words, where, word, forms)
    if not words:
        raise ValueError(f"{path} is empty.")
    return words


def read_truth(path: str | Path) -> dict[str, float]:
    """
    Reads gold scores by word.

    Args:
        path (`str` or `Path`): A UTF-8 file, plain or `.gz`, with a word, a tab and a score on each line, as in
            SemEval-2020; or the `stats_groupings.csv` of a DWUG data set, whose scores are the column `change_graded`.
            Words of the data set with the score `nan` are skipped.

    Raises a `ValueError` that names the first line without a finite number or with a repeated word, or if the file is
    empty.
    """
    _, header = next(read_lines(path), (0, ""))
    if "change_graded" in header.split("\t"):
        scored = ((where, [row["lemma"], row["change_graded"]]) for where, row in read_tsv(path))
        rows = ((where, cells) for where, cells in scored if cells[1] != "nan")
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
    """Adds a word with single spaces and composed accents. Raises a `ValueError` if it is there already."""
    word = compose_accents(" ".join(word.split()))
    if word in words:
        raise ValueError(f"{where}: '{word}' is there twice.")
    words[word] = value


def compose_accents(text: str) -> str:
    """Joins accents and their letters (NFC): corpora, file names and lists of words may write them separately."""
    return unicodedata.normalize("NFC", text)


def read_tsv(path: str | Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the rows of a table of a DWUG data set, each after its file and line. Quotes are ordinary characters."""
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

    A token without the punctuation around it is a target if it equals one of the target's forms; a phrase is a
    sequence of such tokens. The longest target wins: if "social security" is a target, its "security" is no usage of
    "security". The English corpora tag their targets with a part of speech ("walk_nn", "walk_vb"). In a corpus without
    such tags a warning says that targets are searched for without their tags. Accents are compared in their composed
    form (NFC), which `text` also has.

    Args:
        paths_by_time (`Mapping[str, str | Path]`): The text of each time point: a text file, plain or `.gz`, a table
            (CSV, TSV, JSON lines, Parquet), or a folder, whose `.txt` and `.txt.gz` files are read, including
            subfolders.
        targets (`Iterable[str]` or `Mapping[str, Sequence[str]]`): Words and phrases, or each with its forms, as
            [`read_targets`] returns them.
        ignore_case (`bool`, *optional*, defaults to `False`): If True, "Plane" is a usage of "plane".
        columns ([`Columns`], *optional*): The columns of tables.

    Returns:
        An iterator over [`DatedSentence`], including those without targets. `text` has no tags and single spaces;
        `source` is the source in the table, or the file and the line or row (from 0, as in pandas). Raises a
        `ValueError` if a file cannot be read, if a corpus has no sentence, or if two targets share a form.
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
    Reads one table of the texts of all times. A text belongs to the time point that holds its date. A warning counts
    the texts of no time point: those with another date, with a date that is not read, or without a date.

    Args:
        path (`str` or `Path`): CSV, TSV, JSON lines or Parquet, plain or `.gz`, with dates that [`read_date`] reads.
        times (`Sequence[str]`): Names of [`TimePoints`], such as "1810-1860".
        targets, ignore_case, columns: See [`read_semeval`].

    Raises a `ValueError` if a time has no text.
    """
    points = TimePoints(list(times))
    # Many texts share a few dates.
    find_time = cache(points.get)
    find_targets = target_finder(Path(path), targets, ignore_case, columns)
    counts: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    for date, source, text in read_texts(Path(path), columns):
        if (time := find_time(date)) is None:
            unknown[date] += 1
        else:
            counts[time] += 1
            yield find_targets(time, date, source, text)
    total, why = counts.total() + unknown.total(), count_by_reason(unknown, points)
    left_out = f"{unknown.total():,} of {total:,} texts are left out: {why}." if unknown else ""
    if empty := [time for time in times if not counts[time]]:
        raise ValueError(
            f"{path}: no date in the column '{columns.time}' (--time_column) is in {', '.join(empty)}. {left_out}"
        )
    if unknown:
        logger.warning_once(f"{path}: {left_out}")


def is_table(path: str | Path) -> bool:
    """Tells whether the name of a file is that of a table."""
    return Path(path).name.lower().removesuffix(".gz").endswith(TABLE_SUFFIXES)


def read_texts(path: Path, columns: Columns) -> Iterator[tuple[str, str, str]]:
    """Yields date (empty if unknown), source and text of each text of a corpus that is not blank."""
    if is_table(path):
        yield from read_rows(path, columns)
    elif not path.is_dir():
        yield from read_text_file(path, path.name)
    elif all((path / version).is_dir() for version in ("lemma", "token")):
        raise ValueError(f"{path} has each sentence twice: give its folder 'lemma' or 'token'.")
    else:
        for file in sorted(path.rglob("*")):
            if file.name.endswith(TEXT_SUFFIXES):
                yield from read_text_file(file, str(file.relative_to(path)))


def read_text_file(file: Path, name: str) -> Iterator[tuple[str, str, str]]:
    """Yields an empty date, the source and the text of each line."""
    for number, line in read_sentences(file):
        yield "", f"{name}, line {number}", line


def read_rows(path: Path, columns: Columns) -> Iterator[tuple[str, str, str]]:
    """Yields date, source and text of each row of a table whose text is not blank."""
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
    """Returns the target of each form in a corpus, by the form's key."""
    forms_by_target = targets if isinstance(targets, Mapping) else {target: [target] for target in targets}
    pairs = [(target, form) for target, forms in forms_by_target.items() for form in forms]
    tagged = [form for _, form in pairs if untagged(form) != form]
    # Looks at all words, because a corpus with tags may have none of the targets.
    has_tags = bool(tagged) and any(
        untagged(word) != word for _, _, text in read_texts(path, columns) for word in text.split()
    )
    if tagged and not has_tags:
        logger.warning(f"{path} has no tags: looking for {untagged(tagged[0])} instead of {tagged[0]}, and so on.")
    target_by_form: dict[str, str] = {}
    for target, form in pairs:
        form = key(compose_accents(form if has_tags else untagged(form)))
        if (other := target_by_form.setdefault(form, target)) != target:
            raise ValueError(f"'{other}' and '{target}' cannot be told apart in {path}: both are '{form}' there.")
    return target_by_form


def target_finder(
    path: Path, targets: Targets, ignore_case: bool, columns: Columns
) -> Callable[[str, str, str, str], DatedSentence]:
    """Returns a function that makes a [`DatedSentence`] of a time, a date, a source and a text of a corpus."""
    key = str.lower if ignore_case else str
    forms = target_forms(path, targets, key, columns)
    sizes = sorted({len(form.split()) for form in forms}, reverse=True)
    first_words = {form.split()[0] for form in forms if " " in form}

    # A few words are most of a corpus.
    @lru_cache(2**16)
    def look_up(token: str) -> tuple[str | None, str, int, int, bool]:
        """
        Returns the target of a token or None, the token without a tag, the start and the end of the word in it, and
        whether it may begin a phrase.
        """
        # Punctuation, symbols and invisible characters of any script. A target may contain them, too.
        marks = "".join(char for char in token if unicodedata.category(char)[0] in "PSC")
        bare = token if key(token) in forms else token.strip(marks)
        word, start = untagged(bare), token.index(bare)
        plain = token[:start] + word + token[start + len(bare) :]
        may_begin = not first_words.isdisjoint((key(token), key(token.lstrip(marks))))
        return forms.get(key(bare)), plain, start, start + len(word), may_begin

    def find_targets(time: str, date: str, source: str, text: str) -> DatedSentence:
        raw_tokens = compose_accents(text).split()
        words, occurrences, tokens, offset, index = [], [], [], 0, 0
        while index < len(raw_tokens):
            token, size = raw_tokens[index], 1
            target, plain, start, end, may_begin = look_up(token)
            for longer in sizes if may_begin else ():
                phrase = " ".join(raw_tokens[index : index + longer])
                if (phrase_entry := look_up(phrase))[0] is not None:
                    token, size, (target, plain, start, end, _) = phrase, longer, phrase_entry
                    break
            if target is not None:
                occurrences.append((target, offset + start, offset + end))
            words.append(plain)
            tokens.append(target or token)
            offset += len(plain) + 1
            index += size
        return DatedSentence(time, " ".join(words), tuple(occurrences), tuple(tokens), date, source)

    return find_targets


def dwug_groupings(path: str | Path) -> list[str]:
    """Returns the groupings of the uses of a DWUG data set, in the order of the numbers in their names."""
    names = {row.get("grouping", "").strip() for _, row in read_uses(path)}
    return sorted(names, key=lambda name: (time_order(name), name))


def read_dwug(path: str | Path, times: Sequence[str] | None = None) -> Iterator[DatedSentence]:
    """
    Reads the uses of a Diachronic Word Usage Graph data set (Schlechtweg et al., 2021) lazily.

    Args:
        path (`str` or `Path`): The folder of a published data set of any language, with files `data/LEMMA/uses.csv`.
        times (`Sequence[str]`, *optional*): The time points, one for each grouping in the order of the numbers in
            their names. Default: the groupings.

    Returns:
        An iterator over [`DatedSentence`], one for each use. `targets` has this use only, even if the word is in the
        sentence twice; `source` is the identifier of the use. Raises a `ValueError` that names the first line of
        another form, if there is no use, or if the numbers of `times` and groupings differ.
    """
    groupings = dwug_groupings(path)
    if times is not None and len(times) != len(groupings):
        raise ValueError(f"--times must name {len(groupings)} time points ({', '.join(groupings)}), got {len(times)}.")
    names = dict(zip(groupings, times or groupings, strict=True))
    for where, row in read_uses(path):
        try:
            text, span = row["context"], row["indexes_target_token"]
            first, last = span.split(":")
            # A missing end is the end of the text.
            start, end = int(first), int(last or len(text))
            if not 0 <= start < end <= len(text):
                raise ValueError(f"'indexes_target_token' is out of range: {span!r}")
            word = compose_accents(row["lemma"])
            tokens = (*text[:start].split(), word, *text[end:].split())
            time, date = names[row["grouping"].strip()], row["date"].strip()
            yield DatedSentence(time, text, ((word, start, end),), tokens, date, row["identifier"])
        except (KeyError, ValueError) as problem:
            raise ValueError(f"{where} is not in the form of DWUG's uses: {problem}.") from None


def read_uses(path: str | Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the uses of a DWUG data set, each after its file and line."""
    files = sorted(Path(path).glob("data/*/uses.csv"))
    if not files:
        raise ValueError(f"{path} has no file data/LEMMA/uses.csv.")
    for file in files:
        yield from read_tsv(file)
