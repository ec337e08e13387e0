"""Arguments that the scripts refuse before any training, by the words of docs/bad_input.md."""

import csv
import fcntl
import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers import ROOT, VOCABULARY, tiny_model
from transformers import BertConfig, BertTokenizer, DistilBertConfig

from modeling_tempoformer import TemporalBertConfig
from modeling_tempoformer.data.synthetic import synthetic_posts


LIGHT = ("--save_only_model", "--save_strategy=steps", "--save_steps=2", "--load_best_model_at_end=false")


def write_posts(path: Path, columns: tuple[str, ...] = ("timeline_id", "timestamp", "text", "label")) -> str:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(synthetic_posts(6, seed=0, posts_per_timeline=5))
    return str(path)


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


def glue_again(*arguments: str) -> Callable[[Path], Any]:
    """More arguments in a folder that has a checkpoint of two steps, without its optimizer."""

    def start(folder: Path):
        glue("--max_steps", "2", *LIGHT)(folder)
        glue(*LIGHT, *arguments)(folder)

    return start


def saved_tempoformer(folder: Path) -> str:
    tiny_model().save_pretrained(folder / "saved")
    return str(folder / "saved")


def temporal_encoder(folder: Path) -> str:
    TemporalBertConfig(times=["1815", "1990"]).save_pretrained(folder / "temporal")
    return str(folder / "temporal")


def one_fold(folder: Path) -> str:
    names = list(dict.fromkeys(post["timeline_id"] for post in synthetic_posts(6, seed=0, posts_per_timeline=5)))
    folds = [{"train": names[2:], "validation": names[1:2], "test": names[:1]}]
    return f"--folds_file={write(folder, 'folds.txt', json.dumps(folds))}"


