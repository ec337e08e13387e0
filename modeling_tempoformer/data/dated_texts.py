"""Dated texts: from files or tables to splits, and to rows for masked language modelling."""

import logging
import random
import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from textwrap import shorten
from typing import Any

from datasets import Dataset, IterableDataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..checks_tempoformer import longest_input
from ..time_points_temporal_bert import (
    GRANULARITIES,
    TimePoints,
    UnknownTimeError,
    as_name,
    is_missing,
    name_date,
    read_date,
    read_years,
)
from .arguments import TextDataTrainingArguments
from .files import read_lines
from .post_splits import check_given, load_file, load_splits
from .tables import check_column
from .timelines import column_names


logger = logging.getLogger(__name__)

TEXT_SUFFIXES = (".txt", ".txt.gz")
TAGS = ("_nn", "_vb")
# The lines that tell whether a file has sentences or tokens, and those between tokens (VRT).
NUM_TELLING_LINES = 200
TAG = re.compile(r"</?[a-z!?][^<>]*>", re.IGNORECASE)
# The column that says which file and line, or which row, a text comes from.
SOURCE = "source_of_text"


def load_texts(paths: list[str], task_name: str | None, streaming: bool = False) -> Dataset | IterableDataset:
    """Texts from files named by time point, from a table, or from a corpus in its original form."""
    if task_name is None and all(path.endswith(TEXT_SUFFIXES) for path in paths):
        return read_text_files(paths, streaming)
    if len(paths) > 1:
        raise ValueError(f"Give text files named by time point (TIME.txt), or one table; got {', '.join(paths)}.")
    return load_file(paths[0], task_name, streaming)


def read_text_files(paths: list[str], streaming: bool = False) -> Dataset | IterableDataset:
    """
    The lines of text files that are named by their time points (`1810-1860.txt` or `1810-1860.txt.gz`), without blank
    ones. Parts of speech after lemmas (`plane_nn`, as in the English corpora of SemEval-2020) are left out. A stream
    has a shard for each file.
    """
    if streaming:
        return IterableDataset.from_generator(each_line, gen_kwargs={"paths": paths})
    return Dataset.from_list(list(each_line(paths)))


def each_line(paths: list[str]) -> Iterator[dict[str, str]]:
    """The texts of [`read_text_files`], one by one."""
    for path in paths:
        time, number = Path(path).name.removesuffix(".gz").removesuffix(".txt"), None
        for number, line in read_sentences(path):
            text = " ".join(untagged(token) for token in line.split())
            yield {"time": time, "text": text, SOURCE: f"{path}, line {number}"}
        if number is None:
            raise ValueError(f"{path} has no text.")


def read_sentences(path: str | Path) -> Iterator[tuple[int, str]]:
    """As [`read_lines`]. Raises a `ValueError` if a file has a token on each line, which would be a text each."""
    lines = read_lines(path)
    first = list(islice(lines, NUM_TELLING_LINES))
    if layout := token_layout([line for _, line in first]):
        number, line = max(first, key=lambda numbered: numbered[1].count("\t"))
        raise ValueError(
            f"{path} has a token on each line, {layout}, such as line {number}, {line!r:.80}: make it a text with a "
            "sentence on each line, and spaces between its words or between its lemmas."
        )
    yield from chain(first, lines)


def token_layout(lines: Sequence[str]) -> str | None:
    """
    How the lines of a corpus have a token each, None if they have sentences. A tenth of the lines may be otherwise:
    tokens with spaces, or the names of texts.
    """
    tokens = [line for line in lines if not TAG.fullmatch(line.strip()) and not line.startswith("#")]
    has_tags = any(TAG.fullmatch(line.strip()) for line in lines)
    # Each cell has a token or none, and all lines have as many cells.
    sizes = Counter(
        len(cells)
        for cells in (line.split("\t") for line in tokens)
        if all(len(cell.split()) < 2 for cell in cells) and (len(cells) > 1 or is_word(cells[0]))
    )
    columns, count = sizes.most_common(1)[0] if sizes else (0, 0)
    if count < max(3, 0.9 * len(tokens)):
        return None
    if columns == 10 and sum(line[:1].isdigit() for line in tokens) >= count:
        return "in the ten numbered columns of CoNLL-U"
    if columns > 1:
        return f"in {columns} columns (VRT, or COHA's word, lemma and part of speech)"
    # A poem may have a word on each of some lines.
    return "as VRT" if has_tags or count >= 100 else None


