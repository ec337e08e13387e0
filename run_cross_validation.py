r"""Cross-validation by timeline, with learning rates chosen on dev and several seeds (paper, section 5.2).

    python run_cross_validation.py --output_dir outputs/lrs --learning_rates 1e-5 5e-6 -- \
        configuration/lrs_paper.yaml --model_name_or_path google-bert/bert-base-uncased --train_file threads.jsonl.gz

What comes after `--` goes to run_glue_style.py, once for each fold, learning rate and seed, and its output to a
`run.log` beside its results. A stopped run goes on where it was when the same command is given again. Several at a
time, each on its own device: `accelerate launch --multi_gpu --num_processes 4 run_cross_validation.py ...`, which
also starts several processes where there is no GPU.
"""

import itertools
import json
import logging
import sys
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import yaml
from accelerate import PartialState
from datasets import Dataset

import run_glue_style
from modeling_tempoformer.data.files import write_json
from modeling_tempoformer.data.splits import (
    check_tested_once,
    make_folds,
    read_folds,
    select_fold,
    write_folds,
)
from modeling_tempoformer.data.timelines import label_names, to_timelines
from modeling_tempoformer.evaluation.predictions import labels_of
from modeling_tempoformer.training.cross_validation import PREDICTIONS, Run, collect, compare, fingerprints, run_all
from modeling_tempoformer.training.recipes import RECIPES, parse
from run_glue_style import (
    UNTRAINED,
    DataTrainingArguments,
    ModelArguments,
    check_calibration,
    class_weights,
    load_splits,
    timeline_columns,
)


DEFAULT_FOLDS, FOLD_SEED = 5, 0
NOT_PASSED_ON = {
    **dict.fromkeys(("--output_dir", "--seed", "--fold", "--folds_file"), "it differs from run to run"),
    "--hub_token": "it would be written to files; set HF_TOKEN instead",
    "--push_to_hub": "a run's folder names timelines; push a model of your choice afterwards",
}


@dataclass
class CrossValidationArguments:
    """Which runs."""

    output_dir: str = field(metadata={"help": "Of all runs, and of results.json and predictions.csv."})
    num_folds: int | None = field(default=None, metadata={"help": "5 if omitted, or those of the folds file."})
    folds_file: str | None = field(
        default=None,
        metadata={"help": "Folds of before; else folds.json of the output folder, made anew until a run has begun."},
    )
    seeds: list[int] = field(
        default_factory=lambda: [0, 1, 12, 123], metadata={"help": "Each fold is trained once with each."}
    )
    learning_rates: list[str] = field(
        default_factory=list, metadata={"help": "Chosen from by the dev macro F1 of the first seed."}
    )
    tune_on_first_fold: bool = field(
        default=False, metadata={"help": "Use the learning rate of the first fold in all, not one for each."}
    )
    compare_to: str | None = field(
        default=None, metadata={"help": "Output folder of another cross-validation of the same posts."}
    )

    def __post_init__(self):
        for name in ("seeds", "learning_rates"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"--{name} has a value twice: {', '.join(map(str, values))}.")


def prepare_folds(
    args: CrossValidationArguments, data: DataTrainingArguments, calibrate: bool
) -> tuple[Path, list[dict[str, list[str]]], list[str], Dataset]:
    """
    The file of the folds, the folds, the label names and the timelines. Every fold is checked before the first is run.
    """
    splits = load_splits(data)
    if set(splits) != {"train"} or data.streaming:
        raise ValueError("Cross-validation splits --train_file: give no other file and no --streaming.")
    names = data.labels or label_names(splits["train"], data.label_column or "label")
    timelines = to_timelines(splits["train"], names, *timeline_columns(data))
    if args.folds_file is None:
        path = own_folds(args, data.validation_fraction, timelines)
    elif not (path := Path(args.folds_file)).exists():
        raise ValueError(f"--folds_file {path} does not exist.")
    folds = read_folds(path, timelines)
    if args.num_folds not in (None, len(folds)):
        raise ValueError(f"--num_folds {args.num_folds}, but {path} has {len(folds)} folds.")
    check_tested_once(path, folds)
    for number, fold in enumerate(folds):
        parts = select_fold(timelines, fold)
        try:
            class_weights(parts["train"], len(names))
            if calibrate:
                check_calibration(parts["validation"], names)
        except ValueError as problem:
            raise ValueError(f"{path}, fold {number}: {problem}") from None
        if not (labels_of(parts["validation"]) >= 0).any():
            raise ValueError(f"{path}, fold {number}: the validation part has no labelled post.")
    return path, folds, names, timelines


