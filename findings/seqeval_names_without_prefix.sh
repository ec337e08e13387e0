#!/usr/bin/env bash
# Expected: labels without B- and I-, such as Switch and No-Switch, or IE and IS of CLPsych 2022, are an error, or
#   each is a class.
# Seen: the first letter counts as the prefix: Switch is scored as the class `witch`, No-Switch as the class `Switch`,
#   IE as `E`, and a jump from IS to IE inside a run begins a new span. Only a warning says that each label seems not
#   to be a tag.
# Versions: seqeval 1.2.2, numpy 2.4.6
# Who meets it: who scores stretches of posts by seqeval, whose F1 is printed for names that nobody gave.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q seqeval==1.2.2 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import sys
from importlib.metadata import version

from seqeval.metrics import classification_report

report = {}
for labels, predictions in (
    (["No-Switch", "Switch", "Switch", "No-Switch"], ["No-Switch", "Switch", "No-Switch", "No-Switch"]),
    (["O", "IS", "IE", "IE", "O"], ["O", "IS", "O", "IE", "O"]),
):
    scores = classification_report([labels], [predictions], output_dict=True)
    report |= {name: (float(score["f1-score"]), int(score["support"])) for name, score in scores.items() if " " not in name}
print("seqeval", version("seqeval"), report)
sys.exit(set(report) != {"Switch", "witch", "E", "S"} or report["Switch"] != (0.5, 2))
EOF
