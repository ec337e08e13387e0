"""Warns of an encoder whose tokenizer does not fit the language of the texts."""

import random
import re
from collections import Counter
from collections.abc import Iterable

from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from .usages import Usages, as_read, each_usage


logger = logging.get_logger(__name__)

WORD = re.compile(r"[^\W\d_]+")
# The texts that are looked at, and the fewest words that tell something.
NUM_TEXTS, FEWEST_WORDS = 500, 200
# The share of words that are divided. English words in the tokenizer of an English BERT: 0.02 to 0.05 in speeches
# since 1790, 0.23 in the spelling of 1600, 0.34 in biology. Other languages in it: 0.47 (French), 0.65 (German), 0.70
# (Latin).
MOST_DIVIDED = 0.4


def share_divided(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> float | None:
    """
    Returns the share of the words of texts that a tokenizer divides into several tokens or does not know. None if the
    texts have fewer than 200 words.
    """
    counts = Counter(word for text in texts for word in WORD.findall(text))
    if counts.total() < FEWEST_WORDS:
        return None

    def is_divided(word: str) -> bool:
        # Byte-level tokenizers have another token at the beginning of a text.
        tokens = tokenizer.tokenize(f" {word}")
        return len(tokens) != 1 or tokens == [tokenizer.unk_token]

    return sum(count for word, count in counts.items() if is_divided(word)) / counts.total()


def warn_of_language(name: str, tokenizer: PreTrainedTokenizerBase, usages: Usages, seed: int = 42):
    """Warns if the tokenizer of an encoder divides more words of a sample of texts than one made for them does."""
    texts = list(dict.fromkeys(as_read(usage.text) for _, usage in each_usage(usages)))
    share = share_divided(tokenizer, random.Random(seed).sample(texts, min(NUM_TEXTS, len(texts))))
    if share is not None and share > MOST_DIVIDED:
        logger.warning(
            f"The tokenizer of {name} divides {100 * share:.0f} % of the words of the texts (English words by an "
            "English encoder: 5 %), so it does not seem to be made for their language or spelling: take an encoder of "
            "the language, or a multilingual one, such as FacebookAI/xlm-roberta-base or "
            "google-bert/bert-base-multilingual-cased."
        )
