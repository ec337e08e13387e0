"""Dated sentences of text files, tables and DWUG data sets, lists of words, and gold scores."""

import gzip
import unicodedata
from datetime import date

import pandas as pd
import pytest

from modeling_tempoformer.semantic_change.corpora import (
    Columns,
    DatedSentence,
    read_dated_table,
    read_dwug,
    read_semeval,
    read_targets,
    read_truth,
)


def marked(sentence: DatedSentence) -> list[tuple[str, str]]:
    """The targets of a sentence, and the text at their positions."""
    return [(name, sentence.text[start:end]) for name, start, end in sentence.targets]


def read_one(path, lines: str, targets: list[str]) -> list[DatedSentence]:
    path.write_text(lines, encoding="utf-8")
    return list(read_semeval({"t": path}, targets))


def test_tagged_corpus(tmp_path):
    """Only the tagged form is the target, each time; the text has no tags, and the tokens are as in the file."""
    lines = "they  tip_vb. the plane_nn and (plane_nn)\n\nplane the wood\n"
    first, second = read_one(tmp_path / "c.txt", lines, ["plane_nn"])
    assert first.time == "t" and first.text == "they tip. the plane and (plane)"
    assert first.targets == (("plane_nn", 14, 19), ("plane_nn", 25, 30))
    assert first.tokens == ("they", "tip_vb.", "the", "plane_nn", "and", "plane_nn")
    assert second == DatedSentence("t", "plane the wood", (), ("plane", "the", "wood"), source="c.txt, line 3")


def test_each_corpus_has_tags_or_not(tmp_path, caplog):
    """In a corpus without any tag the plain form is the target, in another one it is another word."""
    (tmp_path / "tagged.txt").write_text("a tip_vb\nplane and tip\n")
    (tmp_path / "plain.txt").write_text("a tipped\nplane it\n")
    paths = {"old": tmp_path / "tagged.txt", "new": str(tmp_path / "plain.txt")}
    sentences = list(read_semeval(paths, {"tip_vb": ["tip_vb", "tipped_vb"], "plane_nn": ["plane_nn"]}))
    assert [sentence.time for sentence in sentences] == ["old", "old", "new", "new"]
    assert [marked(s) for s in sentences] == [[("tip_vb", "tip")], [], [("tip_vb", "tipped")], [("plane_nn", "plane")]]
    assert [s.tokens for s in sentences[2:]] == [("a", "tip_vb"), ("plane_nn", "it")]
    assert "plain.txt has no tags" in caplog.text and "tagged.txt has no tags" not in caplog.text


@pytest.mark.parametrize(
    ("line", "targets", "found"),
    [
        # Capitals and the numbers of homonyms tell words apart.
        ("Das Abbauen und abbauen der Sensation", ["abbauen", "Sensation"], ["abbauen", "Sensation"]),
        ("dico dico#2 Dico", ["dico#2"], ["dico#2"]),
        ("dico dico#2 Dico", ["dico"], ["dico"]),
        ("en förhandling i Förhandling", ["förhandling"], ["förhandling"]),
        # Punctuation around a word is not part of it, in any script.
        ('the plane. "Plane," (plane) aeroplane plane-like \u201cplane\u201d', ["plane"], ["plane"] * 3),
        ("Das \u203aHaus\u2039 \u00a7Haus\u2020 \u00abHaus\u200b\u00bb \u00bfHaus Haus\u2032", ["Haus"], ["Haus"] * 5),
    ],
)
def test_what_counts_as_a_target(tmp_path, line, targets, found):
    (sentence,) = read_one(tmp_path / "c.txt", line, targets)
    assert sentence.text == line and marked(sentence) == [(name, name) for name in found]


def test_accents_may_be_written_apart(tmp_path):
    apart, joined = "Ma\u0308dchen", "M\u00e4dchen"
    for line, target in ((apart, joined), (joined, apart)):
        (sentence,) = read_one(tmp_path / "c.txt", f"das {line} geht", [target])
        assert marked(sentence) == [(target, joined)] and sentence.text == f"das {joined} geht"


