r"""Compares methods on the same folds: cross-validates each by timeline, and makes a table.

    tempoformer compare --output_dir outputs/compare --methods default trees words position_and_time -- \
        --model_name_or_path sentence-transformers/all-MiniLM-L6-v2 --train_file posts.csv
    tempoformer compare --output_dir outputs/lrs --learning_rates 1e-5 5e-6 -- \
        lrs_paper.yaml --model_name_or_path google-bert/bert-base-uncased --train_file lrs.csv

The arguments after `--` go to `tempoformer train`, once for each fold, learning rate and seed (paper, section 5.2).
With `--num_folds 1` each seed has the same parts, by files or shares, as `tempoformer train` makes them.
With `--methods` they go to every method, each in a folder of its own, and a table compares all methods with the first
one. Each run has a folder with its results and a `run.log`. Give the same command again to continue after an
interruption: finished runs are skipped. With several GPUs, set CUDA_VISIBLE_DEVICES to one of them; other seeds can
run on another GPU at the same time, in another --output_dir.
"""

import hashlib
import logging
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

from transformers import AutoConfig

from ..baselines.methods import BASELINES, Baseline, Methods
from ..common.command_line import check_read, options_given, parse, split_recipes, without_options
from ..common.files import lock_folder, write_json
from ..common.markdown import table as markdown_table
from ..common.renamed_options import RENAMED_METHOD, check_renamed
from ..common.splits import SPLITS
from ..evaluation.cross_validation import FOLDS, PROCESSES, CrossValidation, collect, compare_all
from ..evaluation.latex import write_latex
from ..evaluation.method_names import checkpoint_name, method_name
from ..evaluation.predictions import all_labels
from ..posts.arguments import DataTrainingArguments
from ..posts.model_fields import class_weights
from ..posts.post_splits import (
    check_calibration,
    check_division,
    choose_change_step,
    choose_label_names,
    divide,
    load_splits,
)
from ..posts.reading import make_timelines
from ..posts.splits import check_apart, check_tested_once, make_folds, read_folds, select_fold
from ..posts.surveys import survey
from ..timeline_tempoformer import Timeline
from ..training.arguments import ModelArguments
from ..training.fine_tuning import with_default_settings
from .fold import run_fold


logger = logging.getLogger(__name__)

COMPARISON = "comparison"
FOLD_SEED = 0
DEFAULT = "default"
TRAIN = "modeling_tempoformer.training.fine_tuning:train"
# What a run imports, the figures' libraries, too
PROCESSES.set_forkserver_preload(
    [
        *(program.split(":")[0] for program in (TRAIN, BASELINES.program)),
        *(f"matplotlib.backends.backend_{form}" for form in ("agg", "pdf", "svg")),
    ]
)
# Options that no baseline reads
UNREAD = {"known_states", "freeze_encoder", "freeze_layers", "no_change_label"}
# Arguments that must not come after `--`. A run's folder names timelines, so it is never pushed.
NOT_PASSED_ON = ("output_dir", "seed", "token", "hub_token", "push_to_hub")


@dataclass
class CompareArguments:
    """The runs of a cross-validation."""

    output_dir: str = field(metadata={"help": "Folder of all runs, results.json and predictions.csv."})
    methods: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Methods to compare on the same folds. The others are compared with the first.",
            "choices": (DEFAULT, *BASELINES.names),
        },
    )
    num_folds: int = field(
        default=5,
        metadata={
            "help": "Number of folds, without --folds_file. 1: the parts of `tempoformer train`, by files or shares."
        },
    )
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


def arguments_of(method: str, passed_on: list[str], methods: Methods) -> list[str]:
    """Returns the arguments of each run of one of several methods, without those that the method cannot read."""
    if method == DEFAULT:
        return passed_on
    if ignored := sorted(UNREAD & options_given(passed_on)):
        logger.warning("%s does not read %s.", method, ", ".join(f"--{name}" for name in ignored))
    # A method's own settings override those for the default, and it has no fields of the default's configuration.
    return [*methods.add(method, without_options(passed_on, UNREAD)), "--config_overrides", "null"]


def read_run(arguments: list[str], methods: Methods) -> tuple[ModelArguments, DataTrainingArguments, list[str]]:
    """Parses the model and data arguments of a run. Returns them, and all arguments after the method's recipe."""
    kind, arguments = methods.read(arguments)
    if kind is Baseline:
        kind, arguments = ModelArguments, with_default_settings(arguments)
    # Parsing training arguments would set up a device.
    return *parse([kind, DataTrainingArguments], arguments, only_these=False), arguments


