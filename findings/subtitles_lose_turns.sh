#!/usr/bin/env bash
# Expected: a transcript in SRT keeps '{laughs}' and every turn when it is read and written again.
# Seen: pysubs2 takes braces for styling, so '{laughs}' is gone from plaintext and from every file that it writes;
#   srt.compose leaves out turns whose end is their start and turns without a text, and counts the rest anew; an empty
#   line in a turn stays with srt and pysubs2 alone.
# Versions: pysubs2 1.8.1, srt 3.5.3, webvtt-py 0.6.0
# Who meets it: who has a transcript with the usual marks of laughter and pauses, or key presses as turns without a
#   length.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pysubs2==1.8.1 srt==3.5.3 webvtt-py==0.6.0
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import sys
from datetime import timedelta
from importlib.metadata import version

import pysubs2
import srt
import webvtt

turns = [(1, 2, "Ann: well {laughs} I know"), (3, 3, "Bob: (key press)"), (4, 5, "Ann: yes")]
made = [srt.Subtitle(n, timedelta(seconds=a), timedelta(seconds=b), text) for n, (a, b, text) in enumerate(turns, 1)]
text = srt.compose(made)
with open("talk.srt", "w") as file:
    file.write(text)
pysubs2.load("talk.srt").save("again.srt")
read = {
    "srt": [turn.content for turn in srt.parse(text)],
    "webvtt-py": [turn.text for turn in webvtt.from_srt("talk.srt")],
    "pysubs2": [turn.plaintext for turn in pysubs2.load("talk.srt")],
}
for name, texts in read.items():
    print(name, version(name), texts)
again = [turn.content for turn in srt.parse(open("again.srt").read())]
print("written again by pysubs2:", again)
kept = ["Ann: well {laughs} I know", "Ann: yes"]
lost = ["Ann: well  I know", "Ann: yes"]
sys.exit(read != {"srt": kept, "webvtt-py": kept, "pysubs2": lost} or again != lost)
EOF
