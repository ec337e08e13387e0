"""The parts of run_scoring.py that need no Ray: files and folders, partitions, and the record."""

from pathlib import Path

import pyarrow as pa
import pytest
from helpers import VOCABULARY, tiny_model, write_posts
from pyarrow import parquet
from transformers import AutoTokenizer

from modeling_tempoformer import TemporalBertTokenizer
from modeling_tempoformer.scoring import partitions
from modeling_tempoformer.scoring.files import (
    find_tables,
    on_this_machine,
    open_folder,
    read_json,
    write_json,
    written_whole,
)
from modeling_tempoformer.scoring.partitions import POSTS, Corpus, check_times
from modeling_tempoformer.scoring.scorer import (
    RECORD,
    TRUNCATED,
    NamedTimelines,
    check_record,
    each_timeline,
    make_record,
    read_parts,
)


COLUMNS = {"timeline": "timeline_id", "timestamp": None, "text": "text", "id": None}


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("form", [str, Path.as_uri])
def test_tables_are_found_in_folders_at_every_depth(tmp_path, form):
    for name in ("b/deep/1.csv.gz", "b/2.JSONL", "b/_work/3.csv", "b/.4.csv", "b/_5.parquet", "a.tsv"):
        write(tmp_path / name)
    named = [form(tmp_path / "b"), form(tmp_path / "a.tsv"), form(tmp_path / "b" / "2.JSONL")]
    found = find_tables(named, "scored")
    assert [table.name for table in found] == [
        form(tmp_path / name) for name in ("a.tsv", "b/2.JSONL", "b/deep/1.csv.gz")
    ]
    assert all(table.size == 1 for table in found)
    for table in found:
        with on_this_machine(table) as path:
            assert Path(path).read_text(encoding="utf-8") == "x"


@pytest.mark.parametrize(("name", "said"), [("notes.txt", "not a table"), ("_only.csv", "no table"), ("", "no table")])
def test_what_is_no_table_is_refused(tmp_path, name, said):
    write(tmp_path / "posts" / name) if name else (tmp_path / "posts").mkdir()
    with pytest.raises(ValueError, match=said):
        find_tables([str(tmp_path / "posts")], "scored")
    with pytest.raises(ValueError, match="there is no"):
        find_tables([str(tmp_path / "nowhere.csv")], "scored")


def test_a_file_counts_once_however_it_is_named(tmp_path, monkeypatch):
    path = write(tmp_path / "posts" / "a.csv")
    monkeypatch.chdir(tmp_path)
    (table,) = find_tables(["posts", "./posts/a.csv", str(path), path.as_uri()], "scored")
    assert table.name == "posts/a.csv" and table.path == str(path)


def test_a_folder_counts_once_with_links_to_it(tmp_path):
    write(tmp_path / "posts" / "deep" / "a.csv")
    (tmp_path / "link").symlink_to("posts")
    (tmp_path / "posts" / "b.csv").symlink_to("deep/a.csv")
    (tmp_path / "posts" / "again").symlink_to("deep")
    # Every way through these is longer than the one before.
    for name in ("up", "up_too"):
        (tmp_path / "posts" / name).symlink_to("..")
    for given in (["posts"], ["posts", "link"], ["link", "posts"], ["posts/deep/a.csv", "link/b.csv", "posts"]):
        (table,) = find_tables([str(tmp_path / name) for name in given], "scored")
        assert table.size == 1 and table.name.startswith(str(tmp_path / given[0]))


def test_predictions_are_not_written_among_the_posts(tmp_path):
    for name in ("posts/a.csv", "posts2/b.csv", "posts/inner/c.csv"):
        write(tmp_path / name)
    (tmp_path / "link").symlink_to("posts")
    for given, output in (("posts2", "posts/scored"), ("posts", "posts2"), ("posts/a.csv", "posts/scored")):
        assert find_tables([str(tmp_path / given)], str(tmp_path / output))
    for given, output in (("posts", "posts/scored"), ("link", "posts"), ("posts", "link/new"), ("posts", "posts")):
        with pytest.raises(ValueError, match="outside of it"):
            find_tables([str(tmp_path / "posts2"), (tmp_path / given).as_uri()], str(tmp_path / output))


def test_a_file_in_a_folder_is_there_whole_or_not_at_all(tmp_path):
    output = open_folder((tmp_path / "out").as_uri())
    for content in ("first", "second"):
        with pytest.raises(KeyboardInterrupt), written_whole(output, "part") as stream:
            stream.write(b"half")
            raise KeyboardInterrupt
        assert content == "first" or (tmp_path / "out" / "part").read_text() == '"first"\n'
        assert content == "second" or read_json(output, "part") is None
        write_json(output, "part", content)
    assert read_json(output, "part") == "second"


def make_corpus(folder: Path, files: list[list[dict]], num_partitions: int = 3, **columns: str) -> Corpus:
    names = [write_posts(folder / f"{number}.csv", posts) for number, posts in enumerate(files)]
    tables = find_tables(names, "scored")
    return Corpus(open_folder(str(folder / "scored")), tables, {**COLUMNS, **columns}, num_partitions)


def write_files(corpus: Corpus, tokenizer=None) -> list:
    return [corpus.write_file(tokenizer, number) for number in range(len(corpus.tables))]