def is_word(line: str) -> bool:
    """Whether a line without spaces is a word or a mark: a script without capitals may have no spaces in sentences."""
    return line.lower() != line.upper() or not any(map(str.isalpha, line))


def load_text_splits(
    arguments: TextDataTrainingArguments, cache_dir: str | None = None, token: str | None = None
) -> dict[str, Dataset]:
    """As [`load_splits`], with the column that says where each text comes from. Texts to test may lack times."""
    splits = load_splits(arguments, cache_dir, token, load_texts, "files")
    for name, texts in splits.items():
        check_column(column_names(texts), arguments.text_column, "text")
        if name == "test" and arguments.time_column not in texts.column_names:
            texts = texts.add_column(arguments.time_column, [None] * len(texts))
        check_column(column_names(texts), arguments.time_column, "time")
        splits[name] = name_sources(texts)
    return splits


def name_sources(texts: Dataset | IterableDataset) -> Dataset | IterableDataset:
    """Adds its row number to each text of a table, so that errors can name it after filtering and sorting."""
    if SOURCE in column_names(texts):
        return texts
    if isinstance(texts, IterableDataset):
        return texts.map(name_row, with_indices=True)
    return texts.add_column(SOURCE, [f"row {row}" for row in range(len(texts))])


def name_row(row: dict[str, Any], number: int) -> dict[str, Any]:
    """A row with its number."""
    return {**row, SOURCE: f"row {number}"}


def find_times(texts: Dataset, time_column: str, granularity: str | None = None, only_dates: bool = True) -> list[str]:
    """
    The distinct times of a corpus, named at a granularity if there is one, in the order of the numbers in their names;
    those without a number come last. Missing times are skipped; so is what is no date, unless `only_dates`.
    """
    names: dict[str, None] = {}
    for row, value in enumerate(texts[time_column]):
        if is_missing(value):
            continue
        if granularity is None:
            names[as_name(value)] = None
        elif parts := read_date(value):
            names[name_date(parts, granularity)] = None
        elif only_dates:
            raise UnknownTimeError(f"Row {row}, column '{time_column}': {value!r} is not a date.")
    return sorted(names, key=lambda name: (not numbers_in(name), numbers_in(name)))


def numbers_in(name: str) -> tuple[int, ...]:
    """The integers in a time point's name, in their order; years before the common era are negative."""
    return read_years(name) or tuple(int(digits) for digits in re.findall("^-?[0-9]+|[0-9]+", as_name(name)))


def choose_times(splits: dict[str, Dataset], arguments: TextDataTrainingArguments, saved: Sequence[str]) -> list[str]:
    """The time points: `--times`, else those of a saved model, else those of the texts."""
    times = arguments.times or list(saved)
    if not times:
        texts = splits.get("train", next(iter(splits.values())))
        only_dates = arguments.unknown_times == "error"
        times = find_times(texts, arguments.time_column, arguments.time_granularity, only_dates)
    if len(times) < 2:
        raise ValueError(f"There must be at least two time points, got: {', '.join(times) or 'none'}.")
    logger.info("%d time points: %s", len(times), shorten(", ".join(times), 200))
    return times


def split_dated_texts(
    splits: dict[str, Dataset],
    arguments: TextDataTrainingArguments,
    times: TimePoints,
    wanted: Sequence[str],
    seed: int,
) -> dict[str, Dataset]:
    """The texts of each split; the validation split is taken from the training texts if no file is given for it."""
    splits = {name: settle_unknown_times(texts, arguments, times, name) for name, texts in splits.items()}
    splittable = isinstance(splits.get("train"), Dataset)
    if "train" in wanted and "validation" in wanted and "validation" not in splits and splittable:
        splits["train"], splits["validation"] = split_texts(splits["train"], arguments.validation_fraction, seed)
    return check_given(splits, arguments, wanted, "files")


