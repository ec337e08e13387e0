"""What is unusual and legal: time zones, encodings, very long posts and timelines."""

import json
import subprocess
import sys

import pytest
import torch
from datasets import Dataset
from helpers import tiny_encoder, tiny_model
from transformers import AutoTokenizer, pipeline

from modeling_tempoformer import StreamCollator
from modeling_tempoformer.data import timelines
from modeling_tempoformer.data.rows import to_rows
from modeling_tempoformer.data.tables import load_table
from modeling_tempoformer.data.timelines import to_timelines


@pytest.fixture
def tokenizer(tokenization):
    return AutoTokenizer.from_pretrained(tokenization)


def test_posts_of_many_time_zones_are_in_order_of_time(tmp_path):
    """Noon in UTC, then minute by minute: in India, with no zone, as seconds, in New York, with a Z."""
    times = ["2024-05-01T12:00:00+00:00", "2024-05-01T17:31:00+05:30", "2024-05-01 12:02:00", "1714564980"]
    times += ["2024-05-01T08:04:00-04:00", "2024-05-01T12:05:00Z"]
    order = [3, 5, 0, 4, 2, 1]
    lines = [f"ann,{times[place]},post {place}" for place in order]
    (tmp_path / "posts.csv").write_text("\n".join(["timeline_id,timestamp,text", *lines]))
    for streaming in (False, True):
        (timeline,) = to_timelines(load_table(str(tmp_path / "posts.csv"), streaming))
        assert timeline["texts"] == [f"post {place}" for place in range(6)]
        assert [second - timeline["timestamps"][0] for second in timeline["timestamps"]] == [
            60.0 * n for n in range(6)
        ]


FORMS = {
    "a byte-order mark": ("\ufeff", "\n"),
    "line ends of Windows": ("", "\r\n"),
    "blank lines": ("", "\n\n"),
}


@pytest.mark.parametrize(("mark", "end"), FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("streaming", [False, True])
def test_csv_as_programs_write_it(tmp_path, mark, end, streaming):
    text = "\U0001f642 é \u202eabc\u200d,\n\"quoted\" 'NA'"
    cells = ["timeline_id,text,label", 'NA,"' + text.replace('"', '""') + '",O', "007,,"]
    (tmp_path / "posts.csv").write_bytes((mark + end.join(cells) + end).encode("utf-8"))
    first, second = to_timelines(load_table(str(tmp_path / "posts.csv"), streaming), ["O"])
    assert (first["timeline_id"], first["texts"], first["labels"]) == ("NA", [text], [0])
    assert (second["timeline_id"], second["texts"], second["labels"]) == ("007", [""], [-100])


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("late", "column", "value"),
    [
        # A label that posts lack first; ids that are numbers first; times that are whole and without a zone first.
        ({"label": "b"}, "labels", 1),
        ({"timeline_id": "ann"}, "timeline_id", "ann"),
        ({"timestamp": 1714554000.5}, "timestamps", 1714554000.5),
        ({"timestamp": "2024-05-01T09:00:00.250+00:00"}, "timestamps", 1714554000.25),
    ],
)
def test_a_column_of_json_lines_may_change_behind_the_first_10_mb(tmp_path, streaming, late, column, value):
    with (tmp_path / "posts.jsonl").open("w") as file:
        for number in range(1101):
            post = {"timeline_id": number, "timestamp": 1000 + number, "text": "glad " * 2000}
            if isinstance(late.get("timestamp"), str):
                post["timestamp"] = f"2024-04-01T09:00:{number % 60:02}"
            if number == 1100:
                post |= {"label": "a"} | late
            elif "label" not in late:
                post["label"] = "a"
            file.write(json.dumps(post) + "\n")
    assert (tmp_path / "posts.jsonl").stat().st_size > 10 << 20
    *_, last = to_timelines(load_table(str(tmp_path / "posts.jsonl"), streaming), ["a", "b"])
    assert last[column] == (value if column == "timeline_id" else [value])


