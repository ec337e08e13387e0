"""Checks readers of dated sentences (text files, tables and DWUG data sets), of lists of words, and of gold scores."""

import gzip
import re
import unicodedata
from datetime import date

import pandas as pd
import pytest
from helpers import TIMES

from semantic_change.corpora import (
    read_dated_corpus,
    read_dwug,
    read_semeval,
    read_targets,
    read_truth,
)
from semantic_change.dated_sentences import DatedSentence
from semantic_change.reading.passages import TextColumns


def marked(sentence: DatedSentence) -> list[tuple[str, str]]:
    """Returns the targets of a sentence, each with the text at its position."""
    return [(name, sentence.text[start:end]) for name, start, end in sentence.targets]


def read_text(path, lines: str, targets, ignore_case: bool = False) -> list[DatedSentence]:
    path.write_text(lines, encoding="utf-8")
    return list(read_semeval({"t": path}, targets, ignore_case))


def test_tagged_corpus(tmp_path):
    """
    Only the tagged form is the target, each time it occurs. The text has no tags, and the tokens are as in the file.
    """
    lines = "they  tip_vb. the plane_nn and (plane_nn)\n\nplane the wood\n"
    first, second = read_text(tmp_path / "c.txt", lines, ["plane_nn"])
    assert first.time == "t" and first.text == "they tip. the plane and (plane)"
    assert first.targets == (("plane_nn", 14, 19), ("plane_nn", 25, 30))
    assert first.tokens == ("they", "tip_vb.", "the", "plane_nn", "and", "plane_nn")
    assert second == DatedSentence("t", "plane the wood", (), ("plane", "the", "wood"), source="c.txt, line 3")


def test_each_corpus_has_tags_or_not(tmp_path, caplog):
    """In a corpus without tags the plain form is the target. In a tagged corpus it is another word."""
    (tmp_path / "tagged.txt").write_text("a tip_vb\nplane and tip\n")
    (tmp_path / "plain.txt").write_text("a tipped\nplane it\n")
    paths = {"old": tmp_path / "tagged.txt", "new": str(tmp_path / "plain.txt")}
    sentences = list(read_semeval(paths, {"tip_vb": ["tip_vb", "tipped_vb"], "plane_nn": ["plane_nn"]}))
    assert [sentence.time for sentence in sentences] == ["old", "old", "new", "new"]
    assert [marked(s) for s in sentences] == [[("tip_vb", "tip")], [], [("tip_vb", "tipped")], [("plane_nn", "plane")]]
    assert [s.tokens for s in sentences[2:]] == [("a", "tip_vb"), ("plane_nn", "it")]
    assert "plain.txt has no tags" in caplog.text and "tagged.txt has no tags" not in caplog.text


def test_tags_of_other_tagsets(tmp_path):
    """A form without a tag is any token of the word. Punctuation has tags, too."""
    line = "The_DET planes_NOUN plane_VERB ,_PUNCT social_ADJ security_NOUN 's_PART"
    targets = {"plane": ["plane", "planes"], "plane_NOUN": ["planes_NOUN"], "social security": ["social security"]}
    (sentence,) = read_text(tmp_path / "c.txt", line, targets)
    assert sentence.text == "The planes plane , social security 's"
    assert marked(sentence) == [
        ("plane_NOUN", "planes"),
        ("plane", "plane"),
        ("social security", "social security"),
    ]


VERTICAL = "<s>\nDie\tdie\tDET\nFlugzeuge\tFlugzeug\tNOUN\nfliegen\tfliegen\tVERB\n.\t.\tPUNCT\n</s>\n"


@pytest.mark.parametrize(
    ("search", "targets", "found", "tokens"),
    [
        (["word"], ["Flugzeuge", "Flugzeug"], [("Flugzeuge", "Flugzeuge")], "Die Flugzeuge fliegen ."),
        (["2"], ["Flugzeug", "Die fliegen"], [("Flugzeug", "Flugzeuge")], "die Flugzeug fliegen ."),
        (
            ["2", "3"],
            {"flug": ["Flugzeug", "fliegen_VERB"], "Flugzeug_VERB": ["Flugzeug_VERB"]},
            [("flug", "Flugzeuge"), ("flug", "fliegen")],
            "die_DET flug flug ._PUNCT",
        ),
    ],
)
def test_words_are_looked_up_in_columns_and_quoted_as_written(tmp_path, search, targets, found, tokens):
    (tmp_path / "c.vrt").write_text(VERTICAL, encoding="utf-8")
    (sentence,) = read_semeval({"t": tmp_path / "c.vrt"}, targets, columns=TextColumns(search=search))
    assert sentence.text == "Die Flugzeuge fliegen." and marked(sentence) == found
    assert sentence.tokens == tuple(tokens.split())


