"""Counts on the CPU how many kernels a GPU would run for each model, and how often the host would wait."""

from collections import Counter

import pytest
import torch
from helpers import WITH_STATES, tiny_model
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AttentionInterface, AutoConfig, BertConfig, BertModel

from modeling_tempoformer import (
    BertWithTemporalAttention,
    PostTempoFormerConfig,
    PostTempoFormerForStreamClassification,
    TempoFormerConfig,
    TempoFormerForStreamClassification,
    TemporalBertConfig,
    packing_tempoformer,
)
from modeling_tempoformer.packing_tempoformer import TORCH_VARLEN, varlen_attention
from modeling_tempoformer.streams_tempoformer import stream_windows
from tempoformer_live.stepping import Stepper


WINDOW, TARGETS, ROWS, LONGEST = 20, 16, 3, 72


@pytest.fixture(autouse=True)
def groups_of_a_gpu(monkeypatch):
    monkeypatch.setattr(packing_tempoformer, "CPU_COST", packing_tempoformer.GPU_COST)
    monkeypatch.setattr(packing_tempoformer, "CPU_TOKENS", packing_tempoformer.GPU_TOKENS)


# The model is as deep as BERT-base, with narrow layers. Attention has no dropout, which the CPU's kernel lacks.
SIZES = {
    "hidden_size": 24,
    "num_attention_heads": 2,
    "num_hidden_layers": 12,
    "intermediate_size": 32,
    "vocab_size": 60,
    "max_position_embeddings": 128,
    "pad_token_id": 1,
}
FAMILIES = {
    "bert": {"attention_probs_dropout_prob": 0.0},
    "roberta": {"attention_probs_dropout_prob": 0.0},
    "modernbert": {"attention_dropout": 0.0, **dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id"))},
}
EVERY_FAMILY = pytest.mark.parametrize("family", list(FAMILIES))

# Operators that compute nothing. Like views, they allocate memory or pass on a tensor or a value.
NO_KERNEL = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "detach"}
NO_KERNEL |= {"lift_fresh", "_local_scalar_dense"}
# Operators whose result is a number or has a shape that depends on values.
# In inference mode some operators arrive before they are taken apart.
WAITING = {
    "_local_scalar_dense",
    "item",
    "is_nonzero",
    "nonzero",
    "masked_select",
    "bincount",
    "_unique2",
    "unique_dim",
    "equal",
}

BY_COUNTS = {torch.ops.aten.repeat_interleave.Tensor, torch.ops.aten.repeat_interleave.self_Tensor}


class GpuWork(TorchDispatchMode):
    """
    Counts operators that reach a device, operators for which the host waits, and tensors that are made of numbers of
    Python, which the host sends behind all that a device has still to do. Every operator that is neither a view nor in
    `NO_KERNEL` is a kernel on any device.
    """

    def __init__(self):
        super().__init__()
        self.kernels, self.waits, self.sent = Counter(), Counter(), 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name, kwargs = func.overloadpacket.__name__, kwargs or {}
        if not func.is_view and name not in NO_KERNEL:
            self.kernels[name] += 1
        self.sent += name == "lift_fresh"
        by_flags = name in ("index", "index_put", "index_put_") and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        )
        # A count for each element, so that the size of the result depends on values
        by_counts = func in BY_COUNTS and kwargs.get("output_size") is None
        if name in WAITING or by_flags or by_counts:
            self.waits[name] += 1
        return func(*args, **kwargs)


def deep_model(family: str) -> TempoFormerForStreamClassification:
    torch.manual_seed(0)
    encoder = AutoConfig.for_model(family, **SIZES, **FAMILIES[family])
    return TempoFormerForStreamClassification(TempoFormerConfig(encoder_config=encoder, window=WINDOW)).eval()


def mixed_batch() -> dict[str, torch.Tensor]:
    """Returns rows of 16 targets with full windows. Posts have 3 to 72 tokens."""
    generator = torch.Generator().manual_seed(0)
    posts = TARGETS + WINDOW - 1
    lengths = torch.randint(3, LONGEST + 1, (ROWS, posts, 1), generator=generator)
    mask = (torch.arange(LONGEST) < lengths).long()
    input_ids = torch.randint(5, 60, mask.shape, generator=generator)
    index = stream_windows(torch.arange(WINDOW - 1, posts), WINDOW).repeat(ROWS, 1, 1)
    return {
        "input_ids": input_ids.masked_fill(mask == 0, SIZES["pad_token_id"]),
        "attention_mask": mask,
        "stream_index": index,
        "elapsed": torch.rand(index.shape, generator=generator) * 1e4,
        "labels": torch.randint(0, 2, (ROWS, TARGETS), generator=generator),
    }


