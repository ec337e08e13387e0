#!/usr/bin/env bash
# Expected: roll_time_series makes a window of earlier posts for each post.
# Seen: two posts of a person at one second share one window that has every earlier post twice: four posts give three
#   windows, and means and counts of the middle one are wrong.
# Versions: tsfresh 0.21.2
# Who meets it: who computes features of the posts before each post; times in whole seconds or days have ties.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tsfresh==0.21.2
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import sys
from importlib.metadata import version

import pandas as pd
from tsfresh.utilities.dataframe_functions import roll_time_series

posts = pd.DataFrame({"id": ["ann"] * 4, "time": [1, 2, 2, 3], "mood": [10, 20, 30, 40]})
rolled = roll_time_series(posts, column_id="id", column_sort="time", disable_progressbar=True, n_jobs=0)
windows = {key: group["mood"].tolist() for key, group in rolled.groupby("id")}
print("tsfresh", version("tsfresh"), windows)
sys.exit(windows != {("ann", 1): [10], ("ann", 2): [10, 10, 20, 20, 30], ("ann", 3): [10, 20, 30, 40]})
EOF
