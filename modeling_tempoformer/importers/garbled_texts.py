"""Garbled texts: UTF-8 that was read as Latin-1 or Windows-1252 and encoded again, `schÃ¶n` for `schön`."""

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from transformers.utils import logging

from .export import Export


logger = logging.get_logger(__name__)

# The first byte of a character beyond ASCII in UTF-8, read as Latin-1
FIRST_BYTE = re.compile("[\xc2-\xf4]")
# The characters of Windows-1252 that Latin-1 lacks, and their bytes
OF_WINDOWS = {
    ord(bytes([byte]).decode("cp1252")): byte
    for byte in range(0x80, 0xA0)
    if byte not in (0x81, 0x8D, 0x8F, 0x90, 0x9D)
}


def is_mine(export: Export) -> bool:
    """Tells that any file may have garbled texts: whether it has some shows while it is read."""
    return True


def as_table(export: Export) -> Iterator[pa.Table]:
    """
    Yields the pieces of a table whose garbled columns are mended, with a warning that counts their texts. A column is
    garbled if all its texts with characters beyond ASCII can be decoded again. The file is read again, to look at all
    pieces, if there is a text that can be decoded again: hardly any other table has one.
    """
    garbled: set[str] | None = None
    for table in export.tables():
        if garbled is None and any(decode_again(text) for texts in beyond_ascii(table).values() for text in texts):
            garbled = find_garbled(export.tables(), export.path)
        for name in garbled or ():
            if name in table.column_names:
                cells = [text and (decode_again(text) or text) for text in table[name].to_pylist()]
                table = table.set_column(table.column_names.index(name), name, pa.array(cells, table[name].type))
        yield table


def find_garbled(tables: Iterator[pa.Table], path: str | Path) -> set[str]:
    """Returns the garbled columns of a table that is read in pieces. A warning counts their texts."""
    counts: dict[str, int] = {}
    examples: dict[str, str] = {}
    others = set()
    for table in tables:
        for name, texts in beyond_ascii(table).items():
            counts[name] = counts.get(name, 0) + len(texts)
            others.update(name for text in texts if decode_again(text) is None)
            examples.setdefault(name, texts[0])
    for name in counts.keys() - others:
        before, after = (repr(text)[:40] for text in (examples[name], decode_again(examples[name])))
        logger.warning_once(
            f"{path}, column {name!r}: mended {counts[name]} texts, which were UTF-8 that had been read as Latin-1 "
            f"and encoded again, as in exports of Facebook and Instagram: {before} is now {after}."
        )
    return counts.keys() - others


def beyond_ascii(table: pa.Table) -> dict[str, list[str]]:
    """Returns for each column of text its texts with characters beyond ASCII, without columns that have none."""
    texts = {}
    for field in table.schema:
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            column = table[field.name]
            if found := column.filter(pc.invert(pc.string_is_ascii(column))).to_pylist():
                texts[field.name] = found
    return texts


def decode_again(text: str) -> str | None:
    """Returns the original of a garbled text, None for an ASCII text and for one that is not garbled."""
    if not FIRST_BYTE.search(text):
        return None
    try:
        return text.translate(OF_WINDOWS).encode("latin-1").decode()
    except UnicodeError:
        return None
