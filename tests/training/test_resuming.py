"""Checks resuming: a stopped training, a finished one, and one of other posts or settings."""

import json
import logging
import shutil
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from helpers import make_trainer
from safetensors.torch import load_file, save_file
from transformers import EarlyStoppingCallback, TrainerCallback, set_seed
from transformers.trainer_utils import compare_trainer_and_checkpoint_args

from modeling_tempoformer import TempoFormerForStreamClassification
from modeling_tempoformer.common.hashes import fingerprint
from modeling_tempoformer.evaluation.report import RESULTS
from modeling_tempoformer.posts.arguments import DataTrainingArguments as StreamData
from modeling_tempoformer.posts.splits import hash_id, make_split, read_split
from modeling_tempoformer.training.arguments import ModelArguments as StreamArguments
from modeling_tempoformer.training.resuming import DEFINING, train_or_resume
from modeling_tempoformer.training.stream_trainer import StreamTrainer, StreamTrainingArguments
from modeling_tempoformer.view.timelines import TIMELINES
from semantic_change.arguments import TextDataTrainingArguments as TextData
from semantic_change.commands.temporal_mlm import TemporalModelArguments as TextArguments
from semantic_change.temporal_trainer import TemporalTrainingArguments


POSTS = Dataset.from_list([{"timeline_id": "ann", "texts": ["so sad", "so glad"], "labels": [0, 1]}])


@dataclass
class Arguments:
    """Some arguments of a script."""

    train_file: str = "posts.csv"
    max_predict_samples: int | None = None
    window: int = 4


class Stop(TrainerCallback):
    """Stops the process in the middle of a training."""

    def __init__(self, step: int):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            raise KeyboardInterrupt


def begin(
    folder: Path, tokenization, posts=POSTS, arguments: Arguments | None = None, callbacks=(), split=None, **settings
):
    """Returns the trainer after a training of six steps."""
    set_seed(0)
    settings = {"max_steps": 6, "save_steps": 2, "logging_steps": 1, **settings}
    classes = partial(StreamTrainer, split=split), StreamTrainingArguments
    trainer = make_trainer(folder, tokenization, callbacks=callbacks, classes=classes, **settings)
    train_or_resume(trainer, fingerprint(posts), arguments or Arguments())
    return trainer


def assert_same_weights(model, other):
    for (name, weight), other_weight in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(other_weight, weight, atol=1e-5, rtol=0, msg=name)


def test_a_stopped_training_ends_in_the_weights_of_one_that_was_not(tmp_path, tokenization, caplog, monkeypatch):
    """
    The newest checkpoint is incomplete, and a copy of a checkpoint is ignored. The library does not warn that shares
    of the steps are no numbers of steps, and still warns of that elsewhere.
    """
    library = logging.getLogger("transformers")
    monkeypatch.setattr(library, "propagate", True)
    caplog.set_level(logging.WARNING, library.name)
    whole = begin(tmp_path / "whole", tokenization)
    with pytest.raises(KeyboardInterrupt):
        begin(tmp_path / "stopped", tokenization, callbacks=[Stop(5)], save_steps=0.3)
    assert not (tmp_path / "stopped" / "model.safetensors").exists()
    (tmp_path / "stopped" / "checkpoint-4" / "trainer_state.json").unlink()
    shutil.copytree(tmp_path / "stopped" / "checkpoint-2", tmp_path / "stopped" / "checkpoint-9-copy")
    resumed = begin(tmp_path / "stopped", tokenization, save_steps=0.3)
    assert "trainer_state.json" not in caplog.text
    # Another message, as the library gives each of them once
    resumed.args.save_steps = 0.4
    compare_trainer_and_checkpoint_args(resumed.args, resumed.state)
    assert "trainer_state.json" in caplog.text
    assert resumed.state.global_step == 6
    steps = [entry["step"] for entry in resumed.state.log_history if "loss" in entry]
    assert steps == [1, 2, 3, 4, 5, 6]
    assert_same_weights(whole.model, resumed.model)
    saved = TempoFormerForStreamClassification.from_pretrained(tmp_path / "stopped")
    assert_same_weights(whole.model, saved)


