"""Checks that the lines of docs/other_tools.md read the files of the tools that they name."""

import logging
import re
import shlex

import pytest
from helpers import ROOT
from other_tools import write_samples
from transformers import HfArgumentParser

from modeling_tempoformer.posts.arguments import DataTrainingArguments
from modeling_tempoformer.posts.columns import read_columns
from modeling_tempoformer.posts.csv_tables import logger
from modeling_tempoformer.posts.post_splits import choose_label_names, load_splits
from modeling_tempoformer.posts.reading import columns_of
from modeling_tempoformer.posts.timelines import group_posts


_, *PARTS = re.split(r"^## (.+)\n", (ROOT / "docs" / "other_tools.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
SECTIONS = dict(zip(PARTS[::2], PARTS[1::2], strict=True))
NINE = 1714554000.0  # 2024-05-01 09:00 UTC
HAPPY, NEW = "so happy today", "nothing new"
ANN = {"ann": [(NINE, HAPPY, "steady"), (NINE + 60, NEW, "switch")]}
# For each block of options the timelines: seconds, text and label of each post, and its speaker, id or state.
EXPECTED = {
    "Discord": [{"100": [(NINE + 0.123, HAPPY, None, "11", "901"), (NINE + 60, NEW, None, "12", "902")]}],
    "Slack": [
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
    "Teams": [{"19:x": [(NINE, "so happy Bob & Co", None, "u1", "1"), (NINE + 60.12, "1 < 2", None, "u1", "3")]}],
    "Telegram": [{"7000": [(NINE, HAPPY, None, "user1", "2"), (NINE + 60, "see https://a.org!", None, "user2", "3")]}],
    "Facebook and Instagram": [
        {"inbox/x_1": [(NINE, "schöner Tag 😀", None, "Zoë"), (NINE + 60.5, NEW, None, "Ann")]}
    ],
    "Twitter": [{"9007199254740993": [(NINE, HAPPY, None, "1823"), (NINE + 60, NEW, None, "1824")]}],
    "Reddit": [{"ann": [(NINE, HAPPY, None, "l1"), (NINE + 86400, NEW, None, "l2")]}],
    "ConvoKit": [{"c0": [(NINE, HAPPY, "steady", "ann", "u0"), (NINE + 60, NEW, "switch", "ben", "u1")]}],
    "Label Studio": [
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
    "Prodigy": [ANN],
    "Qualtrics": [{"ann": [(NINE, HAPPY, "steady", "R_1"), (NINE + 60, NEW, "switch", "R_2")]}],
    "REDCap": [{"1": [(NINE, HAPPY, None), (NINE + 60, NEW, None)], "2": [(NINE, "slept a little", None)]}],
    "m-Path": [{"23": [(NINE, "so happy\ntoday", None, "50"), (NINE + 60, "nothing; new", None, "20")]}],
    "R": [{"ann": [(NINE, 'so "happy" today', "steady"), (NINE + 54000, NEW, None)]}] * 2,
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


def test_every_tool_of_the_page_is_read_here():
    assert set(SECTIONS) == {"Nested JSON", *EXPECTED}


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
}


@pytest.mark.parametrize(
    ("name", "words"),
    [("qualtrics.csv", "two rows"), ("diary_r.csv", "first column"), ("label_studio.json", "2 cancelled")],
)
def test_what_is_left_out_of_a_file_is_said(name, words, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(logging.getLogger("modeling_tempoformer"), "propagate", True)
    logger.warning_once.cache_clear()
    write_samples(tmp_path)
    read(f"--test_file {tmp_path / name} {OPTIONS.get(name, '')}")
    (said,) = [record.getMessage() for record in caplog.records if words in record.getMessage()]
    assert name in said