def test_a_phrase_of_lemmas(tmp_path):
    (tmp_path / "c.vrt").write_text(VERTICAL, encoding="utf-8")
    columns = TextColumns(search=["2"])
    (sentence,) = read_semeval({"t": tmp_path / "c.vrt"}, ["Flugzeug fliegen", "Flugzeug"], columns=columns)
    assert marked(sentence) == [("Flugzeug fliegen", "Flugzeuge fliegen")]
    assert sentence.tokens == ("die", "Flugzeug fliegen", ".")


def test_each_part_of_a_multiword_token_is_found(tmp_path):
    rows = ["1-2\tV\u00e1monos", "1\tVamos\tir\tVERB", "2\tnos\tnosotros\tPRON", "3\tya\tya\tADV"]
    lines = ["\t".join((row.split("\t") + ["_"] * 10)[:10]) for row in rows]
    (tmp_path / "c.conllu").write_text("\n".join(lines), encoding="utf-8")
    for target, columns in (("nosotros", ["lemma"]), ("ir_VERB", ["lemma", "pos"]), ("V\u00e1monos", ["word"])):
        (sentence,) = read_semeval({"t": tmp_path / "c.conllu"}, [target], columns=TextColumns(search=columns))
        assert marked(sentence) == [(target, "V\u00e1monos")] and sentence.text == "V\u00e1monos ya"


@pytest.mark.parametrize(
    ("lines", "ignore_case", "is_named"),
    [
        ("America and America. america", False, True),
        # Most usages are found.
        ("america and america. America", False, False),
        ("America and America.", True, False),
        ("The trees", False, False),
    ],
)
def test_words_that_the_texts_write_with_other_capitals_are_named(tmp_path, caplog, lines, ignore_case, is_named):
    read_text(tmp_path / "c.txt", lines, ["america", "tree"], ignore_case)
    assert ("america (1 times, but 2 times America)" in caplog.text) == is_named
    assert ("tree" in caplog.text, "capitals" in caplog.text) == (False, is_named)


SECURITY = ["security", "social security"]


@pytest.mark.parametrize(
    ("line", "targets", "expected"),
    [
        # Capitals and the numbers of homonyms tell words apart.
        ("Das Abbauen und abbauen der Sensation", ["abbauen", "Sensation"], ["abbauen", "Sensation"]),
        ("dico dico#2 Dico", ["dico#2"], ["dico#2"]),
        ("dico dico#2 Dico", ["dico"], ["dico"]),
        # Punctuation around a word is not part of it, in any script.
        ('the plane. "Plane," (plane) aeroplane plane-like \u201cplane\u201d', ["plane"], ["plane"] * 3),
        ("Das \u203aHaus\u2039 \u00a7Haus\u2020 \u00abHaus\u200b\u00bb \u00bfHaus Haus\u2032", ["Haus"], ["Haus"] * 5),
        # A dash divides words, a hyphen does not.
        ("by plane\u2014a plane--or \u2018plane,\u2019\u2014then 1914\u20131918plane", ["plane"], ["plane"] * 3),
        # Accents may be separate characters, in the text or in the list.
        ("das Ma\u0308dchen geht", ["M\u00e4dchen"], ["M\u00e4dchen"]),
        ("das M\u00e4dchen geht", ["Ma\u0308dchen"], ["M\u00e4dchen"]),
        # A word inside a phrase is not a usage of the word.
        ('("social security", no) social, security', SECURITY, ["social security", "security"]),
        ("Social Security, the SECURITY", SECURITY, []),
        # Apostrophes and hyphens of keyboards and of print, in the text or in the list.
        ("\u2018Don\u2019t\u2019 don\u2019t, don't don\u02bct dont", ["don't"], ["don\u2019t", "don't", "don\u02bct"]),
        ("we don't", ["don\u2019t"], ["don't"]),
        (
            "self\u2010made self\u2011made self-made selfmade",
            ["self-made"],
            ["self\u2010made", "self\u2011made", "self-made"],
        ),
        # Characters that are not seen, ligatures, and the long s.
        (
            "an air\u00adplane, pla\u00adne\u00ad pla\u200bne \u2060plane",
            ["plane"],
            ["pla\u00adne", "pla\u200bne", "plane"],
        ),
        ("\ufb01ne, e\ufb03cient air\u00adplane", ["fine", "efficient"], ["\ufb01ne", "e\ufb03cient"]),
        (
            "\u017fecurity, \u017focial \u017fe\u00adcurity",
            SECURITY,
            ["\u017fecurity", "\u017focial \u017fe\u00adcurity"],
        ),
        ("the \ufb01rst \ufb02oor", ["\ufb01rst floor"], ["\ufb01rst \ufb02oor"]),
    ],
)
def test_what_counts_as_a_target(tmp_path, line, targets, expected):
    (sentence,) = read_text(tmp_path / "c.txt", line, targets)
    assert sentence.text == unicodedata.normalize("NFC", line)
    assert [shown for _, shown in marked(sentence)] == expected
    assert [token for token in sentence.tokens if token in targets] == [name for name, _ in marked(sentence)]


