"""Checks the way from dated texts to masked batches."""

import gzip
import re
from datetime import datetime
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from helpers import TIMES
from helpers import dated_bert as bert

from modeling_tempoformer.time_points_temporal_bert import TimePoints
from semantic_change.reading.dated_texts import (
    SOURCE,
    count_by_reason,
    find_times,
    name_sources,
    read_text_files,
    split_texts,
    to_mlm_rows,
)
from semantic_change.temporal_mlm_collator import TemporalMlmCollator


TEXTS = ["the plane flew", "the trees", "plane", "trees trees the"]
YEARS = ["1815", "1990", "1850", "2000"]
CLS, SEP, MASK, the, plane, flew, tree, s = range(2, 10)


def texts() -> Dataset:
    return name_sources(Dataset.from_dict({"time": YEARS, "text": TEXTS}))


@pytest.mark.parametrize("streaming", [False, True])
def test_lines_are_rows_and_long_ones_several(streaming):
    source = texts().to_iterable_dataset(num_shards=2) if streaming else texts()
    rows = list(to_mlm_rows(source, bert(), max_length=5, line_by_line=True))
    expected = [
        ([CLS, the, plane, flew, SEP], 3),
        ([CLS, plane, SEP], 3),
        ([CLS, the, tree, s, SEP], 4),
        ([CLS, tree, s, tree, SEP], 4),
        ([CLS, s, the, SEP], 4),
    ]
    assert [(row["input_ids"], row["time_ids"]) for row in rows] == [
        (ids, [time] * len(ids)) for ids, time in expected
    ]
    assert rows[0]["special_tokens_mask"] == [1, 0, 0, 0, 1]


def test_packed_rows_are_full_and_of_one_time():
    expected = [([the, plane, flew, plane], {3}), ([the, tree, s, tree], {4}), ([s, tree, s, the], {4})]
    rows = to_mlm_rows(texts(), bert(), max_length=6)
    assert [(row["input_ids"][1:-1], set(row["time_ids"])) for row in rows] == expected
    # A time token at the beginning takes one position.
    tokenizer = bert(prepend_time=True)
    rows = list(to_mlm_rows(texts(), tokenizer, max_length=7))
    assert [(row["input_ids"][2:-1], set(row["time_ids"])) for row in rows] == expected
    old, new = tokenizer.time_token_ids
    assert [row["input_ids"][:2] for row in rows] == [[CLS, old], [CLS, new], [CLS, new]]
    with pytest.raises(ValueError, match="`max_length`.*3.*2"):
        to_mlm_rows(texts(), bert(), max_length=2)


@pytest.mark.parametrize(
    "column, value, named",
    [
        ("time", None, "row 1.*no time.*1810-1860, 1960-2010"),
        ("time", "1900", "row 1.*'1900'"),
        ("text", " ", "row 1.*' '"),
        ("text", None, "row 1.*None"),
        ("text", "\u200b", "row 1.*token"),
    ],
)
def test_a_bad_row_is_named(column, value, named):
    rows = {"time": YEARS, "text": TEXTS}
    rows[column] = [rows[column][0], value, *rows[column][2:]]
    with pytest.raises(ValueError, match=named):
        to_mlm_rows(name_sources(Dataset.from_dict(rows)), bert(), line_by_line=True)


def test_text_files_are_named_by_their_time(tmp_path):
    """Lemmas lose their part of speech."""
    (tmp_path / "1810-1860.txt").write_text("the plane_nn\n\n the trees x_y\n", encoding="utf-8")
    with gzip.open(tmp_path / "1960-2010.txt.gz", "wt", encoding="utf-8") as file:
        file.write("plane\n")
    dataset = read_text_files([str(tmp_path / "1810-1860.txt"), str(tmp_path / "1960-2010.txt.gz")])
    assert sorted((row["time"], row["text"]) for row in dataset) == [
        ("1810-1860", "the plane"),
        ("1810-1860", "the trees x_y"),
        ("1960-2010", "plane"),
    ]


