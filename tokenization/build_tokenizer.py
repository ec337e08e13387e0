"""Builds the small WordPiece tokenizer of the offline demo from the demo's vocabulary."""

from pathlib import Path

from transformers import BertTokenizer

from modeling_tempoformer.posts.synthetic import WORDS


SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,!?'-"


def main():
    pieces = [*SPECIAL, *CHARACTERS, *(f"##{character}" for character in CHARACTERS), *WORDS]
    tokenizer = BertTokenizer(vocab={piece: i for i, piece in enumerate(dict.fromkeys(pieces))}, model_max_length=64)
    tokenizer.save_pretrained(Path(__file__).parent)


if __name__ == "__main__":
    main()
