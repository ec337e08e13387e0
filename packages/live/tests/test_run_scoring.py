"""
Checks tempoformer score from files to predictions against the pipeline, also after a process dies. Slow, because Ray
starts.
"""

import json
import random
import subprocess
import sys
from pathlib import Path

import pandas as pd
import psutil
import pytest
import torch
from helpers import ROOT, read_json, tiny_reader, write_table
from transformers import AutoTokenizer, pipeline

from tempoformer_live.commands.score import main as score


pytestmark = pytest.mark.slow

NAMES = {0: "No-Switch", 1: "Switch"}


@pytest.fixture(autouse=True)
def no_network(refused_connections):
    """Fails a test that tried to reach another machine. Ray always asks clouds for their names."""
    yield
    if refused_connections.exists():
        connections = refused_connections.read_text(encoding="utf-8").splitlines()
        refused_connections.unlink()
        clouds = ("'169.254.169.254'", "'metadata.google.internal'")
        assert [line for line in connections if not line.startswith(clouds)] == []


@pytest.fixture(scope="module")
def ray():
    """Starts one Ray for the runs in this process."""
    from tempoformer_live.cluster import started_ray

    with started_ray():
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    """Returns the folder of a calibrated model that reads at most 24 tokens of a post."""
    ids = {name: label for label, name in NAMES.items()}
    model, tokenizer = tiny_reader(num_labels=2, id2label=NAMES, label2id=ids)
    with torch.no_grad():
        for weight in model.classifier.parameters():
            weight.mul_(3)
    # No post of these tests is within 1e-4 of the threshold, so rounding changes no label.
    model.config.calibration = {"temperature": 1.5, "thresholds": [0.5574, 0.4426]}
    folder = tmp_path_factory.mktemp("model")
    for part in (model, tokenizer):
        part.save_pretrained(folder)
    return str(folder)


