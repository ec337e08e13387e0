#!/usr/bin/env bash
# Expected: an export in which one annotator's row for a post stands twice has the agreement that it has without the
#   copy: one label of an annotator for a post.
# Seen: alpha rises from 0.31 to 0.40 with one copy and to 0.50 with three, since AnnotationTask counts an annotator
#   as agreeing with themself; krippendorff, which has a cell for each annotator and post, cannot.
# Versions: nltk 3.10.4, krippendorff 0.9.0, numpy 2.4.6
# Who meets it: who joins exports of an annotation tool, or has rounds of labelling in one file, and reports agreement
#   by nltk.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q nltk==3.10.4 krippendorff==0.9.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import sys
from importlib.metadata import version

import krippendorff
import numpy as np
from nltk.metrics.agreement import AnnotationTask

posts = {1: "NNY", 2: "YY-", 3: "NNN", 4: "Y-N", 5: "-NN", 6: "--Y"}  # the labels of Ann, Bob and Cyd
rows = [(who, str(post), label) for post, labels in posts.items() for who, label in zip("abc", labels) if label != "-"]
copy = [("a", "4", "Y")]
alphas = [round(AnnotationTask(data=rows + copies).alpha(), 4) for copies in ([], copy, copy * 3)]
cells = np.array([[{"N": 0.0, "Y": 1.0, "-": np.nan}[labels[place]] for labels in posts.values()] for place in range(3)])
other = round(krippendorff.alpha(reliability_data=cells, level_of_measurement="nominal"), 4)
print("nltk", version("nltk"), "alpha with 0, 1 and 3 copies of a row", alphas)
print("krippendorff", version("krippendorff"), other)
sys.exit(alphas != [0.3125, 0.4, 0.5] or float(other) != 0.3125)
EOF