def test_a_post_of_100_000_tokens_is_cut_and_the_rest_of_its_timeline_stays(tmp_path, tokenizer, caplog, monkeypatch):
    long = "sad " * 99_998
    (tmp_path / "posts.csv").write_text(f'timeline_id,text\nann,glad\nann,"{long}"\nann,so\n')
    (tmp_path / "posts.jsonl").write_text(
        "\n".join(json.dumps({"timeline_id": "ann", "text": t}) for t in ("glad", long, "so"))
    )
    model = tiny_model(encoder_config={**tiny_encoder(), "vocab_size": len(tokenizer)})
    pipe = pipeline("stream-classification", model=model, tokenizer=tokenizer)
    assert len(tokenizer(long, verbose=False)["input_ids"]) == 100_000
    expected = pipe({"text": ["glad", "sad " * 22, "so"]})
    assert pipe({"text": ["glad", long, "so"]}) == expected
    for name in ("posts.csv", "posts.jsonl"):
        rows = to_rows(to_timelines(load_table(str(tmp_path / name))), tokenizer, window=4, max_seq_length=24)
        assert [len(ids) for ids in rows[0]["input_ids"]] == [3, 24, 3]
        with torch.no_grad():
            logits = model(**StreamCollator(tokenizer, 4, timed=False)(list(rows))).logits[0]
        scores = logits.softmax(-1).amax(-1).tolist()
        assert scores == pytest.approx([post["score"] for post in expected], abs=1e-5)


def test_a_long_timeline_comes_in_pieces_and_gives_the_same_rows(tokenizer, monkeypatch):
    """23 posts in pieces of 4, with windows shorter and longer than a piece, between two other timelines."""
    made = [{"timeline_id": "before", "timestamp": 5, "text": "so", "label": "O"}]
    made += [
        {"timeline_id": "long", "timestamp": n // 2, "text": "sad " * (n % 5), "label": "O" if n % 3 else ""}
        for n in range(23)
    ]
    made += [{"timeline_id": "after", "timestamp": 5, "text": "glad", "label": "O"}]
    whole = to_timelines(Dataset.from_list(made), ["O"])
    monkeypatch.setattr(timelines, "POSTS_AT_ONCE", 4)
    for window in (1, 3, 9):
        pieces = to_timelines(Dataset.from_list(made).to_iterable_dataset(), ["O"])
        assert [len(piece["texts"]) for piece in pieces] == [1, 4, 4, 4, 4, 4, 3, 1]
        settings = {"tokenizer": tokenizer, "window": window, "targets_per_row": 3, "only_labelled": True}
        answers = []
        for rows in (to_rows(whole, **settings), to_rows(pieces, **settings)):
            answers.append({})
            for row in rows:
                for place, (post, label) in enumerate(zip(row["post_ids"], row["labels"], strict=True)):
                    end = row["num_context"] + place + 1
                    stream = slice(max(0, end - window), end)
                    assert post not in answers[-1]
                    answers[-1][post] = (label, row["input_ids"][stream], row["timestamps"][stream])
        labelled = {post: answer for post, answer in answers[0].items() if answer[0] is not None}
        assert len(labelled) == 1 + 15 + 1
        assert labelled == {post: answer for post, answer in answers[1].items() if answer[0] is not None}


MILLION = """
import resource, sys
from datasets import IterableDataset
from transformers import AutoTokenizer
from modeling_tempoformer import StreamCollator
from modeling_tempoformer.data.rows import to_rows
from modeling_tempoformer.data.timelines import to_timelines

def posts():
    for number in range(1_000_000):
        yield {"timeline_id": "ann", "timestamp": number, "text": "sad" if number % 7 else "so glad", "label": "O"}

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
streamed = to_timelines(IterableDataset.from_generator(posts), ["O"])
collate, seen, early = StreamCollator(tokenizer, window=3), 0, 0
for row in to_rows(streamed, tokenizer, window=3, targets_per_row=1000):
    seen += len(row["post_ids"])
    assert row["post_ids"][-1] == str(seen - 1)
    if seen % 10_000 == 0:
        assert collate([row])["elapsed"][0, -1].tolist() == [2, 1, 0]
    if seen <= 100_000:
        early = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(seen, early, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_a_timeline_of_a_million_posts_is_streamed_in_bounded_memory(tmp_path, tokenization):
    command = [sys.executable, "-c", MILLION, str(tokenization)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    seen, early, late = map(int, done.stdout.split())
    # The first 100,000 posts take as much as all of them, but for 20 MB.
    assert seen == 1_000_000 and late - early < 20_000
