"""What time costs by size (Table 4): forward pass, MLM training step and memory against plain BERT.

Time is measured in one process, in which a model and plain BERT take turns: two processes differ by more than time
costs. The peak of memory is that of a process, so there every model has one of its own.
"""

import argparse
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from transformers import BertConfig, BertForMaskedLM
from workload import show, table

# Each from its own file: `gpu.py` has nothing but these files.
from modeling_tempoformer.configuration_temporal_bert import TemporalBertConfig
from modeling_tempoformer.modeling_temporal_bert import BertWithTemporalAttentionForMaskedLM


CONFIGURATION = Path(__file__).parents[1] / "configuration"
BATCH, LENGTH = 32, 128
SIZES = ("base", "small", "tiny")
TWO, MANY = ["1810-1860", "1960-2010"], [str(year) for year in range(1000, 2000)]
PLAIN = "plain BERT"
# Time points, time points in a text, fields of the configuration.
FORMS = {
    PLAIN: None,
    "attention, 2 times": (TWO, 1, {}),
    "attention, 1,000 times": (MANY, 1, {}),
    "attention, a time for each token": (MANY, LENGTH, {}),
    "residual, 2 times": (TWO, 1, {"temporal_residual": True}),
    "prepended, 2 times": (TWO, 1, {"temporal_attention": "none", "prepend_time": True}),
}


def read_sizes(size: str) -> dict:
    """The fields of a configuration of that size."""
    sizes = json.loads((CONFIGURATION / f"bert_{size}.json").read_text())
    del sizes["model_type"]
    return sizes


def build(
    form: str, sizes: dict, batch_size: int = BATCH, length: int = LENGTH
) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """A model and its batch."""
    torch.manual_seed(0)
    batch = {
        "input_ids": torch.randint(1000, 30000, (batch_size, length)),
        "attention_mask": torch.ones(batch_size, length, dtype=torch.long),
    }
    if FORMS[form] is None:
        return BertForMaskedLM(BertConfig(**sizes)), batch
    times, in_a_text, fields = FORMS[form]
    if fields.get("prepend_time"):
        # One token more, and one word for each time point.
        batch["input_ids"] = torch.cat((torch.full((batch_size, 1), 30522), batch["input_ids"]), 1)
        batch["attention_mask"] = torch.ones_like(batch["input_ids"])
        fields = {**fields, "vocab_size": 30522 + len(times)}
    config = TemporalBertConfig(**{**sizes, **fields}, times=times)
    shape = (batch_size, min(in_a_text, length))
    batch["time_ids"] = torch.randint(3, 3 + len(times), shape).expand(batch["input_ids"].shape).contiguous()
    return BertWithTemporalAttentionForMaskedLM(config), batch


def draw_labels(batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Some of a batch's tokens as the labels of masked language modelling."""
    return torch.where(torch.rand(batch["input_ids"].shape) < 0.15, batch["input_ids"], -100)


def make_tasks(form: str, size: str) -> dict[str, Callable[[], None]]:
    """A forward pass and a training step."""
    model, batch = build(form, read_sizes(size))
    labels = draw_labels(batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def forward():
        model.eval()
        with torch.inference_mode():
            model.base_model(**batch)

    def step():
        model.train()
        model(**batch, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return {"forward": forward, "step": step}


def peak_mib(form: str, size: str, threads: int) -> float:
    """Memory of two steps of a model, in a process of its own."""
    command = [sys.executable, __file__, "--only", form, "--sizes", size, "--threads", str(threads)]
    return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def measure(size: str, form: str, repeats: int, threads: int) -> dict[str, float]:
    """Medians of a form and of plain BERT in turns, and of their ratio in each turn, after one turn to warm up."""
    tasks = {name: make_tasks(name, size) for name in (PLAIN, form)}
    found = {}
    # Forward passes are short.
    for task, turns in (("forward", 2 * repeats), ("step", repeats)):
        seconds: dict[str, list[float]] = {name: [] for name in tasks}
        for turn in range(turns + 1):
            # Neither is always the first.
            for name in sorted(tasks, reverse=bool(turn % 2)):
                start = time.perf_counter()
                tasks[name][task]()
                if turn:
                    seconds[name].append(time.perf_counter() - start)
        found[f"{task}_seconds"], found[f"{task}_plain_seconds"] = median(seconds[form]), median(seconds[PLAIN])
        # Of each turn, so that a machine that slows down does so for both.
        pairs = zip(seconds[form], seconds[PLAIN], strict=True)
        found[f"{task}_ratio"] = median(own / plain for own, plain in pairs)
    del tasks
    found["peak_mib"], found["plain_peak_mib"] = (peak_mib(name, size, threads) for name in (form, PLAIN))
    for name, which in (("parameters", form), ("plain_parameters", PLAIN)):
        found[name] = sum(parameter.numel() for parameter in build(which, read_sizes(size))[0].parameters())
    show(benchmark="temporal", size=size, form=form, **found)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--forms", nargs="+", default=[form for form in FORMS if form != PLAIN], choices=list(FORMS))
    parser.add_argument("--only", choices=list(FORMS), help="Print the peak of memory of this one, in MiB.")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.only:
        step = make_tasks(args.only, args.sizes[0])["step"]
        step()
        step()
        # Not `ru_maxrss`, which starts at the peak of the process that started this one.
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        print(int(status["VmHWM"].split()[0]) / 1024)
        return
    rows = []
    for size, form in itertools.product(args.sizes, args.forms):
        found = measure(size, form, args.repeats, args.threads)
        rows.append(
            [size, form, f"{found['parameters'] / 1e6:.2f} M ({found['plain_parameters'] / 1e6:.2f} M)"]
            + [f"{found[f'{task}_seconds']:.3f} s ({found[f'{task}_ratio']:.3f} x)" for task in ("forward", "step")]
            + [f"{found['peak_mib']:.0f} MiB ({found['peak_mib'] / found['plain_peak_mib']:.3f} x)"]
        )
    table([f"{BATCH} x {LENGTH} tokens", "", "parameters (plain)", "forward", "MLM step", "peak memory"], rows)


if __name__ == "__main__":
    main()
