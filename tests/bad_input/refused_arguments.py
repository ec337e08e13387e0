"""Arguments that the scripts refuse before any training."""

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import helpers
from helpers import ROOT, VOCABULARY, save_encoder, tiny_model
from transformers import BertConfig, BertTokenizer, DistilBertConfig

from modeling_tempoformer import TemporalBertConfig
from modeling_tempoformer.data.synthetic import synthetic_posts


def posts_of(name: str) -> list[dict[str, Any]]:
    """Those of a file; each has timelines of its own."""
    return helpers.of_others(list(synthetic_posts(6, seed=0, posts_per_timeline=5)), name)


def write_posts(path: Path, columns: tuple[str, ...] = ("timeline_id", "timestamp", "text", "label")) -> str:
    return helpers.write_posts(path, posts_of(path.stem), columns)


def write(folder: Path, name: str, content: str) -> str:
    (folder / name).write_text(content, encoding="utf-8")
    return str(folder / name)


def run(name: str, *arguments: str):
    runpy.run_path(str(ROOT / f"{name}.py"))["main"](list(arguments))


def glue(*arguments: str | Callable[[Path], str]) -> Callable[[Path], Any]:
    """The recipe of the demo on synthetic posts, and more arguments, or functions of a folder that make one."""

    def start(folder: Path):
        more = [argument(folder) if callable(argument) else argument for argument in arguments]
        recipes = [argument for argument in more if argument.endswith((".yaml", ".json"))]
        rest = [argument for argument in more if argument not in recipes]
        base = ["--train_file", write_posts(folder / "posts.csv"), "--output_dir", str(folder / "out")]
        run("run_glue_style", "configuration/demo.yaml", *recipes, *base, *rest)

    return start


def baseline(*arguments: str, model: Callable[[Path], str] | None = None) -> Callable[[Path], Any]:
    """A baseline on synthetic posts."""

    def start(folder: Path):
        of_model = [] if model is None else ["--model_name_or_path", model(folder)]
        base = ["--train_file", write_posts(folder / "posts.csv"), "--output_dir", str(folder / "out")]
        run("run_baseline", *base, "--do_train", "--do_predict", *of_model, *arguments)

    return start


def glue_saved(*arguments: str) -> Callable[[Path], Any]:
    """Predictions of a saved TempoFormer, with arguments that may contradict it."""

    def start(folder: Path):
        tiny_model().save_pretrained(folder / "saved")
        files = ("--test_file", write_posts(folder / "posts.csv"), "--output_dir", str(folder / "out"))
        run("run_glue_style", "--model_name_or_path", str(folder / "saved"), *files, "--do_predict", *arguments)

    return start


def temporal_encoder(folder: Path) -> str:
    TemporalBertConfig(times=["1815", "1990"]).save_pretrained(folder / "temporal")
    return str(folder / "temporal")


def encoder_with_tokenizer(folder: Path) -> str:
    return save_encoder(folder / "encoder")


def unlabelled_validation(folder: Path) -> str:
    return f"--validation_file={write_posts(folder / 'dev.csv', ('timeline_id', 'timestamp', 'text'))}"


def one_fold(folder: Path) -> str:
    names = list(dict.fromkeys(post["timeline_id"] for post in posts_of("posts")))
    folds = [{"train": names[2:], "validation": names[1:2], "test": names[:1]}]
    return f"--folds_file={write(folder, 'folds.txt', json.dumps(folds))}"