def test_files_and_folders(tmp_path):
    folder = tmp_path / "corpus1" / "lemma"
    (folder / "part").mkdir(parents=True)
    (folder / "notes.md").write_text("not of the corpus")
    (folder / "part" / "b.txt").write_text("b\n")
    with gzip.open(folder / "a.txt.gz", "wt") as file:
        file.write("a\n")
    sentences = read_semeval({"0": folder, "1": folder / "a.txt.gz", "2": tmp_path / "none.txt"}, ["a"])
    found = [next(sentences) for _ in range(3)]
    assert [sentence.text for sentence in found] == ["a", "b", "a"]
    # A citation says where in the folder it comes from.
    assert [sentence.source for sentence in found] == ["a.txt.gz, line 1", "part/b.txt, line 1", "a.txt.gz, line 1"]
    # A corpus is not read before it is needed.
    with pytest.raises(FileNotFoundError):
        next(sentences)


@pytest.mark.parametrize("name", ["both", "both/lemma", "blank.txt", "plain.txt.gz"])
def test_corpora_that_are_refused(tmp_path, name):
    for version in ("lemma", "token"):
        (tmp_path / "both" / version).mkdir(parents=True)
    (tmp_path / "blank.txt").write_text("\n \n")
    (tmp_path / "plain.txt.gz").write_text("a b\n")
    with pytest.raises(ValueError, match=name):
        list(read_semeval({"t": tmp_path / name}, ["a"]))


def test_targets_and_truth(tmp_path):
    path = tmp_path / "targets.txt"
    path.write_bytes(b"\xef\xbb\xbfplane_nn\r\n\r\ntip_vb \r\n")
    assert read_targets(path) == {"plane_nn": ["plane_nn"], "tip_vb": ["tip_vb"]}
    path = tmp_path / "graded.txt"
    path.write_text("plane_nn\t0.88\r\ntip_vb\t1e-1\n\nchairman_nn\t0")
    assert read_truth(path) == {"plane_nn": 0.88, "tip_vb": 0.1, "chairman_nn": 0.0}
    path.write_text("\n")
    with pytest.raises(ValueError, match="graded.txt"):
        read_targets(path)
    for line in ("b 1", "\t1", "a\t1\t2", "b\tnan", "b\tinf", "a\t2"):
        path.write_text(f"a\t1\n{line}\n")
        with pytest.raises(ValueError, match="graded.txt, line 2"):
            read_truth(path)


@pytest.mark.parametrize(
    ("line", "ignore_case", "found"),
    [
        ("no social security here", False, [("social security", "social security")]),
        ('("social security", no)', False, [("social security", "social security")]),
        ("social, security is security", False, [("security", "security")] * 2),
        ("Social Security, the SECURITY", False, []),
        ("Social Security, the SECURITY", True, [("social security", "Social Security"), ("security", "SECURITY")]),
        ("a social", True, []),
    ],
)
def test_phrases_and_capitals(tmp_path, line, ignore_case, found):
    (tmp_path / "words.txt").write_text("security\nsocial  security\n", encoding="utf-8")
    (tmp_path / "c.txt").write_text(line, encoding="utf-8")
    words = read_targets(tmp_path / "words.txt")
    (sentence,) = read_semeval({"t": tmp_path / "c.txt"}, words, ignore_case)
    assert [(name, sentence.text[start:end]) for name, start, end in sentence.targets] == found
    assert sentence.text == line and [token for token in sentence.tokens if token in words] == [n for n, _ in found]


def test_forms_of_a_word_are_found_under_its_name(tmp_path):
    (tmp_path / "words.txt").write_text(
        "economy: economy,  Economies, home  economics\nset: off\nS:t\n", encoding="utf-8"
    )
    words = read_targets(tmp_path / "words.txt")
    assert words == {"economy": ["economy", "Economies", "home economics"], "set": ["off"], "S:t": ["S:t"]}
    (sentence,) = read_one(tmp_path / "c.txt", "economies, Economies: home economics set off economy. S:t", words)
    assert marked(sentence) == [
        *[("economy", "Economies"), ("economy", "home economics"), ("set", "off"), ("economy", "economy")],
        ("S:t", "S:t"),
    ]
    assert sentence.tokens == ("economies,", "economy", "economy", "set", "set", "economy", "S:t")
    (lower,) = read_semeval({"t": tmp_path / "c.txt"}, words, ignore_case=True)
    assert [name for name, _, _ in lower.targets].count("economy") == 4


