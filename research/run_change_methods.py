r"""
Ranks words by further published methods, and compares the ranks with gold scores.

    python -m research.run_change_methods --measures sgns neighbours --corpora 1810-1860.txt 1960-2010.txt \
        --truth graded.txt --output_dir methods
    python -m research.run_change_methods --measures clusters --model_name_or_path google-bert/bert-base-uncased \
        --corpora 1810-1860.txt 1960-2010.txt --truth graded.txt --output_dir clusters

It also takes the arguments of tempoformer words, which reads the same usages with the same `--seed`.
"""

from dataclasses import dataclass, field
from importlib.util import find_spec

import pandas as pd
from transformers import AutoModel, AutoModelForMaskedLM

from modeling_tempoformer.common.command_line import parse, run_script
from modeling_tempoformer.common.files import lock_folder
from semantic_change import corpora, usages
from semantic_change.commands.words import (
    ChangeArguments,
    embed_words,
    load_encoder,
    load_word_tokenizer,
    read_search,
    read_sentences,
)
from semantic_change.report import ranked_table, write_report

from .change_methods import cluster_distances, time_differences
from .static_embeddings import neighbour_change, procrustes_change, train_sgns


# Each computes the column of all words from static vectors.
STATIC = {"sgns": procrustes_change, "neighbours": neighbour_change}


@dataclass
class MethodArguments(ChangeArguments):
    """The words, the texts, and how to score them."""

    model_name_or_path: str | None = field(
        default=None, metadata={"help": "An encoder, which sgns and neighbours do not need."}
    )
    measures: list[str] = field(
        default_factory=lambda: list(STATIC),
        metadata={"choices": ("clusters", "time_diff", *STATIC), "help": "The first one orders the table."},
    )
    # The encoders of `--discover` and in 8 bits have no place here: these methods take a list of words.
    encoder_backend: str = field(init=False, default="torch")
    steady: str | None = field(init=False, default=None)
    discover: int | None = field(init=False, default=None)
    without_names: bool = field(init=False, default=False)

    def __post_init__(self):
        super().__post_init__()
        if self.model_name_or_path is None and (needy := [m for m in self.measures if m not in STATIC]):
            raise ValueError(f"--measures {' '.join(needy)} need --model_name_or_path.")


def score_clusters(args: MethodArguments, by_word: usages.Usages, tokenizer) -> dict[str, dict[str, float]]:
    vectors = embed_words(args, by_word, load_encoder(args, AutoModel), tokenizer)
    rows = {
        word: cluster_distances(*(by_time[time] for time in args.ends), args.seed) for word, by_time in vectors.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index").to_dict()


def score_times(args: MethodArguments, by_word: usages.Usages, tokenizer) -> dict[str, dict[str, float]]:
    model = load_encoder(args, AutoModelForMaskedLM)
    return {"time_diff": time_differences(model, tokenizer, by_word, args.times, args.per_device_eval_batch_size)}


# Each computes its columns of all words with an encoder.
CONTEXTUAL = {"clusters": score_clusters, "time_diff": score_times}


def run(args: MethodArguments, words: corpora.Targets, truth: dict[str, float] | None):
    tokenizer = load_word_tokenizer(args) if CONTEXTUAL.keys() & set(args.measures) else None
    if "time_diff" in args.measures and not getattr(tokenizer, "prepend_time", False):
        raise ValueError("--measures time_diff needs a model that was trained with --prepend_time.")
    ignore_case = tokenizer is not None and usages.ignores_case(tokenizer)
    frequencies = {}
    sentences = read_sentences(args, words, ignore_case)
    if args.corpora:
        sentences = usages.count_frequencies(sentences, words, args.times, frequencies)
    by_word = usages.sample_usages(sentences, words, args.times, args.num_samples, args.seed)
    if "clusters" in args.measures:
        by_word = usages.drop_unknown(tokenizer, by_word, args.reads_names)
    by_word, left_out = usages.drop_rare(by_word, args.min_usages)
    static = {}
    if STATIC.keys() & set(args.measures):
        static = train_sgns(read_sentences(args, words, ignore_case), args.ends, seed=args.seed)
    columns = {}
    for measure in args.measures:
        if measure in STATIC:
            columns[measure] = STATIC[measure](static, list(by_word))
        else:
            columns |= CONTEXTUAL[measure](args, by_word, tokenizer)
    counts, documents = usages.count_usages(by_word), usages.count_documents(by_word)
    table = ranked_table(columns, counts, truth, frequencies, documents)
    print(write_report(args.output_dir, table, args.times, truth, left_out, args.seed))


def main(arguments: list[str]):
    (args,) = parse([MethodArguments], arguments)
    if not (find_spec("gensim") and find_spec("ot")):
        raise ValueError('These measures need the extra "research": pip install -c constraints.txt ".[research]".')
    words, truth = read_search(args)
    with lock_folder(args.output_dir):
        run(args, words, truth)


if __name__ == "__main__":
    run_script(main, "research", "semantic_change")
