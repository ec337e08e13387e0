"""Checks that the library's own Trainer makes the model that the command makes."""

import random

import pytest
import torch
from helpers import CLASSES, save_encoder, write_posts
from transformers import AutoTokenizer, EarlyStoppingCallback, Trainer, TrainingArguments, set_seed

from modeling_tempoformer import (
    GrowExperts,
    StreamCollator,
    attach_logits,
    build_default,
    compute_metrics,
    default_settings,
    embed_parts,
    embed_rows,
    fields_of_posts,
    fine_tune,
    fit_calibration,
    fit_words,
    freeze_encoder,
    hold_out,
    label_names,
    load_parts,
    load_table,
    to_rows,
    to_timelines,
)
from modeling_tempoformer.decisions_tempoformer import decide


SETTINGS = {"learning_rate": 1e-3, "num_train_epochs": 2, "per_device_train_batch_size": 8, "seed": 7}
SETTINGS |= {"warmup_steps": 2, "weight_decay": 0.01, "eval_strategy": "epoch", "save_strategy": "epoch"}
SETTINGS |= {"load_best_model_at_end": True, "metric_for_best_model": "macro_f1", "report_to": "none"}
SETTINGS |= {"use_cpu": True, "disable_tqdm": True, "per_device_eval_batch_size": 16}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, str]:
    """Returns posts of each split: of two speakers, with states, whose first posts have no label."""
    folder, chance = tmp_path_factory.mktemp("posts"), random.Random(0)
    files = {}
    for part, count in (("train", 15), ("validation", 5), ("test", 5)):
        posts = []
        for scene in range(count):
            before = {}
            for line in range(6):
                speaker, mood = chance.choice("ab"), chance.choice(["sad", "glad", "air"])
                label = None if speaker not in before else "change" if before[speaker] != mood else "same"
                post = {
                    "timeline_id": f"{part} {scene}",
                    "timestamp": 1.7e9 + 60 * line**2,
                    "text": f"the {mood} plane",
                }
                posts.append({**post, "speaker": speaker, "state": mood, "label": label})
                before[speaker] = mood
        files[part] = write_posts(folder / f"{part}.csv", posts)
    return files


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> str:
    return save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", CLASSES)
def test_the_stock_trainer_makes_the_model_of_the_command(tmp_path, encoder, files, kind):
    is_default = kind == "post_tempoformer"
    # Each member of the default is validated on the training posts that it has not learned from.
    parts = ("train", "test") if is_default else ("train", "validation", "test")
    settings = {**SETTINGS, "window": 3, "targets_per_row": 2, "model_type": kind, "freeze_encoder": is_default}
    given = {f"{part}_file": files[part] for part in parts}
    ours = fine_tune(encoder, **given, **settings, calibrate=True, output_dir=str(tmp_path / "command"))

    tables = {part: load_table(files[part]) for part in parts}
    names = label_names(tables["train"])
    timelines = {part: to_timelines(posts, names) for part, posts in tables.items()}
    if is_default:
        timelines["train"] = hold_out(timelines["train"], 5, SETTINGS["seed"])
    set_seed(SETTINGS["seed"])
    fields = fields_of_posts(timelines["train"], names, CLASSES[kind], freezes_encoder=is_default)
    model = CLASSES[kind].from_encoder_pretrained(encoder, window=3, **fields)
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    tokenizer.model_max_length = min(128, model.max_tokens)
    reads = {"targets_per_row": 2, "reads_speakers": model.config.reads_speakers}
    rows = {part: to_rows(timelines[part], tokenizer, 3, only_labelled=part != "test", **reads) for part in parts}
    if is_default:
        freeze_encoder(model)
        fit_words(model, rows["train"], tokenizer)
        rows = embed_rows(rows, model, tokenizer)
    validation = "train" if is_default else "validation"
    trainer = Trainer(
        model,
        TrainingArguments(str(tmp_path / "stock"), remove_unused_columns=False, **SETTINGS),
        StreamCollator(tokenizer, model.config.window),
        train_dataset=rows["train"],
        eval_dataset=rows[validation],
        compute_metrics=compute_metrics(names),
        callbacks=[GrowExperts()] if is_default else None,
    )
    trainer.train()
    logits = trainer.predict(rows[validation]).predictions
    attach_logits(timelines[validation], rows[validation], *(logits if isinstance(logits, tuple) else (logits,)))
    model.config.calibration = fit_calibration(timelines[validation], model.config)

    same = ours.config.to_diff_dict(), model.config.to_diff_dict()
    for values in same:
        for name in ("_name_or_path", "calibration", "architectures", "auto_map", "custom_pipelines"):
            values.pop(name, None)
    assert same[0] == same[1]
    for name, weights in ours.state_dict().items():
        torch.testing.assert_close(
            model.state_dict()[name], weights, atol=1e-5, rtol=1e-4, msg=lambda message: f"{name}: {message}"
        )
    batch = StreamCollator(tokenizer, 3)(list(rows["test"]))
    found = [decide(part.eval()(**batch).logits, part.config.calibration)[0] for part in (model, ours)]
    torch.testing.assert_close(*found, atol=1e-5, rtol=0)
    assert model.config.calibration["temperature"] == pytest.approx(ours.config.calibration["temperature"], rel=1e-3)


