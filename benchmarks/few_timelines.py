r"""Measures what the default and simpler methods learn from ten to eighty timelines.

    python -m benchmarks.few_timelines --model_name_or_path outputs/minilm \
        --lrs threads.jsonl.gz --annomi annomi_full.csv.gz --output_dir outputs/few

Each draw holds out another fifth of the timelines, as `quality.py` does, and takes the first 10, 20, 40 and 80 of the
others in random order, so that a larger training has all timelines of a smaller one. The default is trained in this
process with the settings of `configuration/default.yaml` and the stock Trainer, and each post is encoded once for all
draws. Held-out timelines are sampled. Finished runs are not repeated.
"""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, StratifiedGroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers import AutoTokenizer, PreTrainedTokenizerBase, set_seed

from benchmarks.quality import SIZES as SIZES_OF
from benchmarks.quality import read_corpora, split
from modeling_tempoformer import PostTempoFormerForStreamClassification, StreamCollator
from modeling_tempoformer.baselines import position_and_time, trees
from modeling_tempoformer.common.command_line import parse
from modeling_tempoformer.common.files import data_folder
from modeling_tempoformer.evaluation.predictions import all_labels, timeline_numbers
from modeling_tempoformer.evaluation.significance import paired_bootstrap
from modeling_tempoformer.posts.model_fields import fields_of_posts
from modeling_tempoformer.posts.rows import to_rows
from modeling_tempoformer.posts.splits import hold_out
from modeling_tempoformer.timeline_tempoformer import Timeline
from modeling_tempoformer.training.experts import GrowExperts
from modeling_tempoformer.training.fine_tuning import DEFAULT_LENGTH, DEFAULT_WINDOW
from modeling_tempoformer.training.frozen_encoder import embed_rows, freeze_encoder, post_vectors
from modeling_tempoformer.training.stream_trainer import StreamTrainer, StreamTrainingArguments
from modeling_tempoformer.training.word_fitting import fit_words


SIZES, MOST_TESTED = (10, 20, 40, 80), 40
STRENGTHS, FOLDS = (1e-4, 1e-3, 1e-2), 3  # inverse L2 penalties of the linear baseline, for standardised inputs
METHODS = ("default", "linear", "trees", "position and time")


class KeptVectors:
    """The vectors of posts by their tokens. A post is encoded when a model asks for it first."""

    def __init__(self):
        self.vectors: dict[tuple[int, ...], torch.Tensor] = {}

    def serve(self, model: PostTempoFormerForStreamClassification):
        """Lets a model, whose encoder all others share, look its vectors up."""
        encode = model.base_model.encode_posts

        def look_up(input_ids: torch.Tensor, attention_mask: torch.Tensor, **inputs: torch.Tensor) -> torch.Tensor:
            pairs = zip(input_ids.tolist(), attention_mask.sum(1).tolist(), strict=True)
            keys = [tuple(tokens[:length]) for tokens, length in pairs]
            if new := [number for number, key in enumerate(keys) if key not in self.vectors]:
                given = {name: values[new] for name, values in inputs.items()}
                encoded = encode(input_ids[new], attention_mask[new], **given)
                self.vectors |= zip((keys[number] for number in new), encoded, strict=True)
            return torch.stack([self.vectors[key] for key in keys])

        model.base_model.encode_posts = look_up


class MergedTrainer(StreamTrainer):
    """
    The Trainer, whose training batches hold each post once: the rows of a batch become one row for each held-out fold.
    Each stream, and the loss, is the same.
    """

    def get_train_dataloader(self) -> DataLoader:
        usual = self.data_collator
        self.data_collator = partial(merge_rows, usual)
        try:
            return super().get_train_dataloader()
        finally:
            self.data_collator = usual


