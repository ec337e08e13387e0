#!/usr/bin/env bash
# Expected: a signal with one missing day (nan) is an error, or the day is left out.
# Seen: no error, and each method says something else of 100 days with one jump on day 50: PELT finds a change at
#   every fifth day from the missing one on, bottom-up two changes there, binary segmentation, windows and the kernel
#   none, dynamic programming one on day 5.
# Versions: ruptures 1.1.10, numpy 2.4.6
# Who meets it: who looks for changes in daily means of ratings or of probabilities; days without a post are nan in
#   pandas.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q ruptures==1.1.10 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import sys
from importlib.metadata import version

import numpy as np
import ruptures

signal = np.repeat([0.0, 1.0], 50) + np.random.default_rng(0).normal(0, 0.1, 100)
missing = signal.copy()
missing[30] = np.nan
found = {}
for method in (ruptures.Pelt(model="l2"), ruptures.Binseg(model="l2"), ruptures.BottomUp(model="l2"),
               ruptures.Window(width=20, model="l2"), ruptures.KernelCPD(kernel="linear"), ruptures.Dynp(model="l2")):
    name = type(method).__name__
    options = {"n_bkps": 1} if name == "Dynp" else {"pen": 1}
    found[name] = [[int(end) for end in method.fit(s).predict(**options)[:-1]] for s in (signal, missing)]
    print(name, "whole", found[name][0], "one day missing", found[name][1])
print("ruptures", version("ruptures"))
sys.exit(any(whole != [50] for whole, _ in found.values()) or len(found["Pelt"][1]) < 5 or found["Binseg"][1] != [])
EOF
