"""Checks files that are not quite what they seem: separators, repeated headers, JSON in other forms, garbled texts."""

import gzip
import json
import logging
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from datasets import ClassLabel, Dataset, Features, Value
from helpers import write_table

from modeling_tempoformer import label_names, load_table, to_timelines
from modeling_tempoformer.common.columns import Columns
from modeling_tempoformer.importers.joined_files import logger
from modeling_tempoformer.importers.spreadsheets import cell_text
from modeling_tempoformer.posts.arguments import DataTrainingArguments
from modeling_tempoformer.posts.post_errors import PostError
from modeling_tempoformer.posts.post_splits import load_splits, split_posts
from modeling_tempoformer.posts.reading import make_timelines
from modeling_tempoformer.posts.tables import stream_table
from semantic_change.reading.dated_texts import read_text_files
from tempoformer_live.corpus import Corpus, check_names, find_tables


@pytest.fixture
def log(caplog, monkeypatch):
    """Returns the warnings that have some words."""
    monkeypatch.setattr(logging.getLogger("modeling_tempoformer"), "propagate", True)
    logger.warning_once.cache_clear()
    return lambda words: [record.getMessage() for record in caplog.records if words in record.getMessage()]


def write(path: Path, content: str) -> str:
    path.write_text(content, encoding="utf-8")
    return str(path)


def rows_of(path, **form) -> list[dict]:
    """Returns the rows of a table, which are the same in memory and as a stream."""
    rows = list(load_table(path, **form))
    assert list(stream_table([str(path)], **form)) == rows
    return rows


@pytest.mark.parametrize(
    ("content", "row"),
    [
        ('id;"How are you, really, today, now?"\na;fine\n', {"id": "a", "How are you, really, today, now?": "fine"}),
        ('"a,b";"c, d"\n1;2\n', {"a,b": "1", "c, d": "2"}),
        ('id;"How,\nare, you"\na;fine\n', {"id": "a", "How,\nare, you": "fine"}),
        ("sep=;\nid;a,b,c\nx;y\n", {"id": "x", "a,b,c": "y"}),
        ('\ufeff"sep=|"\r\nid|text\r\nx|so; sad\r\n', {"id": "x", "text": "so; sad"}),
        ("id|text\nx|so, sad; now\n", {"id": "x", "text": "so, sad; now"}),
    ],
)
def test_the_separator_is_found(tmp_path, content, row):
    assert rows_of(write(tmp_path / "a.csv", content)) == [row]


def test_the_line_of_a_bad_row_counts_the_line_of_the_separator(tmp_path):
    with pytest.raises(ValueError, match="a.csv, line 4: 3 cells"):
        load_table(write(tmp_path / "a.csv", "sep=;\na;b\n1;2\n1;2;3\n"))


HEADER = "timeline_id,text,label\n"


def test_a_header_inside_a_file_is_left_out_and_counted(tmp_path, log):
    content = f"\ufeff{HEADER}ann,so,O\n{HEADER}ben,sad,O\n\ufeff{HEADER}\nben,text,label\n"
    path = write(tmp_path / "a.csv", content)
    assert [row["text"] for row in rows_of(path)] == ["so", "sad", "text"]
    (message,) = log("a.csv")
    assert "2 rows" in message and "before row 1 " in message
    # The name of the only column may be a text.
    assert rows_of(write(tmp_path / "b.csv", "text\nso\ntext\n")) == [{"text": "so"}, {"text": "text"}]


POSTS = [{"id": "1", "text": "so\n} {"}, {"id": "2", "text": "sad"}]
ONE = json.dumps(POSTS[0])
JSON_FORMS = {
    "pretty-printed, one after the other": "\n".join(json.dumps(post, indent=2) for post in POSTS),
    "in one line": " ".join(map(json.dumps, POSTS)),
    "without anything between them": "".join(map(json.dumps, POSTS)),
    "after blank lines": "\n\n" + json.dumps(POSTS, indent=1),
    "the first in two lines": ONE.replace(", ", ",\n", 1) + "\n" + json.dumps(POSTS[1]),
    "lines": "\n".join(map(json.dumps, POSTS)),
}


