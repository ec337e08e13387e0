"""Reads corpora with a token on each line: CoNLL-U (Plus), VRT, and COHA's word, lemma and part of speech."""

import html
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from .passages import (
    GAP,
    Dropped,
    Origin,
    Passage,
    TextColumns,
    common_date,
    compose_accents,
    find_date_in_name,
    glue,
    origin_of_file,
)


Lines = Iterator[tuple[int, str]]

# What may stand in a tag: a value between quotes holds any character; quotes that do not match are characters.
IN_TAG = r"""(?:(?:[^<>"']|"[^"]*"|'[^']*')*?|[^<>]*?)"""
# A line between tokens in VRT: a tag, a comment or a declaration.
MARKUP = re.compile(rf"<!--.*-->|</?[a-z!?]{IN_TAG}>", re.IGNORECASE)
TAG = re.compile(rf"<(/?)([\w.-]+)({IN_TAG})(/?)>")
ATTRIBUTE = re.compile(r"""([\w.:-]+)\s*=\s*("[^"]*"|'[^']*')""")
# A line that names the columns of VRT, in the corpora of Korp.
COLUMN_NAMES = re.compile(r"<!--\s*(?:#vrt )?positional[- ]attributes:(.*?)-->", re.IGNORECASE)
# The beginning of each text of COHA and the corpora like it.
TEXT_ID = re.compile(r"(?:##|@@)(\w+)")
NUMBER = re.compile(r"(?:##|@@)?\d+")
# A placeholder for a text that occurs often, in corpora like COHA.
PLACEHOLDER = re.compile(r"@qwx\d+")
CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
CONLLU_ID = re.compile(r"(\d+)(?:([.-])(\d+))?")
# A line that names the columns of CoNLL-U Plus.
GLOBAL_COLUMNS = re.compile(r"#\s*global\.columns\s*=(.*)", re.IGNORECASE)
COHA = ("word", "lemma", "pos")
OTHER_NAMES = {"word": ("form", "token"), "lemma": ("base",), "pos": ("upos", "tag"), "form": ("word",)}
OTHER_NAMES["upos"] = ("pos",)
SENTENCE_TAGS = ("s", "sentence")
# Elements that end a sentence. Others may be inside one, such as a name.
TEXT_TAGS = {"text", "doc", "document", "story", "article"}
PARTS_OF_TEXT = {*SENTENCE_TAGS, "p", "paragraph", "head", "div", "chapter"}
BLOCK_TAGS = TEXT_TAGS | PARTS_OF_TEXT
# Blocks that are never inside one of their name, so that one that was left open ends where the next begins.
FLAT_TAGS = BLOCK_TAGS - {"div"}
SENTENCE_END = re.compile(r"[.?!]+|[\u3002\uff1f\uff01\u0964]")
AFTER_SENTENCE_END = re.compile(r"""["'\u201d\u2019\u00bb)\]]+""")


class TokenFile(NamedTuple):
    """A file with a token on each line: its path in errors, its name in sources, and the columns of its user."""

    path: str
    name: str
    columns: TextColumns
    dropped: Dropped


def token_layout(lines: Sequence[str]) -> str | None:
    """
    Returns the layout of a corpus with a token on each line: `conllu`, `coha` or `vrt`; None if the lines are
    sentences. A tenth of the lines may be exceptions: tokens with spaces, or the names of texts.
    """
    lines = [line for line in lines if line.strip()]
    if any(map(GLOBAL_COLUMNS.fullmatch, lines)):
        return "conllu"
    tokens = [
        line
        for line in lines
        if not MARKUP.fullmatch(line.strip()) and not TEXT_ID.fullmatch(line.strip()) and not line.startswith("#")
    ]
    has_markup = any(MARKUP.fullmatch(line.strip()) for line in lines)
    # A cell has a token or none, and all lines have the same number of cells.
    sizes = Counter(
        len(cells)
        for cells in (line.split("\t") for line in tokens)
        if all(len(cell.split()) < 2 for cell in cells) and (len(cells) > 1 or is_word(cells[0]))
    )
    columns, count = sizes.most_common(1)[0] if sizes else (0, 0)
    if count < max(3, 0.9 * len(tokens)):
        return None
    if columns == len(CONLLU) and sum(line[:1].isdigit() for line in tokens) >= count:
        return "conllu"
    if columns > 1:
        numbered = sum(bool(NUMBER.fullmatch(line.split("\t")[0])) for line in tokens)
        has_ids = any(TEXT_ID.match(line) for line in lines) or (columns in (4, 5) and numbered >= count)
        return "coha" if has_ids and columns >= len(COHA) else "vrt"
    # A poem may have a few lines of one word.
    return "vrt" if has_markup or count >= 100 else None


