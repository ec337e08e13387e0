r"""Cross-validation by timeline, of one method or of several on the same folds.

    python run_cross_validation.py --output_dir outputs/compare --methods tempoformer bilstm post class_prior -- \
        --model_name_or_path sentence-transformers/all-MiniLM-L6-v2 --train_file posts.csv
    python run_cross_validation.py --output_dir outputs/lrs --learning_rates 1e-5 5e-6 -- \
        configuration/lrs_paper.yaml --model_name_or_path google-bert/bert-base-uncased --train_file threads.jsonl.gz

Everything after `--` goes to run_glue_style.py, or to run_baseline.py if it has a `--method`, once for each fold,
learning rate and seed (paper, section 5.2). With `--methods` it goes to every method, each with a folder of its own
and the settings of its recipe, and one table compares them with the first one. Each run has a folder with its results
and a `run.log`. Give the same command again to continue after an interruption: finished runs are skipped. On several
GPUs set CUDA_VISIBLE_DEVICES to one of them; other seeds can run on another one at the same time, in another
--output_dir.
"""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from datasets import Dataset

from modeling_tempoformer.baselines import baseline_names, find_baseline, recipe_of
from modeling_tempoformer.baselines.base import Baseline, UntrainedBaseline, with_own_recipe
from modeling_tempoformer.data.arguments import DataTrainingArguments
from modeling_tempoformer.data.files import lock_folder
from modeling_tempoformer.data.post_splits import check_calibration, class_weights, load_splits, timeline_columns
from modeling_tempoformer.data.splits import check_tested_once, make_folds, read_folds, select_fold
from modeling_tempoformer.data.timelines import label_names, to_timelines
from modeling_tempoformer.evaluation.predictions import labels_of
from modeling_tempoformer.training.arguments import ModelArguments
from modeling_tempoformer.training.cross_validation import collect, compare_methods, cross_validate, write_folds
from modeling_tempoformer.training.fine_tuning import with_default_settings
from modeling_tempoformer.training.recipes import parse, run_script, split_recipes
from modeling_tempoformer.training.resuming import fingerprint


ROOT = Path(__file__).parent
DEFAULT_FOLDS, FOLD_SEED = 5, 0
TEMPOFORMER = "tempoformer"
# All are given the same encoder, so that none can read another model.
METHODS = (TEMPOFORMER, *(name for name in baseline_names() if find_baseline(name).reads != "language model"))
NOT_PASSED_ON = {
    **dict.fromkeys(("output_dir", "seed", "fold", "folds_file"), "it differs from run to run"),
    **dict.fromkeys(("token", "hub_token"), "it would be written to files; set HF_TOKEN instead"),
    "push_to_hub": "a run's folder names timelines; push a model of your choice afterwards",
}
# The others may be in a recipe: each run overrides them, and a token in a recipe is not written anywhere else.
NOT_IN_RECIPES = ("push_to_hub",)
# In a recipe they are TempoFormer's: those of another method's own recipe win.
SETTINGS_OF_A_METHOD = ("learning_rate", "num_train_epochs", "per_device_train_batch_size")


@dataclass
class CrossValidationArguments:
    """Which runs."""

    output_dir: str = field(metadata={"help": "Folder of all runs, results.json and predictions.csv."})
    methods: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Compare these, on the same folds. The others are compared with the first.",
            "choices": METHODS,
        },
    )
    num_folds: int | None = field(default=None, metadata={"help": "Default: 5, or as many as --folds_file has."})
    folds_file: str | None = field(
        default=None, metadata={"help": "The folds.json of another cross-validation. Default: new folds."}
    )
    seeds: list[int] = field(
        default_factory=lambda: [0, 1, 12, 123], metadata={"help": "Each fold is trained once with each seed."}
    )
    learning_rates: list[str] = field(
        default_factory=list, metadata={"help": "Chosen from by the validation macro F1 of the first seed."}
    )
    tune_on_first_fold: bool = field(
        default=False, metadata={"help": "Use the best learning rate of the first fold for all folds."}
    )

    def __post_init__(self):
        for name in ("methods", "seeds", "learning_rates"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"--{name} has a value twice: {', '.join(map(str, values))}.")
        if self.methods and (self.learning_rates or self.tune_on_first_fold):
            raise ValueError(
                "--learning_rates and --tune_on_first_fold are for a single method: with --methods each has the rate "
                "of its recipe."
            )


@dataclass
class PassedOnArguments:
    """Arguments after `--` that this script looks at."""

    method: str | None = None
    learning_rate: str | None = None
    num_train_epochs: str | None = None
    per_device_train_batch_size: str | None = None
    validation_fraction: str | None = None
    output_dir: str | None = None
    seed: str | None = None
    fold: str | None = None
    folds_file: str | None = None
    token: str | None = None
    hub_token: str | None = None
    push_to_hub: bool = False


