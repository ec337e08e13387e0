"""Ranks words by how much their meaning changed between time points, and compares the ranks with gold scores.

    python run_semantic_change.py --model_name_or_path out --corpora 1810-1860.txt 1960-2010.txt \
        --targets targets.txt --truth graded.txt --output_dir change

A first argument that ends in .yaml or .json is a recipe: its values are defaults, which the command line overrides.
"""

import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

import modeling_tempoformer  # noqa: F401  Registers the models and tokenizers.
from modeling_tempoformer.data.dated_texts import numbers_in
from modeling_tempoformer.semantic_change.corpora import (
    DatedSentence,
    read_dwug,
    read_semeval,
    read_targets,
    read_truth,
)
from modeling_tempoformer.semantic_change.measures import (
    FEWEST_WORDS,
    average_pairwise_distance,
    cluster_distances,
    prototype_distance,
    trajectory,
)
from modeling_tempoformer.semantic_change.report import write_report
from modeling_tempoformer.semantic_change.static_embeddings import neighbour_change, procrustes_change, train_sgns
from modeling_tempoformer.semantic_change.usages import embed_usages, sample_usages, time_differences
from modeling_tempoformer.training.recipes import parse


logger = logging.getLogger(__name__)

OF_VECTORS = ("average", "pairwise", "clusters")
OF_TIME_TOKENS = ("time_diff",)
OF_WORDS = ("sgns", "neighbours")
MEASURES = (*OF_VECTORS, *OF_TIME_TOKENS, *OF_WORDS)
SIZES = ("num_samples", "num_clusters", "vector_size", "sgns_epochs", "max_seq_length", "per_device_eval_batch_size")


@dataclass
class ChangeArguments:
    """Which words, in which texts, scored how."""

    output_dir: str = field(metadata={"help": "For changes.csv, changes.png, results.json and ranks.png."})
    model_name_or_path: str | None = field(default=None, metadata={"help": "An encoder, with time or without."})
    tokenizer_name: str | None = field(default=None, metadata={"help": "If not that of the model."})
    measures: list[str] = field(
        default_factory=lambda: ["average"],
        metadata={"help": f"Some of {', '.join(MEASURES)}; the first one orders the table."},
    )
    corpora: list[str] | None = field(
        default=None, metadata={"help": "A text file, or a folder of them, for each time point, in order."}
    )
    dwug: str | None = field(default=None, metadata={"help": "Usages of a word usage graph (uses.jsonl) instead."})
    times: list[str] | None = field(default=None, metadata={"help": "Time points in order; the corpora's names."})
    targets: str | None = field(default=None, metadata={"help": "A file of words; those of --truth if omitted."})
    truth: str | None = field(default=None, metadata={"help": "Gold scores: a word, a tab and a number in each line."})
    num_last_layers: int = field(default=1, metadata={"help": "Hidden layers to average, h in the paper."})
    num_samples: int = field(default=200, metadata={"help": "Sentences of each word and time at most."})
    num_clusters: int = field(default=5, metadata={"help": "Of k-means."})
    vector_size: int = field(default=300, metadata={"help": "Width of the vectors of sgns and neighbours."})
    sgns_epochs: int = field(default=5, metadata={"help": "Passes of sgns and neighbours over the corpora."})
    max_seq_length: int = field(default=128, metadata={"help": "Tokens of a text, those around the word."})
    per_device_eval_batch_size: int = 32
    seed: int = 42

    def __post_init__(self):
        for name in SIZES:
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} must be at least 1, got {getattr(self, name)}.")
        if unknown := [measure for measure in self.measures if measure not in MEASURES]:
            raise ValueError(f"--measures {' '.join(unknown)}: choose from {', '.join(MEASURES)}.")
        if (self.corpora is None) == (self.dwug is None):
            raise ValueError("Give exactly one of --corpora and --dwug.")
        if self.targets is None and self.truth is None:
            raise ValueError("Give the words: --targets or --truth.")
        if self.model_name_or_path is None and (needy := [m for m in self.measures if m not in OF_WORDS]):
            raise ValueError(f"--measures {' '.join(needy)} need --model_name_or_path.")
        if self.times is None:
            names = [Path(path).name.removesuffix(".gz").removesuffix(".txt") for path in self.corpora or ()]
            self.times = names or ["1810-1860", "1960-2010"]
            # As a shell lists 900.txt behind 1000.txt.
            numbers = [numbers_in(name) for name in self.times]
            if all(numbers) and numbers != sorted(numbers):
                raise ValueError(
                    f"--corpora are not in the order of their times, {', '.join(self.times)}: give them in order, or "
                    "name the times in yours by --times."
                )
        if len(self.times) < 2 or len(set(self.times)) < len(self.times):
            raise ValueError(f"There must be at least two time points, each once; got {', '.join(self.times)}.")
        if self.corpora is not None and len(self.corpora) != len(self.times):
            raise ValueError(f"There are {len(self.corpora)} corpora for {len(self.times)} time points.")
        if self.dwug is not None and len(self.times) != 2:
            raise ValueError(f"Word usage graphs have two time points, --times has {len(self.times)}.")


