"""Converts checkpoints of the published TempoFormer code into models of this package."""

import argparse
import re

import torch
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig

from modeling_tempoformer.configuration_tempoformer import TempoFormerConfig
from modeling_tempoformer.modeling_tempoformer import TempoFormerForStreamClassification


# Tensors of the published checkpoint that its forward pass never reads.
UNUSED = re.compile(
    r"pooler_window\.|encoder\.(intermediate|output)_hist\.|mha_cls\.(ff_linear_\d|norm\d)\.|position_ids$|inv_freq$"
)
RENAMED = [
    (r"^tempoformer\.(embeddings|pooler|encoder\.layer)\b", r"tempoformer.encoder.\1"),
    (r"\.localembedding\.position_enc_word\.", ".position.embedding."),
    (r"\.localembedding\.pos_layernorm_word\.", ".position.norm."),
    (r"\.mha_cls\.([qkv])\.", r".attention.\1_proj."),
    (r"\.mha_cls\.(att_proj_linear|out_proj)\.", ".attention.o_proj."),
    (r"^tempoformer\.encoder\.seq_layer\.\d+\.gate\.w\.", "tempoformer.fusion.gate."),
    (r"^tempoformer\.encoder\.seq_layer\.\d+\.gated_layernorm\.", "tempoformer.fusion.norm."),
    (r"^tempoformer\.encoder\.seq_layer\.", "tempoformer.stream_layers."),
    (r"^(dense|lstm)\.", r"classifier.\1."),
]


def convert_state_dict(
    published: dict[str, torch.Tensor], encoder_config: PreTrainedConfig, **settings
) -> TempoFormerForStreamClassification:
    """
    Builds a model from a state dict of the published code.

    Args:
        published (`dict[str, torch.Tensor]`): The state dict. Its tensors tell the window, the number of stream
            layers, the kind of stream attention, the fusion, the head and its widths.
        encoder_config (`PreTrainedConfig`): Configuration of the BERT-like encoder that was trained.
        settings: Fields of [`TempoFormerConfig`], such as `stream_attention="rotary"`. They override the values that
            the tensors tell.

    Returns:
        The model in evaluation mode. Raises a `ValueError` that lists tensors that are missing or not understood.
    """
    published = {name: tensor for name, tensor in published.items() if not UNUSED.search(name)}
    stream = "tempoformer.encoder.seq_layer."
    indices = {int(name[len(stream) :].split(".")[0]) for name in published if name.startswith(stream)}
    if not indices:
        raise ValueError(
            f"The state dict has no tensor '{stream}*': it was not saved by the published TempoFormer code."
        )
    count = max(indices) + 1
    # The layers of the head in order. In this package they have the indices 0, 3, 6, ..., between ReLU and dropout.
    hidden = sorted({int(name.split(".")[2]) for name in published if name.startswith("classifier.linear_layers.")})
    head = ["input_layer", *(f"linear_layers.{i}" for i in hidden), "final_layer"]
    full = f"{stream}0.mha_cls.in_proj_weight" in published
    recurrent = "lstm.weight_hh_l0" in published
    positions = [f"{stream}{i}.localembedding.position_enc_word.weight" in published for i in range(count)]
    config = {
        "num_stream_layers": count,
        "stream_attention": "full" if full else "temporal_rotary",
        "stream_position_embeddings": positions,
        "fusion": "gate" if any(".gate.w." in name for name in published) else "none",
        "head": "lstm" if recurrent else "mlp",
        "head_hidden_sizes": [len(published[f"classifier.{name}.bias"]) for name in head[:-1]],
        "num_labels": len(published["classifier.final_layer.bias"]),
        "recurrent_order": "reverse",
    }
    if any(positions):
        layer = positions.index(True)
        config["window"] = len(published[f"{stream}{layer}.localembedding.position_enc_word.weight"])
    if recurrent:
        config["lstm_hidden_size"] = published["lstm.weight_hh_l0"].shape[1]
    config = TempoFormerConfig(encoder_config=encoder_config, **{**config, **settings})
    model = TempoFormerForStreamClassification(config).eval()

    split = encoder_config.num_hidden_layers - count
    converted = {}
    for name, tensor in published.items():
        block = re.match(r"tempoformer\.encoder\.layer\.(\d+)\.", name)
        if (block and int(block[1]) >= split) or (recurrent and name.startswith("tempoformer.pooler.")):
            continue  # The published code computes these layers, but uses the stream layers' output instead.
        name = re.sub(
            r"^tempoformer\.encoder\.seq_layer\.(\d+)\.transformer_layer\.",
            lambda match: f"tempoformer.encoder.encoder.layer.{split + int(match[1])}.",
            name,
        )
        if name.startswith("classifier."):
            layer, kind = name.removeprefix("classifier.").rsplit(".", 1)
            name = f"classifier.mlp.{3 * head.index(layer)}.{kind}"
        elif "tempoformer.encoder.encoder." not in name:
            for pattern, replacement in RENAMED:
                name = re.sub(pattern, replacement, name)
        if packed := re.match(r"(.*)\.mha_cls\.in_proj_(weight|bias)$", name):
            for part, chunk in zip("qkv", tensor.chunk(3), strict=True):
                converted[f"{packed[1]}.attention.{part}_proj.{packed[2]}"] = chunk
        else:
            # The published gate weighs the two inputs the other way round, and 1 - sigmoid(x) = sigmoid(-x).
            converted[name] = -tensor if ".fusion.gate." in name else tensor
    missing, unexpected = model.load_state_dict(converted, strict=False)
    if missing or unexpected:
        raise ValueError(f"Could not convert: missing {sorted(missing)}, not understood {sorted(unexpected)}.")
    return model


def main():
    parser = argparse.ArgumentParser(description="Convert a checkpoint of the published TempoFormer code.")
    parser.add_argument("checkpoint", help="state dict saved by the published code with torch.save")
    parser.add_argument("output_dir", help="folder for the converted model")
    parser.add_argument("--encoder", required=True, help="folder or Hub id of the encoder that was trained")
    parser.add_argument("--without_time", action="store_true", help="it was trained without time (rotary by position)")
    args = parser.parse_args()
    published = torch.load(args.checkpoint, map_location="cpu", weights_only=True)
    settings = {"stream_attention": "rotary"} if args.without_time else {}
    model = convert_state_dict(published, AutoConfig.from_pretrained(args.encoder), **settings)
    model.save_pretrained(args.output_dir)
    AutoTokenizer.from_pretrained(args.encoder).save_pretrained(args.output_dir)


if __name__ == "__main__":
    main()