TINY_ENCODER = ("--config_name", "configuration/encoder_tiny.json", "--tokenizer_name", "tokenization")
GLUE = {
    "no model": (
        lambda folder: run("run_glue_style", "--output_dir", str(folder)),
        "--model_name_or_path…--config_name",
    ),
    "no posts": (
        lambda folder: run("run_glue_style", *TINY_ENCODER, "--do_train", "--output_dir", str(folder)),
        "--dataset_name…--train_file…--validation_file",
    ),
    "a dataset and a file": (glue("--dataset_name", "x"), "--dataset_name…--train_file"),
    "an encoder that was never trained as a TempoFormer": (
        glue("--do_train", "false"),
        "encoder_tiny.json…'bert'…--do_train",
    ),
    "a file that is not in the form of its corpus": (
        glue("--task_name", "annomi"),
        "posts.csv…--task_name…'transcript_id'",
    ),
    "an argument that there is none of in a recipe": (
        glue(lambda folder: write(folder, "more.yaml", "windoww: 3\n")),
        "more.yaml",
    ),
    "a recipe that is no YAML": (
        glue(lambda folder: write(folder, "more.yaml", "window: [3\n")),
        "more.yaml",
    ),
    "overrides that are no JSON object": (glue("--config_overrides", "window=3"), "--config_overrides…'window=3'"),
    "an unknown field of the configuration": (glue("--config_overrides", '{"windoww": 3}'), "--config_overrides"),
    "a field of the configuration that an argument sets": (
        glue("--config_overrides", '{"window": 3}'),
        "--config_overrides…window",
    ),
    "a window of 0": (glue("--window", "0"), "--window"),
    "a label named twice": (glue("--labels", "Switch", "No-Switch", "Switch"), "--labels"),
    "a single label": (
        glue(
            lambda folder: f"--train_file={write(folder, 'one.csv', 'timeline_id,text,label' + chr(10) + 'ann,sad,O')}"
        ),
        "",
    ),
    "a stream without a validation part": (glue("--streaming"), "--streaming"),
    "a stream read by several processes": (
        glue("--streaming", "--dataloader_num_workers", "2"),
        "--streaming…--dataloader_num_workers",
    ),
    "posts with times beside posts without": (
        glue(lambda folder: f"--test_file={write_posts(folder / 'test.csv', ('timeline_id', 'text', 'label'))}"),
        "'train'…'test'…'validation'",
    ),
    "a class that no training post has": (glue("--labels", "No-Switch", "Switch", "Other"), "15"),
    "a fold that the file does not have": (glue(one_fold, "--fold", "1"), "--fold…folds.txt"),
    "too large a share of timelines to test": (glue("--test_fraction", "1.5"), "1.5"),
    "smoothed labels": (glue("--label_smoothing_factor", "0.1"), "--label_smoothing_factor…0.1"),
    "a model and a configuration": (glue("--model_name_or_path", "x"), "--model_name_or_path…--config_name"),
    "a frozen encoder whose top layers learn": (glue("--freeze_encoder"), "--freeze_encoder…post"),
    "a frozen encoder over a stream": (glue("--freeze_encoder", "--streaming"), "--freeze_encoder…--streaming"),
    "no layers over the vectors of posts": (
        glue("--config_overrides", '{"model_type": "post_tempoformer", "num_stream_layers": 0}'),
        "`num_stream_layers`…1",
        "StrictDataclassClassValidationError",
    ),
    "batches that are left out": (glue("--dataloader_drop_last"), "--dataloader_drop_last"),
    "a column of labels that is not there": (glue("--label_column", "change"), "'change'"),
    "no part to test": (
        glue(lambda folder: f"--validation_file={write_posts(folder / 'dev.csv')}"),
        "test…--test_file",
    ),
    "a fact that the model card does not take": (glue("--model_card", '{"licence": "mit"}'), "--model_card…licence"),
    "a validation part without labels": (glue(unlabelled_validation, "--do_predict", "false"), "validation"),
    "a calibration without posts of a class": (
        glue("--calibrate", "--labels", "No-Switch", "Switch", "Other"),
        "--calibrate…Other",
    ),
    "a file beside the one that is folded": (
        glue(one_fold, lambda folder: f"--test_file={folder / 'posts.csv'}"),
        "--folds_file…--train_file",
    ),
    "other overrides than a checkpoint's": (
        glue_saved("--config_overrides", '{"focal_gamma": 0.5}'),
        "--config_overrides…0.5",
    ),
    "other labels than a checkpoint's": (glue_saved("--labels", "a", "b"), "--labels…a…b…LABEL_0"),
    "another window than a checkpoint's": (glue_saved("--window", "3"), "--window 3…4"),
}


BASELINE = {
    "no method": (baseline(), "--method", "SystemExit"),
    "an encoder with temporal attention": (baseline("--method", "post", model=temporal_encoder), "--method post"),
    "no encoder": (baseline("--method", "bilstm"), "bilstm…--model_name_or_path"),
    "no examples": (baseline("--method", "few_shot", "--num_examples", "0", model=str), "--num_examples…0"),
    "a calibration of what is not trained": (
        baseline("--method", "few_shot", "--calibrate", model=str),
        "--calibrate",
    ),
    "overrides of what has no configuration": (
        baseline("--method", "few_shot", "--config_overrides", "{}", model=str),
        "--config_overrides…few_shot",
    ),
    "no training": (baseline("--method", "post", "--do_train", "false", model=str), "post…--do_train"),
    "no prediction": (baseline("--method", "class_prior", "--do_predict", "false"), "class_prior…--do_predict"),
    "a stream": (baseline("--method", "class_prior", "--streaming"), "--streaming"),
    "a frozen encoder": (baseline("--method", "post", "--freeze_encoder", model=str), "post…--freeze_encoder"),
    "a push of what nobody can load": (baseline("--method", "bilstm", "--push_to_hub", model=str), "--push_to_hub"),
    "an unknown field": (
        baseline(
            "--method",
            "bilstm",
            "--config_overrides",
            '{"lstm_hiden_size": 10}',
            model=encoder_with_tokenizer,
        ),
        "lstm_hiden_size",
    ),
}


