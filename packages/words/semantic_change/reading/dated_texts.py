"""Reads dated texts from files or tables, splits them, and makes rows for masked language modelling."""

import logging
import random
import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from textwrap import shorten
from typing import Any

from datasets import Dataset, IterableDataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from modeling_tempoformer import (
    TimePoints,
    UnknownTimeError,
    load_table,
    longest_input,
    name_time,
    read_date,
    read_years,
)
from modeling_tempoformer.common.columns import column_names, find_column, is_missing, require_column
from modeling_tempoformer.common.splits import check_given, read_splits

from ..arguments import TextDataTrainingArguments
from .passages import untagged
from .text_layouts import TEXT_SUFFIXES, read_passages, time_of_file


logger = logging.getLogger(__name__)

# The column that holds the file and line, or the row, of a text.
SOURCE = "source_of_text"


def load_texts(paths: list[str], streaming: bool = False) -> Dataset | IterableDataset:
    """Loads texts from files named by time point, or from a table."""
    if all(path.endswith(TEXT_SUFFIXES) for path in paths):
        return read_text_files(paths, streaming)
    if len(paths) > 1:
        raise ValueError(f"Give text files named by time point (TIME.txt), or one table; got {', '.join(paths)}.")
    return load_table(paths[0], streaming=streaming)


def read_text_files(paths: list[str], streaming: bool = False) -> Dataset | IterableDataset:
    """
    Reads the lines of text files that are named by their time points (`1810-1860.txt` or `1810-1860.txt.gz`), without
    blank lines and without parts of speech after lemmas (`plane_nn`, as in the English corpora of SemEval-2020). A
    stream has a shard for each file.
    """
    if streaming:
        return IterableDataset.from_generator(file_texts, gen_kwargs={"paths": paths})
    return Dataset.from_list(list(file_texts(paths)))


def file_texts(paths: list[str]) -> Iterator[dict[str, str]]:
    """Yields the texts of [`read_text_files`]."""
    for path in paths:
        time, is_empty = time_of_file(path), True
        for passage in read_passages(path):
            is_empty = False
            words = [untagged(word) for word in passage.words]
            text = replace(passage, words=words).join()
            yield {"time": time, "text": text, SOURCE: passage.source}
        if is_empty:
            raise ValueError(f"{path} has no text.")


def load_text_splits(
    arguments: TextDataTrainingArguments, cache_dir: str | None = None, token: str | None = None
) -> dict[str, Dataset]:
    """Loads the splits of dated texts, with the column [`SOURCE`]. Texts of the test split need no column of times."""
    splits = read_splits(arguments, load_texts, "files", cache_dir, token)
    for name, texts in splits.items():
        time_column, present = arguments.time_column, column_names(texts)
        if name == "test" and find_column(present, time_column, "time", "--time_column") is None:
            texts = texts.add_column(time_column, [None] * len(texts))
            present = [*present, time_column]
        for role, column in (("text", arguments.text_column), ("time", time_column)):
            if (found := require_column(present, column, role, option=f"--{role}_column")) != column:
                texts = texts.rename_column(found, column)
        splits[name] = name_sources(texts)
    return splits


def name_sources(texts: Dataset | IterableDataset) -> Dataset | IterableDataset:
    """Adds the row number to each text of a table, so that errors can name it after filtering and sorting."""
    if SOURCE in column_names(texts):
        return texts
    if isinstance(texts, IterableDataset):
        return texts.map(name_source, with_indices=True)
    return texts.add_column(SOURCE, [f"row {row}" for row in range(len(texts))])


def name_source(row: dict[str, Any], number: int) -> dict[str, Any]:
    """Adds its number to a row of a stream."""
    return {**row, SOURCE: f"row {number}"}


def find_times(texts: Dataset, time_column: str, granularity: str | None = None, only_dates: bool = True) -> list[str]:
    """
    Finds the distinct times of a corpus, named at a granularity if there is one, in the order of [`time_order`].
    Missing times are skipped. A granularity needs dates: other values are skipped too, or refused if `only_dates`.
    """
    names: dict[str, None] = {}
    for row, value in enumerate(texts[time_column]):
        is_skipped = granularity is not None and not only_dates and not read_date(value)
        if is_missing(value) or is_skipped:
            continue
        try:
            names[name_time(value, granularity)] = None
        except UnknownTimeError as problem:
            raise UnknownTimeError(f"Row {row}, column '{time_column}': {problem}") from None
    return sorted(names, key=time_order)