def settle_unknown_times(
    texts: Dataset | IterableDataset, arguments: TextDataTrainingArguments, times: TimePoints, name: str
) -> Dataset | IterableDataset:
    """Drops texts outside all time points if `--unknown_times` is `drop`, and logs how many there are."""
    drops = arguments.unknown_times == "drop"
    # The time of a text to test is predicted.
    if arguments.unknown_times == "error" or (name == "test" and not drops):
        return texts
    is_known = partial(has_time, times=times, may_lack=name == "test")
    total, others = 0, Counter()
    for total, time in enumerate(texts[arguments.time_column], 1):
        if not is_known(time):
            # JSON may have lists.
            others[time if isinstance(time, Hashable) else str(time)] += 1
    if others:
        what, why = "left out" if drops else "of unknown time", count_by_reason(others, times)
        if others.total() == total:
            raise ValueError(f"No text of the {name} split is in any of the time points: {why}.")
        logger.warning("%s: %d of %d texts are in no time point: %s (%s).", name, others.total(), total, what, why)
    return texts.filter(is_known, input_columns=arguments.time_column) if drops else texts


def has_time(time: Any, times: TimePoints, may_lack: bool) -> bool:
    """Whether a time lies in one of the time points, or is missing and may be so."""
    return times.holds(time) or (may_lack and is_missing(time))


def count_by_reason(others: Mapping[Any, int], times: TimePoints) -> str:
    """Why texts are in no time point, with an example of a time that is not read; `others` counts texts by time."""
    kind = times.granularity or "year"
    needed = GRANULARITIES[kind][1]
    reasons: Counter[str] = Counter()
    unread = None
    for time, count in others.items():
        if is_missing(time):
            reasons["without a date"] += count
        elif len(read_date(time) or ()) < needed:
            unread = unread or f"with a date that is not read as a {kind}, such as {time!r}"
            reasons[unread] += count
        else:
            reasons[f"outside of {shorten(', '.join(times.names), 200)}"] += count
    return ", ".join(f"{count:,} {why}" for why, count in reasons.items())


def split_texts(texts: Dataset, fraction: float, seed: int) -> tuple[Dataset, Dataset]:
    """Splits off a random fraction: returns the rest and what was taken, each in the order of the input."""
    count = round(fraction * len(texts))
    if not 0 < count < len(texts):
        raise ValueError(f"Cannot split {len(texts)} texts by a fraction of {fraction}: a split would be empty.")
    taken = set(random.Random(seed).sample(range(len(texts)), count))
    return texts.select([row for row in range(len(texts)) if row not in taken]), texts.select(sorted(taken))


