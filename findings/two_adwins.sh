#!/usr/bin/env bash
# Expected: ADWIN with the same delta and clock finds a drift at the same value in river and in frouros, and both say
#   so once.
# Seen: of twenty streams with a jump at value 200 frouros finds most later than river, up to 96 values, three clocks,
#   and none earlier; and frouros says drift at every value that follows, until it is reset. The two cannot be
#   installed together.
# Versions: river 0.26.1, frouros 0.9.0
# Who meets it: who compares alarms of drift between libraries or papers by the name of the method, or counts
#   frouros's alarms.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for library in river==0.26.1 frouros==0.9.0; do
    python3 -m venv "$folder/${library%%=*}"
    "$folder/${library%%=*}/bin/pip" install -q "$library"
done
cd "$folder"
cat > streams.py <<'EOF'
import random

streams = []
for seed in range(20):
    draw = random.Random(seed)
    streams.append([draw.gauss(0.3 if place < 200 else 0.5, 0.05) for place in range(500)])
EOF
river/bin/python -W ignore - > river.txt <<'EOF'
from river import drift
from streams import streams

for values in streams:
    detector, alarms = drift.ADWIN(delta=0.002, clock=32), []
    for place, value in enumerate(values):
        detector.update(value)
        alarms += [place] if detector.drift_detected else []
    print(alarms[0], len(alarms))
EOF
frouros/bin/python -W ignore - > frouros.txt <<'EOF'
from frouros.detectors.concept_drift import ADWIN, ADWINConfig
from streams import streams

for values in streams:
    detector, alarms = ADWIN(ADWINConfig(delta=0.002, clock=32)), []
    for place, value in enumerate(values):
        detector.update(value=value)
        alarms += [place] if detector.status["drift"] else []
    print(alarms[0], len(alarms))
EOF
python3 - <<'EOF'
import sys

found = {name: [tuple(map(int, line.split())) for line in open(f"{name}.txt")] for name in ("river", "frouros")}
late = [other - one for (one, _), (other, _) in zip(found["river"], found["frouros"])]
alarms = {name: [count for _, count in places] for name, places in found.items()}
print("river 0.26.1, frouros 0.9.0: frouros is later by", late, "values; alarms", alarms)
sys.exit(min(late) < 0 or max(late) != 96 or set(alarms["river"]) != {1} or min(alarms["frouros"]) < 100)
EOF