def cross_validate(*arguments: str, own: tuple[str, ...] = ()) -> Callable[[Path], Any]:
    """A cross-validation with arguments of its own, and of its runs, `POSTS` for the posts once more."""

    def start(folder: Path):
        posts = write_posts(folder / "posts.csv")
        more = [posts if argument == "POSTS" else argument for argument in arguments]
        runs = ["configuration/demo.yaml", "--train_file", posts, *more]
        run("run_cross_validation", "--output_dir", str(folder / "out"), *own, "--", *runs)

    return start


CROSS_VALIDATION = {
    "no arguments of the runs": (lambda folder: run("run_cross_validation", "--output_dir", str(folder)), "`--`"),
    "an argument that differs from run to run": (cross_validate("--seed", "1"), "--seed…`--`"),
    "a token on the command line of all runs": (cross_validate("--hub_token", "hf_secret"), "--hub_token…`--`"),
    "a push of every run": (cross_validate("--push-to-hub"), "--push_to_hub…`--`"),
    "a seed twice": (cross_validate(own=("--seeds", "1", "1")), "--seeds…1, 1"),
    "a single fold": (cross_validate(own=("--num_folds", "1")), "1 folds"),
    "a file of folds that is not there": (
        cross_validate(own=("--folds_file", "folds_of_before.json")),
        "folds_of_before.json",
        "FileNotFoundError",
    ),
    "a share to validate beside a file of folds": (
        cross_validate(*("--validation_fraction", "0.5"), own=("--folds_file", "folds_of_before.json")),
        "--validation_fraction…--folds_file",
    ),
    "timelines that are never tested": (
        lambda folder: cross_validate(own=(one_fold(folder),))(folder),
        "folds.txt…(5 in all)",
    ),
    "a class that no training post of a fold has": (
        cross_validate("--labels", "No-Switch", "Switch", "Other"),
        "Fold 0…0]",
    ),
    "learning rates of what is not trained": (
        lambda folder: run(
            "run_cross_validation",
            *("--output_dir", str(folder / "out"), "--learning_rates", "1e-3", "--", "--method", "class_prior"),
        ),
        "--learning_rates…class_prior",
    ),
    "a method twice": (cross_validate(own=("--methods", "bilstm", "bilstm")), "--methods…bilstm, bilstm"),
    "an unknown method": (cross_validate(own=("--methods", "lstm")), "--methods…lstm", "SystemExit"),
    "learning rates of several methods": (
        cross_validate(own=("--methods", "tempoformer", "--learning_rates", "1e-3")),
        "--learning_rates…--methods",
    ),
    "a setting of one method for several": (
        cross_validate("--learning_rate", "1e-3", own=("--methods", "tempoformer")),
        "--learning_rate…`--`…--methods",
    ),
    "a method beside several": (
        lambda folder: run(
            "run_cross_validation",
            *("--output_dir", str(folder / "out"), "--methods", "tempoformer", "--"),
            "configuration/baseline_bilstm.yaml",
        ),
        "--method bilstm…`--`…--methods",
    ),
    "an encoder from scratch for a method that needs a pretrained one": (
        cross_validate(own=("--methods", "tempoformer", "bilstm")),
        "--config_name…bilstm",
    ),
    "a file beside the one that is split": (cross_validate("--test_file", "POSTS"), "--train_file…--streaming"),
}


def encoder(folder: Path, config=BertConfig) -> str:
    config(vocab_size=len(VOCABULARY)).save_pretrained(folder / "encoder")
    BertTokenizer(vocab=VOCABULARY).save_pretrained(folder / "encoder")
    return str(folder / "encoder")


def temporal(*arguments: str, files: dict[str, str] | None = None, config=BertConfig) -> Callable[[Path], Any]:
    """Masked language modelling of a new encoder on some files."""

    def start(folder: Path):
        contents = {"1815.txt": "sad\nglad\n", "1990.txt": "glad\n"} if files is None else files
        paths = [write(folder, name, content) for name, content in contents.items()]
        run(
            "run_temporal_mlm",
            *("--config_name", encoder(folder, config), "--output_dir", str(folder / "out"), "--do_train"),
            *("--train_files", *paths, *arguments),
        )

    return start


