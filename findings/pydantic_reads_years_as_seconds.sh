#!/usr/bin/env bash
# Expected: a field of type datetime refuses the text '1815', and reads the basic ISO date '20240506' as 6 May 2024.
# Seen: '1815' is half past midnight on 1 January 1970, and '20240506' is in August 1970: texts of digits are seconds
#   since 1970. A number above 2e10 is milliseconds, so the year 3000 in seconds is 1971. A field of type date refuses
#   them all.
# Versions: pydantic 2.14.4
# Who meets it: who puts a service with typed requests (FastAPI) before texts with a year, or posts with compact
#   dates: all are in 1970, in the order of their numbers, so nothing looks wrong.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pydantic==2.14.4
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import sys
from datetime import date, datetime

import pydantic


class Post(pydantic.BaseModel):
    written: datetime


class Text(pydantic.BaseModel):
    written: date


read = {value: Post(written=value).written.isoformat() for value in ("1815", "20240506", "32503680000", "1815-06-18")}
print("pydantic", pydantic.VERSION, read)
refused = []
for value in ("1815", "20240506"):
    try:
        Text(written=value)
    except pydantic.ValidationError as error:
        refused.append(value)
        print("as a date:", value, error.errors()[0]["msg"])
sys.exit([time[:4] for time in read.values()] != ["1970", "1970", "1971", "1815"] or len(refused) != 2)
EOF