@pytest.mark.parametrize(
    ("with_compounds", "found"),
    [(False, [("car", "car")]), (True, [("motor", "Motor"), ("car", "cars"), ("car", "car"), ("car", "car")])],
)
def test_parts_of_compounds_are_counted_and_may_be_usages(tmp_path, caplog, with_compounds, found):
    path = tmp_path / "c.txt"
    path.write_text("Motor-cars, a car \u2018self\u2010car-wash\u2019 car's carpet", encoding="utf-8")
    targets = {"car": ["car", "cars"], "motor": ["motor"], "wheel": ["wheel"]}
    (sentence,) = read_semeval({"t": path}, targets, ignore_case=True, with_compounds=with_compounds)
    assert marked(sentence) == found
    assert "car (2, such as motor-cars), motor (1, such as motor-cars)" in caplog.text
    assert "wheel" not in caplog.text


def test_capitals_may_not_matter(tmp_path):
    (sentence,) = read_text(tmp_path / "c.txt", "Social Security, the SECURITY", SECURITY, ignore_case=True)
    assert marked(sentence) == [("social security", "Social Security"), ("security", "SECURITY")]


def test_files_and_folders(tmp_path):
    folder = tmp_path / "lemma"
    (folder / "part").mkdir(parents=True)
    (folder / "notes.md").write_text("not of the corpus")
    (folder / "part" / "b.txt").write_text("b\n")
    (folder / "a.txt.gz").write_bytes(gzip.compress(b"a\n"))
    sentences_read = list(read_semeval({"0": folder, "1": folder / "a.txt.gz"}, ["a"]))
    # A citation says where in the folder it comes from.
    expected = [("a", "a.txt.gz, line 1"), ("b", "part/b.txt, line 1"), ("a", "a.txt.gz, line 1")]
    assert [(sentence.text, sentence.source) for sentence in sentences_read] == expected
    # A corpus is not read before it is needed.
    sentences = read_semeval({"0": folder, "1": tmp_path / "none.txt"}, ["a"])
    assert [next(sentences).text for _ in range(2)] == ["a", "b"]
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


@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        (read_targets, "\ufeffa_nn\r\n\r\nb  c \r\n", {"a_nn": ["a_nn"], "b c": ["b c"]}),
        (read_truth, "a_nn\t0.88\r\ntip_vb\t1e-1\n\nman_nn\t0", {"a_nn": 0.88, "tip_vb": 0.1, "man_nn": 0.0}),
        # Published files have several columns, separate accents, and words without a score.
        (read_truth, "lemma\tgrouping\tchange_graded\no\u0301\t1_2\t0.5\nw\t1_2\tnan", {"\u00f3": 0.5}),
    ],
)
def test_lists_of_words_and_of_scores(tmp_path, read, text, expected):
    (tmp_path / "list.txt").write_text(text, encoding="utf-8", newline="")
    assert read(tmp_path / "list.txt") == expected


