#!/usr/bin/env bash
# Expected: TwitterCorpusReader.strings() gives the text of tweets that were fetched whole (full_text), or an error.
# Seen: such tweets are left out in silence, so there are fewer texts than tweets, and the two lists no longer stand
#   beside each other; of an extended tweet in a stream it gives the part that was cut off.
# Versions: nltk 3.10.4
# Who meets it: who joins texts from strings() with times from docs() by their places.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q nltk==3.10.4
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import json
import os
import sys
from importlib.metadata import version

import nltk
from nltk.corpus.reader import TwitterCorpusReader

tweets = [
    {"id": 1, "created_at": "Mon May 06 09:00:00 +0000 2024", "full_text": "a long tweet that is whole"},
    {"id": 2, "created_at": "Mon May 06 10:00:00 +0000 2024", "text": "a short one"},
    {"id": 3, "created_at": "Mon May 06 11:00:00 +0000 2024", "text": "this one is cut...", "truncated": True,
     "extended_tweet": {"full_text": "this one is cut off no more"}},
]
with open("tweets.json", "w") as file:
    file.writelines(json.dumps(tweet) + "\n" for tweet in tweets)
nltk.data.path.append(os.getcwd())
reader = TwitterCorpusReader(os.getcwd(), r".*\.json")
texts, docs = list(reader.strings()), list(reader.docs())
print("nltk", version("nltk"), "texts", texts, "tweets", len(docs))
sys.exit(texts != ["a short one", "this one is cut..."] or len(docs) != 3)
EOF
