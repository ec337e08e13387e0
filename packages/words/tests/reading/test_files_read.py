"""Checks the table of files: each file's date, where it was found, its work, its time and its number of texts."""

import pandas as pd
import pytest
import torch
from helpers import SIZES, VOCABULARY
from transformers import BertConfig, BertModel, BertTokenizer

from semantic_change.commands.words import main as rank_words
from semantic_change.corpora import read_dated_corpus, read_semeval
from semantic_change.reading.files_read import describe_files, write_files
from semantic_change.reading.passages import TextColumns


TEI = (
    "<TEI><teiHeader><fileDesc><titleStmt><title>{title}</title><author>Ann Lee</author></titleStmt>"
    "<sourceDesc>{source}</sourceDesc></fileDesc></teiHeader>{more}<text><body><p>the plane</p><p>It flew.</p></body>"
    "</text></TEI>"
)
EDITION = '<bibl type="digitalSource"><date>2015</date></bibl>'
FIRST = f'{EDITION}<bibl type="firstEdition"><date when="1847"/></bibl>'
PLAY = (
    '<bibl type="digitalSource"><bibl type="originalSource"><date type="print" when="1813"/>'
    '<date type="written" when="1811"/></bibl></bibl>'
)
EVENT = '<standOff><listEvent><event type="premiere" when="1999"/></listEvent></standOff>'
TIMES = ["1810-1860", "1960-2010"]


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "texts"
    files = {
        "first.xml": TEI.format(title="First", source=FIRST, more=""),
        "play.xml": TEI.format(title="Play", source=PLAY, more=""),
        "event.xml": TEI.format(title="Event", source=EDITION, more=EVENT),
        "none.xml": TEI.format(title="None", source=EDITION, more=""),
        "wood_1815.txt": "the plane\nflew\nsaw\n",
        "part/1700.txt": "the plane\n",
        "news.vrt": '<text date="1999-01-02">\n<s>\nthe\tX\nplane\tX\n</s>\n</text>\n'
        '<text date="1990">\n<s>\nthe\tX\nplane\tX\n</s>\n</text>\n<text>\n<s>\nthe\tX\nplane\tX\n</s>\n</text>\n',
    }
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(content, encoding="utf-8")
    return path


EXPECTED = {
    ("first.xml", "1847", "1847", "sourceDesc/bibl[@type='firstEdition']/date", "Ann Lee", "First", TIMES[0], 2),
    (
        *("play.xml", "1811", "1811"),
        "sourceDesc/bibl[@type='digitalSource']/bibl[@type='originalSource']/date[@type='written']",
        *("Ann Lee", "Play", TIMES[0], 2),
    ),
    ("event.xml", "1999", "1999", "event[@type='premiere']", "Ann Lee", "Event", TIMES[1], 2),
    ("none.xml", "", "", "none", "Ann Lee", "None", "none", 2),
    ("wood_1815.txt", "1815", "1815", "file's name", "", "", TIMES[0], 3),
    ("part/1700.txt", "1700", "1700", "file's name", "", "", "none", 1),
    ("news.vrt", "1990", "1999-01-02", "metadata", "", "", TIMES[1], 2),
    ("news.vrt", "", "", "none", "", "", "none", 1),
}


def test_each_file_of_a_folder_has_its_date_and_period(folder, tmp_path):
    tables = []
    texts = list(read_dated_corpus(folder, TIMES, [], tell_files=tables.append))
    write_files(tmp_path, tables[0])
    rows = pd.read_csv(tmp_path / "files.csv", keep_default_na=False, dtype={"first_date": str, "last_date": str})
    assert set(rows.itertuples(index=False, name=None)) == EXPECTED and len(rows) == len(EXPECTED)
    assert rows.loc[rows["period"] != "none", "texts"].sum() == len(texts)
    text = describe_files(tables[0])
    for words in ("7 files with 15 texts", "file's name: 2 files", "none: 2 files (news.vrt, none.xml)"):
        assert words in text
    assert f"{TIMES[0]}: 3 files, 7 texts" in text and "part/1700.txt 1700" in text


