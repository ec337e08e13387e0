"""Checks that corpora with a token on each line are read as sentences, in small files of the published layouts."""

import gzip

import pytest

from semantic_change.reading.dated_texts import read_text_files
from semantic_change.reading.passages import TextColumns
from semantic_change.reading.text_layouts import read_passages


def rows(*lines: str) -> str:
    """Returns lines of cells, which are given with bars between them."""
    return "".join(f"{line}\n" for line in lines).replace("|", "\t")


# A text of COHA: its number, paragraphs, words removed for copyright, entities, and a line without a word.
COHA = rows(
    *("##8554", "<p>|<p>|null", "The|the|at", "old|old|jj", "planes|plane|nn2", "did|do|vdd", "n't|not|xx"),
    *("leave|leave|vvi", ".|.|y", '"|"|y', "It|it|pph1", "rained|rain|vvd", "!|!|y", '"|"|y', "R&amp;D|r&amp;d|nn1"),
    *(["@|@|ii"] * 10),
    *("||y", "a|a|at1", "plane|plane|nn1", ".|.|y"),
)
COHA_TEXTS = [
    ("1817", "text 8554, fic_1817_8554.txt, line 3", "The old planes didn't leave."),
    ("1817", "text 8554, fic_1817_8554.txt, line 10", '" It rained! "'),
    ("1817", "text 8554, fic_1817_8554.txt, line 15", "R&D […] a plane."),
]


def read(path, content: str, **columns) -> list[tuple[str, str, str]]:
    path.write_text(content, encoding="utf-8")
    return [(p.date, p.source, p.join()) for p in read_passages(path, TextColumns(**columns))]


def keys(path, content: str, *search: str) -> list[list[str]]:
    path.write_text(content, encoding="utf-8")
    return [passage.keys for passage in read_passages(path, TextColumns(search=search))]


def test_coha(tmp_path, caplog):
    """The year is in the file's name. What is left out is counted, with its first line."""
    assert read(tmp_path / "fic_1817_8554.txt", COHA) == COHA_TEXTS
    assert "1 redacted passage (in " in caplog.text and "fic_1817_8554.txt, line 16)" in caplog.text
    assert "1 token without a word" in caplog.text
    lemmas, _, last = keys(tmp_path / "fic_1817_8554.txt", COHA, "lemma")
    assert lemmas == ["the", "old", "plane", "do", "not", "leave", "."] and last[:2] == ["r&d", "[…]"]
    assert keys(tmp_path / "fic_1817_8554.txt", COHA, "lemma", "pos")[0][2] == "plane_nn2"


def test_corpora_like_coha_have_the_number_of_the_text_in_other_places(tmp_path):
    tokens = ["A|a|at1", "plane|plane|nn1", "left|leave|vvd", "it|it|pph1"]
    for prefix in ("7|", "@@7|", "7|123|"):
        lines = [*(prefix + token for token in tokens), *(prefix.replace("7", "8") + token for token in tokens)]
        texts = read(tmp_path / "wlp_acad_1990.txt", rows(*lines))
        assert texts == [
            ("1990", "text 7, wlp_acad_1990.txt, line 1", "A plane left it"),
            ("1990", "text 8, wlp_acad_1990.txt, line 5", "A plane left it"),
        ]
    lines = ["@@7", *tokens, *tokens, "left|leave", "@@8", *tokens]
    assert len(read(tmp_path / "wlp_acad_1990.txt", rows(*lines))) == 2


def test_texts_of_coha_on_one_line(tmp_path, caplog):
    line = "##8554 The planes @ @ @ @ @ @ @ @ @ @ left . It rained . A mail to a@b.\n"
    (text,) = read(tmp_path / "fic_1817_8554.txt", line)
    assert text[1:] == ("text 8554, fic_1817_8554.txt, line 1", "The planes […] left . It rained . A mail to a@b.")
    assert "1 redacted passage" in caplog.text


VRT = rows(
    "<?xml version='1.0' encoding='UTF-8'?>",
    "<!-- #vrt positional-attributes: word lemma pos -->",
    '<text id="t1" title="The Wood &amp; the Tree" date="1815-06-18">',
    '<p n="1">',
    '<s id="s1">',
    *("The|the|DT", "planes|plane|NNS", "<name>", "New York|New York|NP", "</name>", "<g/>", ".|.|SENT", "</s>"),
    *('<s id="s2">', "</s>", '<s id="s3">', "&lt;It&gt;|it|PP", "rained|rain|VBD", "</s>"),
    *(
        "</p>",
        "</text>",
        '<text id="t2" datefrom="18160101" dateto="18161231">',
        "<s>",
        "Leaves|leaf|NNS",
        *["fell|fall|VBD"] * 9,
        "</s>",
    ),
    "</text>",
)


