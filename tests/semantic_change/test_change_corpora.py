"""Dated sentences of corpora in the two layouts, gold scores, and what is refused."""

import gzip
import json
import logging

import pytest

from modeling_tempoformer.semantic_change.corpora import (
    DatedSentence,
    read_dwug,
    read_semeval,
    read_targets,
    read_truth,
)


@pytest.fixture(autouse=True)
def logs_reach_pytest(monkeypatch):
    monkeypatch.setattr(logging.getLogger("modeling_tempoformer"), "propagate", True)


def marked(sentence: DatedSentence) -> list[tuple[str, str]]:
    """The targets of a sentence, and what of its text is at their place."""
    return [(name, sentence.text[start:end]) for name, start, end in sentence.targets]


def read_one(path, lines: str, targets: list[str]) -> list[DatedSentence]:
    path.write_text(lines, encoding="utf-8")
    return list(read_semeval({"t": path}, targets))


def test_tagged_corpus(tmp_path):
    """Only the tagged form is the target, each time; no tag is left in the text, that of another word neither."""
    lines = "they  tip_vb the plane_nn and plane_nn\n\nplane the wood\n"
    first, second = read_one(tmp_path / "c.txt", lines, ["plane_nn"])
    assert first.time == "t" and first.text == "they tip the plane and plane"
    assert first.targets == (("plane_nn", 13, 18), ("plane_nn", 23, 28))
    assert marked(first) == [("plane_nn", "plane")] * 2
    assert first.tokens == ("they", "tip_vb", "the", "plane_nn", "and", "plane_nn")
    assert second == DatedSentence("t", "plane the wood", (), ("plane", "the", "wood"))


def test_each_corpus_has_tags_or_not(tmp_path):
    """Without the tagged form of any target, as in raw text, the plain form is the target."""
    (tmp_path / "tagged.txt").write_text("a tip_vb\nplane and tip\n")
    (tmp_path / "plain.txt").write_text("a tip\nplane it\n")
    paths = {"old": tmp_path / "tagged.txt", "new": str(tmp_path / "plain.txt")}
    sentences = list(read_semeval(paths, ["tip_vb", "plane_nn"]))
    assert [sentence.time for sentence in sentences] == ["old", "old", "new", "new"]
    assert [marked(s) for s in sentences] == [[("tip_vb", "tip")], [], [("tip_vb", "tip")], [("plane_nn", "plane")]]
    assert [s.tokens for s in sentences[2:]] == [("a", "tip_vb"), ("plane_nn", "it")]


def test_tags_that_are_needed(tmp_path):
    """Noun and verb of one form need tags, and get along with them."""
    targets = ["plane_nn", "plane_vb"]
    assert marked(*read_one(tmp_path / "c.txt", "plane_vb a plane_nn", targets)) == [
        ("plane_vb", "plane"),
        ("plane_nn", "plane"),
    ]
    with pytest.raises(ValueError, match=r"'plane_nn' and 'plane_vb' are the same in .*c\.txt, which has no tags"):
        read_one(tmp_path / "c.txt", "plane a plane", targets)


@pytest.mark.parametrize(
    ("line", "targets", "found"),
    [
        ("Das Abbauen und abbauen der Sensation", ["abbauen", "Sensation"], ["abbauen", "Sensation"]),
        ("dico dico#2 Dico", ["dico#2"], ["dico#2"]),
        ("dico dico#2 Dico", ["dico"], ["dico"]),
        ("en förhandling i Förhandling", ["förhandling"], ["förhandling"]),
    ],
)
def test_other_languages(tmp_path, line, targets, found):
    """Capitals and the numbers of homonyms tell words apart."""
    (sentence,) = read_one(tmp_path / "c.txt", line, targets)
    assert sentence.text == line and marked(sentence) == [(name, name) for name in found]


def test_files_and_folders(tmp_path):
    folder = tmp_path / "corpus1" / "lemma"
    (folder / "part").mkdir(parents=True)
    (folder / "notes.md").write_text("not of the corpus")
    (folder / "part" / "b.txt").write_text("b\n")
    with gzip.open(folder / "a.txt.gz", "wt") as file:
        file.write("a\n")
    sentences = read_semeval({"0": folder, "1": folder / "a.txt.gz", "2": tmp_path / "none.txt"}, ["a"])
    assert [next(sentences).text for _ in range(3)] == ["a", "b", "a"]
    # Nothing of a corpus is read before it is needed.
    with pytest.raises(FileNotFoundError):
        next(sentences)