def check_passed_on(args: CrossValidationArguments, passed_on: list[str]) -> str | None:
    """The `--method`, if any. Raises a `ValueError` for arguments that a single run cannot have."""
    (given,) = parse([PassedOnArguments], split_recipes(passed_on)[1], only_these=False)
    (with_recipes,) = parse([PassedOnArguments], passed_on, only_these=False)
    for name, why in NOT_PASSED_ON.items():
        if getattr(given, name) or (name in NOT_IN_RECIPES and getattr(with_recipes, name)):
            raise ValueError(f"--{name} cannot come after `--`: {why}.")
    if args.methods:
        if with_recipes.method is not None:
            raise ValueError(f"--method {with_recipes.method} cannot come after `--` with --methods: name it there.")
        for name in SETTINGS_OF_A_METHOD:
            if getattr(given, name) is not None:
                raise ValueError(
                    f"--{name} cannot come after `--` with --methods: every method would have it. Put what is meant "
                    f"for {TEMPOFORMER} in a recipe."
                )
    if args.folds_file is not None and given.validation_fraction is not None:
        raise ValueError("--validation_fraction cannot be given with --folds_file, which has the validation splits.")
    return with_recipes.method


def arguments_of(method: str, passed_on: list[str]) -> list[str]:
    """What each run of one of several methods is given."""
    if method == TEMPOFORMER:
        return with_default_settings(passed_on)
    recipes, options = split_recipes(passed_on)
    # Its own settings win over those for TempoFormer, and it has no field of TempoFormer's configuration.
    return [*recipes, recipe_of(method), *options, "--config_overrides", "null"]


def read_run(arguments: list[str]) -> tuple[ModelArguments, DataTrainingArguments]:
    """The arguments of a run. Those of training are left to the run: here they would set up a device."""
    (found,) = parse([PassedOnArguments], arguments, only_these=False)
    kind = ModelArguments if found.method is None else find_baseline(found.method)
    return parse([kind, DataTrainingArguments], arguments, only_these=False)


def prepare_folds(
    args: CrossValidationArguments, model_args: ModelArguments, data: DataTrainingArguments
) -> tuple[list[dict[str, list[str]]], list[str], Dataset]:
    """The folds, the label names and the timelines. Every fold is checked before the first run."""
    splits = load_splits(data, model_args.cache_dir)
    if set(splits) != {"train"}:
        raise ValueError("Cross-validation splits --train_file: give no other file.")
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
        of_fold = select_fold(timelines, fold)
        try:
            class_weights(of_fold["train"], len(names))
            if model_args.calibrate:
                check_calibration(of_fold["validation"], names)
            if labels_of(of_fold["validation"]).max() < 0:
                raise ValueError("the validation split has no labelled post.")
        except ValueError as problem:
            raise ValueError(f"Fold {number}: {problem}") from None
    return folds, names, timelines


def main(arguments: list[str]):
    end = arguments.index("--") if "--" in arguments else len(arguments)
    own, passed_on = arguments[:end], arguments[end + 1 :]
    if {"-h", "--help"} & set(own):
        print(__doc__)
    (args,) = parse([CrossValidationArguments], own)
    if not passed_on:
        raise ValueError("Give the arguments of the runs after `--`.")
    method = check_passed_on(args, passed_on)
    output_dir = Path(args.output_dir)
    if args.methods:
        commands = {output_dir / name: arguments_of(name, passed_on) for name in args.methods}
    else:
        commands = {output_dir: with_default_settings(passed_on) if method is None else with_own_recipe(passed_on)[1]}
    # All of them, before the first run.
    models, (data, *_) = zip(*map(read_run, commands.values()), strict=True)
    if isinstance(models[0], UntrainedBaseline) and args.learning_rates:
        raise ValueError(f"--learning_rates cannot be given with --method {method}, which is not trained.")
    with lock_folder(output_dir):
        folds, names, timelines = prepare_folds(args, models[0], data)
        folds_file, posts = write_folds(output_dir, folds), fingerprint(timelines)
        for model_args, (folder, run_arguments) in zip(models, commands.items(), strict=True):
            script = "run_baseline.py" if isinstance(model_args, Baseline) else "run_glue_style.py"
            recipes, _ = split_recipes(run_arguments)
            hashes = {path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in recipes}
            runs = cross_validate(
                folder,
                ROOT / script,
                run_arguments,
                {"posts": posts, "recipes": hashes},
                folds_file,
                args.seeds,
                args.learning_rates,
                args.tune_on_first_fold,
            )
            table = collect(folder, runs, names)
        print(compare_methods(output_dir, args.methods, names) if args.methods else table)


if __name__ == "__main__":
    run_script(main)
