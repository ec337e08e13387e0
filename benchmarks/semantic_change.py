r"""
Tables 2 and 3 of Rosin and Radinsky (2022), and their grid: models post-pretrained on dated texts, and words scored by
their usages.

    python benchmarks/semantic_change.py --table 3 --model_name_or_path google-bert/bert-base-uncased \
        --train_files 1810-1860.txt 1960-2010.txt --corpora 1810-1860.txt 1960-2010.txt --truth graded.txt \
        --output_dir out -- --max_steps 200

Table 2: all methods. 3: the ways to tell a model the time. grid: learning rates, epochs, and how many last hidden
layers are averaged; its best row is chosen on the gold scores themselves, as in the paper: say so where you report it.
What comes after `--` goes to each training. The rows are printed and written to the output folder as CSV. The same
command continues a table that was stopped.
"""

import argparse
import csv
import itertools
import json
import subprocess
import sys
from pathlib import Path

from workload import CONFIGURATION, ROOT, show, table


# The ways to tell a model the time.
MODES = {
    "none": ["--temporal_attention", "none"],
    "scaled, linear": ["--temporal_attention", "scaled"],
    "attention": [],
    "attention, residual": ["--temporal_residual", "true"],
    "prepend": ["--temporal_attention", "none", "--prepend_time", "true"],
    "attention and prepend": ["--prepend_time", "true"],
    "residual and prepend": ["--temporal_residual", "true", "--prepend_time", "true"],
}
CONTEXTUAL, STATIC = ("prt", "apd"), ("sgns", "neighbours")
LAST_LAYERS = (1, 2, 4, 12)


def run(script: str, *arguments: str | Path):
    subprocess.run([sys.executable, str(ROOT / script), *map(str, arguments)], check=True)


def check_begun_with(folder: Path, settings: dict):
    """Remembers with which settings the runs in a folder are made; ends the program where they were others."""
    path = folder / "begun_with.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings, indent=2), encoding="utf-8")
    for name, before in json.loads(path.read_text(encoding="utf-8")).items():
        if settings[name] != before:
            sys.exit(f"{folder} was begun with {name} {before}, not {settings[name]}: give another --output_dir.")


def train(args: argparse.Namespace, name: str, *settings: str) -> Path:
    """Trains a model unless it is there, and returns its folder."""
    folder = args.output_dir / name.replace(", ", "_").replace(" ", "_")
    if not (folder / "all_results.json").exists():
        model = ("--model_name_or_path", args.model_name_or_path, "--train_files", *args.train_files)
        own = ("--output_dir", folder, "--do_train", "--report_to", "none")
        recipe = CONFIGURATION / f"{args.recipe}.yaml"
        run("run_temporal_mlm.py", recipe, *model, *args.passed_on, *settings, *own)
    return folder


def score(args: argparse.Namespace, folder: Path, model: str | Path, num_last_layers: int, *measures: str) -> dict:
    """The agreement of each measure with the gold scores; the files of the scoring are kept below `folder`."""
    folder = folder / f"last_{num_last_layers}"
    if not (folder / "results.json").exists():
        texts = ("--corpora", *args.corpora) if args.corpora else ("--dwug", args.dwug)
        own = ("--num_last_layers", num_last_layers, "--output_dir", folder)
        more = ("--measures", *measures) if measures else ()
        run("run_semantic_change.py", "--model_name_or_path", model, *texts, "--truth", args.truth, *own, *more)
    return json.loads((folder / "results.json").read_text())["agreement"]


def make_table(args: argparse.Namespace) -> list[dict]:
    """The rows of table 2 or 3."""
    found: dict[tuple[str, str], dict] = {}
    if args.table == "2":
        everything = (*CONTEXTUAL, "clusters", *STATIC)
        plain = score(args, args.output_dir / "plain", args.model_name_or_path, args.num_last_layers, *everything)
        found |= {("" if name in STATIC else "plain encoder", name): value for name, value in plain.items()}
    for mode in MODES if args.table == "3" else ("attention", "attention, residual"):
        folder = train(args, mode, *MODES[mode])
        measures = [*CONTEXTUAL, *(["time_diff"] if "prepend" in mode else [])]
        for name, value in score(args, folder, folder, args.num_last_layers, *measures).items():
            found[mode, name] = value
        loss = json.loads((folder / "all_results.json").read_text())["eval_loss"]
        show(benchmark="post-pretraining", mode=mode, eval_loss=loss)
    clusters = {key: value for key, value in found.items() if "k_means" in key[1] or "affinity" in key[1]}
    if clusters:
        # The paper also chooses the best one on the gold scores.
        (mode, name), best = max(clusters.items(), key=lambda item: item[1]["spearman"])
        found[mode, f"best of {len(clusters)} cluster distances ({name})"] = best
    return [{"model": mode, "measure": name, **figures(value)} for (mode, name), value in found.items()]


def make_grid(args: argparse.Namespace) -> list[dict]:
    """A row for each learning rate, number of epochs, number of last layers and measure, the best first."""
    rows = []
    for rate, epochs in itertools.product(args.learning_rates, args.epochs):
        model = train(args, f"{rate}_{epochs}", "--learning_rate", rate, "--num_train_epochs", epochs)
        layers = json.loads((model / "config.json").read_text())["num_hidden_layers"]
        for last in LAST_LAYERS:
            place = {"learning rate": rate, "epochs": epochs, "last layers": str(last)}
            if last > layers:
                show(**place, left_out=f"the model has {layers} layers")
                continue
            for name, value in score(args, model, model, last).items():
                rows.append({**place, "measure": name, **figures(value)})
    return sorted(rows, key=lambda row: float(row["Spearman rho"]), reverse=True)


def figures(agreement: dict) -> dict[str, str]:
    kinds = {"Pearson r": "pearson", "its p": "pearson_p", "Spearman rho": "spearman", "p of rho": "spearman_p"}
    interval = "{:.2f} to {:.2f}".format(*agreement["spearman_interval"])
    return {**{title: f"{agreement[kind]:.3f}" for title, kind in kinds.items()}, "95 % of rho": interval}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", choices=("2", "3", "grid"), required=True)
    parser.add_argument("--model_name_or_path", required=True, help="A plain BERT.")
    parser.add_argument("--recipe", default="temporal_texts", help="Of the trainings, in configuration/.")
    parser.add_argument("--train_files", nargs="+", required=True, help="Training texts.")
    usages = parser.add_mutually_exclusive_group(required=True)
    usages.add_argument("--corpora", nargs="+", help="Texts to score words in: files named by time point.")
    usages.add_argument("--dwug", help="Texts to score words in instead: the uses of a word usage graph.")
    parser.add_argument("--truth", required=True)
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--num_last_layers", type=int, default=1, help="Of the tables; the grid has them all.")
    parser.add_argument("--learning_rates", nargs="+", default=["1e-8", "1e-7", "1e-6", "1e-5", "1e-4"])
    parser.add_argument("--epochs", nargs="+", default=["1", "2", "3", "4"])
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:end])
    args.passed_on = sys.argv[end + 1 :]
    asked = ("model_name_or_path", "recipe", "train_files", "corpora", "dwug", "truth", "passed_on")
    check_begun_with(args.output_dir, {name: getattr(args, name) for name in asked})
    rows = make_grid(args) if args.table == "grid" else make_table(args)
    with (args.output_dir / f"{args.table}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    table(list(rows[0]), [list(row.values()) for row in rows])


if __name__ == "__main__":
    main()