def test_a_table_has_its_column_and_the_range_of_its_dates(tmp_path):
    dates = ["1850", "18.06.1815", "1822-01", "1999", "June 1815", "1700", ""]
    pd.DataFrame({"year": dates, "text": "a plane"}).to_csv(tmp_path / "t.csv", index=False)
    tables = []
    list(read_dated_corpus(tmp_path / "t.csv", TIMES, [], columns=TextColumns(time="year"), tell_files=tables.append))
    columns = ["first_date", "last_date", "date_found", "period", "texts"]
    assert set(tables[0][columns].itertuples(index=False, name=None)) == {
        ("1815-06-18", "1850", "column year", TIMES[0], 3),
        ("1999", "1999", "column year", TIMES[1], 1),
        ("1700", "June 1815", "column year", "none", 2),
        ("", "", "none", "none", 1),
    }


def test_a_corpus_for_each_time_tells_the_period(folder):
    tables = []
    paths = {"old": folder / "first.xml", "new": folder / "part"}
    list(read_semeval(paths, [], tell_files=tables.append))
    columns = ["file", "first_date", "period", "texts"]
    assert tables[0][columns].values.tolist() == [["first.xml", "1847", "old", 2], ["part/1700.txt", "1700", "new", 1]]


def test_files_of_one_name_are_told_apart(tmp_path):
    paths = {time: tmp_path / time / "lemma" for time in ("old", "new")}
    for path in paths.values():
        path.mkdir(parents=True)
        for name in ("a.txt", "b.txt"):
            (path / name).write_text("a plane\n", encoding="utf-8")
    tables = []
    list(read_semeval(paths, [], tell_files=tables.append))
    assert tables[0]["file"].tolist() == ["old/lemma/a.txt", "old/lemma/b.txt", "new/lemma/a.txt", "new/lemma/b.txt"]
    assert "4 files" in describe_files(tables[0])


def test_the_files_are_written_before_a_time_without_texts_is_an_error(folder, tmp_path):
    """The table shows which dates are wrong. The encoder has no weights: it is not needed before."""
    BertTokenizer(vocab=VOCABULARY).save_pretrained(tmp_path / "bert")
    BertConfig(**SIZES).save_pretrained(tmp_path / "bert")
    (tmp_path / "words.txt").write_text("plane\n")
    given = ["--model_name_or_path", str(tmp_path / "bert"), "--output_dir", str(tmp_path / "out")]
    given += ["--corpora", str(folder), "--targets", str(tmp_path / "words.txt"), "--times", *TIMES]
    with pytest.raises(ValueError, match="1870"):
        rank_words([*given, "1870"])
    assert len(pd.read_csv(tmp_path / "out" / "files.csv")) == len(EXPECTED)


def test_words_are_discovered_with_a_table_of_files(tmp_path, capsys):
    torch.manual_seed(0)
    for part in (BertModel(BertConfig(**SIZES)), BertTokenizer(vocab=VOCABULARY)):
        part.save_pretrained(tmp_path / "bert")
    given = ["--model_name_or_path", str(tmp_path / "bert"), "--output_dir", str(tmp_path / "out"), "--discover", "2"]
    for year in ("1815", "1999"):
        lines = [f"the the the the {word}\n" for word in ("flew", "plane", "tree", "sad") * 5]
        (tmp_path / f"texts/{year}.txt").parent.mkdir(exist_ok=True)
        (tmp_path / f"texts/{year}.txt").write_text("".join(lines))
    rank_words([*given, "--corpora", str(tmp_path / "texts"), "--times", *TIMES, "--min_usages", "3"])
    assert pd.read_csv(tmp_path / "out" / "files.csv")["texts"].tolist() == [20, 20]
    assert capsys.readouterr().out.count("files.csv") == 1
