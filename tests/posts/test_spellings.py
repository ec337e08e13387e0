"""Checks names that look alike: refused, warned of, or one name."""

import logging
from dataclasses import replace

import pytest
from datasets import ClassLabel, Dataset
from helpers import make_timeline

from modeling_tempoformer import PostTempoFormerConfig, TempoFormerConfig
from modeling_tempoformer.common.command_line import class_named
from modeling_tempoformer.posts import spellings
from modeling_tempoformer.posts.arguments import DataTrainingArguments
from modeling_tempoformer.posts.metadata import Metadata
from modeling_tempoformer.posts.post_errors import PostError
from modeling_tempoformer.posts.post_splits import choose_label_names, load_splits, split_posts
from modeling_tempoformer.posts.spellings import compare_splits
from modeling_tempoformer.posts.splits import hash_id
from modeling_tempoformer.posts.states import check_states
from modeling_tempoformer.posts.tables import load_table
from modeling_tempoformer.posts.timelines import label_names, to_timelines


ROLES = ["timeline", "speaker", "group", "split", "annotator"]
LOOKS = [("Ann", "ann"), ("Ann Lee", "AnnLee"), ("Ann", "Ａｎｎ"), ("Straße", "STRASSE"), ("a\u200db", "ab")]


@pytest.fixture(autouse=True)
def logs_reach_pytest(monkeypatch):
    monkeypatch.setattr(logging.getLogger("modeling_tempoformer"), "propagate", True)
    spellings.logger.warning_once.cache_clear()


