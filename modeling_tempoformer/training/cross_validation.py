"""The runs of a cross-validation: each a process of `run_glue_style.py`, taken up again where it stopped."""

import csv
import hashlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import IO, Any

import torch
from accelerate import PartialState
from datasets import Dataset
from safetensors import safe_open
from tqdm.auto import tqdm

from ..data.files import write_json
from ..evaluation.metrics import StreamClassificationMetric
from ..evaluation.significance import paired_bootstrap
from .resuming import fingerprint


try:
    import fcntl
except ImportError:
    # Windows has none: there a folder that is run twice at a time is not noticed.
    fcntl = None

# What a launcher sets for its processes: a run is alone, however many there are.
LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_")
LINES_OF_A_FAILURE = 30
PREDICTIONS = "predictions.csv"
# Folders of a run, which may be moved or written otherwise when it is done. Before, its checkpoints name the folder.
PLACES = ("--output_dir", "--folds_file")


class RunError(RuntimeError):
    """A run that failed: names its folder and shows the end of its log."""


@dataclass(frozen=True)
class Run:
    """
    One fine-tuning.

    Attributes:
        output (`Path`): Folder of the cross-validation.
        folds_file (`Path`): As [`write_folds`] writes it.
        fold (`int`): Counting from 0.
        learning_rate (`str`, *optional*): As on the command line; that of the recipe if omitted.
        seed (`int`): Of the training; the folds do not depend on it.
        arguments (`Sequence[str]`): All others of the script.
        script (`Path`): `run_glue_style.py`.
        parts (`dict[str, list[str]]`): The timelines of the fold.
        contents (`dict[str, str]`): Of the posts and the recipes, as [`fingerprints`] returns them.
    """

    output: Path
    folds_file: Path
    fold: int
    learning_rate: str | None
    seed: int
    arguments: Sequence[str]
    script: Path
    parts: dict[str, list[str]]
    contents: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Where its results are."""
        rate = [] if self.learning_rate is None else [f"learning_rate_{self.learning_rate}"]
        return self.output.joinpath(f"fold_{self.fold}", *rate, f"seed_{self.seed}")

    @property
    def command(self) -> list[str]:
        """The arguments of the script."""
        rate = [] if self.learning_rate is None else ["--learning_rate", self.learning_rate]
        return [
            *self.arguments,
            *rate,
            *("--folds_file", str(self.folds_file), "--fold", str(self.fold), "--seed", str(self.seed)),
            *("--output_dir", str(self.folder), "--do_train", "--do_eval", "--do_predict"),
        ]

    @property
    def results(self) -> dict[str, float]:
        """What it has reported."""
        return json.loads((self.folder / "all_results.json").read_text(encoding="utf-8"))

    @property
    def is_done(self) -> bool:
        """Whether it ended well."""
        return (self.folder / "done").exists()

    def dev_score(self) -> float:
        """Macro F1 of its validation part; one that is not a number is the worst."""
        score = self.results["eval_macro_f1"]
        return score if score == score else -1.0

    def predictions(self) -> list[dict[str, str]]:
        """The rows of its `_predictions.csv`."""
        with (self.folder / "_predictions.csv").open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def parameters(self) -> int | None:
        """How many parameters its model has; None where there is no model."""
        path = self.folder / "model.safetensors"
        if not path.exists():
            return None
        with safe_open(path, "pt") as tensors:
            return sum(torch.Size(tensors.get_slice(name).get_shape()).numel() for name in tensors.keys())

    def execute(self, device: str | None = None):
        """
        Trains, evaluates and predicts, unless that is done; goes on from its last checkpoint if there is one. The
        checkpoints are deleted afterwards, the best model stays. Raises a [`RunError`] where the folder has results or
        a checkpoint of another command, recipe or fold or of other posts, where another process runs it, or the run
        fails.

        Args:
            device (`str`, *optional*): The only GPU that it sees, as in `CUDA_VISIBLE_DEVICES`.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a") as lock:
            take_lock(lock)
            said = self.folder / "command.json"
            wanted = {"command": self.command, "fold": self.parts, "contents": self.contents}
            # One that failed before its first checkpoint has left nothing to go on from.
            is_begun = self.is_done or any(self.folder.glob("checkpoint-*"))
            passed_over = PLACES if self.is_done else ()
            if is_begun and not is_same_run(json.loads(said.read_text(encoding="utf-8")), wanted, passed_over):
                raise RunError(
                    f"{self.folder} is of a run with other arguments, recipes, posts or folds ({said}): "
                    "give another --output_dir."
                )
            write_json(said, wanted)
            if not self.is_done:
                self.call_script(device, lock.fileno())
                (self.folder / "done").touch()
            for checkpoint in self.folder.glob("checkpoint-*"):
                shutil.rmtree(checkpoint)

    def call_script(self, device: str | None, lock: int):
        """
        Runs the script, which holds the lock as long as it lives, even where this process is killed; raises a
        [`RunError`] if it fails or leaves no results.
        """
        if any(self.folder.glob("checkpoint-*")):
            # Its training time is that of the last part only.
            (self.folder / "resumed").touch()
        environment = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHER)}
        if device is not None:
            environment["CUDA_VISIBLE_DEVICES"] = device
        log = self.folder / "run.log"
        with log.open("a", encoding="utf-8") as file:
            code = call_process(
                [sys.executable, str(self.script), *self.command],
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                # Not on Windows, which has no such argument.
                **({} if fcntl is None else {"pass_fds": (lock,)}),
            )
        results = [self.folder / name for name in ("all_results.json", "_predictions.csv")]
        if code or not all(path.exists() for path in results):
            end = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LINES_OF_A_FAILURE:]
            raise RunError("\n".join([f"{self.folder} failed with exit status {code}; the end of {log}:", *end]))


