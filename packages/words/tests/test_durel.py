"""Checks usages in DURel's layout, and judgements of people beside a model's."""

import csv

import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata

from semantic_change.corpora import read_dwug
from semantic_change.durel import compare_with_judgments, identify, read_judgments, write_uses
from semantic_change.usages import Usage


def usage(number: int, text: str = "It rained. A plane\tflew. Then", word: str = "plane") -> Usage:
    start = text.index(word)
    return Usage("1900", text, start, start + len(word), f"190{number}", f"letter {number}")


def test_uses_are_written_as_dwug_s_are_read(tmp_path):
    usages = {"plane_nn": [usage(1), usage(2, 'He said "plane"')], "a/b": [usage(3)]}
    write_uses(tmp_path, usages)
    path = tmp_path / "data" / "plane" / "uses.csv"
    path.parent.mkdir(parents=True)
    (tmp_path / "_durel_uses.csv").rename(path)
    first, second, third = read_dwug(tmp_path)
    assert (first.text, first.time, first.date) == ("A plane flew.", "1900", "1901")
    assert first.targets == (("plane_nn", 2, 7),) and second.text == 'He said "plane"'
    assert [each.source for each in (first, second)] == [identify("plane_nn", each) for each in usages["plane_nn"]]
    assert third.targets[0][0] == "a/b"
    table = pd.read_csv(path, sep="\t", quoting=csv.QUOTE_NONE, dtype=str)
    assert table["pos"].tolist()[:2] == ["nn", "nn"] and table["indexes_target_sentence"][0] == "0:13"


def test_equal_usages_are_one_use(tmp_path):
    write_uses(tmp_path, {"plane": [usage(1), usage(2), usage(1)]})
    identifiers = pd.read_csv(tmp_path / "_durel_uses.csv", sep="\t", quoting=csv.QUOTE_NONE)["identifier"]
    assert identifiers.tolist() == [identify("plane", usage(1)), identify("plane", usage(2))]


def test_the_identifier_of_a_usage_is_its_own():
    usages = [usage(1), usage(2), usage(1, "A plane"), usage(1, "plane and plane")]
    second = Usage("1900", "plane and plane", 10, 15, "1901", "letter 1")
    found = [identify("plane", each) for each in (*usages, second)]
    assert len(set(found)) == 5 and identify("plane", usage(1)) == found[0]


def write(path, rows, columns="identifier1 identifier2 annotator judgment comment lemma"):
    lines = ["\t".join(columns.split()), *("\t".join(map(str, row)) for row in rows), ""]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_judgements_of_one_pair_are_averaged(tmp_path, caplog):
    (tmp_path / "data" / "w").mkdir(parents=True)
    rows = [("b", "a", "x", 4, "", "w"), ("a", "b", "y", "1.0", '"', "w"), ("a", "c", "x", 0, "", "w")]
    write(tmp_path / "data" / "w" / "judgments.csv", rows)
    assert read_judgments(tmp_path).to_dict("records") == [{"one": "a", "other": "b", "judgment": 2.5, "count": 2}]
    assert "1 judgements without a decision" in caplog.text
    (tmp_path / "other").mkdir()
    with pytest.raises(ValueError, match=r"other has no file judgments\.csv"):
        read_judgments(tmp_path / "other")


@pytest.mark.parametrize(
    ("rows", "columns", "problem"),
    [
        ([("a", "b", 5)], "identifier1 identifier2 judgment", ["line 2", "5"]),
        ([("a", "b", 1), ("a", "b", "x")], "identifier1 identifier2 judgment", ["line 3", "'x'"]),
        ([("a", "b")], "identifier1 judgment", ["identifier2"]),
        ([("a", "b", 0)], "identifier1 identifier2 judgment", ["no judgement"]),
        ([("a", "b", 0, 0)], "identifier1 identifier2 judgment", ["line 2", "4 cells"]),
    ],
)
def test_other_judgements_are_refused(tmp_path, rows, columns, problem):
    with pytest.raises(ValueError) as raised:
        read_judgments(write(tmp_path / "judged.csv", rows, columns))
    assert all(part in str(raised.value) for part in ["judged.csv", *problem])


def test_the_model_s_cosines_are_ranked_as_people_s_judgements(caplog):
    generator = np.random.default_rng(0)
    usages, vectors = {"plane": [usage(n) for n in range(6)]}, {"plane": generator.normal(size=(6, 4))}
    usages |= {"tree": [usage(1)], "air": [usage(7), usage(8)]}
    vectors |= {"tree": np.ones((1, 4)), "air": np.eye(4)[:2]}
    # Identifiers of this package, and sources as in DWUG.
    names = [identify("plane", each) if n % 2 else each.source for n, each in enumerate(usages["plane"])]
    pairs = [(one, other) for one in range(6) for other in range(one)]
    judged = generator.integers(1, 5, size=len(pairs)).astype(float)
    rows = [(names[one], names[other], value, 2) for (one, other), value in zip(pairs, judged, strict=True)]
    rows += [("letter 7", "letter 8", 1.0, 1), ("unknown", "letter 8", 1.0, 1)]
    table = compare_with_judgments(
        pd.DataFrame(rows, columns=["one", "other", "judgment", "count"]), usages, vectors
    ).set_index("word")
    cosines = [
        vectors["plane"][one] @ vectors["plane"][other]
        / np.linalg.norm(vectors["plane"][one]) / np.linalg.norm(vectors["plane"][other])
        for one, other in pairs
    ]  # fmt: skip
    assert table.loc["plane", "spearman"] == pytest.approx(np.corrcoef(rankdata(judged), rankdata(cosines))[0, 1])
    assert table.loc["plane", ["pairs", "judgments"]].tolist() == [15, 30]
    assert table.loc["plane", "cosine"] == pytest.approx(np.mean(cosines))
    # One pair has no correlation, and a word without a pair no row.
    assert table.loc["air", "pairs"] == 1 and np.isnan(table.loc["air", "spearman"]) and "tree" not in table.index
    assert "1 of 17" in caplog.text
