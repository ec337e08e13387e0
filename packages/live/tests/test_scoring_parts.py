"""Checks the parts of tempoformer score that need no Ray: files and folders, partitions, and the record."""

import os
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from datasets import Dataset
from helpers import WITH_STATES, tiny_model, tiny_reader, write_posts, write_table
from transformers import AutoTokenizer

from modeling_tempoformer.common.columns import Columns
from modeling_tempoformer.common.files import write_json
from modeling_tempoformer.evaluation.prediction_table import prediction_rows
from modeling_tempoformer.posts.timelines import to_timelines
from modeling_tempoformer.times_tempoformer import to_date
from tempoformer_live import corpus as corpus_module
from tempoformer_live.corpus import Corpus, check_times, find_tables
from tempoformer_live.policy import Alarm
from tempoformer_live.scorer import (
    RECORD,
    CountingPipeline,
    check_kept,
    check_record,
    each_timeline,
    make_record,
    read_parts,
    score_partition,
)


COLUMNS = Columns(timeline="timeline_id", timestamp=None, text="text", id=None, speaker=None)


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_tables_are_found_in_folders_at_every_depth_and_once(tmp_path, monkeypatch):
    for name in ("b/deep/1.csv.gz", "b/2.JSONL", "b/_work/3.csv", "b/.4.csv", "b/_5.parquet", "a.tsv"):
        write(tmp_path / name)
    (tmp_path / "b" / "again").symlink_to("deep")
    monkeypatch.chdir(tmp_path)
    tables = find_tables(["./b", "a.tsv", str(tmp_path / "b" / "2.JSONL")], tmp_path / "scored")
    assert [os.path.realpath(table) for table in tables] == [
        str(tmp_path / name) for name in ("a.tsv", "b/2.JSONL", "b/deep/1.csv.gz")
    ]


@pytest.mark.parametrize(
    ("given", "output", "problem"),
    [
        ("notes", "scored", "notes.txt is not a table"),
        ("hidden", "scored", "no table"),
        ("nowhere.csv", "scored", "there is no"),
        ("posts", "posts/scored", "outside of it"),
        ("link", "posts", "outside of it"),
    ],
)
def test_what_is_no_table_and_an_output_among_the_posts_are_refused(tmp_path, given, output, problem):
    for name in ("notes/notes.txt", "hidden/_only.csv", "posts/a.csv"):
        write(tmp_path / name)
    (tmp_path / "link").symlink_to("posts")
    with pytest.raises(ValueError, match=problem):
        find_tables([str(tmp_path / given)], tmp_path / output)


def make_corpus(folder: Path, files: list[list[dict]], num_partitions: int = 3, **columns: str) -> Corpus:
    names = [write_posts(folder / f"{number}.csv", posts) for number, posts in enumerate(files)]
    return Corpus(folder / "scored", names, Columns(COLUMNS, **columns), num_partitions)


def write_files(corpus: Corpus) -> list:
    return [corpus.write_file(number) for number in range(len(corpus.tables))]


def test_each_post_is_in_one_partition_by_timeline_and_time(tmp_path, monkeypatch):
    """Posts of the same time keep the order of the input. A file is written in several pieces."""
    monkeypatch.setattr(corpus_module, "POSTS_AT_ONCE", 400)
    posts = [
        {"timeline_id": f"{number * number % 199:03}", "timestamp": f"2024-05-0{5 - number % 4}", "text": f"t{number}"}
        for number in range(2500)
    ]
    corpus = make_corpus(tmp_path, [posts[:1400], posts[1400:]])
    written = write_files(corpus)
    tables = [corpus.read(partition) for partition in range(3)]
    assert [table.num_rows for table in tables] == [sum(counts) for counts in zip(*(file[2] for file in written))]
    assert check_times(corpus.tables, [times for _, times, *_ in written])
    timelines = {}
    for timeline in (timeline for table in tables for timeline in each_timeline(table, timed=True)):
        assert timeline.timeline_id not in timelines
        days = [f"{to_date(time):%Y-%m-%d}" for time in timeline.timestamps]
        timelines[timeline.timeline_id] = list(zip(days, timeline.texts, strict=True))
    expected = {}
    for post in sorted(posts, key=lambda post: post["timestamp"]):
        expected.setdefault(post["timeline_id"], []).append((post["timestamp"], post["text"]))
    assert timelines == expected
    ids = {row["text"]: row["post_id"] for table in tables for row in table.to_pylist()}
    assert ids == {f"t{number}": f"{tmp_path}/{number // 1400}.csv:{number % 1400}" for number in range(2500)}


