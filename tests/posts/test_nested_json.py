"""Checks that posts in nested JSON are read as the flat table that pandas makes of them."""

import gzip
import json
import logging

import pandas as pd
import pytest
from helpers import NAMES, write_table

from modeling_tempoformer import load_table, to_timelines
from modeling_tempoformer.common.columns import Columns
from modeling_tempoformer.importers.nested_json import logger
from modeling_tempoformer.posts.arguments import DataTrainingArguments
from modeling_tempoformer.posts.post_errors import PostError
from modeling_tempoformer.posts.post_splits import choose_label_names, load_splits
from modeling_tempoformer.posts.reading import make_timelines
from tempoformer_live.corpus import Corpus


TALKS = [
    {
        "conversation": {"id": talk, "topic": {"name": "rain"}},
        "id": f"t{talk}",
        "messages": [
            {
                "id": f"{talk}-{number}",
                "timestamp": f"2024-05-01T09:0{number}:00Z",
                "text": f"so {number}",
                "author": {"name": "ab"[number % 2]},
                "meta": {"label": [NAMES[number % 2]], "votes": {f"user {talk}{number}": 1}},
            }
            for number in range(3)
        ],
    }
    for talk in (7, 8)
]
COLUMNS = {
    "timeline": "conversation.id",
    "speaker": "author.name",
    "label": "meta.label",
    "id": "id",
}
WANTED = [*COLUMNS.values(), "..id", "conversation.topic.name"]


def lines(values: list) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def write(path, value) -> str:
    path.write_text(json.dumps(value))
    return str(path)