@EVERY_FAMILY
def test_forward_passes_and_training_steps_are_few_kernels(family):
    """
    The host waits for none of the kernels. It reads the lengths of posts once, by `tolist`, which is no operator.
    """
    model, batch = deep_model(family), mixed_batch()
    with torch.no_grad(), GpuWork() as forward:
        model(**batch)
    with GpuWork() as step:
        model.train()(**batch).loss.backward()
    print(f"paper's model, {family}: forward {forward.kernels.total()}, training step {step.kernels.total()}")
    assert 200 < forward.kernels.total() <= 600, forward.kernels
    assert 600 < step.kernels.total() <= 2500, step.kernels
    assert not forward.waits and not step.waits


def deep_post_model(family: str) -> PostTempoFormerForStreamClassification:
    torch.manual_seed(0)
    encoder = AutoConfig.for_model(family, **SIZES, **FAMILIES[family])
    config = PostTempoFormerConfig(encoder_config=encoder, window=WINDOW, stream_hidden_size=24)
    return PostTempoFormerForStreamClassification(config)


@EVERY_FAMILY
def test_the_post_model_runs_its_encoder_once(family):
    """Posts of 3 to 72 tokens are read in one group; the library's masks wait once or twice for it."""
    model, batch = deep_post_model(family), mixed_batch()
    batch["timeline_position"] = torch.zeros(ROWS, TARGETS, 2)
    with torch.no_grad(), GpuWork() as forward:
        model.eval()(**batch)
    with GpuWork() as step:
        model.train()(**batch).loss.backward()
    print(f"post model, {family}: forward {forward.kernels.total()}, training step {step.kernels.total()}")
    assert 300 < forward.kernels.total() <= 700, forward.kernels
    assert 600 < step.kernels.total() <= 1300, step.kernels
    assert step.waits.total() <= 2, step.waits


@pytest.fixture
def one_kernel():
    """Puts one kernel in the place of a GPU's attention, whose values do not matter here."""

    def attend(module, query, key, value, attention_mask, **kwargs):
        return torch.nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2), None

    AttentionInterface.register(TORCH_VARLEN, attend)
    yield
    AttentionInterface.register(TORCH_VARLEN, varlen_attention)


@EVERY_FAMILY
@pytest.mark.usefixtures("one_kernel")
@pytest.mark.parametrize(("make", "most"), [(deep_model, (450, 1150)), (deep_post_model, (570, 1150))])
def test_packed_posts_are_few_kernels_and_never_waited_for(family, make, most):
    model, batch = make(family), mixed_batch()
    batch["timeline_position"] = torch.zeros(ROWS, TARGETS, 2)
    model.set_attn_implementation(TORCH_VARLEN)
    with torch.no_grad(), GpuWork() as forward:
        model.eval()(**batch)
    with GpuWork() as step:
        model.train()(**batch).loss.backward()
    print(
        f"{make.__name__}, {family}, packed: forward {forward.kernels.total()}, training step {step.kernels.total()}"
    )
    assert 200 < forward.kernels.total() <= most[0], forward.kernels
    assert 600 < step.kernels.total() <= most[1], step.kernels
    assert not forward.waits and not step.waits


@pytest.mark.parametrize("residual", [False, True])
def test_time_adds_a_dozen_kernels_to_a_layer_and_one_wait(residual):
    counts, waits, ids = [], [], torch.randint(5, 60, (4, 16), generator=torch.Generator().manual_seed(0))
    fields = {**SIZES, "attention_probs_dropout_prob": 0.0}
    timed = TemporalBertConfig(**fields, times=["1810-1860", "1960-2010"], temporal_residual=residual)
    for model in (BertModel(BertConfig(**fields)), BertWithTemporalAttention(timed)):
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        batch |= {"time_ids": torch.full_like(ids, 3)} if model.config is timed else {}
        with torch.no_grad(), GpuWork() as forward:
            model.eval()(**batch)
        with GpuWork() as step:
            model.train()(**batch).last_hidden_state.sum().backward()
        counts.append(torch.tensor([forward.kernels.total(), step.kernels.total()]))
        waits.append(forward.waits.total())
    print(f"forward and training step, plain {counts[0].tolist()}, with time {counts[1].tolist()}")
    added = (counts[1] - counts[0]) / SIZES["num_hidden_layers"]
    assert added[0] < 14 and added[1] < 52
    assert waits[1] - waits[0] <= 1


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_step_sends_and_reads_nothing_between_the_encoder_and_its_answer(pooling):
    model = tiny_model(**{**WITH_STATES, "post_pooling": pooling, "first_posts": "speaker", "no_change": 1})
    memory, work = None, GpuWork()
    model.base_model.encoder.register_forward_hook(lambda *_: work.__enter__() and None)
    model.register_forward_hook(lambda *_: work.__exit__(None, None, None))
    for time in range(6):
        given = {"timeline_ids": ["a"], "timestamps": [float(time)], "speakers": ["ann" if time % 2 else "bob"]}
        memory = Stepper(model).step(torch.full((1, 3), 7), **given, memory=memory).memory
    assert work.kernels.total() > 6 * 50
    assert not work.waits and not work.sent