@pytest.mark.parametrize("form", JSON_FORMS)
@pytest.mark.parametrize("kind", ["json", "jsonl", "ndjson"])
def test_each_form_of_json_has_the_same_posts(tmp_path, form, kind):
    assert rows_of(write(tmp_path / f"a.{kind}", JSON_FORMS[form])) == POSTS


def test_an_object_whose_first_line_has_more_than_a_brace(tmp_path):
    path = write(tmp_path / "a.json", '{"room": "r",\n "messages": ' + json.dumps(POSTS) + "}")
    assert rows_of(path, records="messages") == [{**post, "room": "r"} for post in POSTS]
    with pytest.raises(ValueError, match=r"--records.*messages"):
        load_table(path)


@pytest.mark.parametrize("indent", [None, 1])
def test_posts_that_are_keyed_by_their_ids(tmp_path, indent):
    keyed = {"p1": {"text": "so"}, "p2": {"text": "sad"}}
    expected = [{"text": "so", "key": "p1"}, {"text": "sad", "key": "p2"}]
    path = write(tmp_path / "a.json", json.dumps(keyed, indent=indent))
    assert rows_of(path, records="*") == expected
    with pytest.raises(ValueError, match=r"--records '\*'"):
        load_table(path)
    path = write(tmp_path / "b.json", json.dumps({"room": "r", "posts": keyed}, indent=indent))
    assert rows_of(path, records="posts.*") == [{**row, "room": "r"} for row in expected]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.json", "a.jsonl", "a.ndjson"])
@pytest.mark.parametrize("end", ["", ".gz", ".zst"])
def test_every_kind_may_be_compressed(tmp_path, name, end):
    rows = [{"timeline_id": "ann", "text": f"so é {number}"} for number in range(2000)]
    path = Path(write_table(tmp_path / name.replace("ndjson", "jsonl"), rows))
    content = path.read_bytes()
    packed = {"": content, ".gz": gzip.compress(content), ".zst": pa.compress(content, "zstd", asbytes=True)}
    path = tmp_path / (name + end)
    path.write_bytes(packed[end])
    assert rows_of(path) == rows
    # Scoring finds each in a folder.
    (tmp_path / "folder").mkdir()
    path.rename(tmp_path / "folder" / path.name)
    assert find_tables([str(tmp_path / "folder")], tmp_path / "scored") == [str(tmp_path / "folder" / path.name)]


def test_texts_of_words_may_be_compressed_too(tmp_path):
    (tmp_path / "1815.txt.zst").write_bytes(pa.compress(b"so sad\nso glad\n", "zstd", asbytes=True))
    assert [(row["time"], row["text"]) for row in read_text_files([str(tmp_path / "1815.txt.zst")])] == [
        ("1815", "so sad"),
        ("1815", "so glad"),
    ]


# Bytes that Windows-1252 lacks. Browsers read them as control characters, as Latin-1 has them.
LACKED = [0x81, 0x8D, 0x8F, 0x90, 0x9D]


def garble(text: str, codec: str) -> str:
    """Reads the bytes of UTF-8 one by one."""
    return "".join(bytes([byte]).decode("latin-1" if byte in LACKED else codec) for byte in text.encode())


TEXTS = ["schöner Tag 😀", "müde", "geht’s dir gut?", "plain", "”“ Ђ — 中文 è à", ""]


