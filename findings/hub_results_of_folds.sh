#!/usr/bin/env bash
# Expected: results of one metric on two folds, or on two data sets of one type, keep their own fold and name in a
#   model card.
# Seen: the second result stands under the first one's arguments (fold 1) and name (posts A): results count as of one
#   data set if task, type, config and split are equal. And a value that is numpy.float32 is written as a Python
#   object, so that the card cannot be read again.
# Versions: huggingface_hub 2.4.0, numpy 2.4.6
# Who meets it: who writes scores of a cross-validation or of two corpora into a model card with huggingface_hub.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q huggingface_hub==2.4.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import sys

import huggingface_hub
import numpy as np
from huggingface_hub import EvalResult, ModelCard, ModelCardData


def read_again(*results):
    """Returns the results of a card after it was written and read."""
    made = [EvalResult(task_type="text-classification", dataset_type="posts", metric_type="f1", **r) for r in results]
    card = ModelCard(f"---\n{ModelCardData(model_name='m', eval_results=made).to_yaml()}\n---\n")
    return [(r.dataset_name, (r.dataset_args or {}).get("fold"), r.metric_value) for r in card.data.eval_results]


folds = read_again(*({"dataset_name": "posts", "dataset_args": {"fold": n}, "metric_value": n / 10} for n in (1, 2)))
names = read_again(*({"dataset_name": f"posts {name}", "metric_value": value} for name, value in (("A", 0.1), ("B", 0.2))))
print("huggingface_hub", huggingface_hub.__version__, "folds", folds, "data sets", names)
try:
    read_again({"dataset_name": "posts", "metric_value": np.float32(0.5)})
    numpy_is_read = True
except Exception as error:
    numpy_is_read = False
    print("a value of numpy:", type(error).__name__)
sys.exit(folds != [("posts", 1, 0.1), ("posts", 1, 0.2)] or names[1] != ("posts A", None, 0.2) or numpy_is_read)
EOF