def prepare_folds(
    args: CompareArguments,
    model_args: ModelArguments,
    data: DataTrainingArguments,
    given: Collection[str] = (),
) -> tuple[list[dict[str, list[str]]], list[str], list[Timeline]]:
    """
    Returns the folds, the label names and the timelines. Checks every fold before the first run. `given` is the
    argument of [`check_read`] for the runs.
    """
    if data.streaming:
        raise ValueError("Cross-validation splits all posts: leave out --streaming.")
    has_one_split = args.num_folds == 1 and args.folds_file is None
    if data.split_by != "timeline":
        raise ValueError("Cross-validation tests on every timeline once, and has no dates: leave out --split_by date.")
    splits = load_splits(data, model_args.cache_dir)
    if has_one_split:
        check_division(given, splits, data, is_streamed=False, has_members=False)
    else:
        check_read(given, dict.fromkeys(("test_fraction", "split_seed"), (False, "with folds")))
        if set(splits) != {"train"}:
            raise ValueError("Cross-validation splits --train_file: give no other file.")
    names = choose_label_names(splits, data)
    change_step = choose_change_step(splits, data)
    parts = make_timelines(splits, data, names, change_step)
    timelines = list(chain.from_iterable(parts.values()))
    if has_one_split:
        check_apart(parts)
        parts = divide(parts, data, args.seeds[0] if data.split_seed is None else data.split_seed, has_members=False)
        if missing := [name for name in SPLITS if name not in parts]:
            raise ValueError(f"There is no {missing[0]} split: give --{missing[0]}_file.")
        folds = [{name: [timeline.timeline_id for timeline in part] for name, part in parts.items()}]
    elif args.folds_file is None:
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
            for name in ("validation", "test"):
                if all_labels(parts[name]).max() < 0:
                    raise ValueError(f"the {name} split has no labelled post.")
        except ValueError as problem:
            raise ValueError(f"Fold {number}: {problem}") from None
    return folds, names, timelines


def write_comparison(
    output_dir: Path,
    methods: Sequence[str],
    names: list[str],
    encoder: str | None = None,
    titles: Mapping[str, str] | None = None,
) -> str:
    """
    Compares cross-validations, see [`compare_all`]. Writes `comparison.csv`, and tables for readers as `.tex` and
    `.md`. Returns the table for readers as text.
    """
    rows, table, caption = compare_all(output_dir, methods, names, encoder, titles)
    path = output_dir / COMPARISON
    rows.to_csv(path.with_suffix(".csv"), index_label="method")
    write_latex(path.with_suffix(".tex"), {COMPARISON: (caption, table)})
    rows_of_text = ([method, *cells] for method, cells in zip(table.index, table.to_numpy(), strict=True))
    path.with_suffix(".md").write_text(f"{markdown_table(['', *table.columns], rows_of_text)}\n", encoding="utf-8")
    return table.to_string()


def main(arguments: list[str], methods: Methods = BASELINES, kind: type = CompareArguments):
    """Runs the command. `kind` is its class of arguments, whose module's docstring is its help; `methods` may run."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options, passed_on = arguments[:end], arguments[end + 1 :]
    if {"-h", "--help"} & set(options):
        print(sys.modules[kind.__module__].__doc__)
    if options.count(RENAMED_METHOD) > without_options(options, {"methods"}).count(RENAMED_METHOD):
        raise ValueError(f"--methods {RENAMED_METHOD} is gone: give --methods {DEFAULT}.")
    (args,) = parse([kind], options)
    if not passed_on:
        raise ValueError("Give the arguments of the runs after `--`.")
    given = options_given(passed_on)
    check_renamed(given, ())
    if refused := [name for name in NOT_PASSED_ON if name in given]:
        raise ValueError(
            f"--{refused[0]} cannot come after `--`: it differs between runs, or must not be in their files. A token "
            "can be given in HF_TOKEN, and a model of your choice can be pushed afterwards."
        )
    if args.methods and methods.read(passed_on)[0] is not Baseline:
        raise ValueError("A --method cannot come after `--` with --methods: name it there.")
    output_dir = Path(args.output_dir)
    commands = {output_dir / name: arguments_of(name, passed_on, methods) for name in args.methods}
    commands = commands or {output_dir: passed_on}
    # All arguments are checked before the first run.
    parsed = {folder: read_run(run_arguments, methods) for folder, run_arguments in commands.items()}
    model_args, data, _ = next(iter(parsed.values()))
    encoder, titles = checkpoint_name(model_args.model_name_or_path), {}
    with lock_folder(output_dir):
        folds, names, timelines = prepare_folds(args, model_args, data, given)
        for name in set(args.methods) - {DEFAULT}:
            methods.find(name).check_posts(timelines)
        posts = survey(timelines).fingerprint
        write_json(output_dir / FOLDS, folds)
        jobs = {}
        for folder, (model_args, _, run_arguments) in parsed.items():
            program = methods.program if isinstance(model_args, Baseline) else TRAIN
            recipes, _ = split_recipes(run_arguments)
            hashes = {path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in recipes}
            jobs[folder] = CrossValidation(
                folder,
                partial(run_fold, program),
                run_arguments,
                {"posts": posts, "recipes": hashes},
                output_dir / FOLDS,
                args.seeds,
                args.learning_rates,
                args.tune_on_first_fold,
            )
        logger.info("One run of each method comes first, and tells how many minutes all take.")
        firsts = [job.execute_first() for job in jobs.values()]
        if all(seconds is not None and others for seconds, others in firsts):
            minutes = sum(seconds * others for seconds, others in firsts) / 60
            logger.info("Runs left: %d; minutes: about %d.", sum(others for _, others in firsts), math.ceil(minutes))
        for folder, job in jobs.items():
            runs = job.execute_all()
            table = collect(folder, runs, names)
            if args.methods and folder.name == DEFAULT:
                titles[DEFAULT] = method_name(AutoConfig.from_pretrained(runs[0].folder).model_type)
        print(write_comparison(output_dir, args.methods, names, encoder, titles) if args.methods else table)