def merge_rows(collate: StreamCollator, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Returns the batch of rows of one target each, as one row for each held-out fold."""
    batch, merged = collate(rows), []
    for member in batch["held_out"].unique():
        members_rows = (batch["held_out"] == member).nonzero().flatten().tolist()
        vectors, place = [], {}
        for number in members_rows:
            for post, vector in zip(rows[number]["post_index"], batch["post_embeds"][number], strict=False):
                if place.setdefault(post, len(vectors)) == len(vectors):
                    vectors.append(vector)
        new = {"post_embeds": torch.stack(vectors), "attention_mask": torch.ones(len(vectors), 1, dtype=torch.long)}
        for name, values in batch.items():
            if name in ("stream_index", "speaker_posts"):
                # The last place stands for no post, which is -1.
                moved = [[place[post] for post in rows[number]["post_index"]] for number in members_rows]
                moved = [torch.tensor([*places, -1]) for places in moved]
                absent = [len(places) - 1 for places in moved]
                new[name] = torch.cat(
                    [
                        places[values[number].masked_fill(values[number] < 0, last)]
                        for number, places, last in zip(members_rows, moved, absent, strict=True)
                    ]
                )
            elif name not in (*new, "held_out"):
                new[name] = values[members_rows].flatten(0, 1)
        merged.append(new)
    fills = {"stream_index": -1, "speaker_posts": -1, "labels": -100}
    padded = {name: pad_sequence([row[name] for row in merged], True, fills.get(name, 0)) for name in merged[0]}
    return padded | {"held_out": batch["held_out"].unique()}


def learn(
    model_name: str,
    tokenizer: PreTrainedTokenizerBase,
    kept: KeptVectors,
    train: list[Timeline],
    test: list[Timeline],
    names: list[str],
    seed: int,
    folder: Path,
) -> dict[str, np.ndarray]:
    """Trains the default. Returns logits of test posts and of held-out training posts, and vectors of both."""
    arguments = [str(data_folder("configuration") / "default.yaml"), "--output_dir", str(folder), "--use_cpu"]
    arguments += ["--seed", str(seed), "--report_to", "none", "--disable_tqdm", "true", "--do_train"]
    args = parse([StreamTrainingArguments], arguments, only_these=False)[0]
    set_seed(seed)
    train = hold_out(train, 5, seed)
    model = PostTempoFormerForStreamClassification.from_encoder_pretrained(
        model_name, window=DEFAULT_WINDOW, **fields_of_posts(train, names)
    )
    freeze_encoder(model)
    kept.serve(model)
    settings = {"only_labelled": True, "reads_speakers": model.config.reads_speakers}
    rows = {
        "train": to_rows(train, tokenizer, DEFAULT_WINDOW, 1, part="train", **settings),
        "held_out": to_rows(train, tokenizer, DEFAULT_WINDOW, part="train", **settings),
        "test": to_rows(test, tokenizer, DEFAULT_WINDOW, part="test", **settings),
    }
    fit_words(model, rows["train"], tokenizer)
    rows = embed_rows(rows, model, tokenizer, keeps=False)
    args.extend_epochs(len(rows["train"]))
    trainer = MergedTrainer(
        model=model,
        args=args,
        train_dataset=rows["train"],
        eval_dataset=rows["held_out"],
        processing_class=tokenizer,
        data_collator=StreamCollator(tokenizer, DEFAULT_WINDOW, timed=model.config.timed),
        callbacks=[GrowExperts()],
    )
    trainer.train()
    model = trainer.model.eval()
    results: dict[str, np.ndarray] = {"weights": model.mixture.weights.numpy()}
    results["best_step"] = np.array(trainer.state.best_global_step)
    for part, kind, timelines in (("train", "held_out", train), ("test", "test", test)):
        trainer.predict_posts(rows[kind], timelines)
        is_labelled = all_labels(timelines) >= 0
        results[f"{part}_logits"] = torch.cat([timeline.logits for timeline in timelines]).numpy()[is_labelled]
        experts = torch.cat([timeline.expert_logits for timeline in timelines]).numpy()
        results[f"{part}_experts"] = experts[is_labelled]
        hidden = model.config.encoder_config.hidden_size
        results[f"{part}_vectors"] = post_vectors(rows[kind], timelines)[:, :hidden]
    results["held_out"] = np.repeat([timeline.held_out for timeline in train], list(map(len, train)))
    return results


def linear(
    train: Sequence[Timeline], test: Sequence[Timeline], train_vectors: np.ndarray, test_vectors: np.ndarray
) -> np.ndarray:
    """
    Returns the classes (posts,) of test posts by a logistic regression of [post; post before; difference], whose
    penalty is chosen for macro F1 on held-out training timelines.
    """
    labels, numbers = all_labels(train), timeline_numbers(train)
    learned, is_target = labels >= 0, all_labels(test) >= 0
    regression = LogisticRegression(class_weight="balanced", max_iter=100, tol=1e-3)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), regression),
        {"logisticregression__C": STRENGTHS},
        scoring="f1_macro",
        cv=StratifiedGroupKFold(FOLDS),
    )
    search.fit(steps(train, train_vectors)[learned], labels[learned], groups=numbers[learned])
    return search.predict(steps(test, test_vectors)[is_target])


def steps(timelines: Sequence[Timeline], vectors: np.ndarray) -> np.ndarray:
    """Returns [post; post before; difference] of each post (posts, 3 * hidden), 0 where there is no post before."""
    firsts = np.cumsum([0, *map(len, timelines)])[:-1]
    before = np.roll(vectors, 1, axis=0)
    before[firsts], difference = 0, vectors - before
    difference[firsts] = 0
    return np.concatenate((vectors, before, difference), axis=1)


def run(
    args: argparse.Namespace,
    tokenizer: PreTrainedTokenizerBase,
    kept: KeptVectors,
    path: Path,
    train: list[Timeline],
    test: list[Timeline],
    names: list[str],
    seed: int,
):
    """Trains all methods, and writes what they say of the test posts."""
    results = learn(args.model_name_or_path, tokenizer, kept, train, test, names, seed, path.with_suffix(""))
    labelled, count = all_labels(test) >= 0, len(names)
    vectors = results["train_vectors"], results["test_vectors"]
    results["default"] = results["test_logits"].argmax(-1)
    results["linear"] = linear(train, test, *vectors)
    results["trees"] = trees.predict(train, test, count, vectors)[labelled].argmax(-1)
    results["position and time"] = position_and_time.predict(train, test, count)[labelled].argmax(-1)
    for part, timelines in (("train", train), ("test", test)):
        results[f"{part}_labels"], results[f"{part}_timelines"] = all_labels(timelines), timeline_numbers(timelines)
    results["test_ids"] = np.array([timeline.timeline_id for timeline in test])
    np.savez(path, **results)


def shuffle_labels(timelines: list[Timeline], seed: int) -> list[Timeline]:
    """Returns timelines whose labelled posts have each other's labels."""
    labels = all_labels(timelines)
    labels[labels >= 0] = np.random.default_rng(seed).permutation(labels[labels >= 0])
    ends = np.cumsum(list(map(len, timelines)))[:-1]
    pairs = zip(timelines, np.split(labels, ends), strict=True)
    return [replace(timeline, labels=given.tolist()) for timeline, given in pairs]


def run_all(args: argparse.Namespace) -> Iterator[tuple[str, int, int, Path]]:
    """Runs each draw that is not there. Yields corpus, size, seed and the file of each."""
    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path, model_max_length=DEFAULT_LENGTH)
    for corpus, names, timelines, _ in read_corpora(args):
        kept = KeptVectors()
        for seed, size in product(args.seeds, args.sizes):
            path = args.output_dir / f"{corpus}-{size}-{seed}.npz"
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                train, test = split(corpus, timelines, seed, size)
                test = np.random.default_rng(seed).permutation(test)[: args.most_tested]
                parts = [[timelines[number] for number in numbers] for numbers in (train, test)]
                if args.random_labels:
                    parts = [shuffle_labels(part, seed) for part in parts]
                if args.no_states:
                    parts = [[replace(timeline, states=None) for timeline in part] for part in parts]
                run(args, tokenizer, kept, path, *parts, names, seed)
            yield corpus, size, seed, path