def time_order(name: str) -> tuple[bool, tuple[int, ...]]:
    """A key that sorts time points by the numbers in their names, those without a number last."""
    numbers = numbers_in(name)
    return not numbers, numbers


def numbers_in(name: str) -> tuple[int, ...]:
    """Reads the integers in a time point's name; years before the common era are negative."""
    return read_years(name) or tuple(int(digits) for digits in re.findall("^-?[0-9]+|[0-9]+", name_time(name)))


def choose_times(splits: dict[str, Dataset], arguments: TextDataTrainingArguments, saved: Sequence[str]) -> list[str]:
    """Returns the time points: from `--times`, else from a saved model, else from the texts."""
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
    """
    Returns the texts of each split, and checks that the wanted ones exist. Without a file of its own the validation
    split is drawn from the training texts.
    """
    splits = {name: drop_unknown_times(texts, arguments, times, name) for name, texts in splits.items()}
    splittable = isinstance(splits.get("train"), Dataset)
    if "train" in wanted and "validation" in wanted and "validation" not in splits and splittable:
        splits["train"], splits["validation"] = split_texts(splits["train"], arguments.validation_fraction, seed)
    return check_given(splits, arguments, wanted, "files")


def drop_unknown_times(
    texts: Dataset | IterableDataset, arguments: TextDataTrainingArguments, times: TimePoints, name: str
) -> Dataset | IterableDataset:
    """Counts the texts in no time point, logs their number, and drops them if `--unknown_times` is `drop`."""
    drops = arguments.unknown_times == "drop"
    # The model predicts the times of the test split.
    if arguments.unknown_times == "error" or (name == "test" and not drops):
        return texts
    is_known = partial(has_known_time, times=times, may_be_missing=name == "test")
    total, unknown = 0, Counter()
    for total, time in enumerate(texts[arguments.time_column], 1):
        if not is_known(time):
            # JSON may have lists.
            unknown[time if isinstance(time, Hashable) else str(time)] += 1
    if unknown:
        result, why = "left out" if drops else "of unknown time", count_by_reason(unknown, times)
        if unknown.total() == total:
            raise ValueError(f"No text of the {name} split is in any of the time points: {why}.")
        logger.warning("%s: %d of %d texts are in no time point: %s (%s).", name, unknown.total(), total, result, why)
    return texts.filter(is_known, input_columns=arguments.time_column) if drops else texts


def has_known_time(time: Any, times: TimePoints, may_be_missing: bool) -> bool:
    """Tells whether a time lies in one of the time points, or is missing and `may_be_missing`."""
    return times.holds(time) or (may_be_missing and is_missing(time))


def count_by_reason(unknown: Mapping[Any, int], times: TimePoints) -> str:
    """
    Describes why texts are in no time point, with an example of a date that is not read. `unknown` holds the number of
    texts of each time.
    """
    kind = times.kind
    reasons: Counter[str] = Counter()
    unreadable = None
    for time, count in unknown.items():
        if is_missing(time):
            reasons["without a date"] += count
            continue
        try:
            name_time(time, kind)
            reasons[f"outside of {shorten(', '.join(times.names), 200)}"] += count
        except UnknownTimeError:
            unreadable = unreadable or f"with a date that is not read as a {kind}, such as {time!r}"
            reasons[unreadable] += count
    listed = ", ".join(f"{count:,} {why}" for why, count in reasons.items())
    return f"{listed} ({times.hint})" if times.hint else listed


def split_texts(texts: Dataset, fraction: float, seed: int) -> tuple[Dataset, Dataset]:
    """Draws a random fraction. Returns the rest and the drawn texts, each in the order of the input."""
    count = round(fraction * len(texts))
    if not 0 < count < len(texts):
        raise ValueError(f"Cannot split {len(texts)} texts by a fraction of {fraction}: a split would be empty.")
    drawn = set(random.Random(seed).sample(range(len(texts)), count))
    return texts.select([row for row in range(len(texts)) if row not in drawn]), texts.select(sorted(drawn))


