"""Recognises the layout of a corpus of texts, and reads it as passages."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from transformers.utils import logging

from modeling_tempoformer import name_time, read_tables
from modeling_tempoformer.common.columns import find_column, is_missing, require_column
from modeling_tempoformer.common.files import TABLES, ZIPPED, read_lines, unzipped_name

from .gutenberg import are_wrapped, is_gutenberg, read_gutenberg, read_paragraphs
from .pages import Page, find_volumes, read_pages
from .passages import GAP, Dropped, Origin, Passage, TextColumns, find_compounds, find_date_in_name, origin_of_file
from .tei import read_tei
from .token_lines import IN_TAG, Lines, TokenFile, read_token_lines, token_layout
from .what_was_read import Judged, WhatWasRead, checked, name_files


logger = logging.get_logger(__name__)

# The layouts that the ending of a file names. All others are recognised by the first lines.
LAYOUTS = {
    **dict.fromkeys((".conllu", ".conllup", ".cupt", ".conll"), "conllu"),
    **dict.fromkeys((".vrt", ".vert"), "vrt"),
    **dict.fromkeys((".xml", ".tei"), "xml"),
}
# The layouts as errors name them.
NAMES = {
    "conllu": "CoNLL-U",
    "coha": "tokens with lemmas and parts of speech, as in COHA",
    "vrt": "VRT",
    "xml": "TEI",
    "gutenberg": "a book of Project Gutenberg",
    "wrapped": "wrapped lines",
    "lines": "a text on each line",
    "table": "a table",
    "pages": "pages of a volume",
}
TEXT_SUFFIXES = tuple(f"{suffix}{zipped}" for suffix in (".txt", *LAYOUTS) for zipped in ("", *ZIPPED))
# The number of first lines that tell the layout of a file.
NUM_FIRST_LINES = 200
TEI_ROOT = re.compile(r"<(?:\w+:)?(?:TEI|teiCorpus)(?:\.2)?[\s>]")
# A text of COHA on one line, after its number.
LINE_OF_COHA = re.compile(r"(?:##|@@)(\d+)\s+(?=\S)")
# An identifier before the text of a line, as in the plain text of ParlaMint.
LINE_ID = re.compile(r"(?!##|@@)(\S*\d\S*)\t(?=.*\S)")
REDACTED = re.compile(r"(?<!\S)@(?:\s+@)+(?!\S)")
# The beginning of an article of WikiExtractor, and of a text of VRT.
DOC = re.compile(rf"<doc\s{IN_TAG}>")


def is_table(path: str | Path) -> bool:
    """Tells whether a file is a table, by its name."""
    return Path(path).name.lower().endswith(TABLES)


def time_of_file(path: str | Path) -> str:
    """Returns the name of a file or folder without the suffixes of texts and tables, which names its time point."""
    name = unzipped_name(path)
    return name.rpartition(".")[0] if name.endswith((*TEXT_SUFFIXES, *TABLES)) else name


def read_passages(path: str | Path, columns: TextColumns = TextColumns()) -> Iterator[Passage]:
    """
    Yields the passages of a corpus that have words.

    Args:
        path (`str` or `Path`): A table, a text file, or a folder, whose text files are read, including subfolders.
        columns ([`TextColumns`], *optional*): The columns of tables, and of tokens.

    A warning counts what was left out, and others name files in which words cannot be found. Raises a `ValueError`
    that names the file, and if possible the line, for what cannot be read, and for a file that is not in the layout
    that was guessed ([`WhatWasRead`]).
    """
    path, dropped, is_empty = Path(path), Dropped(), True
    files, judged, joined = find_text_files(path, dropped), Judged(path), {}
    for document, volume in find_volumes(files):
        for layout, file, passages in read_volume(volume, document, columns, dropped):
            joined.setdefault(layout, []).append(file)
            for passage in checked(passages, WhatWasRead(file, NAMES[layout]), judged):
                is_empty = False
                # One of several files is a document, unless it marks its own.
                yield passage if passage.document or len(files) == 1 else replace(passage, document=document)
    judged.end()
    if "wrapped" in joined:
        logger.warning_once(
            f"{name_files(joined['wrapped'])}: the lines are wrapped, so they are joined to paragraphs."
        )
    if "pages" in joined:
        logger.warning_once(
            f"{name_files(joined['pages'])}: the files are named as pages (00000001.txt, page_1.txt), so the pages in "
            "a folder are one document, and their lines are joined to paragraphs. Rename files that are no pages."
        )
    dropped.say(path)
    if is_empty and dropped.first:
        (one, _), where = next(iter(dropped.first.items()))
        raise ValueError(f"{path}: all texts are left out, first the {one} in {where}.")


def find_text_files(path: Path, dropped: Dropped) -> list[tuple[Path, str]]:
    """Returns a file, or the text files of a folder, each with its name in the folder."""
    if not path.is_dir():
        return [(path, path.name)]
    if all((path / version).is_dir() for version in ("lemma", "token")):
        raise ValueError(f"{path} has each sentence twice: give its folder 'lemma' or 'token'.")
    files = []
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path)
        if file.name.endswith(TEXT_SUFFIXES):
            files.append((file, str(name)))
        elif file.is_file() and not any(part.startswith(".") for part in name.parts):
            dropped.add(str(file), "file with another ending", "files with other endings")
    if not files:
        raise ValueError(f"{path} has no file whose name ends in {', '.join(('.txt', *LAYOUTS))}: rename its texts.")
    return files


def read_volume(
    files: Sequence[tuple[Path, str]], document: str, columns: TextColumns, dropped: Dropped
) -> Iterator[tuple[str, Path, Iterator[Passage]]]:
    """
    Yields the layout, the path and the passages of a file, or of the pages of a volume. Pages of running text are read
    together.
    """
    if len(files) > 1:
        pages = [Page(file, name, list(read_lines(file, keep_blank=True))) for file, name in files]
        sample = [line for page in pages for _, line in page.lines][:NUM_FIRST_LINES]
        if find_layout(files[0][0], sample) in ("wrapped", "lines"):
            yield "pages", files[0][0].parent, read_pages(pages, document, dropped)
            return
    for file, name in files:
        layout, passages = read_texts(file, name, columns, dropped)
        yield layout, file, passages


def find_layout(path: Path, sample: Sequence[str]) -> str:
    """Returns the layout of a file by its ending, or by its first lines."""
    layout = LAYOUTS.get(Path(unzipped_name(path)).suffix)
    if layout == "xml" or any(map(TEI_ROOT.search, sample)):
        return "xml"
    if layout := layout or token_layout(sample):
        return layout
    if any(map(DOC.match, sample)):
        raise ValueError(
            f"{path} is a wiki as WikiExtractor writes it: extract it by --json, join the files to one .jsonl, and "
            "give --source_column title; or delete its tags by grep -v '^</\\?doc'."
        )
    if is_gutenberg(sample):
        return "gutenberg"
    return "wrapped" if are_wrapped(sample) else "lines"


def read_texts(path: Path, name: str, columns: TextColumns, dropped: Dropped) -> tuple[str, Iterator[Passage]]:
    """Returns the layout of a file, by its ending or its first lines, and its passages."""
    if is_table(path):
        return "table", read_text_rows(path, columns, dropped)
    lines = read_lines(path, keep_blank=True)
    # XML may have another encoding than UTF-8.
    is_xml = LAYOUTS.get(Path(unzipped_name(path)).suffix) == "xml"
    first = [] if is_xml else list(islice(lines, NUM_FIRST_LINES))
    sample, lines = [line for _, line in first], chain(first, lines)
    layout = find_layout(path, sample)
    if layout == "xml":
        passages = read_tei(path, name, columns.search, dropped)
    elif layout == "gutenberg":
        passages = read_gutenberg(lines, str(path), name)
    elif layout == "wrapped":
        compounds = find_compounds(line for _, line in read_lines(path))
        passages = read_paragraphs(lines, "", find_date_in_name(name), origin_of_file(name), compounds)
    elif layout == "lines":
        passages = read_text_lines(lines, path, name, dropped, find_line_id(sample))
    else:
        passages = read_token_lines(lines, layout, TokenFile(str(path), name, columns, dropped), sample)
    return layout, passages


def find_line_id(sample: Sequence[str]) -> re.Pattern:
    """
    Returns the form of the identifiers before the texts of lines: any identifier and a tab if each line has another
    one, else COHA's.
    """
    found = [LINE_ID.match(line) for line in sample if line.strip()]
    are_ids = all(found) and len({one[1] for one in found}) == len(found)
    return LINE_ID if found and are_ids else LINE_OF_COHA


def read_text_lines(lines: Lines, path: Path, name: str, dropped: Dropped, line_id: re.Pattern) -> Iterator[Passage]:
    """
    Yields each line. One with an identifier is a document, unless this is a mere number, as of verses or sentences. A
    text of COHA has no redacted passages.
    """
    date, origin = find_date_in_name(name), origin_of_file(name)
    for number, line in lines:
        source, document = f"{name}, line {number}", ""
        if found := line_id.match(line):
            source, line = f"text {found[1]}, {source}", line[found.end() :]
            if line_id is LINE_OF_COHA or not found[1].isdecimal():
                document = f"{name}, text {found[1]}"
            if line_id is LINE_OF_COHA:
                line, count = REDACTED.subn(GAP, line)
                for _ in range(count):
                    dropped.add(f"{path}, line {number}", "redacted passage", "redacted passages")
        yield Passage.of_text(date, source, line, document, origin)


def read_text_rows(path: Path, columns: TextColumns, dropped: Dropped) -> Iterator[Passage]:
    """
    Yields the text of each row of a table. Rows that share date and source are parts of one document.

    Raises a `ValueError` for a cell of the column of texts that holds something else, such as a list.
    """
    number, dated, undated = -1, Origin(path.name, f"column {columns.time}"), Origin(path.name)
    for table in read_tables(str(path)):
        cells = []
        for role, column in (("text", columns.text), ("time", columns.time), ("source", columns.source)):
            may_lack = column in ("date", "source")
            found = (find_column if may_lack else require_column)(
                table.column_names, column, role, option=f"--{role}_column"
            )
            cells.append(table[found].to_pylist() if found else [None] * table.num_rows)
        for number, (text, date, source) in enumerate(zip(*cells, strict=True), number + 1):
            if is_missing(text):
                dropped.add(f"{path}, row {number}", "row without a text", "rows without a text")
                continue
            if not isinstance(text, str):
                raise ValueError(
                    f"{path}, row {number}: the column '{columns.text}' must hold a text, got {text!r:.80}."
                )
            date = "" if is_missing(date) else name_time(date)
            source = f"{path.name}, row {number}" if is_missing(source) else str(source)
            yield Passage.of_text(date, source, text, f"{source}, {date}", dated if date else undated)
