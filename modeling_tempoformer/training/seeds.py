"""Runs with several seeds, and the spread of their scores."""

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import TrainingArguments

from ..common.command_line import check_positive
from ..evaluation.report import RESULTS
from ..posts.arguments import DataTrainingArguments
from .arguments import ModelArguments


def seed_folders(model_args: ModelArguments, training: TrainingArguments) -> dict[int, Path]:
    """Returns the folder of each further seed of `--seeds`. The first, `--seed`, has the output folder itself."""
    seeds = range(training.seed + 1, training.seed + (model_args.seeds or 1))
    return {seed: Path(training.output_dir) / f"seed_{seed}" for seed in seeds}


def seed_runs(
    model_args: ModelArguments, data: DataTrainingArguments, training: TrainingArguments
) -> dict[Path, list[str]]:
    """
    Returns by folder the arguments of the run of each further seed, to be put after those of the command line. All
    seeds have the same test posts. Raises a `ValueError` for arguments that do not go together with `--seeds`.
    """
    check_positive(model_args, "seeds")
    folders = seed_folders(model_args, training)
    if folders and not (training.do_train and training.do_predict):
        raise ValueError("--seeds trains and tests with each seed: give --do_train and --do_predict.")
    if folders and training.resume_from_checkpoint is not None:
        raise ValueError("--seeds trains anew with each seed: leave out --resume_from_checkpoint.")
    split_seed = training.seed if data.split_seed is None else data.split_seed
    own = {"seeds": 1, "split_seed": split_seed, "view": False, "push_to_hub": False, "push_to_hub_dry_run": False}
    return {
        folder: [f"--{name}={value}" for name, value in {**own, "seed": seed, "output_dir": folder}.items()]
        for seed, folder in folders.items()
    }


def seed_settings(
    model_args: ModelArguments, data: DataTrainingArguments, training: TrainingArguments
) -> dict[str, int | None]:
    """Returns the settings of a training in which seeds differ."""
    return {"seed": training.seed, "split_seed": data.split_seed}


def leave_out_alarm(model_args: ModelArguments):
    """
    Leaves out the alarm threshold of a further seed, because seeds are compared by labels alone, and with another seed
    there may be no threshold with what is wanted, which would end the run.
    """
    if model_args.alarm is not None:
        model_args.alarm, model_args.calibrate = None, False


def score_seeds(
    own: Mapping[str, float], names: Sequence[str], model_args: ModelArguments, training: TrainingArguments
) -> dict[str, Any]:
    """
    Returns the macro F1 and the F1 of each class over the seeds, with mean and standard deviation. `own` are the
    scores of the first seed by name; those of the others are read from their folders.
    """
    folders = seed_folders(model_args, training)
    tests = [json.loads((folder / RESULTS).read_text(encoding="utf-8"))["test"] for folder in folders.values()]
    classes = {name: spread([own[f"f1_{name}"], *(test["classes"][name]["f1"] for test in tests)]) for name in names}
    macro_f1 = spread([own["macro_f1"], *(test["macro_f1"] for test in tests)])
    return {"seeds": [training.seed, *folders], "macro_f1": macro_f1, "classes": classes}


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Returns the values, their mean and their standard deviation."""
    return {"mean": statistics.fmean(values), "std": statistics.stdev(values), "values": list(values)}
