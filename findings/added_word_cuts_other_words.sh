#!/usr/bin/env bash
# Expected: a word that is added to an uncased BERT tokenizer, to give it a vector of its own, leaves other words as
#   they were.
# Seen: planes becomes plane and a lone letter s (not ##s), and airplane air and plane, so that usages of other words
#   get the new word's vector and half of their own tokens.
# Versions: transformers 5.24.0
# Who meets it: who gives a target word of semantic change a token of its own; AddedToken(single_word=True) leaves
#   other words alone.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q transformers==5.24.0
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import sys

import transformers
from tokenizers import AddedToken
from transformers import BertTokenizerFast

vocabulary = "[PAD] [UNK] [CLS] [SEP] [MASK] the air ##plane ##s aero planes s plane_".split()


def tokens(added):
    """Returns the tokens of inflected and compound words after a word was added."""
    tokenizer = BertTokenizerFast(vocab={word: number for number, word in enumerate(vocabulary)})
    if added is not None:
        tokenizer.add_tokens([added])
    return tokenizer.tokenize("planes airplane")


before, after, single = tokens(None), tokens("plane"), tokens(AddedToken("plane", single_word=True))
print("transformers", transformers.__version__, "before", before, "after", after, "single_word", single)
sys.exit(before != ["planes", "air", "##plane"] or after != ["plane", "s", "air", "plane"] or single != before)
EOF
