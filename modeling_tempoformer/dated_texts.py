"""Dated texts: from files or tables to the rows that masked language modelling reads."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from datasets import Dataset, IterableDataset
from transformers import PreTrainedTokenizerBase

from .time_points_temporal_bert import TimePoints, UnknownTimeError, name_date, read_date


DatedTexts = Dataset | IterableDataset
TEXT_SUFFIXES = (".txt", ".txt.gz")


def read_lines(paths: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """The lines of text files named by time point (`1810-1860.txt`), plain or gzipped, but for empty ones."""
    for path in paths:
        name = Path(path).name
        suffix = next((suffix for suffix in TEXT_SUFFIXES if name.endswith(suffix)), None)
        if suffix is None:
            raise ValueError(f"{path}: text files are named TIME.txt or TIME.txt.gz.")
        is_empty = True
        with (
            gzip.open(path, "rt", encoding="utf-8") if suffix.endswith("gz") else open(path, encoding="utf-8") as file
        ):
            for line in file:
                if line := line.strip():
                    is_empty = False
                    yield {"time": name.removesuffix(suffix), "text": line}
        if is_empty:
            raise ValueError(f"{path} has no text.")


def read_text_files(paths: list[str], streaming: bool = False) -> DatedTexts:
    """[`read_lines`] as a dataset with the columns `time` and `text`."""
    if streaming:
        return IterableDataset.from_generator(read_lines, gen_kwargs={"paths": tuple(paths)})
    return Dataset.from_list(list(read_lines(tuple(paths))))


def find_times(texts: Dataset, time_column: str, granularity: str | None = None) -> list[str]:
    """
    The time points of a corpus, sorted: its times as they are, or named at a granularity. Missing times are left to
    the tokenizer. Raises an `UnknownTimeError` that names the row of what is no date.
    """
    names = set()
    for row, value in enumerate(texts[time_column]):
        if value is None or value != value or value == "":
            continue
        if granularity is None:
            names.add(str(value))
            continue
        parts = read_date(value)
        if parts is None:
            raise UnknownTimeError(f"Row {row}: the {time_column} {value!r} is no date.")
        names.add(name_date(parts, granularity))
    return sorted(names)


def check_columns(texts: DatedTexts, *columns: str) -> list[str]:
    """All columns. Raises a `ValueError` that names a column that is not there, and those that are."""
    present = texts.column_names or list(next(iter(texts)))
    for column in columns:
        if column not in present:
            raise ValueError(f"There is no column '{column}'; the columns are {', '.join(present)}.")
    return present


def frame(tokenizer: PreTrainedTokenizerBase, time: Any = None) -> tuple[list[int], list[int], int | None]:
    """
    The special tokens before and after a text of some time, and the id of that time, `None` where the tokenizer knows
    of no times.
    """
    if isinstance(getattr(tokenizer, "time_points", None), TimePoints):
        ids, time_id = tokenizer("", time=time)["input_ids"], tokenizer.time_id(time)
    else:
        ids, time_id = tokenizer("")["input_ids"], None
    return ids[:-1], ids[-1:], time_id


def make_row(words: list[int], before: list[int], after: list[int], time_id: int | None) -> dict[str, list[int]]:
    """One row of a batch: a text's tokens in their frame."""
    ids = [*before, *words, *after]
    row = {
        "input_ids": ids,
        "attention_mask": [1] * len(ids),
        "special_tokens_mask": [1] * len(before) + [0] * len(words) + [1] * len(after),
    }
    return row if time_id is None else {**row, "time_ids": [time_id] * len(ids)}


def to_mlm_rows(
    texts: DatedTexts,
    tokenizer: PreTrainedTokenizerBase,
    time_column: str = "time",
    text_column: str = "text",
    max_length: int = 128,
    line_by_line: bool = False,
) -> DatedTexts:
    """
    Rows for [`TemporalMlmCollator`]: `input_ids`, `attention_mask`, `special_tokens_mask` and `time_ids`.

    Args:
        texts: One row per text.
        tokenizer: A [`TemporalBertTokenizer`].
        time_column, text_column: Their names.
        max_length: Tokens of a row at most, special ones included.
        line_by_line: Whether a row has one text only. Else texts of one time point are joined to rows of
            `max_length` tokens; what is left of 1,000 texts becomes shorter rows. Nothing is cut off: a longer text
            makes several rows.

    Raises an `UnknownTimeError` or a `ValueError` that names the row of a text without a time or without words.
    """
    columns = check_columns(texts, time_column, text_column)

    def convert(batch: dict[str, list], indices: list[int]) -> dict[str, list]:
        values = batch[time_column]
        for index, value, text in zip(indices, values, batch[text_column], strict=True):
            if not isinstance(text, str) or not text.strip():
                raise ValueError(f"Row {index} has no text in '{text_column}': {text!r}.")
            try:
                tokenizer.time_id(value)
            except UnknownTimeError as error:
                raise UnknownTimeError(f"Row {index}: {error}") from None
        tokens = tokenizer(batch[text_column], time=values, add_special_tokens=False, verbose=False)["input_ids"]
        by_time: dict[int, list[int]] = {}
        for place, value in enumerate(values):
            by_time.setdefault(tokenizer.time_id(value), []).append(place)
        rows = []
        for places in by_time.values():
            before, after, time_id = frame(tokenizer, values[places[0]])
            size = max_length - len(before) - len(after)
            parts = [tokens[place] for place in places]
            for part in parts if line_by_line else [[token for ids in parts for token in ids]]:
                rows += [make_row(part[i : i + size], before, after, time_id) for i in range(0, len(part), size)]
        return {name: [row[name] for row in rows] for name in rows[0]}

    return texts.map(convert, batched=True, with_indices=True, remove_columns=columns)
