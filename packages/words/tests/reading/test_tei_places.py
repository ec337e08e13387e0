"""Checks the citations of words in TEI (act, scene, chapter, page and line), verses, and lemmas of tokens."""

import pytest

from semantic_change.corpora import read_semeval
from semantic_change.reading.passages import TextColumns
from semantic_change.reading.text_layouts import read_passages
from semantic_change.usages import find_usages


NAMES = "<titleStmt><title>The Wood</title><author>Ann Lee</author></titleStmt>"
HEADER = f"<teiHeader><fileDesc>{NAMES}</fileDesc></teiHeader>"


def write(path, body: str, header: str = HEADER):
    path.write_text(f"<TEI>{header}<text><body>{body}</body></text></TEI>", encoding="utf-8")
    return path


def citations(path, word: str = "plane") -> list[str]:
    """Returns the source of each usage of a word."""
    found = find_usages(read_semeval({"t": path}, [word]), [word], ["t"])
    return [usage.source for usages in found[word]["t"] for usage in usages]


PLAY = """<div type="act" n="3"><head>ACT 3</head><pb n="41"/><div type="Scene" n="1"><head>A wood. The plane.</head>
<sp><l n="55">The rain</l><l n="56">(plane), the sad</l><l>plane.</l><p>The plane<lb/> again</p></sp>
<sp><l n="3.1.60">The pla-<pb n="42"/>nes, plane</l></sp></div></div>
<div type="epilogue" n="1"><sp><p>A plane.</p></sp></div>"""


def test_a_play_is_cited_by_act_scene_and_line(tmp_path):
    """A line without a number of its own is not cited by the number of the line before."""
    assert citations(write(tmp_path / "wood.xml", PLAY)) == [
        "Ann Lee, The Wood, III.1, l. 56",
        "Ann Lee, The Wood, III.1, p. 41",
        "Ann Lee, The Wood, III.1, p. 41",
        "Ann Lee, The Wood, III.1, l. 60",
        "Ann Lee, The Wood, epilogue 1, p. 42",
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # Pages begin inside paragraphs and between them. A page without a number is another one.
        (
            "<p>A plane.</p><pb n='7'/><p>A plane, a <pb n='8'/>plane.</p><p>A plane.</p><pb/><p>A plane.</p>",
            ["wood.xml, passage 1", "p. 7", "p. 8", "p. 8", "wood.xml, passage 4"],
        ),
        # A word that a page divides is on the page where it begins, a word after punctuation on the new one.
        ("<pb n='7'/><p>a pla-<pb n='8'/>ne (<pb n='9'/>plane)</p>", ["p. 7", "p. 9"]),
        # Accents that are two characters, and ends of lines inside words, move no mark.
        (
            "<p>Ma\u0308dchen u\u0308ber<pb n='7'/> plane pla<lb break='no'/>ne ver-<lb/>spa\u0308tet "
            "<pb n='8'/>plane</p>",
            ["p. 7", "p. 7", "p. 8"],
        ),
        # Lines of prose are numbered on a page, lines of verse in a poem or a book.
        ("<pb n='7'/><p><lb n='1'/>the sad <lb n='2'/>plane <lb/>plane</p>", ["p. 7, l. 2", "p. 7"]),
        ("<div type='book' n='2'><l n='1'>It flew</l><l n='2'>a plane.</l></div>", ["book 2, l. 2"]),
        ("<lg type='sonnet' n='18'><lg><l n='1'>It flew</l><l n='18.2'>a plane.</l></lg></lg>", ["sonnet 18, l. 2"]),
        ("<div type='chapter' n='5'><p>A plane.</p></div>", ["chapter 5"]),
        ("<div1 type='act' n='IV'><p>A plane.</p></div1>", ["Act IV"]),
        ("<div type='scene' n='2'><p>A plane.</p></div>", ["scene 2"]),
        # Neither numbers without a name nor names without a number, and no identifiers.
        ("<div n='5'><div type='letter'><p>A plane.</p></div></div>", ["wood.xml, passage 1"]),
        ("<div type='part' n='urn:cts:wood.part.5'><p>A plane.</p></div>", ["wood.xml, passage 1"]),
    ],
)
def test_places_in_a_text(tmp_path, body, expected):
    assert citations(write(tmp_path / "wood.xml", body)) == [f"Ann Lee, The Wood, {place}" for place in expected]


def test_a_text_without_a_name_is_cited_by_its_file(tmp_path):
    assert citations(write(tmp_path / "wood.xml", PLAY, header=""))[0] == "wood.xml, III.1, l. 56"


def texts(path, *search: str) -> list[str]:
    return [passage.join() for passage in read_passages(path, TextColumns(search=search or ("word",)))]


def test_verses_are_read_by_stanza_and_in_whole_sentences(tmp_path):
    stanza = "<lg><l>So much</l><l>depends.</l></lg>"
    assert texts(write(tmp_path / "a.xml", f"<lg type='poem'><head>I</head>{stanza}{stanza}</lg>")) == [
        "I",
        *["So much depends."] * 2,
    ]
    # Blank verse: the eleventh line ends the first sentence after eight lines.
    lines = [f"line {number}{'.' if number in (3, 11, 12) else ','}" for number in range(1, 15)]
    verses = "".join(f"<l>{line}</l>\n<pb/><note>no</note>" for line in lines)
    assert texts(write(tmp_path / "b.xml", f"<div><head>I</head>{verses}<p>Prose.</p><l>Last</l></div>")) == [
        "I",
        " ".join(lines[:11]),
        " ".join(lines[11:]),
        "Prose.",
        "Last",
    ]


