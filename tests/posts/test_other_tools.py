"""Checks that the lines of docs/other_tools.md and docs/importers read the files of the tools that they name."""

import inspect
import json
import logging
import re
import shlex

import pytest
from helpers import ROOT
from other_tools import DISCORD, SLACK, write_samples
from transformers import HfArgumentParser

from modeling_tempoformer.common.columns import read_columns
from modeling_tempoformer.common.table_arguments import columns_of
from modeling_tempoformer.importers import IMPORTERS
from modeling_tempoformer.importers.export import logger
from modeling_tempoformer.posts.arguments import DataTrainingArguments
from modeling_tempoformer.posts.post_splits import choose_label_names, load_splits
from modeling_tempoformer.posts.timelines import group_posts


DOCS = ROOT / "docs"
_, *PARTS = re.split(r"^## (.+)\n", (DOCS / "other_tools.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
SECTIONS = dict(zip(PARTS[::2], PARTS[1::2], strict=True))
for page in (DOCS / "importers").glob("*.md"):
    SECTIONS[page.stem] = page.read_text(encoding="utf-8")
NINE = 1714554000.0  # 2024-05-01 09:00 UTC
HAPPY, NEW = "so happy today", "nothing new"
ANN = {"ann": [(NINE, HAPPY, "steady"), (NINE + 60, NEW, "switch")]}
# For each block of options the timelines: seconds, text and label of each post, and its speaker, id or state.
EXPECTED = {
    "discord": [{"100": [(NINE + 0.123, HAPPY, None, "11", "901"), (NINE + 60, NEW, None, "12", "902")]}],
    "slack": [
        {
            "general": [
                (NINE + 0.0002, HAPPY, None, "U1"),
                (NINE + 86400, NEW, None, "U2"),
                (NINE + 86401, "for all", None, "U1"),
                (NINE + 86402, "look", None, "U1"),
                (NINE + 86403, "waves", None, "U2"),
            ]
        }
    ],
    "teams": [{"19:x": [(NINE, "so happy Bob & Co", None, "u1", "1"), (NINE + 60.12, "1 < 2", None, "u1", "3")]}],
    "telegram": [{"7000": [(NINE, HAPPY, None, "user1", "2"), (NINE + 60, "see https://a.org!", None, "user2", "3")]}],
    "messenger": [{"inbox/x_1": [(NINE, "schöner Tag 😀", None, "Zoë"), (NINE + 60.5, NEW, None, "Ann")]}],
    "twitter": [{"9007199254740993": [(NINE, HAPPY, None, "1823"), (NINE + 60, NEW, None, "1824")]}],
    "reddit": [
        {"ann": [(NINE, HAPPY, None, "l1"), (NINE + 86400, NEW, None, "l2")]},
        {"t3_x": [(NINE, HAPPY, None, "ann", "l1")], "t3_y": [(NINE + 86400, NEW, None, "ann", "l2")]},
    ],
    "convokit": [
        {"c0": [(NINE, HAPPY, None, "ann", "u0"), (NINE + 60, NEW, None, "ben", "u1")]},
        {"c0": [(NINE, HAPPY, "steady", "ann", "u0"), (NINE + 60, NEW, "switch", "ben", "u1")]},
    ],
    "chat_messages": [
        {
            "chats-0": [
                (NINE, HAPPY, "steady", "user"),
                (NINE + 30, "", None, "assistant"),
                (NINE + 60, "nothing\nnew", "switch", "user"),
            ],
            "c1": [(NINE, "hm", None, "user")],
        },
        {
            "c0": [
                (NINE, HAPPY, "steady", "user"),
                (NINE + 30, "", None, "assistant"),
                (NINE + 60, "nothing\nnew", "switch", "user"),
            ]
        },
    ],
    "nested_json": [
        {
            "ann": [
                (NINE, HAPPY, "steady", "1"),
                (NINE + 60, NEW, "switch", "2"),
                (NINE + 120, "slept a little", None, "3"),
            ]
        },
        {"t1": [(None, HAPPY, None, "a"), (None, NEW, "switch", "b"), (None, "slept a little", None, "a")]},
    ],
    "doccano": [{"ann": [(NINE, HAPPY, "steady", "1"), (NINE + 60, NEW, None, "2")]}],
    "prodigy": [ANN],
    "qualtrics": [{"ann": [(NINE, HAPPY, "steady", "R_1"), (NINE + 60, NEW, "switch", "R_2")]}],
    "REDCap": [{"1": [(NINE, HAPPY, None), (NINE + 60, NEW, None)], "2": [(NINE, "slept a little", None)]}],
    "m-Path": [{"23": [(NINE, "so happy\ntoday", None, "50"), (NINE + 60, "nothing; new", None, "20")]}],
    "row_names": [{"ann": [(NINE, 'so "happy" today', "steady"), (NINE + 54000, NEW, None)]}] * 2,
    "SPSS and SAS": [
        {"ann": [(NINE, HAPPY, None), (NINE + 60, NEW, None)]},
        {"ann": [(NINE - 32400, HAPPY, None), (NINE + 54000, NEW, None)]},
    ],
    "CLPsych": [
        {
            "1a2b": [(NINE, "Today so happy", "O", "p1"), (NINE + 60, NEW, "IS", "p2")],
            "3c4d": [(NINE + 244 * 86400, "Cold", "IE", "p3")],
        },
        {"1a2b": [(None, HAPPY, None, "p1", "7"), (None, NEW, None, "p2", "")]},
    ],
}


def read(options: str) -> dict[str, list[tuple]]:
    """Returns the timelines of a file with the options of a script, with all that these name."""
    given = shlex.split(options.replace("\\\n", " "))
    (arguments,) = HfArgumentParser(DataTrainingArguments).parse_args_into_dataclasses(given)
    ((_, posts),) = load_splits(arguments).items()
    has_labels = "label" in read_columns(arguments.columns) or "label" in posts.column_names
    names = choose_label_names({"test": posts}, arguments) if has_labels else None
    timelines = {}
    for timeline in group_posts(posts, names, columns_of(arguments), arguments.drop_incomplete):
        lists = [timeline.timestamps or [None] * len(timeline), timeline.texts]
        lists += [[names[label] if label >= 0 else None for label in timeline.labels]]
        lists += [] if timeline.speakers is None else [timeline.speakers]
        lists += [] if columns_of(arguments)["id"] is None else [timeline.post_ids]
        lists += [] if timeline.states is None else [timeline.states]
        timelines[timeline.timeline_id] = list(zip(*lists, strict=True))
    return timelines


def test_every_tool_of_the_pages_is_read_here():
    """Other pages are of layouts that no tool owns."""
    assert set(SECTIONS) - set(EXPECTED) == {"garbled_texts", "joined_files", "labelling_tasks", "spreadsheets"}


def test_each_importer_has_a_page_and_the_two_functions():
    """Each importer has the same signature, and the navigation has the pages."""
    names = [importer.__name__.rpartition(".")[2] for importer in IMPORTERS]
    modules = {path.stem for path in (ROOT / "modeling_tempoformer" / "importers").glob("*.py")}
    assert modules == {*names, "__init__", "export"} and len(names) == len(set(names))
    assert {path.stem for path in (DOCS / "importers").glob("*.md")} == set(names)
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for name, importer in zip(names, IMPORTERS, strict=True):
        assert f"importers/{name}.md" in navigation
        functions = (importer.is_mine, importer.as_table)
        assert [list(inspect.signature(function).parameters) for function in functions] == [["export"]] * 2


@pytest.mark.parametrize("tool", EXPECTED)
def test_the_lines_of_the_page_read_the_files_of_a_tool(tool, tmp_path, monkeypatch):
    write_samples(tmp_path)
    monkeypatch.chdir(tmp_path)
    for code in re.findall(r"^```python\n(.*?)^```$", SECTIONS[tool], flags=re.MULTILINE | re.DOTALL):
        exec(compile(code, tool, "exec"), {})
    blocks = re.findall(r"^```text\n(.*?)^```$", SECTIONS[tool], flags=re.MULTILINE | re.DOTALL)
    assert [read(block) for block in blocks] == EXPECTED[tool]


OPTIONS = {
    "qualtrics.csv": "--columns timestamp=StartDate timeline=participant text=Q1",
    "label_studio.json": "--columns timeline=data.person timestamp=data.written text=data.text "
    "label=annotations.result.value.choices",
    "annotations.jsonl": "--columns timeline=meta.person timestamp=meta.written",
}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("qualtrics.csv", "two rows"),
        ("diary_r.csv", "first column"),
        ("label_studio.json", "2 cancelled"),
        ("discord.json", "left out 2 notices and messages of bots"),
        ("slack_export/general/2024-05-02.json", "left out 2 notices and messages of bots"),
        ("teams/0.json", "left out 2 events and messages of bots"),
        ("result.json", "left out 1 calls and notices"),
        ("message_1.json", "left out 1 messages without a text"),
        ("tweets.jsonl", "left out 2 pages without posts"),
        ("annotations.jsonl", "left out 1 answers"),
    ],
)
def test_what_is_left_out_of_a_file_is_said(name, words, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(logging.getLogger("modeling_tempoformer"), "propagate", True)
    logger.warning_once.cache_clear()
    write_samples(tmp_path)
    read(f"--test_file {tmp_path / name} {OPTIONS.get(name, '')}")
    (message,) = [record.getMessage() for record in caplog.records if words in record.getMessage()]
    assert name in message


def test_who_describes_a_file_is_asked_and_not_its_tool(tmp_path, monkeypatch):
    """The messages of bots are posts as others then, as they were before tools were known."""
    write_samples(tmp_path)
    monkeypatch.chdir(tmp_path)
    given = "--records messages --columns timeline=channel.id text=content id=id"
    assert [post[-1] for post in read(f"--test_file discord.json {given}")["100"]] == ["899", "900", "901", "902"]
    columns = "--columns timeline=type timestamp=ts"
    day = read(f"--test_file slack_export/general/2024-05-02.json {columns}")
    assert [post[1] for post in day["message"]][-2:] == ["a reminder", "news"]


def test_a_file_without_messages_of_people_may_stand_among_others(tmp_path):
    """Alone it has no posts."""
    write_samples(tmp_path)
    joined = tmp_path / "slack_export" / "general" / "2024-04-30.json"
    joined.write_text(json.dumps(SLACK["general/2024-05-01.json"][:1]), encoding="utf-8")
    assert len(read(f"--test_file '{joined.parent}/*.json'")["general"]) == 5
    with pytest.raises(ValueError, match="2024-04-30.json has no posts"):
        read(f"--test_file {joined}")


def test_a_file_that_lacks_what_its_tool_writes_is_one_error(tmp_path):
    chat = {**DISCORD, "messages": [{"type": "Default"}]}
    (tmp_path / "discord.json").write_text(json.dumps(chat), encoding="utf-8")
    with pytest.raises(ValueError, match="discord.json is read as a file of discord.*'author'.*--records"):
        read(f"--test_file {tmp_path / 'discord.json'}")
