#!/usr/bin/env bash
# Expected: in a test whose clock is set to 2031, pandas and numpy say 2031 as datetime.now() does.
# Seen: under freezegun pandas.Timestamp.now() and numpy.datetime64('now') say today; under time-machine pandas says
#   2031 and numpy today. Posts that are stamped by one and compared with the other are years apart.
# Versions: pandas 3.1.1, freezegun 1.5.5, time-machine 3.6.0
# Who meets it: who tests a service of posts that arrive, with silences of days, by a made-up clock.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pandas==3.1.1 freezegun==1.5.5 time-machine==3.6.0
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import datetime
import sys
import time
from importlib.metadata import version

import freezegun
import numpy as np
import pandas as pd
import time_machine


def years():
    """Returns the year that each clock says."""
    return [datetime.datetime.now().year, time.gmtime().tm_year, pd.Timestamp.now().year, pd.to_datetime("now").year,
            int(str(np.datetime64("now"))[:4])]


today = datetime.datetime.now().year
with freezegun.freeze_time("2041-05-01"):
    frozen = years()
with time_machine.travel(datetime.datetime(2041, 5, 1, tzinfo=datetime.UTC)):
    travelled = years()
print(*(f"{name} {version(name)}" for name in ("pandas", "numpy", "freezegun", "time-machine")))
print("datetime, time, Timestamp.now, to_datetime('now'), numpy; freezegun", frozen, "time-machine", travelled)
sys.exit(frozen != [2041, 2041, today, today, today] or travelled != [2041, 2041, 2041, 2041, today])
EOF