GLUE = {
    "no model": (
        lambda folder: run("run_glue_style", "--output_dir", str(folder)),
        "--model_name_or_path…--config_name",
    ),
    "no posts": (
        lambda folder: run("run_glue_style", "--model_name_or_path", "x", "--output_dir", str(folder)),
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
    "patience without evaluations": (
        glue(
            *("--early_stopping_patience", "2", "--load_best_model_at_end", "false", "--eval_strategy", "no"),
        ),
        "--early_stopping_patience…--metric_for_best_model…--eval_strategy",
    ),
    "an argument that there is none of in a recipe": (
        glue(lambda folder: write(folder, "more.yaml", "windoww: 3\n")),
        "more.yaml",
        "SystemExit",
    ),
    "a recipe that is no YAML": (
        glue(lambda folder: write(folder, "more.yaml", "window: [3\n")),
        "more.yaml",
        "SystemExit",
    ),
    "a recipe that is a list": (
        glue(lambda folder: write(folder, "more.yaml", "- window\n")),
        "more.yaml…'window'",
        "SystemExit",
    ),
    "overrides that are no JSON object": (glue("--config_overrides", "window=3"), "--config_overrides…'window=3'"),
    "an unknown field of the configuration": (glue("--config_overrides", '{"windoww": 3}'), "--config_overrides"),
    "a field of the configuration that an argument sets": (
        glue("--config_overrides", '{"window": 3}'),
        "--config_overrides…'window'…--window",
    ),
    "a field of the configuration that the posts set": (
        glue("--config_overrides", '{"class_weights": [1, 2]}'),
        "--config_overrides…'class_weights'",
    ),
    "a window of 0": (glue("--window", "0"), "--window"),
    "a baseline on an encoder with temporal attention": (
        lambda folder: run(
            "run_glue_style",
            *(
                "--method",
                "post",
                "--model_name_or_path",
                temporal_encoder(folder),
                "--output_dir",
                str(folder / "out"),
            ),
            *("--train_file", write_posts(folder / "posts.csv"), "--do_train"),
        ),
        "--method",
    ),
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
    "predictions of the loss alone": (glue("--prediction_loss_only"), "--prediction_loss_only"),
    "scores of single batches": (glue("--batch_eval_metrics"), "--batch_eval_metrics"),
    "predictions batch by batch": (glue("--eval_do_concat_batches", "false"), "--eval_do_concat_batches"),
    "a checkpoint that is not there": (
        glue("--resume_from_checkpoint", "checkpoint-7"),
        "--resume_from_checkpoint…trainer_state.json",
    ),
    "another learning rate than a checkpoint's": (
        glue_again("--max_steps", "2", "--learning_rate", "0.5"),
        "--learning_rate…0.001…0.5",
    ),
    "fewer steps than a checkpoint has": (glue_again("--max_steps", "1"), "--max_steps…--output_dir"),
    "a checkpoint without its optimizer": (
        glue_again("--max_steps", "3"),
        "--save_only_model…--output_dir…--resume_from_checkpoint",
    ),
    "another window than a checkpoint's": (
        lambda folder: run(
            "run_glue_style",
            *("--model_name_or_path", saved_tempoformer(folder), "--output_dir", str(folder / "out")),
            *("--test_file", write_posts(folder / "posts.csv"), "--do_predict", "--window", "3"),
        ),
        "--window",
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


def begun(folder: Path) -> Path:
    """A folder of a cross-validation whose first run has begun, with half of the rest to validate."""
    run_folder = folder / "out" / "fold_0" / "seed_0"
    run_folder.mkdir(parents=True)
    made = {"num_folds": 5, "validation_fraction": 0.5, "seed": 0}
    for place, content in ((run_folder, "command"), (folder / "out", "folds"), (folder / "out", "folds_made")):
        write(place, f"{content}.json", json.dumps(made))
    return folder


def beside_another(folder: Path):
    """A cross-validation whose first run is held by another process."""
    lock = folder / "out" / "fold_0" / "seed_0" / "lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        cross_validate(own=("--seeds", "0"))(folder)


CROSS_VALIDATION = {
    "a run that another process is running": (beside_another, "", "RunError"),
    "an argument that differs from run to run": (cross_validate("--seed", "1"), "--seed…`--`"),
    "a token on the command line of all runs": (cross_validate("--hub_token", "hf_secret"), "--hub_token…`--`"),
    "a push of every run": (cross_validate("--push-to-hub"), "--push_to_hub…`--`"),
    "a seed twice": (cross_validate(own=("--seeds", "1", "1")), "--seeds"),
    "a single fold": (cross_validate(own=("--num_folds", "1")), ""),
    "a file of folds that is not there": (
        cross_validate(own=("--folds_file", "folds_of_before.json")),
        "--folds_file…folds_of_before.json",
    ),
    "a share to validate beside a file of folds": (
        cross_validate(*("--validation_fraction", "0.5"), own=("--folds_file", "folds_of_before.json")),
        "--validation_fraction…--folds_file",
    ),
    "other folds than those of runs that have begun": (
        lambda folder: cross_validate()(begun(folder)),
        "folds.json…0.5…0.25",
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
    "a text file without text": (temporal(files={"1815.txt": "\n", "1990.txt": "glad\n"}), "1815.txt"),
    "a text file that is no UTF-8": (
        lambda folder: (
            (folder / "1815.txt").write_bytes("déjà vu\n".encode("latin-1")),
            run(
                "run_temporal_mlm",
                *("--config_name", encoder(folder), "--output_dir", str(folder / "out")),
                *("--train_files", str(folder / "1815.txt")),
            ),
        ),
        "1815.txt…line 1…UTF-8",
    ),
    "a table without the column": (temporal("--time_column", "year", files={"a.csv": TABLE}), "'year'"),
    "a text of a time outside of the time points": (
        temporal("--times", "1815", "1816", files={"a.csv": TABLE}),
        "row 1…'1990'…1815",
        "UnknownTimeError",
    ),
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
    "an unknown measure": (change("--measures", "averge"), "--measures"),
    "no encoder": (change(), "--measures…--model_name_or_path"),
    "no words": (
        lambda folder: run(
            "run_semantic_change", "--corpora", "a", "b", "--output_dir", str(folder), "--measures", "sgns"
        ),
        "--targets…--truth",
    ),
    "a single time": (change("--times", "1815", "--measures", "sgns"), "1815"),
    "samples of nothing": (change("--num_samples", "0", "--measures", "sgns"), "--num_samples"),
    "two words in a line": (change("--measures", "sgns", targets="sad glad\n"), "words.list…line 1…'sad glad'"),
    "a word twice": (change("--measures", "sgns", targets="sad\nsad\n"), "words.list…line 2…'sad'"),
    "a gold score that is no number": (change("--measures", "sgns", truth="sad\tmuch\n"), "truth.tsv…line 1…'much'"),
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
