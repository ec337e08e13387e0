"""
The tables of Tseriotou et al. (2024) on a corpus: runs what has no results yet, and collects.

    python -m benchmarks.paper --table 2 --corpus lrs --train_file threads.jsonl.gz --model_name_or_path M \
        --output_dir outputs/lrs --seeds 0 --tune_on_first_fold

Table 2: all methods. 3: TempoFormer without one of its parts. 4: models of streams. 6: parameters and training time.
7: table 3 with F1 of each class. 8: windows of 5, 10 and 20 posts, and figure 3.

Each table is written to the output folder as Markdown and CSV, with confusion matrices and the figure. A row without
results says "not run"; `--collect` runs nothing. Give the same command again to continue after an interruption. Tables
share the runs that they have in common. A row that fails says "failed", the other rows run, and the exit status is 1.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from matplotlib.figure import Figure

from modeling_tempoformer.evaluation.figures import CONFUSION, confusion_figure, save_figure
from modeling_tempoformer.training.cross_validation import PREDICTIONS, compare, label_ids, read_predictions


ROOT = Path(__file__).parents[1]
NOT_RUN, FAILED = "not run", "failed"
# Learning rates to choose from, by --recipes and by what is trained: "encoder" is any other fine-tuned encoder, the
# last two are networks over frozen embeddings.
NETWORKS = {"embeddings": ["1e-3", "1e-4"], "signatures": ["5e-4", "3e-4"]}
RATES = {
    "fast": {"tempoformer": ["5e-5", "1e-4"], "encoder": ["5e-5", "1e-4"], **NETWORKS},
    "paper": {"tempoformer": ["1e-5", "5e-6"], "encoder": ["1e-5", "5e-6", "1e-6"], **NETWORKS},
}
# The recipes of these rows have the sizes of --recipes fast.
PAPER_SIZES = {
    "post alone": {"per_device_train_batch_size": 3},
    "concatenated history": {
        "per_device_train_batch_size": 3,
        "gradient_accumulation_steps": 1,
        "max_seq_length": 512,
    },
}
FEW_SHOT = {
    f"few-shot, {posts}, {number} examples": (recipe, number)
    for posts, recipe in (("post", "baseline_few_shot"), ("stream", "baseline_few_shot_stream"))
    for number in (5, 10)
}
# What a corpus's recipe says of its posts. `default` says all else.
OF_POSTS = ("task_name", "window", "max_seq_length", "validation_fraction")
# The recipes of each row, which come after the one of the corpus, and its kind of learning rates.
ROWS: dict[str, tuple[list[str], str | None]] = {
    "class prior": (["baseline_class_prior"], None),
    "post alone": (["baseline_post"], "encoder"),
    "concatenated history": (["baseline_concatenated"], "encoder"),
    **{row: ([recipe], None) for row, (recipe, _) in FEW_SHOT.items()},
    "FFN-History": (["baseline_ffn_history"], "embeddings"),
    "BiLSTM": (["baseline_bilstm"], "embeddings"),
    "SWNU": (["baseline_swnu"], "signatures"),
    "Seq-Sig-Net": (["baseline_seq_sig_net"], "signatures"),
    "RoBERT": (["variant_robert"], "encoder"),
    "TempoFormer": ([], "tempoformer"),
    "RoTempoFormer": (["variant_rotempoformer"], "tempoformer"),
    # Not in the paper.
    "TempoFormer, stream_residual": (["variant_stream_residual"], "tempoformer"),
    "RoTempoFormer, stream_residual": (["variant_rotempoformer", "variant_stream_residual"], "tempoformer"),
    "TempoFormer, post model": (["variant_post_model"], "tempoformer"),
    "TempoFormer, post model, frozen encoder": (["default"], None),
    "without temporal rotation": (["variant_no_temporal_rotation"], "tempoformer"),
    "without rotation": (["variant_no_rotation"], "tempoformer"),
    "without the second position": (["variant_no_second_position"], "tempoformer"),
    "without positions": (["variant_no_positions"], "tempoformer"),
    "without Gate&Norm": (["variant_no_gate"], "tempoformer"),
}
METHODS = [row for row in ROWS if not row.startswith("without")]
STREAM_MODELS = METHODS[METHODS.index("RoBERT") :]
PARTS = [row for row in ROWS if row.startswith(("TempoFormer", "without"))]
WINDOWS = (5, 10, 20)


class Paper:
    """The cross-validations of all rows on one corpus with one encoder."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.corpus = f"{args.corpus}_{args.recipes}"
        self.recipe = yaml.safe_load((ROOT / "configuration" / f"{self.corpus}.yaml").read_text(encoding="utf-8"))
        self.window: int = self.recipe["window"]
        self.output: Path = args.output_dir.resolve()
        self.output.mkdir(parents=True, exist_ok=True)
        self.failed: set[Path] = set()

    def folder(self, row: str, window: int | None = None) -> Path:
        """The output folder of a row. The window of the corpus's recipe has the folder that other tables use."""
        name = row.lower().replace(", ", "_").replace(" ", "_").replace("&", "_and_")
        return self.output / (name if window in (None, self.window) else f"{name}_window_{window}")

    def command(self, row: str, window: int | None = None) -> list[str]:
        """The cross-validation of a row. It runs in `ROOT`, so all paths are absolute."""
        recipes, kind = ROWS[row]
        settings: dict[str, Any] = {}
        if recipes == ["default"]:
            settings = {name: self.recipe[name] for name in OF_POSTS if name in self.recipe}
        else:
            recipes = [self.corpus, *recipes]
        if row in PAPER_SIZES:
            # As long as TempoFormer.
            settings["num_train_epochs"] = self.recipe["num_train_epochs"]
            settings |= PAPER_SIZES[row] if self.args.recipes == "paper" else {}
        if row in FEW_SHOT:
            settings["num_examples"] = FEW_SHOT[row][1]
        if row != "class prior":
            model = self.args.llm if row in FEW_SHOT else self.args.model_name_or_path
            settings["model_name_or_path"] = str(Path(model).resolve()) if Path(model).exists() else model
        if window not in (None, self.window):
            settings["window"] = window
        return [
            *(sys.executable, str(ROOT / "run_cross_validation.py")),
            *("--output_dir", str(self.folder(row, window))),
            *("--seeds", *map(str, self.args.seeds)),
            *(["--learning_rates", *RATES[self.args.recipes][kind]] if kind else []),
            *(["--tune_on_first_fold"] if self.args.tune_on_first_fold else []),
            "--",
            *(f"configuration/{name}.yaml" for name in recipes),
            *("--train_file", str(Path(self.args.train_file).resolve())),
            *(f"--{name}={value}" for name, value in settings.items()),
            *("--report_to", "none", "--disable_tqdm", "true"),
        ]

    def run(self, row: str, window: int | None = None) -> dict | None:
        """Runs a row unless `--collect` or `--rows` say otherwise. Returns its results, None if it has none."""
        folder = self.folder(row, window)
        wanted = not self.args.collect and (self.args.rows is None or row in self.args.rows)
        if wanted and (row not in FEW_SHOT or self.args.llm is not None):
            if status := subprocess.run(self.command(row, window), cwd=ROOT).returncode:
                self.failed.add(folder)
                print(f"{row} failed with exit status {status}: see above.")
        return self.results(row, window)

    def results(self, row: str, window: int | None = None) -> dict | None:
        """The results of a row; None if it has not been run or has failed."""
        path = self.folder(row, window) / "results.json"
        is_there = path.exists() and path.parent not in self.failed
        return json.loads(path.read_text(encoding="utf-8")) if is_there else None

    def missing(self, row: str, window: int | None = None) -> str:
        """What the table says of a row without results."""
        return FAILED if self.folder(row, window) in self.failed else NOT_RUN

    def write(self, name: str, rows: list[dict[str, str]]):
        """Prints a table, and writes it as Markdown and CSV."""
        frame = pd.DataFrame(rows).fillna("")
        frame.to_csv(self.output / f"{name}.csv", index=False)
        lines = [list(frame.columns), ["---"] * len(frame.columns), *frame.astype(str).to_numpy().tolist()]
        text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        (self.output / f"{name}.md").write_text(text + "\n", encoding="utf-8")
        print(text)


