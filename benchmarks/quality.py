r"""Measures what the README's commands learn on real posts.

    python -m benchmarks.quality --model_name_or_path google-bert/bert-base-uncased \
        --lrs threads.jsonl.gz --annomi annomi_full.csv.gz --output_dir outputs/quality
    python -m benchmarks.quality --model_name_or_path google-bert/bert-base-uncased \
        --ubuntu_irc train --output_dir outputs/time --methods default "no times"

Each of four seeds holds out another fifth of the timelines (thirty days of IRC; of TIAGE and MELD the published dev
part, where it is given) and draws the table's number of timelines from the others, which the commands split into
training and validation posts. Each run is a process, timed from its start to its predictions.

A difference is what another row (the first method, or a method that reads more of the time) is above this one by, in
macro F1 on the posts of all seeds together, with a 95 % interval over their timelines. Finished runs are not repeated.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from datasets import concatenate_datasets
from sklearn.metrics import f1_score

from modeling_tempoformer.evaluation.prediction_table import read_predictions
from modeling_tempoformer.evaluation.significance import paired_bootstrap
from modeling_tempoformer.posts.splits import cut
from modeling_tempoformer.posts.timelines import label_names, to_timelines
from modeling_tempoformer.timeline_tempoformer import Timeline
from research.corpora import read_corpus


FOLDS, FOLD_SEED = 5, 0
# Numbers of timelines to train on; 0 for all that are not held out.
SIZES = {
    "lrs": (30, 70, 0),
    "topic_shift": (20, 0),
    "annomi": (40, 0),
    "mood_diaries": (30, 0),
    "ubuntu_irc": (1000,),
    "tiage": (0,),
    "meld": (0,),
}
# Corpora that may have a part of their own to score on, by the beginning of its timelines' ids
DEV_PARTS = {"tiage": "anno_dev", "meld": "dev_sent_emo"}
IRC_DAYS = 30
ALL_STEPS = "--do_train --do_eval --do_predict"
METHODS = {
    "default": f"run_glue_style.py {ALL_STEPS}",
    "paper's model": f"run_glue_style.py configuration/lrs_fast.yaml {ALL_STEPS}",
    "BiLSTM": "-m research.run_baseline --method bilstm",
    "trees": "-m research.run_baseline --method trees",
    "post alone": "-m research.run_baseline --method post",
    "position and time": "-m research.run_baseline --method position_and_time",
    "words alone": "-m research.run_baseline --method words",
    "predicted states": "-m research.run_baseline --method predicted_states",
    "class prior": "-m research.run_baseline --method class_prior",
    "trained encoder": "run_glue_style.py configuration/default.yaml configuration/trained_encoder.yaml " + ALL_STEPS,
    "trained in bfloat16": (
        "run_glue_style.py configuration/default.yaml configuration/trained_encoder.yaml --use_cpu --bf16 " + ALL_STEPS
    ),
    "three layers frozen": (
        "run_glue_style.py configuration/default.yaml configuration/trained_encoder.yaml --freeze_layers 3 "
        + ALL_STEPS
    ),
    "five layers frozen": (
        "run_glue_style.py configuration/default.yaml configuration/trained_encoder.yaml --freeze_layers 5 "
        + ALL_STEPS
    ),
    # More evaluations than a training has
    "never stops early": f"run_glue_style.py --early_stopping_patience 9 {ALL_STEPS}",
    "onnx": f"run_glue_style.py --encoder_backend onnx {ALL_STEPS}",
    "onnx-int8": f"run_glue_style.py --encoder_backend onnx-int8 {ALL_STEPS}",
    "known states": f"run_glue_style.py --known_states {ALL_STEPS}",
    # Their posts lack a column.
    "no times": f"run_glue_style.py {ALL_STEPS}",
    "no states": f"run_glue_style.py {ALL_STEPS}",
    "no speakers": f"run_glue_style.py {ALL_STEPS}",
    "no trees": """run_glue_style.py --config_overrides '{"num_trees": 0}' """ + ALL_STEPS,
    "no words": """run_glue_style.py --config_overrides '{"num_words": 0}' """ + ALL_STEPS,
    "one member": """run_glue_style.py --config_overrides '{"num_members": 1}' """ + ALL_STEPS,
    "network alone": """run_glue_style.py --config_overrides '{"num_trees": 0, "num_words": 0}' """ + ALL_STEPS,
    "network, rotated by the distance in posts": (
        """run_glue_style.py --config_overrides '{"num_trees": 0, "num_words": 0, "stream_attention": "rotary"}' """
        + ALL_STEPS
    ),
    "network, no rotation": (
        """run_glue_style.py --config_overrides '{"num_trees": 0, "num_words": 0, "stream_attention": "full"}' """
        + ALL_STEPS
    ),
}
# Other projects' methods, in an environment of their own (`benchmarks/peers.py`)
PEERS = {
    name: f"-m benchmarks.peers --peer {name}"
    for name in ("setfit", "setfit_of_two", "static_linear", "static_trees", "chat")
}
METHODS |= PEERS
USUAL = ["default", "BiLSTM", "trees", "post alone", "position and time", "words alone", "class prior"]
# All others are compared with the first of --methods.
COMPARED_WITH = dict.fromkeys(("network, rotated by the distance in posts", "network, no rotation"), "network alone")
LEFT_OUT = {"no times": "timestamp", "no states": "state", "no speakers": "speaker"}
WITHOUT_ENCODER = ("position and time", "words alone", "class prior")


def read_corpora(args: argparse.Namespace) -> Iterator[tuple[str, list[str], list[Timeline], pd.DataFrame]]:
    """Yields name, classes, labelled timelines and posts of each given corpus."""
    for corpus in SIZES:
        if (path := getattr(args, corpus)) is not None:
            posts = concatenate_datasets([read_corpus(part, corpus) for part in path])
            names = label_names(posts)
            # Most timelines of IRC have no label.
            timelines = [timeline for timeline in to_timelines(posts, names) if max(timeline.labels) >= 0]
            yield corpus, names, timelines, posts.to_pandas()


def split(corpus: str, timelines: list[Timeline], seed: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the numbers of a seed's training timelines, in random order, and of its test timelines."""
    rest, test = cut(timelines, FOLDS, FOLD_SEED)[seed % FOLDS]
    if corpus == "ubuntu_irc":
        days = np.array([timeline.timeline_id[: len("2000-01-01")] for timeline in timelines])
        is_test = np.isin(days, np.random.default_rng(seed).permutation(np.unique(days))[:IRC_DAYS])
        rest, test = np.flatnonzero(~is_test), np.flatnonzero(is_test)
    if corpus in DEV_PARTS:
        is_test = np.array([timeline.timeline_id.startswith(DEV_PARTS[corpus]) for timeline in timelines])
        if is_test.any():
            rest, test = np.flatnonzero(~is_test), np.flatnonzero(is_test)
    return np.random.default_rng(seed).permutation(rest)[: size or None], test


