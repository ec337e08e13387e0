"""Issue "No silent wrong answer": what must not leave the machine, and files that are whole or not there."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from datasets import ClassLabel, Dataset, DatasetInfo, Features, Value
from helpers import CHANGES, ROOT, tiny_encoder, tiny_model, write_posts
from hub_server import HubServer
from huggingface_hub import ModelCard
from peft import LoraConfig, get_peft_model
from transformers import AutoTokenizer, pipeline
from transformers.pipelines import SUPPORTED_TASKS

from modeling_tempoformer import StreamCollator, to_timelines, write_card
from modeling_tempoformer.data.files import write_json, written_whole
from modeling_tempoformer.data.locks import lock_folder
from modeling_tempoformer.data.synthetic import synthetic_posts
from modeling_tempoformer.data.timelines import PostError
from modeling_tempoformer.evaluation.predictions import write_predictions
from modeling_tempoformer.semantic_change.report import ranked_table, write_report
from modeling_tempoformer.training.stream_trainer import StreamTrainer, StreamTrainingArguments
from modeling_tempoformer.training.temporal_trainer import TemporalTrainer, TemporalTrainingArguments


QUICK = {"max_steps": 2, "report_to": "none", "use_cpu": True, "disable_tqdm": True}


def make_model(tokenization: Path):
    tokenizer = AutoTokenizer.from_pretrained(tokenization)
    encoder = {**tiny_encoder(), "vocab_size": len(tokenizer)}
    return tiny_model(**CHANGES, encoder_config=encoder), tokenizer


def make_trainer(folder: Path, tokenization: Path, **settings) -> StreamTrainer:
    model, tokenizer = make_model(tokenization)
    posts = {"input_ids": tokenizer(["so sad", "so glad"])["input_ids"], "timestamps": [0, 60], "labels": [0, 1]}
    rows = Dataset.from_list([posts] * 8)
    arguments = StreamTrainingArguments(str(folder), **QUICK, **settings)
    collator = StreamCollator(tokenizer, model.config.window)
    return StreamTrainer(model, arguments, collator, train_dataset=rows, eval_dataset=rows, processing_class=tokenizer)


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with HubServer() as server:
        server.connect(monkeypatch, tmp_path / "home")
        yield server


@pytest.mark.parametrize("is_adapter", [False, True])
def test_no_push_sends_predictions_or_local_paths(hub, tmp_path, tokenization, caplog, is_adapter):
    """Points 8 and 9, of every commit: during the training, at its end, and by hand."""
    caplog.set_level("INFO")
    mine, base = tmp_path / "mine", tmp_path / "base"
    new = mine / "new_patients"
    new.mkdir(parents=True)
    for name in ("_predictions.csv", "all_results.json", "posts.csv"):
        (new / name).write_text("secret of mine")
    # Beside the model too, where people put their data and logs.
    for name in ("posts.csv", "posts.json", "posts.txt", "posts.parquet", "_config.json", "train.log", "nohup.out"):
        (mine / name).write_text("secret of mine")
    for name in ("_predictions.parquet", "screenshot.png", "_learning_curve.png"):
        (mine / name).write_text("secret of mine")
    settings = {"push_to_hub": True, "hub_always_push": True, "hub_model_id": "me/mine", "save_steps": 1}
    settings |= {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "load_best_model_at_end": True}
    trainer = make_trainer(mine, tokenization, **settings)
    if is_adapter:
        base.mkdir()
        trainer.model.config.name_or_path = str(base)
        trainer.model = trainer.model_wrapped = get_peft_model(trainer.model, LoraConfig(target_modules=["query"]))
    trainer.train()
    trainer.save_model()
    trainer.save_state()
    trainer.save_metrics("eval", {"eval_macro_f1": 0.5})
    trainer.push_to_hub()
    # They are there, for a training that goes on.
    assert str(tmp_path) in (mine / "trainer_state.json").read_text() and (mine / "training_args.bin").exists()
    commits = hub.commits("me/mine")
    weights = "adapter_model.safetensors" if is_adapter else "model.safetensors"
    assert sum(commit.message.startswith("Training in progress") for commit in commits) == 2
    for commit in commits:
        assert {weights, "README.md", "modeling_tempoformer.py", "tokenizer.json"} <= set(commit.files)
        assert not {"trainer_state.json", "training_args.bin"} & set(commit.files)
        assert not [path for path in commit.files if path.startswith("_") or "/" in path]
        for secret in (str(tmp_path), "secret of mine"):
            assert [path for path, content in commit.files.items() if secret.encode() in content] == []
    assert "all_results.json" in commits[-1].files
    # A push says what it sends.
    *_, said = (record.getMessage() for record in caplog.records if record.name.endswith("training.pushing"))
    assert set(said.removeprefix("Pushing to me/mine: ").removesuffix(".").split(", ")) == set(commits[-1].files)


@pytest.mark.parametrize("strategy", ["checkpoint", "all_checkpoints"])
def test_checkpoints_are_not_pushed(tmp_path, strategy):
    """Point 9. What a training resumes from names local folders."""
    with pytest.raises(ValueError, match=f"--hub_strategy {strategy}.*every_save"):
        StreamTrainingArguments(str(tmp_path), push_to_hub=True, hub_strategy=strategy, use_cpu=True)


HIDDEN = ["Sw\u202eitch", "Switch\u200b", "\x1b[2JSwitch", "Switch\x00", "\ufeffSwitch"]


@pytest.mark.parametrize("name", HIDDEN)
def test_what_cannot_be_seen_is_written_out_in_a_card(tmp_path, name):
    """Point 10."""
    labels = {0: name, 1: "Switch", 2: "O"}
    model = tiny_model(id2label=labels, label2id={label: index for index, label in labels.items()})
    facts = dict.fromkeys(("model_name", "license", "language", "tags", "dataset", "dataset_args"), name)
    write_card(model, tmp_path, scores={"test": {f"f1_{name}": 0.25, "f1_Switch": 0.5}}, **facts)
    card = ModelCard.load(tmp_path / "README.md")
    values = json.dumps(card.data.to_dict(), ensure_ascii=False)
    assert all(line.isprintable() for line in card.content.split("\n")) and values.isprintable()
    # The two labels and their scores can be told apart.
    assert len({(result.metric_name, result.metric_value) for result in card.data.eval_results}) == 2
    written = name.encode("unicode_escape").decode()
    assert f"F1 ({written})" in {result.metric_name for result in card.data.eval_results}


@pytest.mark.parametrize("name", HIDDEN)
def test_labels_that_cannot_be_seen_are_refused_where_posts_are_read(name):
    """Point 10."""
    posts = Dataset.from_list([{"timeline_id": "ann", "text": "so sad", "label": name}])
    with pytest.raises(ValueError, match="cannot be seen") as error:
        to_timelines(posts, ["Switch", name])
    assert repr(name) in str(error.value)


def test_labels_of_any_script_and_emojis_are_read():
    names = ["می\u200cروم", "👩\u200d🎓", "Änderung", "changement d'état", "변화"]
    posts = Dataset.from_list([{"timeline_id": "ann", "text": "", "label": name} for name in names])
    assert to_timelines(posts, names)[0]["labels"] == [0, 1, 2, 3, 4]


def write_half(table: pd.DataFrame, path: Path, **settings):
    path.write_text("post_id,predi")
    raise KeyboardInterrupt


def test_an_interrupted_write_leaves_the_file_before(tmp_path, monkeypatch):
    """Point 15, of tables, JSON and figures."""
    write_predictions(tmp_path, [{"post_id": "1", "prediction": "O"}])
    write_json(tmp_path / "all_results.json", {"test": 1})
    scores, counts = {"apd": {"plane": 0.5, "tree": 0.1}}, {word: {"old": 3, "new": 4} for word in ("plane", "tree")}
    times = ["old", "new"]
    write_report(tmp_path, ranked_table(scores, counts), times)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {"_predictions.csv", "all_results.json", "changes.csv", "results.json"} <= set(before)
    with monkeypatch.context() as patch:
        patch.setattr(pd.DataFrame, "to_csv", write_half)
        with pytest.raises(KeyboardInterrupt):
            write_predictions(tmp_path, [{"post_id": "2", "prediction": "IE"}])
        with pytest.raises(KeyboardInterrupt):
            write_report(tmp_path, ranked_table({"apd": {"plane": 0.9, "tree": 0.9}}, counts), times)
    with pytest.raises(KeyboardInterrupt), written_whole(tmp_path / "all_results.json") as partial:
        partial.write_text("{")
        raise KeyboardInterrupt
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def script(name: str):
    return runpy.run_path(str(ROOT / name))["main"]


@pytest.mark.parametrize("where", ["a_file", "a_file/below"])
@pytest.mark.parametrize("name", ["run_glue_style.py", "run_temporal_mlm.py"])
def test_a_folder_that_cannot_be_written_to_is_noticed_before_the_work(tmp_path, monkeypatch, where, name):
    """Point 15. Neither model nor posts are looked for: there are none."""
    monkeypatch.chdir(ROOT)
    (tmp_path / "a_file").touch()
    recipe = ["configuration/demo.yaml"] if "glue" in name else ["--do_train", "--model_name_or_path", "no_model"]
    files = ["--train_file" if "glue" in name else "--train_files", "no_posts.csv"]
    with pytest.raises(ValueError, match=f"{where}.*--output_dir"):
        script(name)([*recipe, *files, "--output_dir", str(tmp_path / where)])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to any folder")
@pytest.mark.parametrize("where", ["", "below"])
def test_a_folder_without_permission_is_refused(tmp_path, where):
    """Point 15."""
    tmp_path.chmod(0o500)
    with pytest.raises(ValueError, match="--output_dir"), lock_folder(tmp_path / where):
        pass


@pytest.mark.parametrize("content", ["", '{"eval_loss": '])
def test_results_of_an_interrupted_write_do_not_end_the_next_run(tmp_path, tokenization, content):
    """Point 15."""
    model, _ = make_model(tokenization)
    for trainer_class, arguments_class in (
        (StreamTrainer, StreamTrainingArguments),
        (TemporalTrainer, TemporalTrainingArguments),
    ):
        (tmp_path / "all_results.json").write_text(content)
        trainer_class(model, arguments_class(str(tmp_path), **QUICK)).save_metrics("eval", {"eval_loss": 0.5})
        results = json.loads((tmp_path / "all_results.json").read_text())
        assert results.get("eval_loss", results.get("validation", {}).get("loss")) == 0.5


def test_a_pipeline_for_single_texts_names_the_one_for_streams(tmp_path, tokenization):
    """Point 17."""
    model, tokenizer = make_model(tokenization)
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path)
    write_card(model, tmp_path)
    tagged = ModelCard.load(tmp_path / "README.md").data
    assert tagged.pipeline_tag not in SUPPORTED_TASKS and "stream-classification" in tagged.tags
    with pytest.raises(ValueError, match="stream-classification"):
        pipeline("text-classification", model=str(tmp_path))("so sad")
    # Without a task, the model's own is taken.
    pipe = pipeline(model=str(tmp_path), trust_remote_code=True)
    assert len(pipe({"text": ["so sad", "so glad"], "timestamp": [0, 60]})) == 2


SAVE = """
import sys

