"""The parts of run_scoring.py that need no Ray: files and folders, reading, shards, and the record."""

from pathlib import Path

import pyarrow as pa
import pytest
from helpers import VOCABULARY, tiny_model, write_posts
from pyarrow import parquet
from transformers import AutoTokenizer

from modeling_tempoformer import TemporalBertTokenizer
from modeling_tempoformer.scoring.folders import Folder, Table, check_apart, find_tables, on_this_machine
from modeling_tempoformer.scoring.record import RECORD, check_record, make_record
from modeling_tempoformer.scoring.scorer import count_posts, read_timelines
from modeling_tempoformer.scoring.shards import (
    POSTS,
    Corpus,
    Shard,
    check_times,
    count_shards,
    read_files,
    write_shard,
)


COLUMNS = {"timeline": "timeline_id", "timestamp": None, "text": "text", "label": None, "id": None}


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("form", [str, Path.as_uri])
def test_tables_are_found_in_folders_at_every_depth(tmp_path, form):
    for name in ("b/deep/1.csv.gz", "b/2.JSONL", "b/_work/3.csv", "b/.4.csv", "b/_5.parquet", "a.tsv"):
        write(tmp_path / name)
    named = [form(tmp_path / "b"), form(tmp_path / "a.tsv"), form(tmp_path / "b" / "2.JSONL")]
    found = find_tables(named)
    assert [table.name for table in found] == [
        form(tmp_path / name) for name in ("a.tsv", "b/2.JSONL", "b/deep/1.csv.gz")
    ]
    assert all(table.size == 1 for table in found)
    for table in found:
        with on_this_machine(table.name) as path:
            assert Path(path).read_text(encoding="utf-8") == "x"


@pytest.mark.parametrize(("name", "said"), [("notes.txt", "not a table"), ("_only.csv", "no table"), ("", "no table")])
def test_what_is_no_table_is_refused(tmp_path, name, said):
    write(tmp_path / "posts" / name) if name else (tmp_path / "posts").mkdir()
    with pytest.raises(ValueError, match=said):
        find_tables([str(tmp_path / "posts")])
    with pytest.raises(ValueError, match="there is no"):
        find_tables([str(tmp_path / "nowhere.csv")])


def test_a_file_in_a_folder_is_there_whole_or_not_at_all(tmp_path):
    work, output = Folder(str(tmp_path / "out" / "work")), Folder((tmp_path / "out").as_uri())
    with work.written_whole("part", into=output) as stream:
        stream.write(b"whole")
        assert output.files() == set()
    assert output.files() == {"part"} and work.files() == set()
    assert (tmp_path / "out" / "part").read_bytes() == b"whole"
    with pytest.raises(KeyboardInterrupt), work.written_whole("part", into=output) as stream:
        stream.write(b"half")
        raise KeyboardInterrupt
    assert (tmp_path / "out" / "part").read_bytes() == b"whole" and work.files() == set()
    assert output.read_json("nothing") is None
    output.delete()
    assert not (tmp_path / "out").exists() and output.files() == set()


def test_a_file_counts_once_however_it_is_named(tmp_path, monkeypatch):
    path = write(tmp_path / "posts" / "a.csv")
    monkeypatch.chdir(tmp_path)
    (table,) = find_tables(["posts", "./posts/a.csv", str(path), path.as_uri()])
    assert table.name == "posts/a.csv"
    monkeypatch.chdir("/")
    with on_this_machine(table.place) as found:
        assert Path(found).read_text(encoding="utf-8") == "x"


def test_a_folder_counts_once_with_links_to_it(tmp_path):
    write(tmp_path / "posts" / "deep" / "a.csv")
    (tmp_path / "link").symlink_to("posts")
    (tmp_path / "posts" / "b.csv").symlink_to("deep/a.csv")
    (tmp_path / "posts" / "again").symlink_to("deep")
    # Every way through these is longer than the one before.
    for name in ("up", "up_too"):
        (tmp_path / "posts" / name).symlink_to("..")
    for given in (["posts"], ["posts", "link"], ["link", "posts"], ["posts/deep/a.csv", "link/b.csv", "posts"]):
        (table,) = find_tables([str(tmp_path / name) for name in given])
        assert table.size == 1 and table.name.startswith(str(tmp_path / given[0]))


def test_predictions_are_not_written_among_the_posts_by_way_of_a_link(tmp_path):
    for name in ("posts", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "to_posts").symlink_to("posts")
    (tmp_path / "posts" / "more").symlink_to("../elsewhere")
    check_apart([str(tmp_path / "elsewhere")], Folder(str(tmp_path / "to_posts" / "scored")))
    for given, output in (("posts", "to_posts/scored"), ("to_posts", "posts/scored"), ("posts", "elsewhere/scored")):
        with pytest.raises(ValueError, match="outside of it"):
            check_apart([str(tmp_path / given)], Folder(str(tmp_path / output)))


