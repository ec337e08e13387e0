"""The offline demo: synthetic timelines, a model with the temporal rotation and one without, and a reload."""

import json
import shutil
import subprocess
import sys
from pathlib import Path


ROOT = Path(__file__).parents[1]
OUTPUT = ROOT / "outputs" / "demo"
VARIANTS = {"temporal_rotary": "rotated by log time", "rotary": "rotated by position"}


def run(*command: str | Path):
    subprocess.run([sys.executable, *(str(part) for part in command)], check=True, cwd=ROOT)


def main():
    shutil.rmtree(OUTPUT, ignore_errors=True)
    data = OUTPUT / "data"
    run("-m", "modeling_tempoformer.synthetic", data)
    files = [part for name in ("train", "validation", "test") for part in (f"--{name}_file", data / f"{name}.csv")]
    for kind in VARIANTS:
        overrides = json.dumps({"stream_attention": kind})
        run("run_glue_style.py", "configuration/demo.yaml", *files, "--output_dir", OUTPUT / kind,
            "--config_overrides", overrides)  # fmt: skip
    print("\nMacro F1 on the test timelines (one seed):")
    for kind, words in VARIANTS.items():
        results = json.loads((OUTPUT / kind / "all_results.json").read_text())
        print(f"  {words:<22} {100 * results['predict_macro_f1']:5.1f}")
    run("benchmarks/demo_reload.py", OUTPUT / "temporal_rotary", data / "test.csv")


if __name__ == "__main__":
    main()
