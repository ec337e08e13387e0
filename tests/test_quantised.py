"""Checks models whose linear layers are in int8, quantised by torchao and by PyTorch's own dynamic quantiser."""

import copy
import io

import pytest
import torch
from helpers import TIMES, TINY, tiny_batch, tiny_model
from torch import nn

from modeling_tempoformer import BertWithTemporalAttentionForMaskedLM, TemporalBertConfig
from tempoformer_live.stepping import Stepper


torchao = pytest.importorskip("torchao.quantization")

# A width at which linear layers take most of the memory.
WIDE = {**TINY, "hidden_size": 64, "intermediate_size": 128}


pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def stream_model(**settings) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    return tiny_model(encoder_config={"model_type": "bert", "pad_token_id": 0, **WIDE}, **settings), tiny_batch()


def text_model() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    config = TemporalBertConfig(times=TIMES, pad_token_id=0, time_initializer_range=1.0, **WIDE)
    rows = {name: tensor[:, 0] for name, tensor in tiny_batch().items() if name in ("input_ids", "attention_mask")}
    model = BertWithTemporalAttentionForMaskedLM(config).eval()
    return model, rows | {"time_ids": 3 * rows["attention_mask"]}


def assert_close(actual: torch.Tensor, expected: torch.Tensor):
    """
    Bounds the change of a logit, relative to the spread of the logits. Steps of 8 bits are a hundredth of a weight.
    """
    assert 0 < (actual - expected).abs().max() / expected.std() < 0.2


def size(model: nn.Module) -> int:
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    return file.tell()


def by_pytorch(model: nn.Module) -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(model, {nn.Linear})


def by_torchao(model: nn.Module) -> nn.Module:
    torchao.quantize_(model, torchao.Int8WeightOnlyConfig())
    return model


MODELS = {
    "the paper's model": stream_model,
    "post model": lambda: stream_model(model_type="post_tempoformer"),
    "texts": text_model,
}


@pytest.mark.parametrize("quantise", [by_pytorch, by_torchao])
@pytest.mark.parametrize("kind", MODELS)
def test_quantised_is_close_and_smaller(kind, quantise):
    """Models run on batches and on posts that arrive."""
    model, batch = MODELS[kind]()
    quantised = quantise(copy.deepcopy(model))
    with torch.no_grad():
        assert_close(quantised(**batch).logits, model(**batch).logits)
    assert size(quantised) < 0.6 * size(model)
    if kind == "texts":
        return
    logits = []
    for one in (quantised, model):
        memory, steps = None, []
        for post in range(6):
            inputs = {name: batch[name][0, post : post + 1] for name in ("input_ids", "attention_mask")}
            output = Stepper(one).step(**inputs, timeline_ids=["ann"], timestamps=[60.0 * post], memory=memory)
            memory = output.memory
            steps.append(output.logits)
        logits.append(torch.cat(steps))
    assert_close(*logits)
