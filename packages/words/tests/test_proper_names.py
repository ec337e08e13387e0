"""Checks which usages are told apart as proper names."""

import pytest

from semantic_change.proper_names import find_names, leave_out_names, warn_of_names
from semantic_change.usages import Frequency, Usage


def usages_in(time: str, *texts: str) -> list[list[Usage]]:
    """Returns the usages of "river" in texts that have it once, in any case."""
    starts = [text.lower().index("river") for text in texts]
    return [[Usage(time, text, start, start + 5)] for text, start in zip(texts, starts, strict=True)]


NAMES = ["He saw Mr. River.", "It rained. So Andrew River went home", "the River Thames"]
OTHERS = [
    *("the river rose", "a river, a tree", "over the river", "by river"),
    # At the beginning of a sentence, after punctuation or in capitals alone a capital tells nothing.
    *("River banks fell.", "It rained. Rivers rose", "He said: \u201cRiver banks\u201d", "by the RIVER"),
]


def test_a_capital_within_a_sentence_tells_a_name():
    found = {"river": {"old": usages_in("old", *NAMES, *OTHERS)}}
    names = find_names(found)
    assert {usage.text for usage in names["river"]["old"]} == set(NAMES)
    others, frequencies = leave_out_names(found, {"river": {"old": Frequency(11, 1000, 1.5)}}, names)
    assert [usage.text for text in others["river"]["old"] for usage in text] == OTHERS
    assert frequencies["river"]["old"] == (8, 1000, 1.5)


@pytest.mark.parametrize("texts", [NAMES, [*NAMES, "the river rose"], ["the river rose"]])
def test_a_word_that_is_mostly_written_with_a_capital_has_no_names(texts, caplog):
    """Nouns of the eighteenth century and of German have capitals, too; other times of the word tell nothing."""
    found = {"river": {"old": usages_in("old", *texts), "new": usages_in("new", *OTHERS)}}
    names = find_names(found)
    assert not any(names["river"].values())
    warn_of_names(names, False)
    assert not caplog.records


def test_names_are_counted(caplog):
    names = find_names({word: {"new": usages_in("new", *NAMES, *OTHERS)} for word in ("river", "stream")})
    names["stream"]["new"].pop()
    warn_of_names(names, False)
    assert "river (3), stream (2)" in caplog.text