def own_folds(args: CrossValidationArguments, validation_fraction: float, timelines: Dataset) -> Path:
    """
    The folds file of the output folder. It is made where it is not there, or was made with other arguments and no run
    has begun; else a `ValueError` names them.
    """
    output = Path(args.output_dir)
    path, made = output / "folds.json", output / "folds_made.json"
    # Folds of earlier versions do not say how they were made.
    before = json.loads(made.read_text(encoding="utf-8")) if path.exists() and made.exists() else None
    num_folds = args.num_folds
    if num_folds is None:
        num_folds = DEFAULT_FOLDS if before is None else before["num_folds"]
    wanted = {"num_folds": num_folds, "validation_fraction": validation_fraction, "seed": FOLD_SEED}
    if before is not None and before != wanted:
        if any(output.glob("fold_*/**/command.json")):
            name = next(name for name, value in wanted.items() if before.get(name) != value)
            raise ValueError(
                f"{path} was made with {name} {before.get(name)}, not {wanted[name]}, and runs have begun: "
                "give another --output_dir."
            )
        path.unlink()
    if not path.exists():
        folds = make_folds(timelines, num_folds, validation_fraction, FOLD_SEED)
        write_json(made, wanted)
        write_folds(path, folds)
    return path


def is_option(argument: str, option: str) -> bool:
    """Whether an argument is an option, or an abbreviation of it."""
    name = argument.split("=")[0].replace("-", "_")
    return argument.startswith("--") and len(name) > 2 and option.replace("-", "_").startswith(name)


def check_passed_on(argument: str):
    """Raises a `ValueError` for an option that no single run can have, also where it is abbreviated."""
    for option, why in NOT_PASSED_ON.items():
        if is_option(argument, option):
            raise ValueError(f"{option} cannot come after `--`: {why}.")


def main(arguments: list[str]):
    place = arguments.index("--") if "--" in arguments else len(arguments)
    if {"-h", "--help"} & set(arguments[:place]):
        print(__doc__)
        parse([CrossValidationArguments], ["--help"])
    if place == len(arguments):
        raise SystemExit(__doc__)
    (args,) = parse([CrossValidationArguments], arguments[:place])
    if args.compare_to is not None and not (Path(args.compare_to) / PREDICTIONS).exists():
        raise ValueError(f"--compare_to {args.compare_to} has no {PREDICTIONS} of a cross-validation.")
    passed_on = arguments[place + 1 :]
    recipes = list(itertools.takewhile(lambda argument: argument.endswith(RECIPES), passed_on))
    for argument in passed_on:
        check_passed_on(argument)
        # In a recipe it is the corpus's, for folds that are made.
        if args.folds_file is not None and is_option(argument, "--validation_fraction"):
            raise ValueError("--validation_fraction cannot be given with --folds_file, which says what is validated.")
    for recipe in recipes:
        for name in yaml.safe_load(Path(recipe).read_text(encoding="utf-8")) or ():
            if name in ("push_to_hub", "hub_token"):
                check_passed_on(f"--{name}")
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    # Only the runs train. Waiting for the others may take as long as a run.
    state = PartialState(cpu=True, timeout=timedelta(days=30))
    output = Path(args.output_dir)
    # Without TrainingArguments, which would set up this process as a training one.
    model_args, data = parse([ModelArguments, DataTrainingArguments], passed_on, only_these=False)
    if model_args.method in UNTRAINED and args.learning_rates:
        raise ValueError(f"--learning_rates cannot be given with --method {model_args.method}, which is not trained.")
    with state.main_process_first():
        folds_file, folds, names, timelines = prepare_folds(args, data, model_args.calibrate)
    contents = fingerprints(timelines, recipes)

    def run(fold: int, rate: str | None, seed: int) -> Run:
        script = Path(run_glue_style.__file__)
        return Run(output, folds_file, fold, rate, seed, passed_on, script, folds[fold], contents)

    rates = args.learning_rates or [None]
    tuned = range(1 if args.tune_on_first_fold else len(folds))
    candidates = {fold: [run(fold, rate, args.seeds[0]) for rate in rates] for fold in tuned}
    if len(rates) > 1:
        run_all([one for of_fold in candidates.values() for one in of_fold], state, "Learning rates")
    best = {
        fold: of_fold[0] if len(rates) == 1 else max(of_fold, key=Run.dev_score)
        for fold, of_fold in candidates.items()
    }
    chosen = {fold: best[fold if fold in best else 0].learning_rate for fold in range(len(folds))}
    runs = [run(fold, rate, seed) for fold, rate in chosen.items() for seed in args.seeds]
    run_all(runs, state, "Folds and seeds")
    if state.is_main_process:
        print(collect(output, runs, names))
        if args.compare_to is not None:
            found = compare(output, Path(args.compare_to), names)
            low, high = found["interval"]
            print(f"macro F1 less that of {args.compare_to}: {found['difference']:+.4f} ({low:+.4f} to {high:+.4f})")
    state.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
