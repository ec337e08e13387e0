#!/usr/bin/env bash
# Expected: a text of 105 tokens is read whole by a static model whose max_length is 512 tokens.
# Seen: its last words are not read, since the text is cut at max_length times the median length of the vocabulary's
#   tokens in letters before it is tokenized: long words, links and repeated names use up the letters.
# Versions: model2vec 0.10.0
# Who meets it: who embeds long posts by a distilled model for speed: two posts that differ at their end have one
#   vector.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q model2vec==0.10.0
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import sys
from importlib.metadata import version

import numpy as np
from model2vec import StaticModel
from tokenizers import Tokenizer, models, pre_tokenizers

words = ["[PAD]", "[UNK]", "calm", "sad", "internationalization", "so", "on", "a"]
tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
vectors = np.random.default_rng(0).normal(size=(len(words), 16)).astype("float32")
model = StaticModel(vectors=vectors, tokenizer=tokenizer)


def end_is_read(first_words):
    """Tells whether the vector of a text depends on its last five words."""
    calm, sad = (model.encode([first_words + f" {last}" * 5], max_length=512) for last in ("calm", "sad"))
    return not np.allclose(calm, sad)


short, long = end_is_read("so " * 100), end_is_read("internationalization " * 100)
print("model2vec", version("model2vec"), "the end of 105 short words is read:", short, "of 105 long words:", long)
sys.exit(not short or long)
EOF