@pytest.mark.parametrize("zipped", [False, True])
def test_vrt(tmp_path, caplog, zipped):
    path = tmp_path / ("a.vrt.gz" if zipped else "a.txt")
    path.write_bytes(gzip.compress(VRT.encode()) if zipped else VRT.encode())
    texts = [(passage.date, passage.source, passage.join()) for passage in read_passages(path)]
    assert texts == [
        ("1815-06-18", f"The Wood & the Tree, {path.name}, line 6", "The planes New York."),
        ("1815-06-18", f"The Wood & the Tree, {path.name}, line 17", "<It> rained"),
        ("1816", f"t2, {path.name}, line 24", "Leaves" + 9 * " fell"),
    ]
    assert "1 empty sentence (in" in caplog.text
    assert [p.keys for p in read_passages(path, TextColumns(search=("lemma", "pos")))][1] == ["it_PP", "rain_VBD"]
    named = next(read_passages(path, TextColumns(time="title", source="date")))
    assert (named.date, named.source) == ("The Wood & the Tree", f"1815-06-18, {path.name}, line 6")


def test_a_value_or_a_comment_may_have_angle_brackets(tmp_path):
    lines = ["<!-- size > 3 -->", '<note content="A > B"/>', "<text id='a <b>' date='1815'>", "<s>"]
    lines += [*["The|the", "planes|plane"] * 5, "</s>", "</text>"]
    expected = [("1815", "a <b>, a.txt, line 5", " ".join(["The planes"] * 5))]
    assert read(tmp_path / "a.txt", rows(*lines)) == expected
    with pytest.raises(ValueError, match=r"b\.txt.*WikiExtractor"):
        read(tmp_path / "b.txt", '<doc id="1" title="A > B">\nThe old planes left.\n</doc>\n')


def test_a_block_that_is_left_open_ends_at_the_next_of_its_name(tmp_path):
    """Else a text without a date or a title takes them from the text before. Parts end in their own text only."""
    sentence = ["The|the", *["planes|plane"] * 3, "", ""]
    first = ['<doc date="1815" title="One">', '<p date="1816">', *sentence, '<p title="Two">', *sentence]
    lines = [*first, '<doc title="Three">', *sentence, "<p>", "<article date='1999'>", "<p>", *sentence]
    read_texts = [(date, source.partition(",")[0]) for date, source, _ in read(tmp_path / "a.vrt", rows(*lines))]
    assert read_texts == [("1816", "One"), ("1815", "One"), ("", "Three"), ("1999", "Three")]
    documents = [passage.document for passage in read_passages(tmp_path / "a.vrt")]
    assert [documents.count(document) for document in dict.fromkeys(documents)] == [2, 1, 1]


def test_the_columns_of_a_file_that_does_not_name_them_have_numbers(tmp_path):
    """The first one is the word. Without marks, sentences end at punctuation and blank lines."""
    text = rows("The|DT|the", "planes|NNS|plane", ".|SENT|.", "(|(|(", "It|PP|it", ")|)|)", "", "Rain|NN|rain", "") * 2
    assert keys(tmp_path / "a.txt", text, "3", "2")[0] == ["the_DT", "plane_NNS", "._SENT"]
    assert [text for _, _, text in read(tmp_path / "a.txt", text)][:3] == ["The planes.", "(It)", "Rain"]
    for search in ("lemma", "4", "0"):
        with pytest.raises(ValueError, match=rf"a\.txt, line 1: .*'{search}'.*--search_columns"):
            keys(tmp_path / "a.txt", text, search)


def test_a_second_equals_sign_in_conllu_cuts_nothing(tmp_path):
    """The sign stands in a comment, in a searched column, and before the mark that no space follows."""
    lines = [
        "# newdoc id = a=b",
        "# date = 1815",
        "1|Sea|sea|NOUN|_|Gloss=a=b|0|root|_|Ref=a=b\tSpaceAfter=No",
        "2|.|.|PUNCT|_|_|1|punct|_|_",
    ]
    text = rows(*lines, "").replace("b\tSpace", "b|Space")
    assert read(tmp_path / "a.conllu", text) == [("1815", "a=b, a.conllu, line 3", "Sea.")]
    assert keys(tmp_path / "a.conllu", text, "feats")[0][0] == "Gloss=a=b"


def test_words_alone(tmp_path):
    words = "".join(f"{word}\n" for word in ["planes", "left", "."] * 40)
    assert [text for _, _, text in read(tmp_path / "1815.txt", words)] == ["planes left."] * 40


CONLLU = rows(
    "# newdoc id = letters-1",
    "# meta::title = Letters",
    "# meta::dateCreated = 1815-06-18",
    "# sent_id = 1",
    "# text = Vámonos al mar.",
    "1-2|Vámonos|_|_|_|_|_|_|_|_",
    "1|Vamos|ir|VERB|_|_|0|root|_|_",
    "2|nos|nosotros|PRON|_|_|1|obj|_|_",
    "3-4|al|_|_|_|_|_|_|_|_",
    "3|a|a|ADP|_|_|5|case|_|_",
    "4|el|el|DET|_|_|5|det|_|_",
    "5|mar|mar|NOUN|_|_|1|obl|_|SpaceAfter=No",
    "5.1|fue|ir|VERB|_|_|_|_|_|_",
    "6|.|.|PUNCT|_|_|1|punct|_|_",
    "",
    "# sent_id = 2",
    "1|Mares|mar|NOUN|_|_|0|root|_|_",
    "",
    "# newdoc id = letters-2",
    "# sent_id = 3",
    "",
    "# sent_id = 4",
    "1|Otra|otro|PRON|_|_|0|root|_|_",
)


