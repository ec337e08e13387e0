"""
Ranks words by how much their meaning changed between time points: a list of words, or the most changed of a corpus.

    tempoformer words --model_name_or_path out --corpora 1810-1860.txt 1960-2010.txt --targets targets.txt \
        --output_dir change
    tempoformer words --model_name_or_path out --corpora 1810-1860.txt 1960-2010.txt --discover 50 --output_dir found
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

import pandas as pd
import torch
from transformers import AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from modeling_tempoformer import export_encoder
from modeling_tempoformer.common.command_line import check_positive, check_read, options_given, parse
from modeling_tempoformer.common.figures import all_forms
from modeling_tempoformer.common.files import lock_folder, written_whole
from modeling_tempoformer.common.onnx_packages import check_onnx
from modeling_tempoformer.common.pages import check_view, write_html
from modeling_tempoformer.common.progress import Progress

from .. import corpora, measures, usages
from ..dated_sentences import DatedSentence
from ..discovery import FEW_USAGES, MORE_USAGES, SEARCHED, Searched, Vocabulary, sift, write_searched
from ..durel import JUDGED, USES, compare_with_judgments, read_judgments, write_uses
from ..entries import ENTRY_FILES, Entry, describe_splits, make_entries, write_entries
from ..kept_vectors import KeptVectors
from ..known_senses import GivenTexts, read_known_senses, read_senses, take_words, to_usages
from ..proper_names import find_names, leave_out_names, warn_of_names
from ..reading.dated_texts import numbers_in
from ..reading.files_read import FILES, describe_files, write_files
from ..reading.passages import TextColumns
from ..reading.text_layouts import time_of_file
from ..report import CHANGES, FIGURE, RESULTS, conclude, format_table, ranked_table, write_report
from ..tokenizer_fit import warn_of_language
from ..unranked import UNRANKED, write_unranked
from ..usages import Frequencies, Usages, UsagesByText


logger = logging.get_logger(__name__)

IN_8_BITS = (
    "The vectors were computed in 8 bits (--encoder_backend onnx-int8): "
    "compare the scores with those of other runs in 8 bits alone."
)


@dataclass
class ChangeArguments:
    """The words, the texts, and how to score them."""

    output_dir: str = field(metadata={"help": "Folder for changes.csv, _changes.html and other files."})
    model_name_or_path: str = field(metadata={"help": "An encoder, temporal or not."})
    measures: list[str] = field(
        default_factory=lambda: ["change"],
        metadata={
            "choices": measures.MEASURES,
            "help": "change: from 0 to 100, made of apd (average pairwise distance) and prt (distance of averaged "
            "embeddings). The first measure orders the table.",
        },
    )
    corpora: list[str] | None = field(
        default=None,
        metadata={"help": "A text file, folder or table for each time, in order; or one with dates, and --times."},
    )
    text_column: str = "text"
    time_column: str = field(default="date", metadata={"help": "Column, or attribute, of the texts' dates."})
    source_column: str = field(
        default="source", metadata={"help": "Column, or attribute, of the texts' sources, for citations."}
    )
    search_columns: list[str] = field(
        default_factory=lambda: ["word"],
        metadata={
            "help": "Columns in which words are looked up, in a corpus with a token on each line: word, lemma, pos, "
            "other names or numbers from 1. Several are joined (lemma pos: plane_NOUN)."
        },
    )
    dwug: str | None = field(default=None, metadata={"help": "Folder of a DWUG data set, instead of --corpora."})
    times: list[str] | None = field(default=None, metadata={"help": "The time points. Default: the corpora's names."})
    targets: str | None = field(
        default=None,
        metadata={"help": "A file of words, which may have forms (a: b, c). Default: the words of --truth."},
    )
    steady: str | None = field(
        default=None,
        metadata={
            "help": "A file of words that are known to be steady, as in --targets; or the number of words to draw "
            "from --corpora, most of them steady. They join the list, and the column above_steady is how much more a "
            "word changed than their median."
        },
    )
    discover: int | None = field(
        default=None,
        metadata={"help": "Instead of --targets: the number of words, the most changed ones of the corpora."},
    )
    senses: str | None = field(
        default=None,
        metadata={
            "help": "Known senses in the place of clusters: a CSV file with the columns word, sense and text, a "
            "definition or a quotation. The page saves such a file."
        },
    )
    judgments: str | None = field(
        default=None,
        metadata={
            "help": "People's judgements of pairs of usages, to compare the model with: a file in the layout of DURel "
            "or a folder with files judgments.csv."
        },
    )
    without_names: bool = field(
        default=False,
        metadata={
            "help": "Leave out proper names: usages that begin with a capital within a sentence, of words that mostly "
            "do not; and in --discover words that mostly begin with one."
        },
    )
    with_compounds: bool = field(
        default=False, metadata={"help": "Parts of words with hyphens are usages, too: car in motor-car."}
    )
    truth: str | None = field(
        default=None,
        metadata={"help": "Gold scores: a word, a tab and a number per line, or stats_groupings.csv."},
    )
    standardise: bool = field(
        default=False,
        metadata={
            "help": "Score words by vectors whose dimensions have the mean 0 and the standard deviation 1 over the "
            "usages of all words."
        },
    )
    num_last_layers: int | None = field(
        default=None,
        metadata={"help": "Last hidden layers to average, h in the paper. Default: 4, or 1 with --target_marks."},
    )
    target_marks: list[str] | None = field(
        default=None,
        metadata={"help": "Marks before and after the word, for encoders that read a marked word: <t> </t>."},
    )
    min_usages: int = field(
        default=20,
        metadata={"help": "Words with fewer usages at the first or the last time get no score, but a page."},
    )
    num_samples: int = field(
        default=200,
        metadata={
            "help": "Maximum number of texts (sentences or rows) for each word and time, with all their usages."
        },
    )
    max_attested: int = field(
        default=10_000,
        metadata={
            "help": "Maximum number of usages outside the sample that are read for first attestations of senses, from "
            "the oldest, beside the five oldest of each word."
        },
    )
    max_seq_length: int = field(default=128, metadata={"help": "Maximum number of tokens around a word."})
    encoder_backend: Literal["torch", "onnx-int8"] = field(
        default="torch",
        metadata={"help": "How the encoder is computed: torch, or onnx-int8, by ONNX Runtime in 8 bits on the CPU."},
    )
    per_device_eval_batch_size: int = 32
    seed: int = 42

    def __post_init__(self):
        check_positive(self, "min_usages", "num_samples", "max_seq_length", "per_device_eval_batch_size", "discover")
        if self.num_samples < self.min_usages:
            raise ValueError(
                f"--num_samples {self.num_samples} samples fewer usages than --min_usages {self.min_usages} asks for."
            )
        has_words = not (self.targets is None and self.truth is None and self.discover is None)
        if (self.corpora is None) == (self.dwug is None) or not has_words:
            raise ValueError(
                "Give texts, by either --corpora or --dwug; and words, by --targets, --discover or --truth."
            )
        if self.discover is not None and (self.targets is not None or self.corpora is None):
            raise ValueError("--discover finds the words of --corpora: leave out --targets and --dwug.")
        if self.num_drawn == 0 or (self.num_drawn and self.corpora is None):
            raise ValueError(f"--steady {self.steady} draws words from --corpora: give 1 or more, or a file of words.")
        if self.target_marks is not None and len(self.target_marks) != 2:
            raise ValueError(f"--target_marks takes two texts, got {len(self.target_marks)}.")
        if self.times is None:
            self.times = [time_of_file(path) for path in self.corpora or ()] or corpora.dwug_groupings(self.dwug)
            # A shell lists 900.txt after 1000.txt.
            numbers = [numbers_in(name) for name in self.times]
            if all(numbers) and numbers != sorted(numbers):
                raise ValueError(f"--corpora are not in the order of time: {', '.join(self.times)}. Or give --times.")
        if len(self.times) < 2 or len(set(self.times)) < len(self.times):
            raise ValueError(
                f"There must be at least two different time points, got {', '.join(self.times)}: name them by --times."
            )
        if self.corpora and not self.is_one_corpus and len(self.times) != len(self.corpora):
            raise ValueError(f"--times must name {len(self.corpora)} time points, got {len(self.times)}.")

    @property
    def is_one_corpus(self) -> bool:
        """Returns whether the texts of all times are in one table, file or folder."""
        return self.corpora is not None and len(self.corpora) == 1

    @property
    def num_drawn(self) -> int | None:
        """The number of steady words that are drawn from the corpora, or None if there are none or a file has them."""
        return int(self.steady) if self.steady is not None and self.steady.isdecimal() else None

    @property
    def reads_names(self) -> bool:
        """Returns whether names of words replace their forms. The annotated usages of DWUG are read as published."""
        return self.dwug is None

    @property
    def ends(self) -> tuple[str, str]:
        """The two times that are compared."""
        return self.times[0], self.times[-1]

    @property
    def compared_times(self) -> list[tuple[str, str]]:
        """The pairs of times that are compared: the first and the last, and neighbours if steps are asked for."""
        return list(dict.fromkeys([self.ends, *(pairwise(self.times) if "change" in self.measures else ())]))


def read_sentences(
    args: ChangeArguments,
    words: corpora.Targets,
    ignore_case: bool,
    tell_files: Callable[[pd.DataFrame], object] | None = None,
) -> Iterator[DatedSentence]:
    """Reads the sentences of the corpora or of the DWUG data set, which has no table of files for `tell_files`."""
    columns = TextColumns(args.text_column, args.time_column, args.source_column, tuple(args.search_columns))
    settings = (ignore_case, columns, tell_files, args.with_compounds)
    if args.dwug is not None:
        sentences = corpora.read_dwug(args.dwug, args.times)
    elif args.is_one_corpus:
        sentences = corpora.read_dated_corpus(args.corpora[0], args.times, words, *settings)
    else:
        paths = dict(zip(args.times, args.corpora, strict=True))
        sentences = corpora.read_semeval(paths, words, *settings)
    progress = Progress("Texts that were searched")
    for sentence in sentences:
        yield sentence
        progress.add(1)


def tell_files(folder: Path, table: pd.DataFrame):
    """Writes and describes the files that were read."""
    write_files(folder, table)
    print(describe_files(table), flush=True)


def load_word_tokenizer(args: ChangeArguments) -> PreTrainedTokenizerBase:
    """Loads the model's tokenizer. Raises a `ValueError` for unknown times, even if the tokenizer accepts them."""
    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
    if hasattr(tokenizer, "time_points"):
        for time in args.times:
            tokenizer.time_points.find(time)
    return tokenizer