sys.meta_path = [finder for finder in sys.meta_path if "editable" not in str(finder).lower()]
sys.path.insert(0, sys.argv[1])
from modeling_tempoformer import TempoFormerConfig, TempoFormerForStreamClassification
from modeling_tempoformer.training.arguments import recipe_path
from modeling_tempoformer.evaluation.predictions import write_predictions
from modeling_tempoformer.semantic_change.report import write_report
from modeling_tempoformer.training.stream_trainer import StreamTrainer, StreamTrainingArguments

sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 24}
config = TempoFormerConfig(encoder_config={"model_type": "bert", "vocab_size": 60, **sizes})
arguments = StreamTrainingArguments("saved", use_cpu=True, report_to="none")
StreamTrainer(TempoFormerForStreamClassification(config), arguments).save_model()
print(recipe_path("default"))
"""


def test_a_model_is_saved_from_a_checkout_that_is_only_on_the_path(tmp_path):
    """Point 23."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", SAVE, str(ROOT)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "TempoFormer" in (tmp_path / "saved" / "README.md").read_text()
    assert Path(done.stdout.splitlines()[-1]).samefile(ROOT / "configuration" / "default.yaml")


@pytest.mark.parametrize("metric", ["makro_f1", "eval_f1_Swich", "perplexity"])
def test_an_unknown_metric_is_refused_before_the_training(tmp_path, tokenization, metric):
    model, _ = make_model(tokenization)
    settings = {**QUICK, "metric_for_best_model": metric}
    with pytest.raises(ValueError, match=f"--metric_for_best_model {metric}.*loss, macro_f1.*f1_IE"):
        StreamTrainer(model, StreamTrainingArguments(str(tmp_path), **settings))
    with pytest.raises(ValueError, match=f"--metric_for_best_model {metric}.*loss"):
        TemporalTrainer(model, TemporalTrainingArguments(str(tmp_path), **settings))
    for known in ("eval_f1_IE", "macro_f1", "loss", "eval_loss"):
        StreamTrainer(model, StreamTrainingArguments(str(tmp_path), **{**settings, "metric_for_best_model": known}))