def is_word(line: str) -> bool:
    """
    Tells whether a line without spaces is a word or punctuation. In a script without capitals it may be a sentence.
    """
    return line.lower() != line.upper() or not any(map(str.isalpha, line))


class Sentence:
    """The tokens of a sentence that is being read, and the metadata and the name of its document."""

    def __init__(self, file: TokenFile):
        self.file = file
        self.title = self.document = ""
        self.num_documents = 0
        self.by_name = find_date_in_name(file.name), origin_of_file(file.name)
        self.by_metadata = Origin(file.name, "metadata")
        self.set_date("")
        self.clear()

    def set_date(self, date: str):
        """Sets the date in the metadata of the text; where there is none it is that in the file's name."""
        self.date, self.origin = (date, self.by_metadata) if date else self.by_name

    def clear(self):
        self.words: list[str] = []
        self.keys: list[str] = []
        self.glued: set[int] = set()
        self.line = 0

    def begin_document(self, name: str = ""):
        """Begins a document, which has a name or the next number."""
        self.num_documents += 1
        self.document = f"{self.file.name}, text {name or self.num_documents}"

    def add(self, number: int, word: str, key: str | None, is_glued: bool = False):
        """Adds a token and its key, None if this is the token itself."""
        word = compose_accents(word)
        if not self.words:
            self.line = number
        elif is_glued:
            self.glued.add(len(self.words))
        self.words.append(word)
        self.keys.append(word if key is None else compose_accents(key))

    def end(self, spaces_are_known: bool) -> Iterator[Passage]:
        """Yields the sentence if it has a word, and begins another one."""
        if any(word != GAP for word in self.words):
            where = f"{self.file.name}, line {self.line}"
            source = f"{self.title}, {where}" if self.title else where
            glued = self.glued if spaces_are_known else glue(self.words)
            keys = self.words if self.keys == self.words else self.keys
            yield Passage(self.date, source, self.words, keys, glued, self.document, self.origin)
        self.clear()


class SearchColumns:
    """
    Finds the columns of tokens that are searched. `names` are the columns' names, none if the file does not tell them.
    Then the first column is the word, and others are given by their numbers, from 1.
    """

    def __init__(self, file: TokenFile, names: Sequence[str]):
        self.file, self.names = file, [name.lower().rstrip("/") for name in names]
        self.word = self.find("word", 0, "")
        self.indices: dict[int, list[int]] = {}

    def place(self, name: str) -> int | None:
        """Returns the place of a column that the file names, None if it has none of this name."""
        known = (known for known in (name.lower(), *OTHER_NAMES.get(name.lower(), ())) if known in self.names)
        return next(map(self.names.index, known), None)

    def find(self, name: str, size: int, where: str) -> int:
        if (place := self.place(name)) is not None:
            return place
        if name == "word":
            return 0
        if name.isdigit() and 0 < int(name) <= size:
            return int(name) - 1
        known = f"its columns are {', '.join(self.names)}" if self.names else "the file does not name its columns"
        raise ValueError(
            f"{where}: no column '{name}' among the {size} of a token; {known}. Give a column's number, from 1, by "
            "--search_columns."
        )

    def key(self, cells: list[str], where: str) -> str | None:
        """Returns the text of a token that is searched, None if this is its word."""
        size = len(cells)
        if size not in self.indices:
            self.indices[size] = [self.find(name, size, where) for name in self.file.columns.search]
        indices = self.indices[size]
        return None if indices == [self.word] else "_".join(cells[index] for index in indices)


def read_token_lines(lines: Lines, layout: str, file: TokenFile, sample: Sequence[str]) -> Iterator[Passage]:
    """
    Yields the sentences of a file with a token on each line.

    Args:
        lines: The lines and their numbers, with blank ones.
        layout: One of [`token_layout`].
        file: The file. Its `dropped` counts what is left out.
        sample: Its first lines, which tell whether sentences and spaces are marked.

    Raises a `ValueError` that names the file and line for a token without the columns of the layout.
    """
    if layout == "conllu":
        return read_conllu(lines, file)
    return read_coha(lines, file) if layout == "coha" else read_vrt(lines, file, sample)


def find_value(values: Mapping[str, str], *names: str) -> str:
    """Returns the first of some values that is there, in any case, or an empty text."""
    lower = {name.lower(): value for name, value in values.items()}
    return next((lower[name.lower()] for name in names if lower.get(name.lower(), "").strip()), "")


def date_of(values: Mapping[str, str], columns: TextColumns) -> str:
    """Returns the date in the metadata of a text, an empty text if there is none."""
    if date := find_value(values, columns.time, "date", "year", "dateCreated"):
        return date
    first, last = find_value(values, "datefrom"), find_value(values, "dateto")
    return common_date(first, last or first) if first else ""


