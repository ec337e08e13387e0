#!/usr/bin/env bash
# Expected: an annotation of 65 characters, written to EDF+ by pyedflib, is read whole, or the writing says that it is
#   too long.
# Seen: 40 characters are left, without a word, for pyedflib and for every other reader, since they are what the file
#   has; and mne leaves out a note after the end of the recording.
# Versions: pyedflib 0.1.42, mne 1.13.2
# Who meets it: who keeps what people said or wrote beside a sensor's recording, and reads the notes as posts.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pyedflib==0.1.42 mne==1.13.2
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import sys
from importlib.metadata import version

import mne
import numpy as np
import pyedflib

text = "I could not sleep again and everything feels heavy, so I went out"
writer = pyedflib.EdfWriter("diary.edf", 1, file_type=pyedflib.FILETYPE_EDFPLUS)
writer.setSignalHeader(0, dict(label="heart", dimension="bpm", sample_frequency=1, physical_max=200, physical_min=0,
                               digital_max=2000, digital_min=0, prefilter="", transducer=""))
writer.writeSamples([np.full(120, 70.0)])
answers = [writer.writeAnnotation(10, -1, text), writer.writeAnnotation(500, -1, "after the recording")]
writer.close()
reader = pyedflib.EdfReader("diary.edf")
first = reader.readAnnotations()[2].tolist()
reader.close()
mne.set_log_level("ERROR")
second = mne.io.read_raw_edf("diary.edf").annotations.description.tolist()
print("pyedflib", version("pyedflib"), "mne", version("mne"), "answers", answers)
print("pyedflib reads", first, "mne reads", second)
sys.exit(first != [text[:40], "after the recording"] or second != [text[:40]])
EOF
