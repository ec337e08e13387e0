#!/usr/bin/env bash
# Expected: a missing value (nan) in a stream is skipped or refused, and a later jump of the mean is found.
# Seen: one nan among 500 values, and ADWIN and PageHinkley say nothing for ever: a mean of 0.3 that jumps to 0.8 is
#   no drift, without a word.
# Versions: river 0.26.1, numpy 2.4.6
# Who meets it: who watches a model's probabilities or a diary's ratings, where one is missing, for drift.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q river==0.26.1 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import sys
from importlib.metadata import version

import numpy as np
from river import drift

random = np.random.default_rng(0)
values = np.concatenate([random.normal(0.3, 0.05, 200), random.normal(0.8, 0.05, 300)])
missing = values.copy()
missing[150] = np.nan


def alarms(detector, stream):
    """Returns the places at which a detector finds a drift."""
    found = []
    for place, value in enumerate(stream):
        detector.update(value)
        if detector.drift_detected:
            found.append(place)
    return found


whole = {kind.__name__: alarms(kind(), values) for kind in (drift.ADWIN, drift.PageHinkley)}
one_missing = {kind.__name__: alarms(kind(), missing) for kind in (drift.ADWIN, drift.PageHinkley)}
print("river", version("river"), "whole", whole, "with one nan", one_missing)
sys.exit(not all(whole.values()) or any(one_missing.values()))
EOF