def percent(value: dict[str, float | None]) -> str:
    """Mean and standard deviation over seeds."""
    spread = "" if value["std"] is None else f" ± {100 * value['std']:.1f}"
    return f"{100 * value['mean']:.1f}{spread}"


def scores_table(paper: Paper, name: str, rows: Sequence[str], per_class: bool = True):
    """Macro F1 and F1 of each class, and the paired difference to the baseline with its interval."""
    # All rows first, as the baseline may come after others.
    found = {row: paper.run(row) for row in rows}
    baseline = paper.args.baseline
    lines = []
    for row, results in found.items():
        if results is None:
            lines.append({"": row, "macro F1": paper.missing(row)})
            continue
        scores, labels = results["scores"], results["labels"]
        line = {"": row, "macro F1": percent(scores["macro_f1"])}
        if per_class:
            line |= {f"F1 {label}": percent(scores[f"f1_{label}"]) for label in labels}
        line["seeds"] = str(len(results["seeds"]))
        line["learning rate"] = ", ".join(sorted(set(results["learning_rates"].values()) - {None}, key=float))
        if row != baseline:
            line[f"less {baseline} (95 %)"] = difference(paper, row, baseline)
        predictions = read_predictions(paper.folder(row) / PREDICTIONS).query("label != ''")
        actual, predicted = (label_ids(predictions[column], labels) for column in ("label", "prediction"))
        figure = confusion_figure(actual, predicted, labels)
        save_figure(figure, paper.folder(row) / CONFUSION)
        lines.append(line)
    paper.write(name, lines)


