r"""Cross-validation by timeline, with learning rates chosen on dev and several seeds (paper, section 5.2).

    python run_cross_validation.py --output_dir outputs/lrs --learning_rates 1e-5 5e-6 -- \
        configuration/lrs_paper.yaml --model_name_or_path google-bert/bert-base-uncased --train_file threads.jsonl.gz

Everything after `--` goes to run_glue_style.py, or to run_baseline.py if it has a `--method`, once for each fold,
learning rate and seed. Each run has a folder with its results and a `run.log`. Give the same command again to continue
after an interruption: finished runs are skipped. On several GPUs set CUDA_VISIBLE_DEVICES to one of them; other seeds
can run on another one at the same time, in another --output_dir.
"""

import hashlib
import itertools
import logging
from dataclasses import dataclass, field
from pathlib import Path

from datasets import Dataset

from modeling_tempoformer.data.locks import lock_folder
from modeling_tempoformer.data.splits import check_tested_once, make_folds, read_folds, select_fold
from modeling_tempoformer.data.timelines import label_names, to_timelines
from modeling_tempoformer.evaluation.predictions import labels_of
from modeling_tempoformer.training.arguments import BaselineArguments, DataTrainingArguments, ModelArguments
from modeling_tempoformer.training.cross_validation import cross_validate
from modeling_tempoformer.training.cross_validation_scores import PREDICTIONS, collect, compare
from modeling_tempoformer.training.parts import check_calibration, class_weights, load_splits, timeline_columns
from modeling_tempoformer.training.recipes import RECIPES, parse, run_script
from modeling_tempoformer.training.resuming import fingerprint


ROOT = Path(__file__).parent
DEFAULT_FOLDS, FOLD_SEED = 5, 0
NOT_PASSED_ON = {
    **dict.fromkeys(("output_dir", "seed", "fold", "folds_file"), "it differs from run to run"),
    **dict.fromkeys(("token", "hub_token"), "it would be written to files; set HF_TOKEN instead"),
    "push_to_hub": "a run's folder names timelines; push a model of your choice afterwards",
}
# The others may be in a recipe: each run overrides them, and a token in a recipe is not written anywhere else.
NOT_IN_RECIPES = ("push_to_hub",)


@dataclass
class CrossValidationArguments:
    """Which runs."""

    output_dir: str = field(metadata={"help": "Folder of all runs, results.json and predictions.csv."})
    num_folds: int | None = field(default=None, metadata={"help": "Default: 5, or as many as --folds_file has."})
    folds_file: str | None = field(
        default=None, metadata={"help": "The folds.json of another cross-validation. Default: new folds."}
    )
    seeds: list[int] = field(
        default_factory=lambda: [0, 1, 12, 123], metadata={"help": "Each fold is trained once with each seed."}
    )
    learning_rates: list[str] = field(
        default_factory=list, metadata={"help": "Chosen from by the dev macro F1 of the first seed."}
    )
    tune_on_first_fold: bool = field(
        default=False, metadata={"help": "Use the best learning rate of the first fold for all folds."}
    )
    compare_to: str | None = field(
        default=None, metadata={"help": "Output folder of another cross-validation of the same posts."}
    )

    def __post_init__(self):
        for name in ("seeds", "learning_rates"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"--{name} has a value twice: {', '.join(map(str, values))}.")
        if self.compare_to is not None and not (Path(self.compare_to) / PREDICTIONS).exists():
            raise ValueError(f"--compare_to {self.compare_to} has no {PREDICTIONS} of a cross-validation.")


@dataclass
class PassedOnArguments:
    """Arguments after `--` that this script looks at."""

    method: str | None = None
    validation_fraction: str | None = None
    output_dir: str | None = None
    seed: str | None = None
    fold: str | None = None
    folds_file: str | None = None
    token: str | None = None
    hub_token: str | None = None
    push_to_hub: bool = False


