"""Finds texts that have tags or are objects of JSON, where running text is expected."""

from transformers.utils import logging


logger = logging.get_logger(__name__)

# How a line of XML or an object of JSON begins. Marks such as <user> may begin a text.
BEGINNINGS = ("</", "<?", "<!", '{"')
# The share of such texts, or of texts without a letter, that is too large: page numbers and a few tags are common.
ODD_SHARE = 0.3


def has_markup(first: str, last: str) -> bool:
    """Tells whether a text, given by its first and its last word, has tags or is an object of JSON."""
    return first.startswith(BEGINNINGS) or "</" in last


def is_marked_up(text: str) -> bool:
    """Tells whether a text has tags or is an object of JSON."""
    words = text.split(None, 1)
    return bool(words) and has_markup(words[0], text.rsplit(None, 1)[-1])


def warn_of_markup(marked: int, posts: int, column: str):
    """Warns of texts of a column of posts if many have markup."""
    if marked > ODD_SHARE * posts:
        logger.warning_once(
            f"{marked:,} of {posts:,} texts in the column {column!r} have tags or are objects of JSON, which a model "
            "reads as words: give the text without them."
        )
