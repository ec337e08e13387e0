#!/usr/bin/env bash
# Expected: weighted kappa of moods 1 to 10, exported as texts, is that of the numbers, or an error since texts have
#   no distance.
# Seen: cohen_kappa_score(weights='quadratic') weighs by the place of a label among the sorted texts, where '10'
#   stands beside '1': 0.64 for what is 0.97 as numbers. For numbers, too, the distance is that of places: 1, 2, 10
#   are as far apart as 1, 2, 3.
# Versions: scikit-learn 1.9.1, krippendorff 0.9.0
# Who meets it: who measures the agreement of two raters of states read as text (dtype=str) from a CSV file.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q scikit-learn==1.9.1 krippendorff==0.9.0
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import sys

import numpy as np
import sklearn
from sklearn.metrics import cohen_kappa_score

random = np.random.default_rng(0)
first = random.integers(1, 11, 200)
second = np.clip(first + random.integers(-1, 2, 200), 1, 10)
numbers = cohen_kappa_score(first, second, weights="quadratic")
texts = cohen_kappa_score(first.astype(str), second.astype(str), weights="quadratic")
few = np.array([1, 2, 10])[random.integers(0, 3, 200)]
other = np.where(random.random(200) < 0.7, few, 1)
places = cohen_kappa_score(few, other, weights="quadratic")
as_123 = cohen_kappa_score(np.searchsorted([1, 2, 10], few), np.searchsorted([1, 2, 10], other), weights="quadratic")
real = cohen_kappa_score(few, other, weights="quadratic", labels=range(1, 11))
print("scikit-learn", sklearn.__version__, "kappa of numbers", round(numbers, 3), "of texts", round(texts, 3))
print("1, 2, 10:", round(places, 3), "as 0, 1, 2:", round(as_123, 3), "with labels 1 to 10:", round(real, 3))
sys.exit(not (numbers > 0.95 and texts < 0.7 and abs(places - as_123) < 1e-9 and abs(places - real) > 0.01))
EOF