def table_rows(runs: Iterable[tuple[str, int, int, Path]]) -> Iterator[dict[str, Any]]:
    """Yields a row for each corpus, number of timelines and method."""
    found: dict[tuple[str, int], list[dict[str, np.ndarray]]] = {}
    for corpus, size, seed, path in runs:
        results = dict(np.load(path))
        labels = results["test_labels"]
        results["labels"] = labels[labels >= 0]
        # Draws may test the same timeline.
        results["groups"] = np.array([f"{number} {seed}" for number in results["test_timelines"][labels >= 0]])
        found.setdefault((corpus, size), []).append(results)
    for (corpus, size), draws in found.items():
        count = draws[0]["test_logits"].shape[-1]
        labels, groups = (np.concatenate([draw[name] for draw in draws]) for name in ("labels", "groups"))
        ours = np.concatenate([draw[METHODS[0]] for draw in draws])
        for method in METHODS:
            scores = [f1_score(draw["labels"], draw[method], average="macro") for draw in draws]
            row = {"corpus": corpus, "timelines": size, "method": method, "macro_f1": 100 * np.mean(scores)}
            theirs = np.concatenate([draw[method] for draw in draws])
            # Without another method the difference is the score.
            other = np.full(len(labels), -1) if method == METHODS[0] else theirs
            paired = paired_bootstrap(labels, ours, other, groups, count)
            low, high = (100 * end for end in paired["interval"])
            yield row | {"above_by": 100 * paired["difference"], "low": low, "high": high, "draws": len(draws)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_name_or_path", required=True, help="An encoder.")
    for corpus in SIZES_OF:
        parser.add_argument(f"--{corpus}", nargs="+", help="As `quality.py` takes it.")
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="Training timelines.")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--most_tested", type=int, default=MOST_TESTED, help="Held-out timelines of a draw.")
    parser.add_argument("--random_labels", action="store_true", help="Shuffle the labels: there is nothing to learn.")
    parser.add_argument("--no_states", action="store_true", help="Leave out the states of posts.")
    parser.add_argument("--output_dir", type=Path, required=True)
    args = parser.parse_args()
    table = pd.DataFrame(table_rows(run_all(args)))
    table.to_csv(args.output_dir / "table.csv", index=False)
    print(table.to_string(index=False, float_format="{:.1f}".format))


if __name__ == "__main__":
    main()
