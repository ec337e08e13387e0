"""Checks that a file whose layout was guessed wrongly is refused or named, with what was read."""

import gzip
import re

import pytest

from semantic_change.reading.dated_texts import read_text_files
from semantic_change.reading.text_layouts import read_passages


SENTENCE = "the old planes stood in the rain"
VERSES = [f"{number} {SENTENCE} {'again ' * (number % 7)}" for number in (*range(1, 20), *range(1, 20))]


def token_rows(separator: str, ids: bool = True) -> str:
    """Returns 30 sentences with a token on each line."""
    tokens = [
        f"{number}{separator}" * ids + f"{word}{separator}{word}{separator}X"
        for number, word in enumerate(SENTENCE.split(), 1)
    ]
    return "\n\n".join(["\n".join(tokens)] * 30)


def content_of(path, content: str) -> list[str]:
    path.write_text(content, encoding="utf-8")
    return [passage.join() for passage in read_passages(path)]


# Files of other layouts than those that are read, and what the error must say of them.
NOT_TEXTS = {
    # The columns of CoNLL-U Plus without their names: the number before each token looks like the number of a text.
    "tokens of four columns": ("a.conll.txt", token_rows("\t"), "one word.*210 texts of 1.0 words.*'the', 'old'"),
    "tokens between spaces": (
        "a.txt",
        token_rows(" "),
        "numbers that count up.*210 texts of 4.0 words.*'1 the the X'",
    ),
    "numbers first in VRT": ("a.vrt", token_rows("\t"), "no letter.*VRT.*texts of 7.0 words.*'1 2 3 4 5 6 7'"),
    "a token in each row": ("a.csv", "text\n" + "planes\nleft\n" * 20, "one word.*table.*40 texts of 1.0 words"),
    "subtitles": (
        "a.srt.txt",
        "".join(f"{n}\n00:00:{n:02},000 --> 00:00:{n:02},900\n{SENTENCE}\n\n" for n in range(1, 30)),
        "58 texts have no letter.*87 texts",
    ),
    "objects of JSON": ("a.txt", f'{{"text": "{SENTENCE}"}}\n' * 30, "JSON.*30 texts"),
    "sentences between tags": ("a.txt", "<s>\n飞机离开了。\n</s>\n" * 20, "20 texts have tags.*60 texts"),
    "parts of speech after slashes": (
        "a.txt",
        "The/at Fulton/np-tl County/nn-tl said/vbd ,/, ``/`` no/at ''/'' and/or ./.\n" * 30,
        "30 texts have a part of speech after a slash.*sed",
    ),
    "XML with texts on lines": ("a.txt", f"<p>{SENTENCE}</p>\n" * 30, "30 texts have tags"),
}


@pytest.mark.parametrize("case", NOT_TEXTS)
def test_what_is_no_text_is_refused_with_what_was_read(tmp_path, case):
    name, content, named = NOT_TEXTS[case]
    with pytest.raises(ValueError, match=rf"{re.escape(name)}: .*{named}"):
        content_of(tmp_path / name, content)
    if not name.endswith(".csv"):
        with pytest.raises(ValueError, match=re.escape(name)):
            read_text_files([str(tmp_path / name)])


def test_small_files_are_judged_together(tmp_path):
    """A file of one sentence may have any layout. Many such files are a corpus."""
    for number in range(10):
        folder = tmp_path / ("few" if number < 2 else "many")
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.txt").write_text(token_rows("\t").split("\n\n")[0], encoding="utf-8")
    assert len(list(read_passages(tmp_path / "few"))) == 14
    with pytest.raises(ValueError, match=r"many: most texts are one word.*56 texts"):
        list(read_passages(tmp_path / "many"))


def test_a_wrong_file_is_found_among_others(tmp_path):
    for number in range(30):
        (tmp_path / f"{number}.txt").write_text(f"{SENTENCE}\n" * 30, encoding="utf-8")
    (tmp_path / "7.vrt").write_text(token_rows("\t"), encoding="utf-8")
    with pytest.raises(ValueError, match=r"7\.vrt"):
        list(read_passages(tmp_path))


def test_a_long_stream_ends_early(tmp_path):
    (tmp_path / "a.vrt").write_text("\n\n".join([token_rows("\t")] * 1000), encoding="utf-8")
    passages = read_passages(tmp_path / "a.vrt")
    with pytest.raises(ValueError, match=r"a\.vrt.*1,000 texts"):
        for _ in range(1001):
            next(passages)