def test_conllu(tmp_path, caplog):
    """Date and title hold until the next text. A multiword token is one word, whose parts are all found."""
    assert read(tmp_path / "a_1817.conllu", CONLLU) == [
        ("1815-06-18", "Letters, a_1817.conllu, line 6", "Vámonos al mar."),
        ("1815-06-18", "Letters, a_1817.conllu, line 17", "Mares"),
        ("1817", "letters-2, a_1817.conllu, line 23", "Otra"),
    ]
    assert "1 empty sentence (in" in caplog.text
    first, *_ = keys(tmp_path / "a.conllu", CONLLU, "lemma", "upos")
    assert first == ["ir_VERB nosotros_PRON", "a_ADP el_DET", "mar_NOUN", "._PUNCT"]
    assert keys(tmp_path / "a.txt", CONLLU, "form")[0] == ["Vámonos", "al", "mar", "."]


@pytest.mark.parametrize(
    ("name", "line", "named"),
    [
        ("a.conllu", "7|Mar|mar|NOUN", "a.conllu, line 24: .*10 columns"),
        ("a.conllu", "x|Mar|mar|NOUN|_|_|1|obj|_|_", "a.conllu, line 24: .*10 columns.*number"),
        ("a.vrt", "Mar|mar", "a.vrt, line 35: 2 columns.*line 6 has 3"),
    ],
)
def test_lines_with_other_columns_are_refused(tmp_path, name, line, named):
    text = (CONLLU if name == "a.conllu" else VRT.removesuffix("</text>\n")) + rows(line)
    with pytest.raises(ValueError, match=named):
        read(tmp_path / name, text)


# The tokens of a sentence with their lemmas: a multiword token, an empty node, and one that looks like a comment.
PLUS = [
    ("1", "The", "the", ""),
    ("2-3", "don\u2019t", "_", ""),
    ("2", "do", "do", ""),
    ("3", "n\u2019t", "not", ""),
    ("3.1", "it", "it", ""),
    ("4", "#planes", "plane", "SpaceAfter=No"),
    ("5", ".", ".", ""),
]
PLUS_LAYOUTS = {
    # The columns of PARSEME, of a file with fewer, and of one in another order.
    "a.cupt": ("ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC PARSEME:MWE", "The don\u2019t #planes."),
    "a.conllup": ("ID FORM LEMMA UPOS", "The don\u2019t #planes."),
    "a.txt": ("LEMMA MISC ID FORM", "The don\u2019t #planes."),
    "a.conll": ("FORM LEMMA", "The don\u2019t #planes."),
}


@pytest.mark.parametrize("name", PLUS_LAYOUTS)
def test_conllu_plus_is_read_by_the_columns_that_it_declares(tmp_path, name):
    """Without MISC spaces follow from punctuation; without ID each line is a token."""
    declared, text = PLUS_LAYOUTS[name]
    header, has_ids = f"# global.columns = {declared}\n# newdoc id = t1\n# date = 1815-06-18\n", "ID" in declared
    lines = []
    for number, form, lemma, misc in PLUS if has_ids else [PLUS[i] for i in (0, 2, 3, 5, 6)]:
        cells = {"ID": number, "FORM": form, "LEMMA": lemma, "MISC": misc or "_"}
        lines.append("|".join(cells.get(column, "_") for column in declared.split()))
    content = header + 2 * rows(*lines, "")
    assert read(tmp_path / name, content) == [
        ("1815-06-18", f"t1, {name}, line {number}", text) for number in (4, 5 + len(lines))
    ]
    first, second = keys(tmp_path / name, content, "lemma")
    assert first == second == (["the", "do not", "plane", "."] if has_ids else ["the", "do", "not", "plane", "."])


def test_conllu_plus_needs_a_column_of_words(tmp_path):
    content = "# global.columns = ID LEMMA\n" + rows("1|the")
    with pytest.raises(ValueError, match=r"a\.conllup, line 1: .*FORM"):
        read(tmp_path / "a.conllup", content)
    content = "# global.columns = ID FORM LEMMA\n" + rows("1|The|the", "2|planes")
    with pytest.raises(ValueError, match=r"a\.conllup, line 3: .*3 columns.*ID FORM LEMMA"):
        read(tmp_path / "a.conllup", content)


@pytest.mark.parametrize(("name", "content"), [("1815.txt", COHA), ("1815.vrt", VRT), ("1815.conllu.gz", CONLLU)])
def test_training_texts_may_have_a_token_on_each_line(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    texts = read_text_files([str(path)])
    assert set(texts["time"]) == {"1815"} and len(texts) == 3
    assert list(texts["text"]) == [passage.join() for passage in read_passages(path)]
