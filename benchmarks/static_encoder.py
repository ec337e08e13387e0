"""Makes an encoder that `AutoModel` loads of static vectors, with which the default learns as with any other.

    python -m benchmarks.static_encoder static_of_mpnet outputs/static

`static_of_mpnet` is a folder of model2vec (`StaticModel.save_pretrained`, after `model2vec.distill.distill`). A BERT
without layers gives each token its weighted vector, less the mean of its numbers, which its LayerNorm takes away.
"""

import argparse
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast


# A variance beside which that of any vector is nothing, so that LayerNorm does not scale; and its root
LARGE, ROOT = 1e6, 1e3
# About the length of a post's vector, as MiniLM's: regularised regressions read them
LENGTH = 2.2


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("static_vectors", type=Path)
    parser.add_argument("output_dir")
    args = parser.parse_args()
    tensors = load_file(args.static_vectors / "model.safetensors")
    vectors = (tensors["embeddings"].double() * tensors["weights"].unsqueeze(1)).float()
    tokenizer = Tokenizer.from_file(str(args.static_vectors / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokens = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="<pad>", model_max_length=512
    )
    vectors[tokens.pad_token_id] = 0
    sentence = vectors[tokens("a sentence of ordinary length about a day")["input_ids"]].mean(0)
    config = BertConfig(
        vocab_size=len(vectors),
        hidden_size=vectors.shape[1],
        num_hidden_layers=0,
        num_attention_heads=4,
        type_vocab_size=1,
        layer_norm_eps=LARGE,
        hidden_dropout_prob=0.0,
        pad_token_id=tokens.pad_token_id,
    )
    encoder = BertModel(config, add_pooling_layer=False)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.zero_()
        encoder.embeddings.word_embeddings.weight.copy_(vectors * LENGTH / sentence.norm())
        encoder.embeddings.LayerNorm.weight.fill_(ROOT)
    encoder.save_pretrained(args.output_dir)
    tokens.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main()