def read_sentences(args: ChangeArguments, words: list[str]) -> Iterator[DatedSentence]:
    """The sentences, read anew in each call."""
    if args.dwug is not None:
        return read_dwug(args.dwug, tuple(args.times))
    return read_semeval(dict(zip(args.times, args.corpora, strict=True)), words)


def check_extras(args: ChangeArguments):
    """Raises an `ImportError` for a library that is missing, before any work is done."""
    needed = {
        "gensim": any(measure in OF_WORDS for measure in args.measures),
        "ot": "clusters" in args.measures,
        "matplotlib": args.truth is not None,
    }
    for library, is_needed in needed.items():
        if is_needed and find_spec(library) is None:
            raise ImportError(f'{library} is missing: pip install "modeling-tempoformer[change]".')


def score_static(args: ChangeArguments, words: list[str]) -> dict[str, dict[str, float]]:
    """The scores by static vectors, of the measures that are asked for."""
    wanted = [measure for measure in args.measures if measure in OF_WORDS]
    if not wanted:
        return {}
    settings = {"vector_size": args.vector_size, "epochs": args.sgns_epochs, "seed": args.seed}
    vectors = train_sgns(read_sentences(args, words), args.times, **settings)
    change = {"sgns": procrustes_change, "neighbours": neighbour_change}
    return {measure: change[measure](vectors, words, (args.times[0], args.times[-1])) for measure in wanted}


def score_words(args: ChangeArguments, words: list[str]) -> tuple[dict[str, dict[str, float]], dict[str, dict]]:
    """The score of each word by each measure, and its usages at each time."""
    check_extras(args)
    usages = sample_usages(read_sentences(args, words), words, args.times, args.num_samples, args.seed)
    counts = {word: {time: len(found) for time, found in of_time.items()} for word, of_time in usages.items()}
    if not any(count for of_time in counts.values() for count in of_time.values()):
        raise ValueError(f"None of the {len(words)} words is in the texts: {', '.join(words)}.")
    first, last = args.times[0], args.times[-1]
    # Before a model is loaded: small texts may not do for them.
    static = score_static(args, words)
    scores: dict[str, dict[str, float]] = {}
    vectors = {}
    if args.model_name_or_path is not None:
        auto_class = AutoModelForMaskedLM if "time_diff" in args.measures else AutoModel
        model = auto_class.from_pretrained(args.model_name_or_path, use_safetensors=True)
        if torch.accelerator.is_available():
            model.to(torch.accelerator.current_accelerator())
        tokenizer = AutoTokenizer.from_pretrained(args.tokenizer_name or args.model_name_or_path)
        if hasattr(tokenizer, "time_points"):
            for time in args.times:
                # Whatever the tokenizer makes of unknown times.
                tokenizer.time_points.find(time)
        if "time_diff" in args.measures and not getattr(tokenizer, "prepend_time", False):
            raise ValueError("--measures time_diff needs a model that was trained with --prepend_time.")
        if any(measure in OF_VECTORS for measure in args.measures):
            settings = (args.num_last_layers, args.per_device_eval_batch_size, args.max_seq_length)
            vectors = embed_usages(model, tokenizer, usages, *settings)
    for measure in args.measures:
        if measure == "average":
            scores[measure] = {word: prototype_distance(v[first], v[last]) for word, v in vectors.items()}
        elif measure == "pairwise":
            scores[measure] = {word: average_pairwise_distance(v[first], v[last]) for word, v in vectors.items()}
        elif measure == "clusters":
            of_words = {
                word: cluster_distances(v[first], v[last], args.seed, args.num_clusters) for word, v in vectors.items()
            }
            for name in next(iter(of_words.values())):
                scores[name] = {word: distances[name] for word, distances in of_words.items()}
        elif measure == "time_diff":
            scores[measure] = time_differences(model, tokenizer, usages, args.times, args.per_device_eval_batch_size)
        else:
            scores[measure] = static[measure]
    if len(args.times) > 2 and vectors:
        steps = {word: trajectory([of_time[time] for time in args.times]) for word, of_time in vectors.items()}
        for step, pair in enumerate(zip(args.times, args.times[1:], strict=False)):
            scores["average {} to {}".format(*pair)] = {word: path[step] for word, path in steps.items()}
    return scores, counts


def main(arguments: list[str]):
    (args,) = parse([ChangeArguments], arguments)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    truth = None if args.truth is None else read_truth(args.truth)
    words = list(truth) if args.targets is None else read_targets(args.targets)
    if truth is not None and len(shared := truth.keys() & set(words)) < FEWEST_WORDS:
        raise ValueError(
            f"A correlation needs {FEWEST_WORDS} words with a gold score; of {args.targets or args.truth} "
            f"{len(shared)} are in {args.truth}: {', '.join(sorted(shared)) or 'none'}."
        )
    scores, counts = score_words(args, words)
    print(write_report(args.output_dir, scores, counts, truth, args.seed))


if __name__ == "__main__":
    main(sys.argv[1:])