TABLE = "time,text\n1815,sad\n1990,glad\n"
TEMPORAL_MLM = {
    "one time point": (temporal("--times", "1815"), "1815"),
    "a stream without time points": (temporal("--streaming"), "--streaming…--times"),
    "an encoder of another family": (temporal(config=DistilBertConfig), "'distilbert'"),
    "an unknown field of the encoder": (temporal("--config_overrides", '{"tiems": []}'), "--config_overrides"),
    "rows longer than the model": (temporal("--max_seq_length", "513"), "--max_seq_length…513…512"),
    "rows without room for a word": (temporal("--max_seq_length", "2"), "`max_length`"),
    "two tables": (temporal(files={"a.csv": TABLE, "b.csv": TABLE}), "a.csv…b.csv"),
    "a text file that is no UTF-8": (
        lambda folder: (
            (folder / "1815.txt").write_bytes("déjà vu\n".encode("latin-1")),
            run(
                "run_temporal_mlm",
                *("--config_name", encoder(folder), "--output_dir", str(folder / "out")),
                *("--train_files", str(folder / "1815.txt"), "--do_train"),
            ),
        ),
        "1815.txt…line 1…UTF-8",
    ),
    "a table without the column": (temporal("--time_column", "year", files={"a.csv": TABLE}), "'year'"),
    "a text without words": (temporal(files={"a.csv": "time,text\n1815,sad\n1990,\n"}), "row 1"),
    "texts none of which is in a time point": (
        temporal("--times", "10-20", "30-40", "--unknown_times", "unknown"),
        "10…20…30",
    ),
    "times to predict without time tokens": (temporal("--do_predict"), "--do_predict…--prepend_time"),
}


def change(*arguments: str, targets: str = "sad\n", truth: str | None = None) -> Callable[[Path], Any]:
    """Semantic change between two corpora."""

    def start(folder: Path):
        corpora = [write(folder, "1815.txt", "sad\n"), write(folder, "1990.txt", "glad\n")]
        gold = [] if truth is None else ["--truth", write(folder, "truth.tsv", truth)]
        run(
            "run_semantic_change",
            *("--corpora", *corpora, "--targets", write(folder, "words.list", targets), *gold),
            *("--output_dir", str(folder / "out"), *arguments),
        )

    return start


USE = {"lemma": "sad", "text": "sad", "target_span": [0, 3], "period": 1, "lemmas": ["sad"], "target_token": 0}
CHANGE = {
    "an unknown measure": (change("--measures", "averge"), "--measures…averge", "SystemExit"),
    "no encoder": (change(), "--measures…--model_name_or_path"),
    "no words": (
        lambda folder: run(
            "run_semantic_change", "--corpora", "a", "b", "--output_dir", str(folder), "--measures", "sgns"
        ),
        "--targets…--truth",
    ),
    "a single time": (change("--times", "1815", "--measures", "sgns"), "1815"),
    "samples of nothing": (change("--num_samples", "0", "--measures", "sgns"), "--num_samples"),
    "gold scores in place of words": (change("--measures", "sgns", targets="sad\t1\n"), "words.list…line 1…sad"),
    "a sample smaller than the fewest usages": (
        change("--num_samples", "9", "--min_usages", "10", "--measures", "sgns"),
        "--num_samples…9…--min_usages…10",
    ),
    "a word twice": (change("--measures", "sgns", targets="sad\nsad\n"), "words.list…line 2…'sad'"),
    "a gold score that is not a number": (change("--measures", "sgns", truth="sad\tmuch\n"), "truth.tsv…line 1…much"),
    "words that are nowhere": (change("--measures", "sgns", targets="zebra\n"), ""),
    "too few words with a gold score": (change("--measures", "sgns", truth="sad\t1\n"), "words.list…truth.tsv"),
    "corpora out of order": (change("--measures", "sgns", "--corpora", "1990.txt", "1815.txt"), "--corpora…1990…1815"),
    "a table in place of a corpus": (
        lambda folder: run(
            "run_semantic_change",
            *("--corpora", write(folder, "1815.csv", TABLE), write(folder, "1990.csv", TABLE), "--measures", "sgns"),
            *("--targets", write(folder, "words.list", "sad\n"), "--output_dir", str(folder / "out")),
        ),
        "1815.csv",
    ),
    "lemmas in one string": (
        lambda folder: run(
            "run_semantic_change",
            *("--dwug", write(folder, "uses.jsonl", json.dumps({**USE, "lemmas": "sad glad"})), "--measures", "sgns"),
            *("--targets", write(folder, "words.list", "sad\n"), "--output_dir", str(folder / "out")),
        ),
        "uses.jsonl…line 1…'lemmas'",
    ),
}
