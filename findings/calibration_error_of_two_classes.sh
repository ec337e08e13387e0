#!/usr/bin/env bash
# Expected: the calibration error of the same probabilities is the same whether the two classes are given as binary or
#   as multiclass.
# Seen: 0.12 as binary and 0.015 as multiclass: the first bins the probability of class 1, the second that of the
#   class that is predicted. Errors of opposite sign on the two sides of 0.5 vanish in the second.
# Versions: torch 2.13.0, torchmetrics 1.9.0
# Who meets it: who compares a calibration error with one in a paper; a model that is too sure of changes and too
#   unsure of their absence looks calibrated.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q torch==2.13.0 torchmetrics==1.9.0
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import sys

import torch
import torchmetrics
from torchmetrics.classification import BinaryCalibrationError, MulticlassCalibrationError

draw = torch.Generator().manual_seed(0)
probability = torch.rand(5000, generator=draw)
label = (torch.rand(5000, generator=draw) < probability**1.5).long()
binary = BinaryCalibrationError(n_bins=15)(probability, label).item()
both = torch.stack([1 - probability, probability], dim=1)
multiclass = MulticlassCalibrationError(num_classes=2, n_bins=15)(both, label).item()
print("torchmetrics", torchmetrics.__version__, "binary", round(binary, 3), "multiclass", round(multiclass, 3))
sys.exit(binary < 3 * multiclass)
EOF
