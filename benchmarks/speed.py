"""
Speed on a GPU in bfloat16: both forms of TempoFormer against plain BERT on the same posts and against the dense form,
posts that arrive one by one, and temporal attention against plain. Needs torch and Transformers alone, as all weights,
tokens and times are random; the lengths of posts are those of real ones. Prints a table and writes it as JSON.

Forward passes have their weights in bfloat16; training steps have them in float32 under autocast, as the Trainer's
`--bf16` has. Without a GPU tiny models run on the CPU, which measures nothing but shows that all of it runs.
"""

import argparse
import gc
import itertools
import json
import math
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import hub_modules  # noqa: F401
import torch
import transformers
from temporal import BATCH, FORMS, LENGTH, PLAIN, build, draw_labels, read_sizes
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertForSequenceClassification
from transformers.utils import ModelOutput
from workload import POST_FORM, collate, dense_forward, full_windows, posts_of, table, to_streams

from modeling_tempoformer.configuration_tempoformer import TempoFormerConfig
from modeling_tempoformer.loss_tempoformer import focal_loss
from modeling_tempoformer.modeling_tempoformer import TempoFormerForStreamClassification


TASKS, WINDOWS = ("forward", "training"), (5, 20)
TOKEN, POST, DENSE = "token form", "post form", "dense form"
# Those that only prepend a token are plain BERT.
TEMPORAL = [form for form in FORMS if not form.startswith("prepended")]
# What the token form should reach on an H100: targets a second in training, over the dense form; and tokens a second,
# over plain BERT.
ASKED = {"over_dense": 10.0, "of_plain": 0.5}


@dataclass
class Bench:
    """Where it runs, and how much of it."""

    device: torch.device
    encoder: dict  # fields of BertConfig
    rows: int = 3  # of a batch, as in the fast recipes
    targets: tuple[int, ...] = (16, 64)  # of a row
    dense_streams: int = 16  # at a time, which fit any GPU
    timelines: tuple[int, ...] = (1, 64, 1024)  # of an online step
    texts: tuple[int, int] = (BATCH, LENGTH)  # of temporal attention, and the tokens of each
    product: int = 8192  # rows and columns of the matrices
    warm_up: int = 3
    repeats: int = 20


def make_bench(tiny: bool) -> Bench:
    if not tiny:
        return Bench(torch.device("cuda"), read_sizes("base"))
    small = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
    # So large that logits depend on the posts.
    small["initializer_range"] = 0.3
    posts = {"rows": 1, "targets": (2, 4), "dense_streams": 4, "timelines": (1, 2, 4)}
    return Bench(torch.device("cpu"), small, **posts, texts=(2, 16), product=128, warm_up=1, repeats=1)


def time_calls(device: torch.device, function: Callable[[], object], repeats: int) -> tuple[float, int]:
    """
    Median seconds of a call, and the peak of memory in bytes: of tensors on the GPU, or of the process. Python runs
    ahead of a GPU, whose own events tell the time, so calls follow each other without a wait.
    """
    if device.type != "cuda":
        times = [time.perf_counter()]
        for _ in range(repeats):
            function()
            times.append(time.perf_counter())
        seconds = [end - start for start, end in itertools.pairwise(times)]
        return statistics.median(seconds), 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    events[0].record()
    for event in events[1:]:
        function()
        event.record()
    torch.cuda.synchronize(device)
    milliseconds = [start.elapsed_time(end) for start, end in itertools.pairwise(events)]
    return statistics.median(milliseconds) / 1000, torch.cuda.max_memory_allocated(device)


def count_launches(device: torch.device, function: Callable[[], object]) -> tuple[int, int]:
    """
    The kernels that a call launches, and its copies for which Python waits: from the GPU to the host, and to the GPU
    from memory that is not pinned. On a CPU the operators that call no other one, and 0.
    """
    on_gpu = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as profiler:
        function()
        if on_gpu:
            torch.cuda.synchronize(device)
    if not on_gpu:
        return sum(not event.cpu_children for event in profiler.events()), 0
    names = [e.name for e in profiler.events() if e.device_type == DeviceType.CUDA and not e.is_user_annotation]
    copies = sum(name.startswith(("Memcpy DtoH", "Memcpy HtoD (Pageable")) for name in names)
    return sum(not name.startswith(("Memcpy", "Memset")) for name in names), copies


def to_device(tensors: dict[str, torch.Tensor], device: torch.device) -> dict[str, torch.Tensor]:
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def free_memory(device: torch.device):
    """Gives back what the last model took."""
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()


