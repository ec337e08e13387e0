r"""
The grid of Rosin and Radinsky (2022): learning rates, epochs, and how many last hidden layers are averaged.

    python benchmarks/temporal_grid.py --output_dir outputs/grid -- \
        configuration/temporal_english.yaml --model_name_or_path google-bert/bert-base-uncased \
        --train_files texts/1810-1860.txt texts/1960-2010.txt \
        --score --corpora texts/1810-1860.txt texts/1960-2010.txt --truth graded.txt

The arguments before `--score` go to `run_temporal_mlm.py`, those after it to `run_semantic_change.py`. A stopped grid
goes on when the same command is given again. All rows are printed and written to `grid.csv`, the best first. The best
row is chosen on the gold scores themselves: say so where you report it.
"""

import argparse
import csv
import itertools
import json
import subprocess
import sys
from pathlib import Path

from workload import check_begun_with, show, table


ROOT = Path(__file__).parents[1]
LEARNING_RATES = ["1e-8", "1e-7", "1e-6", "1e-5", "1e-4"]
EPOCHS = ["1", "2", "3", "4"]
LAST_LAYERS = (1, 2, 4, 12)
HEADER = ["learning rate", "epochs", "last layers", "measure", "Pearson r", "Spearman rho"]


def run(script: str, *arguments: str | Path):
    subprocess.run([sys.executable, str(ROOT / script), *map(str, arguments)], check=True)


def write(rows: list[list[str]], path: Path):
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([HEADER, *rows])
    table(HEADER, rows)


def main(arguments: list[str]):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output_dir", type=Path, required=True, help="For grid.csv and a folder for each run.")
    parser.add_argument("--learning_rates", nargs="+", default=LEARNING_RATES)
    parser.add_argument("--epochs", nargs="+", default=EPOCHS)
    parser.add_argument("passed_on", nargs="+", help="After `--`: training arguments, --score, scoring arguments.")
    args = parser.parse_args(arguments)
    if args.passed_on.count("--score") != 1:
        parser.error("put --score once, between the training arguments and the scoring arguments")
    place = args.passed_on.index("--score")
    training, scoring = args.passed_on[:place], args.passed_on[place + 1 :]
    check_begun_with(args.output_dir, {"training": training, "scoring": scoring})
    rows = []
    for rate, epochs in itertools.product(args.learning_rates, args.epochs):
        model = args.output_dir / f"{rate}_{epochs}"
        if not (model / "all_results.json").exists():
            settings = ("--learning_rate", rate, "--num_train_epochs", epochs, "--do_train")
            run("run_temporal_mlm.py", *training, *settings, "--output_dir", model)
        layers = json.loads((model / "config.json").read_text())["num_hidden_layers"]
        for last in LAST_LAYERS:
            if last > layers:
                show(learning_rate=rate, epochs=epochs, last_layers=last, left_out=f"the model has {layers} layers")
                continue
            folder = model / f"last_{last}"
            if not (folder / "results.json").exists():
                settings = ("--model_name_or_path", model, "--num_last_layers", last, "--output_dir", folder)
                run("run_semantic_change.py", *scoring, *settings)
            for name, value in json.loads((folder / "results.json").read_text())["agreement"].items():
                show(learning_rate=rate, epochs=epochs, last_layers=last, measure=name, **value)
                figures = (f"{value[name]:.3f}" for name in ("pearson", "spearman"))
                rows.append([rate, epochs, str(last), name, *figures])
    write(sorted(rows, key=lambda row: float(row[-1]), reverse=True), args.output_dir / "grid.csv")


if __name__ == "__main__":
    main(sys.argv[1:])
