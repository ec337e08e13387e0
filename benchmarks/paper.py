"""
The tables of Tseriotou et al. (2024), remade on a corpus: runs what has not been run, and collects.

    python -m benchmarks.paper --table 2 --corpus lrs --train_file threads.jsonl.gz --model_name_or_path M \
        --output_dir outputs/lrs --seeds 0 --tune_on_first_fold

Table 1 are the statistics of the corpus, 2 all methods, 3 TempoFormer without one part or another, 4 the recurrent
forms, 5 how diverse the corpus is, 6 parameters and training time of the methods, 7 the classes of table 3, 8 windows
of 5, 10 and 20 posts (and figure 3). Each is written to the output folder as Markdown and CSV, with confusion matrices
and the figure beside them. What has not been run is shown as not run; `--collect` runs nothing. A stopped table goes
on where it was; the same run serves all tables that need it. A row that fails is shown as failed, the others go on,
and the exit status is 1.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import yaml

from modeling_tempoformer.baselines.frozen_embeddings import embed_texts
from modeling_tempoformer.data.timelines import label_names, to_timelines
from modeling_tempoformer.evaluation.classification_report import write_classification_report
from modeling_tempoformer.evaluation.dataset_analyses import dataset_diversity, dataset_statistics, neighbour_bertscore
from modeling_tempoformer.evaluation.figures import new_figure
from modeling_tempoformer.training.cross_validation import call_process, compare, label_ids, read_predictions
from run_glue_style import load_posts


ROOT = Path(__file__).parents[1]
NOT_RUN, FAILED = "not run", "failed"
# Learning rates to choose from: of TempoFormer, of other encoders that are fine-tuned, of networks over frozen
# embeddings, of signatures.
OF_NETWORKS = {"embeddings": ["1e-3", "1e-4"], "signatures": ["5e-4", "3e-4"]}
RATES = {
    "fast": {"tempoformer": ["5e-5", "1e-4"], "encoder": ["5e-5", "1e-4"], **OF_NETWORKS},
    "paper": {"tempoformer": ["1e-5", "5e-6"], "encoder": ["1e-5", "5e-6", "1e-6"], **OF_NETWORKS},
}
# Those of these recipes fit the fast ones of the corpora.
PAPER_SIZES = {
    "post alone": {"per_device_train_batch_size": 3},
    "concatenated history": {
        "per_device_train_batch_size": 3,
        "gradient_accumulation_steps": 1,
        "max_seq_length": 512,
    },
}
FEW_SHOT = {
    f"few-shot, {posts}, {number} examples": (posts, number) for posts in ("post", "stream") for number in (5, 10)
}
# The recipes of each row, merged with that of the corpus, and which learning rates it chooses from.
ROWS: dict[str, tuple[list[str], str | None]] = {
    "class prior": (["baseline_class_prior"], None),
    "post alone": (["baseline_post"], "encoder"),
    "concatenated history": (["baseline_concatenated"], "encoder"),
    **{row: ([f"baseline_few_shot_{posts}"], None) for row, (posts, _) in FEW_SHOT.items()},
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
    "without temporal rotation": (["variant_no_temporal_rotation"], "tempoformer"),
    "without rotation": (["variant_no_rotation"], "tempoformer"),
    "without the second position": (["variant_no_second_position"], "tempoformer"),
    "without positions": (["variant_no_positions"], "tempoformer"),
    "without Gate&Norm": (["variant_no_gate"], "tempoformer"),
}
METHODS = list(ROWS)[:16]
RECURRENT = METHODS[11:]
PARTS = ["TempoFormer", "TempoFormer, stream_residual", *list(ROWS)[16:]]
WINDOWS = (5, 10, 20)


class Paper:
    """A corpus, an encoder, and the runs on them."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        recipe = yaml.safe_load((ROOT / "configuration" / f"{args.corpus}_{args.recipes}.yaml").read_text())
        self.window: int = recipe["window"]
        self.output: Path = args.output_dir.resolve()
        self.output.mkdir(parents=True, exist_ok=True)
        self.failed: set[Path] = set()

    def folder(self, row: str, window: int | None = None) -> Path:
        """Of the cross-validation of a row."""
        name = row.lower().replace(", ", "_").replace(" ", "_").replace("&", "_and_")
        return self.output / (name if window in (None, self.window) else f"{name}_window_{window}")

    def model(self, row: str) -> list[str]:
        """The argument that names the model of a row; none if it has none."""
        if row == "class prior":
            return []
        name = self.args.llm if row in FEW_SHOT else self.args.model_name_or_path
        # A folder is meant from here, not from where the scripts are.
        return ["--model_name_or_path", str(Path(name).resolve()) if Path(name).exists() else name]

    def run(self, row: str, window: int | None = None):
        """The cross-validation of a row, from where it stopped."""
        wanted = not self.args.collect and (self.args.rows is None or row in self.args.rows)
        if not wanted or (row in FEW_SHOT and self.args.llm is None):
            return
        recipes, kind = ROWS[row]
        settings = PAPER_SIZES.get(row, {}) if self.args.recipes == "paper" else {}
        if row in FEW_SHOT:
            settings = {"num_examples": FEW_SHOT[row][1]}
        recipes = [f"{self.args.corpus}_{self.args.recipes}", *recipes]
        rates = RATES[self.args.recipes][kind] if kind else []
        command = [
            *(sys.executable, str(ROOT / "run_cross_validation.py")),
            *("--output_dir", str(self.folder(row, window))),
            *("--seeds", *map(str, self.args.seeds)),
            *(["--learning_rates", *rates] if rates else []),
            *(["--tune_on_first_fold"] if self.args.tune_on_first_fold else []),
            "--",
            *(f"configuration/{name}.yaml" for name in recipes),
            *self.model(row),
            *("--train_file", str(Path(self.args.train_file).resolve())),
            # That of the recipe is a row that other tables have, too.
            *([] if window in (None, self.window) else ["--window", str(window)]),
            *(f"--{name}={value}" for name, value in settings.items()),
            *("--report_to", "none", "--disable_tqdm", "true"),
        ]
        folder = self.folder(row, window)
        if code := call_process(command, cwd=ROOT):
            self.failed.add(folder)
            logs = sorted(folder.rglob("run.log"), key=lambda path: path.stat().st_mtime)
            print(f"{row} failed with exit status {code}: see above{f' and {logs[-1]}' if logs else ''}")

    def results(self, row: str, window: int | None = None) -> dict | None:
        """What a row has reached, None if it has not been run to its end."""
        path = self.folder(row, window) / "results.json"
        is_whole = path.exists() and path.parent not in self.failed
        return json.loads(path.read_text(encoding="utf-8")) if is_whole else None

    def missing(self, row: str, window: int | None = None) -> str:
        """What is shown of a row without results."""
        return FAILED if self.folder(row, window) in self.failed else NOT_RUN

    def write(self, name: str, rows: list[dict[str, str]]):
        """Prints a table, and writes it as Markdown and CSV."""
        frame = pd.DataFrame(rows).fillna("")
        frame.to_csv(self.output / f"{name}.csv", index=False)
        lines = [list(frame.columns), ["---"] * len(frame.columns), *frame.astype(str).to_numpy().tolist()]
        text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        (self.output / f"{name}.md").write_text(text + "\n", encoding="utf-8")
        print(text)

    def timelines(self):
        """The posts by timeline, and the label names."""
        posts = load_posts(self.args.train_file, self.args.corpus)
        names = label_names(posts)
        return to_timelines(posts, names, id_column="post_id"), names


