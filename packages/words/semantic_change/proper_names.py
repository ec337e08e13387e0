"""Finds proper names among the usages of words, by their capitals within a sentence."""

from transformers.utils import logging

from .citations import sentence_of
from .usages import Frequencies, Usage, UsagesByText


logger = logging.get_logger(__name__)

# The names by word and time.
Names = dict[str, dict[str, set[Usage]]]


def is_within_sentence(usage: Usage) -> bool:
    """Tells whether a word, an initial or a title (`Mr.`) stands right before a usage in its sentence."""
    before = sentence_of(usage)[0].rstrip()
    return before[-1:].isalnum() or before.endswith(".")


def find_names(found: UsagesByText) -> Names:
    """
    Finds the usages that begin with a capital within a sentence, at the times at which more usages of the word begin
    with a small letter. Words in capitals alone are none.
    """
    names: Names = {word: {} for word in found}
    for word, by_time in found.items():
        for time, texts in by_time.items():
            written = [(usage, usage.text[usage.start : usage.end]) for text in texts for usage in text]
            num_small = sum(form[0].islower() for _, form in written)
            capital = {usage for usage, form in written if form[0].isupper() and form[1:].islower()}
            within = set(filter(is_within_sentence, capital)) if num_small else set()
            names[word][time] = within if len(within) < num_small else set()
    return names


def leave_out_names(found: UsagesByText, frequencies: Frequencies, names: Names) -> tuple[UsagesByText, Frequencies]:
    """Returns usages, and the frequencies of the words that have any, without names."""
    others = {
        word: {
            time: [rest for text in texts if (rest := [usage for usage in text if usage not in names[word][time]])]
            for time, texts in by_time.items()
        }
        for word, by_time in found.items()
    }
    counted = {
        word: {
            time: frequency._replace(count=sum(map(len, others[word][time]))) for time, frequency in by_time.items()
        }
        for word, by_time in frequencies.items()
    }
    return others, counted


def warn_of_names(names: Names, are_left_out: bool):
    """Counts the names of each word in a warning."""
    counts = {word: sum(map(len, by_time.values())) for word, by_time in names.items()}
    counted = ", ".join(
        f"{word} ({count:,})" for word, count in sorted(counts.items(), key=lambda item: -item[1]) if count
    )
    if counted:
        are = (
            "left out (--without_names)" if are_left_out else "read as usages, unless --without_names leaves them out"
        )
        logger.warning(
            f"Words that begin with a capital within a sentence, and mostly do not, may be proper names: {counted}. "
            f"They are {are}."
        )
