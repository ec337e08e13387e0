"""Reads dated sentences with target words, and gold scores of the words' change."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from transformers.utils import logging

from modeling_tempoformer import TimePoints
from modeling_tempoformer.common.files import read_lines

from .dated_sentences import Blocks, Capitals, Compounds, DatedSentence, TargetFinder, Targets
from .reading.dated_texts import count_by_reason, time_order
from .reading.files_read import FilesRead
from .reading.passages import TextColumns, fold
from .reading.text_layouts import is_table, read_passages


logger = logging.get_logger(__name__)

# Sentence and token, at the end of the identifier of a use of DWUG EN (`fic_1821_7123.txt-1290-5`).
USE = re.compile(r"(?<=.)-\d+-\d+$")


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
    """Adds the key of a word, with single spaces. Raises a `ValueError` if it is there already."""
    word = fold(" ".join(word.split()))
    if word in words:
        raise ValueError(f"{where}: '{word}' is there twice.")
    words[word] = value


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
    columns: TextColumns = TextColumns(),
    tell_files: Callable[[pd.DataFrame], object] | None = None,
    with_compounds: bool = False,
) -> Iterator[DatedSentence]:
    """
    Reads a corpus for each time point lazily, in any layout of [`read_passages`], such as SemEval-2020 Task 1's
    (Schlechtweg et al., 2020): one sentence on each line, and tokens separated by white space.

    A token without the punctuation around it is a target if it equals one of the target's forms; a phrase is a
    sequence of such tokens. The longest target wins: if "social security" is a target, its "security" is no usage of
    "security". Tokens may have parts of speech ("walk_vb", "walk_VERB"), which a form need not have. In a corpus
    without the tags of the forms a warning says that targets are searched for without them. Another warning names
    targets that the corpora mostly write with other capitals. Words are compared by their keys ([`fold`]): however
    apostrophes, hyphens, ligatures and accents are written. In `text` accents are composed (NFC), and
    nothing else is changed.

    Args:
        paths_by_time (`Mapping[str, str | Path]`): The text of each time point: a text file, plain or `.gz`, a table
            (CSV, TSV, JSON lines, Parquet), or a folder, whose text files are read, including subfolders.
        targets (`Iterable[str]` or `Mapping[str, Sequence[str]]`): Words and phrases, or each with its forms, as
            [`read_targets`] returns them.
        ignore_case (`bool`, *optional*, defaults to `False`): If True, "Plane" is a usage of "plane".
        columns ([`TextColumns`], *optional*): The columns of tables, and of tokens that targets are looked up in.
        tell_files (`Callable`, *optional*): Is called with the table of [`FilesRead`] once all texts are read.
        with_compounds (`bool`, *optional*, defaults to `False`): If True, "motor-car" is a usage of "car".

    Returns:
        An iterator over [`DatedSentence`], including those without targets. `text` has no tags and single spaces;
        `source` is the source in the table, or the file and the line or row (from 0, as in pandas), after the title if
        the corpus tells it. Raises a `ValueError` if a file cannot be read, if a corpus has no sentence, or if two
        targets share a form.
    """
    paths = list(paths_by_time.values())
    capitals, compounds = Capitals(), Compounds(with_compounds)
    blocks, files = Blocks(paths, columns), FilesRead(paths)
    for time, path in paths_by_time.items():
        finder = TargetFinder(path, targets, ignore_case, columns, capitals, compounds, blocks)
        sentence = None
        for passage in read_passages(path, columns):
            sentence = finder.find(time, passage)
            files.add(path, passage, time)
            yield sentence
        if sentence is None:
            raise ValueError(f"The corpus of '{time}', {path}, is empty.")
    if tell_files:
        tell_files(files.table())
    capitals.say()
    compounds.say()


def read_dated_corpus(
    path: str | Path,
    times: Sequence[str],
    targets: Targets,
    ignore_case: bool = False,
    columns: TextColumns = TextColumns(),
    tell_files: Callable[[pd.DataFrame], object] | None = None,
    with_compounds: bool = False,
) -> Iterator[DatedSentence]:
    """
    Reads one corpus of the texts of all times. A text belongs to the time point that holds its date, or both ends of
    the span in which it was written (`1850/1855`). A warning counts the texts of no time point: those with another
    date, with a date that is not read, or without a date.

    Args:
        path (`str` or `Path`): A table, a file or a folder, as [`read_semeval`] reads them, with dates that
            [`read_date`] reads: in a column, in the metadata of texts, or in the names of files.
        times (`Sequence[str]`): Names of [`TimePoints`], such as "1810-1860".
        targets (`Iterable[str]` or `Mapping[str, Sequence[str]]`): Words and phrases, or each with its forms.
        ignore_case (`bool`, *optional*, defaults to `False`): If True, "Plane" is a usage of "plane".
        columns ([`TextColumns`], *optional*): The columns of tables, and of tokens that targets are looked up in.
        tell_files (`Callable`, *optional*): Is called with the table of [`FilesRead`] once all texts are read.
        with_compounds (`bool`, *optional*, defaults to `False`): If True, "motor-car" is a usage of "car".

    Raises a `ValueError` if a time has no text.
    """
    points = TimePoints(list(times))

    # Many texts share a few dates.
    @cache
    def find_time(date: str) -> str | None:
        if (time := points.get(date)) is not None:
            return time
        first, _, last = date.partition("/")
        return time if (time := points.get(first)) == points.get(last) else None

    capitals, compounds = Capitals(), Compounds(with_compounds)
    blocks = Blocks([path], columns, len(times))
    finder = TargetFinder(path, targets, ignore_case, columns, capitals, compounds, blocks)
    counts: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    files = FilesRead([path])
    for passage in read_passages(path, columns):
        time = find_time(passage.date)
        files.add(path, passage, time)
        if time is None:
            unknown[passage.date] += 1
        else:
            counts[time] += 1
            yield finder.find(time, passage)
    if tell_files:
        # Before an error, because the table shows the dates that are wrong.
        tell_files(files.table())
    total, why = counts.total() + unknown.total(), count_by_reason(unknown, points)
    left_out = f"{unknown.total():,} of {total:,} texts are left out: {why}." if unknown else ""
    if empty := [time for time in times if not counts[time]]:
        place = f"column '{columns.time}' (--time_column)" if is_table(path) else "texts' metadata or the files' names"
        raise ValueError(f"{path}: no date in the {place} is in {', '.join(empty)}. {left_out}")
    if unknown:
        logger.warning_once(f"{path}: {left_out}")
    capitals.say()
    compounds.say()


def document_of_use(identifier: str) -> str:
    """Returns the document in the identifier of a use of DWUG EN, without the numbers of sentence and token."""
    return USE.sub("", identifier)


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
            if "," in span:
                raise ValueError(
                    f"the target has several spans ({span}), as of a verb in two parts, and a word is read at one: "
                    "leave one in the cell, or leave the use out"
                )
            first, last = span.split(":")
            # A missing end is the end of the text.
            start, end = int(first), int(last or len(text))
            if not 0 <= start < end <= len(text):
                raise ValueError(f"'indexes_target_token' is out of range: {span!r}")
            word = fold(row["lemma"])
            tokens = (*text[:start].split(), word, *text[end:].split())
            time, date = names[row["grouping"].strip()], row["date"].strip()
            use = row["identifier"]
            yield DatedSentence(time, text, ((word, start, end),), tokens, date, use, document=document_of_use(use))
        except (KeyError, ValueError) as problem:
            raise ValueError(f"{where} is not in the form of DWUG's uses: {problem}.") from None


def read_uses(path: str | Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the uses of a DWUG data set, each after its file and line."""
    files = sorted(Path(path).glob("data/*/uses.csv"))
    if not files:
        raise ValueError(f"{path} has no file data/LEMMA/uses.csv.")
    for file in files:
        yield from read_tsv(file)
