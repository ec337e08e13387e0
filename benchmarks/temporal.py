"""What time costs by size (Table 4): forward pass, MLM training step and memory against plain BERT.

Every model has a process of its own, because the peak of memory is that of a process. Each is measured in turns with
a plain BERT of its own, so that both meet the same machine.
"""

import argparse
import itertools
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import torch
from transformers import BertConfig, BertForMaskedLM
from workload import show, table

from modeling_tempoformer import BertWithTemporalAttentionForMaskedLM, TemporalBertConfig


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


def build(form: str, size: str) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """A model and its batch."""
    torch.manual_seed(0)
    sizes = json.loads((CONFIGURATION / f"bert_{size}.json").read_text())
    del sizes["model_type"]
    batch = {
        "input_ids": torch.randint(1000, 30000, (BATCH, LENGTH)),
        "attention_mask": torch.ones(BATCH, LENGTH, dtype=torch.long),
    }
    if FORMS[form] is None:
        return BertForMaskedLM(BertConfig(**sizes)), batch
    times, in_a_text, fields = FORMS[form]
    if fields.get("prepend_time"):
        # One token more, and one word for each time point.
        batch["input_ids"] = torch.cat((torch.full((BATCH, 1), 30522), batch["input_ids"]), 1)
        batch["attention_mask"] = torch.ones_like(batch["input_ids"])
        fields = {**fields, "vocab_size": 30522 + len(times)}
    config = TemporalBertConfig(**{**sizes, **fields}, times=times)
    shape = (BATCH, in_a_text)
    batch["time_ids"] = torch.randint(3, 3 + len(times), shape).expand(batch["input_ids"].shape).contiguous()
    return BertWithTemporalAttentionForMaskedLM(config), batch


def run(form: str, size: str, threads: int):
    """Answers each line of its input with the seconds of a forward pass or a step, and the peak memory in MiB."""
    torch.set_num_threads(threads)
    model, batch = build(form, size)
    labels = torch.where(torch.rand(batch["input_ids"].shape) < 0.15, batch["input_ids"], -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    base = model.base_model
    for task in sys.stdin:
        start = time.perf_counter()
        if task.strip() == "forward":
            model.eval()
            with torch.inference_mode():
                base(**batch)
        else:
            model.train()
            model(**batch, labels=labels).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        seconds = time.perf_counter() - start
        print(json.dumps({"seconds": seconds, "peak_mib": peak}), flush=True)


def measure(size: str, forms: list[str], repeats: int, threads: int) -> dict[str, dict[str, float]]:
    """Medians of each form, and of its ratio to the first, after one call to warm up; the forms take turns."""
    command = [sys.executable, __file__, "--size", size, "--threads", str(threads)]
    workers = {
        form: subprocess.Popen([*command, "--form", form], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for form in forms
    }
    found: dict[str, dict[str, float]] = {form: {} for form in forms}
    # Forward passes are short, and processes on one machine differ by more than time costs.
    for task, turns in (("forward", 3 * repeats), ("step", repeats)):
        seconds: dict[str, list[float]] = {form: [] for form in forms}
        for repeat in range(turns + 1):
            for form, worker in workers.items():
                worker.stdin.write(f"{task}\n")
                worker.stdin.flush()
                answer = json.loads(worker.stdout.readline())
                found[form][f"{task}_peak_mib"] = answer["peak_mib"]
                if repeat:
                    seconds[form].append(answer["seconds"])
        for form in forms:
            found[form][f"{task}_seconds"] = median(seconds[form])
            # Of each turn, so that a machine that slows down does so for both.
            turns = zip(seconds[form], seconds[forms[0]], strict=True)
            found[form][f"{task}_ratio"] = median(own / plain for own, plain in turns)
    for form, worker in workers.items():
        worker.stdin.close()
        worker.wait()
        found[form]["parameters"] = sum(parameter.numel() for parameter in build(form, size)[0].parameters())
        show(benchmark="temporal", size=size, form=form, **found[form])
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--forms", nargs="+", default=[form for form in FORMS if form != PLAIN], choices=list(FORMS))
    parser.add_argument("--form", choices=list(FORMS), help="Only this one, in this process.")
    parser.add_argument("--size", choices=list(SIZES))
    args = parser.parse_args()
    if args.form:
        run(args.form, args.size, args.threads)
        return
    rows = []
    for size, form in itertools.product(args.sizes, args.forms):
        found = measure(size, [PLAIN, form], args.repeats, args.threads)
        plain, values = found[PLAIN], found[form]
        rows.append(
            [size, form, f"{values['parameters'] / 1e6:.2f} M ({plain['parameters'] / 1e6:.2f} M)"]
            + [f"{values[f'{task}_seconds']:.3f} s ({values[f'{task}_ratio']:.3f} x)" for task in ("forward", "step")]
            + [f"{values['step_peak_mib']:.0f} MiB ({values['step_peak_mib'] / plain['step_peak_mib']:.3f} x)"]
        )
    table(
        [f"{BATCH} x {LENGTH} tokens", "", "parameters (plain)", "forward", "MLM step", "peak memory"],
        rows,
    )


if __name__ == "__main__":
    main()
