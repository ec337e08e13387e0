#!/usr/bin/env bash
# Expected: a date of 1815 cannot be written to Excel, whose calendar begins in 1900: an error, or text.
# Seen: no error. XlsxWriter's file gives the day before, 1815-06-17, when openpyxl reads it, openpyxl's own file
#   gives the right day; calamine, which pandas will use by default, gives the time 00:00 for both, and 1899-12-31 is
#   00:00 for every pair.
# Versions: pandas 3.1.1, openpyxl 3.1.5, xlsxwriter 3.3.1, python-calamine 0.9.1
# Who meets it: who keeps dated letters and books in a table and passes it on as a spreadsheet.
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

texts = pd.DataFrame({"date": pd.to_datetime(["1815-06-18", "1899-12-31", "1900-03-01"]), "text": list("abc")})
read = {}
for writer in ("openpyxl", "xlsxwriter"):
    texts.to_excel("texts.xlsx", index=False, engine=writer)
    for reader in ("openpyxl", "calamine"):
        read[writer, reader] = [str(date) for date in pd.read_excel("texts.xlsx", engine=reader)["date"]]
        print(writer, "->", reader, read[writer, reader])
print(*(f"{name} {version(name)}" for name in ("pandas", "openpyxl", "xlsxwriter", "python-calamine")))
first = [dates[0] for dates in read.values()]
sys.exit(first != ["1815-06-18 00:00:00", "00:00:00", "1815-06-17 00:00:00", "00:00:00"])
EOF