def read_conllu(lines: Lines, file: TokenFile) -> Iterator[Passage]:
    """
    Reads CoNLL-U, and CoNLL-U Plus by the columns that its line `# global.columns = ID FORM ...` declares. A text
    begins with `# newdoc`; its date is `# date`, `# year` or `# meta::dateCreated`. A multiword token is one word of
    the text, and each of its parts can be found.
    """
    sentence, columns = Sentence(file), SearchColumns(file, CONLLU)
    id_place, misc = columns.place("id"), columns.place("misc")
    comments: dict[str, str] = {}
    text: dict[str, str] = {}
    last_part, is_glued = 0, False
    for number, line in lines:
        where = f"{file.path}, line {number}"
        cells = line.split("\t")
        # Only a number in the first column tells tokens such as `#time` from comments.
        is_comment = line.startswith("#") and (id_place == 0 or len(cells) == 1)
        if is_comment or not line.strip():
            yield from sentence.end(misc is not None)
            last_part, is_glued = 0, False
        if declared := GLOBAL_COLUMNS.fullmatch(line):
            columns = SearchColumns(file, declared[1].split())
            id_place, misc = columns.place("id"), columns.place("misc")
            if columns.place("form") is None:
                raise ValueError(f"{where}: the words of CoNLL-U Plus are in a column FORM, got {line!r:.80}.")
            continue
        if is_comment:
            name, _, value = line[1:].partition("=")
            comments[name.strip().lower().removeprefix("meta::")] = value.strip()
            continue
        if comments:
            begins_text = any(name.startswith("newdoc") for name in comments)
            text = comments if begins_text else text | comments
            if begins_text:
                sentence.begin_document()
            sentence.set_date(date_of(text, file.columns))
            sentence.title = find_value(text, file.columns.source, "title", "newdoc id")
        if not line.strip():
            if comments:
                file.dropped.add(where, "empty sentence", "empty sentences")
                comments = {}
            continue
        comments = {}
        has_all = len(cells) == len(columns.names)
        match = CONLLU_ID.fullmatch("1" if id_place is None else cells[id_place]) if has_all else None
        if not match:
            raise ValueError(
                f"{where}: expected the {len(columns.names)} columns of CoNLL-U ({' '.join(columns.names).upper()}), "
                f"separated by tabs, with a number as ID, got {line!r:.80}. The first line may name others: "
                "'# global.columns = ID FORM ...'."
            )
        first, kind, last = match.groups()
        key = columns.key(cells, where)
        if kind == ".":
            # An empty node, which is not in the text.
            continue
        if int(first) <= last_part:
            if key is not None:
                sentence.keys[-1] = f"{sentence.keys[-1]} {key}".strip()
            continue
        if kind == "-":
            last_part, key = int(last), None if key is None else ""
        sentence.add(number, cells[columns.word], key, is_glued)
        is_glued = misc is not None and "SpaceAfter=No" in cells[misc].split("|")
    yield from sentence.end(misc is not None)


def read_coha(lines: Lines, file: TokenFile) -> Iterator[Passage]:
    """
    Reads the corpora of COHA's family: word, lemma and part of speech in the last three columns, and texts that begin
    with `##` or `@@` and their number, or have it in the first column. Words that were removed for copyright (`@`)
    become one mark. Sentences end at punctuation. The year is in the file's name (`fic_1817_8554.txt`).
    """
    sentence, columns = Sentence(file), SearchColumns(file, COHA)
    text_id, is_over = "", False
    for number, line in lines:
        where = f"{file.path}, line {number}"
        cells = (html.unescape(line) if "&" in line else line).replace("\0", "").split("\t")
        before, cells = cells[: -len(COHA)], cells[-len(COHA) :]
        if line.startswith(("##", "@@")) and (found := TEXT_ID.match(line)):
            before, cells = [found[1]], cells if len(cells) == len(COHA) else []
        if before and before[0] != text_id:
            yield from sentence.end(False)
            text_id, is_over = before[0], False
            sentence.title = f"text {text_id}"
            sentence.begin_document(text_id)
        word = cells[0].strip() if cells else ""
        if is_over and not (AFTER_SENTENCE_END.fullmatch(word) and (word != '"' or sentence.words.count('"') % 2)):
            yield from sentence.end(False)
            is_over = False
        if not line.strip() or not cells or TEXT_ID.fullmatch(word):
            continue
        if word.startswith("<") and MARKUP.fullmatch(word):
            yield from sentence.end(False)
        elif len(cells) < len(COHA):
            file.dropped.add(where, "line without three columns", "lines without three columns")
        elif not word:
            file.dropped.add(where, "token without a word", "tokens without a word")
        elif word == "@" or PLACEHOLDER.fullmatch(word):
            if sentence.words[-1:] != [GAP]:
                file.dropped.add(where, "redacted passage", "redacted passages")
                sentence.add(number, GAP, None)
        else:
            sentence.add(number, word, columns.key(cells, where))
            is_over = is_over or bool(SENTENCE_END.fullmatch(word))
    yield from sentence.end(False)