def test_a_training_that_has_ended_is_loaded_and_not_trained_again(tmp_path, tokenization):
    """The learning rate ruins the model, so training stops early and the first evaluation is the best."""
    settings = {"learning_rate": 10.0, "max_steps": -1, "num_train_epochs": 20}
    settings |= {"load_best_model_at_end": True, "metric_for_best_model": "macro_f1"}
    settings |= {"eval_strategy": "epoch", "save_strategy": "epoch"}
    first = begin(tmp_path, tokenization, callbacks=[EarlyStoppingCallback(2)], **settings)
    scores = [entry["eval_macro_f1"] for entry in first.state.log_history if "eval_macro_f1" in entry]
    assert len(scores) < 20 and first.state.best_metric == max(scores)
    best = TempoFormerForStreamClassification.from_pretrained(first.state.best_model_checkpoint)
    assert_same_weights(best, first.model)

    # What the second run does not compute stays, here the page and the scores of the test.
    (tmp_path / TIMELINES).write_text("a page")
    results = json.loads((tmp_path / RESULTS).read_text())
    assert "total_flos" not in results["train"]
    (tmp_path / RESULTS).write_text(json.dumps({**results, "test": {"macro_f1": 0.5}}))
    moved = Arguments(train_file="elsewhere/posts.csv", max_predict_samples=3)
    again = begin(tmp_path, tokenization, arguments=moved, callbacks=[Stop(1), EarlyStoppingCallback(2)], **settings)
    assert_same_weights(best, again.model)
    assert again.state.log_history == first.state.log_history
    assert again.evaluate()["eval_macro_f1"] == pytest.approx(max(scores))
    assert (tmp_path / TIMELINES).read_text() == "a page"
    assert json.loads((tmp_path / RESULTS).read_text()) == {**results, "test": {"macro_f1": 0.5}}
    assert again.test_results() == {"macro_f1": 0.5}


class StopAtEnd(TrainerCallback):
    """Stops the process after the last checkpoint, before the model is saved, or counts the steps that it sees."""

    def __init__(self, stops: bool):
        self.stops, self.steps = stops, 0

    def on_step_end(self, args, state, control, **kwargs):
        self.steps += 1

    def on_train_end(self, args, state, control, **kwargs):
        if self.stops:
            raise KeyboardInterrupt


@pytest.mark.parametrize("stops_early", [False, True], ids=["max_steps", "early stopping"])
def test_a_training_that_stopped_before_it_was_saved_takes_no_further_step(tmp_path, tokenization, stops_early):
    """Nor does it at a second restart. The learning rate ruins the model, so the first evaluation is the best."""
    settings, early = {"max_steps": 6}, []
    if stops_early:
        settings = {"learning_rate": 10.0, "max_steps": -1, "num_train_epochs": 20, "load_best_model_at_end": True}
        settings |= {"metric_for_best_model": "macro_f1", "eval_strategy": "epoch", "save_strategy": "epoch"}
        early = [EarlyStoppingCallback(2)]
    whole = begin(tmp_path / "whole", tokenization, callbacks=early, **settings)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            begin(tmp_path / "stopped", tokenization, callbacks=[StopAtEnd(True), *early], **settings)
    counter = StopAtEnd(False)
    ended = begin(tmp_path / "stopped", tokenization, callbacks=[counter, *early], **settings)
    assert counter.steps == 0 and ended.state.global_step == whole.state.global_step
    assert_same_weights(whole.model, ended.model)
    saved = TempoFormerForStreamClassification.from_pretrained(tmp_path / "stopped")
    assert_same_weights(whole.model, saved)
    # A third start finds a training that was saved.
    again = begin(tmp_path / "stopped", tokenization, callbacks=early, **settings)
    assert_same_weights(whole.model, again.model)


