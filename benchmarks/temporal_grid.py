"""
The grid of Rosin and Radinsky (2022): learning rates, epochs, and last hidden layers to average, in one command.

    python benchmarks/temporal_grid.py configuration/temporal_english.yaml --model_name_or_path M \
        --train_files 1810-1860.txt 1960-2010.txt --output_dir grid \
        --score --corpora 1810-1860.txt 1960-2010.txt --truth graded.txt

What comes before `--score` goes to `run_temporal_mlm.py`, what comes after it to `run_semantic_change.py`. A stopped
grid goes on where it was. The best row is chosen on the gold scores themselves: report it as such.
"""

import itertools
import json
import subprocess
import sys
from pathlib import Path

from workload import show, table


ROOT = Path(__file__).parents[1]
LEARNING_RATES = ("1e-8", "1e-7", "1e-6", "1e-5", "1e-4")
EPOCHS = (1, 2, 3, 4)
LAST_LAYERS = (1, 2, 4, 12)


def run(script: str, *arguments: str | Path):
    subprocess.run([sys.executable, str(ROOT / script), *map(str, arguments)], check=True)


def main(arguments: list[str]):
    if "--score" not in arguments or "--output_dir" not in arguments:
        sys.exit(__doc__)
    place = arguments.index("--score")
    training, scoring = arguments[:place], arguments[place + 1 :]
    output = Path(training[training.index("--output_dir") + 1])
    rows = []
    for rate, epochs in itertools.product(LEARNING_RATES, EPOCHS):
        model = output / f"{rate}_{epochs}"
        if not (model / "all_results.json").exists():
            settings = ("--learning_rate", rate, "--num_train_epochs", epochs, "--do_train")
            run("run_temporal_mlm.py", *training, *settings, "--output_dir", model)
        layers = json.loads((model / "config.json").read_text())["num_hidden_layers"]
        for last in (count for count in LAST_LAYERS if count <= layers):
            folder = model / f"last_{last}"
            if not (folder / "results.json").exists():
                settings = ("--model_name_or_path", model, "--num_last_layers", last, "--output_dir", folder)
                run("run_semantic_change.py", *scoring, *settings)
            for name, value in json.loads((folder / "results.json").read_text())["agreement"].items():
                show(learning_rate=rate, epochs=epochs, last_layers=last, measure=name, **value)
                rows.append(
                    [rate, str(epochs), str(last), name, f"{value['pearson']:.3f}", f"{value['spearman']:.3f}"]
                )
    rows.sort(key=lambda row: float(row[-1]), reverse=True)
    table(["learning rate", "epochs", "last layers", "measure", "Pearson r", "Spearman rho"], rows)


if __name__ == "__main__":
    main(sys.argv[1:])
