r"""What the README's commands learn on real posts, and what each part of the default is worth.

    python benchmarks/quality.py commands --model_name_or_path google-bert/bert-base-uncased \
        --lrs threads.jsonl.gz --annomi annomi_full.csv.gz --output_dir outputs/quality
    python benchmarks/quality.py time --model_name_or_path google-bert/bert-base-uncased \
        --ubuntu_irc train --output_dir outputs/time
    python benchmarks/quality.py parts --output_dir outputs/parts -- \
        --task_name lrs --model_name_or_path google-bert/bert-base-uncased --train_file threads.jsonl.gz

`commands`: small and whole corpora, three seeds, each with parts of its own. A fifth of the timelines is held out,
another one for each seed. Of the others so many are drawn as a row of the table says; the commands split them into
training and validation posts. Each run is a process of its own, and its seconds are those of the whole command, from
start to predictions. Every TempoFormer run also scores position and time alone.

`parts`: the default with one field of the configuration changed, over the same five folds. What comes after `--` goes
to run_cross_validation.py.

`time`: the default, and the same with less time, on all timelines that are not held out: without any, and, of the
network alone, rotated by time, by the distance in posts and not at all. Of IRC thirty days are held out. Differences
are to the row above that has more time, with 95 % intervals over the timelines of all seeds.

Finished runs are not repeated.
"""

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
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
    "ubuntu_irc": (300,),
    "synthetic": (60,),
}
SYNTHETIC_TIMELINES = 200
COMMANDS = {
    "TempoFormer": "run_glue_style.py --do_train --do_eval --do_predict",
    "BiLSTM": "run_baseline.py --method bilstm",
    "trees": "run_baseline.py --method trees",
    "post alone": "run_baseline.py --method post",
    "class prior": "run_baseline.py --method class_prior",
}
WITHOUT_ENCODER = ("class prior",)
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


def run_commands(args: argparse.Namespace) -> pd.DataFrame:
    """A row for each corpus, size and method."""
    rows = []
    for corpus, names, timelines, posts in read_corpora(args):
        sizes = SIZES[corpus]
        for seed, size in product(args.seeds, sizes):
            place = {"corpus": corpus, "size": size or "all", "seed": seed}
            folder = args.output_dir / "-".join(map(str, place.values()))
            rest, held_out = cut(timelines, FOLDS, FOLD_SEED)[seed % FOLDS]
            drawn = np.random.default_rng(seed).permutation(rest)[:size]
            files = write_posts(folder, posts, timelines, drawn, held_out)
            for method in args.methods:
                found = run_method(method, folder, [*files, "--labels", *names, "--seed", str(seed)], args)
                rows.append({**place, "method": method, **found})
                if "position_and_time" in found:
                    free = {"macro_f1": found["position_and_time"], "one_class": False, "seconds": 0}
                    rows.append({**place, "method": "position and time", **free})
    return (
        pd.DataFrame(rows)
        .assign(macro_f1=lambda table: 100 * table["macro_f1"])
        .groupby(["corpus", "size", "method"], sort=False)
        .agg(
            macro_f1=("macro_f1", "mean"),
            worst=("macro_f1", "min"),
            one_class=("one_class", "sum"),
            runs=("seed", "count"),
            seconds=("seconds", "median"),
        )
    )


def run_times(args: argparse.Namespace) -> pd.DataFrame:
    """A row for each corpus and use of time."""
    rows = []
    for corpus, names, timelines, posts in read_corpora(args):
        found: dict[str, list[pd.DataFrame]] = {name: [] for name in TIMES}
        for seed in args.seeds:
            rest, held_out = cut(timelines, FOLDS, FOLD_SEED)[seed % FOLDS]
            if corpus == "ubuntu_irc":
                days = np.array([name[: len("2000-01-01")] for name in timelines["timeline_id"]])
                is_held_out = np.isin(days, np.random.default_rng(seed).permutation(np.unique(days))[:IRC_DAYS])
                rest, held_out = np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)
            rest = np.random.default_rng(seed).permutation(rest)[: args.most]
            for name, (fields, _) in TIMES.items():
                folder = args.output_dir / corpus / str(seed) / name.replace(" ", "_")
                of_run = posts.drop(columns="timestamp") if name == "no times" else posts
                files = write_posts(folder, of_run, timelines, rest, held_out)
                if not (folder / "_predictions.csv").exists():
                    own = ["--model_name_or_path", args.model_name_or_path, "--output_dir", folder]
                    own += ["--labels", *names, "--seed", str(seed), "--config_overrides", json.dumps(fields)]
                    with (folder / "log").open("w", encoding="utf-8") as log:
                        run(*shlex.split(COMMANDS["TempoFormer"]), *files, *own, stdout=log, stderr=log)
                predicted = pd.read_csv(folder / "_predictions.csv", dtype=str, keep_default_na=False)
                predicted["timeline_id"] += f" {seed}"
                found[name].append(predicted[predicted["label"] != ""])
        ids = {name: number for number, name in enumerate(names)}
        for name, (_, other) in TIMES.items():
            own, compared = (pd.concat(found[of]) for of in (name, other or name))
            scores = [f1_score(of_seed["label"], of_seed["prediction"], average="macro") for of_seed in found[name]]
            rows.append({"corpus": corpus, "variant": name, "macro F1": 100 * np.mean(scores)})
            if other is not None:
                columns = [of[column].map(ids) for of, column in ((own, "label"), (own, "prediction"))]
                paired = paired_bootstrap(*columns, compared["prediction"].map(ids), own["timeline_id"], len(names))
                low, high = (100 * end for end in paired["interval"])
                rows[-1] |= {
                    "compared with": other,
                    "difference": 100 * paired["difference"],
                    "low": low,
                    "high": high,
                }
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


def run_method(method: str, folder: Path, arguments: list[str], args: argparse.Namespace) -> dict[str, float | bool]:
    """The score and the seconds of a command, which are kept in a file."""
    output = folder / method.replace(" ", "_")
    done = output.with_suffix(".json")
    if not done.exists():
        model = [] if method in WITHOUT_ENCODER else ["--model_name_or_path", args.model_name_or_path]
        command = [*shlex.split(COMMANDS[method]), *model, *arguments, "--output_dir", str(output)]
        start = time.perf_counter()
        with output.with_suffix(".log").open("w", encoding="utf-8") as log:
            run(*command, stdout=log, stderr=log)
        seconds = time.perf_counter() - start
        test = json.loads((output / "all_results.json").read_text(encoding="utf-8"))["test"]
        predicted = pd.read_csv(output / "_predictions.csv", dtype=str, keep_default_na=False)
        labels_given = predicted[predicted["label"] != ""]["prediction"].nunique()
        found = {"macro_f1": test["macro_f1"], "one_class": labels_given == 1, "seconds": seconds}
        if method == "TempoFormer":
            found["position_and_time"] = test["compared_with"]["position_and_time"]["macro_f1"]
        done.write_text(json.dumps(found) + "\n", encoding="utf-8")
    return json.loads(done.read_text(encoding="utf-8"))


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
        table.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    # Its conversations have no times.
    commands.add_argument("--topic_shift", help="The folder of Topic Shift-MI's conversations; left out if not given.")
    times.add_argument("--most", type=int, help="Learn from so many timelines at most.")
    commands.add_argument("--methods", nargs="+", choices=COMMANDS, default=list(COMMANDS))
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
