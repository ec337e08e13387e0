"""Lists tables and posts that are refused. Each function gets an empty folder."""

import gzip
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
import pyarrow as pa
from datasets import Dataset
from helpers import VOCABULARY
from transformers import BertTokenizer

from modeling_tempoformer.posts.rows import to_rows
from modeling_tempoformer.posts.tables import load_table
from modeling_tempoformer.posts.timelines import to_timelines
from research.corpora import read_corpus
from semantic_change.reading.text_layouts import read_passages


HEADER = "timeline_id,timestamp,text,label\n"
GOOD = "ann,2024-05-01,hello,O\n"


def table(content: str | bytes, name: str = "posts.csv", read: Callable[[str], object] = load_table):
    """Reads a file with this content, as a table or by another function."""

    def read_in(folder: Path):
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        read(str(folder / name))

    return read_in


def half_a_parquet(folder: Path):
    path = folder / "posts.parquet"
    pd.DataFrame({"text": ["hello"] * 100}).to_parquet(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    load_table(str(path))


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 12345\n"
LOGIN = "<!DOCTYPE html>\n<html><title>Log in</title><p>text,date</p></html>\n"
CHAT = "@UTF8\n@Begin\n@Languages:\teng\n*CHI:\tmore milk .\n%mor:\tqn|more n|milk .\n@End\n"
WIKI = '<doc id="12" url="https://a" title="Plane">\nPlane\n\nA plane is a tree or a machine.\n</doc>\n'


def texts(content: str, name: str = "1815.txt"):
    """Reads a file of texts with this content."""

    def read(folder: Path):
        (folder / name).write_text(content, encoding="utf-8")
        list(read_passages(folder / name))

    return read


TEXTS = {
    "a pointer of Git LFS": (texts(POINTER), "1815.txt…Git LFS…git lfs pull"),
    "a page that asks for a login": (texts(LOGIN), "1815.txt…HTML…logged in"),
    "a page in the place of TEI": (texts(f'<?xml version="1.0"?>{LOGIN}', "1815.xml"), "1815.xml…HTML"),
    "RTF": (texts("{\\rtf1\\ansi The planes left.}"), "1815.txt…RTF…plain text"),
    "a PDF": (texts("%PDF-1.7\n1 0 obj"), "1815.txt…PDF…plain text"),
    "a CHAT transcript": (texts(CHAT, "eve_1962.cha"), "eve_1962.cha…CHAT…pylangacq"),
    "an extracted wiki": (texts(WIKI * 30), "1815.txt…WikiExtractor…--json"),
}

TABLES = {
    "a pointer of Git LFS": (table(POINTER), "posts.csv…Git LFS…git lfs pull"),
    "a pointer of Git LFS in the place of Parquet": (table(POINTER, "posts.parquet"), "posts.parquet…git lfs pull"),
    "a page that asks for a login": (table(LOGIN), "posts.csv…HTML…logged in"),
    "a page that asks for a login, as JSON": (table(LOGIN, "posts.jsonl"), "posts.jsonl…HTML"),
    "a line with a cell too many": (table(f"{HEADER}{GOOD}ann,2024-05-02,hello,O,O\n"), "posts.csv…line 3…5…4"),
    "two lines with a cell too many at the end": (
        table(f"{HEADER}{GOOD}" + "ann,2024-05-02,so, so,O\n" * 2),
        "posts.csv, line 3…5…4…must be quoted",
    ),
    "a line with a cell too few": (table(f"{HEADER}{GOOD}ann,2024-05-02,hel"), "posts.csv…line 3…3…4"),
    "a quote that is never closed": (table(f'text\n"hello\n{GOOD}'), "posts.csv…line 2"),
    "a quote after a backslash": (
        table(f'{HEADER}{GOOD}ann,2024-05-02,"She said \\"I am done\\" and left",O\n{GOOD}'),
        "posts.csv…line 3…doubled…backslash",
    ),
    "a column without a name": (table(f"a,,{HEADER}0,1,{GOOD}"), "posts.csv…index=False…row.names = FALSE…''"),
    "row names that R has written without a name": (table(f"{HEADER}1,{GOOD}"), "posts.csv, line 2…row.names = FALSE"),
    "two columns of one name": (table("text,text\na,b\n"), "posts.csv…'text', 'text'"),
    "a header without rows": (table(HEADER), "posts.csv…no rows"),
    "UTF-16": (table((HEADER + GOOD).encode("utf-16")), "posts.csv…UTF-8"),
    "gzip cut short": (
        table(gzip.compress(HEADER.encode() + GOOD.encode() * 999)[:-9], "posts.csv.gz"),
        "posts.csv.gz",
    ),
    "a JSON line cut short": (
        table('{"text": "hello"}\n{"text": "hel', "posts.jsonl"),
        "posts.jsonl, line 2, column 10",
    ),
    "a JSON line without a comma": (
        table('{"text": "so"}\n\n{"text": "so" "label": "O"}\n', "posts.jsonl"),
        "posts.jsonl, line 3, column 15…','",
    ),
    "a JSON list without a comma": (
        table('[\n{"text": "so"},\n{"text": "so"}\n{"text": "so"}]', "posts.json"),
        "posts.json, line 4, column 1:…','",
    ),
    "a corpus with a mistake in its JSON": (
        table('{"thread_id": "1" "source": {}}\n', "threads.jsonl", partial(read_corpus, corpus="lrs")),
        "threads.jsonl, line 1, column 19…','",
    ),
    "a JSON line that is no object": (table('{"text": ""}\n"hello"\n', "posts.jsonl"), "posts.jsonl…line 2…'hello'"),
    "half of a surrogate pair": (
        table('{"text": "so"}\n{"text": "so \\ud83d"}\n', "posts.jsonl"),
        "posts.jsonl, line 2…'text'…\\ud83d…surrogate",
    ),
    "a JSON object around the list": (
        table('{"version": {}, "data": [{"text": "hello"}]}', "posts.json"),
        "posts.json, line 1…'data'…list",
    ),
    "a Parquet file cut short": (half_a_parquet, "posts.parquet"),
    "a file of another kind": (table(HEADER, "posts.docx"), "posts.docx….csv"),
    "a file of SPSS": (table("$FL2", "posts.sav"), "posts.sav…read_spss…to_csv"),
    "a file of Stata": (table("<stata_dta>", "posts.dta"), "posts.dta…read_stata…to_csv"),
    "a file of R": (table("X", "posts.rds"), "posts.rds…write.csv(readRDS"),
    "subtitles": (table("WEBVTT\n", "talk.VTT"), "talk.VTT…webvtt…to_csv"),
    "a file of ELAN": (table("<ANNOTATION_DOCUMENT/>", "talk.eaf"), "talk.eaf…Tab-delimited….tsv"),
    "a separator at the end of each row": (
        table(f"{HEADER}{GOOD}{GOOD}".replace("O\n", "O,\n")),
        "posts.csv, line 2…5…4…ends with a separator",
    ),
    "a separator at the end of each line": (
        table(f"{HEADER}{GOOD}{GOOD}".replace("\n", ",\n")),
        "posts.csv…no name…separators at the ends",
    ),
    "lines before the names of the columns": (
        table(f"Posts of Ann\nfrom,2024\n\n{HEADER}{GOOD}{GOOD}"),
        "posts.csv, line 2…line 4…delete",
    ),
    "a line before the names of a long table": (
        table(f"by Ann\n{HEADER}" + GOOD.replace("hello", '"a\nb, c"') * 999),
        "posts.csv, line 2…4…1…line 2…delete",
    ),
    "more lines than rows before the names of the columns": (
        table("sep=;\nsource;a\nsize;2\n\ntext;label;id\nso;O;1\n"),
        "posts.csv, line 5…3…2…line 5…delete",
    ),
    "row names of some rows of R": (table(f"{HEADER}17,{GOOD}23,{GOOD}"), "posts.csv, line 2…5…4…row.names = FALSE"),
    "blanks between cells, which R has quoted": (
        table('"text" "label"\n"4" "so, so" "O"\n'),
        "posts.csv, line 1…blanks…commas or tabs",
    ),
    "blanks between cells": (table("text label\nso,so O\nsad O\n"), "posts.csv, line 2…blanks…commas or tabs"),
    "a space before a quote": (
        table('text,label\nso, O\n, "O, or not"\n'),
        "posts.csv, line 3…3…2…space…before a quote",
    ),
    "an old spreadsheet": (table(HEADER, "posts.xls"), "posts.xls….csv…CSV UTF-8….xlsx"),
    "zst cut short": (
        table(pa.compress(HEADER.encode() + GOOD.encode() * 999, "zstd", asbytes=True)[:-9], "posts.csv.zst"),
        "posts.csv.zst…zstd -d",
    ),
    "a header again in another order": (
        table(f"{HEADER}{GOOD}text,label,timeline_id,timestamp\nhello,O,ann,2024-05-01\n"),
        "posts.csv, before row 1 …order",
    ),
    "objects that are keyed by ids": (
        table('{\n"p1": {"text": "so"},\n"p2": {"text": "sad"}}', "posts.json"),
        "posts.json…'p1'…--records '*'",
    ),
    "objects one after the other, the last cut short": (
        table('{"text": "so"} {"text": "sad"}\n{"text": "gl', "posts.json"),
        "posts.json, line 2, column 10",
    ),
    "a file that is not there": (lambda folder: load_table(str(folder / "a.csv")), "a.csv", "FileNotFoundError"),
}

POSTS = [
    {"timeline_id": "ann", "timestamp": "2024-05-01", "text": "sad", "label": "O", "id": "p0"},
    {"timeline_id": "ann", "timestamp": "2024-05-02", "text": "glad", "label": "IS", "id": "p1"},
]


def posts(change: dict, **columns):
    """Groups good posts to timelines, after a change of the second post."""

    def read(folder: Path):
        made = Dataset.from_list([{**dict.fromkeys(change), **POSTS[0]}, POSTS[1] | change])
        return to_timelines(made, ["IS", "O"], **columns)

    return read


def posts_of_lists(folder: Path):
    to_timelines(
        Dataset.from_list([{**post, "timeline_id": [["ann"], ["ann", "bob"]][n]} for n, post in enumerate(POSTS)])
    )


def rows(tokenizer=None, **settings):
    """Returns the rows of two good posts."""

    def read(folder: Path):
        timelines = to_timelines(Dataset.from_list(POSTS), ["IS", "O"])
        return to_rows(timelines, tokenizer or BertTokenizer(vocab=VOCABULARY), **{"window": 2, **settings})

    return read


POST_CASES = {
    "no timeline id": (posts({"timeline_id": None}), "Row 1…'timeline_id'", "PostError"),
    "no text": (posts({"text": None}), "Row 1…'text'", "PostError"),
    "a time that is none": (posts({"timestamp": "yesterday"}), "Row 1…'timestamp'…'yesterday'", "PostError"),
    **{
        f"a shortened id: {shortened}": (
            posts({"timeline_id": shortened}),
            f"Row 1…'timeline_id'…{shortened!r}…as text",
            "PostError",
        )
        for shortened in ("1.78E+17", "1,82303E+18", "1.54E18", "1.71455E9", "1,5E10", "1E+05")
    },
    **{
        f"a shortened name in the column of a {role}": (
            posts({"id": "1,82303E+18"}, columns={role: "id"}),
            "Row 1…'id'…'1,82303E+18'…as text",
            "PostError",
        )
        for role in ("id", "speaker", "group", "split", "annotator")
    },
    "a group as a float that has lost digits": (
        lambda folder: to_timelines(
            Dataset.from_list([{**post, "id": 2.0**53 + 2} for post in POSTS]), ["IS", "O"], columns={"group": "id"}
        ),
        "Row 0…'id'…9007199254740994.0…as text",
        "PostError",
    ),
    "a timeline id that means none": (posts({"timeline_id": " NaN "}), "Row 1…'timeline_id'…' NaN '", "PostError"),
    "a shortened time": (posts({"timestamp": "1,71455E9"}), "Row 1…'timestamp'…'1,71455E9'", "PostError"),
    "states that look alike": (
        lambda folder: to_timelines(
            Dataset.from_list([{**post, "mood": mood} for post, mood in zip(POSTS, ["Calm", "calm"], strict=True)]),
            columns={"state": "mood"},
        ),
        "Row 1…'mood'…'calm'…'Calm'…alike",
        "PostError",
    ),
    "two labels that are written as a list": (posts({"label": '["O","IS"]'}), "Row 1…'label'…[\"O\"", "PostError"),
    "a mark of ConvoKit": (posts({"label": "<##bin{0}&&@**>"}), "Row 1…'label'…<##bin{0}…to_csv", "PostError"),
    "a speaker in bytes": (posts({"who": b"ann"}, columns={"speaker": "who"}), "Row 1…'who'…bytes", "PostError"),
    "an unknown label": (posts({"label": "XX"}), "Row 1…'label'…'XX'", "PostError"),
    "R's mark of nothing as a label": (posts({"label": "NA"}), "Row 1…'label'…'NA'…--missing NA", "PostError"),
    "several timeline ids": (posts_of_lists, "Row 1…'timeline_id'…['ann', 'bob']", "PostError"),
    "a post id twice": (posts({"id": "p0"}, columns={"id": "id"}), "Row 1…'id'…'p0'", "PostError"),
    "a window without posts": (rows(window=0), "`window`"),
    "posts cut to nothing": (rows(max_seq_length=2), "`max_seq_length`…3…2"),
    "posts cut to nothing by the tokenizer": (
        rows(BertTokenizer(vocab=VOCABULARY, model_max_length=2)),
        "`max_seq_length`…3…2",
    ),
}
