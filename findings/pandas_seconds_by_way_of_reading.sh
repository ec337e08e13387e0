#!/usr/bin/env bash
# Expected: in pandas 3.1 the integers behind a time, .astype('int64'), have one unit, whichever way the time was
#   read.
# Seen: microseconds from text and Excel, but seconds from read_csv(engine='pyarrow'), nanoseconds from to_datetime of
#   seconds with a fraction, milliseconds from Stata. Code that divides by 10**6 (or by 10**9, as in pandas 2) gives
#   1970 or the far future for some files. merge_asof of two such tables is an error, merge is not.
# Versions: pandas 3.1.1, pyarrow 26.0.1, openpyxl 3.1.5
# Who meets it: who turns times into seconds since 1970 for a model, from more than one kind of file.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pandas==3.1.1 pyarrow==26.0.1 openpyxl==3.1.5
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import io
import sys

import pandas as pd

csv = "timestamp\n2024-05-01 09:00:00\n"
posts = pd.read_csv(io.StringIO(csv), parse_dates=["timestamp"])
posts.to_excel("posts.xlsx", index=False)
posts.to_stata("posts.dta")
read = {
    "read_csv": posts,
    "read_csv, pyarrow": pd.read_csv(io.StringIO(csv), parse_dates=["timestamp"], engine="pyarrow"),
    "seconds": pd.DataFrame({"timestamp": pd.to_datetime([1714554000], unit="s")}),
    "seconds with a fraction": pd.DataFrame({"timestamp": pd.to_datetime([1714554000.5], unit="s")}),
    "read_excel": pd.read_excel("posts.xlsx"),
    "read_stata": pd.read_stata("posts.dta")[["timestamp"]],
}
numbers = {way: int(table["timestamp"].astype("int64").iloc[0]) for way, table in read.items()}
print("pandas", pd.__version__)
for way, number in numbers.items():
    print(f"{way:25} {read[way]['timestamp'].dtype!s:16} {number:20} as microseconds {pd.to_datetime(number, unit='us').year}")
digits = {way: len(str(number)) for way, number in numbers.items()}
sys.exit(list(digits.values()) != [16, 10, 16, 19, 16, 13])
EOF