@pytest.mark.parametrize("codec", ["latin-1", "cp1252"])
@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_texts_that_were_encoded_twice_are_mended(tmp_path, log, kind, codec):
    """Each column by itself: all of its texts beyond ASCII decode again, also after a thousand of ASCII."""
    plain = [{"who": "ann", "text": "so", "own": "é"}] * 1500
    rows = [*plain, *({"who": "Zoë", "text": text, "own": "£ é"} for text in TEXTS)]
    garbled = [{**row, "who": garble(row["who"], codec), "text": garble(row["text"], codec)} for row in rows]
    path = write_table(tmp_path / f"a.{kind}", garbled)
    assert rows_of(path) == rows
    counts = {name: log(f"'{name}': mended") for name in ("who", "text", "own")}
    assert [len(messages) for messages in counts.values()] == [1, 1, 0]
    assert "mended 6 texts" in counts["who"][0] and "mended 4 texts" in counts["text"][0]


@pytest.mark.parametrize("other", ["é", "😀", "Ã", "BEAUTÉ\u00a0! très", "naïve"])
def test_a_column_with_one_good_text_stays_as_it_is(tmp_path, log, other):
    """The good one may come late."""
    texts = [garble("schön", "latin-1"), *["so"] * 1500, other]
    path = write_table(tmp_path / "a.csv", [{"id": "1", "text": text} for text in texts])
    assert [row["text"] for row in rows_of(path)] == texts and not log("mended")


def timelines_of(path, **options):
    arguments = DataTrainingArguments(test_file=str(path), **options)
    return make_timelines(load_splits(arguments), arguments, ["O"])["test"]


# Rows of an event without a diary, and rows that lack something
EVENTS = [
    {"who": "1", "at": "", "note": "", "age": "34"},
    {"who": "1", "at": "2024-05-02", "note": "went for a walk", "age": ""},
    {"who": "1", "at": "2024-05-01", "note": "  ", "age": ""},
    {"who": "", "at": "2024-05-03", "note": "whose?", "age": ""},
    {"who": "2", "at": " ", "note": "when?", "age": ""},
    {"who": "2", "at": "2024-05-04", "note": "made soup", "age": ""},
]
NAMES = {"columns": {"timeline": "who", "timestamp": "at", "text": "note"}}
KEPT = [("1", [1714608000.0], ["went for a walk"], [1]), ("2", [1714780800.0], ["made soup"], [5])]


def kept(timelines) -> list[tuple]:
    return [(each.timeline_id, each.timestamps, each.texts, each.input_rows) for each in timelines]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_rows_that_are_no_posts_are_left_out_and_counted(tmp_path, log, kind):
    """In the script, in Python, as a stream and in scoring; other rows keep their numbers and kept columns."""
    rows = EVENTS if kind == "csv" else [{name: cell.strip() or None for name, cell in row.items()} for row in EVENTS]
    path = write_table(tmp_path / f"a.{kind}", rows)
    assert kept(timelines_of(path, drop_incomplete=True, **NAMES)) == KEPT
    for posts in (load_table(path), stream_table([path])):
        assert kept(to_timelines(posts, **NAMES, drop_incomplete=True)) == KEPT
    (message,) = log("--drop_incomplete")
    counts = ("4 of 6", "2 have nothing in the column 'note'", "1 have nothing in the column 'who'")
    assert all(count in message for count in (*counts, "1 have nothing in the column 'at'"))

    columns = Columns(timeline="who", timestamp="at", text="note", id=None, speaker=None)
    corpus = Corpus(tmp_path / "scored", [path], columns, 1, kept=("at",), drop_incomplete=True)
    corpus.write_file(0)
    scored = corpus.read(0).to_pydict()
    assert (scored["text"], scored["row"], scored["kept.at"]) == (
        ["went for a walk", "made soup"],
        [1, 5],
        ["2024-05-02", "2024-05-04"],
    )


def test_ids_that_programs_write_for_nothing_are_left_out_too():
    rows = [{**EVENTS[1], "who": who} for who in ("1", "nan", "<NA>", "null")]
    timelines = to_timelines(Dataset.from_list(rows), **NAMES, drop_incomplete=True)
    assert [each.timeline_id for each in timelines] == ["1"]
    with pytest.raises(PostError, match="Row 1 .*'nan'.*--drop_incomplete"):
        to_timelines(Dataset.from_list(rows), **NAMES)