def test_predictions_are_not_written_among_the_posts(tmp_path):
    output = Folder(str(tmp_path / "posts" / "scored"))
    check_apart(
        [str(tmp_path / "posts" / "a.csv"), str(tmp_path / "post"), str(tmp_path / "posts" / "scored2")], output
    )
    for folder in (tmp_path / "posts", tmp_path / "posts" / "scored"):
        with pytest.raises(ValueError, match="outside of it"):
            check_apart([str(tmp_path / "other"), folder.as_uri()], output)


def test_the_number_of_shards_follows_from_the_size_alone():
    gigabyte = 2**30
    assert (
        count_shards([Table("a.csv", "/a.csv", 1, 0)]) == count_shards([Table("a.csv", "/a.csv", gigabyte, 0)]) == 16
    )
    assert count_shards([Table("a.csv", "/a.csv", 10 * gigabyte, 0), Table("b.csv", "/b.csv", 6 * gigabyte, 0)]) == 256
    for name in ("a.csv.gz", "a.parquet"):
        assert count_shards([Table(name, name, 4 * gigabyte, 0)]) == 256


def read(folder: Path, posts: list[dict], columns: dict = COLUMNS, tokenizer=None) -> pa.Table:
    place = write_posts(folder / "posts.csv", posts)
    file = pa.table({"file": [0], "name": [place], "place": [place]})
    return pa.concat_tables(read_files(file, columns, Folder(str(folder / "work")), tokenizer))


def test_a_file_is_read_and_its_times_are_described(tmp_path):
    posts = [{"timeline_id": "007", "timestamp": f"2024-05-0{day}", "text": "a", "label": "?"} for day in (2, 1)]
    table = read(tmp_path, posts)
    assert table.schema == POSTS
    assert table.to_pylist() == [
        {"timeline_id": "007", "time": 1714521600.0 + seconds, "text": "a", "post_id": None, "file": 0, "row": row}
        for row, seconds in enumerate((86400, 0))
    ]
    assert check_times([Table("posts.csv", "/posts.csv", 1, 0)], Folder(str(tmp_path / "work")))


@pytest.mark.parametrize(
    ("change", "columns", "said"),
    [
        ({"timeline_id": ""}, {}, "posts.csv: Row 1 .*'timeline_id'"),
        ({"timestamp": "soon"}, {}, "posts.csv: Row 1 .*'timestamp', value 'soon'"),
        ({}, {"text": "entry"}, "posts.csv: There is no column 'entry'.*--text_column"),
        ({}, {"id": "text"}, "posts.csv: Row 1 .*unique"),
    ],
)
def test_a_post_that_cannot_be_read_is_named_with_its_file(tmp_path, change, columns, said):
    post = {"timeline_id": "a", "timestamp": "2024-05-01", "text": "x"}
    with pytest.raises(ValueError, match=said):
        read(tmp_path, [post, {**post, **change}], {**COLUMNS, **columns})
    assert Folder(str(tmp_path / "work")).read_json("problem.json").startswith(str(tmp_path / "posts.csv"))


def test_files_with_other_kinds_of_times_are_refused(tmp_path):
    work = Folder(str(tmp_path / "work"))
    tables = []
    for number, time in enumerate(("2024-05-01", "2024-05-02", "1714521600")):
        name = write_posts(tmp_path / f"{number}.csv", [{"timeline_id": "a", "timestamp": time, "text": "x"}])
        list(read_files(pa.table({"file": [number], "name": [name], "place": [name]}), COLUMNS, work))
        tables.append(Table(name, name, 1, 0))
    assert check_times(tables[:2], work)
    with pytest.raises(ValueError, match=r"0.csv are a date .*2.csv are a number \(1714521600\)"):
        check_times(tables, work)


def test_dates_without_dashes_in_one_file_and_seconds_in_another_are_refused(tmp_path):
    work, tables = Folder(str(tmp_path / "work")), []
    for number, time in enumerate((20240501, 1714521600, 1714521600.5)):
        name = write_posts(tmp_path / f"{number}.csv", [{"timeline_id": "a", "timestamp": time, "text": "x"}])
        list(read_files(pa.table({"file": [number], "name": [name], "place": [name]}), COLUMNS, work))
        tables.append(Table(name, name, 1, 0))
    assert check_times(tables[:1], work)
    with pytest.raises(ValueError, match=r"0.csv has '20240501'.*1.csv has seconds \('1714521600'\)"):
        check_times(tables, work)


