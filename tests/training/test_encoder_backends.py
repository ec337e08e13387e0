"""Checks encoders that ONNX Runtime computes against PyTorch's."""

import copy
import pickle
from functools import partial
from itertools import product
from pathlib import Path

import pytest
import torch
from helpers import (
    ENCODERS,
    NAMES,
    OTHER_ENCODERS,
    ROOT,
    assert_same,
    inputs_only,
    read_json,
    read_table,
    run_without_package,
    save_encoder,
    tiny_batch,
    tiny_encoder,
    tiny_model,
    tiny_reader,
    with_other_ids,
    write_posts,
)
from transformers import AutoModelForSequenceClassification, pipeline

from modeling_tempoformer import convert_encoder
from modeling_tempoformer.posts.synthetic import synthetic_posts
from run_glue_style import main
from tempoformer_live.stepping import Stepper


pytestmark = pytest.mark.slow
pytest.importorskip("onnxruntime")

CONVERTIBLE = ["albert", "bert", "deberta-v2", "distilbert", "electra, narrow embeddings", "modernbert", "mpnet"]
CONVERTIBLE += ["roberta", "roformer", "t5"]
assert_near = partial(torch.testing.assert_close, atol=1e-5, rtol=0)


def model_of(family: str) -> torch.nn.Module:
    encoder = {"model_type": family, **OTHER_ENCODERS[family]} if family in OTHER_ENCODERS else tiny_encoder(family)
    return tiny_model(model_type="post_tempoformer", encoder_config={**encoder, "initializer_range": 0.3})


def batch_of(family: str) -> dict[str, torch.Tensor]:
    return inputs_only(tiny_batch(pad={**ENCODERS, **OTHER_ENCODERS}[family].get("pad_token_id", 0)))