def token_limit(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """The most tokens that a model reads, special tokens included."""
    return min(tokenizer.model_max_length, longest_input(model))


def check_same_times(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase):
    """Raises a `ValueError` if the tokenizer has other time points than the model, so that their ids differ."""
    own, of_tokenizer = (list(getattr(one, "times", ())) for one in (model.config, tokenizer))
    if own and of_tokenizer != own:
        raise ValueError(
            f"The tokenizer's times are {', '.join(of_tokenizer) or 'none'}, the model's {', '.join(own)}: "
            "load the tokenizer with `times=model.config.times`."
        )


def frame(tokenizer: PreTrainedTokenizerBase, time: Any = None) -> tuple[list[int], list[int], int | None]:
    """The special tokens before and after a text of some time, and its id (None if the tokenizer has no times)."""
    dated = hasattr(tokenizer, "time_points")
    ids = (tokenizer("", time=time) if dated else tokenizer(""))["input_ids"]
    return ids[:-1], ids[-1:], tokenizer.time_id(time) if dated else None


def make_row(words: list[int], before: list[int], after: list[int], time_id: int | None) -> dict[str, list[int]]:
    """One row: the tokens of words between special tokens."""
    ids = [*before, *words, *after]
    row = {
        "input_ids": ids,
        "attention_mask": [1] * len(ids),
        "special_tokens_mask": [1] * len(before) + [0] * len(words) + [1] * len(after),
    }
    return row if time_id is None else {**row, "time_ids": [time_id] * len(ids)}


def to_mlm_rows(
    texts: Dataset | IterableDataset,
    tokenizer: PreTrainedTokenizerBase,
    time_column: str = "time",
    text_column: str = "text",
    max_length: int = 128,
    line_by_line: bool = False,
) -> Dataset | IterableDataset:
    """
    Rows for [`TemporalMlmCollator`]; a stream of texts gives a stream. Those of each 1,000 texts that have one time
    are joined, unless `line_by_line`. A text that cannot be read is an error that names it, in a stream where it is
    read.
    """
    before, after, _ = frame(tokenizer, tokenizer.times[0])
    smallest = len(before) + len(after) + 1
    if max_length < smallest:
        raise ValueError(f"`max_length` must be at least {smallest}, got {max_length}.")
    settings = {"time_column": time_column, "text_column": text_column, "line_by_line": line_by_line}
    convert = partial(join_texts, tokenizer=tokenizer, max_length=max_length, **settings)
    if isinstance(texts, IterableDataset):
        return texts.map(convert, batched=True, remove_columns=column_names(texts))
    time_ids = check_texts(texts, tokenizer, time_column, text_column)
    if not line_by_line:
        # Texts of one time point follow each other, so that rows are full also if there are many time points.
        texts = texts.select(sorted(range(len(texts)), key=time_ids.__getitem__))
    return texts.map(convert, batched=True, remove_columns=texts.column_names, load_from_cache_file=False)


def join_texts(
    batch: dict[str, list],
    tokenizer: PreTrainedTokenizerBase,
    time_column: str,
    text_column: str,
    max_length: int,
    line_by_line: bool,
) -> dict[str, list]:
    """The rows of a batch of texts."""
    times, found = batch[time_column], batch[text_column]
    time_ids = [
        check_text(tokenizer, *text, must_have_time=True) for text in zip(batch[SOURCE], times, found, strict=True)
    ]
    # RoBERTa's tokens include the space before a word, which texts that are joined need.
    words = [text if line_by_line else f" {text}" for text in found]
    tokens = tokenizer(words, time=times, add_special_tokens=False, verbose=False)["input_ids"]
    by_time: dict[int, list[int]] = {}
    for text, time_id in enumerate(time_ids):
        if not tokens[text]:
            raise ValueError(f"{batch[SOURCE][text]}: the tokenizer finds no token in the text {found[text]!r}.")
        by_time.setdefault(time_id, []).append(text)
    rows = []
    for of_time in by_time.values():
        before, after, time_id = frame(tokenizer, times[of_time[0]])
        size = max_length - len(before) - len(after)
        of_texts = [tokens[text] for text in of_time]
        for ids in of_texts if line_by_line else [list(chain.from_iterable(of_texts))]:
            rows += [make_row(ids[i : i + size], before, after, time_id) for i in range(0, len(ids), size)]
    return {name: [row[name] for row in rows] for name in rows[0]}


def check_texts(
    texts: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    time_column: str = "time",
    text_column: str = "text",
    must_have_time: bool = True,
) -> list[int]:
    """The time ids of texts, as [`check_text`] finds them."""
    columns = zip(texts[SOURCE], texts[time_column], texts[text_column], strict=True)
    return [check_text(tokenizer, *text, must_have_time) for text in columns]


def check_text(tokenizer: PreTrainedTokenizerBase, source: str, time: Any, text: Any, must_have_time: bool) -> int:
    """The time id of a text. An error names one without words or, if `must_have_time`, without a known time."""
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{source}: the text must be a string with words in it, got {text!r}.")
    try:
        may_lack = not must_have_time and is_missing(time)
        return tokenizer.time_id(tokenizer.times[0] if may_lack else time)
    except UnknownTimeError as error:
        raise UnknownTimeError(f"{source}: {error}") from None


def untagged(word: str) -> str:
    """A word without the part of speech after it."""
    return word[:-3] if len(word) > 3 and word.endswith(TAGS) else word