def load_encoder(args: ChangeArguments, auto_class: type = AutoModel) -> PreTrainedModel:
    model, info = auto_class.from_pretrained(args.model_name_or_path, use_safetensors=True, output_loading_info=True)
    # The pooler is not used.
    if missing := sorted(name for name in info["missing_keys"] if "pooler" not in name):
        logger.warning(f"Not in {args.model_name_or_path}, so that they are random numbers: {', '.join(missing)}.")
    return model.to(torch.accelerator.current_accelerator()) if torch.accelerator.is_available() else model


def embed_words(
    args: ChangeArguments,
    by_word: Usages,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    kept: KeptVectors | None = None,
    compute: Callable[..., torch.Tensor] | None = None,
    with_texts: bool = False,
) -> dict[str, measures.Vectors]:
    """Returns the vectors of the usages, as [`embed_usages`] does."""
    settings = (args.num_last_layers, args.per_device_eval_batch_size, args.max_seq_length, args.target_marks)
    return usages.embed_usages(model, tokenizer, by_word, *settings, args.reads_names, kept, compute, with_texts)


class Reader:
    """Reads usages by the encoder of the arguments, which is loaded when it is first needed."""

    def __init__(self, args: ChangeArguments):
        self.args, self.tokenizer = args, load_word_tokenizer(args)
        self.is_in_8_bits = args.encoder_backend == "onnx-int8"
        if self.is_in_8_bits and hasattr(self.tokenizer, "time_points"):
            raise ValueError("--encoder_backend onnx-int8 computes no model that knows when a text was written.")

    @cached_property
    def model(self) -> PreTrainedModel:
        model = load_encoder(self.args)
        return model.cpu().float() if self.is_in_8_bits else model

    @cached_property
    def exported(self) -> torch.nn.Module:
        """The encoder in 8 bits, which is not made if earlier runs kept all vectors."""
        layers = usages.count_layers(self.model, self.args.num_last_layers, self.args.target_marks)
        return export_encoder(self.model.base_model, self.args.encoder_backend, layers)

    def compute_in_8_bits(self, **batch: torch.Tensor) -> torch.Tensor:
        """Returns the mean of the last layers (texts, tokens, hidden) of a batch."""
        return self.exported(**batch).last_hidden_state

    @cached_property
    def kept(self) -> KeptVectors:
        """The vectors of earlier runs with this encoder."""
        return KeptVectors(self.model, self.args.encoder_backend)

    @property
    def ignores_case(self) -> bool:
        return usages.ignores_case(self.tokenizer)

    def drop_unknown(self, by_word: Usages) -> Usages:
        """Leaves out the usages that the tokenizer does not know."""
        return usages.drop_unknown(self.tokenizer, by_word, self.args.reads_names)

    def embed(self, by_word: Usages, with_texts: bool = False) -> dict[str, measures.Vectors]:
        """Returns the vectors of usages, each followed by its text's if these are wanted."""
        compute = self.compute_in_8_bits if self.is_in_8_bits else None
        return embed_words(self.args, by_word, self.model, self.tokenizer, self.kept, compute, with_texts)

    def read_known(self, by_word: Usages) -> tuple[Usages, dict[str, measures.Vectors]]:
        """Returns the usages that the tokenizer knows, and their vectors."""
        known = self.drop_unknown(by_word)
        return known, self.embed(known)

    def read_compared(self, by_word: Usages, with_texts: bool = False) -> dict[str, measures.ReadUsages]:
        """Returns the usages as the model reads them at the times that are compared."""
        reads_time, embed = hasattr(self.tokenizer, "time_points"), partial(self.embed, with_texts=with_texts)
        return usages.read_usages(by_word, self.args.compared_times, embed, reads_time)

    def read_with_texts(
        self, by_word: Usages
    ) -> tuple[dict[str, measures.ReadUsages], dict[str, measures.ReadUsages]]:
        """Returns the usages as the model reads them at the times that are compared, and their whole texts."""
        both, width = self.read_compared(by_word, with_texts=True), self.model.config.hidden_size
        return (
            {word: each.scaled(lambda part: part[:, :width]) for word, each in both.items()},
            {word: each.scaled(lambda part: part[:, width:]) for word, each in both.items()},
        )