@pytest.mark.parametrize("name", ["run_glue_style.py", "run_temporal_mlm.py"])
def test_a_run_that_would_do_nothing_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(ROOT)
    own = ["configuration/variant_no_gate.yaml", "--train_file"] if "glue" in name else ["--train_files"]
    arguments = [*own, "no_posts.csv", "--model_name_or_path", "no_model", "--output_dir", str(tmp_path / "out")]
    with pytest.raises(ValueError, match="--do_"):
        script(name)(arguments)
    assert not (tmp_path / "out").exists()


def test_predictions_into_the_folder_of_the_model_are_refused(tmp_path, monkeypatch, tokenization):
    monkeypatch.chdir(ROOT)
    posts = write_posts(tmp_path / "posts.csv", list(synthetic_posts(10, seed=0, posts_per_timeline=5)))
    mine, quick = str(tmp_path / "mine"), ["--max_steps", "2", "--report_to", "none"]
    main = script("run_glue_style.py")
    training = ["configuration/demo.yaml", "--train_file", posts, "--output_dir", mine, *quick]
    main(training)
    before = {path.name: path.read_bytes() for path in Path(mine).iterdir() if path.is_file()}
    again = ["--model_name_or_path", mine, "--test_file", posts, "--do_predict", "--report_to", "none"]
    for folder in (mine, f"{mine}/../mine"):
        with pytest.raises(ValueError, match="--output_dir"):
            main([*again, "--output_dir", folder])
    assert {path.name: path.read_bytes() for path in Path(mine).iterdir() if path.is_file()} == before
    main([*again, "--output_dir", str(tmp_path / "new")])
    assert (tmp_path / "new" / "_predictions.csv").exists()
    # The training itself may be started again.
    main(training)


def test_a_label_id_without_a_name_names_its_row():
    features = Features(timeline_id=Value("string"), text=Value("string"), label=ClassLabel(names=["O", "IE"]))
    posts = Dataset.from_dict({"timeline_id": ["a"] * 3, "text": ["", "", ""], "label": [0, 1, -1]}, features=features)
    assert to_timelines(posts, ["O", "IE"])[0]["labels"] == [0, 1, -100]
    bad = pa.table({"timeline_id": ["a", "a"], "text": ["", ""], "label": [1, 2]})
    posts = Dataset(bad.cast(features.arrow_schema), info=DatasetInfo(features=features))
    with pytest.raises(PostError, match="Row 1 .*'label', value 2.*0 to 1"):
        to_timelines(posts, ["O", "IE"])