def test_what_is_missing_is_named_with_the_option(tmp_path):
    """The row without a time is blamed, and not the first one with a time."""
    cases = {"at": (EVENTS[:2], 0), "who": (EVENTS[3:4], 0)}
    cases["late"] = ([EVENTS[1], EVENTS[4]], 1)
    for name, (rows, number) in cases.items():
        path = write_table(tmp_path / "a.csv", rows)
        column = "at" if name == "late" else name
        with pytest.raises(ValueError, match=f"Row {number} .*'{column}'.*--drop_incomplete"):
            timelines_of(path, **NAMES)
    with pytest.raises(PostError, match="Row 1 .*'note'.*--drop_incomplete"):
        to_timelines(Dataset.from_list([EVENTS[1], {**EVENTS[1], "note": None}]), **NAMES)
    # A time that cannot be read is blamed itself.
    with pytest.raises(ValueError, match="Row 1 .*'soon'"):
        timelines_of(write_table(tmp_path / "b.csv", [EVENTS[0], {**EVENTS[1], "at": "soon"}]), **NAMES)
    with pytest.raises(ValueError, match="--drop_incomplete.*1 of 1"):
        timelines_of(write_table(tmp_path / "c.csv", EVENTS[:1]), drop_incomplete=True, **NAMES)


def test_objects_without_records_are_left_out_and_counted(tmp_path, log):
    pages = [{"data": [{"text": "so"}]}, {"errors": [{"value": "42"}]}, {"meta": {}}, {"data": [{"text": "sad"}]}]
    path = write_table(tmp_path / "a.jsonl", pages)
    with pytest.raises(ValueError, match="a.jsonl, line 2.*'data'.*errors.*--drop_incomplete"):
        load_table(path, "data")
    assert rows_of(path, records="data", drop_incomplete=True) == [{"text": "so"}, {"text": "sad"}]
    (message,) = log("objects without")
    assert "2 objects" in message and "line 2" in message
    # Of nested objects only the one without posts is left out.
    chats = {"chats": [{"id": "a"}, {"id": "b", "posts": [{"text": "so"}]}]}
    path = write(tmp_path / "b.json", json.dumps(chats))
    assert rows_of(path, records="chats.posts", drop_incomplete=True) == [{"text": "so", "id": "b"}]
    with pytest.raises(ValueError, match="no rows"):
        load_table(path, "chats.post", drop_incomplete=True)


def test_a_file_of_one_conversation(tmp_path):
    """Each file is a timeline of its name, in the script, as a stream and in scoring."""
    for name in ("talk.csv.gz", "chat.csv"):
        write_table(tmp_path / name, [{"text": f"{name} {number}", "label": "ab"[number % 2]} for number in range(4)])
    ((talk),) = timelines_of(tmp_path / "talk.csv.gz", columns={"timeline": "none", "label": "none"})
    assert talk.timeline_id == "talk" and talk.texts == [f"talk.csv.gz {number}" for number in range(4)]
    arguments = DataTrainingArguments(
        train_file=str(tmp_path / "chat.csv"),
        validation_file=str(tmp_path / "talk.csv.gz"),
        columns={"timeline": "none"},
    )
    made = split_posts(load_splits(arguments), arguments, ["a", "b"], ["train", "validation"], 0, None)
    assert {name: [each.timeline_id for each in part] for name, part in made.timelines.items()} == {
        "train": ["chat"],
        "validation": ["talk"],
    }
    files = [str(tmp_path / name) for name in ("chat.csv", "talk.csv.gz")]
    stream = to_timelines(stream_table(files, one_timeline=True))
    assert [(each.timeline_id, len(each)) for each in stream] == [("chat", 4), ("talk", 4)]
    columns = Columns(timeline="timeline_id", timestamp=None, text="text", id=None, speaker=None)
    corpus = Corpus(tmp_path / "scored", files, columns, 1, one_timeline=True)
    for number in range(2):
        corpus.write_file(number)
    assert corpus.read(0)["timeline_id"].to_pylist() == ["chat"] * 4 + ["talk"] * 4


