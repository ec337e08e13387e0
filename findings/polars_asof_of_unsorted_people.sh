#!/usr/bin/env bash
# Expected: join_asof of posts and sensor values by person is an error where one person's times are not sorted, as it
#   is without `by`.
# Seen: a missing or an older value in silence: the warning that sortedness cannot be checked is the same for sorted
#   tables, so nobody reads it.
# Versions: polars 2.1.0
# Who meets it: who joins heart rates or ratings to posts by person and time, from files that append late values.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q polars==2.1.0
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import sys
import warnings

import polars as pl

values = pl.DataFrame({"person": ["x", "x", "x", "y"], "time": [3, 1, 2, 1], "heart": [30, 10, 20, 5]})
posts = pl.DataFrame({"person": ["x", "x", "y"], "time": [2, 3, 2]})
warned = []
joined = []
for table in (values, values.sort("person", "time")):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        joined.append(posts.join_asof(table, on="time", by="person")["heart"].to_list())
    warned.append([str(warning.message) for warning in caught])
try:
    posts.sort("time").join_asof(values, on="time")
    refused = False
except pl.exceptions.InvalidOperationError:
    refused = True
print("polars", pl.__version__, "unsorted", joined[0], "sorted", joined[1], "warnings", warned, "refused without by", refused)
sys.exit(joined != [[None, 20, 5], [20, 30, 5]] or warned[0] != warned[1] or not refused)
EOF