def run(
    method: str, output: Path, parts: dict[str, pd.DataFrame], options: list[str], python: str
) -> tuple[pd.DataFrame, dict[str, float]]:
    """
    Runs a method's command. Returns the predictions of the labelled posts, and the seconds and MiB of memory that it
    took.
    """
    done = output.with_suffix(".json")
    if not done.exists():
        output.mkdir(parents=True, exist_ok=True)
        for part, posts in parts.items():
            path = output / f"{part}.csv"
            posts.drop(columns=LEFT_OUT.get(method, []), errors="ignore").to_csv(path, index=False)
            options = [*options, f"--{part}_file", path]
        command = [python, *shlex.split(METHODS[method]), *options, "--output_dir", output]
        start = time.perf_counter()
        with output.with_suffix(".log").open("w", encoding="utf-8") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
            _, status, used = os.wait4(process.pid, 0)
        if status:
            raise ChildProcessError(f"{method} failed: see {output.with_suffix('.log')}.")
        costs = {"seconds": time.perf_counter() - start, "MiB": used.ru_maxrss / 1024}
        done.write_text(json.dumps(costs) + "\n", encoding="utf-8")
    predicted = read_predictions(output / "_predictions.csv")
    return predicted[predicted["label"].notna()], json.loads(done.read_text(encoding="utf-8"))