def test_a_tagged_corpus_without_a_target_does_not_lend_it_another_word(tmp_path, caplog):
    """`plane` is a verb here, whatever else is looked for."""
    text = "men plane a tree_nn\nmen plane"
    for targets in (["plane_nn"], ["plane_nn", "tree_nn"]):
        found = {name for sentence in read_one(tmp_path / "c.txt", text, targets) for name, *_ in sentence.targets}
        assert found == set(targets) - {"plane_nn"}
    assert "has no tags" not in caplog.text
    assert marked(read_one(tmp_path / "d.txt", "men plane", ["plane_nn"])[0]) == [("plane_nn", "plane")]
    assert "d.txt has no tags: plane_nn is looked for as plane, and so on." in caplog.text


@pytest.mark.parametrize(
    "written", ["\u203aHaus\u2039", "\u00a7Haus\u2020", "\u00abHaus\u200b\u00bb", "\u00bfHaus", "Haus\u2032"]
)
def test_punctuation_of_other_scripts_is_no_part_of_a_word(tmp_path, written):
    (sentence,) = read_one(tmp_path / "c.txt", f"Das {written} steht", ["Haus"])
    assert marked(sentence) == [("Haus", "Haus")] and sentence.text == f"Das {written} steht"


def test_accents_may_be_written_apart(tmp_path):
    apart, joined = "Ma\u0308dchen", "M\u00e4dchen"
    for line, target in ((apart, joined), (joined, apart)):
        (sentence,) = read_one(tmp_path / "c.txt", f"das {line} geht", [target])
        assert marked(sentence) == [(target, joined)] and sentence.text == f"das {joined} geht"
    with pytest.raises(ValueError, match="are the same in .*, up to how their accents are written"):
        read_one(tmp_path / "c.txt", "das", [apart, joined])


def test_a_table_is_no_corpus(tmp_path):
    for name in ("1810.csv", "1810.jsonl.gz"):
        (tmp_path / name).write_text("time,text\n1815,the plane\n")
        with pytest.raises(ValueError, match=f"{name} is a table"):
            list(read_semeval({"t": tmp_path / name}, ["plane"]))


def test_absent_targets_are_told(tmp_path, caplog):
    assert len(read_one(tmp_path / "c.txt", "a b", ["a", "x", "y"])) == 1
    assert "c.txt has no sentence with: x, y." in caplog.text


def test_corpora_that_are_refused(tmp_path):
    for version in ("lemma", "token"):
        (tmp_path / "both" / version).mkdir(parents=True)
    (tmp_path / "blank.txt").write_text("\n \n")
    (tmp_path / "plain.txt.gz").write_text("a b\n")
    (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(b"a b\n" * 99)[:-12])
    (tmp_path / "latin1.txt").write_bytes("a\nkonduktör\n".encode("latin-1"))
    for name, problem in [
        ("both", "has each sentence twice"),
        ("both/lemma", r"has no \.txt"),
        ("blank.txt", "corpus of 't', .* is empty"),
        ("plain.txt.gz", "cannot be read as gzip"),
        ("cut.txt.gz", "cannot be read as gzip"),
        ("latin1.txt", "latin1.txt, after line 0: cannot be read as UTF-8"),
    ]:
        with pytest.raises(ValueError, match=problem):
            list(read_semeval({"t": tmp_path / name}, ["a"]))


def test_targets(tmp_path):
    path = tmp_path / "targets.txt"
    path.write_bytes(b"\xef\xbb\xbfplane_nn\r\n\r\ntip_vb \r\n")
    assert read_targets(path) == ["plane_nn", "tip_vb"]
    for lines, problem in [("a\nb\t0.5\n", r"line 2: expected one word"), ("a\n\na", "line 3: 'a'"), ("\n", "empty")]:
        path.write_text(lines)
        with pytest.raises(ValueError, match=problem):
            read_targets(path)


