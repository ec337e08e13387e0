#!/usr/bin/env bash
# Expected: river's ROCAUC, updated post by post, is about that of scikit-learn: 0.99.
# Seen: 0.5, a coin, where all probabilities are below 0.1, as they are for a rare change: the curve has ten
#   thresholds at fixed places. With n_thresholds=1000 it is 0.99.
# Versions: river 0.26.1, scikit-learn 1.9.1
# Who meets it: who follows a model of rare events online.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q river==0.26.1 scikit-learn==1.9.1
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import random
import sys
from importlib.metadata import version

from river import metrics
from sklearn.metrics import roc_auc_score

draw = random.Random(0)
labels = [draw.random() < 0.05 for _ in range(4000)]
probabilities = [min(0.099, max(0.0, 0.02 + 0.03 * label + draw.gauss(0, 0.01))) for label in labels]
online, fine = metrics.ROCAUC(), metrics.ROCAUC(n_thresholds=1000)
for label, probability in zip(labels, probabilities):
    online.update(label, probability)
    fine.update(label, probability)
exact = roc_auc_score(labels, probabilities)
print("river", version("river"), online.get(), "with 1000 thresholds", fine.get(), "scikit-learn", exact)
sys.exit(bool(abs(online.get() - 0.5) > 1e-6 or exact < 0.98 or abs(fine.get() - exact) > 0.01))
EOF
