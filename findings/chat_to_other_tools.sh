#!/usr/bin/env bash
# Expected: a CHAT transcript, in which only some utterances have times, loses nothing on its way to ELAN, Praat and
#   SRT, or a warning says what.
# Seen: pylangacq's TextGrid and SRT have only the utterances with times: the mother, who has none, is gone. Its ELAN
#   file has all, and no reader of XML opens it, since the marks around times (U+0015) are not allowed there. pympi's
#   eaf_from_chat gives utterances without a time that of the utterance before, so that two people seem to speak at
#   once, and makes [: train] of a replaced word [ train].
# Versions: pylangacq 0.23.0, pympi-ling 1.71
# Who meets it: who reads CHILDES or other CHAT conversations in ELAN or as subtitles.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pylangacq==0.23.0 pympi-ling==1.71
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import sys
import xml.etree.ElementTree as ElementTree
from importlib.metadata import version

import pylangacq
from pympi.Elan import eaf_from_chat

with open("talk.cha", "w") as file:
    file.write("@UTF8\n@Begin\n@Languages:\teng\n@Participants:\tCHI Eve Target_Child, MOT Mother\n"
               "@ID:\teng|x|CHI|2;06.|||||Target_Child|||\n@ID:\teng|x|MOT|||||Mother|||\n@Media:\ttalk, audio\n"
               "*CHI:\tI need a plane . \x1529_1001\x15\n*MOT:\tthe pane [: train] is here .\n@End\n")
chat = pylangacq.CHAT.from_files(["talk.cha"])
srt, grid, elan = chat.to_srt_strs()[0], chat.to_textgrid_strs()[0], chat.to_elan_strs()[0]
print("pylangacq", version("pylangacq"), "MOT in SRT", "here" in srt, "in the TextGrid", "here" in grid, "in ELAN", "here" in elan)
try:
    ElementTree.fromstring(elan.encode())
    readable = True
except ElementTree.ParseError as error:
    readable = False
    print("ELAN file:", error)
turns = {name: eaf_from_chat("talk.cha").get_annotation_data_for_tier(name) for name in ("CHI", "MOT")}
print("pympi-ling", version("pympi-ling"), turns)
sys.exit("here" in srt or "here" in grid or "here" not in elan or readable
         or turns["MOT"] != [(29, 1001, "the pane [ train] is here .")])
EOF
