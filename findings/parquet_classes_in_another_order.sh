#!/usr/bin/env bash
# Expected: two Parquet files that datasets has written, one with the classes No, Yes and one with Yes, No, cannot be
#   loaded as one, or their labels keep their meaning.
# Seen: the first file's names count for both, so every label of the second is turned round, in one split, and also in
#   a test split beside a train split; the order of the files decides which. concatenate_datasets refuses the same
#   two.
# Versions: datasets 5.2.0, pyarrow 26.0.1
# Who meets it: who labels in two rounds, or writes train and test by two scripts: names are numbered as they come,
#   and a perfect model scores 0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q datasets==5.2.0 pyarrow==26.0.1
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import os
import sys

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_CACHE=os.path.abspath("cache"))
import datasets
from datasets import ClassLabel, Dataset, Features, Value, load_dataset

datasets.disable_progress_bars()


def write(path, names):
    """Writes a calm post and a sad one, whose classes are numbered in the order of the names."""
    features = Features({"text": Value("string"), "label": ClassLabel(names=names)})
    rows = {"text": ["calm", "sad"], "label": [names.index("No"), names.index("Yes")]}
    Dataset.from_dict(rows, features=features).to_parquet(path)


def read(split):
    """Returns the name of each text's label."""
    return [(row["text"], split.features["label"].int2str(row["label"])) for row in split]


write("a.parquet", ["No", "Yes"])
write("b.parquet", ["Yes", "No"])
together = read(load_dataset("parquet", data_files=["a.parquet", "b.parquet"], split="train"))
splits = load_dataset("parquet", data_files={"train": "a.parquet", "test": "b.parquet"})
print("datasets", datasets.__version__, "one split", together, "test beside train", read(splits["test"]))
try:
    datasets.concatenate_datasets([Dataset.from_parquet("a.parquet"), Dataset.from_parquet("b.parquet")])
    refused = False
except ValueError:
    refused = True
turned = [("calm", "Yes"), ("sad", "No")]
sys.exit(together[2:] != turned or read(splits["test"]) != turned or not refused)
EOF