def test_files_with_other_kinds_of_times_are_refused(tmp_path):
    times = ("2024-05-01", "2024-05-02", "1714521600")
    corpus = make_corpus(tmp_path, [[{"timeline_id": "a", "timestamp": time, "text": "x"}] for time in times])
    written = [times for _, times, *_ in write_files(corpus)]
    assert check_times(corpus.tables[:2], written[:2])
    with pytest.raises(ValueError, match=r"2.csv, row 0, value '1714521600'.*0.csv is a date"):
        check_times(corpus.tables, written)


def test_an_id_that_a_timeline_has_twice_is_refused(tmp_path):
    posts = [{"timeline_id": name, "text": "x", "id": post} for name, post in (("a", "7"), ("a", "8"), ("b", "7"))]
    corpus = make_corpus(tmp_path, [posts, posts[1:2]], num_partitions=1, id="id")
    write_files(corpus)
    with pytest.raises(ValueError, match="1.csv: Row 0 .*column 'id', value '8'"):
        corpus.check_ids(0)


def test_a_folder_goes_on_with_the_same_model_posts_and_settings_alone(tmp_path, tokenization):
    tokenizer = AutoTokenizer.from_pretrained(tokenization)
    corpus = Corpus(tmp_path / "scored", [str(write(tmp_path / "a.csv"))], COLUMNS, 3)

    def make(model=None, tokenizer=tokenizer, corpus=corpus) -> dict:
        return make_record(CountingPipeline(model=model or tiny_model(), tokenizer=tokenizer), corpus)

    first = make()
    assert check_record(corpus.output, first) is None
    write_json(corpus.output / RECORD, {**first, "posts": [1]})
    assert check_record(corpus.output, make())["posts"] == [1]
    calibrated = tiny_model()
    calibrated.config.calibration = {"temperature": 2.0}
    changes = [
        (make(tiny_model(seed=1)), "another model"),
        (make(calibrated), "another model"),
        (make(tokenizer=AutoTokenizer.from_pretrained(tokenization, model_max_length=9)), "another model"),
        (make(corpus=replace(corpus, columns={**COLUMNS, "text": "entry"})), "another --columns text"),
        (make(corpus=replace(corpus, kept=("text",))), "another --keep_columns"),
    ]
    write(tmp_path / "a.csv", "longer")
    for changed, problem in (*changes, (make(), "another list of input files")):
        with pytest.raises(ValueError, match=problem):
            check_record(corpus.output, changed)
    write(tmp_path / "mine" / "mine.txt")
    with pytest.raises(ValueError, match=r"other files \(mine.txt\)"):
        check_record(tmp_path / "mine", first)


