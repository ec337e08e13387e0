r"""Checks what `tempoformer more_labels` says that more labels would be worth.

    python -m benchmarks.more_labels --model_name_or_path sentence-transformers/all-MiniLM-L6-v2 \
        --lrs threads.jsonl.gz --mood_diaries diaries.csv.gz --output_dir outputs/more_labels

For each corpus and each draw of its timelines: a model that has learned from n timelines expects the macro F1 of
another one that has learned from 2n, and that one comes: `own` is its score on its training posts, held out in turn,
and `test` that on other timelines. The stand-in is the model without its network, fitted in seconds; the first
`--whole` draws train whole models, too, by the default settings. Posts are encoded once for each corpus. What was
computed is not computed again.
"""

import argparse
import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from datasets import Dataset, concatenate_datasets
from transformers import AutoTokenizer, Trainer, TrainingArguments, set_seed

from modeling_tempoformer import (
    GrowExperts,
    PostTempoFormerForStreamClassification,
    StreamCollator,
    compute_metrics,
    embed_rows,
    fields_of_posts,
    fit_words,
    freeze_encoder,
    hold_out,
    label_names,
    to_rows,
    to_timelines,
)
from modeling_tempoformer.timeline_tempoformer import Timeline
from research.corpora import read_corpus
from tempoformer_label.more_labels import expect_more, macro_f1
from tempoformer_label.stand_ins import PARTS, count_predictions, deal_rows, fit_stand_in


# For each corpus n, and the number of timelines to test on
SIZES = {
    "lrs": (50, 150),
    "mood_diaries": (30, 86),
    "tiage": (50, 300),
    "meld": (50, 200),
    "ubuntu_irc": (50, 200),
    "annomi": (25, 83),
    "topic_shift": (20, 19),
}
WINDOW, LENGTH, MEMBERS = 20, 128, 5


def read_corpora(args: argparse.Namespace) -> Iterator[tuple[str, list[str], list[Timeline]]]:
    """Yields name, classes and a sample of the labelled timelines of each given corpus."""
    for corpus, (size, tested) in SIZES.items():
        if (path := getattr(args, corpus)) is not None:
            posts = concatenate_datasets([read_corpus(part, corpus) for part in path])
            names = label_names(posts)
            timelines = [timeline for timeline in to_timelines(posts, names) if max(timeline.labels) >= 0]
            order = np.random.default_rng(0).permutation(len(timelines))[: 2 * size + tested]
            yield corpus, names, [timelines[number] for number in order]


def new_model(args: argparse.Namespace, timelines: list[Timeline], names: list[str], seed: int):
    """Returns a model with the fields of its training timelines."""
    set_seed(seed)
    fields = fields_of_posts(timelines, names)
    model = PostTempoFormerForStreamClassification.from_encoder_pretrained(
        args.model_name_or_path, window=WINDOW, **fields
    )
    freeze_encoder(model)
    return model


def train(model, tokenizer, rows: Dataset, names: list[str], seed: int, folder: Path):
    """Trains a model by the settings of configuration/default.yaml."""
    steps = math.ceil(len(rows) / 40)
    arguments = TrainingArguments(
        output_dir=str(folder),
        remove_unused_columns=False,
        seed=seed,
        per_device_train_batch_size=40,
        per_device_eval_batch_size=256,
        learning_rate=1e-3,
        warmup_steps=40,
        weight_decay=0.01,
        num_train_epochs=max(4, math.ceil(400 / steps)),
        eval_strategy="steps",
        eval_steps=0.2,
        save_strategy="steps",
        save_steps=0.2,
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model="macro_f1",
        report_to="none",
        disable_tqdm=True,
    )
    collator = StreamCollator(tokenizer, window=WINDOW, timed=model.config.timed)
    settings = {"compute_metrics": compute_metrics(names), "callbacks": [GrowExperts()]}
    Trainer(model, arguments, collator, rows, rows, processing_class=tokenizer, **settings).train()


