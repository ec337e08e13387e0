"""
A training step, forward to optimiser, on a row of 16 targets: posts encoded once, against dense recomputation, and
against the post form, whose encoder learns or is frozen, with the vectors of the posts at hand.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from statistics import median

import torch
from workload import POST_FORM, bert_base, dense_forward, full_windows, show, table, to_streams

from modeling_tempoformer import focal_loss
from modeling_tempoformer.training.frozen_encoder import freeze_encoder


TARGETS, WINDOW = 16, 20
FORMS = ("encode once", "dense", "post form", "post form, frozen encoder")


def run(form: str, threads: int, repeats: int) -> dict[str, float]:
    """Median seconds of a step, and the peak of resident memory in MiB, in this process."""
    torch.set_num_threads(threads)
    model = bert_base(WINDOW, **(POST_FORM if form.startswith("post form") else {}))
    row = full_windows(TARGETS, WINDOW)
    if form.endswith("frozen encoder"):
        freeze_encoder(model)
        posts = {name: row.pop(name) for name in ("input_ids", "attention_mask")}
        with torch.no_grad():
            vectors = model.base_model.embed_posts(**{name: tensor[0] for name, tensor in posts.items()})
        row["post_embeds"] = vectors.unsqueeze(0)
    model.train()
    optimizer = torch.optim.AdamW((weights for weights in model.parameters() if weights.requires_grad), lr=1e-5)
    labels = torch.arange(TARGETS).remainder(2).unsqueeze(0)
    streams = to_streams(row, slice(0, TARGETS)) if form == "dense" else None
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
    parser.add_argument("--form", choices=FORMS, help="Only this one, in this process.")
    args = parser.parse_args()
    if args.form:
        show(**run(args.form, args.threads, args.repeats))
        return
    results = {}
    for form in FORMS:
        # A process of its own, because the peak of memory is that of a process.
        command = [sys.executable, __file__, "--form", form]
        command += ["--threads", str(args.threads), "--repeats", str(args.repeats)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        results[form] = json.loads(done.stdout)
        show(benchmark="training step", form=form, **results[form])
    own = results[FORMS[0]]
    rows = [
        [words, *(f"{result[name]:.2f} ({result[name] / own[name]:.3g} x)" for result in results.values())]
        for words, name in (("seconds", "seconds"), ("peak memory, MiB", "peak_mib"))
    ]
    table([f"training step, {TARGETS} targets, w = {WINDOW} (over encode once)", *FORMS], rows)


if __name__ == "__main__":
    main()