class Elements:
    """The open elements around a sentence of VRT, and the date and the title in their attributes."""

    def __init__(self, file: TokenFile):
        self.columns = file.columns
        self.open: list[tuple[str, dict[str, str]]] = []
        self.date = self.title = ""

    def is_left_open(self, name: str) -> bool:
        """Tells whether a block that begins ends one of its name: in the same text, if it is a part of one."""
        if name not in FLAT_TAGS:
            return False
        ends = {name} if name in TEXT_TAGS else {name, *TEXT_TAGS}
        return next((other for other, _ in reversed(self.open) if other in ends), "") == name

    def read(self, closes: str, name: str, attributes: str):
        """Opens or closes an element. Closes those inside it, too, which may be left open, as one of its own name."""
        if any(name == other for other, _ in self.open) if closes else self.is_left_open(name):
            while self.open.pop()[0] != name:
                pass
        if not closes:
            values = {key: html.unescape(value[1:-1]) for key, value in ATTRIBUTE.findall(attributes)}
            self.open.append((name, values))
        inside_out = [(name, values) for name, values in reversed(self.open) if values]
        dates = (date_of(values, self.columns) for _, values in inside_out)
        self.date = next(filter(None, dates), "")
        whole = [values for name, values in inside_out if name not in PARTS_OF_TEXT]
        titles = (find_value(values, self.columns.source, "title", "id") for values in whole)
        self.title = next(filter(None, titles), "")


def read_vrt(lines: Lines, file: TokenFile, sample: Sequence[str]) -> Iterator[Passage]:
    """
    Reads VRT, the input of the Corpus Workbench and of Sketch Engine: columns of tokens between tags; the tag `<g/>`
    joins two tokens. Date and title are attributes of the elements around a sentence. Sentences end at `<s>` or
    `<sentence>`, without these at blank lines, paragraphs and punctuation.
    """
    sentence, columns, elements = Sentence(file), SearchColumns(file, ()), Elements(file)
    tags = {found[2].lower() for line in sample if (found := TAG.fullmatch(line.strip()))}
    has_sentences, has_glue = not tags.isdisjoint(SENTENCE_TAGS), "g" in tags
    size = first = 0
    is_over = is_glued = is_empty = False
    for number, line in lines:
        where, text = f"{file.path}, line {number}", line.strip()
        if not text:
            if not has_sentences:
                yield from sentence.end(has_glue)
        elif text[0] == "<" and (tag := TAG.fullmatch(text)):
            closes, name, attributes, is_alone = tag.groups()
            name = name.lower()
            if name == "g":
                is_glued = True
            elif name in BLOCK_TAGS:
                if closes and is_empty and name in SENTENCE_TAGS:
                    file.dropped.add(where, "empty sentence", "empty sentences")
                yield from sentence.end(has_glue)
                is_over = is_glued = False
                is_empty = not closes and name in SENTENCE_TAGS
            if not is_alone and name not in SENTENCE_TAGS:
                if not closes and name in TEXT_TAGS:
                    sentence.begin_document()
                elements.read(closes, name, attributes)
                sentence.set_date(elements.date)
                sentence.title = elements.title
        elif text[0] == "<" and MARKUP.fullmatch(text):
            if names := COLUMN_NAMES.fullmatch(text):
                columns = SearchColumns(file, names[1].split())
        else:
            cells = (html.unescape(line) if "&" in line else line).split("\t")
            size, first = size or len(cells), first or number
            if len(cells) != size:
                raise ValueError(
                    f"{where}: {len(cells)} columns, while line {first} has {size}, in a file with a token on each "
                    f"line: {line!r:.80}."
                )
            word = cells[columns.word].strip()
            if is_over and not AFTER_SENTENCE_END.fullmatch(word):
                yield from sentence.end(has_glue)
                is_over = False
            if not word:
                file.dropped.add(where, "token without a word", "tokens without a word")
                continue
            sentence.add(number, word, columns.key(cells, where), is_glued)
            is_glued = is_empty = False
            is_over = not has_sentences and (is_over or bool(SENTENCE_END.fullmatch(word)))
    yield from sentence.end(has_glue)
