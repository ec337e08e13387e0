r"""
Tables 2 and 3 of Rosin and Radinsky (2022): models post-pretrained on dated texts, and words scored by their usages.

    python benchmarks/semantic_change.py --table 3 --model_name_or_path google-bert/bert-base-uncased \
        --train_files 1810-1860.txt 1960-2010.txt --corpora 1810-1860.txt 1960-2010.txt --truth graded.txt \
        --output_dir out

The texts of our own results are speeches of US presidents and the dated usages of DWUG: `--speeches sentences.tsv.gz
--dwug uses.jsonl.gz`. The same command continues a table that was stopped.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from workload import check_begun_with, show, table


ROOT = Path(__file__).parents[1]
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


def run(script: str, *arguments: str | Path):
    command = [sys.executable, str(ROOT / script), *map(str, arguments)]
    print(" ".join(command[1:]), flush=True)
    subprocess.run(command, check=True)


def train(args: argparse.Namespace, mode: str) -> Path:
    """Trains a model unless it is there, and returns its folder."""
    folder = args.output_dir / f"{mode.replace(', ', '_').replace(' ', '_')}_{args.max_steps}"
    if not (folder / "model.safetensors").exists():
        run(
            "run_temporal_mlm.py",
            ROOT / "configuration" / ("temporal_texts.yaml" if args.train_files else "temporal_speeches.yaml"),
            *("--model_name_or_path", args.model_name_or_path),
            *("--train_files", *(args.train_files or [args.speeches])),
            *("--output_dir", folder, "--max_steps", args.max_steps, "--report_to", "none"),
            *MODES[mode],
        )
    return folder


def score(args: argparse.Namespace, folder: Path, model: str | Path | None, *more: str) -> dict[str, dict]:
    """The agreement of each measure with the gold scores."""
    model_arguments = [] if model is None else ["--model_name_or_path", model]
    run(
        "run_semantic_change.py",
        *model_arguments,
        *(("--corpora", *args.corpora) if args.corpora else ("--dwug", args.dwug)),
        *("--truth", args.truth, "--output_dir", folder),
        *("--num_last_layers", args.num_last_layers),
        *more,
    )
    return json.loads((folder / "results.json").read_text())["agreement"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=int, choices=(2, 3), required=True)
    parser.add_argument("--model_name_or_path", required=True, help="A plain BERT.")
    texts = parser.add_mutually_exclusive_group(required=True)
    texts.add_argument("--train_files", nargs="+", help="Training texts: files named by time point.")
    texts.add_argument("--speeches", help="Training texts instead: a table with the columns `year` and `text`.")
    usages = parser.add_mutually_exclusive_group(required=True)
    usages.add_argument("--corpora", nargs="+", help="Texts to score words in: files named by time point.")
    usages.add_argument("--dwug", help="Texts to score words in instead: the uses of a word usage graph.")
    parser.add_argument("--truth", required=True)
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--max_steps", type=int, default=200)
    parser.add_argument("--num_last_layers", type=int, default=1)
    args = parser.parse_args()
    of_models = ("model_name_or_path", "train_files", "speeches")
    check_begun_with(args.output_dir, {name: getattr(args, name) for name in of_models})
    found: dict[tuple[str, str], dict] = {}
    if args.table == 2:
        everything = (*CONTEXTUAL, "clusters", *STATIC)
        plain = score(args, args.output_dir / "plain", args.model_name_or_path, "--measures", *everything)
        found |= {("" if name in STATIC else "plain encoder", name): value for name, value in plain.items()}
    for mode in MODES if args.table == 3 else ["attention", "attention, residual"]:
        folder = train(args, mode)
        measures = [*CONTEXTUAL, *(["time_diff"] if "prepend" in mode else [])]
        for name, value in score(args, folder / "change", folder, "--measures", *measures).items():
            found[mode, name] = value
        loss = json.loads((folder / "all_results.json").read_text())["eval_loss"]
        show(benchmark="post-pretraining", mode=mode, eval_loss=loss)
    clusters = {key: value for key, value in found.items() if "k_means" in key[1] or "affinity" in key[1]}
    if clusters:
        # The paper also chooses the best one on the gold scores.
        (mode, name), best = max(clusters.items(), key=lambda item: item[1]["spearman"])
        found[mode, f"best of {len(clusters)} cluster distances ({name})"] = best
    rows = []
    for (mode, name), value in found.items():
        show(benchmark=f"table {args.table}", model=mode, measure=name, **value)
        figures = [f"{value[kind]:.3f}" for kind in ("pearson", "pearson_p", "spearman", "spearman_p")]
        rows.append([mode, name, *figures, "{:.2f} to {:.2f}".format(*value["spearman_interval"])])
    table(["model", "measure", "Pearson r", "p", "Spearman rho", "p", "95 % of rho"], rows)


if __name__ == "__main__":
    main()
