"""A training step, forward to optimiser, on a row of 16 targets: posts encoded once against dense recomputation."""

import argparse
import json
import resource
import subprocess
import sys
import time
from statistics import median

import torch
from workload import bert_base, dense_forward, full_windows, show, table, to_streams

from modeling_tempoformer import focal_loss


TARGETS, WINDOW = 16, 20


def run(form: str, threads: int, repeats: int) -> dict[str, float]:
    """Median seconds of a step, and the peak of resident memory in MiB, in this process."""
    torch.set_num_threads(threads)
    model = bert_base(WINDOW).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    row = full_windows(TARGETS, WINDOW)
    labels = torch.arange(TARGETS).remainder(2).unsqueeze(0)
    streams = to_streams(row, slice(0, TARGETS))
    seconds = []
    for repeat in range(repeats + 1):
        start = time.perf_counter()
        if form == "dense":
            loss = focal_loss(dense_forward(model, **streams).unsqueeze(0), labels, 2.0, None, None)
        else:
            loss = model(**row, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if repeat:
            seconds.append(time.perf_counter() - start)
    return {"seconds": median(seconds), "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--form", choices=["encode once", "dense"], help="Only this one, in this process.")
    args = parser.parse_args()
    if args.form:
        show(**run(args.form, args.threads, args.repeats))
        return
    results = {}
    for form in ("encode once", "dense"):
        # A process of its own, because the peak of memory is that of a process.
        command = [sys.executable, __file__, "--form", form]
        command += ["--threads", str(args.threads), "--repeats", str(args.repeats)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        results[form] = json.loads(done.stdout)
        show(benchmark="training step", form=form, **results[form])
    rows = [
        [words, f"{results['encode once'][name]:.1f}", f"{results['dense'][name]:.1f}"]
        + [f"{results['dense'][name] / results['encode once'][name]:.1f} x"]
        for words, name in (("seconds", "seconds"), ("peak memory, MiB", "peak_mib"))
    ]
    header = [f"training step, {TARGETS} targets, w = {WINDOW}", "encode once", "dense, padded to the longest post"]
    table([*header, "dense over encode once"], rows)


if __name__ == "__main__":
    main()
