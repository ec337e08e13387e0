"""The offline demo: synthetic timelines, a model with the temporal rotation and one without, and a reload."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path


ROOT = Path(__file__).parents[1]
OUTPUT = ROOT / "outputs" / "demo"
VARIANTS = {"temporal_rotary": "rotated by log time", "rotary": "rotated by position"}


def run(*command: str | Path, log: Path | None = None):
    """Runs a Python command; with `log` its output goes to that file, which is shown only if the command fails."""
    words = [sys.executable, *map(str, command)]
    # For models as tiny as these, threads cost more than they bring.
    os.environ["OMP_NUM_THREADS"] = "1"
    if log is None:
        subprocess.run(words, check=True, cwd=ROOT)
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as file:
        code = subprocess.run(words, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT).returncode
    if code:
        sys.exit(f"{log.read_text(encoding='utf-8')}\n{' '.join(words)} failed; its output is above and in {log}.")


def write_data(folder: Path, seed: int = 0) -> list[str]:
    """Synthetic timelines in `folder`; the script's arguments for them."""
    run("-m", "modeling_tempoformer.data.synthetic", folder, "--seed", str(seed))
    return [f"--{name}_file={folder / name}.csv" for name in ("train", "validation", "test")]


def train(kind: str, files: list[str], folder: Path, seed: int = 42) -> float:
    """Macro F1 on the test timelines of a model with this `stream_attention`, saved in `folder`."""
    overrides = json.dumps({"stream_attention": kind})
    arguments = ["--output_dir", folder, "--config_overrides", overrides, "--seed", str(seed)]
    run("run_glue_style.py", "configuration/demo.yaml", *files, *arguments, log=folder.with_suffix(".log"))
    return json.loads((folder / "all_results.json").read_text())["test"]["macro_f1"]


def main():
    shutil.rmtree(OUTPUT, ignore_errors=True)
    files = write_data(OUTPUT / "data")
    scores = {}
    for kind, words in VARIANTS.items():
        print(f"Training a tiny model, {words} ...", flush=True)
        scores[kind] = train(kind, files, OUTPUT / kind)
    print("\nMacro F1 on the test timelines (one seed):", flush=True)
    for kind, words in VARIANTS.items():
        print(f"  {words:<22} {100 * scores[kind]:5.1f}", flush=True)
    run("benchmarks/demo_reload.py", OUTPUT / "temporal_rotary", OUTPUT / "data" / "test.csv")


if __name__ == "__main__":
    main()