def test_what_one_timeline_contradicts_is_refused(tmp_path):
    path = write_table(tmp_path / "a.csv", [{"Timeline_ID": "ann", "text": "so"}])
    with pytest.raises(ValueError, match="--columns timeline=none.*'Timeline_ID'"):
        load_table(path, one_timeline=True)
    with pytest.raises(ValueError, match="--columns timeline=NAME.*--columns timeline=none"):
        timelines_of(path, columns={"timeline": "person"})
    with pytest.raises(ValueError, match="--columns timeline=none"):
        load_splits(DataTrainingArguments(columns={"timeline": "none"}, dataset_name="me/posts"))
    with pytest.raises(ValueError, match="a/chat.csv.*b/chat.csv.gz"):
        check_names(["a/chat.csv", "b/other.csv", "b/chat.csv.gz"])


def test_a_spreadsheet_needs_a_library(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ValueError, match=r"a.xlsx.*openpyxl.*CSV UTF-8"):
        load_table(write(tmp_path / "a.xlsx", "PK"))


def test_cells_of_a_spreadsheet_as_texts():
    """It keeps fifteen digits of a number: an id of more has lost the others, and is refused as a shortened one."""
    moment = pd.Timestamp("2024-05-01 09:00:12").to_pydatetime()
    pairs = [(7, "7"), (7.0, "7"), (0.5, "0.5"), (-3.0, "-3"), (123456789012345, "123456789012345"), (True, "True")]
    pairs += [("007", "007"), (moment, "2024-05-01 09:00:12"), (moment.replace(hour=0, second=0), "2024-05-01")]
    assert [cell_text(cell) for cell, _ in pairs] == [text for _, text in pairs]
    row = {"timeline_id": cell_text(1823034723867713280), "text": "so"}
    with pytest.raises(PostError, match="'timeline_id'.*lost its last digits"):
        to_timelines(Dataset.from_list([row]))


def test_a_spreadsheet_is_read_as_its_csv_file(tmp_path, log):
    pytest.importorskip("openpyxl")
    days = [pd.Timestamp("2024-05-01 09:00:12"), pd.Timestamp("2024-05-02")]
    posts = pd.DataFrame({"timeline_id": ["007", "ann"], "timestamp": days, "text": ["so", None], "state": [1.0, 2.5]})
    with pd.ExcelWriter(tmp_path / "a.xlsx") as writer:
        pd.DataFrame().to_excel(writer, sheet_name="empty")
        posts.to_excel(writer, sheet_name="posts", index=False, startrow=2, startcol=1)
        posts.to_excel(writer, sheet_name="copy", index=False)
    expected = [
        {"timeline_id": "007", "timestamp": "2024-05-01 09:00:12", "text": "so", "state": "1"},
        {"timeline_id": "ann", "timestamp": "2024-05-02", "text": "", "state": "2.5"},
    ]
    assert rows_of(tmp_path / "a.xlsx") == expected
    (message,) = log("sheet")
    assert "'posts'" in message and "'copy'" in message and "'empty'" not in message
    (tmp_path / "b.xlsx").write_bytes((tmp_path / "a.xlsx").read_bytes()[:-100])
    with pytest.raises(ValueError, match="b.xlsx"):
        load_table(tmp_path / "b.xlsx")


def test_texts_of_a_spreadsheet_are_what_was_written(tmp_path, log):
    """
    `None` and `NA` are names, a post may begin like a formula, also in the last cell, and XML has no carriage return.
    """
    pytest.importorskip("openpyxl")
    texts = ["None", "null", "nan", "=) slept well", "first_x000D_\nsecond", "_x005F_x000D_", None]
    labels = ["NA", "n/a", "None", None, "No", "Yes", "=No"]
    posts = pd.DataFrame({"timeline_id": list("abcdefg"), "text": texts, "label": labels})
    posts.to_excel(tmp_path / "a.xlsx", index=False)
    rows = rows_of(tmp_path / "a.xlsx")
    assert [row["text"] for row in rows] == [*texts[:4], "first\r\nsecond", "_x000D_", ""]
    assert [row["label"] for row in rows] == [label or "" for label in labels]
    (message,) = log("formulas")
    assert "2 formulas" in message and "=) slept well" in message