def make_posts(count: int, num_timelines: int) -> list[dict]:
    """Returns posts, a third of them in one timeline. Many share a time, and some are too long."""
    choose = random.Random(0)
    words = [word for word in AutoTokenizer.from_pretrained(ROOT / "tokenization").get_vocab() if word.isalpha()]
    return [
        {
            "name": f"{choose.choice([0, *range(num_timelines)] if row % 3 else [0]):03}",
            "written": 1.7e9 + choose.randrange(count // 2),
            "words": " ".join(choose.choices(words, k=choose.choice([0, 3, 9, 40]))),
            "number": f"p{row}",
            "label": "not a class of the model",
        }
        for row in range(count)
    ]


def write_corpus(folder: Path, posts: list[dict]) -> Path:
    """Writes Parquet, gzipped CSV and JSON lines, named in the order of the posts."""
    (folder / "2").mkdir(parents=True)
    for number, name in enumerate(("1.parquet", "2/posts.csv.gz", "3.jsonl")):
        write_table(folder / name, posts[number * len(posts) // 3 :][: len(posts) // 3])
    return folder


def start(model: str, posts: Path, output: Path, *more: str) -> pd.DataFrame:
    """Runs the script and returns the predictions."""
    given = ["--model_name_or_path", model, "--input_files", str(posts), "--output_dir", str(output)]
    score([*given, *more])
    return pd.read_parquet(output)


COLUMNS = ["--columns", "timeline=name", "--columns", "timestamp=written", "--columns", "text=words"]


def assert_same(row: pd.Series, ranked: list[dict]):
    """Checks a row of predictions against the pipeline's answers for all classes."""
    assert row["prediction"] == ranked[0]["label"]
    for answer in ranked:
        assert row[f"probability_{answer['label']}"] == pytest.approx(answer["score"], abs=1e-5)


def test_the_predictions_are_those_of_the_pipeline(ray, model, tmp_path, caplog):
    posts = make_posts(600, 20)
    corpus, output = write_corpus(tmp_path / "posts", posts), tmp_path / "scored"
    scored = start(model, corpus, output, *COLUMNS, "--columns", "id=number")
    messages = [record.message for record in caplog.records]
    probabilities = ["probability_No-Switch", "probability_Switch"]
    assert list(scored) == ["timeline_id", "post_id", "time", "prediction", *probabilities]
    assert sorted(scored["post_id"]) == sorted(post["number"] for post in posts)
    row_of = scored.set_index("post_id")
    pipe = pipeline("stream-classification", model=model, trust_remote_code=True)
    for name, timeline in pd.DataFrame(posts).groupby("name"):
        ranked = pipe({"text": timeline["words"].tolist(), "timestamp": timeline["written"].tolist()}, top_k=2)
        for post, answers in zip(timeline.itertuples(), ranked, strict=True):
            row = row_of.loc[post.number]
            assert (row["timeline_id"], row["time"].timestamp()) == (name, post.written)
            assert_same(row, answers)
    assert set(scored["prediction"]) == set(NAMES.values())
    truncated = sum(len(pipe.tokenizer(post["words"])["input_ids"]) > 24 for post in posts)
    done = read_json(output / "_scored.json")
    assert (done["posts"], done["truncated_posts"]) == (600, truncated)
    assert any(f"{truncated} posts were longer" in message for message in messages)
    assert not (output / "_work").exists()
    # Another command is refused. The same command writes only files that are missing, cut short or altered.
    before = {path: path.stat().st_mtime_ns for path in output.glob("part-*")}
    with pytest.raises(ValueError, match="another --columns id"):
        start(model, corpus, output, *COLUMNS)
    gone, cut, altered, *others = sorted(before)
    gone.unlink()
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    pd.read_parquet(altered).head(1).to_parquet(altered)
    again = start(model, corpus, output, *COLUMNS, "--columns", "id=number")
    assert all(path.stat().st_mtime_ns == before[path] for path in others)
    pd.testing.assert_frame_equal(again, scored, rtol=0, atol=1e-5)
    assert read_json(output / "_scored.json") == done


def test_posts_without_times_and_ids_keep_their_order_and_are_named_by_file_and_row(ray, model, tmp_path):
    posts = [{"timeline_id": "ab"[row % 2], "text": " ".join("happy sad"[row % 5 :])} for row in range(30)]
    (tmp_path / "posts").mkdir()
    for number in range(3):
        write_table(tmp_path / "posts" / f"{number}.csv", posts[number * 10 :][:10])
    scored = start(model, tmp_path / "posts", tmp_path / "scored", "--cores_per_process", "2").set_index("post_id")
    assert "time" not in scored and len(scored) == 30
    pipe = pipeline("stream-classification", model=model, trust_remote_code=True)
    for first in (0, 1):
        rows = range(first, 30, 2)
        ranked = pipe({"text": [posts[row]["text"] for row in rows]}, top_k=2)
        for row, answers in zip(rows, ranked, strict=True):
            assert_same(scored.loc[f"{tmp_path}/posts/{row // 10}.csv:{row % 10}"], answers)


def test_posts_nested_in_json_are_scored_as_flat_ones(ray, model, tmp_path):
    """Times are seconds since a start."""
    posts = [{"timeline_id": "ab"[row % 2], "timestamp": f"00:00:{row:02}.5", "text": "so sad"} for row in range(30)]
    messages = [
        {"at": post["timestamp"], "meta": {"text": post["text"], "who": post["timeline_id"]}} for post in posts
    ]
    for name in ("flat", "nested"):
        (tmp_path / name).mkdir()
    write_table(tmp_path / "flat" / "posts.csv", posts)
    (tmp_path / "nested" / "posts.json").write_text(json.dumps({"chat": {"messages": messages}}, indent=2))
    nested = ["--records", "chat.messages", "--columns", "timeline=meta.who", "--columns", "text=meta.text"]
    flat = start(model, tmp_path / "flat", tmp_path / "flat_scored")
    scored = start(model, tmp_path / "nested", tmp_path / "nested_scored", *nested, "--columns", "timestamp=at")
    assert sorted(scored["time"]) == [row + 0.5 for row in range(30)]
    pd.testing.assert_frame_equal(scored.drop(columns="post_id"), flat.drop(columns="post_id"), rtol=0, atol=1e-5)


def test_conversations_without_ids_are_scored_as_flat_posts(ray, model, tmp_path):
    """Each file is one conversation, and some of its rows are no posts."""
    times = [f"2024-05-01 09:00:{row:02}" for row in range(9)]
    posts = [{"timeline_id": "ab"[row % 2], "timestamp": time, "text": "so"} for row, time in enumerate(times)]
    for name in ("flat", "files"):
        (tmp_path / name).mkdir()
    write_table(tmp_path / "flat" / "posts.csv", posts)
    for name in "ab":
        rows = [
            {"Date": post["timestamp"][:10], "Time": post["timestamp"][11:], "Text": post["text"]}
            for post in posts
            if post["timeline_id"] == name
        ]
        write_table(tmp_path / "files" / f"{name}.csv", [rows[0], {**rows[0], "Text": ""}, *rows[1:]])
    flat = start(model, tmp_path / "flat", tmp_path / "flat_scored")
    given = ["--columns", "timeline=none", "timestamp=date+time", "--drop_incomplete"]
    scored = start(model, tmp_path / "files", tmp_path / "files_scored", *given)
    assert len(flat) == 9
    pd.testing.assert_frame_equal(scored.drop(columns="post_id"), flat.drop(columns="post_id"), rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="another --drop_incomplete"):
        start(model, tmp_path / "files", tmp_path / "files_scored", *given[:-1])


def test_bad_input_is_one_sentence_and_the_command_works_once_it_is_mended(ray, model, tmp_path):
    posts = [{"timeline_id": "a", "timestamp": f"2024-05-{day:02}", "text": "x"} for day in range(1, 9)]
    folder = tmp_path / "posts"
    folder.mkdir()
    write_table(folder / "1.csv", posts[:3])
    write_table(folder / "2.csv", [*posts[:3], {**posts[3], "timestamp": "9999-12-31"}])
    with pytest.raises(ValueError, match="2.csv: Row 3 .*'timestamp', value '9999-12-31'"):
        start(model, folder, tmp_path / "scored")
    write_table(folder / "2.csv", posts[3:])
    assert len(start(model, folder, tmp_path / "scored")) == 8


def test_ray_is_reached_from_this_machine_alone(ray):
    children = [process.pid for process in psutil.Process().children(recursive=True)]
    listening = [
        c.laddr.ip for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN and c.pid in children
    ]
    assert listening and {address.removeprefix("::ffff:") for address in listening} <= {"127.0.0.1", "::1"}


def test_a_run_goes_on_after_a_worker_was_killed_and_the_script_stopped():
    """The benchmark does this and compares the predictions with the pipeline's."""
    command = [sys.executable, str(ROOT / "benchmarks" / "scoring.py"), "--posts", "4000", "--timelines", "100"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    figures = result["figures"]
    assert figures["rows"] == figures["different ids"] == 4000
    assert figures["exit status of the stopped run"] != 0
    assert 0 < figures["parts of the stopped run"] < figures["parts"]
    assert figures["posts of the longest timeline"] > 150
    assert figures["of these written again"] == figures["other labels than the pipeline's"] == 0
    assert figures["largest difference of a score"] <= 1e-5
    # The sizes are in bytes.
    assert 0 < max(peak["rss"] for peak in result["peaks"].values()) < 2e9