def posts(*names: str, role: str = "speaker") -> Dataset:
    """Returns a post for each name in a role, all of one timeline unless the role is that."""
    count = len(names)
    columns = {"timeline_id": ["t"] * count, "text": [str(row) for row in range(count)], "id": list(range(count))}
    columns |= {"label": ["No", "Yes"] * (count // 2)}
    # The posts of a timeline agree in what splits never divide.
    columns |= {"timeline_id": [str(row) for row in range(count)]} if role == "split" else {}
    return Dataset.from_dict(columns | {"timeline_id" if role == "timeline" else "who": list(names)})


def columns_of(role: str) -> dict[str, str]:
    return {"id": "id", role: "timeline_id" if role == "timeline" else "who"}


@pytest.mark.parametrize("pair", LOOKS, ids=ascii)
@pytest.mark.parametrize("role", ROLES)
def test_names_that_look_alike_are_warned_of_in_every_role(caplog, role, pair):
    for streamed in (False, True) if role != "annotator" else (False,):
        caplog.clear()
        spellings.logger.warning_once.cache_clear()
        table = posts(pair[0], "other", *pair, role=role)
        if role == "timeline":
            # The posts of a timeline stand together in a stream.
            table = table.select([0, 2, 1, 3])
        list(to_timelines(table.to_iterable_dataset() if streamed else table, ["No", "Yes"], columns_of(role)))
        found = [record.getMessage() for record in caplog.records if "DIFFERENT" in record.getMessage()]
        assert len(found) == 1 and all(repr(name) in found[0] for name in pair) and "1 such" in found[0]


@pytest.mark.parametrize("role", ROLES)
def test_one_name_in_several_spellings_is_one_and_nothing_is_said(caplog, role):
    """A zero-width space, a mark of byte order, an accent in two characters, an integer as a float."""
    for names in (("fr\u00f6h", " fro\u0308h\u200b", "\ufefffr\u00f6h", "fr\u00f6\u00adh"), ("7", "7.0", "7,0", " 7")):
        table = posts(*names, role=role)
        timelines = to_timelines(table, ["No", "Yes"], columns_of(role))
        found = {
            "timeline": lambda timeline: [timeline.timeline_id],
            "speaker": lambda timeline: timeline.speakers,
            "group": lambda timeline: [metadata.group for metadata in timeline.metadata],
            "split": lambda timeline: [metadata.unit for metadata in timeline.metadata],
            "annotator": lambda timeline: [name for metadata in timeline.metadata for name in metadata.labels],
        }[role]
        assert {name for timeline in timelines for name in found(timeline)} == {names[0]}
    assert "DIFFERENT" not in caplog.text


@pytest.mark.parametrize("role", ROLES[1:])
def test_texts_that_programs_write_for_nothing_are_no_names(role):
    missing = ["", "nan", "NULL", "<NA>", " NaN ", "\u200b"]
    columns = {"timeline_id": list("abcdef"), "text": ["hm"] * 6, "who": missing, "label": [""] * 6}
    columns["timestamp"] = list(range(6))
    timelines = to_timelines(Dataset.from_dict(columns), ["No", "Yes"], {role: "who"})
    metadata = [timeline.metadata[0] if timeline.metadata else Metadata("") for timeline in timelines]
    assert {timeline.speakers[0] if role == "speaker" else "" for timeline in timelines} == {""}
    assert all(not one.group and not one.unit and not one.labels for one in metadata)


@pytest.mark.parametrize("streamed", [False, True])
def test_states_that_look_alike_are_refused_and_numbers_are_compared_as_such(streamed):
    def states(*values: str) -> list[str]:
        table = posts(*values, role="state")
        (timeline,) = to_timelines(table.to_iterable_dataset() if streamed else table, columns={"state": "who"})
        return timeline.states

    with pytest.raises(PostError, match="Row 2 .*'who'.*'calm'.*'Calm'"):
        states("Calm", "sad", "calm", "glad")
    assert states("calm", "ca\u200blm", "calm ", "nan") == ["calm", "calm", "calm", ""]
    assert states("1e5", "1E5", "5", "５") == ["1e5", "1E5", "5", "５"]
    assert states("-100", "0", "-100.0", "100") == ["-100", "0", "-100", "100"]


def test_names_of_two_files_are_compared(caplog):
    train = [make_timeline([0, 1], "Ann", states=["calm", "5e1"], metadata=[Metadata(unit="north")] * 2)]
    fine = [make_timeline([0, 1], "ben", states=["sad", "5E1"], metadata=[Metadata(unit="north")] * 2)]
    compare_splits({"train": train, "test": fine})
    assert not caplog.text
    other = [make_timeline([0, 1], "ann", states=["calm", ""], metadata=[Metadata(unit="North")] * 2)]
    compare_splits({"train": train, "test": other})
    for pair in ("'Ann' and 'ann'", "'north' and 'North'"):
        assert pair in caplog.text
    with pytest.raises(ValueError, match="'calm' and 'Calm'.*train and test"):
        compare_splits({"train": train, "test": [replace(fine[0], states=["Calm", ""])]})


def test_a_state_that_looks_like_one_of_a_model_s_is_refused():
    timelines = [make_timeline([0, 1], "a", states=["calm", "new"])]
    check_states(timelines, PostTempoFormerConfig(states=["calm", "sad"]))
    check_states(timelines, TempoFormerConfig())
    with pytest.raises(ValueError, match="'calm'.*'Calm'"):
        check_states(timelines, PostTempoFormerConfig(states=["Calm", "sad"]))


def test_a_family_as_an_integer_and_as_a_float_is_in_one_split(tmp_path):
    for name, form in (("train", "{}"), ("test", "{}.0")):
        rows = [
            f"{name}{number},hm,{label},{form.format(number // 2)}" for number in range(8) for label in ("No", "Yes")
        ]
        (tmp_path / f"{name}.csv").write_text("\n".join(["timeline_id,text,label,family", *rows]))
    files = {f"{name}_file": str(tmp_path / f"{name}.csv") for name in ("train", "test")}
    data = DataTrainingArguments(**files, columns={"split": "family"})
    with pytest.raises(ValueError, match=r"train.*test.*1, 2, 3 \(3 in all"):
        split_posts(load_splits(data), data, ["No", "Yes"], ["train", "test"], seed=0, model=None)


def test_options_name_classes_as_tables_do(tmp_path):
    names = ["fr\u00f6hlich", "still", "7"]
    for option in ("fro\u0308hlich", " fr\u00f6hlich", "fr\u00f6hlich\u200b"):
        assert class_named(option, names, "watch") == 0
    # A model that was saved before names were read so
    assert class_named("fr\u00f6hlich", ["still", "fro\u0308hlich "], "watch") == 1
    assert class_named("7.0", names, "watch") == 2
    with pytest.raises(ValueError, match="--watch"):
        class_named("Still", names, "watch")
    (tmp_path / "posts.csv").write_text("timeline_id,text,label\na,so,still\na,so,fro\u0308hlich\n", encoding="utf-8")
    table = load_table(tmp_path / "posts.csv")
    data = DataTrainingArguments(train_file="posts.csv", labels=[" still", "fro\u0308hlich"])
    names = choose_label_names({"train": table}, data)
    assert names == ["still", "fr\u00f6hlich"] and to_timelines(table, names)[0].labels == [0, 1]


def test_names_of_class_ids_are_read_too():
    table = Dataset.from_dict({"timeline_id": ["a", "a"], "text": ["so", "sad"], "label": [0, 1]})
    table = table.cast_column("label", ClassLabel(names=["fro\u0308h ", "sad"]))
    assert label_names(table) == ["fr\u00f6h", "sad"]
    assert to_timelines(table, ["sad", "fr\u00f6h"])[0].labels == [1, 0]
    with pytest.raises(ValueError, match="'Sad'.*'sad'"):
        label_names(table.cast_column("label", ClassLabel(names=["Sad", "sad"])))


def test_the_record_of_a_split_knows_a_timeline_however_it_is_written():
    assert hash_id("7") == hash_id("7.0") == hash_id(" 7\u200b") != hash_id("70")
    assert hash_id("fr\u00f6h") == hash_id("fro\u0308h")