def test_a_checkpoint_of_another_training_is_refused(tmp_path, tokenization):
    begin(tmp_path, tokenization, max_steps=2)
    others = POSTS.map(lambda timeline: {"labels": [1, 1]})
    for name, other in (
        ("posts", {"posts": others}),
        ("--learning_rate", {"learning_rate": 0.5}),
        ("--label_smoothing_factor 0.0, not 0.1", {"label_smoothing_factor": 0.1}),
        ("--max_steps 2, not 3", {"max_steps": 3}),
        ("--window 4, not 5", {"arguments": Arguments(window=5)}),
    ):
        with pytest.raises(ValueError, match=f"checkpoint-2.* {name}.*--output_dir"):
            begin(tmp_path, tokenization, **{"max_steps": 2, **other})
    # Settings of logging, evaluation and workers may change in a resumed training.
    others_may = {
        "logging_steps": 2,
        "per_device_eval_batch_size": 3,
        "dataloader_num_workers": 1,
        "run_name": "again",
    }
    begin(tmp_path, tokenization, max_steps=2, **others_may)
    # A training in another folder may start from a named checkpoint of the same posts, with other settings.
    named = str(tmp_path / "checkpoint-2")
    with pytest.raises(ValueError, match="checkpoint-2.* posts"):
        begin(tmp_path / "new", tokenization, posts=others, max_steps=3, resume_from_checkpoint=named)
    assert begin(tmp_path / "new", tokenization, max_steps=3, resume_from_checkpoint=named).state.global_step == 3
    # A finished training has left weights, but no optimizer.
    with pytest.raises(ValueError, match="not a complete checkpoint"):
        begin(tmp_path / "other", tokenization, resume_from_checkpoint=str(tmp_path))
    # A record that lacks a setting, as of an earlier version, cannot show that the training is the same.
    record = tmp_path / "_trained_on.json"
    settings = json.loads(record.read_text())
    assert not {"train_file", "output_dir", "hub_token", "max_predict_samples"} & set(settings)
    record.write_text(
        json.dumps({name: value for name, value in settings.items() if name != "label_smoothing_factor"})
    )
    with pytest.raises(ValueError, match="checkpoint-2.* another version .*--label_smoothing_factor.*--output_dir"):
        begin(tmp_path, tokenization, max_steps=2)
    record.unlink()
    with pytest.raises(ValueError, match="checkpoint-2"):
        begin(tmp_path, tokenization, max_steps=2)


def test_what_defines_a_training_is_read_from_the_arguments_of_the_scripts():
    """A renamed argument would no longer be compared."""
    streams, texts = (StreamArguments, StreamData, StreamTrainingArguments), (TextArguments, TextData)
    classes = (*streams, *texts, TemporalTrainingArguments)
    names = {field.name for arguments in classes for field in fields(arguments)} | {"world_size"}
    assert set(DEFINING) <= names and len(set(DEFINING)) == len(DEFINING)


def test_a_training_that_lacks_weights_or_has_nothing_else_is_refused(tmp_path, tokenization):
    alone = {"max_steps": 3, "save_steps": 1, "save_only_model": True}
    with pytest.raises(KeyboardInterrupt):
        begin(tmp_path / "alone", tokenization, callbacks=[Stop(2)], **alone)
    with pytest.raises(ValueError, match="checkpoint-1"):
        begin(tmp_path / "alone", tokenization, **alone)
    begin(tmp_path, tokenization, max_steps=1)
    path = tmp_path / "model.safetensors"
    save_file({name: weight for name, weight in load_file(path).items() if "classifier" not in name}, path)
    with pytest.raises(ValueError, match="classifier"):
        begin(tmp_path, tokenization, max_steps=1)