TOKENS = (
    "<p n='2'><w lemma='the' pos='d'>The</w> <w lemma='plane' pos='n2'>Planes</w> "
    "<w lemma='do' pos='vvd'>did</w><w join='left' lemma='not' pos='xx'>n't</w> "
    "<w lemma='leave' pos='vvi'>lea<lb/>ve</w><pc join='left' pos='.'>.</pc> So, "
    "<w lemma='plane' pos='vvz'>planes</w><pc join='left'>!</pc></p>"
)


@pytest.mark.parametrize(
    ("search", "target", "shown"),
    [
        (["word"], "planes", ["planes"]),
        (["lemma"], "plane", ["Planes", "planes"]),
        (["lemma"], "do not", ["didn't"]),
        (["lemma", "pos"], "plane_n2", ["Planes"]),
        # Other names of the same columns, as in other layouts
        (["lemma", "upos"], "not_xx", ["n't"]),
        (["pos"], "vvi", ["lea ve"]),
    ],
)
def test_words_of_tei_are_found_by_lemma_and_part_of_speech(tmp_path, search, target, shown):
    (sentence,) = read_semeval({"t": write(tmp_path / "a.xml", TOKENS)}, [target], columns=TextColumns(search=search))
    assert sentence.text == "The Planes didn't lea ve. So, planes!"
    assert [sentence.text[start:end] for _, start, end in sentence.targets] == shown


PRETTY = """<p>
  <w lemma="it|will" ana="#pn|vmb">'Twill</w>
  <c> </c>
  <w lemma="fly" ana="#vvi">fly</w>
  <pc>,</pc>
  <c> </c><hi>
    <w lemma="plane" ana="#n2">planes</w>
  </hi><pc>|</pc>
</p>"""


def test_spaces_that_are_elements_and_tokens_of_several_words(tmp_path):
    """As in the Folger's Shakespeare: other white space is layout."""
    path = write(tmp_path / "a.xml", PRETTY)
    for search, target, shown in (
        (["word"], "fly", "fly"),
        (["lemma"], "will", "'Twill"),
        (["lemma", "pos"], "it_pn", "'Twill"),
        (["lemma", "ana"], "plane_n2", "planes"),
    ):
        (sentence,) = read_semeval({"t": path}, [target], columns=TextColumns(search=search))
        assert sentence.text == "'Twill fly, planes|"
        assert [sentence.text[start:end] for _, start, end in sentence.targets] == [shown]


def test_tokens_inside_a_token_are_found_and_its_text_is_that_outside(tmp_path):
    body = "<p><w>can't<w norm='can' lemma='can'/><w norm='not' lemma='not'/></w> <w lemma='fly'>flies</w></p>"
    for target, shown in (("can", "can't"), ("not", "can't"), ("fly", "flies")):
        (sentence,) = read_semeval(
            {"t": write(tmp_path / "a.xml", body)}, [target], columns=TextColumns(search=["lemma"])
        )
        assert [sentence.text[start:end] for _, start, end in sentence.targets] == [shown]
        assert sentence.text == "can't flies"


def test_a_text_without_the_attribute_is_refused_and_running_text_is_not(tmp_path):
    with pytest.raises(ValueError, match=r"a\.xml: .*'lemma'.*are norm"):
        texts(write(tmp_path / "a.xml", "<p><w norm='plane'>plane</w></p>"), "lemma")
    assert texts(write(tmp_path / "a.xml", "<p>A plane.</p>"), "lemma") == ["A plane."]


def test_lemmas_do_not_change_the_text(tmp_path):
    for body in (
        TOKENS,
        "<p><s>" + "<w lemma='a'>It</w><w lemma='a'>'s</w><pc>(</pc><w lemma='b'>so</w><pc>)</pc></s></p>",
    ):
        path = write(tmp_path / "a.xml", body)
        assert texts(path) == texts(path, "lemma")


def test_a_token_is_on_its_line(tmp_path):
    body = "<l n='1'><w lemma='the'>The</w></l><l n='2'><w lemma='plane'>planes</w>.</l>"
    path = write(tmp_path / "a.xml", f"<div>{body}</div>")
    found = find_usages(read_semeval({"t": path}, ["plane"], columns=TextColumns(search=["lemma"])), ["plane"], ["t"])
    assert [usage.source for usage in found["plane"]["t"][0]] == ["Ann Lee, The Wood, l. 2"]


def test_texts_without_the_attribute_are_left_out_and_counted(tmp_path, caplog):
    """Only written words would be found in them, and would count as fewer occurrences at their time."""
    for name, attribute in (("a", "lemma"), ("b", "norm"), ("c", "pos"), ("d", "lemma")):
        write(tmp_path / f"{name}.xml", f"<p><w {attribute}='plane'>planes</w></p>")
    assert texts(tmp_path, "lemma") == ["planes"] * 2
    assert "2 texts without the attribute 'lemma'" in caplog.text and "b.xml" in caplog.text
    assert texts(tmp_path) == ["planes"] * 4


def test_what_a_collection_adds_to_a_title_is_not_cited(tmp_path):
    header = HEADER.replace("The Wood", "The Wood : ELTeC edition")
    assert citations(write(tmp_path / "wood.xml", PLAY, header))[0] == "Ann Lee, The Wood, III.1, l. 56"


def test_chapters_without_a_number_are_counted(tmp_path):
    chapter = '<div type="chapter"><head>A head</head><p>The plane.</p></div>'
    parts = "".join(f'<div type="part" n="{number}">{chapter * 2}</div>' for number in (1, 2))
    assert citations(write(tmp_path / "wood.xml", parts)) == [
        f"Ann Lee, The Wood, part {part}, chapter {number}" for part in (1, 2) for number in (1, 2)
    ]
