r"""
Predicts posts by a method that the Trainer does not train. `tempoformer compare` runs it for each fold.

    python -m modeling_tempoformer.commands.baseline --method trees --do_predict --train_file posts.csv \
        --model_name_or_path sentence-transformers/all-MiniLM-L6-v2 --output_dir outputs/trees

`--method` is one of class_prior, position_and_time, words, trees, predicted_states; the last two need an encoder.
"""

from collections.abc import Callable, Collection
from pathlib import Path

from transformers import set_seed

from ..baselines.methods import BASELINES, Baseline, UntrainedBaseline
from ..common.arguments import check_steps, wanted_splits
from ..common.command_line import check_read, options_given, parse, run_script
from ..common.files import lock_folder, write_json
from ..evaluation.figures import print_figures, write_test_figures
from ..evaluation.latex import write_test_table
from ..evaluation.method_names import checkpoint_name
from ..evaluation.prediction_table import (
    GIVEN,
    GIVEN_BUT_TEXTS,
    prediction_rows,
    write_mistakes,
    write_predictions,
)
from ..evaluation.report import RESULTS, group_by_class, results_table, score_part
from ..posts.arguments import DataTrainingArguments
from ..posts.post_splits import Splits, choose_change_step, choose_label_names, load_splits, split_posts
from ..timeline_tempoformer import Timeline
from ..training.arguments import read_of_posts
from ..training.resuming import clear_results
from ..training.stream_trainer import StreamTrainingArguments


def check_method(baseline: Baseline, data: DataTrainingArguments, training: StreamTrainingArguments):
    """Raises a `ValueError` for arguments that a method does not support."""
    method = f"--method {baseline.method}"
    if data.streaming:
        raise ValueError(f"{method} does not support --streaming: leave it out.")
    if not getattr(training, baseline.needs):
        raise ValueError(f"{method} needs --{baseline.needs}.")
    if training.push_to_hub and not baseline.is_stock:
        raise ValueError(f"--push_to_hub: a model of {method} cannot be loaded without this package.")


def start(kind: type[Baseline], arguments: list[str], run: Callable, fold: dict[str, list[str]] | None):
    """
    Parses and checks the arguments of a method, and calls `run` with them in its output folder. `fold` has the ids of
    the timelines of each part; if it is None, the arguments say how the posts are split.
    """
    baseline, data, training = parse([kind, DataTrainingArguments, StreamTrainingArguments], arguments)
    data.fold = fold
    check_method(baseline, data, training)
    check_steps(training, baseline.calibrate)
    given = options_given(arguments)
    # Untrained methods divide the posts of a training, too.
    reads = read_of_posts(data, training, baseline.calibrate) if baseline.needs == "do_train" else {}
    method = f"by --method {baseline.method}"
    unread = dict.fromkeys(("known_states", "freeze_encoder", "freeze_layers", "no_change_label"), (False, method))
    check_read(given, {**reads, **unread})
    with lock_folder(training.output_dir, training.process_index == 0):
        run(given, baseline, data, training)


def main(arguments: list[str], fold: dict[str, list[str]] | None = None):
    kind, arguments = BASELINES.read(arguments)
    start(kind, arguments, run_untrained, fold)


def run_untrained(
    given: Collection[str], baseline: UntrainedBaseline, data: DataTrainingArguments, training: StreamTrainingArguments
):
    """Predicts the test part. `given` are the names of the options of the command line."""
    set_seed(training.seed)
    splits, names = split_for_baseline(given, baseline, data, training)
    predict_test(baseline, splits.timelines, names, data, training)


def split_for_baseline(
    given: Collection[str], baseline: Baseline, data: DataTrainingArguments, training: StreamTrainingArguments
) -> tuple[Splits, list[str]]:
    """Reads and divides the posts. Returns the splits and the names of the classes."""
    posts = load_splits(data, baseline.cache_dir, baseline.token)
    names = choose_label_names(posts, data)
    # Untrained methods also need training posts, for class shares or prompt examples.
    wanted = list(dict.fromkeys(["train", *wanted_splits(training, baseline.calibrate)]))
    splits = split_posts(
        posts,
        data,
        names,
        wanted,
        training.seed,
        model=baseline.model_name_or_path,
        calibrates=baseline.calibrate,
        change_step=choose_change_step(posts, data),
        given=given,
    )
    return splits, names


def predict_test(
    baseline: UntrainedBaseline,
    timelines: dict[str, list[Timeline]],
    names: list[str],
    data: DataTrainingArguments,
    training: StreamTrainingArguments,
):
    """Predicts the test part without training, and writes the files that a training writes."""
    predictions, probabilities = baseline.predict(timelines, names, data, training.seed)
    test = timelines["test"]
    scores = score_part(test, predictions, probabilities, names, timelines["train"])
    results = group_by_class(scores, "predict", names)
    print(results_table("test", results))
    clear_results(training)
    write_json(Path(training.output_dir) / RESULTS, {"test": results})
    table = prediction_rows(test, predictions, probabilities, names, GIVEN_BUT_TEXTS if data.no_text else GIVEN)
    write_predictions(training.output_dir, table)
    write_mistakes(training.output_dir, table, test)
    write_test_figures(training.output_dir, test, predictions, probabilities, names)
    write_test_table(training.output_dir, results, baseline.method, checkpoint_name(baseline.source))
    print_figures(training.output_dir)


if __name__ == "__main__":
    run_script(main)