LISTED = ("a: b,,c", "a: b,", ": b", "a: b\tc", "a\t1", "x", "a:", "a:b,")


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *((read_targets, f"x\n{line}") for line in LISTED),
        *((read_truth, f"x\t1\n{line}") for line in ("b 1", "\t1", "a\t1\t2", "b\tnan", "b\tinf", "x\t2")),
        (read_truth, "lemma\tchange_graded\nb\tmuch"),
    ],
)
def test_lists_that_are_refused(tmp_path, read, text):
    """The error names the line, even for a word that occurs twice."""
    (tmp_path / "list.txt").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="list.txt, line 2"):
        read(tmp_path / "list.txt")


def test_forms_of_a_word_are_found_under_its_name(tmp_path):
    lines = "economy: economy,  Economies, home  economics\nset: off\nS:t\n"
    lines += "plane:plane,planes\ntree :trees ,tree\nWashington, D.C.\n"
    (tmp_path / "words.txt").write_text(lines, encoding="utf-8")
    words = read_targets(tmp_path / "words.txt")
    first = {"economy": ["economy", "Economies", "home economics"], "set": ["off"], "S:t": ["S:t"]}
    others = {"plane": ["plane", "planes"], "tree": ["trees", "tree"], "Washington, D.C.": ["Washington, D.C."]}
    assert words == first | others
    text = "economies, Economies: home economics set off economy. S:t"
    (sentence,) = read_text(tmp_path / "c.txt", text, words)
    assert [name for name, _ in marked(sentence)] == ["economy", "economy", "set", "economy", "S:t"]
    assert sentence.tokens == ("economies,", "economy", "economy", "set", "set", "economy", "S:t")
    (lower,) = read_text(tmp_path / "c.txt", text, words, ignore_case=True)
    assert [name for name, _, _ in lower.targets].count("economy") == 4


