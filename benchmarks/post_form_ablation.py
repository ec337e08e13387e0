r"""What each part of the post form is worth: the default with one part changed, over the same five folds.

    python benchmarks/post_form_ablation.py --output_dir outputs/ablation -- \
        --task_name lrs --model_name_or_path outputs/minilm --train_file threads.jsonl.gz

Everything after `--` goes to run_cross_validation.py. Finished runs are not repeated.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd


ROOT = Path(__file__).parents[1]
# Fields of the configuration that differ from configuration/default.yaml.
ROWS = {
    "default": {},
    "two layers": {"num_stream_layers": 2},
    "a quarter of the width": {"stream_hidden_size": 48},
    "the encoder's width": {"stream_hidden_size": None},
    "pooling [CLS]": {"post_pooling": "cls"},
    "rotated by the distance in posts": {"stream_attention": "rotary"},
    "no rotation": {"stream_attention": "full"},
    "no positions": {"stream_position_embeddings": False},
    "positions as small as published": {"stream_position_initializer_range": 0.02},
    "no residual": {"stream_residual": False},
    "Gate&Norm at the end": {"fusion": "gate"},
    "an LSTM as head": {"head": "lstm"},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--seeds", nargs="+", default=["0"])
    place = sys.argv.index("--")
    args, passed_on = parser.parse_args(sys.argv[1:place]), sys.argv[place + 1 :]
    table = {}
    for name, overrides in ROWS.items():
        folder = args.output_dir / name.replace(" ", "_")
        own = ["--output_dir", folder, "--seeds", *args.seeds]
        changes = ["--config_overrides", json.dumps(overrides)] if overrides else []
        command = [sys.executable, ROOT / "run_cross_validation.py", *own, "--", *passed_on, *changes]
        subprocess.run(command, check=True)
        results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        table[name] = {
            "macro F1": 100 * results["scores"]["macro_f1"]["mean"],
            "on dev": 100 * sum(results["validation_macro_f1"]) / len(results["validation_macro_f1"]),
            "seconds": results["train_seconds"],
        }
    printed = pd.DataFrame.from_dict(table, orient="index")
    printed.to_csv(args.output_dir / "table.csv")
    print(printed.to_string(float_format="{:.1f}".format))


if __name__ == "__main__":
    main()
