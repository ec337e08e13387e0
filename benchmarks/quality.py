r"""What the README's commands learn on real posts, and what each part of the default is worth.

    python benchmarks/quality.py commands --model_name_or_path google-bert/bert-base-uncased \
        --lrs threads.jsonl.gz --annomi annomi_full.csv.gz --output_dir outputs/quality
    python benchmarks/quality.py parts --output_dir outputs/parts -- \
        --task_name lrs --model_name_or_path google-bert/bert-base-uncased --train_file threads.jsonl.gz

`commands`: small and whole corpora, three seeds, each with parts of its own. A fifth of the timelines is held out,
another one for each seed. Of the others so many are drawn as a row of the table says; the commands split them into
training and validation posts. Each run is a process of its own, and its seconds are those of the whole command, from
start to predictions. Every TempoFormer run also scores position and time alone.

`parts`: the default with one field of the configuration changed, over the same five folds. What comes after `--` goes
to run_cross_validation.py.

Finished runs are not repeated.
"""

import argparse
import json
import shlex
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from datasets import Dataset

from modeling_tempoformer.data.post_splits import load_file
from modeling_tempoformer.data.splits import cut
from modeling_tempoformer.data.synthetic import synthetic_posts
from modeling_tempoformer.data.timelines import label_names, to_timelines


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


def run(script: str, *arguments: str | Path, **settings):
    subprocess.run([sys.executable, ROOT / script, *map(str, arguments)], check=True, **settings)


def run_commands(args: argparse.Namespace) -> pd.DataFrame:
    """A row for each corpus, size and method."""
    rows = []
    for corpus, sizes in SIZES.items():
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
        posts = posts.to_pandas()
        for seed, size in product(args.seeds, sizes):
            place = {"corpus": corpus, "size": size or "all", "seed": seed}
            folder = args.output_dir / "-".join(map(str, place.values()))
            files = write_posts(folder, posts, timelines, size, seed)
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


def write_posts(folder: Path, posts: pd.DataFrame, timelines: Dataset, size: int | None, seed: int) -> list[str]:
    """The arguments that name the files, of drawn timelines and of those that are held out."""
    rest, held_out = cut(timelines, FOLDS, FOLD_SEED)[seed % FOLDS]
    drawn = np.random.default_rng(seed).permutation(rest)[:size]
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
    commands, parts = (tables.add_parser(name) for name in ("commands", "parts"))
    commands.set_defaults(make_table=run_commands)
    commands.add_argument("--model_name_or_path", required=True, help="An encoder.")
    commands.add_argument("--lrs", help="RumourEval-2017's threads; left out if not given.")
    commands.add_argument("--topic_shift", help="The folder of Topic Shift-MI's conversations; left out if not given.")
    commands.add_argument("--annomi", help="AnnoMI's table; left out if not given.")
    commands.add_argument("--mood_diaries", help="The diaries' table; left out if not given.")
    commands.add_argument("--ubuntu_irc", help="The folder of IRC's logs; left out if not given.")
    commands.add_argument("--methods", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    commands.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parts.set_defaults(make_table=run_parts)
    parts.add_argument("--seeds", nargs="+", type=int, default=[0])
    parts.add_argument("passed_on", nargs="+", help="After `--`.")
    for table in (commands, parts):
        table.add_argument("--output_dir", type=Path, required=True)
    args = parser.parse_args()
    made = args.make_table(args)
    made.to_csv(args.output_dir / "table.csv")
    print(made.to_string(float_format="{:.1f}".format))


if __name__ == "__main__":
    main()