def test_the_names_of_words_are_keys(tmp_path):
    """The encoder reads the name, and gold scores are found by it, however a list writes it."""
    (tmp_path / "words.txt").write_text("don\u2019t\nair\u00adplane: air\u00adplane, \ufb02yer\n", encoding="utf-8")
    words = read_targets(tmp_path / "words.txt")
    assert list(words) == ["don't", "airplane"]
    (tmp_path / "truth.txt").write_text("don't\t1\nairplane\t0.5\n", encoding="utf-8")
    assert list(read_truth(tmp_path / "truth.txt")) == list(words)
    (sentence,) = read_text(tmp_path / "c.txt", "the flyer, airplane don't", words)
    assert marked(sentence) == [("airplane", "flyer"), ("airplane", "airplane"), ("don't", "don't")]
    (tmp_path / "twice.txt").write_text("don't\nplane\ndon\u2019t\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"twice\.txt, line 3: .*don't"):
        read_targets(tmp_path / "twice.txt")


def test_usages_are_not_lost_where_lines_divide_words(tmp_path):
    """The same paragraphs, whole and divided, have the same targets at the same places of the same text."""
    line = "It was remembered by everybody in that quiet parish how a certain"
    plain, divided = (f"{line}\n{word} was seen there and fell slowly in the rain.\n\n" for word in ("plane", "ne"))
    whole = read_text(tmp_path / "whole.txt", plain * 60, ["plane"])
    both = read_text(
        tmp_path / "divided.txt", (plain + divided.replace("certain\n", "certain pla-\n")) * 30, ["plane"]
    )
    assert [(s.text, s.targets) for s in whole] == [(s.text, s.targets) for s in both]
    assert len(whole) == 60 and all(marked(s) == [("plane", "plane")] for s in whole)


@pytest.mark.parametrize(
    ("targets", "ignore_case"),
    [
        (["don't", "don\u2019t"], False),
        (["security", "\u017fecurity"], False),
        ({"lie": ["lie", "lay"], "lay": ["lay", "laid"]}, False),
        (["Turkey", "turkey"], True),
        (["plane_nn", "plane_vb"], False),
        (["Ma\u0308dchen", "M\u00e4dchen"], False),
    ],
)
def test_targets_that_cannot_be_told_apart_are_refused(tmp_path, targets, ignore_case):
    first, second = targets
    with pytest.raises(ValueError, match=rf"'{first}' .*'{second}' .*c\.txt"):
        read_text(tmp_path / "c.txt", "any words", targets, ignore_case)


ROWS = {
    "date": ["18.06.1815", "1999", "1900", "", "1860-12-31", "June 1815", "1900-01-01", "9/1/1815"],
    "source": ["letter", "", "paper", "paper", "diary", "", "", ""],
    "text": ["The plane tree.\nOf two lines", "no planes; a plane", "a plane", "a plane", " ", "a", "a", "a"],
}


def test_a_dated_table(tmp_path, caplog):
    """
    A row goes to the time that contains its date. Rows outside all times are counted by reason, without blank ones.
    """
    path = tmp_path / "texts.csv.gz"
    pd.DataFrame(ROWS).to_csv(path, index=False)
    first, second = read_dated_corpus(path, TIMES, {"plane": ["plane", "planes"]}, ignore_case=True)
    assert (first.time, first.date, first.source) == ("1810-1860", "1815-06-18", "letter")
    assert first.text == "The plane tree. Of two lines" and marked(first) == [("plane", "plane")]
    assert (second.time, second.date, second.source) == ("1960-2010", "1999", "texts.csv.gz, row 1")
    assert marked(second) == [("plane", "planes"), ("plane", "plane")]
    for count in ("5 of 7 texts", "2 outside of 1810-1860", "1 without a date", "2 with a date .*'June 1815'"):
        assert re.search(count, caplog.text)


def test_a_span_belongs_to_the_time_that_holds_both_ends(tmp_path, caplog):
    spans = ["1815/1820", "1855/1865", "1815-06/1860", "1700/1710", "1962/soon", "2000/2010"]
    pd.DataFrame({"date": spans, "text": "a plane"}).to_csv(tmp_path / "t.csv", index=False)
    found = [(sentence.time, sentence.date) for sentence in read_dated_corpus(tmp_path / "t.csv", TIMES, ["plane"])]
    assert found == [(TIMES[0], spans[0]), (TIMES[0], spans[2]), (TIMES[1], spans[5])]
    assert "3 of 6 texts" in caplog.text


def test_seconds_since_1970_are_dates_of_a_table_and_years_stay_years(tmp_path, caplog):
    """Seconds are read from 1973 on and before 1967. Days of spreadsheets and milliseconds are not read."""
    dates = [1850, 1108425600, -4_000_000_000, 38398, 1108425600000]
    pd.DataFrame({"date": dates, "text": "a plane"}).to_parquet(tmp_path / "t.parquet")
    dated = list(read_dated_corpus(tmp_path / "t.parquet", TIMES, ["plane"]))
    assert [sentence.time for sentence in dated] == [TIMES[0], TIMES[1], TIMES[0]]
    assert "2 with a date" in caplog.text and "outside" not in caplog.text


def test_one_corpus_of_files_with_dates(tmp_path, caplog):
    """Dates are in metadata or in the names of files, and months and decades are time points."""
    (tmp_path / "fic_1991_7.txt").write_text("a plane\n", encoding="utf-8")
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "2004-03-01.txt").write_text("planes\nplane\n", encoding="utf-8")
    (tmp_path / "a.vrt").write_text('<text year="1999">\n<s>\nplane\n</s>\n</text>\n', encoding="utf-8")
    (tmp_path / "undated.txt").write_text("plane\n", encoding="utf-8")
    (tmp_path / "1850.txt").write_text("plane\n", encoding="utf-8")
    sentences = list(read_dated_corpus(tmp_path, ["1990s", "2004-03"], ["plane"]))
    assert [(s.time, s.date, s.source) for s in sentences] == [
        ("1990s", "1999", "a.vrt, line 3"),
        ("1990s", "1991", "fic_1991_7.txt, line 1"),
        ("2004-03", "2004-03-01", "letters/2004-03-01.txt, line 1"),
        ("2004-03", "2004-03-01", "letters/2004-03-01.txt, line 2"),
    ]
    for count in ("2 of 6 texts", "1 outside of 1990s, 2004-03", "1 without a date"):
        assert count in caplog.text
    with pytest.raises(ValueError, match="no date in the .* is in 1700s.*write 1700-1709 or 1700-1799"):
        list(read_dated_corpus(tmp_path, ["1700s"], ["plane"]))