def run(
    args: argparse.Namespace, corpus: str, names: list[str], timelines: list[Timeline], size: int, draw: int, kind: str
) -> dict[str, np.ndarray]:
    """
    Learns from `size` timelines; a larger size includes the timelines of a smaller one. Returns counts of
    [`count_predictions`]: `own`, of the training posts, held out in turn; `test`, of the timelines on which all sizes
    are tested; and for a stand-in of fewer than all timelines `parts_2` and `parts_4`, of its halves and quarters.
    """
    most = 2 * SIZES[corpus][0]
    timelines = [timelines[number] for number in np.random.default_rng(draw).permutation(len(timelines))]
    learned = hold_out(timelines[:size], MEMBERS, draw)
    model, tokenizer = new_model(args, learned, names, draw), AutoTokenizer.from_pretrained(args.model_name_or_path)
    tokenizer.model_max_length = min(LENGTH, model.max_tokens)
    reads = {"targets_per_row": 1, "reads_speakers": model.config.reads_speakers, "only_labelled": True}
    # With all timelines of the corpus, so that their vectors are found in the cache.
    parts = {"train": learned, "rest": timelines[size:most], "test": timelines[most:]}
    tokens = {part: to_rows(some, tokenizer, WINDOW, **reads) for part, some in parts.items() if some}
    if kind == "whole":
        fit_words(model, tokens["train"], tokenizer)
        rows = embed_rows(tokens, model, tokenizer)
        train(model, tokenizer, rows["train"], names, draw, args.output_dir / "trainer")
        return {"own": count_predictions(model, rows["train"]), "test": count_predictions(model, rows["test"])}
    counts = {}
    for count, chosen in deal_rows(tokens["train"], draw).items():
        if count == 1 or size < most:
            fits = [fit_stand_in(model, tokens, part, tokenizer, draw) for part in chosen]
            scored = [count_predictions(fit, rows["train"]) for fit, rows in fits]
            if count > 1:
                counts[f"parts_{count}"] = np.stack(scored)
                continue
            ((fit, rows),) = fits
            counts |= {"own": scored[0], "test": count_predictions(fit, rows["test"])}
    return counts


def compare(folder: Path, corpus: str, kind: str, draw: int) -> dict:
    """Returns what is expected of twice as many timelines, and what came."""
    size = SIZES[corpus][0]
    stand_in, now, then = (
        np.load(folder / f"{corpus}-{of}-{number}-{draw}.npz")
        for of, number in (("stand-in", size), (kind, size), (kind, 2 * size))
    )
    parts = {1: stand_in["own"][None], **{count: stand_in[f"parts_{count}"] for count in PARTS[1:]}}
    curve = expect_more(now["own"], parts)
    low, high = curve["expected_interval"]
    row = {"now": curve["macro_f1"], "expected": curve["expected_macro_f1"], "low": low, "high": high}
    row |= {"gains": curve["gains"], "has_learned": curve["has_learned"]}
    for part in ("own", "test"):
        came = macro_f1(np.ones((1, len(then[part]))), then[part][None])[0]
        row |= {part: came, f"{part}_is_in": low <= came <= high}
    return {"corpus": corpus, "kind": kind, "timelines": size, "draw": draw, **row}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_name_or_path", required=True, help="An encoder.")
    for corpus in SIZES:
        parser.add_argument(f"--{corpus}", nargs="+", help="As in benchmarks/quality.py.")
    parser.add_argument("--draws", nargs="+", type=int, default=[0, 1, 2], help="Draws of timelines.")
    parser.add_argument("--whole", type=int, default=1, help="How many of them train whole models.")
    parser.add_argument("--output_dir", type=Path, required=True)
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    corpora, rows = list(read_corpora(args)), []
    for kind, draws in (("stand-in", args.draws), ("whole", args.draws[: args.whole])):
        for draw, (corpus, names, timelines), double in product(draws, corpora, (1, 2)):
            size = double * SIZES[corpus][0]
            path = args.output_dir / f"{corpus}-{kind}-{size}-{draw}.npz"
            if not path.exists():
                print(path, flush=True)
                np.savez(path, **run(args, corpus, names, timelines, size, draw, kind))
            if double == 2:
                rows.append(compare(args.output_dir, corpus, kind, draw))
    table = pd.DataFrame(rows).set_index(["kind", "corpus", "timelines", "draw"])
    table.to_csv(args.output_dir / "table.csv")
    print(table.to_string(float_format="{:.3f}".format))
    for kind, rows in table.groupby("kind"):
        for part in ("own", "test"):
            off = {name: rows[name] - rows[part] for name in ("expected", "now")}
            words = ", ".join(
                f"{name} off by {by.abs().mean():.3f} (bias {by.mean():+.3f})" for name, by in off.items()
            )
            print(f"{kind}, {part}: {words}; {rows[f'{part}_is_in'].sum()} of {len(rows)} in the interval")


if __name__ == "__main__":
    main()
