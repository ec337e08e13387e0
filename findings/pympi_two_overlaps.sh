#!/usr/bin/env bash
# Expected: get_gaps_and_overlaps2, the faster way, gives the same gaps and overlaps of two speakers as
#   get_gaps_and_overlaps.
# Seen: Bob speaks from 900 to 1200 ms while Ann has two turns that touch at 1001 ms: the first function says that he
#   is within one turn of hers (W12), the second that there are two overlaps (O12, O21), which counts a change of
#   speakers; pauses differ by 2 ms (1501 to 1999, 1500 to 2000).
# Versions: pympi-ling 1.71
# Who meets it: who counts overlaps, pauses and changes of speakers in ELAN files as features of a conversation.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pympi-ling==1.71
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import sys
from importlib.metadata import version

from pympi import Eaf

eaf = Eaf()
eaf.remove_tier("default")
for speaker, turns in (("Ann", ((290, 1001), (1001, 1500), (2000, 2400))), ("Bob", ((900, 1200),))):
    eaf.add_tier(speaker)
    for start, end in turns:
        eaf.add_annotation(speaker, start, end, "words")
first = list(eaf.get_gaps_and_overlaps("Ann", "Bob"))
second = list(eaf.get_gaps_and_overlaps2("Ann", "Bob"))
print("pympi-ling", version("pympi-ling"))
print("get_gaps_and_overlaps ", first)
print("get_gaps_and_overlaps2", second)
kinds = [[kind[:3].rstrip("_") for *_, kind in found] for found in (first, second)]
sys.exit(kinds[0][0] != "W12" or kinds[1][:2] != ["O12", "O21"] or first[1][:2] != (1501, 1999) or second[2][:2] != (1500, 2000))
EOF
