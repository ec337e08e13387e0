"""Models with linear layers in int8, by torchao and by PyTorch's own dynamic quantiser."""

import copy
import io

import pytest
import torch
from helpers import TIMES, TINY, tiny_batch, tiny_model
from torch import nn

from modeling_tempoformer import BertWithTemporalAttentionForMaskedLM, TemporalBertConfig


torchao = pytest.importorskip("torchao.quantization")

# Wide enough that most of the memory is that of linear layers.
WIDE = {**TINY, "hidden_size": 64, "intermediate_size": 128}
# The largest change of a logit, relative to the spread of the logits: 8 bits are steps of a hundredth of a weight.
BOUND = 0.2


def stream_model(**settings) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    batch = tiny_batch()
    del batch["labels"]
    encoder = {"model_type": "bert", "pad_token_id": 0, **WIDE}
    return tiny_model(encoder_config=encoder, **settings), batch


def text_model() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    config = TemporalBertConfig(times=TIMES, pad_token_id=0, time_initializer_range=1.0, **WIDE)
    rows = {name: tensor[:, 0] for name, tensor in tiny_batch().items() if name in ("input_ids", "attention_mask")}
    model = BertWithTemporalAttentionForMaskedLM(config).eval()
    return model, rows | {"time_ids": 3 * rows["attention_mask"]}


def size(model: nn.Module) -> int:
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    return file.tell()


def dynamic(model: nn.Module) -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(model, {nn.Linear})


def int8_weights(model: nn.Module) -> nn.Module:
    torchao.quantize_(model, torchao.Int8WeightOnlyConfig())
    return model


MODELS = {
    "the paper's model": stream_model,
    "post model": lambda: stream_model(model_type="post_tempoformer"),
    "texts": text_model,
}


pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
EVERY_QUANTISER = pytest.mark.parametrize("quantise", [int8_weights, dynamic])


@EVERY_QUANTISER
@pytest.mark.parametrize("kind", list(MODELS))
def test_quantised_is_close_and_smaller(kind, quantise):
    model, batch = MODELS[kind]()
    quantised = quantise(copy.deepcopy(model))
    with torch.no_grad():
        expected, found = model(**batch).logits, quantised(**batch).logits
    change = (found - expected).abs().max() / expected.std()
    assert 0 < change < BOUND
    assert size(quantised) < 0.6 * size(model)


@EVERY_QUANTISER
@pytest.mark.parametrize("kind", ["the paper's model", "post model"])
def test_a_quantised_model_reads_posts_that_arrive(kind, quantise):
    model, batch = MODELS[kind]()
    quantised, state = quantise(copy.deepcopy(model)), None
    posts = {name: batch[name][0] for name in ("input_ids", "attention_mask")}
    posts = {name: tensor[posts["attention_mask"].any(-1)] for name, tensor in posts.items()}
    names, times = ["ann"] * len(posts["input_ids"]), [60.0 * post for post in range(len(posts["input_ids"]))]
    expected = model.step(**posts, timeline_ids=names, timestamps=times).logits
    found = []
    for post in range(len(names)):
        new = {name: tensor[post : post + 1] for name, tensor in posts.items()}
        output = quantised.step(**new, timeline_ids=names[:1], timestamps=times[post : post + 1], state=state)
        state = output.state
        found.append(output.logits)
    assert 0 < (torch.cat(found) - expected).abs().max() / expected.std() < BOUND
