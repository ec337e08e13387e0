"""run_scoring.py from files to predictions, against the pipeline, and when something dies. Slow: Ray starts."""

import gzip
import json
import random
import runpy
import subprocess
import sys
from pathlib import Path

import pandas as pd
import psutil
import pytest
import torch
from helpers import ROOT, tiny_encoder, tiny_model, write_posts
from transformers import AutoTokenizer, pipeline


pytestmark = pytest.mark.slow

NAMES = {0: "No-Switch", 1: "Switch"}


@pytest.fixture(autouse=True)
def no_network(refused_connections):
    """Fails a test that asked for another machine; Ray asks clouds for their names, which no setting of it ends."""
    yield
    if refused_connections.exists():
        asked = refused_connections.read_text(encoding="utf-8").splitlines()
        refused_connections.unlink()
        assert [
            line for line in asked if not line.startswith(("'169.254.169.254'", "'metadata.google.internal'"))
        ] == []


@pytest.fixture(scope="module")
def ray():
    """One Ray for the runs in this process."""
    from modeling_tempoformer.scoring.cluster import started_ray

    with started_ray():
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    """A calibrated model that reads at most 24 tokens of a post."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "tokenization")
    encoder = {**tiny_encoder(), "vocab_size": len(tokenizer), "initializer_range": 0.3}
    ids = {name: label for label, name in NAMES.items()}
    model = tiny_model(encoder_config=encoder, num_labels=2, id2label=NAMES, label2id=ids)
    with torch.no_grad():
        for weight in model.classifier.parameters():
            weight.mul_(3)
    # No post of these tests is within 1e-4 of the threshold, which rounding moves no label over.
    model.config.calibration = {"temperature": 1.5, "thresholds": [0.5574, 0.4426]}
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def make_posts(count: int, num_timelines: int) -> list[dict]:
    """A third of the posts is in one timeline; many posts have the time of another one; some are too long."""
    choose = random.Random(0)
    words = [word for word in AutoTokenizer.from_pretrained(ROOT / "tokenization").get_vocab() if word.isalpha()]
    return [
        {
            "name": f"{choose.choice([0, *range(num_timelines)] if place % 3 else [0]):03}",
            "written": 1.7e9 + choose.randrange(count // 2),
            "words": " ".join(choose.choices(words, k=choose.choice([0, 3, 9, 40]))),
            "number": f"p{place}",
            "label": "not a class of the model",
        }
        for place in range(count)
    ]


def write_corpus(folder: Path, posts: list[dict]) -> Path:
    """Parquet, CSV in gzip and JSON lines, named so that their order is that of the posts."""
    third = len(posts) // 3
    folder.mkdir()
    pd.DataFrame(posts[:third]).to_parquet(folder / "1.parquet")
    (folder / "2").mkdir()
    table = Path(write_posts(folder / "2.csv", posts[third : 2 * third]))
    (folder / "2" / "posts.csv.gz").write_bytes(gzip.compress(table.read_bytes()))
    table.unlink()
    lines = [json.dumps(post) for post in posts[2 * third :]]
    (folder / "3.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


def start(*arguments: str):
    runpy.run_path(str(ROOT / "run_scoring.py"))["main"](list(arguments))


COLUMNS = ["--timeline_column", "name", "--timestamp_column", "written", "--text_column", "words"]


def test_the_predictions_are_those_of_the_pipeline(ray, model, tmp_path, caplog):
    posts = make_posts(600, 20)
    corpus, output = write_corpus(tmp_path / "posts", posts), tmp_path / "scored"
    command = ["--model_name_or_path", model, "--input_files", str(corpus), "--output_dir", str(output)]
    start(*command, *COLUMNS, "--id_column", "number")
    said = [record.message for record in caplog.records]
    scored = pd.read_parquet(output)
    probabilities = ["probability_No-Switch", "probability_Switch"]
    assert list(scored) == ["timeline_id", "post_id", "time", "prediction", *probabilities]
    assert sorted(scored["post_id"]) == sorted(post["number"] for post in posts)
    row_of = scored.set_index("post_id")
    pipe = pipeline("stream-classification", model=model, trust_remote_code=True)
    timelines: dict[str, list[dict]] = {}
    for post in posts:
        timelines.setdefault(post["name"], []).append(post)
    seen = set()
    for name, timeline in timelines.items():
        columns = {"text": [post["words"] for post in timeline], "timestamp": [post["written"] for post in timeline]}
        for post, ranked in zip(timeline, pipe(columns, top_k=2), strict=True):
            row = row_of.loc[post["number"]]
            assert (row["timeline_id"], row["prediction"]) == (name, ranked[0]["label"])
            assert row["time"].timestamp() == post["written"]
            for answer in ranked:
                assert row[f"probability_{answer['label']}"] == pytest.approx(answer["score"], abs=1e-5)
            seen.add(ranked[0]["label"])
    assert seen == set(NAMES.values())
    truncated = sum(len(pipe.tokenizer(post["words"])["input_ids"]) > 24 for post in posts)
    done = json.loads((output / "_scored.json").read_text())
    assert (done["posts"], done["truncated_posts"]) == (600, truncated)
    assert any(f"{truncated} posts were longer" in message for message in said)
    assert not (output / "_work").exists()
    # Another command is refused; the same one writes again what is gone, was cut short or altered, and nothing else.
    before = {path: path.stat().st_mtime_ns for path in output.glob("part-*")}
    with pytest.raises(ValueError, match="another --id_column"):
        start(*command, *COLUMNS)
    gone, cut, altered, *others = sorted(before)
    gone.unlink()
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    pd.read_parquet(altered).head(1).to_parquet(altered)
    start(*command, *COLUMNS, "--id_column", "number")
    assert all(path.stat().st_mtime_ns == before[path] for path in others)
    pd.testing.assert_frame_equal(pd.read_parquet(output), scored, rtol=0, atol=1e-5)
    assert json.loads((output / "_scored.json").read_text()) == done


def test_posts_without_times_and_ids_keep_their_order_and_are_named_by_file_and_row(ray, model, tmp_path):
    posts = [{"timeline_id": "ab"[place % 2], "text": " ".join("happy sad"[place % 5 :])} for place in range(30)]
    files = [write_posts(tmp_path / f"{number}.csv", posts[number * 10 :][:10]) for number in range(3)]
    output = tmp_path / "scored"
    command = ["--model_name_or_path", model, "--input_files", *reversed(files), "--cores_per_process", "2"]
    start(*command, "--output_dir", str(output))
    scored = pd.read_parquet(output).set_index("post_id")
    assert "time" not in scored and len(scored) == 30
    pipe = pipeline("stream-classification", model=model, trust_remote_code=True)
    for name in "ab":
        places = [place for place, post in enumerate(posts) if post["timeline_id"] == name]
        for place, result in zip(places, pipe({"text": [posts[place]["text"] for place in places]}), strict=True):
            row = scored.loc[f"{files[place // 10]}:{place % 10}"]
            assert row["prediction"] == result["label"]
            assert row[f"probability_{result['label']}"] == pytest.approx(result["score"], abs=1e-5)


def test_bad_input_is_one_sentence_and_the_command_works_once_it_is_mended(ray, model, tmp_path):
    posts = [{"timeline_id": "a", "timestamp": f"2024-05-{day:02}", "text": "x"} for day in range(1, 9)]
    folder, output = tmp_path / "posts", tmp_path / "scored"
    command = ["--model_name_or_path", model, "--input_files", str(folder), "--output_dir", str(output)]
    folder.mkdir()
    write_posts(folder / "1.csv", posts[:3])
    write_posts(folder / "2.csv", [*posts[:3], {**posts[3], "timestamp": "9999-12-31"}])
    with pytest.raises(ValueError, match="2.csv: Row 3 .*'timestamp', value '9999-12-31'"):
        start(*command)
    write_posts(folder / "2.csv", posts[3:])
    start(*command)
    assert len(pd.read_parquet(output)) == 8


def test_ray_is_reached_from_this_machine_alone(ray):
    own = [process.pid for process in psutil.Process().children(recursive=True)]
    listening = [c.laddr.ip for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN and c.pid in own]
    assert listening and {address.removeprefix("::ffff:") for address in listening} <= {"127.0.0.1", "::1"}


def test_a_run_goes_on_after_a_worker_was_killed_and_the_script_stopped():
    """And the benchmark, which does that, finds the predictions of the pipeline."""
    command = [sys.executable, str(ROOT / "benchmarks" / "scoring.py"), "--posts", "12000", "--timelines", "300"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    figures = result["figures"]
    assert figures["rows"] == figures["different ids"] == 12000
    assert figures["exit status of the stopped run"] != 0
    assert 0 < figures["parts of the stopped run"] < figures["parts"]
    assert figures["posts of the longest timeline"] > 500
    assert figures["of these written again"] == figures["other labels than the pipeline's"] == 0
    assert figures["largest difference of a score"] <= 1e-5
    # In bytes.
    assert 0 < max(peak["rss"] for peak in result["peaks"]) < 2e9
