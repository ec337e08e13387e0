#!/usr/bin/env bash
# Expected: feedparser reads 09:00 CEST of a blog's feed as 07:00 in UTC, or gives no time.
# Seen: 09:00 in UTC, as if there were no zone, without a word, for CEST, BST, IST and AEST, while EST and CST are
#   moved; email.utils gives the same without a zone. In one feed of posts before and after a move the order can turn
#   round.
# Versions: feedparser 6.0.14
# Who meets it: who collects blogs and forums by their feeds, whose times become posts of one timeline.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q feedparser==6.0.14
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import email.utils
import sys
from importlib.metadata import version

import feedparser

hours = {}
for zone in ("CEST", "BST", "IST", "AEST", "EST", "CST", "+0200"):
    date = f"Mon, 06 May 2024 09:00:00 {zone}"
    feed = f"<rss version='2.0'><channel><title>blog</title><item><title>post</title><pubDate>{date}</pubDate></item></channel></rss>"
    hours[zone] = feedparser.parse(feed).entries[0].published_parsed.tm_hour
    print(f"{date:32} feedparser, UTC: {hours[zone]:2}   email.utils: {email.utils.parsedate_to_datetime(date).isoformat()}")
print("feedparser", version("feedparser"))
sys.exit(hours != {"CEST": 9, "BST": 9, "IST": 9, "AEST": 9, "EST": 14, "CST": 15, "+0200": 7})
EOF