def measure(bench: Bench, function: Callable[[], object]) -> dict[str, float]:
    """What a call takes, after some to warm up."""
    for _ in range(bench.warm_up):
        function()
    seconds, peak = time_calls(bench.device, function, bench.repeats)
    launches, copies = count_launches(bench.device, function)
    with FlopCounterMode(display=False) as counter:
        function()
    # Padding is work where it is computed.
    rate = counter.get_total_flops() / seconds
    return {"seconds": seconds, "launches": launches, "waits": copies, "peak_bytes": peak, "flop_rate": rate}


def measure_matmul(bench: Bench) -> dict[str, float]:
    left, right = torch.randn(2, bench.product, bench.product, device=bench.device, dtype=torch.bfloat16)
    return measure(bench, lambda: left @ right)


def measure_task(bench: Bench, task: str, model: torch.nn.Module, compute: Callable) -> dict[str, float]:
    """What a forward pass or a training step takes; `compute(labelled)` returns an output, with a loss or not."""
    if task == "forward":
        model.to(torch.bfloat16).eval()
        return measure(bench, torch.inference_mode()(lambda: compute(False)))
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def step():
        with torch.autocast(bench.device.type, torch.bfloat16):
            loss = compute(True).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return measure(bench, step)


def make_model(bench: Bench, form: str, window: int) -> torch.nn.Module:
    """A new model, made where it runs, without what is left of the last one."""
    free_memory(bench.device)
    torch.manual_seed(0)
    encoder = BertConfig(**bench.encoder)
    with bench.device:
        if form == PLAIN:
            return BertForSequenceClassification(encoder)
        config = TempoFormerConfig(encoder_config=encoder, window=window, **(POST_FORM if form == POST else {}))
        return TempoFormerForStreamClassification(config)


def measure_form(bench: Bench, task: str, form: str, window: int, inputs: dict, shape: tuple[int, ...]) -> dict:
    """One form on its inputs; `shape` is that of its labels."""
    model = make_model(bench, form, window)
    inputs = to_device(inputs, bench.device)
    labels = torch.arange(math.prod(shape), device=bench.device).remainder(2).view(shape)

    def compute(labelled: bool) -> ModelOutput:
        if form != DENSE:
            return model(**inputs, labels=labels if labelled else None)
        logits = dense_forward(model, **inputs).unsqueeze(0)
        return ModelOutput(logits=logits, loss=focal_loss(logits, labels, 2.0, None, None) if labelled else None)

    return {"task": task, "form": form, "window": window, **measure_task(bench, task, model, compute)}


def measure_rows(bench: Bench, task: str, window: int, targets: int) -> list[dict]:
    """Rows from the middle of long timelines: plain BERT on each post once, the dense form, and both forms."""
    rows = [full_windows(targets, window, seed) for seed in range(bench.rows)]
    batch = collate(rows)
    tokens = int(batch["attention_mask"].sum())
    posts = {name: batch[name].flatten(0, 1) for name in ("input_ids", "attention_mask")}
    streams = to_streams(rows[0], slice(0, bench.dense_streams))
    plain = measure_form(bench, task, PLAIN, window, posts, posts["input_ids"].shape[:1])
    dense = measure_form(bench, task, DENSE, window, streams, (1, len(streams["mask"])))
    dense["targets_per_s"] = len(streams["mask"]) / dense["seconds"]
    ours = [measure_form(bench, task, form, window, batch, (bench.rows, targets)) for form in (TOKEN, POST)]
    for found in ours:
        found["targets_per_s"] = bench.rows * targets / found["seconds"]
        found["over_dense"] = found["targets_per_s"] / dense["targets_per_s"]
        found["of_plain"] = plain["seconds"] / found["seconds"]
    for found in (plain, *ours):
        found["real_tokens_per_s"] = tokens / found["seconds"]
    return [{**found, "size": targets} for found in (plain, dense, *ours)]


@torch.inference_mode()
def compare_with_dense(bench: Bench, window: int) -> dict:
    """How far a logit of the token form is from the dense form at most, in standard deviations between streams."""
    model = make_model(bench, TOKEN, window).to(torch.bfloat16).eval()
    row = full_windows(bench.dense_streams, window)
    streams = to_streams(row, slice(0, bench.dense_streams))
    logits = model(**to_device(row, bench.device)).logits[0].float()
    dense = dense_forward(model, **to_device(streams, bench.device)).float()
    return {"window": window, "largest_over_sd": float((logits - dense).abs().max() / dense.std(0).mean())}


