#!/usr/bin/env bash
# Expected: ClaSPSegmenter finds no change in white noise, and the plain jump of the level in a timeline of 60 values.
# Seen: it returns as many changes as n_cps in any noise, and for a jump at value 30, fifty times the noise, other
#   places: it compares shapes of windows whose level is taken away.
# Versions: aeon 1.6.0
# Who meets it: who takes the segmenter that leads the benchmarks to daily ratings or probabilities.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q aeon==1.6.0
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import sys
from importlib.metadata import version

import numpy as np
from aeon.segmentation import ClaSPSegmenter

noise = np.random.default_rng(0).normal(size=200)
in_noise = len(ClaSPSegmenter(period_length=5, n_cps=3).fit_predict(noise))
jump = np.repeat([0.0, 5.0], 30) + np.random.default_rng(0).normal(0, 0.1, 60)
places = [ClaSPSegmenter(period_length=period).fit_predict(jump).tolist() for period in (3, 5)]
print("aeon", version("aeon"), "changes in noise", in_noise, "places of the jump at 30", places)
sys.exit(in_noise != 3 or any(abs(place - 30) <= 3 for found in places for place in found))
EOF