@pytest.mark.slow
def test_twenty_lines_make_the_model_of_the_command(tmp_path, encoder, files):
    """The posts have states and two speakers. The test part is split off the file, too."""
    settings = {"max_steps": 20, "use_cpu": True, "disable_tqdm": True}
    ours = fine_tune(encoder, train_file=files["train"], output_dir=str(tmp_path / "command"), **settings)
    set_seed(42)
    parts = load_parts(files["train"])
    model, tokenizer = build_default(encoder, parts)
    rows = embed_parts(parts, model, tokenizer)
    arguments = {**default_settings(len(rows["train"])), **settings}
    trainer = Trainer(
        model,
        TrainingArguments(str(tmp_path / "stock"), **arguments),
        StreamCollator(tokenizer, model.config.window, timed=model.config.timed),
        train_dataset=rows["train"],
        eval_dataset=rows["train"],
        processing_class=tokenizer,
        compute_metrics=compute_metrics(parts.names),
        callbacks=[EarlyStoppingCallback(2), GrowExperts()],
    )
    trainer.train()
    batch = trainer.data_collator(list(rows["test"]))
    assert len(parts.test) == 3 and len(batch["labels"]) > 5
    found = [part.eval()(**batch).logits.softmax(-1) for part in (model, ours)]
    torch.testing.assert_close(*found, atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", CLASSES)
def test_evaluations_of_the_library_agree(tmp_path, encoder, files, kind):
    """Batch by batch and at once, with the inputs for the metric, and for the loss alone."""
    posts = load_table(files["train"])
    names = label_names(posts)
    timelines = to_timelines(posts, names)
    fields = fields_of_posts(timelines, names, CLASSES[kind], freezes_encoder=False)
    model = CLASSES[kind].from_encoder_pretrained(encoder, window=3, **fields)
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    reads_speakers = model.config.reads_speakers
    rows = to_rows(timelines, tokenizer, 3, targets_per_row=2, only_labelled=True, reads_speakers=reads_speakers)

    def evaluate(**settings) -> dict[str, float]:
        arguments = TrainingArguments(
            str(tmp_path), remove_unused_columns=False, report_to="none", use_cpu=True, disable_tqdm=True, **settings
        )
        collator, score = StreamCollator(tokenizer, 3), compute_metrics(names)
        metrics = Trainer(model, arguments, collator, eval_dataset=rows, compute_metrics=score).evaluate()
        return {name: value for name, value in metrics.items() if "f1" in name or "loss" in name}

    usual = evaluate()
    assert "eval_macro_f1" in usual
    assert evaluate(batch_eval_metrics=True) == pytest.approx(usual, abs=1e-6)
    assert evaluate(include_for_metrics=["inputs", "loss"]) == pytest.approx(usual, abs=1e-6)
    alone = evaluate(prediction_loss_only=True)
    assert alone == pytest.approx({"eval_loss": usual["eval_loss"]}, abs=1e-6)


def test_experts_do_not_grow_on_rows_that_no_member_holds_out(tmp_path, encoder, files):
    posts = load_table(files["train"])
    timelines = to_timelines(posts, label_names(posts))
    model = CLASSES["post_tempoformer"].from_encoder_pretrained(encoder, window=3, num_labels=2)
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    rows = embed_rows({"train": to_rows(timelines, tokenizer, 3, only_labelled=True)}, model, tokenizer)["train"]
    with pytest.raises(ValueError, match="held_out"):
        GrowExperts().on_train_end(
            TrainingArguments(str(tmp_path), report_to="none"), None, None, model, torch.utils.data.DataLoader(rows)
        )


@pytest.mark.parametrize("form", ["torch", "numpy"])
def test_rows_survive_a_format(encoder, files, form):
    posts = load_table(files["train"])
    timelines = to_timelines(posts.remove_columns(["timestamp"]), label_names(posts))
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    rows = to_rows(timelines, tokenizer, 3, targets_per_row=2, only_labelled=True, reads_speakers=True)
    collator = StreamCollator(tokenizer, 3, timed=False)
    plain, formatted = (collator(list(part.select(range(4)))) for part in (rows, rows.with_format(form)))
    assert plain.keys() == formatted.keys()
    for name, values in plain.items():
        assert torch.equal(values, formatted[name]), name
