#!/usr/bin/env bash
# Expected: the AUROC of logits is the same whether they are given at once or in two batches.
# Seen: 0.75 in two batches and 0.80 at once, for the same 40 logits: a batch whose values happen to lie between 0 and
#   1 is read as probabilities, any other goes through the sigmoid, and ranks mix.
# Versions: torch 2.13.0, torchmetrics 1.9.0
# Who meets it: who evaluates a model in small batches, where early in a training all logits are small.
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
from torchmetrics.classification import BinaryAUROC

draw = torch.Generator().manual_seed(0)
labels = torch.randint(0, 2, (40,), generator=draw)
logits = labels - 0.3 + torch.randn(40, generator=draw)
small = (logits >= 0) & (logits <= 1)
metric = BinaryAUROC()
metric.update(logits[small], labels[small])
metric.update(logits[~small], labels[~small])
at_once = BinaryAUROC()(logits, labels).item()
print("torchmetrics", torchmetrics.__version__, "two batches", metric.compute().item(), "at once", at_once)
sys.exit(abs(metric.compute().item() - at_once) < 0.01)
EOF
