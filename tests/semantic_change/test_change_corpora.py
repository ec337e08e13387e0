"""Dated sentences of corpora in the two layouts, and gold scores."""

import gzip
import json

import pytest

from modeling_tempoformer.semantic_change.corpora import (
    DatedSentence,
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
    assert second == DatedSentence("t", "plane the wood", (), ("plane", "the", "wood"))


def test_each_corpus_has_tags_or_not(tmp_path, caplog):
    """In a corpus without any tag the plain form is the target, in another one it is another word."""
    (tmp_path / "tagged.txt").write_text("a tip_vb\nplane and tip\n")
    (tmp_path / "plain.txt").write_text("a tip\nplane it\n")
    paths = {"old": tmp_path / "tagged.txt", "new": str(tmp_path / "plain.txt")}
    sentences = list(read_semeval(paths, ["tip_vb", "plane_nn"]))
    assert [sentence.time for sentence in sentences] == ["old", "old", "new", "new"]
    assert [marked(s) for s in sentences] == [[("tip_vb", "tip")], [], [("tip_vb", "tip")], [("plane_nn", "plane")]]
    assert [s.tokens for s in sentences[2:]] == [("a", "tip_vb"), ("plane_nn", "it")]
    assert "plain.txt has no tags" in caplog.text and "tagged.txt has no tags" not in caplog.text


def test_tags_that_are_needed(tmp_path):
    """Noun and verb of one form can only be told apart by their tags."""
    targets = ["plane_nn", "plane_vb"]
    (sentence,) = read_one(tmp_path / "c.txt", "plane_vb a plane_nn", targets)
    assert marked(sentence) == [("plane_vb", "plane"), ("plane_nn", "plane")]
    with pytest.raises(ValueError, match=r"'plane_nn' .*'plane_vb' .*c\.txt"):
        read_one(tmp_path / "c.txt", "plane a plane", targets)


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
    with pytest.raises(ValueError, match="c.txt"):
        read_one(tmp_path / "c.txt", "das", [apart, joined])


def test_files_and_folders(tmp_path):
    folder = tmp_path / "corpus1" / "lemma"
    (folder / "part").mkdir(parents=True)
    (folder / "notes.md").write_text("not of the corpus")
    (folder / "part" / "b.txt").write_text("b\n")
    with gzip.open(folder / "a.txt.gz", "wt") as file:
        file.write("a\n")
    sentences = read_semeval({"0": folder, "1": folder / "a.txt.gz", "2": tmp_path / "none.txt"}, ["a"])
    assert [next(sentences).text for _ in range(3)] == ["a", "b", "a"]
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
    assert read_targets(path) == ["plane_nn", "tip_vb"]
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


USE = {
    "lemma": "plane_nn",
    "text": "Two planes, a plane.",
    "target_span": [4, 10],
    "period": 1,
    "lemmas": ["two", "plane", ",", "a", "plane", "."],
    "target_token": 1,
}


def write_uses(path, *uses):
    with gzip.open(path, "wt") as file:
        file.writelines(json.dumps(use) + "\n" for use in uses)


def test_uses(tmp_path):
    path = tmp_path / "uses.jsonl.gz"
    write_uses(path, USE, {**USE, "lemma": "pin_vb"}, {**USE, "target_span": [14, 19], "target_token": 4, "period": 2})
    first, other, second = read_dwug(path)
    assert (first.time, second.time) == ("1810-1860", "1960-2010")
    assert first.text == USE["text"] and marked(first) == [("plane_nn", "planes")]
    assert first.tokens == ("two", "plane_nn", ",", "a", "plane", ".")
    assert marked(second) == [("plane_nn", "plane")]
    assert second.tokens == ("two", "plane", ",", "a", "plane_nn", ".")
    assert marked(other) == [("pin_vb", "planes")]
    assert [use.time for use in read_dwug(path, ("old", "new"))] == ["old", "old", "new"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"period": 3}, "'period'.* 3"),
        ({"target_span": [4, 21]}, r"'target_span'.*\[4, 21\]"),
        ({"target_span": [4, 4]}, r"'target_span'.*\[4, 4\]"),
        ({"target_span": [4]}, ""),
        ({"target_token": 6}, "'target_token'.* 6"),
        ({"target_token": "1"}, ""),
        ({"lemmas": "two plane , a plane ."}, "'lemmas'.*two plane"),
        (None, "'lemma' is missing"),
    ],
)
def test_uses_that_are_refused(tmp_path, change, named):
    path = tmp_path / "uses.jsonl.gz"
    write_uses(path, USE, {} if change is None else {**USE, **change})
    with pytest.raises(ValueError, match=rf"uses\.jsonl\.gz, line 2.*{named}"):
        list(read_dwug(path))
    write_uses(path)
    with pytest.raises(ValueError, match="empty"):
        list(read_dwug(path))


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


def test_words_that_differ_in_capitals_alone_cannot_be_told_apart_without_them(tmp_path):
    (tmp_path / "c.txt").write_text("Turkey and turkey", encoding="utf-8")
    (sentence,) = read_semeval({"t": tmp_path / "c.txt"}, ["Turkey", "turkey"])
    assert [name for name, _, _ in sentence.targets] == ["Turkey", "turkey"]
    with pytest.raises(ValueError, match="'Turkey' .*'turkey'"):
        list(read_semeval({"t": tmp_path / "c.txt"}, ["Turkey", "turkey"], ignore_case=True))