def run_all(
    args: argparse.Namespace, corpus: str, size: int, names: list[str], timelines: list[Timeline], posts: pd.DataFrame
):
    """Runs all methods with all seeds. Returns for each method its predictions and its costs, by seed."""
    ids = np.array([timeline.timeline_id for timeline in timelines])
    results = {method: ([], []) for method in args.methods}
    for seed, method in product(args.seeds, args.methods):
        numbers = zip(("train", "test"), split(corpus, timelines, seed, size), strict=True)
        parts = {part: posts[posts["timeline_id"].isin(ids[rows])] for part, rows in numbers}
        options = ["--labels", *names, "--seed", str(seed)]
        if method not in WITHOUT_ENCODER:
            options += ["--model_name_or_path", args.model_name_or_path]
        if method in PEERS:
            values = {name: getattr(args, name) for name in ("static_vectors", "chat_model")}
            options += [word for name, value in values.items() if value for word in (f"--{name}", value)]
        python = args.peers_python if method in PEERS else sys.executable
        folder = args.output_dir / f"{corpus}-{size or 'all'}-{seed}"
        predicted, costs = run(method, folder / method.replace(" ", "_"), parts, options, python)
        # Ids differ between seeds, which may test the same timeline.
        results[method][0].append(predicted.assign(timeline_id=predicted["timeline_id"] + f" {seed}"))
        results[method][1].append(costs)
    return results


def compare(ours: Sequence[pd.DataFrame], theirs: Sequence[pd.DataFrame], names: list[str]) -> dict[str, float | str]:
    """Computes our macro F1 less theirs on the posts of all seeds, in percent, with an interval over timelines."""
    ids = {name: number for number, name in enumerate(names)}
    first, other = pd.concat(ours), pd.concat(theirs)
    both = first.merge(other, on=["timeline_id", "post_id"], validate="one_to_one", suffixes=("", "_of_other"))
    if not len(first) == len(both) == len(other):
        raise ValueError("The two methods predicted other posts.")
    classes = [both[column].map(ids) for column in ("label", "prediction", "prediction_of_other")]
    paired = paired_bootstrap(*classes, both["timeline_id"], len(names))
    low, high = paired["interval"]
    words = "cannot be told apart" if low <= 0 <= high else "above" if low > 0 else "below"
    return {"is": words, "by": 100 * paired["difference"], "low": 100 * low, "high": 100 * high}


def table_rows(args: argparse.Namespace) -> Iterator[dict]:
    """Yields a row for each corpus, size and method."""
    for corpus, names, timelines, posts in read_corpora(args):
        for size in args.sizes or SIZES[corpus]:
            results = run_all(args, corpus, size, names, timelines, posts)
            for method, (predicted, costs) in results.items():
                scores = [100 * f1_score(run["label"], run["prediction"], average="macro") for run in predicted]
                row = {"corpus": corpus, "size": size or "all", "method": method, "macro_f1": np.mean(scores)}
                row |= {"worst": min(scores), "best": max(scores)}
                row["one_class"] = sum(run["prediction"].nunique() == 1 for run in predicted)
                row |= {cost: np.median([run[cost] for run in costs]) for cost in costs[0]}
                other = COMPARED_WITH.get(method)
                other = other if other in results else args.methods[0]
                if method != other:
                    row |= {"other": other, **compare(results[other][0], predicted, names)}
                yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_name_or_path", required=True, help="An encoder.")
    parser.add_argument("--lrs", nargs=1, help="RumourEval-2017's threads.")
    parser.add_argument("--topic_shift", nargs=1, help="The folder of Topic Shift-MI's conversations.")
    parser.add_argument("--annomi", nargs=1, help="AnnoMI's table.")
    parser.add_argument("--mood_diaries", nargs=1, help="The diaries' table.")
    parser.add_argument("--ubuntu_irc", nargs=1, help="The folder of IRC's logs.")
    parser.add_argument("--tiage", nargs="+", help="TIAGE's files of training and of dev.")
    parser.add_argument("--meld", nargs="+", help="MELD's files of training and of dev.")
    parser.add_argument("--sizes", nargs="+", type=int, help="Training timelines of each corpus, 0 for all.")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=USUAL)
    parser.add_argument("--peers_python", default=sys.executable, help="The Python that has SetFit and model2vec.")
    parser.add_argument("--static_vectors", help="A folder of model2vec.")
    parser.add_argument("--chat_model", help="A file in the format GGUF.")
    parser.add_argument("--output_dir", type=Path, required=True)
    args = parser.parse_args()
    table = pd.DataFrame(table_rows(args)).set_index(["corpus", "size", "method"])
    table.to_csv(args.output_dir / "table.csv")
    print(table.to_string(float_format="{:.1f}".format))


if __name__ == "__main__":
    main()