@pytest.mark.parametrize(("time", "said"), [("1890-05-01", "1890"), ("9999-12-31T23:59:59-05:00", "years 1 to 5138")])
def test_a_time_that_cannot_be_scored_is_refused_before_the_scoring(tmp_path, time, said):
    tokenizer = TemporalBertTokenizer(vocab=VOCABULARY, times=["1810-1860"])
    good = {"timeline_id": "a", "timestamp": "1850-05-01", "text": "x"}
    assert read(tmp_path, [good], tokenizer=tokenizer).num_rows == 1
    with pytest.raises(ValueError, match=f"posts.csv: Row 1 .*'timestamp', value .*{said}"):
        read(tmp_path, [good, {**good, "timestamp": time}], tokenizer=tokenizer)


def test_a_file_of_predictions_that_is_cut_or_has_other_posts_is_scored_again(tmp_path):
    output = Folder(str(tmp_path))
    for number, rows in enumerate((3, 3, 3, 2)):
        parquet.write_table(pa.table({"post_id": ["x"] * rows}), tmp_path / f"part-{number}")
    (tmp_path / "part-1").write_bytes(b"")
    (tmp_path / "part-2").write_bytes((tmp_path / "part-2").read_bytes()[:-1])
    write(tmp_path / "_scored.json")
    corpus = Corpus([Shard(f"{number}", 3, f"part-{number}") for number in range(5)], timed=False, has_ids=False)
    assert [shard.part for shard in corpus.without(count_posts(output)).shards] == [f"part-{n}" for n in (1, 2, 3, 4)]


def test_a_shard_has_its_posts_in_order_of_time_and_then_of_the_input(tmp_path):
    keys = [("b", 1.0, 0, 0), ("a", 2.0, 1, 0), ("a", 2.0, 0, 7), ("a", 2.0, 0, 5), ("a", 1.0, 1, 9)]
    rows = [{"timeline_id": i, "time": t, "text": "x", "file": f, "row": r} for i, t, f, r in keys]
    work = Folder(str(tmp_path))
    (written,) = write_shard(pa.Table.from_pylist(rows, POSTS), work)
    assert written["posts"].to_pylist() == [5]
    with (work / "shards").open(written["name"][0].as_py()) as shard:
        timelines = [[(p["timeline_id"], p["time"], p["file"], p["row"]) for p in t] for t in read_timelines(shard)]
    assert timelines == [sorted(keys)[:4], [keys[0]]]
    assert list(write_shard(POSTS.empty_table(), work)) == []


def test_an_id_that_a_timeline_has_twice_is_refused(tmp_path):
    ids = [("a", "7"), ("a", "8"), ("b", "7"), ("a", None), ("a", None)]
    rows = [{"timeline_id": name, "post_id": post, "file": 0, "row": row} for row, (name, post) in enumerate(ids)]
    work = Folder(str(tmp_path))
    list(write_shard(pa.Table.from_pylist(rows, POSTS), work))
    with pytest.raises(ValueError, match="'a' has two posts of the id '7'"):
        list(write_shard(pa.Table.from_pylist([*rows, rows[0]], POSTS), work))


def test_a_folder_goes_on_with_the_same_model_posts_and_settings_alone(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(Path(__file__).parents[2] / "tokenization")
    tables, columns = [Table("a.csv", "/a.csv", 3, 1)], {"text": "text", "id": None}
    make = {"model": tiny_model(), "tokenizer": tokenizer, "tables": tables, "columns": columns}
    record, output = make_record(**make), Folder(str(tmp_path))
    assert check_record(output, record)
    output.write_json(RECORD, record)
    assert not check_record(output, make_record(**{**make, "model": tiny_model()}))
    other_tokenizer = AutoTokenizer.from_pretrained(Path(__file__).parents[2] / "tokenization", model_max_length=9)
    calibrated = tiny_model()
    calibrated.config.calibration = {"temperature": 2.0}
    for change, said in (
        ({"model": tiny_model(seed=1)}, "another model"),
        ({"model": calibrated}, "another model"),
        ({"tokenizer": other_tokenizer}, "another model"),
        ({"tables": [Table("a.csv", "/a.csv", 3, 2)]}, "other input files"),
        ({"columns": {**columns, "text": "entry"}}, "--text_column text, not entry"),
    ):
        with pytest.raises(ValueError, match=said):
            check_record(output, make_record(**{**make, **change}))


def test_a_folder_of_something_else_is_refused(tmp_path):
    write(tmp_path / "mine.txt")
    with pytest.raises(ValueError, match=r"other files \(mine.txt\)"):
        check_record(Folder(str(tmp_path)), {})
