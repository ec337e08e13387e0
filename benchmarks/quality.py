r"""What the README's commands learn on real posts, and what each part of the default is worth.

    python benchmarks/quality.py commands --model_name_or_path google-bert/bert-base-uncased \
        --lrs threads.jsonl.gz --annomi annomi_full.csv.gz --output_dir outputs/quality
    python benchmarks/quality.py time --model_name_or_path google-bert/bert-base-uncased \
        --ubuntu_irc train --output_dir outputs/time
    python benchmarks/quality.py parts --output_dir outputs/parts -- \
        --task_name lrs --model_name_or_path google-bert/bert-base-uncased --train_file threads.jsonl.gz

`commands`: small and whole corpora, four seeds, each with parts of its own. A fifth of the timelines is held out,
another one for each seed (of IRC, thirty days). Of the others so many are drawn as a row of the table says; the
commands split them into training and validation posts. Each run is a process of its own, and its seconds are those of
the whole command, from start to predictions. Differences are of the first method less the row's.

`parts`: the default with one field of the configuration changed, over the same five folds. What comes after `--` goes
to run_cross_validation.py.

`time`: the default, and the same with less time, on all timelines that are not held out: without any, and, of the
network alone, rotated by time, by the distance in posts and not at all. Differences are to the row above that has more
time.

Differences are of the posts of all seeds together, with 95 % intervals over their timelines.

Finished runs are not repeated.
"""

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from datasets import Dataset
from sklearn.metrics import f1_score

from modeling_tempoformer.data.post_splits import load_file
from modeling_tempoformer.data.splits import cut
from modeling_tempoformer.data.synthetic import synthetic_posts
from modeling_tempoformer.data.timelines import label_names, to_timelines
from modeling_tempoformer.evaluation.significance import paired_bootstrap


ROOT = Path(__file__).parents[1]
FOLDS, FOLD_SEED = 5, 0
# How many timelines to train on; None for all that are not held out.
SIZES = {
    "lrs": (30, 70, None),
    "topic_shift": (20, None),
    "annomi": (40, None),
    "mood_diaries": (30, None),
    "ubuntu_irc": (1000,),
    "synthetic": (60,),
}
SYNTHETIC_TIMELINES = 200
COMMANDS = {
    "TempoFormer": "run_glue_style.py --do_train --do_eval --do_predict",
    "trained encoder": "run_glue_style.py configuration/default.yaml configuration/trained_encoder.yaml "
    "--do_train --do_eval --do_predict",
    "BiLSTM": "run_baseline.py --method bilstm",
    "trees": "run_baseline.py --method trees",
    "post alone": "run_baseline.py --method post",
    "position and time": "run_baseline.py --method position_and_time",
    "class prior": "run_baseline.py --method class_prior",
}
IN_MINUTES = [name for name in COMMANDS if name != "trained encoder"]
WITHOUT_ENCODER = ("position and time", "class prior")
# Fields of the configuration that differ from configuration/default.yaml.
PARTS = {
    "default": {},
    "two layers": {"num_stream_layers": 2},
    "a quarter of the width": {"stream_hidden_size": 48},
    "pooling [CLS]": {"post_pooling": "cls"},
    "rotated by the distance in posts": {"stream_attention": "rotary"},
    "no rotation": {"stream_attention": "full"},
    "positions as small as published": {"stream_position_initializer_range": 0.02},
}

NETWORK = {"num_trees": 0}
# Fields of the configuration, and the row that each is compared with. Without times the table of posts has none.
TIMES = {
    "default": ({}, None),
    "no times": ({}, "default"),
    "network alone": (NETWORK, "default"),
    "network, rotated by the distance in posts": ({**NETWORK, "stream_attention": "rotary"}, "network alone"),
    "network, no rotation": ({**NETWORK, "stream_attention": "full"}, "network alone"),
}
IRC_DAYS = 30


def run(script: str, *arguments: str | Path, **settings):
    subprocess.run([sys.executable, ROOT / script, *map(str, arguments)], check=True, **settings)


