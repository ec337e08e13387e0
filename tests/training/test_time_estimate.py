"""Checks the estimate of a training's time."""

import re
import time
from itertools import count

import torch
from datasets import Dataset
from helpers import VOCABULARY, tiny_encoder, tiny_model
from transformers import BertTokenizer

from modeling_tempoformer import StreamCollator
from modeling_tempoformer.posts.rows import to_rows
from modeling_tempoformer.posts.timelines import to_timelines
from modeling_tempoformer.training import time_estimate
from modeling_tempoformer.training.stream_trainer import StreamTrainingArguments


def test_an_estimate_changes_nothing_and_counts_steps(tmp_path, caplog, monkeypatch):
    """Three rows in batches of two are two steps in an epoch. Each pass is made to take a minute."""
    tokenizer = BertTokenizer(vocab=VOCABULARY)
    posts = [{"timeline_id": "a", "timestamp": time, "text": "sad", "label": "xy"[time % 2]} for time in range(3)]
    rows = to_rows(to_timelines(Dataset.from_list(posts), ["x", "y"]), tokenizer, window=4, targets_per_row=1)
    model = tiny_model(model_type="post_tempoformer", num_labels=2, encoder_config=tiny_encoder()).eval()
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    collator, before = StreamCollator(tokenizer, window=4), torch.get_rng_state()
    assert time_estimate.seconds_per_pass(model, rows, collator, 2) > 0
    assert torch.equal(torch.get_rng_state(), before) and not model.training
    assert all(torch.equal(weight, weights[name]) for name, weight in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())

    seconds = count(step=60.0)
    monkeypatch.setattr(time, "perf_counter", lambda: next(seconds))
    settings = {"output_dir": str(tmp_path), "per_device_train_batch_size": 2, "report_to": "none", "use_cpu": True}
    for length, minutes, steps in (
        ({"num_train_epochs": 5}, 10, 10),
        ({"max_steps": 3}, 3, 3),
        ({"max_steps": 3, "gradient_accumulation_steps": 2}, 6, 3),
    ):
        caplog.clear()
        with caplog.at_level("INFO"):
            arguments = StreamTrainingArguments(**settings, **length)
            time_estimate.tell_minutes(model, rows, collator, arguments)
        assert list(map(int, re.findall(r"\d+", caplog.text.split("read")[1]))) == [minutes, steps]
