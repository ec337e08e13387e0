#!/usr/bin/env bash
# Expected: `posts[posts.label != 'No']` keeps the same posts of one CSV file however pandas was told to read it.
# Seen: read as it comes, a post without a label is kept; with dtype_backend='pyarrow' or 'numpy_nullable' it is
#   dropped, while query('label != "No"') on the same table keeps it. The share of posts that are not No changes from
#   0.75 to 0.67. Filters of Parquet files, in pandas and datasets, and polars drop it, too.
# Versions: pandas 3.1.1, pyarrow 26.0.1, polars 2.1.0
# Who meets it: who leaves out a class and keeps the rest as context: unlabelled posts between labelled ones vanish,
#   and silences between posts grow.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pandas==3.1.1 pyarrow==26.0.1 polars==2.1.0
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import io
import sys

import pandas as pd
import polars as pl

csv = "id,label\n1,Yes\n2,No\n3,\n4,Yes\n"
kept, shares = {}, {}
for backend in (None, "pyarrow", "numpy_nullable"):
    posts = pd.read_csv(io.StringIO(csv), **({"dtype_backend": backend} if backend else {}))
    kept[backend] = posts[posts["label"] != "No"]["id"].tolist(), posts.query('label != "No"')["id"].tolist()
    shares[backend] = round(float((posts["label"] != "No").mean()), 2)
pd.read_csv(io.StringIO(csv)).to_parquet("posts.parquet")
filtered = pd.read_parquet("posts.parquet", filters=[("label", "!=", "No")])["id"].tolist()
in_polars = pl.read_csv(io.StringIO(csv)).filter(pl.col("label") != "No")["id"].to_list()
print("pandas", pd.__version__, "polars", pl.__version__, "by mask and by query", kept, "shares", shares)
print("Parquet's filter", filtered, "polars", in_polars)
expected = {None: ([1, 3, 4], [1, 3, 4]), "pyarrow": ([1, 4], [1, 3, 4]), "numpy_nullable": ([1, 4], [1, 3, 4])}
sys.exit(kept != expected or shares[None] != 0.75 or filtered != [1, 4] or in_polars != [1, 4])
EOF