def test_each_post_is_in_one_partition_by_timeline_and_time(tmp_path, monkeypatch):
    """Posts of the same time keep the order of the input; a file is written in several goes."""
    monkeypatch.setattr(partitions, "POSTS_AT_ONCE", 400)
    posts = [
        {"timeline_id": f"{place * place % 199:03}", "timestamp": f"2024-05-0{5 - place % 4}", "text": f"t{place}"}
        for place in range(2500)
    ]
    corpus = make_corpus(tmp_path, [posts[:1400], posts[1400:]])
    written = write_files(corpus)
    tables = [corpus.read(partition) for partition in range(3)]
    assert [table.num_rows for table in tables] == [sum(counts) for counts in zip(*(file[2] for file in written))]
    assert check_times(corpus.tables, [times for _, times, _ in written])
    found = {}
    for table in tables:
        assert table.schema == POSTS
        for name, columns in each_timeline(table, timed=True):
            assert name not in found
            found[name] = [(f"{time:%Y-%m-%d}", text) for time, text in zip(columns["timestamp"], columns["text"])]
    for name in {post["timeline_id"] for post in posts}:
        timeline = sorted((p for p in posts if p["timeline_id"] == name), key=lambda post: post["timestamp"])
        assert found.pop(name) == [(post["timestamp"], post["text"]) for post in timeline]
    assert not found
    ids = {row["text"]: row["post_id"] for table in tables for row in table.to_pylist()}
    assert ids == {f"t{place}": f"{tmp_path}/{place // 1400}.csv:{place % 1400}" for place in range(2500)}


@pytest.mark.parametrize(
    ("change", "columns", "said"),
    [
        ({"timeline_id": ""}, {}, "0.csv: Row 1 .*'timeline_id'"),
        ({"timestamp": "soon"}, {}, "0.csv: Row 1 .*'timestamp', value 'soon'"),
        # The tokenizer of dated texts says this.
        ({"timestamp": "1890-05-01"}, {}, "0.csv: Row 1 .*'timestamp', value .*1890"),
        ({"timestamp": "9999-12-31T23:59:59-05:00"}, {}, "0.csv: Row 1 .*'timestamp', value .*years 1 to 5138"),
        ({}, {"text": "entry"}, "0.csv: There is no column 'entry'.*--text_column"),
    ],
)
def test_a_post_that_cannot_be_scored_is_named_with_its_file(tmp_path, change, columns, said):
    tokenizer = TemporalBertTokenizer(vocab=VOCABULARY, times=["1810-1860"])
    post = {"timeline_id": "a", "timestamp": "1850-05-01", "text": "x"}
    write_files(make_corpus(tmp_path, [[post]]), tokenizer)
    with pytest.raises(ValueError, match=said):
        write_files(make_corpus(tmp_path, [[post, {**post, **change}]], **columns), tokenizer)


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (("2024-05-01", "2024-05-02", "1714521600"), r"2.csv, row 0, value '1714521600'.*0.csv is a date"),
    ],
)
def test_files_with_other_kinds_of_times_are_refused(tmp_path, times, said):
    corpus = make_corpus(tmp_path, [[{"timeline_id": "a", "timestamp": time, "text": "x"}] for time in times])
    written = [times for _, times, _ in write_files(corpus)]
    assert check_times(corpus.tables[:1], written[:1])
    with pytest.raises(ValueError, match=said):
        check_times(corpus.tables, written)


def test_an_id_that_a_timeline_has_twice_is_refused(tmp_path):
    posts = [{"timeline_id": name, "text": "x", "id": post} for name, post in (("a", "7"), ("a", "8"), ("b", "7"))]
    corpus = make_corpus(tmp_path, [posts[:2], posts[2:]], num_partitions=1, id="id")
    write_files(corpus)
    corpus.check_ids(0)
    corpus = make_corpus(tmp_path, [posts, posts[1:2]], num_partitions=1, id="id")
    write_files(corpus)
    with pytest.raises(ValueError, match="1.csv: Row 0 .*column 'id', value '8'"):
        corpus.check_ids(0)


def test_a_file_of_predictions_counts_if_it_is_whole(tmp_path):
    for number, metadata in enumerate(({TRUNCATED: "2"}, {TRUNCATED: "2"}, {TRUNCATED: "2"}, None)):
        table = pa.table({"post_id": ["x"] * 3}, metadata=metadata)
        parquet.write_table(table, tmp_path / f"part-0000{number}.parquet")
    (tmp_path / "part-00001.parquet").write_bytes(b"")
    (tmp_path / "part-00002.parquet").write_bytes((tmp_path / "part-00002.parquet").read_bytes()[:-1])
    write(tmp_path / "_scored.json")
    assert read_parts(open_folder(str(tmp_path))) == {0: (3, 2)}


def test_a_folder_goes_on_with_the_same_model_posts_and_settings_alone(tmp_path):
    tokenization = Path(__file__).parents[2] / "tokenization"
    tokenizer = AutoTokenizer.from_pretrained(tokenization)
    tables = find_tables([str(write(tmp_path / "a.csv"))], "scored")

    def make(model=None, tokenizer=tokenizer, tables=tables, **columns) -> dict:
        return make_record(NamedTimelines(model=model or tiny_model(), tokenizer=tokenizer), tables, COLUMNS | columns)

    output = open_folder(str(tmp_path / "scored"))
    assert check_record(output, make()) is None
    write_json(output, RECORD, {**make(), "posts": [1]})
    assert check_record(output, make())["posts"] == [1]
    calibrated = tiny_model()
    calibrated.config.calibration = {"temperature": 2.0}
    for changed, said in (
        (make(tiny_model(seed=1)), "another model"),
        (make(calibrated), "another model"),
        (make(tokenizer=AutoTokenizer.from_pretrained(tokenization, model_max_length=9)), "another model"),
        (make(tables=[tables[0]._replace(changed=2)]), "another list of input files"),
        (make(text="entry"), "another --text_column"),
    ):
        with pytest.raises(ValueError, match=said):
            check_record(output, changed)
    write(tmp_path / "mine" / "mine.txt")
    with pytest.raises(ValueError, match=r"other files \(mine.txt\)"):
        check_record(open_folder(str(tmp_path / "mine")), make())
