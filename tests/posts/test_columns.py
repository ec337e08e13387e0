"""Checks which columns are read: the usual ones, columns of nearly the same name, and columns that options name."""

import logging

import pytest
from datasets import Dataset, IterableDataset
from helpers import write_table

from modeling_tempoformer import label_names, load_table, to_timelines
from modeling_tempoformer.common.columns import ROLES, Columns, logger
from modeling_tempoformer.common.command_line import parse
from modeling_tempoformer.common.table_arguments import PostArguments, columns_of
from modeling_tempoformer.posts.arguments import DataTrainingArguments
from modeling_tempoformer.posts.post_errors import PostError
from modeling_tempoformer.posts.post_splits import (
    choose_change_step,
    choose_label_names,
    load_splits,
    split_posts,
)
from modeling_tempoformer.posts.reading import make_timelines
from modeling_tempoformer.posts.remembered_columns import named_columns, recall_columns
from modeling_tempoformer.posts.splits import COLUMNS, write_split
from modeling_tempoformer.posts.states import choose_states
from modeling_tempoformer.posts.tables import stream_table
from semantic_change.arguments import TextDataTrainingArguments
from semantic_change.reading.dated_texts import load_text_splits
from semantic_change.reading.passages import TextColumns
from semantic_change.reading.text_layouts import read_passages
from tempoformer_live.corpus import Corpus


USUAL = ["timeline_id", "timestamp", "text", "label", "speaker", "state"]
# The later post stands first.
ROWS = [
    ("ann", "2024-05-02", "glad", "IS", "ben", "4"),
    ("ann", "2024-05-01", "sad", "O", "ann", "2"),
]
NEARLY = {
    "capitals": ["Timeline_ID", "Timestamp", "Text", "LABEL", "Speaker", "STATE"],
    "white space": [" timeline_id", " timestamp", "text ", "label\t", " speaker", "\u00a0state"],
    "other signs": ["timeline id", "time-stamp", "text:", "label?", "(speaker)", "state."],
    "byte-order marks": [f"\ufeff{name}" for name in USUAL],
    "wide letters": ["".join(chr(ord(char) + 0xFEE0) if char.isalpha() else char for char in name) for name in USUAL],
}