class Discovered(NamedTuple):
    """
    The words that a search proposes.

    Attributes:
        words (`dict[str, list[str]]`): The words with their forms, the most changed word first.
        compared (`Collection[str]`): The words that were compared.
        remarks (`str`): A text about the searched words.
    """

    words: dict[str, list[str]]
    compared: Collection[str]
    remarks: str


def search_words(args: ChangeArguments, reader: Reader) -> Searched:
    """Finds the words of the corpora that can be compared."""
    tell = partial(tell_files, Path(args.output_dir))
    vocabulary = Vocabulary.of(read_sentences(args, {}, reader.ignores_case, tell), MORE_USAGES, args.seed)
    return vocabulary.search(args.times, args.min_usages, args.without_names)


def discover_words(
    args: ChangeArguments, reader: Reader, searched: Searched, steady: Mapping[str, Sequence[str]]
) -> Discovered:
    """
    Proposes the words that change most between two compared times ([`sift`]), without those that share a form with a
    steady word. Steady words join the list later.
    """
    remarks = searched.describe(args.min_usages)
    known = reader.drop_unknown(searched.usages)
    known = {word: by_time for word, by_time in known.items() if all(by_time.values())}
    if not known:
        unknown = " The tokenizer knows none of these." if searched.forms else ""
        raise ValueError(f"--discover finds no word. {remarks}{unknown}")
    scores = sift(known, args.discover, reader.read_compared, args.seed)
    write_searched(Path(args.output_dir), searched, scores)
    free, read_again = {*searched.apart_from(steady)}, scores.dropna().index
    best = [word for word in read_again if word in free][: args.discover]
    remarks += (
        f" These {len(best)} changed most by {MORE_USAGES} usages at each time, which were read of the "
        f"{len(read_again):,} that changed most by {FEW_USAGES}; {SEARCHED} has the others."
    )
    return Discovered({word: searched.forms[word] for word in best}, scores.index, remarks)


