#!/usr/bin/env bash
# Expected: a fitted conformal classifier gives the same prediction sets when it is asked twice.
# Seen: some sets differ between calls, since p-values are smoothed at random (smoothing=True is the default); and
#   with class_cond=True a class that the calibration posts do not have is in the set of nine posts in ten, drawn at
#   random, at a confidence of 0.9, without a word.
# Versions: crepes 0.9.1, scikit-learn 1.9.1, numpy 2.4.6
# Who meets it: who decides on alarms by conformal sets: the same post rings or not from one request to the next.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q crepes==0.9.1 scikit-learn==1.9.1 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import sys
from importlib.metadata import version

import numpy as np
from crepes import WrapClassifier
from sklearn.linear_model import LogisticRegression

random = np.random.default_rng(1)
posts = random.normal(size=(400, 2))
labels = (posts[:, 0] + random.normal(size=400) > 0.8).astype(int)
model = WrapClassifier(LogisticRegression())
model.fit(posts[:200], labels[:200])
model.calibrate(posts[200:260], labels[200:260])
sets = [[tuple(map(int, s)) for s in model.predict_set(posts, confidence=0.9)] for _ in range(40)]
changed = sum(len(set(answers)) > 1 for answers in zip(*sets))
kept = labels[200:] == 0
model.calibrate(posts[200:][kept], labels[200:][kept], class_cond=True)
in_set = np.mean([1 in answer for answer in model.predict_set(posts, confidence=0.9)])
print("crepes", version("crepes"), changed, "of 400 sets differ in forty calls")
print("a class without calibration posts is in the set of", in_set, "of the posts")
sys.exit(changed == 0 or not 0.8 < in_set < 0.97)
EOF