def difference(paper: Paper, row: str, baseline: str) -> str:
    """The difference of two rows under the seeds that both have."""
    ours, theirs = paper.results(row), paper.results(baseline)
    if theirs is None:
        return paper.missing(baseline)
    if not set(ours["seeds"]) & set(theirs["seeds"]):
        return "no seed in common"
    found = compare(paper.folder(row), paper.folder(baseline), ours["labels"])
    low, high = found["interval"]
    return f"{100 * found['difference']:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


def table_6(paper: Paper):
    """Parameters that are trained, and seconds of training a fold (of runs that were not interrupted)."""
    lines = []
    for row in METHODS:
        found = paper.run(row) or {"parameters": None, "train_seconds": None, "missing": paper.missing(row)}
        parameters, seconds = found["parameters"], found["train_seconds"]
        counted = f"{parameters / 1e6:.2f} M" if parameters else found.get("missing", "")
        lines.append({"": row, "parameters": counted, "training of a fold": f"{seconds:.0f} s" if seconds else ""})
    paper.write("table_6", lines)


def table_8(paper: Paper):
    """Macro F1 by window, and figure 3."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    lines = []
    for row in ["BiLSTM", *STREAM_MODELS]:
        found = {window: paper.run(row, window) for window in WINDOWS}
        scores = {window: results["scores"]["macro_f1"] for window, results in found.items() if results is not None}
        cells = {
            f"w = {window}": percent(scores[window]) if window in scores else paper.missing(row, window)
            for window in WINDOWS
        }
        lines.append({"": row, **cells})
        if scores:
            means = [100 * score["mean"] for score in scores.values()]
            spreads = [100 * (score["std"] or 0) for score in scores.values()]
            axes.errorbar(list(scores), means, yerr=spreads, marker="o", capsize=3, label=row)
    paper.write("table_8", lines)
    axes.set(xlabel="window (posts)", ylabel="macro F1 (%)", xticks=WINDOWS)
    if axes.has_data():
        axes.legend()
    figure.savefig(paper.output / "figure_3.png", dpi=150)


TABLES = {
    2: lambda paper: scores_table(paper, "table_2", METHODS),
    3: lambda paper: scores_table(paper, "table_3", PARTS, per_class=False),
    4: lambda paper: scores_table(paper, "table_4", ["post alone", *STREAM_MODELS]),
    6: table_6,
    7: lambda paper: scores_table(paper, "table_7", PARTS),
    8: table_8,
}


def parse_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=int, choices=list(TABLES), required=True)
    parser.add_argument("--corpus", choices=("lrs", "moc", "topic_shift", "annomi"), required=True)
    parser.add_argument("--train_file", required=True, help="The corpus in its original form.")
    parser.add_argument("--model_name_or_path", help="The encoder, also for frozen embeddings.")
    parser.add_argument("--llm", help="An instruct LLM. Without it few-shot prompting is not run.")
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--recipes", choices=("fast", "paper"), default="fast")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 12, 123])
    parser.add_argument("--tune_on_first_fold", action="store_true")
    parser.add_argument("--baseline", choices=list(ROWS), default="BiLSTM", help="Compare the other rows with it.")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), help="Run only these rows.")
    parser.add_argument("--collect", action="store_true", help="Run nothing.")
    args = parser.parse_args(arguments)
    if args.model_name_or_path is None and not args.collect:
        parser.error("give --model_name_or_path, or --collect")
    return args


def main():
    args = parse_args()
    paper = Paper(args)
    TABLES[args.table](paper)
    if paper.failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