@pytest.mark.parametrize(
    "lines",
    [
        VERSES,
        # A poem, a chat with short answers, page numbers, stage directions, and marks in the place of names.
        ["So much", "depends", "", "upon", "a red wheel barrow"] * 10,
        ["yes", "no \U0001f600", "where is it"] * 10 + ["\U0001f600"] * 8,
        [*[SENTENCE] * 8, "12"] * 5,
        [f"<user> {SENTENCE}", f"<laughs> {SENTENCE}"] * 20,
        ["\u98de\u673a\u79bb\u5f00\u4e86\uff0c\u56e0\u4e3a\u5929\u4e0b\u96e8\u4e86\u3002"] * 40,
    ],
)
def test_unusual_texts_are_read(tmp_path, lines):
    assert len(content_of(tmp_path / "1815.txt", "\n".join(lines))) == sum(map(bool, lines))


def test_words_that_the_ends_of_texts_divide_are_named(tmp_path, caplog):
    """Columns without blank lines are not known as wrapped. A hyphen before a capital divides no word."""
    content_of(tmp_path / "whole.txt", f"{SENTENCE} -\nand Anglo-\nSaxons\n" * 30)
    assert "within a word" not in caplog.text
    content_of(tmp_path / "1815.txt", "the old planes stood in the gar-\nden and it rained\n" * 30)
    assert re.search(r"1815\.txt: 30 texts begin within a word.*60 texts", caplog.text)


def test_lines_that_are_wrapped_without_blank_lines_are_named(tmp_path, caplog):
    """Texts in small letters without ends of sentences are as other programs clean them."""
    content_of(tmp_path / "clean.txt", "the old planes stood\nin the garden and it rained\n" * 30)
    content_of(tmp_path / "whole.txt", f"{SENTENCE}.\nand so it was.\n" * 30)
    assert "small letter" not in caplog.text
    content_of(tmp_path / "1815.txt", "The old planes stood\nin the garden\nand it rained. Then he went\nhome.\n" * 30)
    assert re.search(r"1815\.txt: 90 texts begin with a small letter.*120 texts", caplog.text)


def test_verses_that_are_texts_are_named(tmp_path, caplog):
    """One of ten lines of prose may end with a comma. In the play it is one of eight."""
    content_of(tmp_path / "prose.txt", "\n".join(["Dear old planes,", *[f"{SENTENCE}."] * 9] * 3))
    assert "comma" not in caplog.text
    speech = ["He stood", "Upon the plane,", "and rained: and then", *[f"{SENTENCE}."] * 5]
    content_of(tmp_path / "1600.txt", "\n\n".join(["\n".join(speech)] * 3))
    assert re.search(r"1600\.txt: 3 texts end with a comma.*24 texts", caplog.text)


@pytest.mark.parametrize("number", [1, 30])
@pytest.mark.parametrize(
    ("text", "named"),
    [("stood in the gar-\nden.\n", "begin within a word"), ("He stood\nUpon the plane,\n", "end with a comma")],
)
def test_doubtful_texts_are_counted_over_all_files(tmp_path, caplog, text, named, number):
    """30 letters of two texts, or of 60, are a corpus: one warning, with the number in all of them."""
    for letter in range(30):
        (tmp_path / f"{letter}.txt").write_text(text * number, encoding="utf-8")
    assert len(list(read_passages(tmp_path))) == 60 * number
    warnings = [record.getMessage() for record in caplog.records if named in record.getMessage()]
    assert len(warnings) == 1 and f"{30 * number} texts {named}" in warnings[0]
    assert f"{60 * number:,} texts of" in warnings[0] and str(tmp_path) in warnings[0]


def test_few_doubtful_texts_in_many_files_are_not_named(tmp_path, caplog):
    """One of 300 texts begins within a word, though it is one of two in its file."""
    for letter in range(150):
        text = "stood in the gar-\nden.\n" if letter == 7 else f"{SENTENCE}.\n{SENTENCE}.\n"
        (tmp_path / f"{letter}.txt").write_text(text, encoding="utf-8")
    assert len(list(read_passages(tmp_path))) == 300 and "within a word" not in caplog.text


def test_files_of_a_folder_that_are_not_read_are_counted(tmp_path, caplog):
    (tmp_path / "a.txt").write_text(SENTENCE, encoding="utf-8")
    for name in ("b.cha", "c.docx", ".DS_Store"):
        (tmp_path / name).write_text("@Begin", encoding="utf-8")
    assert len(list(read_passages(tmp_path))) == 1
    assert "2 files with other endings (the first in " in caplog.text and "b.cha" in caplog.text
    (tmp_path / "a.txt").rename(tmp_path / "a")
    with pytest.raises(ValueError, match=r"no file whose name ends in \.txt, .*\.tei: rename"):
        list(read_passages(tmp_path))


def test_files_of_other_kinds_are_refused_when_compressed_or_read_as_lines(tmp_path):
    page = b"\xef\xbb\xbf\n<!-- saved -->\n<!DOCTYPE HTML>\n<title>Log in</title>"
    for name, content in (("a.txt", page), ("b.txt.gz", gzip.compress(page)), ("c.csv.gz", page)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=rf"{re.escape(name)} is an HTML page.*logged in"):
            list(read_passages(tmp_path / name))
