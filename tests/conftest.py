"""Tiny models and batches, shared by the tests, which reach no other machine."""

import os
import runpy
from pathlib import Path

import pytest
import torch

from modeling_tempoformer import TempoFormerConfig, TempoFormerForStreamClassification


# Tiny tensors: threads cost more than they bring, and sums come out the same on any machine.
torch.set_num_threads(1)

NO_NETWORK = Path(__file__).parent / "no_network"


@pytest.fixture(scope="session", autouse=True)
def refused_connections(tmp_path_factory) -> Path:
    """Blocks other machines in this process and in those that it starts; the file of what was refused."""
    file = tmp_path_factory.mktemp("network") / "refused.txt"
    settings = runpy.run_path(str(NO_NETWORK / "sitecustomize.py"))
    os.environ[settings["REFUSED"]] = str(file)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(NO_NETWORK), os.environ.get("PYTHONPATH")]))
    return file


@pytest.fixture(autouse=True)
def no_network(refused_connections):
    """Fails a test that asked for another machine, also where the one who asked went on without."""
    yield
    if refused_connections.exists():
        asked = refused_connections.read_text(encoding="utf-8")
        refused_connections.unlink()
        pytest.fail(f"Other machines were asked for:\n{asked}")


TINY = {
    "hidden_size": 16,
    "num_attention_heads": 2,
    "num_hidden_layers": 3,
    "intermediate_size": 24,
    "vocab_size": 60,
    "max_position_embeddings": 24,
}


DEBERTA = {
    **TINY,
    "pad_token_id": 0,
    "relative_attention": True,
    "position_buckets": 4,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "type_vocab_size": 0,
}

# Every family, and those of its forms that run other code.
ENCODERS = {
    "bert": {**TINY, "pad_token_id": 0},
    "camembert": {**TINY, "pad_token_id": 1},
    "deberta-v2": DEBERTA,
    "deberta-v2, with convolution": {**DEBERTA, "conv_kernel_size": 3, "conv_act": "gelu"},
    "deberta-v2, other positions": {
        **DEBERTA,
        "share_att_key": False,
        "position_biased_input": True,
        "position_buckets": -1,
        "norm_rel_ebd": "none",
        "type_vocab_size": 2,
    },
    "distilbert": {
        "vocab_size": 60,
        "dim": 16,
        "n_heads": 2,
        "n_layers": 3,
        "hidden_dim": 24,
        "max_position_embeddings": 24,
        "pad_token_id": 0,
    },
    "electra": {**TINY, "pad_token_id": 0, "embedding_size": 16},
    "electra, narrow embeddings": {**TINY, "pad_token_id": 0, "embedding_size": 8},
    # Local attention to 2 tokens on each side, in the middle layer.
    "modernbert": {**TINY, "pad_token_id": 0, "local_attention": 4, "global_attn_every_n_layers": 2},
    "mpnet": {**TINY, "pad_token_id": 1},
    "roberta": {**TINY, "pad_token_id": 1},
    "xlm-roberta": {**TINY, "pad_token_id": 1},
}


def tiny_encoder(family: str = "bert") -> dict:
    return {"model_type": family.split(",")[0], **ENCODERS[family]}


def tiny_model(family: str = "bert", seed: int = 0, **settings) -> TempoFormerForStreamClassification:
    """Weights wide enough that every part of the model shows in the logits."""
    torch.manual_seed(seed)
    attention = settings.pop("attn_implementation", None)
    encoder = {**tiny_encoder(family), "initializer_range": 0.3}
    config = TempoFormerConfig(**{"encoder_config": encoder, "window": 4, "num_labels": 3, **settings})
    model = TempoFormerForStreamClassification._from_config(config, attn_implementation=attention).eval()
    if config.stream_residual:
        for layer in model.tempoformer.stream_layers:
            torch.nn.init.normal_(layer.attention.o_proj.weight, std=0.3)
    return model


def tiny_batch(seed: int = 0, num_posts: int = 6, window: int = 4, pad: int = 0) -> dict[str, torch.Tensor]:
    """Two rows; the second has two posts fewer, and its posts are shorter."""
    generator = torch.Generator().manual_seed(seed)
    input_ids = torch.randint(5, 60, (2, num_posts, 7), generator=generator)
    attention_mask = torch.ones_like(input_ids)
    attention_mask[1, :, 5:] = 0
    attention_mask[1, num_posts - 2 :] = 0
    input_ids[attention_mask == 0] = pad
    stream_index = (torch.arange(num_posts)[:, None] + torch.arange(1 - window, 1)).clamp_min(-1)
    stream_index = stream_index.repeat(2, 1, 1)
    stream_index[1, num_posts - 2 :] = -1
    times = torch.rand(2, num_posts, generator=generator).mul(1e5).cumsum(-1)
    window_times = times[torch.arange(2)[:, None, None], stream_index.clamp_min(0)]
    elapsed = (window_times[..., -1:] - window_times).masked_fill(stream_index < 0, 0)
    labels = torch.randint(0, 3, (2, num_posts), generator=generator)
    labels[1, num_posts - 2 :] = -100
    return {
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "stream_index": stream_index,
        "elapsed": elapsed,
        "labels": labels,
    }


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    return tiny_batch()


@pytest.fixture
def tokenization() -> Path:
    """The offline tokenizer."""
    return Path(__file__).parents[1] / "tokenization"