class FoundWords(NamedTuple):
    """
    The usages of words in the texts.

    Attributes:
        found (`UsagesByText`): All usages.
        frequencies (`Frequencies`): The frequencies of the words in corpora; none for DWUG data sets.
        frequent (`set[str]`): The most frequent words of the texts.
    """

    found: UsagesByText
    frequencies: Frequencies
    frequent: set[str]


def find_words(
    args: ChangeArguments,
    words: corpora.Targets,
    ignore_case: bool,
    tell_files: Callable[[pd.DataFrame], object] | None,
) -> FoundWords:
    """Finds the words in the texts."""
    frequencies, tokens = {}, Counter()
    sentences = usages.count_tokens(read_sentences(args, words, ignore_case, tell_files), tokens)
    if args.corpora:
        sentences = usages.count_frequencies(sentences, words, args.times, frequencies)
    found = usages.find_usages(sentences, words, args.times)
    names = find_names(found)
    warn_of_names(names, args.without_names)
    if args.without_names:
        found, frequencies = leave_out_names(found, frequencies, names)
    return FoundWords(found, frequencies, usages.frequent_words(tokens))


def write_judged(folder: Path, judgments: pd.DataFrame, entries: Mapping[str, Entry]):
    """Writes and prints what people and the model say of pairs of usages."""
    sampled = {word: entry.sampled for word, entry in entries.items()}
    judged = compare_with_judgments(judgments, sampled, {word: entry.vectors for word, entry in entries.items()})
    with written_whole(folder / JUDGED) as path:
        judged.to_csv(path, index=False)
    if len(judged):
        print(f"Judgements of people and cosines of the model:\n{format_table(judged)}")


