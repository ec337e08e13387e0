"""Sentences to cite."""

import re

from .usages import Usage


# The end of a sentence: its last marks with closing quotes and brackets, and a space, unless a small letter follows.
# Chinese and Japanese marks need no space.
END = re.compile(r"[.!?…]+[\"'”’“»«)\]]*\s+|[。！？]+[」』”’]*\s*")
# No sentence ends after these: initials and titles (J. Adams, Mr. Adams, the U.S. Army), what scholars shorten, single
# letters (z. B., d. h., i. e.), what Germans shorten, and their ordinals (am 3. Oktober, but not Abs. 3). Texts of
# tokens have a space before the mark.
ABBREVIATION = re.compile(
    r"(?:(?:^|(?<![.\s])\s)\d\d?|(?:^|[\s(.])(?:[A-Z][a-z]?|[a-z]|Prof|Abs|sog|geb|bzw|vgl"
    r"|Mrs|Gen|Gov|Hon|Col|Rev|Sen|Rep|Messrs|(?i:et al|cf|ca|vs|pp|vols?|figs?|eds?))) ?$"
)
# Characters on each side of the word, in texts without marks.
LONGEST = 600


def sentence_ends(text: str) -> list[re.Match]:
    """Finds the ends of sentences in a text."""
    return [
        match
        for match in END.finditer(text)
        if not text[match.end() : match.end() + 1].islower()
        and not ABBREVIATION.search(text[max(0, match.start() - 8) : match.start()])
    ]


def sentence_of(usage: Usage) -> tuple[str, str, str]:
    """
    Returns the text before a word in its sentence, the word, and the text after it. A side longer than 600 characters
    is cut between words, with an ellipsis.
    """
    ends = sentence_ends(usage.text)
    first = max((match.end() for match in ends if match.end() <= usage.start), default=0)
    last = min((match.end() for match in ends if match.start() >= usage.end), default=len(usage.text))
    before, after = usage.text[first : usage.start].lstrip(), usage.text[usage.end : last].rstrip()
    if len(before) > LONGEST:
        before = "…" + re.sub(r"^\S{0,20}\s", "", before[-LONGEST:])
    if len(after) > LONGEST:
        after = re.sub(r"\s\S{0,20}$", "", after[:LONGEST]) + "…"
    return before, usage.text[usage.start : usage.end], after
