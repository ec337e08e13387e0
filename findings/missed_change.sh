#!/usr/bin/env bash
# Expected: a segmentation without any boundary, where the reference has one, scores 0 or is not defined.
# Seen: mir_eval gives F1 0.8, more than for a change in the wrong place (0.67), since beginning and end of the
#   timeline count as boundaries that were found; pyannote.metrics gives precision 1.0; segeval's boundary similarity
#   is 0. With mir_eval's trim=True it is 0, for a timeline whose change was found as well as without any change in
#   both.
# Versions: mir_eval 0.8.2, pyannote.metrics 4.2.0, segeval 2.0.11
# Who meets it: who compares models of change by a segmentation metric of speech or music: always predicting no change
#   looks good.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q mir_eval==0.8.2 pyannote.metrics==4.2.0 segeval==2.0.11
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import sys
from importlib.metadata import version

import mir_eval
import numpy as np
import segeval
from pyannote.core import Annotation, Segment
from pyannote.metrics.segmentation import SegmentationPrecision

for name in ("mir_eval", "pyannote.metrics", "segeval"):
    print(name, version(name))


def f1(reference, estimate, **options):
    """Returns the F1 of boundaries, which mir_eval reads as borders of intervals."""
    borders = [np.array(list(zip(times, times[1:])), float) for times in (reference, estimate)]
    return round(mir_eval.segment.detection(*borders, window=3, **options)[2], 3)


missed, wrong = f1([0, 30, 60], [0, 60]), f1([0, 30, 60], [0, 10, 60])
print("mir_eval: F1 without a change", missed, "with a change in the wrong place", wrong)
agreed = f1([0, 60], [0, 60], trim=True)
print("mir_eval, trim=True: F1 where neither has a change", agreed)
reference, estimate = Annotation(), Annotation()
reference[Segment(0, 30)], reference[Segment(30, 60)], estimate[Segment(0, 60)] = "a", "b", "a"
precision = SegmentationPrecision()(reference, estimate)
print("pyannote.metrics: precision without a change", precision)
similarity = float(segeval.boundary_similarity((60,), (30, 30)))
print("segeval: boundary similarity without a change", similarity)
sys.exit((missed, wrong, agreed, precision, similarity) != (0.8, 0.667, 0.0, 1.0, 0.0))
EOF
