#!/usr/bin/env bash
# Expected: Window(width=30) on a timeline of 40 posts with a plain jump finds it, or says that the timeline is too
#   short.
# Seen: no change and no word, although exactly one change is asked for (n_bkps=1); with a width of 20 it is found. A
#   width that is longer than the timeline is no error either.
# Versions: ruptures 1.1.10, numpy 2.4.6
# Who meets it: who runs one width over timelines of different lengths: short ones never have a change.
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

signal = np.repeat([0.0, 1.0], 20)
found = {}
for width in (100, 40, 30, 20, 10):
    ends = ruptures.Window(width=width, model="l2").fit(signal).predict(n_bkps=1)
    found[width] = [int(end) for end in ends[:-1]]
print("ruptures", version("ruptures"), "changes by width", found)
sys.exit(found != {100: [], 40: [], 30: [], 20: [20], 10: [20]})
EOF
