"""How many kernels a GPU would run and how often the host would wait for it, counted on the CPU."""

from collections import Counter

import pytest
import torch
from helpers import FORMS
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary
from transformers import AutoConfig

from modeling_tempoformer import (
    TempoFormerConfig,
    TempoFormerForStreamClassification,
    modeling_tempoformer,
    online_tempoformer,
    packing_tempoformer,
)
from modeling_tempoformer.windows_tempoformer import stream_windows


WINDOW, TARGETS, ROWS, LONGEST = 20, 16, 3, 72
# As deep as BERT-base, but narrow. Attention has no dropout, because the CPU's kernel for attention has none.
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
IN_BOTH_FORMS = pytest.mark.parametrize("form", FORMS, ids=str)
EVERY_FAMILY = pytest.mark.parametrize("family", list(FAMILIES))

# Operators that compute nothing: beside views, they get memory or pass a tensor or a value on.
NO_KERNEL = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "detach"}
NO_KERNEL |= {"lift_fresh", "_local_scalar_dense"}
# Operators whose result has a shape, or is a number, that depends on values.
WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "bincount", "_unique2", "unique_dim", "equal"}


class GpuWork(TorchDispatchMode):
    """
    Counts the operators that reach a device: every one that is neither a view nor in `NO_KERNEL` is a kernel, wherever
    its tensors are; and the times that the host waits: `WAITING` operators, `repeat_interleave` whose length is not
    given, an index of booleans, and `tolist`.

    Waits count for tensors of the device: all, or with `model` its weights, what `to_device` returns, and what is
    computed with any of them.
    """

    def __init__(self, model: torch.nn.Module | None = None):
        super().__init__()
        self.kernels, self.waits = Counter(), Counter()
        self.on_device = None
        if model is not None:
            self.on_device = WeakTensorKeyDictionary(dict.fromkeys([*model.parameters(), *model.buffers()]))

    def wait(self, name: str, tensors):
        if self.on_device is None or any(tensor in self.on_device for tensor in find_tensors(tensors)):
            self.waits[name] += 1

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name, kwargs = func.overloadpacket.__name__, kwargs or {}
        if not func.is_view and name not in NO_KERNEL:
            self.kernels[name] += 1
        if name in WAITING or (name == "repeat_interleave" and kwargs.get("output_size") is None):
            self.wait(name, args)
        if name in ("index", "index_put", "index_put_"):
            if any(index is not None and index.dtype == torch.bool for index in args[1]):
                self.wait(name, args)
        result = func(*args, **kwargs)
        if self.on_device is not None and any(t in self.on_device for t in find_tensors((args, kwargs))):
            self.on_device.update(dict.fromkeys(find_tensors(result)))
        return result

    def __enter__(self):
        self.patch = pytest.MonkeyPatch()
        tolist, to_device = torch.Tensor.tolist, packing_tempoformer.to_device

        def count_tolist(tensor):
            self.wait("tolist", tensor)
            return tolist(tensor)

        def mark_moved(values, device):
            # A new tensor even where there is nothing to move.
            moved = to_device(values, device).detach()
            if self.on_device is not None:
                self.on_device[moved] = None
            return moved

        self.patch.setattr(torch.Tensor, "tolist", count_tolist)
        for module in (packing_tempoformer, modeling_tempoformer, online_tempoformer):
            self.patch.setattr(module, "to_device", mark_moved)
        return super().__enter__()

    def __exit__(self, *error):
        self.patch.undo()
        return super().__exit__(*error)


def find_tensors(values) -> list[torch.Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


def deep_model(family: str, form: dict[str, str]) -> TempoFormerForStreamClassification:
    torch.manual_seed(0)
    encoder = AutoConfig.for_model(family, **SIZES, **FAMILIES[family])
    return TempoFormerForStreamClassification(TempoFormerConfig(encoder_config=encoder, window=WINDOW, **form)).eval()


def mixed_batch() -> dict[str, torch.Tensor]:
    """Rows of 16 targets with full windows, of posts of 3 to 72 tokens."""
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


def test_the_counter_counts():
    values = torch.arange(6.0)
    with GpuWork() as work:
        values.view(2, 3).T[0].add(1).mul_(2)
        values[values > 2]
        values.sum().item()
        values.tolist()
        torch.arange(2).repeat_interleave(torch.tensor([1, 2]))
        torch.arange(2).repeat_interleave(torch.tensor([1, 2]), output_size=3)
    assert work.kernels["add"] == work.kernels["mul_"] == 1 and not work.kernels["view"]
    assert dict(+work.waits) == {"index": 1, "_local_scalar_dense": 1, "tolist": 1, "repeat_interleave": 1}


def test_the_counter_tells_the_device_from_the_host():
    model, host = torch.nn.Linear(2, 2), torch.ones(3, 2)
    with torch.no_grad(), GpuWork(model) as work:
        host.sum().item(), host.tolist(), host.nonzero()
        assert not work.waits
        model(host).split(1)[0].tolist()
        moved = packing_tempoformer.to_device(host, host.device)
        (host + moved.view(-1, 2)).nonzero()
        host.tolist()
    assert dict(work.waits) == {"tolist": 1, "nonzero": 1}


@EVERY_FAMILY
@IN_BOTH_FORMS
def test_a_forward_pass_is_few_kernels_and_waits_once(family, form):
    model, batch = deep_model(family, form), mixed_batch()
    with torch.no_grad(), GpuWork() as work:
        model(**batch)
    assert 200 < work.kernels.total() <= 600, work.kernels
    assert work.waits.total() == 1, work.waits


@EVERY_FAMILY
@IN_BOTH_FORMS
def test_a_training_step_is_few_kernels_and_waits_once(family, form):
    model, batch = deep_model(family, form).train(), mixed_batch()
    with GpuWork() as work:
        model(**batch).loss.backward()
    assert 600 < work.kernels.total() <= 2500, work.kernels
    assert work.waits.total() == 1, work.waits


@EVERY_FAMILY
@IN_BOTH_FORMS
def test_an_online_step_is_few_kernels_and_waits_once(family, form):
    """For the logits: the posts come from the host, where what shapes depend on is read without waiting."""
    model, batch = deep_model(family, form), mixed_batch()
    state = None
    for posts in (slice(0, WINDOW), slice(WINDOW, WINDOW + 1)):
        ids, mask = (batch[name][:, posts].flatten(0, 1) for name in ("input_ids", "attention_mask"))
        each = len(ids) // ROWS
        names = [name for name in "abc" for _ in range(each)]
        times = [float(posts.start + post) for _ in "abc" for post in range(each)]
        with GpuWork(model) as work:
            state = model.step(ids, mask, timeline_ids=names, timestamps=times, state=state).state
    assert 200 < work.kernels.total() <= 600, work.kernels
    assert work.waits.total() == 1, work.waits


@IN_BOTH_FORMS
def test_each_timeline_of_an_online_step_adds_one_kernel(form):
    """The copy that is remembered of its new post."""
    model = deep_model("bert", form)
    counts = []
    for num_timelines in (40, 80):
        names, state = [str(number) for number in range(num_timelines)], None
        for time in range(3):
            ids = torch.randint(5, 60, (num_timelines, 9), generator=torch.Generator().manual_seed(time))
            times = [float(time)] * num_timelines
            with GpuWork() as work:
                state = model.step(ids, timeline_ids=names, timestamps=times, state=state).state
        counts.append(work.kernels.total())
    assert counts[1] - counts[0] == 40, counts