def test_a_row_keeps_its_source_when_others_are_taken_away():
    table = Dataset.from_dict({"time": ["1990", "1815", "1900", "1816"], "text": TEXTS})
    rest, part = split_texts(name_sources(table), 0.5, seed=0)
    assert sorted([*rest[SOURCE], *part[SOURCE]]) == [f"row {row}" for row in range(4)]
    assert list(rest[SOURCE]) == sorted(rest[SOURCE])
    with pytest.raises(ValueError, match="row 2.*'1900'"):
        [to_mlm_rows(texts, bert()) for texts in (rest, part)]
    with pytest.raises(ValueError, match="4 texts.*0.01"):
        split_texts(table, 0.01, seed=0)


@pytest.mark.parametrize(
    ("times", "granularity", "expected"),
    [
        (YEARS, None, ["1815", "1850", "1990", "2000"]),
        (YEARS, "century", ["1800s", "1900s", "2000s"]),
        ([10.0, 9.0, None, 11.0], None, ["9", "10", "11"]),
        (["2015-10", "2015-9", "2014-12"], None, ["2014-12", "2015-9", "2015-10"]),
        # Names without numbers come last, in the order of the corpus.
        (["1960-2010", "undated", "1810-1860", "lost"], None, ["1810-1860", "1960-2010", "undated", "lost"]),
        ([datetime(2015, 3, 1)], None, ["2015-03-01"]),
        # One day in two spellings is one.
        (["1.2.2015", "2015-01-31", "2015-02-01"], None, ["2015-01-31", "2015-02-01"]),
        (["18.06.1815", "1990"], "decade", ["1810s", "1990s"]),
        ([1556668800], "year", ["2019"]),
    ],
)
def test_time_points_are_found(times, granularity, expected):
    assert find_times(Dataset.from_dict({"time": times}), "time", granularity) == expected


def test_values_that_are_no_dates_are_refused_or_skipped():
    for times, named in (([38398], "Row 0.*38398"), (["1815", "long ago"], "Row 1.*'long ago'")):
        with pytest.raises(ValueError, match=named):
            find_times(Dataset.from_dict({"time": times}), "time", "year")
    undated = Dataset.from_dict({"time": ["1999", "long ago", "1815"]})
    assert find_times(undated, "time", "year", only_dates=False) == ["1815", "1999"]


@pytest.mark.parametrize(
    "lines",
    [
        # Lemmas of SemEval-2020; a poem; tabs in front of paragraphs and between columns of a text.
        ["the plane_nn leave", "walk_vb"] * 20,
        ["so much depends", "upon", "a red wheel", "barrow", "", "glazed with rain", "water", "beside the white"] * 30,
        ["# Rain", "rain", "Rain!", "and", "rain", "again"],
        ["\tThe planes left.", "\tIt rained."] * 20,
        ["1815\tThe plane tree stood there.", "1816\tIt rained."] * 20,
        ["the\tplanes\tleft", "it\trained", "the\told\tplane\tleft"] * 20,
        # The sentences have no spaces.
        ["飞机离开了。", "下雨了。"] * 100,
        ["a", "b"],
    ],
)
def test_sentences_are_no_tokens(tmp_path, lines):
    (tmp_path / "1815.txt").write_text("\n".join(lines), encoding="utf-8")
    assert len(read_text_files([str(tmp_path / "1815.txt")])) == sum(map(bool, lines))


@pytest.mark.parametrize(
    ("granularity", "names", "reason"),
    [
        (None, TIMES, ["4 outside of 1810-1860, 1960-2010", "2 with .*'June 2005'", "3 without"]),
        # A year does not tell its month.
        ("month", ["1815-06"], ["1 outside of 1815-06", "5 with .*'1900'", "3 without"]),
        (None, ["1815-06"], ["1 outside of 1815-06", "5 with .*month.*'1900'", "3 without"]),
        (None, ["1800s"], ["4 outside of 1800s", "1800s' may be a decade or a century"]),
    ],
)
def test_texts_of_no_time_are_counted_by_reason(granularity, names, reason):
    others = {"1900": 3, "1900-01-02": 1, "June 2005": 2, None: 1, "": 2}
    counted = count_by_reason(others, TimePoints(names, granularity))
    assert all(re.search(rf"\b{count}", counted) for count in reason), counted


def collate(tokenizer, count: int, **settings) -> tuple[dict, torch.Tensor]:
    """Returns a batch of `count` texts in turn, and their original tokens."""
    features = [tokenizer(TEXTS[i % 4], time=YEARS[i % 4]) for i in range(count)]
    plain = tokenizer.pad([dict(row) for row in features], return_tensors="pt")["input_ids"]
    return TemporalMlmCollator(tokenizer, seed=0, **settings)(features), plain