def take_lock(file: IO):
    """Locks a file until it is closed, here and in processes that inherit it; a [`RunError`] where it is locked."""
    if fcntl is None:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RunError(f"{Path(file.name).parent}: another process is running this.") from None


def is_same_run(first: dict[str, Any], second: dict[str, Any], passed_over: Sequence[str]) -> bool:
    """Whether two `command.json` say the same, but for the values of some options."""

    def compared(said: dict[str, Any]) -> dict[str, Any]:
        pairs = itertools.pairwise(["", *said["command"]])
        return {**said, "command": [argument for option, argument in pairs if option not in passed_over]}

    return compared(first) == compared(second)


def call_process(command: Sequence[str], **settings: Any) -> int:
    """
    Runs a command that ends with this process, also where that is terminated.

    Args:
        command (`Sequence[str]`): A program and its arguments.
        settings: As `subprocess.Popen` takes them.

    Returns:
        Its exit status.
    """
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with subprocess.Popen(command, **settings) as process:
            try:
                return process.wait()
            finally:
                process.terminate()
    finally:
        signal.signal(signal.SIGTERM, before)


def fingerprints(timelines: Dataset, recipes: Sequence[str]) -> dict[str, str]:
    """SHA-256 of the posts, with their times and labels, and of each recipe file."""
    found = {recipe: hashlib.sha256(Path(recipe).read_bytes()).hexdigest() for recipe in recipes}
    return {"posts": fingerprint(timelines), **found}


def run_all(runs: Sequence[Run], state: PartialState, description: str):
    """Executes the runs, shared out over the processes, and waits for all of them."""
    device = None
    # One for each run: the Trainer would share a batch out over all that it sees, and so multiply it.
    if torch.cuda.is_available():
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        devices = visible.split(",") if visible else [str(number) for number in range(torch.cuda.device_count())]
        device = devices[state.local_process_index % len(devices)]
    own = runs[state.process_index :: state.num_processes]
    for run in tqdm(own, desc=description, unit="run", disable=not state.is_main_process):
        run.execute(device)
    state.wait_for_everyone()


def collect(output: Path, runs: Sequence[Run], names: list[str]) -> str:
    """
    Writes `predictions.csv`, every test post under every seed, and `results.json`: the test scores of each seed over
    the posts of all folds (those of whole timelines and of probabilities as means of the folds), their mean and
    standard deviation over the seeds, the chosen learning rates, parameters and training time.

    Returns:
        A table to print. Raises a `ValueError` where a post is not predicted once under every seed.
    """
    rows = [{"seed": run.seed, "fold": run.fold, **row} for run in runs for row in run.predictions()]
    with (output / PREDICTIONS).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    seeds = list(dict.fromkeys(run.seed for run in runs))
    predicted = Counter((row["seed"], row["post_id"]) for row in rows)
    for seed, post_id in itertools.product(seeds, {post_id for _, post_id in predicted}):
        if predicted[seed, post_id] != 1:
            raise ValueError(f"Post {post_id} is predicted {predicted[seed, post_id]} times under seed {seed}.")
    of_seeds = {}
    for seed in seeds:
        folds = [scores_of_run(run.results) for run in runs if run.seed == seed]
        means = {name: value["mean"] for name, value in spread(folds).items()}
        of_seeds[seed] = score([row for row in rows if row["seed"] == seed], names) | means
    summary = spread(list(of_seeds.values()))
    whole = [run.results for run in runs if not (run.folder / "resumed").exists()]
    seconds = [results["train_runtime"] for results in whole if "train_runtime" in results]
    results = {
        "labels": names,
        "folds": len({run.fold for run in runs}),
        "seeds": seeds,
        "learning_rates": {run.fold: run.learning_rate for run in runs},
        "scores": summary,
        "scores_of_seeds": of_seeds,
        "dev_macro_f1": [run.results.get("eval_macro_f1") for run in runs],
        "parameters": runs[0].parameters(),
        "train_seconds": fmean(seconds) if seconds else None,
    }
    write_json(output / "results.json", results)
    lines = [f"{name:40} {value['mean']:8.4f}" for name, value in summary.items()]
    if len(seeds) > 1:
        lines = [f"{line} ± {value['std']:.4f}" for line, value in zip(lines, summary.values(), strict=True)]
    return "\n".join(lines)


