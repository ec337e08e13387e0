"""Checks training on streams, in the stock Trainer and by the script: with workers, resumed, evaluated."""

import pytest
from datasets import Dataset
from helpers import MODELS, NAMES, make_trainer
from test_resuming import Stop, assert_same_weights
from transformers import set_seed

from modeling_tempoformer import to_rows, to_timelines
from modeling_tempoformer.common.streaming import shuffle_forever
from modeling_tempoformer.posts.synthetic import synthetic_posts


BOTH = pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind["model_type"])


def streamed(folder, tokenization, repeats: bool = False, **settings):
    """Returns a trainer whose rows come from a stream of two shards."""
    set_seed(0)
    trainer = make_trainer(folder, tokenization, **{"max_steps": 6, "logging_steps": 1, **settings})
    posts = Dataset.from_list(list(synthetic_posts(8, seed=0, posts_per_timeline=6))).to_iterable_dataset(num_shards=2)
    rows = to_rows(to_timelines(posts, NAMES), trainer.processing_class, window=4, targets_per_row=3)
    trainer.train_dataset = shuffle_forever(rows, seed=1) if repeats else rows
    return trainer, rows


@BOTH
@pytest.mark.parametrize("workers", [0, 2])
def test_the_stock_trainer_learns_from_a_stream_and_is_evaluated_on_one(tmp_path, tokenization, kind, workers):
    trainer, rows = streamed(tmp_path, tokenization, kind=kind, max_steps=20, dataloader_num_workers=workers)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 20 and sum(losses[-4:]) < sum(losses[:4])
    whole = trainer.evaluate()
    streamed_metrics = trainer.evaluate(rows)
    for name in ("eval_loss", "eval_macro_f1", "eval_support_Switch"):
        assert streamed_metrics[name] == pytest.approx(whole[name], abs=1e-5)


@BOTH
def test_a_stopped_training_on_a_stream_ends_in_the_weights_of_one_that_was_not(tmp_path, tokenization, kind):
    """The training stops in the second pass, as 16 rows are four batches."""
    settings = {"kind": kind, "repeats": True, "max_steps": 8, "save_steps": 3}
    whole, _ = streamed(tmp_path / "whole", tokenization, **settings)
    whole.train()
    stopped, _ = streamed(tmp_path / "stopped", tokenization, callbacks=[Stop(7)], **settings)
    with pytest.raises(KeyboardInterrupt):
        stopped.train()
    resumed, _ = streamed(tmp_path / "stopped", tokenization, **settings)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 8
    assert_same_weights(whole.model, resumed.model)


def test_shuffled_rows_are_all_there_in_each_pass():
    rows = Dataset.from_dict({"row": range(600)}).to_iterable_dataset(num_shards=3)
    drawn = [row["row"] for _, row in zip(range(1200), shuffle_forever(rows, seed=0), strict=False)]
    assert sorted(drawn[:600]) == sorted(drawn[600:]) == list(range(600)) and drawn[:600] != list(range(600))