def rank_words(
    args: ChangeArguments,
    words: corpora.Targets | None,
    steady: corpora.Targets,
    truth: dict[str, float] | None,
    texts: GivenTexts,
    judgments: pd.DataFrame | None,
):
    # Imported late, because it needs the extra `view`.
    from ..view.words_page import PAGE, words_page

    reader, folder = Reader(args), Path(args.output_dir)
    # Files of an earlier run, which this run may not overwrite
    for name in (CHANGES, RESULTS, *all_forms(FIGURE), UNRANKED, *ENTRY_FILES, USES, JUDGED, SEARCHED, FILES, PAGE):
        (folder / name).unlink(missing_ok=True)
    num_searched, tell = 0, partial(tell_files, folder)
    remarks = [IN_8_BITS] if reader.is_in_8_bits else []
    if words is None or args.num_drawn:
        searched, tell = search_words(args, reader), None
    if words is None:
        discovered = discover_words(args, reader, searched, steady)
        words, remarks = discovered.words, [*remarks, discovered.remarks]
        # The search may not have compared the steady words, which are tested, too.
        num_searched = len({*discovered.compared, *steady})
    if args.num_drawn:
        steady = searched.draw(args.num_drawn, words, args.ends, args.seed)
    words = words | {word: forms for word, forms in steady.items() if word not in words}
    texts = take_words(texts, words)
    found, frequencies, frequent = find_words(args, words, reader.ignores_case, tell)
    # Known senses are of today, the last time.
    given = to_usages(texts, found, args.times[-1])
    drawn = usages.draw_usages(found, args.num_samples, args.seed)
    warn_of_language(args.model_name_or_path, reader.tokenizer, drawn, args.seed)
    drawn = reader.drop_unknown(drawn)
    by_word, left_out = usages.drop_rare(drawn, args.min_usages)
    if steady and not by_word.keys() & steady:
        raise ValueError(
            f"{args.steady} (--steady): no word has {args.min_usages} usages (--min_usages) at "
            f"{' and '.join(args.ends)}."
        )
    compared, texts_read = usages.drop_rare_times(by_word, args.min_usages), {}
    # An encoder that reads marks has only vectors of whole texts.
    if "change" in args.measures and args.target_marks is None:
        words_read, texts_read = reader.read_with_texts(compared)
    else:
        words_read = reader.read_compared(compared)
    vectors = {word: each.vectors for word, each in words_read.items()}
    columns = measures.score_words(words_read, args.measures, args.times, args.seed, args.standardise)
    if texts_read:
        columns |= measures.score_texts(texts_read, args.times, args.seed)

    documents = usages.count_documents(drawn)
    table = ranked_table(
        columns, usages.count_usages(by_word), truth, frequencies, documents, list(steady), num_searched
    )
    concluded = conclude(table, args.times, list(steady), bool(args.num_drawn)) if "change" in table else []
    print(write_report(folder, table, args.times, truth, left_out, args.seed, concluded), *remarks, sep="\n")
    unranked = write_unranked(folder, left_out, args.times, args.min_usages, frequencies, documents)
    by_word = {word: drawn[word] for word in (*table["word"], *unranked["word"])}
    unread = {
        word: {time: part for time, part in by_time.items() if time not in vectors.get(word, {})}
        for word, by_time in by_word.items()
    }
    for word, by_time in reader.embed(unread).items():
        by_every_time = vectors.get(word, {}) | by_time
        vectors[word] = {time: by_every_time[time] for time in args.times}

    known = read_senses({word: given[word] for word in by_word if word in given}, args.times[-1], reader.read_known)
    entries = make_entries(by_word, vectors, found, reader.read_known, args.max_attested, args.seed, frequent, known)
    if known:
        numbers = {word: (entries[word].senses.num_unfitting, len(entries[word].sampled)) for word in known}
        described = (
            f"{word}: {known[word].describe()}, and {unfitting:,} of {all_usages:,} usages fit none of them; "
            f"{entries[word].describe_right()}"
            for word, (unfitting, all_usages) in numbers.items()
        )
        print("Known senses", *described, sep="\n")
    split = describe_splits(entries)
    print(*split, sep="\n", end="\n" if split else "")
    logger.info(reader.kept.describe())
    write_entries(folder, entries, args.times)
    write_uses(folder, {word: entry.sampled for word, entry in entries.items()})
    if judgments is not None:
        write_judged(folder, judgments, entries)
    remarks = [*concluded, *split, *remarks]
    write_html(folder / PAGE, words_page(table, args.times, entries, frequencies, unranked, remarks, texts))
    print(f"Words to look at: {folder / PAGE}")


def read_search(args: ChangeArguments) -> tuple[dict[str, list[str]] | None, dict[str, float] | None]:
    """
    Returns the words to look for with their forms, None if they are to be discovered, and the gold scores if there are
    any.
    """
    truth = None if args.truth is None else corpora.read_truth(args.truth)
    if args.discover is not None:
        return None, truth
    return {word: [word] for word in truth} if args.targets is None else corpora.read_targets(args.targets), truth


def main(arguments: list[str]):
    (args,) = parse([ChangeArguments], arguments)
    of_corpora = ("text_column", "time_column", "source_column", "search_columns", "with_compounds")
    check_read(options_given(arguments), dict.fromkeys(of_corpora, (args.corpora, "with --dwug")))
    check_view()
    if args.encoder_backend == "onnx-int8":
        check_onnx(args.encoder_backend)
    words, truth = read_search(args)
    texts = {} if args.senses is None else read_known_senses(args.senses)
    judgments = None if args.judgments is None else read_judgments(args.judgments)
    steady = {} if args.steady is None or args.num_drawn else corpora.read_targets(args.steady)
    with lock_folder(args.output_dir):
        rank_words(args, words, steady, truth, texts, judgments)