def test_parts_of_an_earlier_run_that_cannot_be_read_are_reported(tmp_path, caplog):
    model, tokenizer = tiny_reader(num_labels=2)
    corpus = make_corpus(
        tmp_path, [[{"timeline_id": name, "text": "so sad"} for name in "abcdefgh"]], num_partitions=5
    )
    (posts,) = (counts for _, _, counts, _ in write_files(corpus))
    pipe = CountingPipeline(model=model, tokenizer=tokenizer, device="cpu")
    for partition in range(5):
        score_partition(pipe, corpus, None, 1, None, partition)
    output, whole = corpus.output, {number: (count, 0) for number, count in enumerate(posts)}
    caplog.set_level("WARNING")
    caplog.clear()
    assert read_parts(output) == whole and not caplog.messages
    first, second, third, fourth = (output / f"part-{number:05}.parquet" for number in range(4))
    content = first.read_bytes()
    # Cut short; of zeros; with a footer that is none; and of another program
    first.write_bytes(content[: len(content) // 2])
    second.write_bytes(b"")
    footer = int.from_bytes(content[-8:-4], "little")
    third.write_bytes(content[: -8 - footer] + b"\xff" * footer + content[-8:])
    pd.DataFrame({"text": ["so sad"]}).to_parquet(fourth)
    assert read_parts(output) == {4: whole[4]}
    for path in (first, second, third, fourth):
        assert sum(str(path) in message for message in caplog.messages) == 1
    (output / "part-00001 copy.parquet").write_bytes(content)
    with pytest.raises(ValueError, match=r"part-00001 copy.parquet.*take it out"):
        read_parts(output)
    (output / "_work" / "0.parquet").write_bytes(content[:100])
    with pytest.raises(ValueError, match=r"_work/0.parquet cannot be read"):
        corpus.read(0)
    (output / RECORD).write_text('{"model":', encoding="utf-8")
    with pytest.raises(ValueError, match=rf"{RECORD}, line 1"):
        check_record(output, {})


def test_a_time_is_the_same_in_both_kinds_of_predictions(tmp_path):
    """Times agree to the microsecond, also halfway between two, and keep their order."""
    times = [1700040484.3781815, 1700442693.3591466, 1700611897.0848145, 1700618368.9966755, 1700966606.3677714]
    posts = [{"timeline_id": "a", "timestamp": time, "text": "so sad"} for time in times]
    model, tokenizer = tiny_reader(num_labels=2)
    corpus = make_corpus(tmp_path, [posts], num_partitions=1)
    write_files(corpus)
    score_partition(CountingPipeline(model=model, tokenizer=tokenizer, device="cpu"), corpus, "dates", 1, None, 0)
    scored = pd.read_parquet(corpus.output / "part-00000.parquet")
    timelines = to_timelines(Dataset.from_list(posts), ["O", "IS"])
    predicted = prediction_rows(timelines, np.zeros(5, int), np.zeros((5, 2)), ["O", "IS"])
    assert scored["time"].tolist() == predicted["time"].tolist()
    # A double of this size has steps of a quarter of a microsecond.
    assert [time.timestamp() for time in scored["time"]] == pytest.approx(times, abs=6e-7, rel=0)


def test_times_since_a_start_stay_seconds_if_all_files_have_such(tmp_path):
    """One file alone has only such times. The form is the same in all files of predictions."""
    files = [[{"timeline_id": "a", "timestamp": time, "text": "so sad"}] for time in ("00:00:02.5", "00:01:00,25")]
    model, tokenizer = tiny_reader(num_labels=2)
    pipe = CountingPipeline(model=model, tokenizer=tokenizer, device="cpu")
    corpus = make_corpus(tmp_path, files, num_partitions=1)
    form = check_times(corpus.tables, [times for _, times, *_ in write_files(corpus)])
    score_partition(pipe, corpus, form, 1, None, 0)
    assert pd.read_parquet(corpus.output / "part-00000.parquet")["time"].tolist() == [2.5, 60.25]
    (tmp_path / "later").mkdir()
    later = [[{"timeline_id": "a", "timestamp": time, "text": "so sad"}] for time in ("5", "1714521600")]
    corpus = make_corpus(tmp_path / "later", later, num_partitions=1)
    form = check_times(corpus.tables, [times for _, times, *_ in write_files(corpus)])
    score_partition(pipe, corpus, form, 1, None, 0)
    scored = pd.read_parquet(corpus.output / "part-00000.parquet")
    assert [time.timestamp() for time in scored["time"]] == [5, 1714521600]


@pytest.mark.parametrize("values", [[-1.0, 0.0, 2.0], None])
def test_speakers_are_read_and_states_written_as_the_pipeline_answers_them(tmp_path, values):
    """Some speakers are not known. The posts of a timeline are in two files."""
    model, tokenizer = tiny_reader(**{**WITH_STATES, "state_values": values})
    words, speakers = ["so happy", "rain", "alone", "why not"], ["dan", "eve", "", "cy", "dan"]
    posts = [
        {"timeline_id": "ab"[row % 2], "timestamp": 1e9 + row, "text": words[row % 4], "who": speakers[row % 5]}
        for row in range(24)
    ]
    corpus = make_corpus(tmp_path, [posts[::3], [*posts[1::3], *posts[2::3]]], num_partitions=1, speaker="who")
    write_files(corpus)
    pipe = CountingPipeline(model=model, tokenizer=tokenizer, device="cpu")
    assert score_partition(pipe, corpus, "dates", 1, None, 0) == 24
    scored = pd.read_parquet(corpus.output / "part-00000.parquet")
    for name, rows in scored.groupby("timeline_id"):
        posts_of = [post for post in posts if post["timeline_id"] == name]
        keys = {"text": "text", "timestamp": "timestamp", "speaker": "who"}
        answers = pipe({key: [post[column] for post in posts_of] for key, column in keys.items()})
        for row, answer in zip(rows.to_dict("records"), answers, strict=True):
            assert row["prediction"] == answer["label"] and row["state_prediction"] == answer["state"]["label"]
            assert row[f"probability_{answer['label']}"] == pytest.approx(answer["score"], abs=1e-5)
            for state, probability in answer["state"]["probabilities"].items():
                assert row[f"state_probability_{state}"] == pytest.approx(probability, abs=1e-5)
            if values is not None:
                expected = sum(float(state) * share for state, share in answer["state"]["probabilities"].items())
                assert row["state_mean"] == pytest.approx(expected, abs=1e-5)
    assert ("state_mean" in scored) == (values is not None)


def keep(folder: Path, files: dict[str, list[dict]], *kept: str, **settings) -> pd.DataFrame:
    """Returns the predictions of files by name, with some of their columns."""
    model, tokenizer = tiny_reader(num_labels=2, **settings)
    tables = [write_table(folder / name, rows) for name, rows in files.items()]
    corpus = Corpus(folder / "scored", tables, COLUMNS, 1, None, kept)
    write_files(corpus)
    score_partition(CountingPipeline(model=model, tokenizer=tokenizer, device="cpu"), corpus, "dates", 1, None, 0)
    return pd.read_parquet(corpus.output / "part-00000.parquet")


def test_columns_of_the_input_stand_beside_the_predictions(tmp_path, monkeypatch):
    """Each post has its own, from files of several formats, in several pieces, and with gaps."""
    monkeypatch.setattr(corpus_module, "POSTS_AT_ONCE", 7)
    for module in ("csv_tables", "json_tables"):
        monkeypatch.setattr(f"modeling_tempoformer.posts.{module}.ROWS_AT_ONCE", 5)
    posts = [
        {"timeline_id": "ab"[row % 2], "timestamp": 1e9 - row, "text": f"so sad {row}", "who": f"w{row}", "n": row}
        for row in range(36)
    ]
    files = {name: posts[12 * number :][:12] for number, name in enumerate(("a.csv", "b.jsonl", "c.parquet"))}
    # A piece of JSON has no such column.
    for post in files["b.jsonl"][4:]:
        del post["who"]
    scored = keep(tmp_path, files, "text", "who", "n")
    assert len(scored) == 36 and list(scored)[-3:] == ["text", "who", "n"]
    for row in scored.to_dict("records"):
        number = int(row["n"])
        assert row["time"].timestamp() == 1e9 - number and row["timeline_id"] == "ab"[number % 2]
        assert row["text"] == f"so sad {number}"
        assert pd.isna(row["who"]) if 15 < number < 24 else row["who"] == f"w{number}"


def test_columns_that_cannot_be_kept_are_refused(tmp_path):
    posts = [{"timeline_id": "a", "timestamp": 1e9, "text": "x"}]
    with pytest.raises(ValueError, match="a.csv: --keep_columns: .*'who'.*timeline_id, timestamp, text"):
        keep(tmp_path, {"a.csv": posts}, "text", "who")
    check_kept(["text", "speaker", "label"], ["no", "yes"])
    for kept, problem in ((["time"], "time"), (["probability_yes"], "probability_yes"), (["n", "n"], "twice")):
        with pytest.raises(ValueError, match=f"--keep_columns.*{problem}"):
            check_kept(kept, ["no", "yes"])


@pytest.mark.parametrize("model_type", ["tempoformer", "post_tempoformer"])
def test_predictions_have_the_alarm_of_the_pipeline(tmp_path, model_type):
    posts = [{"timeline_id": "a", "timestamp": 1e9 + row, "text": "so sad why"[: 2 + row]} for row in range(8)]
    calibration = {"alarm": {"label": 1, "threshold": 0.5}}
    settings = {"model_type": model_type, "watched": 1, "calibration": calibration}
    scored = keep(tmp_path, {"a.csv": posts}, **settings)
    model, tokenizer = tiny_reader(num_labels=2, **settings)
    pipe = CountingPipeline(model=model, tokenizer=tokenizer, device="cpu")
    answers = pipe({name: [post[name] for post in posts] for name in ("text", "timestamp")})
    for name in ("alarm", "watched", "watched_threshold"):
        assert scored[name].tolist() == [answer[name] for answer in answers]
    expected = [answer["watched_probability"] for answer in answers]
    assert scored["watched_probability"].tolist() == pytest.approx(expected, abs=1e-5)
    assert scored["watched_probability"].tolist() == scored["probability_LABEL_1"].tolist()
    # A model that watches no class has no such columns.
    (tmp_path / "plain").mkdir()
    assert "alarm" not in keep(tmp_path / "plain", {"a.csv": posts}, model_type=model_type)


def test_alarms_follow_the_policy_of_the_model_s_service(tmp_path):
    """Two timelines, whose posts are in turn and not in the order of time. Every other one is held back."""
    posts = [
        {"timeline_id": "ab"[row % 2], "timestamp": 1e9 - row, "text": "so sad why"[: 2 + row]} for row in range(8)
    ]
    model, tokenizer = tiny_reader(num_labels=2, watched=1)
    pipe = CountingPipeline(model=model, tokenizer=tokenizer, device="cpu")
    corpus = Corpus(tmp_path / "scored", [write_table(tmp_path / "a.csv", posts)], COLUMNS, 1)
    write_files(corpus)
    score_partition(pipe, corpus, "dates", 1, Alarm(1, 0.0, {"cooldown_posts": 1}), 0)
    scored = pd.read_parquet(corpus.output / "part-00000.parquet")
    # By time, and not in the order of the input, the first and the third post of each timeline are alarms.
    for _, posts_of in scored.groupby("timeline_id"):
        events = posts_of.sort_values("time")["alarm_event"].tolist()
        assert events == ["raised", "held back"] * 2
        assert posts_of.sort_values("time")["alarm"].tolist() == [True, False] * 2


def test_a_file_without_the_column_of_speakers_is_refused(tmp_path):
    corpus = make_corpus(tmp_path, [[{"timeline_id": "a", "text": "x"}]], speaker="speaker")
    with pytest.raises(ValueError, match="0.csv: .*'speaker'.*--columns speaker="):
        corpus.write_file(0)


# The module asks for Ray, which the fast tests do not install.
@pytest.mark.slow
@pytest.mark.parametrize("has_tmp", [True, False])
def test_ray_s_folder_is_short_and_where_there_is_no_tmp_the_machine_s_own(tmp_path, monkeypatch, has_tmp):
    from tempoformer_live.cluster import started_ray

    ray = SimpleNamespace(is_initialized=lambda: False, init=lambda **settings: nullcontext())
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr("os.environ", dict(os.environ))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    is_folder = os.path.isdir
    monkeypatch.setattr("os.path.isdir", lambda path: is_folder(path) and (has_tmp or path != "/tmp"))
    with started_ray():
        assert Path(os.environ["RAY_TMPDIR"]).parent == (Path("/tmp") if has_tmp else tmp_path)
