#!/usr/bin/env bash
# Expected: JSON lines whose column has numbers in some rows and texts in others are an error, or all values are
#   texts.
# Seen: datasets keeps both and turns texts that look like JSON into values: beside one number, '007' is 7, '1e5'
#   100000.0, 'null' missing, 'true' True. Far down in a long file, past the first block, '007' is the integer 7 as
#   well.
# Versions: datasets 5.2.0
# Who meets it: who has ids, labels or texts that a script wrote as numbers where it could: two people become one, and
#   a post that says null is lost.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q datasets==5.2.0
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import json
import os
import sys

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_CACHE=os.path.abspath("cache"))
import datasets

datasets.disable_progress_bars()


def read(name, values):
    """Returns the values of a column as datasets reads them from JSON lines, and the column's type."""
    with open(name, "w") as file:
        file.writelines(json.dumps({"speaker": value, "filler": "x" * 200}) + "\n" for value in values)
    rows = datasets.load_dataset("json", data_files=name, split="train")
    return rows["speaker"][-4:], rows.features["speaker"]


texts, kind = read("texts.jsonl", ["007", "1e5", "null", "true"])
mixed, mixed_kind = read("mixed.jsonl", [7, "007", "1e5", "null", "true"])
late, late_kind = read("late.jsonl", [*range(100_000), "007"])
print("datasets", datasets.__version__)
for what, values, kind in (("texts alone", texts, kind), ("beside a number", mixed, mixed_kind), ("late", late[-1:], late_kind)):
    print(what, values, kind)
sys.exit(texts != ["007", "1e5", "null", "true"] or mixed != [7, 100000.0, None, True] or late[-1] != 7)
EOF