def token_limit(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """The maximum number of tokens of a text, special tokens included."""
    return min(tokenizer.model_max_length, longest_input(model))


def check_same_times(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase):
    """Raises a `ValueError` if the tokenizer has other time points than the model, so that their ids differ."""
    model_times, tokenizer_times = (list(getattr(owner, "times", ())) for owner in (model.config, tokenizer))
    if model_times and tokenizer_times != model_times:
        raise ValueError(
            f"The tokenizer's times are {', '.join(tokenizer_times) or 'none'}, the model's {', '.join(model_times)}: "
            "load the tokenizer with `times=model.config.times`."
        )


def special_tokens(tokenizer: PreTrainedTokenizerBase, time: Any = None) -> tuple[list[int], list[int], int | None]:
    """Returns the special tokens before and after a text, and its time id (None if the tokenizer has no times)."""
    is_temporal = hasattr(tokenizer, "time_points")
    ids = (tokenizer("", time=time) if is_temporal else tokenizer(""))["input_ids"]
    return ids[:-1], ids[-1:], tokenizer.time_id(time) if is_temporal else None


def make_row(words: list[int], before: list[int], after: list[int], time_id: int | None) -> dict[str, list[int]]:
    """Makes a row of the tokens of words between special tokens."""
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
    Makes rows for [`TemporalMlmCollator`]; a stream of texts gives a stream. Unless `line_by_line`, texts of one time
    are packed together within each batch of 1,000 texts. An error names the first text that cannot be read; a stream
    raises it when it reaches the text.
    """
    before, after, _ = special_tokens(tokenizer, tokenizer.times[0])
    smallest = len(before) + len(after) + 1
    if max_length < smallest:
        raise ValueError(f"`max_length` must be at least {smallest}, got {max_length}.")
    settings = {"time_column": time_column, "text_column": text_column, "line_by_line": line_by_line}
    convert = partial(join_texts, tokenizer=tokenizer, max_length=max_length, **settings)
    if isinstance(texts, IterableDataset):
        return texts.map(convert, batched=True, remove_columns=column_names(texts))
    time_ids = check_texts(texts, tokenizer, time_column, text_column)
    if not line_by_line:
        # Sorted by time point, so that rows are full even if there are many time points.
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
    """Makes the rows of a batch of texts."""
    sources, times, texts = batch[SOURCE], batch[time_column], batch[text_column]
    time_ids = [check_text(tokenizer, *text, must_have_time=True) for text in zip(sources, times, texts, strict=True)]
    # RoBERTa's tokens include the space before a word, which joined texts need.
    spaced = [text if line_by_line else f" {text}" for text in texts]
    tokens = tokenizer(spaced, time=times, add_special_tokens=False, verbose=False)["input_ids"]
    by_time: dict[int, list[int]] = {}
    for index, time_id in enumerate(time_ids):
        if not tokens[index]:
            raise ValueError(f"{sources[index]}: the tokenizer finds no token in the text {texts[index]!r}.")
        by_time.setdefault(time_id, []).append(index)
    rows = []
    for indices in by_time.values():
        before, after, time_id = special_tokens(tokenizer, times[indices[0]])
        size = max_length - len(before) - len(after)
        parts = [tokens[index] for index in indices]
        for ids in parts if line_by_line else [list(chain.from_iterable(parts))]:
            rows += [make_row(ids[i : i + size], before, after, time_id) for i in range(0, len(ids), size)]
    return {name: [row[name] for row in rows] for name in rows[0]}


def check_texts(
    texts: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    time_column: str = "time",
    text_column: str = "text",
    must_have_time: bool = True,
) -> list[int]:
    """Checks texts, and returns their time ids ([`check_text`])."""
    columns = zip(texts[SOURCE], texts[time_column], texts[text_column], strict=True)
    return [check_text(tokenizer, *text, must_have_time) for text in columns]


def check_text(tokenizer: PreTrainedTokenizerBase, source: str, time: Any, text: Any, must_have_time: bool) -> int:
    """
    Returns the time id of a text. Raises an error that names the text if it has no words, an unknown time, or no time
    where it `must_have_time`.
    """
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{source}: the text must be a string with words in it, got {text!r}.")
    try:
        is_replaced = not must_have_time and is_missing(time)
        return tokenizer.time_id(tokenizer.times[0] if is_replaced else time)
    except UnknownTimeError as error:
        raise UnknownTimeError(f"{source}: {error}") from None