@pytest.fixture
def log(caplog, monkeypatch):
    """Returns what was said in warnings."""
    monkeypatch.setattr(logging.getLogger("modeling_tempoformer"), "propagate", True)
    logger.warning_once.cache_clear()
    return lambda: [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def table_of(names, rows=ROWS) -> list[dict]:
    return [dict(zip(names, row, strict=True)) for row in rows]


def values(timelines) -> list[tuple]:
    return [
        (each.timeline_id, each.timestamps, each.texts, each.labels, each.speakers, each.states) for each in timelines
    ]


EXPECTED = [("ann", [1714521600.0, 1714608000.0], ["sad", "glad"], [1, 0], ["ann", "ben"], ["2", "4"])]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("names", NEARLY)
def test_nearly_the_usual_names_are_read_everywhere(tmp_path, log, names, kind):
    """By the script, in Python, as a stream and in scoring; and it is said for each column."""
    path = write_table(tmp_path / f"posts.{kind}", table_of(NEARLY[names]))
    arguments = DataTrainingArguments(test_file=path, labels=["IS", "O"])
    assert values(make_timelines(load_splits(arguments), arguments, ["IS", "O"])["test"]) == EXPECTED
    for posts in (load_table(path), stream_table([path])):
        assert values(to_timelines(posts, ["IS", "O"])) == EXPECTED and label_names(posts) == ["IS", "O"]
    # The reader of CSV takes the mark at the beginning of a file away.
    for name in set(USUAL).difference(load_table(path).column_names):
        assert any(f"--columns {name.removesuffix('_id')}=" in message for message in log())

    columns = Columns(timeline="timeline_id", timestamp=None, text="text", id=None, speaker=None)
    corpus = Corpus(tmp_path / "scored", [path], columns, 1)
    corpus.write_file(0)
    scored = corpus.read(0).to_pydict()
    assert [scored[name] for name in ("timeline_id", "time", "text", "speaker")] == [
        ["ann"] * 2,
        *(EXPECTED[0][1], EXPECTED[0][2], EXPECTED[0][4]),
    ]


def test_the_exact_name_wins_and_a_choice_is_refused():
    exact = [{**row, "Timestamp": "never", "STATE": "9"} for row in table_of(USUAL)]
    assert values(to_timelines(Dataset.from_list(exact), ["IS", "O"])) == EXPECTED
    names = ["timeline_id", "Timestamp", "text", "TimeStamp", "speaker", "state"]
    with pytest.raises(ValueError, match="'Timestamp', 'TimeStamp'.*--columns timestamp="):
        to_timelines(Dataset.from_list(table_of(names)))
    chosen = to_timelines(Dataset.from_list(table_of(names)), columns={"timestamp": "Timestamp"})
    assert chosen[0].timestamps == EXPECTED[0][1]
    assert to_timelines(Dataset.from_list(table_of(names)), columns={"timestamp": "none"})[0].timestamps is None


def test_names_that_are_given_may_be_nearly_right_too():
    names = ["Person", "written", "Entry", "mood", "who", "day"]
    given = {"timeline": "person", "timestamp": "Written", "text": "entry "}
    given |= {"label": "MOOD", "speaker": "Who", "state": "Day"}
    assert values(to_timelines(Dataset.from_list(table_of(names)), ["IS", "O"], given)) == EXPECTED
    # The name of a field around a record is no misspelling of the record's own.
    with pytest.raises(ValueError, match=r"'\.\.Person'.*--columns timeline="):
        to_timelines(Dataset.from_list(table_of(names)), columns={**given, "timeline": "..Person"})


@pytest.mark.parametrize("role", ["timestamp", "label", "speaker", "state"])
def test_a_column_that_only_has_the_name_is_left_out(tmp_path, role):
    """Nothing can be read in it."""
    rows = [{**row, role: ["a", "b"]} for row in table_of(USUAL)]
    posts = Dataset.from_list(rows)
    for read in (posts, posts.to_iterable_dataset()):
        with pytest.raises(PostError, match=f"'{role}'.*--columns {role}=none"):
            list(to_timelines(read, ["IS", "O"]))
        ((timeline),) = to_timelines(read, ["IS", "O"], columns={role: "none"})
    without = Dataset.from_list([{name: cell for name, cell in row.items() if name != role} for row in rows])
    assert values([timeline]) == values(to_timelines(without, ["IS", "O"]))
    # A column whose name says that there is none is not left out in silence.
    for name in ("none", "None"):
        with pytest.raises(ValueError, match=f"--columns {role}=none.*rename"):
            to_timelines(posts.rename_column(role, name), columns={role: "none"})
    for needed in ("timeline", "text"):
        with pytest.raises(ValueError, match=f"'none'.*--columns {needed}="):
            to_timelines(posts, columns={needed: "none"})


def test_errors_of_states_name_the_option():
    def states(*cells) -> list:
        rows = [{"timeline_id": "a", "text": "so", "state": cell} for cell in cells]
        return to_timelines(Dataset.from_list(rows))

    with pytest.raises(PostError, match="Row 1 .*'calm'.*--columns state=none"):
        states("Calm", "calm")
    for cells in (["CA", "CA"], [f"city {number}" for number in range(51)]):
        with pytest.raises(ValueError, match="--columns state=none"):
            choose_states(states(*cells))


def script(path, **options):
    """Returns the label names, the change step and the timelines of a training by a script."""
    arguments = DataTrainingArguments(train_file=str(path), **options)
    posts = load_splits(arguments)
    names, step = choose_label_names(posts, arguments), choose_change_step(posts, arguments)
    made = split_posts(posts, arguments, names, ["train"], 0, None, members=2, change_step=step)
    return names, step, sorted(made.timelines["train"] + made.timelines["test"], key=lambda each: each.timeline_id)


def test_labels_and_states_are_told_apart_by_the_same_names(tmp_path):
    """States named nearly so derive labels, and a column of labels that is left out counts as none."""
    rows = [
        {"timeline_id": f"t{person}", "text": f"so {day}", "State": "xy"[day % 3 == 2], "LABEL": str(person)}
        for person in range(8)
        for day in range(6)
    ]
    without = [{name: cell for name, cell in row.items() if name != "LABEL"} for row in rows]
    derived = [-100, 0, 1, 1, 0, 1]
    for path, options in (
        (write_table(tmp_path / "a.csv", without), {}),
        (write_table(tmp_path / "b.csv", rows), {"columns": {"label": "none"}}),
    ):
        names, step, timelines = script(path, **options)
        assert len(names) == 2 and step == 0
        assert [timeline.labels for timeline in timelines] == [derived] * 8
    names, step, timelines = script(tmp_path / "b.csv", columns={"state": "none"})
    assert names == [str(person) for person in range(8)] and step is None and timelines[0].states is None
    with pytest.raises(ValueError, match="--columns label=none"):
        script(tmp_path / "b.csv", columns={"label": "none", "state": "none"})
    numbers = [{**row, "State": str(number)} for number, row in enumerate(without)]
    with pytest.raises(ValueError, match="--change_step.*--columns state=none"):
        script(write_table(tmp_path / "c.csv", numbers))


def test_posts_without_times_are_not_read_so_in_silence(log):
    def messages(rows, **columns):
        logger.warning_once.cache_clear()
        before = len(log())
        to_timelines(Dataset.from_list(rows), **columns)
        return [message for message in log()[before:] if "--columns timestamp=" in message]

    untimed = [{"timeline_id": "a", "text": "so", "sent": "2024-05-01"}]
    assert len(messages(untimed)) == 1
    assert len(messages([{**untimed[0], "timestamp": ""}])) == 1
    assert messages(untimed, columns={"timestamp": "none"}) == []
    assert messages(untimed, columns={"timestamp": "sent"}) == []


DAYS = [("2024-05-02", "00:10:00"), ("2024-05-01", "21:30:00"), ("2024-05-01", "9:00:12"), ("2024-05-01", "12:00")]
SECONDS = [1714554012.0, 1714564800.0, 1714599000.0, 1714608600.0]


@pytest.mark.parametrize("midnight", ["", " 00:00:00", "T00:00"])
@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_date_and_time_in_two_columns(tmp_path, log, kind, midnight):
    rows = [
        {"person": "a", "note": str(number), "Sent_date": date + midnight, "Sent_time": time}
        for number, (date, time) in enumerate(DAYS)
    ]
    path = write_table(tmp_path / f"posts.{kind}", rows)
    given = {"timeline": "person", "text": "note", "timestamp": "sent_date+Sent_time"}
    arguments = DataTrainingArguments(test_file=path, columns=given)
    for timelines in (
        make_timelines(load_splits(arguments), arguments, ["O"])["test"],
        to_timelines(stream_table([path]), columns=given),
    ):
        ((timeline),) = timelines
        assert (timeline.timestamps, timeline.texts) == (SECONDS, ["2", "3", "1", "0"])
    assert not [message for message in log() if "alone" in message]
    with pytest.raises(ValueError, match="'hour'.*--columns timestamp="):
        to_timelines(load_table(path), columns={**given, "timestamp": "Sent_date+hour"})

    to_timelines(load_table(path), columns={**given, "timestamp": "Sent_date"})
    ((message),) = [message for message in log() if "'Sent_date' alone" in message]
    assert "'Sent_time'" in message and "--columns 'timestamp=Sent_date+Sent_time'" in message


def test_a_row_with_only_one_of_date_and_time_is_named():
    rows = [{"timeline_id": "a", "text": "so", "date": date, "time": time} for date, time in DAYS]
    rows[2]["time"] = ""
    with pytest.raises(PostError, match=r"Row 2 .*'date\+time'.*--drop_incomplete"):
        to_timelines(Dataset.from_list(rows), columns={"timestamp": "date+time"})
    ((timeline),) = to_timelines(Dataset.from_list(rows), columns={"timestamp": "date+time"}, drop_incomplete=True)
    assert timeline.timestamps == SECONDS[1:]
    # One column may be named with a plus.
    named = Dataset.from_list([{"timeline_id": "a", "text": "so", "date+time": "2024-05-01"}])
    assert to_timelines(named, columns={"timestamp": "date+time"})[0].timestamps == [1714521600.0]


def test_pieces_of_a_stream_may_not_change_the_name():
    """A later piece may have the column that an earlier one lacks."""
    first = [{"timeline_id": "a", "text": "so", "label": None} for _ in range(1000)]

    def stream(name):
        yield from first
        yield {"timeline_id": "b", name: "sad", "Label": "O"}

    def read(name):
        posts = IterableDataset.from_generator(stream, gen_kwargs={"name": name})
        return list(to_timelines(posts, ["O"], columns={"timestamp": "none"}))

    with pytest.raises(ValueError, match="'label'.*'Label'"):
        read("text")


def test_texts_for_words_are_found_by_nearly_the_usual_names(tmp_path):
    """A column of dates that was missed would leave the texts without a time."""
    rows = [{"Date": f"19{year}", "Text": "so sad", "Source": f"book {year}"} for year in (15, 90)]
    passages = read_passages(write_table(tmp_path / "a.csv", rows), TextColumns(time="date"))
    assert [(each.date, each.source, each.words) for each in passages] == [
        ("1915", "book 15", ["so", "sad"]),
        ("1990", "book 90", ["so", "sad"]),
    ]
    path = write_table(tmp_path / "b.csv", [{"Time": row["Date"], "TEXT": row["Text"]} for row in rows])
    for options in ({"train_files": [path]}, {"test_files": [path]}):
        ((texts),) = load_text_splits(TextDataTrainingArguments(**options)).values()
        assert (texts["time"][:], texts["text"][:]) == (["1915", "1990"], ["so sad"] * 2)


def test_a_model_remembers_the_columns_of_its_training(tmp_path):
    """Options win, and a file without such columns is read by the usual names."""
    named = DataTrainingArguments(columns={"text": "note", "timestamp": "day+hour", "state": "none"})
    write_split(tmp_path, {COLUMNS: named_columns(named)})
    rows = [{"timeline_id": "ann", "text": "no", "note": "sad", "day": "2024-05-01", "hour": "09:00", "say": "so"}]
    renamed_path = write_table(tmp_path / "own.csv", rows)
    usual = write_table(tmp_path / "usual.csv", table_of(USUAL))
    for path, given, expected in (
        (renamed_path, {}, ("note", "day+hour", "none")),
        (renamed_path, {"text": "say"}, ("say", "day+hour", "none")),
        (renamed_path, {"text": "text"}, ("text", "day+hour", "none")),
        (usual, {}, ("text", None, "none")),
    ):
        arguments = DataTrainingArguments(test_file=path, columns=given)
        recall_columns(arguments, str(tmp_path), path)
        columns = columns_of(arguments)
        assert (columns["text"], columns["timestamp"], columns["state"]) == expected
    recall_columns(arguments, "someone/model", renamed_path)
    assert columns_of(arguments)["timeline"] == "timeline_id"


def test_columns_are_words_objects_and_recipes_of_which_the_later_win(tmp_path):
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("columns:\n  text: entry\n  label: mood\n")
    others = tmp_path / "others.yaml"
    others.write_text("columns: [label=other, id=number]\n")
    given = [str(recipe), "--columns", "text=note", "speaker=a=b", "--columns", "state=none"]
    (arguments,) = parse([DataTrainingArguments], given)
    assert columns_of(arguments) == {
        **dict.fromkeys(ROLES),
        **{"timeline": "timeline_id", "text": "note", "label": "mood", "speaker": "a=b", "state": "none"},
    }
    (arguments,) = parse([DataTrainingArguments], [str(recipe), str(others)])
    assert columns_of(arguments)["label"] == "other" and columns_of(arguments)["id"] == "number"
    for wrong in ("text", "text=", "words=a", "=a", '{"words": "a"}', '{"text": 5}'):
        with pytest.raises(ValueError, match="--columns names timeline.*split, as in --columns text=body"):
            columns_of(parse([DataTrainingArguments], ["--columns", wrong])[0])
    with pytest.raises(ValueError, match="group"):
        columns_of(PostArguments(columns=["group=site"]))
