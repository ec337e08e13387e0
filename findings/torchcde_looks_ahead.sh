#!/usr/bin/env bash
# Expected: a series whose first values are missing stays missing there, or is an error: nothing before a moment is
#   known of what comes later.
# Seen: linear and Hermite interpolation, and the rectilinear one that is meant for prediction as posts arrive, fill
#   the beginning with the first value that comes later. A series that is missing as a whole is 0.
# Versions: torch 2.13.0, torchcde 0.2.5, numpy 2.4.6
# Who meets it: who trains a neural CDE on ratings that begin some posts after the first: the model reads a rating
#   before it was given.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q torch==2.13.0 torchcde==0.2.5 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import sys
from importlib.metadata import version

import torch
import torchcde

missing = float("nan")
series = torch.tensor([[[0.0, missing], [1.0, missing], [2.0, 5.0], [3.0, 7.0]]])
linear = torchcde.linear_interpolation_coeffs(series)[0, :, 1].tolist()
as_they_come = torchcde.linear_interpolation_coeffs(series, rectilinear=0)[0, :, 1].tolist()
whole = torchcde.linear_interpolation_coeffs(series[:, :2])[0, :, 1].tolist()
print("torchcde", version("torchcde"), "linear", linear, "rectilinear", as_they_come, "without a value", whole)
sys.exit(linear != [5, 5, 5, 7] or as_they_come[:2] != [5, 5] or whole != [0, 0])
EOF