def test_a_table_for_each_time_beside_a_text_file(tmp_path):
    """Dates may lie outside the table's time. Columns may have other names, and years may be numbers."""
    table = pd.DataFrame({"year": [1815.0, None], "said": ["a plane", "planes"], "by": ["Ann", None]})
    table.to_parquet(tmp_path / "old.parquet")
    pd.DataFrame({"year": [date(2001, 2, 3)], "said": ["it"], "by": ["Bo"]}).to_parquet(tmp_path / "new.parquet")
    (tmp_path / "text.txt").write_text("a plane", encoding="utf-8")
    paths = {"1": tmp_path / "old.parquet", "2": tmp_path / "new.parquet", "3": tmp_path / "text.txt"}
    sentences = list(read_semeval(paths, ["plane"], columns=TextColumns("said", "year", "by")))
    rows = [(s.time, s.text, s.date, s.source) for s in sentences]
    assert rows[:2] == [("1", "a plane", "1815", "Ann"), ("1", "planes", "", "old.parquet, row 1")]
    assert rows[2:] == [("2", "it", "2001-02-03", "Bo"), ("3", "a plane", "", "text.txt, line 1")]
    (bare,) = read_text(tmp_path / "bare.csv", "text\na plane\n", ["plane"])
    assert (bare.date, bare.source) == ("", "bare.csv, row 0")


def test_rows_without_a_text_are_counted_and_lists_are_refused(tmp_path, caplog):
    rows = 'text,source\na plane,A\n,B\n"  ",C\nplanes,D\n'
    assert [sentence.source for sentence in read_text(tmp_path / "gaps.csv", rows, ["plane"])] == ["A", "D"]
    assert "2 rows without a text" in caplog.text and "row 1" in caplog.text
    with pytest.raises(ValueError, match=r"empty\.csv.*row 0"):
        read_text(tmp_path / "empty.csv", "text,source\n,A\n", ["plane"])
    with pytest.raises(ValueError, match=r"lists\.jsonl, row 0: .*'text'.*\['a', 'plane'\]"):
        read_text(tmp_path / "lists.jsonl", '{"text": ["a", "plane"]}\n', ["plane"])


@pytest.mark.parametrize(
    ("columns", "times", "named"),
    [
        (TextColumns(text="words"), TIMES, "'words'.*--text_column"),
        (TextColumns(time="when"), TIMES, "'when'.*--time_column"),
        (TextColumns(), ["1810-1860", "1700-1800", "old"], r"texts\.csv.*'date'.*--time_column.*old.*June 1815"),
    ],
)
def test_dated_tables_that_are_refused(tmp_path, columns, times, named):
    pd.DataFrame(ROWS).to_csv(tmp_path / "texts.csv", index=False)
    with pytest.raises(ValueError, match=named):
        list(read_dated_corpus(tmp_path / "texts.csv", times, ["plane"], columns=columns))


USE_COLUMNS = "lemma pos date grouping identifier description context indexes_target_token indexes_target_sentence"
# Lines of the German, Spanish and Latin releases. Quotes are characters, the end of a text may be missing, accents may
# be separate from their letters, and dates may be spans.
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
    # Groupings are in the order of their numbers.
    lines = [f"w\t \t \t{name}\t{name}\t \ta w\t2:3\t0:3" for name in ("1990-2000", "900-1000", "old")]
    named = read_dwug(write_published(tmp_path / "others", {"w": lines}), ["1", "2", "3"])
    assert [use.time for use in named] == ["2", "1", "3"]
    with pytest.raises(ValueError, match="2 time points"):
        next(read_dwug(folder, ["a", "b", "c"]))


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("w\t \t \t1\t1\t \ta w\t2:3", "line 2: 8 cells"),
        ("w\t \t \t1\t1\t \ta w\t2:4\t0:3", "line 2.*'2:4'"),
        ("w\t \t \t1\t1\t \ta w\t0:1,2:3\t0:3", r"line 2.*several spans \(0:1,2:3\)"),
    ],
)
def test_published_data_sets_that_are_refused(tmp_path, line, named):
    with pytest.raises(ValueError, match=r"data/LEMMA/uses\.csv"):
        list(read_dwug(tmp_path))
    with pytest.raises(ValueError, match=rf"uses\.csv, {named}"):
        list(read_dwug(write_published(tmp_path, {"w": [line]})))