def test_truth(tmp_path):
    path = tmp_path / "graded.txt"
    path.write_text("plane_nn\t0.88\r\ntip_vb\t1e-1\n\nchairman_nn\t0")
    assert read_truth(path) == {"plane_nn": 0.88, "tip_vb": 0.1, "chairman_nn": 0.0}
    for lines, problem in [
        ("a\t1\nb 1\n", r"graded.txt, line 2: expected a word, a tab and a score, got 'b 1'"),
        ("\t1\n", "line 1: expected a word"),
        ("a\thigh\n", "line 1: the score 'high' is not a finite number"),
        ("a\t1\t2\n", r"the score '1\\t2' is not"),
        ("a\tnan\n", "'nan' is not a finite number"),
        ("a\tinf\n", "'inf' is not a finite number"),
        ("a\t1\nb\t1\na\t1\n", "line 3: 'a' is there twice"),
        ("", "is empty"),
    ]:
        path.write_text(lines)
        with pytest.raises(ValueError, match=problem):
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


def test_uses(tmp_path, caplog):
    path = tmp_path / "uses.jsonl.gz"
    write_uses(path, USE, {**USE, "lemma": "pin_vb"}, {**USE, "target_span": [14, 19], "target_token": 4, "period": 2})
    first, other, second = read_dwug(path)
    assert (first.time, second.time) == ("1810-1860", "1960-2010")
    assert first.text == USE["text"] and marked(first) == [("plane_nn", "planes")]
    assert first.tokens == ("two", "plane_nn", ",", "a", "plane", ".")
    assert marked(second) == [("plane_nn", "plane")]
    assert second.tokens == ("two", "plane", ",", "a", "plane_nn", ".")
    assert marked(other) == [("pin_vb", "planes")]
    assert [s.time for s in read_dwug(path, ("old", "new"), ["plane_nn", "x_nn"])] == ["old", "new"]
    assert "uses.jsonl.gz has no sentence with: x_nn." in caplog.text


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"period": 3}, "'period' is 3"),
        ({"target_span": [4, 21]}, r"'target_span' is \[4, 21\], in a text of 20"),
        ({"target_span": [4, 4]}, r"'target_span' is \[4, 4\]"),
        ({"target_span": [4]}, "unpack"),
        ({"target_token": 6}, "'target_token' is 6, of 6 lemmas"),
        ({"target_token": "1"}, "'target_token' must be whole numbers, got .* and '1'"),
        ({"target_span": [4.0, 10.0]}, r"must be whole numbers, got \[4.0, 10.0\]"),
        ({"lemmas": "two plane , a plane ."}, "'lemmas' must be a list of words, got 'two plane"),
    ],
)
def test_uses_that_are_refused(tmp_path, change, problem):
    path = tmp_path / "uses.jsonl.gz"
    write_uses(path, USE, {**USE, **change})
    with pytest.raises(ValueError, match=rf"uses\.jsonl\.gz, line 2: .*{problem}"):
        list(read_dwug(path))


def test_files_without_uses(tmp_path):
    path = tmp_path / "uses.jsonl.gz"
    write_uses(path, {name: value for name, value in USE.items() if name != "text"})
    with pytest.raises(ValueError, match="line 1: there is no 'text'"):
        list(read_dwug(path))
    (tmp_path / "uses.jsonl").write_text("lemma\tyear\n")
    with pytest.raises(ValueError, match=r"uses\.jsonl, line 1: Expecting value"):
        list(read_dwug(tmp_path / "uses.jsonl"))
    write_uses(path)
    with pytest.raises(ValueError, match="is empty"):
        list(read_dwug(path))


def test_punctuation_around_a_word_is_not_part_of_it(tmp_path):
    text = 'He saw the plane. "Plane," she said, (plane) aeroplane plane-like \u201cplane\u201d'
    (sentence,) = read_one(tmp_path / "c.txt", text, ["plane"])
    assert sentence.text == text
    assert marked(sentence) == [("plane", "plane")] * 3
    assert sentence.tokens[3] == "plane" and sentence.tokens[4] == '"Plane,"'
    (sentence,) = read_one(tmp_path / "c.txt", "the plane_nn, flew_vb.", ["plane_nn"])
    assert sentence.text == "the plane, flew." and sentence.targets == ()
    (sentence,) = read_one(tmp_path / "c.txt", "the plane_nn , (plane_nn)", ["plane_nn"])
    assert sentence.text == "the plane , (plane)" and sentence.targets == (("plane_nn", 4, 9), ("plane_nn", 13, 18))
