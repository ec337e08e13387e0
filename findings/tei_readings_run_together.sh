#!/usr/bin/env bash
# Expected: extract_fulltext of a TEI edition gives one of two readings (orig or reg), and words stay apart at a
#   line's end.
# Seen: both readings run together into one word (vnderunder, MrMister), so do the words around a line break
#   (treeand), and a note stands inside the sentence (fellplane).
# Versions: acdh-tei-pyutils 2.4.0
# Who meets it: who makes plain text of TEI for counting words: none of these is a usage of the word.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q acdh-tei-pyutils==2.4.0
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import sys
from importlib.metadata import version

from acdh_tei_pyutils.cli import NS
from acdh_tei_pyutils.tei import TeiReader
from acdh_tei_pyutils.utils import extract_fulltext

with open("letter.xml", "w") as file:
    file.write(f"""<TEI xmlns="{NS['tei']}"><text><body><p>It stood <choice><orig>vnder</orig><reg>under</reg></choice> the
<choice><abbr>Mr</abbr><expan>Mister</expan></choice> tree<lb/>and fell<note>plane = tree</note>.</p></body></text></TEI>""")
text = extract_fulltext(TeiReader("letter.xml").any_xpath(".//tei:body")[0])
print("acdh-tei-pyutils", version("acdh-tei-pyutils"), repr(text))
sys.exit(not all(word in text.split() for word in ("vnderunder", "MrMister", "treeand", "fellplane")))
EOF