@pytest.mark.parametrize(
    ("targets", "ignore_case"),
    [
        ({"lie": ["lie", "lay"], "lay": ["lay", "laid"]}, False),
        (["Turkey", "turkey"], True),
        (["plane_nn", "plane_vb"], False),
        (["Ma\u0308dchen", "M\u00e4dchen"], False),
    ],
)
def test_targets_that_cannot_be_told_apart_are_refused(tmp_path, targets, ignore_case):
    (tmp_path / "c.txt").write_text("any words", encoding="utf-8")
    first, second = targets
    with pytest.raises(ValueError, match=rf"'{first}' .*'{second}' .*c\.txt"):
        list(read_semeval({"t": tmp_path / "c.txt"}, targets, ignore_case))


@pytest.mark.parametrize("line", ["a: b,,c", "a: b,", ": b", "a: b\tc", "a\t1"])
def test_lists_of_forms_that_are_refused(tmp_path, line):
    (tmp_path / "words.txt").write_text(f"x\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match="words.txt, line 2"):
        read_targets(tmp_path / "words.txt")


ROWS = {
    "date": ["1815-06-18", "1999", "1900", "", "1860-12-31"],
    "source": ["letter", "", "paper", "paper", "diary"],
    "text": ["The plane tree.\nOf two lines", "no planes; a plane", "a plane", "a plane", " "],
}


def test_a_dated_table(tmp_path, caplog):
    """Rows go to the time that holds their date; those of no time are counted, blank texts are not."""
    path = tmp_path / "texts.csv.gz"
    pd.DataFrame(ROWS).to_csv(path, index=False)
    first, second = read_dated_table(
        path, ["1810-1860", "1960-2010"], {"plane": ["plane", "planes"]}, ignore_case=True
    )
    assert (first.time, first.date, first.source) == ("1810-1860", "1815-06-18", "letter")
    assert first.text == "The plane tree. Of two lines" and marked(first) == [("plane", "plane")]
    assert (second.time, second.date, second.source) == ("1960-2010", "1999", "texts.csv.gz, row 1")
    assert marked(second) == [("plane", "planes"), ("plane", "plane")]
    assert "2 of 4 texts" in caplog.text


def test_a_table_for_each_time_beside_a_text_file(tmp_path):
    """Its dates need not be in the time; columns may have other names, and years the type of numbers."""
    table = pd.DataFrame({"year": [1815.0, None], "said": ["a plane", "planes"], "by": ["Ann", None]})
    table.to_parquet(tmp_path / "old.parquet")
    pd.DataFrame({"year": [date(2001, 2, 3)], "said": ["it"], "by": ["Bo"]}).to_parquet(tmp_path / "new.parquet")
    (tmp_path / "text.txt").write_text("a plane", encoding="utf-8")
    paths = {"1": tmp_path / "old.parquet", "2": tmp_path / "new.parquet", "3": tmp_path / "text.txt"}
    sentences = list(read_semeval(paths, ["plane"], columns=Columns("said", "year", "by")))
    assert [(s.time, s.text, s.date, s.source) for s in sentences] == [
        *[("1", "a plane", "1815", "Ann"), ("1", "planes", "", "old.parquet, row 1"), ("2", "it", "2001-02-03", "Bo")],
        ("3", "a plane", "", "text.txt, line 1"),
    ]
    (tmp_path / "bare.csv").write_text("text\na plane\n", encoding="utf-8")
    (bare,) = read_semeval({"t": tmp_path / "bare.csv"}, ["plane"])
    assert (bare.date, bare.source) == ("", "bare.csv, row 0")


@pytest.mark.parametrize(
    ("columns", "times", "named"),
    [
        (Columns(text="words"), ["1810-1860"], "'words'.*--text_column"),
        (Columns(time="when"), ["1810-1860"], "'when'.*--time_column"),
        (Columns(), ["1810-1860", "1700-1800", "old"], r"texts\.csv.*'date'.*--time_column.*1700-1800, old"),
    ],
)
def test_dated_tables_that_are_refused(tmp_path, columns, times, named):
    pd.DataFrame(ROWS).to_csv(tmp_path / "texts.csv", index=False)
    with pytest.raises(ValueError, match=named):
        list(read_dated_table(tmp_path / "texts.csv", times, ["plane"], columns=columns))


USE_COLUMNS = "lemma pos date grouping identifier description context indexes_target_token indexes_target_sentence"
# As in the German, Spanish and Latin releases: quotes are characters, the end of a text may be missing, accents may be
# apart from their letters, and dates may be spans.
PUBLISHED = {
    "Fu\u00df": [
        'Fu\u00df\tNN\t1850\t1\tFu\u00df-c1-i0\t \t"Zu Fu\u00df" ging er.\t4:7\t0:16',
        "Fu\u00df\tNN\t1968-05-01\t2\tFu\u00df-c2-i1\t \tZw\u00f6lf F\u00fc\u00dfe\t6:\t0:11",
    ],
    "pr\u00f3ximo": ["pro\u0301ximo\t \t[-300,0]\t1\t1_0\t \tel pr\u00f3ximo a\u00f1o\t3:10\t0:14"],
}


def write_published(folder, uses=PUBLISHED):
    for lemma, lines in uses.items():
        path = folder / "data" / unicodedata.normalize("NFD", lemma) / "uses.csv"
        path.parent.mkdir(parents=True)
        path.write_text("\n".join(["\t".join(USE_COLUMNS.split()), *lines, ""]), encoding="utf-8")
    return folder


def test_a_published_data_set(tmp_path):
    folder = write_published(tmp_path)
    foot, feet, near = read_dwug(folder, ["1800-1899", "1946-1990"])
    assert foot == DatedSentence(
        *("1800-1899", '"Zu Fu\u00df" ging er.', (("Fu\u00df", 4, 7),), ('"Zu', "Fu\u00df", '"', "ging", "er.")),
        *("1850", "Fu\u00df-c1-i0"),
    )
    assert (feet.time, feet.date, marked(feet)) == ("1946-1990", "1968-05-01", [("Fu\u00df", "F\u00fc\u00dfe")])
    assert (near.time, near.date, near.source) == ("1800-1899", "[-300,0]", "1_0")
    assert marked(near) == [("pr\u00f3ximo", "pr\u00f3ximo")]
    assert [use.time for use in read_dwug(folder)] == ["1", "2", "1"]
    with pytest.raises(ValueError, match="2 time points"):
        next(read_dwug(folder, ["a", "b", "c"]))


def test_groupings_are_in_the_order_of_their_numbers(tmp_path):
    lines = [f"w\t \t \t{name}\t{name}\t \ta w\t2:3\t0:3" for name in ("1990-2000", "900-1000", "old")]
    assert [use.time for use in read_dwug(write_published(tmp_path, {"w": lines}), ["1", "2", "3"])] == ["2", "1", "3"]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("w\t \t \t1\t1\t \ta w\t2:3", "line 2: 8 cells"),
        ("w\t \t \t1\t1\t \ta w\t2:4\t0:3", "line 2.*'2:4'"),
        ("w\t \t \t1\t1\t \ta w\t0:1,2:3\t0:3", "line 2"),
    ],
)
def test_published_data_sets_that_are_refused(tmp_path, line, named):
    with pytest.raises(ValueError, match=r"data/LEMMA/uses\.csv"):
        list(read_dwug(tmp_path))
    with pytest.raises(ValueError, match=rf"uses\.csv, {named}"):
        list(read_dwug(write_published(tmp_path, {"w": [line]})))


def test_gold_scores_of_a_published_data_set(tmp_path):
    """By their column, with accents joined as in the uses; a word without a score has none."""
    path = tmp_path / "stats_groupings.csv"
    lines = ["lemma\tgrouping\tchange_binary\tchange_graded", "pro\u0301ximo\t1_2\t1\t0.5", "w\t1_2\t0\tnan"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert read_truth(path) == {"pr\u00f3ximo": 0.5}
    path.write_text("\n".join([*lines, "b\t1_2\t1\tmuch"]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"stats_groupings\.csv, line 4"):
        read_truth(path)