def check_passed_on(args: CrossValidationArguments, recipes: list[str], passed_on: list[str]) -> str | None:
    """The `--method`, if any. Raises a `ValueError` for arguments that a single run cannot have."""
    (given,) = parse([PassedOnArguments], passed_on[len(recipes) :], only_these=False)
    (with_recipes,) = parse([PassedOnArguments], passed_on, only_these=False)
    for name, why in NOT_PASSED_ON.items():
        if getattr(given, name) or (name in NOT_IN_RECIPES and getattr(with_recipes, name)):
            raise ValueError(f"--{name} cannot come after `--`: {why}.")
    if args.folds_file is not None and given.validation_fraction is not None:
        raise ValueError("--validation_fraction cannot be given with --folds_file, which has the validation parts.")
    return with_recipes.method


def prepare_folds(
    args: CrossValidationArguments, model_args: ModelArguments, data: DataTrainingArguments
) -> tuple[list[dict[str, list[str]]], list[str], Dataset]:
    """The folds, the label names and the timelines. Every fold is checked before the first run."""
    splits = load_splits(data, model_args.cache_dir)
    if set(splits) != {"train"} or data.streaming:
        raise ValueError("Cross-validation splits --train_file: give no other file and no --streaming.")
    names = data.labels or label_names(splits["train"], data.label_column or "label")
    timelines = to_timelines(splits["train"], names, *timeline_columns(data))
    if args.folds_file is None:
        num_folds = DEFAULT_FOLDS if args.num_folds is None else args.num_folds
        folds = make_folds(timelines, num_folds, data.validation_fraction, FOLD_SEED)
    else:
        folds = read_folds(args.folds_file, timelines)
        check_tested_once(args.folds_file, folds)
        if args.num_folds not in (None, len(folds)):
            raise ValueError(f"--num_folds {args.num_folds}, but {args.folds_file} has {len(folds)} folds.")
    for number, fold in enumerate(folds):
        parts = select_fold(timelines, fold)
        try:
            class_weights(parts["train"], len(names))
            if model_args.calibrate:
                check_calibration(parts["validation"], names)
            if labels_of(parts["validation"]).max() < 0:
                raise ValueError("the validation part has no labelled post.")
        except ValueError as problem:
            raise ValueError(f"Fold {number}: {problem}") from None
    return folds, names, timelines


def main(arguments: list[str]):
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    place = arguments.index("--") if "--" in arguments else len(arguments)
    own, passed_on = arguments[:place], arguments[place + 1 :]
    if {"-h", "--help"} & set(own):
        print(__doc__)
    (args,) = parse([CrossValidationArguments], own)
    if not passed_on:
        raise ValueError("Give the arguments of the runs after `--`.")
    recipes = list(itertools.takewhile(lambda argument: argument.endswith(RECIPES), passed_on))
    method = check_passed_on(args, recipes, passed_on)
    kind = ModelArguments if method is None else BaselineArguments
    # Training arguments are left to the runs: here they would set up a device.
    model_args, data = parse([kind, DataTrainingArguments], passed_on, only_these=False)
    if method is not None and not model_args.is_trained and args.learning_rates:
        raise ValueError(f"--learning_rates cannot be given with --method {method}, which is not trained.")
    output_dir = Path(args.output_dir)
    with lock_folder(output_dir):
        folds, names, timelines = prepare_folds(args, model_args, data)
        runs = cross_validate(
            output_dir,
            ROOT / ("run_glue_style.py" if method is None else "run_baseline.py"),
            passed_on,
            {
                "posts": fingerprint(timelines),
                "recipes": {path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in recipes},
            },
            folds,
            args.seeds,
            args.learning_rates,
            args.tune_on_first_fold,
        )
        print(collect(output_dir, runs, names))
    if args.compare_to is not None:
        found = compare(output_dir, Path(args.compare_to), names)
        low, high = found["interval"]
        print(f"macro F1 less that of {args.compare_to}: {found['difference']:+.4f} ({low:+.4f} to {high:+.4f})")


if __name__ == "__main__":
    run_script(main)