# For each way of writing the talks the name and the content of a file, and the path of the records.
FORMS = {
    "a list": ("a.json", json.dumps(TALKS), "messages"),
    "an indented list": ("a.json", json.dumps(TALKS, indent=2), "messages"),
    "lines": ("a.jsonl", lines(TALKS), "messages"),
    "gzipped": ("a.json.gz", json.dumps(TALKS), "messages"),
    "an object": ("a.json", json.dumps({"chats": {"list": TALKS}}), "chats.list.messages"),
    "an indented object": ("a.json", json.dumps({"chats": {"list": TALKS}}, indent=1), "chats.list.messages"),
    "gzipped lines": ("a.jsonl.gz", lines([{"talk": talk} for talk in TALKS]), "talk.messages"),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_the_table_of_pandas(form, tmp_path):
    name, content, records = FORMS[form]
    path = tmp_path / name
    path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    flat = pd.json_normalize(
        TALKS, "messages", [["conversation", "id"], ["conversation", "topic", "name"], "id"], meta_prefix=".."
    )
    flat["meta.label"] = flat["meta.label"].map(lambda labels: labels[0])
    flat = flat.rename(columns={f"..{name}": name for name in ("conversation.id", "conversation.topic.name")})
    flat = flat.drop(columns=[column for column in flat if "votes" in column]).astype(str)
    for rows in (load_table(path, records, WANTED), load_table(path, records, WANTED, streaming=True)):
        read = pd.DataFrame(list(rows))
        # Values in objects are read if they are asked for: there are no columns of votes.
        assert set(read) == set(flat)
        pd.testing.assert_frame_equal(read[sorted(read)], flat[sorted(flat)], check_dtype=False)
    timelines = to_timelines(load_table(path, records, WANTED), NAMES, COLUMNS)
    assert [timeline.timeline_id for timeline in timelines] == ["7", "8"]
    for timeline in timelines:
        assert timeline.speakers == ["a", "b", "a"] and timeline.labels == [0, 1, 0]
        assert timeline.post_ids == [f"{timeline.timeline_id}-{number}" for number in range(3)]


def test_several_values_at_a_path_are_refused_where_they_are_read(tmp_path):
    """A list of one object counts as that object, also below another one."""
    labels = [
        [{"result": [{"choice": "No-Switch"}]}],
        [],
        [{"result": [{"choice": "Switch"}, {"choice": "No-Switch"}]}],
    ]
    posts = [{"timeline_id": "a", "text": "so", "annotations": annotations} for annotations in labels]
    path = write_table(tmp_path / "a.json", posts)
    column = "annotations.result.choice"
    (timeline,) = to_timelines(
        load_table(write_table(tmp_path / "b.json", posts[:2]), None, [column]), NAMES, columns={"label": column}
    )
    assert timeline.labels == [0, -100]
    with pytest.raises(PostError, match=r"Row 2 .*'annotations.result.choice'.*\['Switch', 'No-Switch'\]"):
        to_timelines(load_table(path, None, [column]), NAMES, columns={"label": column})
    assert len(to_timelines(load_table(path, None, [column]))[0]) == 3


def test_a_name_with_a_dot_is_a_name(tmp_path):
    posts = [{"meta.label": "A", "meta": {"label": "B"}, "text": "so"}]
    assert load_table(write_table(tmp_path / "a.jsonl", posts), None, ["meta.label"])["meta.label"][:] == ["A"]


def test_a_post_does_not_inherit_what_other_posts_have_themselves(tmp_path):
    """Otherwise a label of the conversation would silently become the label of its unlabelled posts."""
    talk = {"label": "calm", "messages": [{"text": "so", "label": "A"}, {"text": "sad"}]}
    with pytest.raises(ValueError, match="a.json, line 1, record 1 .*'label'.*around"):
        load_table(write(tmp_path / "a.json", talk), "messages")
    talk["messages"][1]["label"] = None
    rows = load_table(write(tmp_path / "a.json", talk), "messages")
    assert [(row["label"], row["..label"]) for row in rows] == [("A", "calm"), (None, "calm")]


def test_a_name_that_nobody_reads_may_be_mixed(tmp_path):
    """A script says which columns it reads, those that it reads by default among them."""
    talk = {"title": "rain", "timeline_id": "a", "messages": [{"text": "so", "title": "song"}, {"text": "sad"}]}
    for name in ("title", "label"):
        talk = {**talk, name: "rain", "messages": [{**talk["messages"][0], name: "song"}, talk["messages"][1]]}
        given = DataTrainingArguments(test_file=write(tmp_path / "a.json", talk), records="messages")
        if name == "title":
            (timeline,) = to_timelines(load_splits(given)["test"])
            assert timeline.texts == ["so", "sad"]
        else:
            with pytest.raises(ValueError, match="'label'"):
                load_splits(given)


def test_lists_without_an_id_are_timelines(tmp_path):
    talks = [{"messages": [{"text": f"{talk}{post}"} for post in range(2)]} for talk in "ab"]
    for content in (json.dumps(talks), lines(talks), json.dumps({"chats": talks})):
        (tmp_path / "some.json").write_text(content)
        records = "chats.messages" if content.startswith('{"chats') else "messages"
        given = DataTrainingArguments(test_file=str(tmp_path / "some.json"), records=records)
        first, second = to_timelines(load_splits(given)["test"])
        assert (first.texts, second.texts) == (["a0", "a1"], ["b0", "b1"])
        assert len({first.timeline_id, second.timeline_id}) == 2
    talks[1]["timeline_id"] = "own"
    given = DataTrainingArguments(test_file=write(tmp_path / "some.json", talks), records="messages")
    with pytest.raises(ValueError, match="'timeline_id'"):
        load_splits(given)
    (tmp_path / "keyed.json").write_text(json.dumps({"p1": {"text": "so"}, "p2": {"text": "sad"}}))
    given = DataTrainingArguments(test_file=str(tmp_path / "keyed.json"), records="*")
    with pytest.raises(ValueError, match="timeline_id"):
        to_timelines(load_splits(given)["test"])


def test_what_records_cannot_name_is_refused(tmp_path):
    talks = write(tmp_path / "talks.json", TALKS)
    with pytest.raises(ValueError, match="talks.json, entry 0 .*'posts'.*conversation, id, messages"):
        load_table(talks, "posts")
    with pytest.raises(ValueError, match="talks.json, entry 0 .*'text'"):
        load_table(talks, "messages.text.text")
    with pytest.raises(ValueError, match="talks.json, entry 0 .*record 0 .*'so 0'"):
        load_table(talks, "messages.text")
    indented = tmp_path / "one.json"
    indented.write_text(json.dumps({"name": "x", "messages": [], "polls": []}, indent=1))
    with pytest.raises(ValueError, match="one.json.*--records.*messages, polls"):
        load_table(indented)
    with pytest.raises(ValueError, match="one.json has no rows"):
        load_table(indented, "messages")
    indented.write_text(json.dumps({"messages": [{"text": "so"}]}, indent=1)[:-5])
    with pytest.raises(ValueError, match="one.json, line 5"):
        load_table(indented, "messages")
    table = write_table(tmp_path / "a.csv", [{"timeline_id": "a", "text": "so"}])
    for read in (load_table, lambda path, records: list(load_table(path, records, streaming=True))):
        with pytest.raises(ValueError, match=r"--records.*a.csv"):
            read(table, "messages")
    with pytest.raises(ValueError, match="--records.*--dataset_name"):
        load_splits(DataTrainingArguments(dataset_name="me/posts", records="messages"))


def test_who_forgets_the_path_is_told_of_it(tmp_path):
    posts = load_table(write_table(tmp_path / "a.jsonl", TALKS[0]["messages"]))
    with pytest.raises(ValueError, match=r"'author'.*id, timestamp, text.*author\.name"):
        to_timelines(posts, columns={"timeline": "id", "speaker": "author"})


def test_a_corpus_that_is_scored_may_be_nested(tmp_path):
    columns = Columns(timeline="conversation.id", timestamp=None, text="text", id="id", speaker="author.name")
    corpus = Corpus(tmp_path / "scored", [write(tmp_path / "talks.json", TALKS)], columns, 1, "messages")
    corpus.write_file(0)
    posts = corpus.read(0).to_pylist()
    assert [(post["timeline_id"], post["post_id"], post["speaker"]) for post in posts] == [
        (str(talk["conversation"]["id"]), post["id"], post["author"]["name"])
        for talk in TALKS
        for post in talk["messages"]
    ]


def test_an_annotation_that_was_cancelled_has_no_label(tmp_path):
    """It may be a value of the record, or the record itself; the record keeps its text."""
    tasks = [
        {
            "data": {"text": f"so {number}"},
            "annotations": [
                {"was_cancelled": cancelled, "result": [{"value": {"choices": [NAMES[1]]}}]} for cancelled in states
            ],
        }
        for number, states in enumerate([[True], [False], [True, False]])
    ]
    path = write(tmp_path / "tasks.json", tasks)
    wanted = ["data.text", "annotations.result.value.choices"]
    assert load_table(path, columns=wanted)[wanted[1]] == [None, NAMES[1], NAMES[1]]
    wanted = ["data.text", "result.value.choices"]
    records = load_table(path, "annotations", wanted)
    assert records[wanted[1]] == [None, NAMES[1], None, NAMES[1]]
    assert records["data.text"] == ["so 0", "so 1", "so 2", "so 2"]


def read(path: str, **options) -> list[list[tuple[str, str | None]]]:
    """Returns the text and the label of the posts of each timeline, as the script reads them."""
    given = DataTrainingArguments(test_file=path, **options)
    posts = load_splits(given)
    names = choose_label_names(posts, given)
    labels = [*names, None]
    return [
        [(text, labels[max(label, -1)]) for text, label in zip(timeline.texts, timeline.labels, strict=True)]
        for timeline in make_timelines(posts, given, names)["test"]
    ]


CHOICES = "annotations.result.value.choices"
DIALOGUE = {"records": "data.messages", "columns": {"label": CHOICES}}


def task(texts: str, *regions: tuple) -> dict:
    """Returns a dialogue of Label Studio, with a choice for some of its messages, or for all (None)."""
    results = []
    for first, last, choice in regions:
        place = {} if first is None else {"start": first, "end": last, "startOffset": 0, "endOffset": 2}
        results.append({"type": "choices", "value": {**place, "choices": [choice]}})
    return {"data": {"messages": [{"text": text} for text in texts]}, "annotations": [{"result": results}]}


@pytest.fixture
def messages(caplog, monkeypatch):
    """Returns the warnings that have some words."""
    monkeypatch.setattr(logging.getLogger("modeling_tempoformer"), "propagate", True)
    logger.warning_once.cache_clear()
    return lambda words: [record.getMessage() for record in caplog.records if words in record.getMessage()]


def test_what_was_said_of_a_message_is_said_of_no_other_one(tmp_path, messages):
    """Also in the second list of messages, and of several messages at once."""
    tasks = [task("abc", ("0", "0", "Switch")), task("defg", ("1", "1", "No"), ("2", "3", "Switch"))]
    for content in (json.dumps(tasks), lines(tasks)):
        (tmp_path / "a.json").write_text(content)
        assert read(str(tmp_path / "a.json"), **DIALOGUE) == [
            [("a", "Switch"), ("b", None), ("c", None)],
            [("d", None), ("e", "No"), ("f", "Switch"), ("g", "Switch")],
        ]
    assert not messages("label")
    path = write(tmp_path / "b.json", [task("abc", ("1", "1", "No"), ("1", "1", "Switch"))])
    with pytest.raises(PostError, match=r"Row 1 .*\['No', 'Switch'\]"):
        read(path, **DIALOGUE)


@pytest.mark.parametrize("name", ["label", CHOICES])
def test_who_gives_all_posts_of_a_list_one_label_is_told(tmp_path, messages, name):
    talks = [{**task("abc", (None, None, "Switch")), "label": "A"}, task("de", (None, None, "No")), task("fg")]
    path = write(tmp_path / "a.json", talks)
    read(path, records="data.messages", columns={"label": name})
    (message,) = [text for text in messages("label") if "a.json" in text and "no object" not in text]
    assert {"label": "3 in all", CHOICES: "5 in all"}[name] in message
    # Nobody reads it, or each post has its own.
    logger.warning_once.cache_clear()
    load_splits(DataTrainingArguments(test_file=path, records="data.messages", columns={"label": "none"}))
    (tmp_path / "own").mkdir()
    posts = [{"text": "a", "label": "A"}, {"text": "b", "label": "B"}]
    read(write(tmp_path / "own" / "a.json", [{"label": "A", "posts": posts}]), records="posts")
    assert len([text for text in messages("label") if "no object" not in text]) == 1


OBJECTS = {
    "label": {"choices": ["Switch", "No"]},
    "text": [{"type": "bold", "text": "so"}],
    "timestamp": {"$date": "2024-05-01T09:00:00Z"},
    "state": {"name": "calm"},
    "speaker": {"id": "ann"},
}


@pytest.mark.parametrize("role", OBJECTS)
@pytest.mark.parametrize("all_rows", [True, False])
def test_an_object_in_the_place_of_a_value_is_named_with_its_row(tmp_path, role, all_rows):
    post = {"timeline_id": "a", "text": "so", "timestamp": 1714554000, "label": "No", "state": "sad", "speaker": "b"}
    posts = [{**post, role: OBJECTS[role] if all_rows else post[role]}, {**post, role: OBJECTS[role]}]
    path = write_table(tmp_path / "a.jsonl", posts)
    with pytest.raises(ValueError) as raised:
        read(path)
    assert f"a.jsonl, line {1 if all_rows else 2}, column '{role}'" in str(raised.value)
    assert json.dumps(OBJECTS[role]) in str(raised.value)
    # The path of a value of all rows is read, and named.
    if isinstance(OBJECTS[role], dict):
        inner = f"{role}.{next(iter(OBJECTS[role]))}"
        assert inner in str(raised.value)
        if not all_rows:
            with pytest.raises(ValueError, match=rf"line 1, column '{inner}'.*{post[role]}".replace("$", r"\$")):
                load_table(path, columns=[inner])
        elif role != "label":
            assert to_timelines(load_table(path, columns=[inner]), columns={role: inner})


def test_a_column_of_objects_and_values_that_nobody_has_named_is_left_out_with_a_word(tmp_path, messages):
    posts = [{"text": "so", "sw": "No", "meta": {"x": 1}}, {"text": "sad", "sw": {"choices": ["No"]}, "meta": {}}]
    rows = load_table(write_table(tmp_path / "a.jsonl", posts))
    assert rows["sw"][:] == ["No", None] and "meta" not in rows.column_names
    (message,) = messages("a.jsonl, line 2")
    assert "'sw'" in message
    assert not messages("'meta'")