def measure_online(bench: Bench, form: str, timelines: int) -> dict:
    """A step with one new post of each timeline, of which the posts of a whole window are remembered."""
    window = max(WINDOWS)
    model = make_model(bench, form, window).to(torch.bfloat16).eval()
    row = full_windows(timelines, window)
    old, new = posts_of(row, 0, window - 1), posts_of(row, window - 1, window - 1 + timelines)
    ids, minutes = [str(number) for number in range(timelines)], itertools.count(window)
    times = [60.0 * number for number in range(1, window)]
    state = model.step(**old, timeline_ids=ids[:1] * (window - 1), timestamps=times).state
    remembered = state.posts[ids[0]]
    for timeline_id in ids[1:]:
        state.remember(timeline_id, window, remembered, times)

    def step():
        model.step(**new, timeline_ids=ids, timestamps=[60.0 * next(minutes)] * timelines, state=state)

    found = {"task": "online step", "form": form, "window": window, "size": timelines, **measure(bench, step)}
    tokens, seconds = int(new["attention_mask"].sum()), found["seconds"]
    rates = {"targets_per_s": timelines / seconds, "real_tokens_per_s": tokens / seconds}
    return {**found, **rates, "state_bytes": state.nbytes / timelines}


def measure_temporal(bench: Bench, task: str, form: str) -> dict:
    """Temporal attention or plain BERT: the encoder's forward pass, or a step of masked language modelling."""
    free_memory(bench.device)
    with bench.device:
        model, batch = build(form, bench.encoder, *bench.texts)
        labels = draw_labels(batch)

    def compute(labelled: bool) -> ModelOutput:
        return model(**batch, labels=labels) if labelled else model.base_model(**batch)

    found = measure_task(bench, task, model, compute)
    rate = math.prod(bench.texts) / found["seconds"]
    return {"task": f"temporal {task}", "form": form, **found, "real_tokens_per_s": rate}


def measure_all(bench: Bench) -> list[dict]:
    results = []
    for task, window, targets in itertools.product(TASKS, WINDOWS, bench.targets):
        results += measure_rows(bench, task, window, targets)
    results += [measure_online(bench, *case) for case in itertools.product((TOKEN, POST), bench.timelines)]
    for task in TASKS:
        found = [measure_temporal(bench, task, form) for form in TEMPORAL]
        plain = found[TEMPORAL.index(PLAIN)]["seconds"]
        results += [{**figures, "of_plain": plain / figures["seconds"]} for figures in found]
    return results


# Of each column the figure, what it is divided by, and its format.
COLUMNS = {
    "": ("task", None, ""),
    "form": ("form", None, ""),
    "w": ("window", None, ""),
    "targets of a row, or timelines": ("size", None, ",d"),
    "ms": ("seconds", 1e-3, ".2f"),
    "real tokens/s": ("real_tokens_per_s", 1, ",.0f"),
    f"over plain BERT's (asked of the token form: {ASKED['of_plain']})": ("of_plain", 1, ".2f"),
    "targets/s": ("targets_per_s", 1, ",.0f"),
    f"over dense (asked of the token form in training: {ASKED['over_dense']:.0f})": ("over_dense", 1, ".1f"),
    "FLOP/s over matmul": ("of_matmul", 1, ".2f"),
    "launches": ("launches", None, ",d"),
    "waits for the GPU": ("waits", None, ",d"),
    "peak MiB": ("peak_bytes", 2**20, ",.0f"),
}


def show_table(results: list[dict]):
    rows = []
    for found in results:
        cells = []
        for name, unit, style in COLUMNS.values():
            value = found.get(name, "")
            cells.append(value if value == "" else format(value if unit is None else value / unit, style))
        rows.append(cells)
    table(list(COLUMNS), rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="Tiny models on the CPU, as where there is no GPU.")
    parser.add_argument("--output", default="outputs/gpu.json", type=Path, help="The file of all figures.")
    args = parser.parse_args()
    started = time.perf_counter()
    bench = make_bench(args.tiny or not torch.cuda.is_available())
    on_gpu = bench.device.type == "cuda"
    report = {
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "measured_on_gpu": on_gpu,
        "dtype": "bfloat16",
        "versions": {"torch": torch.__version__, "cuda": torch.version.cuda, "transformers": transformers.__version__},
        "asked_on_an_h100": ASKED,
    }
    print(report["device"] if on_gpu else "Nothing is measured on a GPU: tiny models run on the CPU.", flush=True)
    report["matmul"] = measure_matmul(bench)
    report["differences_from_dense"] = [compare_with_dense(bench, window) for window in WINDOWS]
    report["results"] = measure_all(bench)
    for found in report["results"]:
        found["of_matmul"] = found["flop_rate"] / report["matmul"]["flop_rate"]
    report["seconds"] = time.perf_counter() - started
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(report, indent=2), encoding="utf-8")
    show_table(report["results"])
    print(f"\nAll figures: {args.output}. Asked is of an H100.")


if __name__ == "__main__":
    main()
