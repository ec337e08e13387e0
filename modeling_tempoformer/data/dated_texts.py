"""Dated texts: from files or tables to rows for masked language modelling."""

import random
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..modeling_tempoformer_encoders import ENCODER_ADAPTERS
from ..time_points_temporal_bert import UnknownTimeError, as_name, is_missing, name_date, read_date, read_years
from .files import read_lines
from .tables import check_column


TEXT_SUFFIXES = (".txt", ".txt.gz")
TAGS = ("_nn", "_vb")
# The column that says which file and line, or which row, a text comes from.
SOURCE = "source_of_text"


def read_text_file(path: str) -> Iterator[dict[str, str]]:
    """
    The lines of a text file that is named by its time point (`1810-1860.txt` or `1810-1860.txt.gz`), without blank
    ones. Parts of speech after lemmas (`plane_nn`, as in the English corpora of SemEval-2020) are left out.
    """
    name = Path(path).name.removesuffix(".gz")
    if not name.endswith(".txt"):
        raise ValueError(f"{path}: a text file must be named by its time, TIME.txt or TIME.txt.gz.")
    number = None
    for number, line in read_lines(path):
        text = " ".join(untagged(token) for token in line.split())
        yield {"time": name.removesuffix(".txt"), "text": text, SOURCE: f"{path}, line {number}"}
    if number is None:
        raise ValueError(f"{path} has no text.")


def read_text_files(paths: list[str]) -> Dataset:
    """The texts of files that are named by time point, with the columns `time` and `text`."""
    return Dataset.from_list([text for path in paths for text in read_text_file(path)])


def name_sources(texts: Dataset) -> Dataset:
    """Adds its row number to each text of a table, so that errors can name it after filtering and sorting."""
    if SOURCE in texts.column_names:
        return texts
    return texts.add_column(SOURCE, [f"row {row}" for row in range(len(texts))])


def find_times(texts: Dataset, time_column: str, granularity: str | None = None, only_dates: bool = True) -> list[str]:
    """
    The time points of a corpus: its distinct times, named at a granularity if there is one. They are sorted by the
    numbers in their names; names without a number come last, in the order of the corpus.

    Missing times are skipped, and so are values that are not dates, unless `only_dates`: then an `UnknownTimeError`
    names the row.
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
    return read_years(name) or tuple(int(digits) for digits in re.findall("^-?[0-9]+|[0-9]+", name))


def split_texts(texts: Dataset, fraction: float, seed: int) -> tuple[Dataset, Dataset]:
    """Splits off a random fraction: returns the rest and what was taken, each in the order of the input."""
    count = round(fraction * len(texts))
    if not 0 < count < len(texts):
        raise ValueError(f"Cannot split {len(texts)} texts by a fraction of {fraction}: a split would be empty.")
    taken = set(random.Random(seed).sample(range(len(texts)), count))
    return texts.select([row for row in range(len(texts)) if row not in taken]), texts.select(sorted(taken))


def token_limit(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int:
    """The most tokens that a model reads, special tokens included."""
    adapter = ENCODER_ADAPTERS.get(config.model_type)
    most = config.max_position_embeddings if adapter is None else adapter.max_tokens(config)
    return min(tokenizer.model_max_length, most)


def check_same_times(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase):
    """Raises a `ValueError` if the tokenizer has other time points than the model, so that their ids differ."""
    own, of_tokenizer = (list(getattr(one, "times", ())) for one in (model.config, tokenizer))
    if own and of_tokenizer != own:
        raise ValueError(
            f"The tokenizer's times are {', '.join(of_tokenizer) or 'none'}, the model's {', '.join(own)}: "
            "load the tokenizer with `times=model.config.times`."
        )


def frame(tokenizer: PreTrainedTokenizerBase, time: Any = None) -> tuple[list[int], list[int], int | None]:
    """
    The special tokens before and after a text of some time, and the id of that time (`None` if the tokenizer has no
    times).
    """
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
    texts: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    time_column: str = "time",
    text_column: str = "text",
    max_length: int = 128,
    line_by_line: bool = False,
) -> Dataset:
    """
    Rows for [`TemporalMlmCollator`] of at most `max_length` tokens, special tokens included: `input_ids`,
    `attention_mask`, `special_tokens_mask` and `time_ids`. A longer text makes several rows. Texts of one time point
    are joined, of each 1,000 texts anew, unless `line_by_line`.

    Raises an `UnknownTimeError` or a `ValueError` that names the row of a text without a known time or without words.
    """
    check_column(texts.column_names, time_column, "time")
    check_column(texts.column_names, text_column, "text")
    before, after, _ = frame(tokenizer, tokenizer.times[0])
    smallest = len(before) + len(after) + 1
    if max_length < smallest:
        raise ValueError(f"`max_length` must be at least {smallest}, got {max_length}.")
    texts = name_sources(texts)
    if not line_by_line:
        # Texts of one time point follow each other, so that rows are full also if there are many time points.
        ids = check_texts(texts, tokenizer, time_column, text_column)
        texts = texts.select(sorted(range(len(texts)), key=ids.__getitem__))

    def convert(batch: dict[str, list]) -> dict[str, list]:
        sources, times, found = batch[SOURCE], batch[time_column], batch[text_column]
        time_ids = [check_text(tokenizer, *row) for row in zip(sources, times, found, strict=True)]
        # RoBERTa's tokens include the space before a word, which texts that are joined need.
        words = [text if line_by_line else f" {text}" for text in found]
        tokens = tokenizer(words, time=times, add_special_tokens=False, verbose=False)["input_ids"]
        by_time: dict[int, list[int]] = {}
        for text, time_id in enumerate(time_ids):
            if not tokens[text]:
                raise ValueError(f"{sources[text]}: the tokenizer finds no token in the text {found[text]!r}.")
            by_time.setdefault(time_id, []).append(text)
        rows = []
        for of_time in by_time.values():
            before, after, time_id = frame(tokenizer, times[of_time[0]])
            size = max_length - len(before) - len(after)
            of_texts = [tokens[text] for text in of_time]
            for ids in of_texts if line_by_line else [list(chain.from_iterable(of_texts))]:
                rows += [make_row(ids[i : i + size], before, after, time_id) for i in range(0, len(ids), size)]
        return {name: [row[name] for row in rows] for name in rows[0]}

    return texts.map(convert, batched=True, remove_columns=texts.column_names, load_from_cache_file=False)


def check_text(tokenizer: PreTrainedTokenizerBase, source: str, time: Any, text: Any) -> int:
    """The time id of a text. Raises a `ValueError` that names its source if it has no words or no known time."""
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{source}: the text must be a string with words in it, got {text!r}.")
    try:
        return tokenizer.time_id(time)
    except UnknownTimeError as error:
        raise UnknownTimeError(f"{source}: {error}") from None


def check_texts(
    texts: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    time_column: str = "time",
    text_column: str = "text",
    must_have_time: bool = True,
) -> list[int]:
    """[`check_text`] of all texts, after [`name_sources`]. Without `must_have_time`, a text may have no time."""
    times = texts[time_column]
    if not must_have_time:
        times = [tokenizer.times[0] if is_missing(time) else time for time in times]
    return [check_text(tokenizer, *row) for row in zip(texts[SOURCE], times, texts[text_column], strict=True)]


def untagged(word: str) -> str:
    """A word without the part of speech after it."""
    return word[:-3] if len(word) > 3 and word.endswith(TAGS) else word