def spread(scores: Sequence[dict[str, float]]) -> dict[str, dict[str, float | None]]:
    """Mean and standard deviation (None of one value) of each score, over those that have it."""
    names = list(dict.fromkeys(name for some in scores for name in some))
    values = {name: [some[name] for some in scores if name in some] for name in names}
    return {
        name: {"mean": fmean(found), "std": stdev(found) if len(found) > 1 else None} for name, found in values.items()
    }


def scores_of_run(results: dict[str, float]) -> dict[str, float]:
    """The scores of whole timelines and of probabilities, and how many generations were unparsable."""
    scores = {name.removeprefix("predict_"): value for name, value in results.items() if name.startswith("predict_")}
    kinds = ("window_", "coverage_", "median_delay_", "missed_", "ece", "unparsable_share")
    return {name: value for name, value in scores.items() if name.startswith(kinds)}


def label_ids(rows: Sequence[dict[str, str]], column: str, names: list[str]) -> list[int]:
    """The class ids of a column of `predictions.csv`; -1 where it is empty."""
    return [names.index(row[column]) if row[column] else -1 for row in rows]


def score(rows: Sequence[dict[str, str]], names: list[str]) -> dict[str, float]:
    """Scores of the labelled posts among the rows of `predictions.csv`."""
    labelled = [row for row in rows if row["label"]]
    return StreamClassificationMetric().compute(
        predictions=label_ids(labelled, "prediction", names),
        references=label_ids(labelled, "label", names),
        label_names=names,
    )


def read_predictions(output: Path) -> list[dict[str, str]]:
    """The labelled rows of a cross-validation's `predictions.csv`."""
    with (output / PREDICTIONS).open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["label"]]


def compare(ours: Path, theirs: Path, names: list[str]) -> dict[str, float | tuple[float, float]]:
    """
    The paired difference in macro F1 of two cross-validations, over the seeds that both have.

    Args:
        ours, theirs (`Path`): Their output folders.
        names (`list[str]`): Of the classes.

    Returns:
        As [`paired_bootstrap`], by timeline. Raises a `ValueError` where they have no seed in common, or a post is in
        one only or has another timeline or label there.
    """
    found = []
    for folder in (ours, theirs):
        found.append({(row["seed"], row["post_id"]): row for row in read_predictions(folder)})
    seeds = {seed for seed, _ in found[0]} & {seed for seed, _ in found[1]}
    if not seeds:
        raise ValueError(f"{ours} and {theirs} have no seed in common.")
    first, second = ({key: row for key, row in rows.items() if key[0] in seeds} for rows in found)
    if first.keys() != second.keys():
        _, post_id = min(first.keys() ^ second.keys())
        raise ValueError(f"{ours} and {theirs} do not have the same posts: post {post_id} is in one only.")
    for key, row in first.items():
        for column in ("timeline_id", "label"):
            if row[column] != second[key][column]:
                problem = f"has the {column} '{row[column]}' in {ours} and '{second[key][column]}' in {theirs}"
                raise ValueError(f"Post {key[1]} {problem}.")
    some = min(seeds)
    posts = [post_id for seed, post_id in first if seed == some]
    return paired_bootstrap(
        label_ids([first[some, post] for post in posts], "label", names),
        *(
            [label_ids([rows[seed, post] for post in posts], "prediction", names) for seed in sorted(seeds)]
            for rows in (first, second)
        ),
        [first[some, post]["timeline_id"] for post in posts],
        len(names),
    )