def read_corpora(args: argparse.Namespace) -> Iterator[tuple[str, list[str], Dataset, pd.DataFrame]]:
    """The name of each corpus that is given, its classes, its timelines that have labels, and its posts."""
    for corpus in SIZES:
        path = getattr(args, corpus, None)
        if corpus == "synthetic":
            posts = Dataset.from_list(list(synthetic_posts(SYNTHETIC_TIMELINES, seed=0)))
        elif path is not None:
            posts = load_file(path, corpus)
        else:
            continue
        names = label_names(posts)
        # Most of IRC has no label.
        timelines = to_timelines(posts, names).filter(lambda timeline: max(timeline["labels"]) >= 0)
        yield corpus, names, timelines, posts.to_pandas()


def split(corpus: str, timelines: Dataset, seed: int, most: int | None) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the timelines that a seed learns from, in random order, and of those that it is scored on."""
    rest, test = cut(timelines, FOLDS, FOLD_SEED)[seed % FOLDS]
    if corpus == "ubuntu_irc":
        days = np.array([name[: len("2000-01-01")] for name in timelines["timeline_id"]])
        is_test = np.isin(days, np.random.default_rng(seed).permutation(np.unique(days))[:IRC_DAYS])
        rest, test = np.flatnonzero(~is_test), np.flatnonzero(is_test)
    return np.random.default_rng(seed).permutation(rest)[:most], test


def run_commands(args: argparse.Namespace) -> pd.DataFrame:
    """A row for each corpus, size and method."""
    rows = []
    for corpus, names, timelines, posts in read_corpora(args):
        for size in SIZES[corpus]:
            runs: dict[str, list[tuple[pd.DataFrame, float]]] = {method: [] for method in args.methods}
            for seed in args.seeds:
                folder = args.output_dir / f"{corpus}-{size or 'all'}-{seed}"
                files = write_posts(folder, posts, timelines, *split(corpus, timelines, seed, size))
                options = ["--labels", *names, "--seed", str(seed)]
                for method, of_method in runs.items():
                    model = [] if method in WITHOUT_ENCODER else ["--model_name_or_path", args.model_name_or_path]
                    output = folder / method.replace(" ", "_")
                    of_method.append(run_command(COMMANDS[method], output, [*model, *files, *options], seed))
            for method, of_method in runs.items():
                predicted, seconds = zip(*of_method, strict=True)
                row = {"corpus": corpus, "size": size or "all", "method": method, **scores(predicted)}
                row["one_class"] = sum(of_seed["prediction"].nunique() == 1 for of_seed in predicted)
                row["seconds"] = np.median(seconds)
                if method != args.methods[0]:
                    row |= compare([of_seed for of_seed, _ in runs[args.methods[0]]], predicted, names)
                rows.append(row)
    return pd.DataFrame(rows).set_index(["corpus", "size", "method"])


def run_times(args: argparse.Namespace) -> pd.DataFrame:
    """A row for each corpus and use of time."""
    rows = []
    for corpus, names, timelines, posts in read_corpora(args):
        found: dict[str, list[pd.DataFrame]] = {name: [] for name in TIMES}
        for seed, (name, (fields, _)) in product(args.seeds, TIMES.items()):
            output = args.output_dir / corpus / str(seed) / name.replace(" ", "_")
            of_run = posts.drop(columns="timestamp") if name == "no times" else posts
            files = write_posts(output, of_run, timelines, *split(corpus, timelines, seed, args.most))
            options = ["--labels", *names, "--seed", str(seed), "--config_overrides", json.dumps(fields)]
            options += ["--model_name_or_path", args.model_name_or_path]
            found[name].append(run_command(COMMANDS["TempoFormer"], output, [*files, *options], seed)[0])
        for name, (_, other) in TIMES.items():
            rows.append({"corpus": corpus, "variant": name, **scores(found[name])})
            if other is not None:
                rows[-1] |= {"compared_with": other, **compare(found[name], found[other], names)}
    return pd.DataFrame(rows).set_index(["corpus", "variant"])


def write_posts(
    folder: Path, posts: pd.DataFrame, timelines: Dataset, drawn: np.ndarray, held_out: np.ndarray
) -> list[str]:
    """The arguments that name the files, of drawn timelines and of those that are held out."""
    ids = np.array(timelines["timeline_id"])
    folder.mkdir(parents=True, exist_ok=True)
    arguments = []
    for option, chosen in (("train_file", drawn), ("test_file", held_out)):
        path = folder / f"{option}.csv"
        posts[posts["timeline_id"].isin(ids[chosen])].to_csv(path, index=False)
        arguments += [f"--{option}", str(path)]
    return arguments


def run_command(command: str, output: Path, arguments: list[str], seed: int) -> tuple[pd.DataFrame, float]:
    """The predictions of the posts that have a label, and the seconds of a command."""
    done = output.with_suffix(".json")
    if not done.exists():
        start = time.perf_counter()
        with output.with_suffix(".log").open("w", encoding="utf-8") as log:
            run(*shlex.split(command), *arguments, "--output_dir", output, stdout=log, stderr=log)
        done.write_text(json.dumps({"seconds": time.perf_counter() - start}) + "\n", encoding="utf-8")
    predicted = pd.read_csv(output / "_predictions.csv", dtype=str, keep_default_na=False)
    # A timeline of another seed is another one.
    predicted["timeline_id"] += f" {seed}"
    seconds = json.loads(done.read_text(encoding="utf-8"))["seconds"]
    return predicted[predicted["label"] != ""], seconds


def scores(predicted: Sequence[pd.DataFrame]) -> dict[str, float]:
    """Macro F1 in percent over the seeds."""
    of_seeds = [100 * f1_score(of_seed["label"], of_seed["prediction"], average="macro") for of_seed in predicted]
    return {"macro_f1": np.mean(of_seeds), "worst": min(of_seeds), "best": max(of_seeds)}


def compare(ours: Sequence[pd.DataFrame], theirs: Sequence[pd.DataFrame], names: list[str]) -> dict[str, float]:
    """Our macro F1 less theirs on the posts of all seeds together, in percent, and its interval over timelines."""
    ids = {name: number for number, name in enumerate(names)}
    own, other = (pd.concat(of) for of in (ours, theirs))
    both = own.merge(other, on=["timeline_id", "post_id"], validate="one_to_one", suffixes=("", "_of_other"))
    if not len(own) == len(both) == len(other):
        raise ValueError("The two methods predicted other posts.")
    classes = [both[column].map(ids) for column in ("label", "prediction", "prediction_of_other")]
    paired = paired_bootstrap(*classes, both["timeline_id"], len(names))
    low, high = paired["interval"]
    return {"difference": 100 * paired["difference"], "low": 100 * low, "high": 100 * high}


def run_parts(args: argparse.Namespace) -> pd.DataFrame:
    """A row for each part."""
    rows = {}
    for name, overrides in PARTS.items():
        folder = args.output_dir / name.replace(" ", "_")
        changes = ["--config_overrides", json.dumps(overrides)] if overrides else []
        own = ["--output_dir", folder, "--seeds", *args.seeds]
        run("run_cross_validation.py", *own, "--", *args.passed_on, *changes)
        results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        rows[name] = {
            "macro F1": 100 * results["scores"]["macro_f1"]["mean"],
            "on validation": 100 * np.mean(results["validation_macro_f1"]),
            "seconds": results["train_seconds"],
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tables = parser.add_subparsers(required=True)
    commands, times, parts = (tables.add_parser(name) for name in ("commands", "time", "parts"))
    commands.set_defaults(make_table=run_commands)
    times.set_defaults(make_table=run_times)
    for table in (commands, times):
        table.add_argument("--model_name_or_path", required=True, help="An encoder.")
        table.add_argument("--lrs", help="RumourEval-2017's threads; left out if not given.")
        table.add_argument("--annomi", help="AnnoMI's table; left out if not given.")
        table.add_argument("--mood_diaries", help="The diaries' table; left out if not given.")
        table.add_argument("--ubuntu_irc", help="The folder of IRC's logs; left out if not given.")
        table.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3])
    # Its conversations have no times.
    commands.add_argument("--topic_shift", help="The folder of Topic Shift-MI's conversations; left out if not given.")
    times.add_argument("--most", type=int, help="Learn from so many timelines at most.")
    commands.add_argument("--methods", nargs="+", choices=COMMANDS, default=IN_MINUTES)
    parts.set_defaults(make_table=run_parts)
    parts.add_argument("--seeds", nargs="+", type=int, default=[0])
    parts.add_argument("passed_on", nargs="+", help="After `--`.")
    for table in (commands, times, parts):
        table.add_argument("--output_dir", type=Path, required=True)
    args = parser.parse_args()
    made = args.make_table(args)
    made.to_csv(args.output_dir / "table.csv")
    print(made.to_string(float_format="{:.1f}".format))


if __name__ == "__main__":
    main()
