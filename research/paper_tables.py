"""
Reproduces the tables of Tseriotou et al. (2024) on a corpus.

    python -m research.paper_tables --table 2 --corpus lrs --train_file lrs.csv --model_name_or_path M \
        --output_dir outputs/lrs --seeds 0 --tune_on_first_fold

Table 2: all methods. 3, 7: TempoFormer without one of its parts. 4: models of streams. 6: as 2, for parameters and
training time. 8: windows of 5, 10 and 20 posts. Each row is a cross-validation in a folder of its own. The table
compares all rows with the first one, as research.run_cross_validation compares methods. Give the same command again to
continue after an interruption. Tables share the runs that they have in common.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from modeling_tempoformer.commands.compare import write_comparison
from modeling_tempoformer.evaluation.cross_validation import RESULTS
from modeling_tempoformer.evaluation.method_names import checkpoint_name


ROOT = Path(__file__).parents[1]
# Candidate learning rates by --recipes and kind of model. "encoder" is any other fine-tuned encoder, and NETWORKS read
# frozen embeddings.
NETWORKS = {"embeddings": ["1e-3", "1e-4"], "signatures": ["5e-4", "3e-4"]}
RATES = {
    "fast": {"tempoformer": ["5e-5", "1e-4"], "encoder": ["5e-5", "1e-4"], **NETWORKS},
    "paper": {"tempoformer": ["1e-5", "5e-6"], "encoder": ["1e-5", "5e-6", "1e-6"], **NETWORKS},
}
# Settings of these rows for --recipes paper. Their own recipes have the sizes of --recipes fast.
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
    for posts, recipe in (("post", "few_shot"), ("stream", "few_shot_stream"))
    for number in (5, 10)
}
# Settings that the row of the default takes from the corpus's recipe.
POST_SETTINGS = ("columns", "window", "max_seq_length", "validation_fraction")
# The recipes of each row, which follow the corpus's recipe, and the row's kind of learning rates.
ROWS: dict[str, tuple[list[str], str | None]] = {
    "class prior": (["class_prior"], None),
    "post alone": (["post"], "encoder"),
    "concatenated history": (["concatenated"], "encoder"),
    **{row: ([recipe], None) for row, (recipe, _) in FEW_SHOT.items()},
    "FFN-History": (["ffn_history"], "embeddings"),
    "BiLSTM": (["bilstm"], "embeddings"),
    "SWNU": (["swnu"], "signatures"),
    "Seq-Sig-Net": (["seq_sig_net"], "signatures"),
    "RoBERT": (["variant_robert"], "encoder"),
    "TempoFormer": ([], "tempoformer"),
    "RoTempoFormer": (["variant_rotempoformer"], "tempoformer"),
    # Not in the paper.
    "TempoFormer, stream_residual": (["variant_stream_residual"], "tempoformer"),
    "RoTempoFormer, stream_residual": (["variant_rotempoformer", "variant_stream_residual"], "tempoformer"),
    "default, trained encoder": (["variant_post_model"], "tempoformer"),
    "default": (["default"], None),
    "without temporal rotation": (["variant_no_temporal_rotation"], "tempoformer"),
    "without rotation": (["variant_no_rotation"], "tempoformer"),
    "without the second position": (["variant_no_second_position"], "tempoformer"),
    "without positions": (["variant_no_positions"], "tempoformer"),
    "without Gate&Norm": (["variant_no_gate"], "tempoformer"),
}
METHODS = ["BiLSTM", *(row for row in ROWS if row != "BiLSTM" and not row.startswith("without"))]
STREAM_MODELS = METHODS[METHODS.index("RoBERT") :]
PARTS = [row for row in ROWS if row.startswith(("TempoFormer", "default", "without"))]
TABLES = {2: METHODS, 3: PARTS, 4: ["post alone", *STREAM_MODELS], 6: METHODS, 7: PARTS, 8: ["BiLSTM", *STREAM_MODELS]}
WINDOWS = (5, 10, 20)  # of table 8


def path_of(recipe: str) -> str:
    """Returns the path of a recipe relative to `ROOT`, in research/baselines/ or in configuration/."""
    baseline = f"research/baselines/{recipe}.yaml"
    return baseline if (ROOT / baseline).exists() else f"configuration/{recipe}.yaml"


def command(args: argparse.Namespace, row: str, window: int | None = None) -> list[str]:
    """
    Returns the command of a row's cross-validation, by default with the window of the corpus's recipe. It runs in
    `ROOT`, so all paths are absolute.
    """
    corpus = f"{args.corpus}_{args.recipes}"
    recipe = yaml.safe_load((ROOT / path_of(corpus)).read_text(encoding="utf-8"))
    recipes, kind = ROWS[row]
    settings: dict[str, Any] = {}
    if recipes == ["default"]:
        settings = {name: recipe[name] for name in POST_SETTINGS if name in recipe}
        if "columns" in settings:
            settings["columns"] = json.dumps(settings["columns"])
    else:
        recipes = [corpus, *recipes]
    if row in PAPER_SIZES:
        # These rows are trained as long as TempoFormer.
        settings["num_train_epochs"] = recipe["num_train_epochs"]
        settings |= PAPER_SIZES[row] if args.recipes == "paper" else {}
    if row in FEW_SHOT:
        settings |= {"num_examples": FEW_SHOT[row][1], "corpus": args.corpus}
    if row != "class prior":
        model = args.llm if row in FEW_SHOT else args.model_name_or_path
        settings["model_name_or_path"] = str(Path(model).resolve()) if Path(model).exists() else model
    name = row.lower().replace(", ", "_").replace(" ", "_").replace("&", "_and_")
    # Rows with the recipe's window share their folder with other tables.
    if window not in (None, recipe["window"]):
        settings["window"] = window
        name = f"{name}_window_{window}"
    return [
        *(sys.executable, "-m", "research.run_cross_validation"),
        *("--output_dir", str(args.output_dir.resolve() / name)),
        *("--seeds", *map(str, args.seeds)),
        *(["--learning_rates", *RATES[args.recipes][kind]] if kind else []),
        *(["--tune_on_first_fold"] if args.tune_on_first_fold else []),
        "--",
        *map(path_of, recipes),
        *("--train_file", str(Path(args.train_file).resolve())),
        *(f"--{name}={value}" for name, value in settings.items()),
        *("--report_to", "none", "--disable_tqdm", "true"),
    ]


def parse_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=int, choices=list(TABLES), required=True)
    parser.add_argument("--corpus", choices=("lrs", "moc", "topic_shift", "annomi"), required=True)
    parser.add_argument("--train_file", required=True, help="The table of the corpus, from research.corpora.")
    parser.add_argument("--model_name_or_path", required=True, help="The encoder, also for frozen embeddings.")
    parser.add_argument("--llm", help="An instruct LLM. Default: leave few-shot prompting out.")
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--recipes", choices=("fast", "paper"), default="fast")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 12, 123])
    parser.add_argument("--tune_on_first_fold", action="store_true")
    parser.add_argument(
        "--rows", nargs="+", choices=list(ROWS), help="Only these rows, compared with the first of them."
    )
    return parser.parse_args(arguments)


def main():
    args = parse_args()
    titles = {}
    for row, window in product(args.rows or TABLES[args.table], WINDOWS if args.table == 8 else (None,)):
        if row in FEW_SHOT and args.llm is None:
            continue
        words = command(args, row, window)
        if subprocess.run(words, cwd=ROOT).returncode:
            sys.exit(f"{row} failed: see above. Give the command again to continue, or other --rows.")
        folder = Path(words[words.index("--output_dir") + 1])
        titles[folder.name] = row if window is None else f"{row}, window {window}"
    labels = json.loads((args.output_dir / next(iter(titles)) / RESULTS).read_text(encoding="utf-8"))["labels"]
    print(write_comparison(args.output_dir, list(titles), labels, checkpoint_name(args.model_name_or_path), titles))


if __name__ == "__main__":
    main()
