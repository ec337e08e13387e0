"""Train, push, load elsewhere, predict, fine-tune further, push again."""

import csv
import json
import runpy
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from helpers import ROOT, write_posts
from hub_server import HubServer, card_problems
from huggingface_hub import ModelCard
from test_hub_pushing import whole

from modeling_tempoformer.data.synthetic import synthetic_posts


REPO = "me/walk"
# Where this package is not: predicts with the models of revisions, then, if asked to, trains the last further with the
# stock Trainer and the collator of its repository, and predicts again.
ELSEWHERE = f"""
import json, sys
sys.modules["modeling_tempoformer"] = None
from transformers import Trainer, TrainingArguments, pipeline
from transformers.dynamic_module_utils import get_class_from_dynamic_module

revisions, train, posts = json.loads(sys.argv[1])
timelines = [{{name: timeline[name] for name in ("text", "timestamp")}} for timeline in posts]
answers = []
for revision in revisions:
    pipe = pipeline("stream-classification", model="{REPO}", revision=revision, trust_remote_code=True)
    answers.append(pipe(timelines, top_k=2))
if train:
    collator_class = get_class_from_dynamic_module("data_collator_tempoformer.StreamCollator", "{REPO}")
    rows = [
        {{
            "input_ids": pipe.tokenizer(timeline["text"])["input_ids"],
            "timestamps": timeline["timestamp"],
            "labels": [pipe.model.config.label2id[label] for label in timeline["label"]],
        }}
        for timeline in posts
    ]
    arguments = TrainingArguments(
        "further", push_to_hub=True, hub_model_id="{REPO}", max_steps=4, learning_rate=0.01, save_strategy="no",
        report_to="none", use_cpu=True, disable_tqdm=True, remove_unused_columns=False,
    )
    collator = collator_class(pipe.tokenizer, pipe.model.config.window)
    trainer = Trainer(pipe.model, arguments, collator, train_dataset=rows, processing_class=pipe.tokenizer)
    trainer.train()
    trainer.push_to_hub()
    pipe.model.eval()
    answers.append(pipe(timelines, top_k=2))
print("ANSWERS", json.dumps(answers))
"""


def elsewhere(hub: HubServer, folder: Path, posts: list[dict], revisions: list[str], train: bool = False):
    """Probabilities of the posts by class, for each model, in a process with a cache of its own."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, json.dumps([revisions, train, posts])],
        cwd=folder,
        env=hub.environment(folder / "home"),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.split("ANSWERS")[1])
    return [
        [{best["label"]: pytest.approx(best["score"], abs=1e-5) for best in post} for line in answer for post in line]
        for answer in answers
    ]


def predictions(folder: Path) -> list[dict[str, float]]:
    with (folder / "_predictions.csv").open(newline="") as file:
        return [
            {name: float(row[f"probability_{name}"]) for name in ("No-Switch", "Switch")}
            for row in csv.DictReader(file)
        ]


def test_train_push_load_elsewhere_predict_train_further_push_again(tmp_path, monkeypatch):
    posts = list(synthetic_posts(6, seed=1, posts_per_timeline=5))
    timelines = defaultdict(lambda: defaultdict(list))
    for post in posts:
        for name in ("text", "timestamp", "label"):
            timelines[post["timeline_id"]][name].append(post[name])
    timelines = list(timelines.values())
    files = [f"--{name}_file={write_posts(tmp_path / 'posts.csv', posts)}" for name in ("train", "validation", "test")]
    push = ["--push_to_hub", "--hub_model_id", REPO, "--hub_strategy", "end"]
    quick = ["--max_steps", "4", "--eval_strategy", "no", "--save_strategy", "no", "--load_best_model_at_end", "false"]
    monkeypatch.chdir(ROOT)
    script = runpy.run_path(str(ROOT / "run_glue_style.py"))["main"]
    with HubServer() as hub:
        hub.connect(monkeypatch, tmp_path / "home")
        script(["configuration/demo.yaml", *files, *push, *quick, "--output_dir", str(tmp_path / "first")])
        first = hub.commits(REPO)[-1].sha
        of_first = predictions(tmp_path / "first")

        before, after = elsewhere(hub, tmp_path / "a", timelines, ["main"], train=True)
        assert of_first == before
        assert after != [{name: score.expected for name, score in post.items()} for post in before]

        # Both are there, and the old one is what it was.
        second = hub.commits(REPO)[-1].sha
        assert second != first and whole("stream") <= set(hub.files(REPO))
        assert not [path for path in hub.files(REPO) if path.startswith("_")]
        of_main, of_old = elsewhere(hub, tmp_path / "b", timelines, ["main", first])
        assert [{name: score.expected for name, score in post.items()} for post in of_main] == after
        assert of_first == of_old

        # And where the package is, its script goes on from the Hub's model as from a folder.
        start = ["--model_name_or_path", REPO, "--output_dir", str(tmp_path / "third"), "--push_to_hub"]
        quick = ["--max_steps", "1", "--learning_rate", "0", "--save_strategy", "no", "--do_train", "--do_predict"]
        for repo, base_model in (("me/further", REPO), (REPO, None)):
            script([*start, *files, *quick, "--hub_model_id", repo])
            assert predictions(tmp_path / "third") == after
            pushed = hub.commits(repo)[-1]
            assert pushed.sha != second and whole("stream") <= set(pushed.files)
            card = ModelCard(pushed.files["README.md"].content.decode())
            assert card_problems(card.content) == [] and card.data.base_model == base_model
            assert "## Intended use and limits" in card.text