def percent(value: dict[str, float | None]) -> str:
    """Mean and standard deviation over seeds, as the paper prints them."""
    spread = "" if value["std"] is None else f" ± {100 * value['std']:.1f}"
    return f"{100 * value['mean']:.1f}{spread}"


def scores_table(paper: Paper, name: str, rows: Sequence[str], per_class: bool = True):
    """Runs the rows; F1 of each class and macro F1, and the paired difference to a baseline with its interval."""
    for row in rows:
        paper.run(row)
    baseline = paper.args.baseline
    lines = []
    for row in rows:
        results = paper.results(row)
        if results is None:
            lines.append({"": row, "macro F1": paper.missing(row)})
            continue
        scores = results["scores"]
        of_classes = {f"F1 {label}": percent(scores[f"f1_{label}"]) for label in results["labels"]}
        line = {"": row, "macro F1": percent(scores["macro_f1"]), **(of_classes if per_class else {})}
        line["seeds"] = str(len(results["seeds"]))
        rates = {rate for rate in results["learning_rates"].values() if rate}
        line["learning rate"] = ", ".join(sorted(rates, key=float))
        if row != baseline:
            line[f"less {baseline} (95 %)"] = difference(paper, row, baseline, results["labels"])
        predictions = read_predictions(paper.folder(row))
        actual, predicted = (label_ids(predictions, column, results["labels"]) for column in ("label", "prediction"))
        if min(predicted) >= 0:
            write_classification_report(paper.folder(row), actual, predicted, results["labels"], len(results["seeds"]))
        else:
            print(f"{row}: no confusion matrix, {predicted.count(-1)} posts have no prediction.")
        lines.append(line)
    paper.write(name, lines)


def difference(paper: Paper, row: str, baseline: str, names: list[str]) -> str:
    """Of two rows, under the seeds that both have."""
    if paper.results(baseline) is None:
        return paper.missing(baseline)
    if not set(paper.results(row)["seeds"]) & set(paper.results(baseline)["seeds"]):
        return "no seed in common"
    found = compare(paper.folder(row), paper.folder(baseline), names)
    low, high = found["interval"]
    return f"{100 * found['difference']:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


