r"""Cross-validates by timeline one method, or several methods on the same folds.

    python -m research.run_cross_validation --output_dir outputs/compare --methods tempoformer bilstm post trees -- \
        --model_name_or_path sentence-transformers/all-MiniLM-L6-v2 --train_file posts.csv
    python -m research.run_cross_validation --output_dir outputs/lrs --learning_rates 1e-5 5e-6 -- \
        configuration/lrs_paper.yaml --model_name_or_path google-bert/bert-base-uncased --train_file threads.jsonl.gz

The arguments after `--` go to run_glue_style.py, or to research.run_baseline if `--method` is among them, once for
each fold, learning rate and seed (paper, section 5.2). With `--methods` they go to every method, with the settings of
its recipe and a folder of its own, and a table compares all methods with the first one. Each run has a folder with its
results and a `run.log`. Give the same command again to continue after an interruption: finished runs are skipped. With
several GPUs, set CUDA_VISIBLE_DEVICES to one of them; other seeds can run on another GPU at the same time, in another
--output_dir.
"""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from modeling_tempoformer.data.arguments import DataTrainingArguments
from modeling_tempoformer.data.files import lock_folder, write_json
from modeling_tempoformer.data.model_fields import class_weights
from modeling_tempoformer.data.post_splits import (
    check_calibration,
    choose_change_step,
    choose_label_names,
    load_splits,
    make_timelines,
)
from modeling_tempoformer.data.splits import check_apart, check_tested_once, make_folds, read_folds, select_fold
from modeling_tempoformer.data.surveys import survey
from modeling_tempoformer.evaluation.method_names import checkpoint_name
from modeling_tempoformer.evaluation.predictions import all_labels
from modeling_tempoformer.timeline_tempoformer import Timeline
from modeling_tempoformer.training.arguments import ModelArguments
from modeling_tempoformer.training.fine_tuning import with_default_settings
from modeling_tempoformer.training.recipes import options_given, parse, run_script, split_recipes

from .baselines import baseline_names, find_baseline, recipe_of
from .baselines.base import Baseline, with_own_recipe
from .cross_validation import FOLDS, collect, compare_methods, cross_validate


ROOT = Path(__file__).parents[1]
FOLD_SEED = 0
TEMPOFORMER = "tempoformer"
# All methods get the same encoder, so methods that read another kind of model are left out.
METHODS = (TEMPOFORMER, *(name for name in baseline_names() if find_baseline(name).reads != "language model"))
# Arguments that must not come after `--`. A run's folder names timelines, so it is never pushed.
NOT_PASSED_ON = ("output_dir", "seed", "seeds", "fold", "folds_file", "token", "hub_token", "push_to_hub")


@dataclass
class CrossValidationArguments:
    """The runs of a cross-validation."""

    output_dir: str = field(metadata={"help": "Folder of all runs, results.json and predictions.csv."})
    methods: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Methods to compare on the same folds. The others are compared with the first.",
            "choices": METHODS,
        },
    )
    num_folds: int = field(default=5, metadata={"help": "Number of folds, without --folds_file."})
    folds_file: str | None = field(
        default=None, metadata={"help": "The folds.json of another cross-validation. Default: new folds."}
    )
    seeds: list[int] = field(
        default_factory=lambda: [0, 1, 12, 123], metadata={"help": "Seeds. Each fold is trained once with each."}
    )
    learning_rates: list[str] = field(
        default_factory=list, metadata={"help": "Candidates. The best validation macro F1 with the first seed wins."}
    )
    tune_on_first_fold: bool = field(
        default=False, metadata={"help": "Use the best learning rate of the first fold for all folds."}
    )


def arguments_of(method: str, passed_on: list[str]) -> list[str]:
    """Returns the arguments of each run of one of several methods."""
    if method == TEMPOFORMER:
        return passed_on
    recipes, options = split_recipes(passed_on)
    # A baseline's own settings override those for TempoFormer, and it has no fields of TempoFormer's configuration.
    return [*recipes, recipe_of(method), *options, "--config_overrides", "null"]


def read_run(arguments: list[str]) -> tuple[ModelArguments, DataTrainingArguments, list[str]]:
    """Parses the model and data arguments of a run. Returns them, and all arguments after the method's recipe."""
    kind, arguments = with_own_recipe(arguments)
    if kind is Baseline:
        kind, arguments = ModelArguments, with_default_settings(arguments)
    # Parsing training arguments would set up a device.
    return *parse([kind, DataTrainingArguments], arguments, only_these=False), arguments


def prepare_folds(
    args: CrossValidationArguments, model_args: ModelArguments, data: DataTrainingArguments
) -> tuple[list[dict[str, list[str]]], list[str], list[Timeline]]:
    """Returns the folds, the label names and the timelines. Checks every fold before the first run."""
    if data.streaming:
        raise ValueError("Cross-validation splits all posts: leave out --streaming.")
    splits = load_splits(data, model_args.cache_dir)
    if set(splits) != {"train"}:
        raise ValueError("Cross-validation splits --train_file: give no other file.")
    names = choose_label_names(splits, data)
    timelines = make_timelines(splits, data, names, choose_change_step(splits, data))["train"]
    if args.folds_file is None:
        folds = make_folds(timelines, args.num_folds, data.validation_fraction, FOLD_SEED)
    else:
        folds = read_folds(args.folds_file, timelines)
        check_tested_once(args.folds_file, folds)
    for number, fold in enumerate(folds):
        parts = select_fold(timelines, fold)
        try:
            check_apart(parts)
            class_weights(survey(parts["train"]).labels, len(names))
            if model_args.calibrate:
                check_calibration(survey(parts["validation"]).labels, names)
            if all_labels(parts["validation"]).max() < 0:
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
    given = options_given(passed_on)
    if refused := [name for name in NOT_PASSED_ON if name in given]:
        raise ValueError(
            f"--{refused[0]} cannot come after `--`: it differs between runs, or must not be in their files. A token "
            "can be given in HF_TOKEN, and a model of your choice can be pushed afterwards."
        )
    if args.methods and with_own_recipe(passed_on)[0] is not Baseline:
        raise ValueError("A --method cannot come after `--` with --methods: name it there.")
    output_dir = Path(args.output_dir)
    commands = {output_dir / name: arguments_of(name, passed_on) for name in args.methods} or {output_dir: passed_on}
    # All arguments are checked before the first run.
    parsed = {folder: read_run(run_arguments) for folder, run_arguments in commands.items()}
    model_args, data, _ = next(iter(parsed.values()))
    encoder = checkpoint_name(model_args.model_name_or_path)
    with lock_folder(output_dir):
        folds, names, timelines = prepare_folds(args, model_args, data)
        posts = survey(timelines).fingerprint
        write_json(output_dir / FOLDS, folds)
        for folder, (model_args, _, run_arguments) in parsed.items():
            is_baseline = isinstance(model_args, Baseline)
            program = ["-m", "research.run_baseline"] if is_baseline else [str(ROOT / "run_glue_style.py")]
            recipes, _ = split_recipes(run_arguments)
            hashes = {path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in recipes}
            runs = cross_validate(
                folder,
                program,
                run_arguments,
                {"posts": posts, "recipes": hashes},
                output_dir / FOLDS,
                args.seeds,
                args.learning_rates,
                args.tune_on_first_fold,
            )
            table = collect(folder, runs, names)
        print(compare_methods(output_dir, args.methods, names, encoder) if args.methods else table)


if __name__ == "__main__":
    run_script(main, "research")