def embed(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        return model.base_model.embed_posts(
            **{name: batch[name].flatten(0, 1) for name in ("input_ids", "attention_mask")}
        )


@pytest.mark.parametrize("family", CONVERTIBLE)
def test_float32_answers_as_pytorch_does(family):
    model, batch = model_of(family), batch_of(family)
    with torch.no_grad():
        expected = model(**batch).logits
        convert_encoder(model)
        assert_near(model(**batch).logits, expected)


@pytest.mark.parametrize("family", ["bert", "modernbert", "mpnet"])
def test_in_8_bits_a_post_does_not_depend_on_others(family):
    model, batch = model_of(family), batch_of(family)
    exact = embed(model, batch)
    convert_encoder(model, "onnx-int8", is_fitted=False)
    vectors = embed(model, batch)
    is_post = batch["attention_mask"].flatten(0, 1).any(-1)
    assert torch.cosine_similarity(vectors, exact)[is_post].min() > 0.98
    # The last row is shorter: alone, it has no padding.
    assert_near(embed(model, {name: tensor[1:, :4, :5] for name, tensor in batch.items()}), vectors[6:10])
    assert vectors[~is_post].eq(0).all()


ELSEWHERE = """
import json
from pathlib import Path
from transformers import pipeline

pipe = pipeline("stream-classification", model=sys.argv[1], trust_remote_code=True)
timeline = {"text": ["sad today", "so glad it is over", "sad today"], "timestamp": [0, 60, 3600]}
Path(sys.argv[1], "found.json").write_text(json.dumps(pipe(timeline)))
"""
TIMELINE = {"text": ["sad today", "so glad it is over", "sad today"], "timestamp": [0, 60, 3600]}


@pytest.mark.parametrize("backend", ["onnx", "onnx-int8"])
def test_one_answer_of_copies_saved_models_steps_and_remote_code(backend, tmp_path):
    settings = {"model_type": "post_tempoformer", "num_trees": 20, "num_words": 50, "expert_weights": [0.5, 0.8, 0.4]}
    model, tokenizer = tiny_reader(**settings)
    before = pipeline("stream-classification", model=model, tokenizer=tokenizer)(TIMELINE)
    convert_encoder(model, backend, is_fitted=False)
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert loaded.config.encoder_backend == backend
    pipes = [
        pipeline("stream-classification", model=each, tokenizer=tokenizer)
        for each in (model, loaded, copy.deepcopy(loaded), pickle.loads(pickle.dumps(loaded)))
    ]
    expected, *others = [pipe(TIMELINE) for pipe in pipes]
    if backend == "onnx":
        assert_same(expected, before)
    run_without_package(ELSEWHERE, tmp_path)
    for answers in (*others, read_json(tmp_path / "found.json")):
        assert_same(answers, expected)
    memory, times = None, TIMELINE["timestamp"]
    for number, text in enumerate(TIMELINE["text"]):
        post = tokenizer([text], return_tensors="pt")
        output = Stepper(loaded).step(**post, timeline_ids=["a"], timestamps=times[number : number + 1], memory=memory)
        memory = output.memory
        assert_same(output.logits[0].softmax(-1).max().item(), expected[number]["score"])
    half = AutoModelForSequenceClassification.from_pretrained(tmp_path, dtype=torch.bfloat16)
    answers = pipeline("stream-classification", model=half, tokenizer=tokenizer)(TIMELINE)
    assert_same(answers, expected, tolerance=2e-2)


def test_other_weights_are_computed_once_they_are_loaded():
    model, other, batch = model_of("bert"), tiny_model(seed=1, model_type="post_tempoformer"), batch_of("bert")
    for each in (model, other):
        convert_encoder(each)
    assert model.config.encoder_bytes == other.config.encoder_bytes
    assert not torch.allclose(embed(model, batch), embed(other, batch), atol=0.1)
    model.load_state_dict(other.state_dict())
    assert_near(embed(model, batch), embed(other, batch))


def test_an_encoder_that_cannot_be_converted_is_named():
    with pytest.raises(ValueError, match="'xlnet'"):
        convert_encoder(model_of("xlnet"))
    model = model_of("bert")
    convert_encoder(model)
    with pytest.raises(ValueError, match="input_ids"):
        model.base_model.embed_posts(inputs_embeds=torch.zeros(1, 2, 16))
    with pytest.raises(ValueError, match="saved as onnx"):
        convert_encoder(model, "torch")


def run(folder: Path, *arguments: str) -> list[dict[str, str]]:
    steps = ["--output_dir", str(folder), "--do_predict", "--report_to", "none"]
    main([*arguments, *steps])
    return read_table(folder / "_predictions.csv")


def assert_same_predictions(rows: list[dict[str, str]], others: list[dict[str, str]]):
    """Checks that the posts of `rows` are among `others`, with the same probabilities."""
    others = {other["post_id"]: other for other in others}
    for row, name in product(rows, NAMES):
        found, expected = (float(each[f"probability_{name}"]) for each in (row, others[row["post_id"]]))
        assert found == pytest.approx(expected, abs=1e-5)


def test_a_training_and_who_predicts_with_its_model(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    encoder = save_encoder(tmp_path / "encoder")
    posts = write_posts(tmp_path / "posts.csv", list(synthetic_posts(12, seed=0, posts_per_timeline=5)))
    new = ["--test_file", posts]
    train = [
        "configuration/default.yaml",
        "--train_file",
        posts,
        "--do_train",
        "--do_eval",
        "--max_steps",
        "5",
        "--model_name_or_path",
        encoder,
    ]
    predicted = {}
    for backend in ("torch", "onnx", "onnx-int8"):
        folder = tmp_path / backend
        first = run(folder, *train, "--encoder_backend", backend)
        saved = ["--model_name_or_path", str(folder)]
        predicted[backend] = run(tmp_path / f"{backend} again", *saved, *new)
        assert_same_predictions(first, predicted[backend])
        assert read_json(folder / "config.json").get("encoder_backend", "torch") == backend
        # It says which vectors it was fitted on, and takes no other ones.
        for other in {"torch", "onnx", "onnx-int8"} - {backend, "onnx" if backend == "torch" else backend}:
            with pytest.raises(ValueError, match="--encoder_backend"):
                run(tmp_path / "refused", *saved, *new, "--encoder_backend", other)
    saved = ["--model_name_or_path", str(tmp_path / "torch"), "--encoder_backend", "onnx"]
    assert_same_predictions(run(tmp_path / "converted", *saved, *new), predicted["torch"])
    for refused in (["--freeze_encoder", "false"], ["--freeze_encoder", "false", "--model_type", "tempoformer"]):
        with pytest.raises(ValueError, match="freeze_encoder|post_tempoformer"):
            run(tmp_path / "refused", *train, "--encoder_backend", "onnx", *refused)
    others = with_other_ids(list(synthetic_posts(12, seed=1, posts_per_timeline=5)), "other")
    others = write_posts(tmp_path / "others.csv", others)
    with pytest.raises(ValueError, match="--freeze_encoder"):
        further = [
            "configuration/default.yaml",
            "--train_file",
            others,
            "--do_train",
            "--do_eval",
            "--max_steps",
            "1",
            "--freeze_encoder",
            "false",
        ]
        run(tmp_path / "refused", *further, "--model_name_or_path", str(tmp_path / "onnx"))
