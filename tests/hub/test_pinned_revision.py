"""A pinned revision gets the weights and the code of that commit, whatever was pushed after it."""

import json
import subprocess
import sys

import pytest
from helpers import assert_same, tiny_encoder, tiny_model
from hub_server import HubServer
from huggingface_hub import HfApi
from transformers import AutoTokenizer, pipeline


REPO = "me/pinned"
TIMELINE = {"text": ["so happy", "sad today"], "timestamp": [0, 1714554000]}
# A process without the package.
ELSEWHERE = f"""
import json, sys
sys.modules["modeling_tempoformer"] = None
from transformers import pipeline

timeline, pinned = json.loads(sys.argv[1])
pipe = pipeline("stream-classification", model="{REPO}", trust_remote_code=True, **pinned)
print("ANSWER", json.dumps(pipe(timeline)))
"""


@pytest.mark.slow
def test_a_commit_is_pinned(tmp_path, tokenization, monkeypatch):
    folder = tmp_path / "model"
    tokenizer = AutoTokenizer.from_pretrained(tokenization, model_max_length=16)
    encoder = {**tiny_encoder(), "vocab_size": len(tokenizer)}
    tokenizer.save_pretrained(folder)
    answers = []
    with HubServer() as hub:
        hub.connect(monkeypatch, tmp_path / "home")
        api = HfApi(endpoint=hub.url)
        api.create_repo(REPO)
        for seed in (0, 1):
            tiny_model(encoder_config=encoder, seed=seed).save_pretrained(folder)
            answers.append(pipeline("stream-classification", model=str(folder), trust_remote_code=True)(TIMELINE))
            if seed:
                # Code of which nobody said that it may run.
                with (folder / "pipeline_tempoformer.py").open("a") as file:
                    file.write('\nraise ValueError("other code")\n')
            api.upload_folder(repo_id=REPO, folder_path=folder)
        first, second = (commit.sha for commit in hub.commits(REPO))

        def elsewhere(**pinned: str) -> subprocess.CompletedProcess:
            command = [sys.executable, "-c", ELSEWHERE, json.dumps([TIMELINE, pinned])]
            environment = hub.environment(tmp_path / "other")
            return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

        of_first = elsewhere(revision=first, code_revision=first)
        assert of_first.returncode == 0, of_first.stderr
        assert_same(json.loads(of_first.stdout.split("ANSWER")[1]), answers[0])
        # New weights with the code that was read, and what comes without a pin.
        of_second = elsewhere(revision=second, code_revision=first)
        assert_same(json.loads(of_second.stdout.split("ANSWER")[1]), answers[1])
        scores = [[post["score"] for post in answer] for answer in answers]
        assert scores[0] != pytest.approx(scores[1], abs=1e-3)
        assert "other code" in elsewhere().stderr
