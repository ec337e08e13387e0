#!/usr/bin/env bash
# Expected: shift_annotations moves every annotation by the same time, cuts off what would fall below 0, and names
#   what it removed.
# Seen: an annotation that is cut at 0 keeps its old end (1001 to 1500 ms, moved by -1.1 s, is 0 to 1500 and not 0 to
#   400), so it overlaps the next turn; labels on a dependent tier stay behind when their turn is removed, and the
#   tier can no longer be read, in the saved file neither.
# Versions: pympi-ling 1.71
# Who meets it: who aligns an ELAN transcript with a recording that was cut at its beginning, and then reads turns as
#   posts with times.
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
eaf.add_tier("Ann")
for start, end, words in ((290, 1001, "hello"), (1001, 1500, "well"), (2000, 2400, "I slept badly")):
    eaf.add_annotation("Ann", start, end, words)
eaf.add_linguistic_type("label", "Symbolic_Association", False)
eaf.add_tier("label", ling="label", parent="Ann")
eaf.add_ref_annotation("label", "Ann", 500, "No-Switch")
eaf.shift_annotations(-1100)
eaf.to_file("shifted.eaf")
read = Eaf("shifted.eaf")
turns = sorted(read.get_annotation_data_for_tier("Ann"))
try:
    labels = read.get_annotation_data_for_tier("label")
except KeyError as error:
    labels = f"KeyError {error}"
print("pympi-ling", version("pympi-ling"), "turns", turns, "labels", labels)
sys.exit(turns != [(0, 1500, "well"), (900, 1300, "I slept badly")] or "KeyError" not in labels)
EOF