def test_without_checkpoints_a_training_begins_anew(tmp_path, tokenization):
    """Scores and predictions of the previous model are removed."""
    begin(tmp_path, tokenization, max_steps=1, save_strategy="no")
    (tmp_path / "all_results.json").write_text('{"predict_macro_f1": 1.0}')
    (tmp_path / "_predictions.csv").touch()
    assert begin(tmp_path, tokenization, max_steps=2, save_strategy="no").state.global_step == 2
    assert "predict_macro_f1" not in (tmp_path / "all_results.json").read_text()
    assert not (tmp_path / "_predictions.csv").exists()


def split_of(train: str, test: str) -> dict[str, list[str]]:
    return make_split({"train": [train], "test": [test]}, read_split(None))


def test_a_killed_training_leaves_no_older_model_beside_its_split(tmp_path, tokenization):
    """The older model is in a folder of its own, with its own split, until the new one is there."""
    settings = {"max_steps": 4, "save_strategy": "no"}
    first = begin(tmp_path, tokenization, split=split_of("ann", "bob"), **settings)
    with pytest.raises(KeyboardInterrupt):
        begin(tmp_path, tokenization, callbacks=[Stop(3)], split=split_of("bob", "ann"), **settings)
    assert read_split(tmp_path)["train"] == {hash_id("bob")}
    with pytest.raises(OSError, match="model.safetensors"):
        TempoFormerForStreamClassification.from_pretrained(tmp_path)
    previous = tmp_path / "_previous"
    assert read_split(previous)["train"] == {hash_id("ann")}
    assert_same_weights(TempoFormerForStreamClassification.from_pretrained(previous), first.model)
    # Killed once more, the first model is still there.
    with pytest.raises(KeyboardInterrupt):
        begin(tmp_path, tokenization, callbacks=[Stop(1)], split=split_of("bob", "ann"), **settings)
    assert read_split(previous)["train"] == {hash_id("ann")}
    second = begin(tmp_path, tokenization, split=split_of("bob", "ann"), **settings)
    assert not previous.exists() and read_split(tmp_path)["train"] == {hash_id("bob")}
    assert_same_weights(TempoFormerForStreamClassification.from_pretrained(tmp_path), second.model)


def test_a_resumed_training_keeps_the_split_that_it_began_with(tmp_path, tokenization):
    with pytest.raises(KeyboardInterrupt):
        begin(tmp_path, tokenization, callbacks=[Stop(3)], split=split_of("ann", "bob"))
    assert read_split(tmp_path / "checkpoint-2")["train"] == {hash_id("ann")}
    for _ in range(2):
        # Resumed, and then loaded, with other posts to test
        begin(tmp_path, tokenization, split=split_of("ann", "eve")).save_model()
        assert read_split(tmp_path)["test"] == {hash_id("bob")}


def test_a_split_belongs_to_weights(tmp_path, tokenization):
    begin(tmp_path / "one", tokenization, split=split_of("ann", "bob"), max_steps=1)
    begin(tmp_path / "other", tokenization, split=split_of("bob", "ann"), max_steps=2)
    shutil.copy(tmp_path / "one" / "model.safetensors", tmp_path / "other")
    assert read_split(tmp_path / "one")["train"] == {hash_id("ann")}
    with pytest.raises(ValueError, match="other"):
        read_split(tmp_path / "other")
    # A record of 0.2.0 does not say whose it is.
    path = tmp_path / "other" / "_split.json"
    path.write_text(
        json.dumps({name: value for name, value in json.loads(path.read_text()).items() if name != "weights"})
    )
    assert read_split(tmp_path / "other")["train"] == {hash_id("bob")}


def test_a_training_does_not_replace_the_model_from_which_it_starts(tmp_path, tokenization):
    begin(tmp_path, tokenization, max_steps=1, save_strategy="no")
    before = (tmp_path / "model.safetensors").read_bytes()
    trainer = make_trainer(
        tmp_path, tokenization, classes=(partial(StreamTrainer, base_model=str(tmp_path)), StreamTrainingArguments)
    )
    with pytest.raises(ValueError, match=f"{tmp_path}.*another"):
        train_or_resume(trainer, fingerprint(POSTS), Arguments())
    assert (tmp_path / "model.safetensors").read_bytes() == before
