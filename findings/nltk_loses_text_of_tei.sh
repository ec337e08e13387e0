#!/usr/bin/env bash
# Expected: the words of a letter in TEI (P4, without a namespace) by XMLCorpusReader are those of the text, perhaps with those of the header.
# Seen: the header's are there, and all text that follows a child element is lost: after a line break, a note or a
#   corrected word the paragraph ends. nltk.data.path must have the folder, too, else the reader refuses it (new in
#   3.10).
# Versions: nltk 3.10.4
# Who meets it: who counts a word over dated letters: half of the text is not there, and words of 1998's publisher
#   are.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q nltk==3.10.4
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import os
import sys
from importlib.metadata import version

import nltk
from nltk.corpus.reader import XMLCorpusReader

with open("letter.xml", "w") as file:
    file.write("""<TEI.2><teiHeader><fileDesc><titleStmt><title>Letter to Emma</title>
</titleStmt><publicationStmt><p>Printed 1998</p></publicationStmt></fileDesc></teiHeader><text><body>
<p>The plane tree stood<lb/>in the <hi>old</hi> square and fell.</p></body></text></TEI.2>""")
nltk.data.path.append(os.getcwd())
words = list(XMLCorpusReader(os.getcwd(), r".*\.xml").words("letter.xml"))
print("nltk", version("nltk"), words)
sys.exit(words != ["Letter", "to", "Emma", "Printed", "1998", "The", "plane", "tree", "stood", "old"])
EOF