def table_1(paper: Paper):
    """Statistics of the corpus."""
    paper.write("table_1", listed(dataset_statistics(*paper.timelines()), digits=2))


def table_5(paper: Paper):
    """Diversity of the corpus, by the encoder's embeddings."""
    if paper.args.collect:
        written = paper.output / "table_5.md"
        if written.exists():
            print(written.read_text(encoding="utf-8"))
        else:
            paper.write("table_5", [{"": "diversity", "value": NOT_RUN}])
        return
    timelines, _ = paper.timelines()
    texts = [text for posts in timelines["texts"] for text in posts]
    diversity = dataset_diversity(embed_texts(texts, paper.args.model_name_or_path), timelines)
    if paper.args.bertscore_model is not None:
        diversity["neighbour_bertscore"] = neighbour_bertscore(timelines, paper.args.bertscore_model)
    paper.write("table_5", listed(diversity, digits=3))


def listed(figures: dict, digits: int) -> list[dict[str, str]]:
    """A row for each figure, those of dicts in dicts too."""
    # Not a row of the frame, in which counts would be floats.
    flat = pd.json_normalize(figures, sep=", ").to_dict("records")[0]
    return [
        {"": name.replace("_", " "), "value": f"{value:.{digits}f}" if isinstance(value, float) else str(value)}
        for name, value in flat.items()
    ]


def table_6(paper: Paper):
    """Parameters of what is trained, and seconds of training a fold (of runs that were not interrupted)."""
    lines = []
    for row in METHODS:
        paper.run(row)
        results = paper.results(row)
        found = {} if results is None else results
        parameters, seconds = found.get("parameters"), found.get("train_seconds")
        counted = f"{parameters / 1e6:.2f} M" if parameters else ""
        lines.append(
            {
                "": row,
                "parameters": paper.missing(row) if results is None else counted,
                "training of a fold": f"{seconds:.0f} s" if seconds else "",
            }
        )
    paper.write("table_6", lines)


def table_8(paper: Paper):
    """Windows, and figure 3."""
    rows = ["BiLSTM", *RECURRENT]
    lines = []
    for row in rows:
        line = {"": row}
        for window in WINDOWS:
            paper.run(row, window)
            results = paper.results(row, window)
            reached = None if results is None else percent(results["scores"]["macro_f1"])
            line[f"w = {window}"] = reached or paper.missing(row, window)
        lines.append(line)
    paper.write("table_8", lines)
    figure_3(paper, rows).savefig(paper.output / "figure_3.png", dpi=150)


def figure_3(paper: Paper, rows: Sequence[str]):
    """Macro F1 by window, as far as it has been run."""
    figure = new_figure(6, 4)
    axes = figure.subplots()
    for row in rows:
        found = {window: paper.results(row, window) for window in WINDOWS}
        found = {window: results["scores"]["macro_f1"] for window, results in found.items() if results is not None}
        if found:
            axes.errorbar(
                list(found),
                [100 * value["mean"] for value in found.values()],
                yerr=[100 * (value["std"] or 0) for value in found.values()],
                marker="o",
                capsize=3,
                label=row,
            )
    axes.set(xlabel="window (posts)", ylabel="macro F1 (%)", xticks=WINDOWS)
    if axes.has_data():
        axes.legend()
    return figure


TABLES = {
    1: table_1,
    2: lambda paper: scores_table(paper, "table_2", METHODS),
    3: lambda paper: scores_table(paper, "table_3", PARTS, per_class=False),
    4: lambda paper: scores_table(paper, "table_4", ["post alone", *RECURRENT]),
    5: table_5,
    6: table_6,
    7: lambda paper: scores_table(paper, "table_7", PARTS),
    8: table_8,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=int, choices=list(TABLES), required=True)
    parser.add_argument("--corpus", choices=("lrs", "moc", "topic_shift", "annomi"), required=True)
    parser.add_argument("--train_file", required=True, help="The corpus in its original form.")
    parser.add_argument("--model_name_or_path", help="The encoder; also of the frozen embeddings.")
    parser.add_argument("--llm", help="An instruct LLM for few-shot prompting, which is not run without it.")
    parser.add_argument("--bertscore_model", help="Adds BERTScore to table 5 (extra `diversity`).")
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--recipes", choices=("fast", "paper"), default="fast")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 12, 123])
    parser.add_argument("--tune_on_first_fold", action="store_true")
    parser.add_argument("--baseline", choices=list(ROWS), default="BiLSTM", help="What differences are taken to.")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), help="Run only these.")
    parser.add_argument("--collect", action="store_true", help="Run nothing.")
    args = parser.parse_args()
    if args.model_name_or_path is None and not args.collect and args.table != 1:
        parser.error("give --model_name_or_path, or --collect")
    # Where figures cannot be made, before hours of runs and not after them.
    new_figure(1, 1)
    paper = Paper(args)
    TABLES[args.table](paper)
    if paper.failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
