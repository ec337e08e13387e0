#!/usr/bin/env bash
# Expected: two speakers with turns at exactly the same times both stay in an Annotation, and so does an event without
#   a length.
# Seen: `annotation[Segment(0, 5)] = speaker` in a loop keeps the last speaker of equal times alone, and a key press
#   (8 s to 8 s) is left out without a word.
# Versions: pyannote.core 6.1.0
# Who meets it: who puts turns of ELAN or RTTM, whose times a recogniser has rounded, into pyannote to measure overlap
#   and speaking time.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pyannote.core==6.1.0
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import sys
from importlib.metadata import version

from pyannote.core import Annotation, Segment

annotation = Annotation()
for start, end, speaker in ((0, 5, "Ann"), (0, 5, "Bob"), (6, 7, "Ann"), (8, 8, "key press")):
    annotation[Segment(start, end)] = speaker
times = {label: annotation.label_duration(label) for label in ("Ann", "Bob", "key press")}
print("pyannote.core", version("pyannote.core"), list(annotation.itertracks(yield_label=True)), times)
sys.exit(times != {"Ann": 1, "Bob": 5, "key press": 0} or len(annotation) != 2)
EOF