@pytest.mark.parametrize(("prepend_time", "lose_time"), [(False, True), (True, False)])
def test_words_are_masked_and_special_tokens_are_not(prepend_time, lose_time):
    """Masked words keep their time, or lose it."""
    tokenizer = bert(prepend_time=prepend_time, mask_token_time=lose_time)
    batch, plain = collate(tokenizer, 400, mlm_probability=0.5, time_mlm_probability=0.0)
    is_masked = batch["labels"] != -100
    special = torch.isin(plain, torch.tensor([0, CLS, SEP]))
    special[:, 1] |= prepend_time
    assert not (is_masked & special).any()
    assert torch.equal(batch["labels"][is_masked], plain[is_masked])
    assert torch.equal(batch["input_ids"][~is_masked], plain[~is_masked])
    assert 0.45 < is_masked[~special].float().mean() < 0.55
    assert torch.equal(batch["time_ids"] > 0, plain > 0)
    assert torch.equal(batch["time_ids"] == 1, (batch["input_ids"] == MASK) & lose_time)


def test_time_tokens_are_masked_by_a_probability_of_their_own():
    tokenizer = bert(prepend_time=True)
    batch, plain = collate(tokenizer, 2000, mlm_probability=0.0, time_mlm_probability=0.5)
    is_masked = batch["labels"] != -100
    assert not is_masked[:, [0, *range(2, plain.shape[1])]].any()
    chosen = is_masked[:, 1]
    assert 0.45 < chosen.float().mean() < 0.55
    before, after = plain[:, 1], batch["input_ids"][:, 1]
    assert torch.equal(batch["labels"][chosen, 1], before[chosen])
    assert torch.equal(after[~chosen], before[~chosen])
    masked = (after == MASK)[chosen].float().mean()
    other = ((after != before) & (after != MASK))[chosen].float().mean()
    # 80 % are masked. Half of the 10 % random ones keep their token, since there are two times.
    assert 0.76 < masked < 0.84 and 0.03 < other < 0.07
    assert set(after[chosen].tolist()) == {MASK, *tokenizer.time_token_ids}
    # The time to predict cannot be read from other tokens.
    assert set(batch["time_ids"][chosen].unique().tolist()) == {0, 2}
    assert set(batch["time_ids"][~chosen].unique().tolist()) == {0, 3, 4}


def test_a_text_of_unknown_time_is_not_asked_for_it_and_stays_unknown():
    tokenizer = bert(prepend_time=True, mask_token_time=True, unknown_times="unknown")
    features = [tokenizer("the [MASK] flew", time=None) for _ in range(50)]
    batch = TemporalMlmCollator(tokenizer, mlm_probability=0.0, time_mlm_probability=1.0, seed=0)(features)
    assert (batch["labels"] == -100).all()
    assert set(batch["time_ids"].unique().tolist()) == {2}


def test_text_files_are_streamed_as_they_are_read(tmp_path):
    paths = [str(tmp_path / f"{year}.txt") for year in (1815, 1990)]
    for path, lines in zip(paths, ("the plane_nn flew\n\ntrees\n", "plane\n"), strict=True):
        Path(path).write_text(lines, encoding="utf-8")
    stream = read_text_files(paths, streaming=True)
    assert stream.num_shards == 2 and list(stream) == list(stream) == list(read_text_files(paths))
    with pytest.raises(ValueError, match="1815.txt, line 1.*no token|1815.txt, line 1.*words"):
        list(to_mlm_rows(stream.map(lambda row: {"text": " "}), bert()))


def test_a_stream_joins_texts_of_one_time_and_names_a_text_without():
    rows = list(to_mlm_rows(texts().to_iterable_dataset(), bert(), max_length=6))
    assert sorted(map(str, rows)) == sorted(map(str, to_mlm_rows(texts(), bert(), max_length=6)))
    undated = name_sources(
        Dataset.from_dict({"time": ["1815", "1700"], "text": ["plane", "trees"]}).to_iterable_dataset()
    )
    with pytest.raises(ValueError, match="row 1.*'1700'"):
        list(to_mlm_rows(name_sources(undated), bert()))
