#!/usr/bin/env bash
# Expected: times of a TextGrid that are whole milliseconds are the same milliseconds in the ELAN file that tgt
#   writes.
# Seen: seconds times 1000 is cut, not rounded, so 1.001 s becomes 1000 ms; of the times 0.001 to 10 s 95 are a
#   millisecond too early, between 1.001 and 8.19 s.
# Versions: tgt 1.5, numpy 2.4.6, pympi-ling 1.71
# Who meets it: who brings turns from Praat to ELAN and joins labels by their times afterwards.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tgt==1.5 numpy==2.4.6 pympi-ling==1.71
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import sys
from importlib.metadata import version

import tgt
from pympi import Eaf


def to_elan(milliseconds):
    """Returns the times in ELAN of points that are given in milliseconds."""
    grid = tgt.TextGrid()
    tier = tgt.IntervalTier(0, 20, "Ann")
    for start, end in zip(milliseconds, milliseconds[1:]):
        tier.add_interval(tgt.Interval(start / 1000, end / 1000, "words"))
    grid.add_tier(tier)
    with open("out.eaf", "w") as file:
        file.write(tgt.io.export_to_elan(grid))
    turns = sorted(Eaf("out.eaf").get_annotation_data_for_tier("Ann"))
    return [turns[0][0], *(end for _, end, _ in turns)]


given = list(range(1, 10_001))
written = to_elan(given)
early = [time for time, read in zip(given, written) if read == time - 1]
print("tgt", version("tgt"), len(early), "of", len(given), "times are 1 ms early, such as", early[:5])
print("1001 ms is", written[1000], "ms; other differences:", sum(r not in (t, t - 1) for t, r in zip(given, written)))
sys.exit(written[1000] != 1000 or len(early) != 95)
EOF