@pytest.mark.parametrize(
    ("present", "read", "left_out"),
    [
        (["train", "dev"], {"train": "train", "validation": "dev"}, []),
        (["training", "valid", "testing"], {"train": "training", "validation": "valid", "test": "testing"}, []),
        (["val", "test"], {"validation": "val", "test": "test"}, []),
        (["train", "validation", "dev", "extra"], {"train": "train", "validation": "validation"}, ["dev", "extra"]),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_the_usual_names_of_splits_are_known_and_others_are_named(tmp_path, log, present, read, left_out, streaming):
    for name in present:
        (tmp_path / "set").mkdir(exist_ok=True)
        write(tmp_path / "set" / f"{name}-00000-of-00001.csv", f"{HEADER}ann,{name},O\n")
    write(
        tmp_path / "set" / "README.md",
        "---\nconfigs:\n- config_name: default\n  data_files:\n"
        + "".join(f"  - split: {name}\n    path: {name}-*.csv\n" for name in present)
        + "---\n",
    )
    given = DataTrainingArguments(dataset_name=str(tmp_path / "set"), streaming=streaming)
    posts = load_splits(given, cache_dir=str(tmp_path / "cache"))
    assert {split: [row["text"] for row in rows] for split, rows in posts.items()} == {
        split: [found_name] for split, found_name in read.items()
    }
    assert [split for split, rows in posts.items() if not isinstance(rows, Dataset)] == ["train"] * (
        streaming and "train" in read
    )
    messages = log("left out")
    assert len(messages) == bool(left_out) and all(name in messages[0] for name in left_out)


def test_classes_in_another_order_in_the_files_of_a_dataset_are_refused(tmp_path):
    """Datasets takes the names of the first file for the numbers of all, so that `Yes` would be tested as `No`."""
    for split, names in (("train", ["No", "Yes"]), ("test", ["Yes", "No"])):
        types = {"timeline_id": Value("string"), "text": Value("string"), "label": ClassLabel(names=names)}
        posts = {"timeline_id": [split], "text": ["sad"], "label": [names.index("Yes")]}
        (tmp_path / "set").mkdir(exist_ok=True)
        Dataset.from_dict(posts, features=Features(types)).to_parquet(str(tmp_path / "set" / f"{split}.parquet"))
    given = DataTrainingArguments(dataset_name=str(tmp_path / "set"))
    with pytest.raises(ValueError, match=r"test.parquet.*train.parquet.*'label'.*Yes, No.*No, Yes"):
        load_splits(given, cache_dir=str(tmp_path / "cache"))
    (tmp_path / "set" / "test.parquet").unlink()
    posts = load_splits(given, cache_dir=str(tmp_path / "cache"))
    assert label_names(posts["train"], "label") == ["No", "Yes"]


@pytest.mark.parametrize(
    ("texts", "warned"),
    [
        (["<p>so</p>", "sad <b>now</b>", "plain"], True),
        (['{"a": "so"}', "sad", "so"], True),
        (["heart <3", "a </3", "b", "c <user>"], False),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_tags_in_posts_are_warned_of(tmp_path, log, texts, warned, streaming):
    path = write_table(tmp_path / "a.csv", [{"timeline_id": "a", "text": text} for text in texts])
    posts = stream_table([path]) if streaming else load_table(path)
    assert [text for timeline in to_timelines(posts) for text in timeline.texts] == texts
    messages = log("tags")
    assert len(messages) == warned and all("'text'" in message and "of 3" in message for message in messages)
