#!/usr/bin/env bash
# Expected: a post that begins with '=', such as '=) slept well', comes back from Excel as it was written by pandas;
#   so does a Windows line break.
# Seen: the post is a formula that nobody has computed: it comes back missing (written by openpyxl) or as the number 0
#   (by XlsxWriter), without a warning. The line break of XlsxWriter's file is the word _x000D_ in openpyxl's reading,
#   and a line break in calamine's.
# Versions: pandas 3.1.1, openpyxl 3.1.5, xlsxwriter 3.3.1, python-calamine 0.9.1
# Who meets it: who hands posts to annotators as a spreadsheet and reads it again: smileys lose their post, and
#   _x000D_ becomes a frequent word.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pandas==3.1.1 openpyxl==3.1.5 xlsxwriter==3.3.1 python-calamine==0.9.1
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import sys
from importlib.metadata import version

import pandas as pd

posts = pd.DataFrame({"text": ["=) slept well", "first line\r\nsecond line", "fine"]})
read = {}
for writer in ("openpyxl", "xlsxwriter"):
    posts.to_excel("posts.xlsx", index=False, engine=writer)
    for reader in ("openpyxl", "calamine"):
        read[writer, reader] = pd.read_excel("posts.xlsx", engine=reader)["text"].tolist()
        print(writer, "->", reader, read[writer, reader])
print(*(f"{name} {version(name)}" for name in ("pandas", "openpyxl", "xlsxwriter", "python-calamine")))
smileys = [str(texts[0]) for texts in read.values()]
breaks = [texts[1] for texts in read.values()][2:]
sys.exit(smileys != ["nan", "nan", "0", "0"] or breaks != ["first line_x000D_\nsecond line", "first line\r\nsecond line"])
EOF
