"""
Checks a walk over the Hub: train, push, load elsewhere, predict, fine-tune further, push again. Pinned revisions keep
their answers.
"""

import csv
import json
import runpy
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from helpers import NAMES, ROOT, assert_same, with_other_ids, write_posts
from hub_server import HubServer
from huggingface_hub import HfApi, ModelCard

from modeling_tempoformer.posts.synthetic import synthetic_posts


REPO = "me/walk"
# Runs without the package. It predicts with the models of some revisions. If asked to, it then trains the last one
# with the stock Trainer and the repository's collator, pushes it and predicts again.
ELSEWHERE = f"""
import json, sys
sys.modules["modeling_tempoformer"] = None
from transformers import Trainer, TrainingArguments, pipeline
from transformers.dynamic_module_utils import get_class_from_dynamic_module

revisions, train, posts = json.loads(sys.argv[1])
timelines = [{{name: timeline[name] for name in ("text", "timestamp")}} for timeline in posts]
answers = []
for weights, code in revisions:
    pinned = {{"revision": weights, "code_revision": code}}
    pipe = pipeline("stream-classification", model="{REPO}", trust_remote_code=True, **pinned)
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


def elsewhere(hub: HubServer, folder: Path, posts: list[dict], models: list[list[str]], train: bool = False, **more):
    """
    Returns each model's probabilities of both classes for all posts, computed in a process with its own cache. A model
    is a revision of the weights and a revision of the code.
    """
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-c", ELSEWHERE, json.dumps([models, train, posts])]
    environment = hub.environment(folder / "home", **more)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.split("ANSWERS")[1])
    scores = [
        [{best["label"]: best["score"] for best in post} for line in answer for post in line] for answer in answers
    ]
    return [[post[name] for post in answer for name in NAMES] for answer in scores]


def predictions(folder: Path) -> list[float]:
    with (folder / "_predictions.csv").open(newline="") as file:
        return [float(row[f"probability_{name}"]) for row in csv.DictReader(file) for name in NAMES]


@pytest.mark.slow
def test_train_push_load_elsewhere_predict_train_further_push_again(tmp_path, monkeypatch):
    posts = list(synthetic_posts(6, seed=1, posts_per_timeline=5))
    by_timeline = defaultdict(lambda: defaultdict(list))
    for post in posts:
        for name in ("text", "timestamp", "label"):
            by_timeline[post["timeline_id"]][name].append(post[name])
    timelines = list(by_timeline.values())
    parts = {"train": with_other_ids(posts, "train"), "validation": with_other_ids(posts, "dev"), "test": posts}
    files = [
        f"--{part}_file={write_posts(tmp_path / f'{part}.csv', part_posts)}" for part, part_posts in parts.items()
    ]
    monkeypatch.chdir(ROOT)
    main = runpy.run_path(str(ROOT / "run_glue_style.py"))["main"]

    def script(output: str, repo: str, *arguments: str):
        where = ["--output_dir", str(tmp_path / output), "--push_to_hub", "--hub_model_id", repo]
        main([*arguments, *files, *where, "--save_strategy", "no"])

    with HubServer() as hub:
        hub.connect(monkeypatch, tmp_path / "home")
        quick = ["--max_steps", "4", "--eval_strategy", "no", "--load_best_model_at_end", "false"]
        script("first", REPO, "configuration/demo.yaml", *quick)
        first = hub.commits(REPO)[-1].sha

        before, after = elsewhere(hub, tmp_path / "a", timelines, [["main", "main"]], train=True)
        assert before == pytest.approx(predictions(tmp_path / "first"), abs=1e-5)
        assert after != pytest.approx(before, abs=1e-3)

        # Later code does not run if the code is pinned, to the commit of the weights or to the code that was read.
        second = hub.commits(REPO)[-1].sha
        code = hub.files(REPO)["pipeline_tempoformer.py"] + b'\nraise ValueError("other code")\n'
        api = HfApi(endpoint=hub.url)
        api.upload_file(repo_id=REPO, path_or_fileobj=code, path_in_repo="pipeline_tempoformer.py")
        pinned = [[second, second], [second, first], [first, first]]
        answers = elsewhere(hub, tmp_path / "b", timelines, pinned)
        assert_same(answers, [after, after, before])
        with pytest.raises(AssertionError, match="other code"):
            elsewhere(hub, tmp_path / "c", timelines, [["main", "main"]])

        # Cached models load without the Hub.
        hub.requests.clear()
        assert_same(elsewhere(hub, tmp_path / "b", timelines, pinned, HF_HUB_OFFLINE="1"), answers)
        assert hub.requests == []

        # The package's script resumes from the Hub's model as from a folder.
        further = ["--model_name_or_path", REPO, "--do_train", "--do_predict", "--max_steps", "1"]
        for output, repo, base_model in (("second", "me/further", REPO), ("third", REPO, None)):
            script(output, repo, *further, "--learning_rate", "0")
            assert predictions(tmp_path / output) == pytest.approx(after, abs=1e-5)
            card = ModelCard(hub.files(repo)["README.md"].decode())
            assert card.data.base_model == base_model
