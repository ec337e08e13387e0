"""Checks that TEI, books of Project Gutenberg and wrapped texts are read as passages, in files of these layouts."""

import gzip

import pytest

from semantic_change.reading.passages import TextColumns, common_date, find_date, split_tag
from semantic_change.reading.text_layouts import read_passages, time_of_file


def read(path, content: str) -> list[tuple[str, str, str]]:
    path.write_text(content, encoding="utf-8")
    return [(passage.date, passage.source, passage.join()) for passage in read_passages(path)]


def tei(source: str = "", body: str = "<p>A plane.</p>", profile: str = "", root: str = "TEI") -> str:
    """Returns a TEI file whose edition is of 2012."""
    return (
        f'<{root} xmlns="http://www.tei-c.org/ns/1.0"><teiHeader><fileDesc><titleStmt>'
        '<title type="sub">a novel</title><title type="main">The Wood.</title>'
        "<author><forename>Ann</forename> <surname>Lee</surname></author></titleStmt>"
        "<publicationStmt><p>An edition.</p><date>2012</date></publicationStmt>"
        f"<sourceDesc>{source}</sourceDesc></fileDesc><profileDesc>{profile}</profileDesc></teiHeader>"
        f"<text><front><head>Preface</head></front><body>{body}</body></text></{root}>"
    )


BODY = """<div><head>I</head>
<p>The old pla-<lb/>nes <choice><sic>lefft</sic><corr>left</corr></choice>,<note>they did
not</note> <choice><orig>vpon</orig></choice>
Anglo-<lb/>American wood<lb break="no"/>land<pb n="2"/><fw>Page 2</fw>and <gap reason="illegible"/>
<del>no</del><app><lem>ra<gap/>n</lem><rdg>snow</rdg></app>.</p>
<p> </p>
<lg><l>So much</l><l>depends</l></lg>
<div><head>Act I</head><stage>A wood.</stage>
<sp><speaker>ANN</speaker><stage>aside</stage><l>It <hi>rai</hi>ned</l><l>all day.</l><p>So.</p></sp></div>
<list><item>One <list><item>two</item></list></item></list>
<opener>Dear <name>Ben</name>,</opener><cit><quote>Old words</quote></cit><table><row><cell>3</cell></row></table>
<figure><figDesc>A tree</figDesc></figure><note><p>A note.</p></note></div>"""


def test_tei(tmp_path, caplog):
    texts = read(tmp_path / "wood.xml", tei('<bibl><date when="1815-06-18">18 June</date></bibl>', BODY))
    assert {date for date, _, _ in texts} == {"1815-06-18"}
    assert [source for _, source, _ in texts][:3] == [f"Ann Lee, The Wood, wood.xml, passage {i}" for i in (1, 2, 4)]
    assert [text for _, _, text in texts] == [
        "Preface",
        "The old planes left, vpon Anglo- American woodland and […] ra[…]n.",
        "So much depends",
        "It rained all day. So.",
        "One two",
        "Dear Ben,",
        "Old words",
        "3",
    ]
    assert "1 empty passage (in" in caplog.text


W = "<w>The</w>{0}<w>planes</w>{0}<w>did</w>{0}<w>n't</w>{0}<w>leave</w>{0}<pc>(</pc>{0}<w>it</w>{0}<pc>)</pc>"
JOINED = (
    "<w>The</w>\n<w>planes</w> <w join='right'>did</w> <w>n't</w> <w>leave</w><pc join='right'>(</pc>\n<w>it</w> "
    "<pc join='left'>)</pc>"
)


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        # Spaces follow from @join or are in the file. If the file has none, they follow from punctuation.
        (
            f"<p><s>{W.format('')}</s><s>{W.format('')}</s></p>",
            ["The planes didn't leave (it) The planes didn't leave (it)"],
        ),
        (f"<p><s>{W.format(chr(10))}</s></p>", ["The planes did n't leave ( it )"]),
        ("<p><w>l'</w><w>arbre</w> <w>est</w> <w>ici</w><pc>.</pc></p>", ["l'arbre est ici."]),
        (f"<u><seg><s>{JOINED}</s></seg></u>", ["The planes didn't leave (it)"]),
        # Sentences without paragraphs are passages, as are tokens without sentences.
        (
            f"<div><s>{W.format('')}</s><s><w>It</w><w>rained</w><pc>.</pc></s></div>",
            ["The planes didn't leave (it)", "It rained."],
        ),
        (f"<div>{W.format('')}</div>", ["The planes didn't leave (it)"]),
        # Annotations stand apart from the words.
        (
            "<p><s><w xml:id='w1'>Planes</w> <w>left</w><linkGrp>x<link/></linkGrp><spanGrp><span target='#w1'>NOUN"
            "</span></spanGrp></s></p><standOff><listAnnotation><ab>a place</ab></listAnnotation></standOff>",
            ["Planes left"],
        ),
    ],
)
def test_tokens_of_tei(tmp_path, body, texts):
    assert [text for _, _, text in read(tmp_path / "wood.xml", tei(body=body))[1:]] == texts


def test_an_attribute_that_the_dtd_of_tei_gives_is_there(tmp_path):
    """It counts as a written one; the text gives a lemma to its second token alone."""
    body = '<p><w>Planes</w> <w lemma="leave">left</w></p>'
    dtd = '<!DOCTYPE TEI [<!ATTLIST w lemma CDATA "plane">]>'
    (tmp_path / "a.xml").write_text(dtd + tei(body=body), encoding="utf-8")
    keys = [passage.keys for passage in read_passages(tmp_path / "a.xml", TextColumns(search=["lemma"]))]
    assert keys == [["Preface"], ["plane", "leave"]]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        # The ends of lines, columns and pages, with running heads and catchwords.
        ("the pla-<lb/>nes", "the planes"),
        ("the pla\u00ac\n<lb/>nes", "the planes"),
        ("the pla-\n  <fw type='catch'>nes</fw>\n <pb n='2'/><fw>THE WOOD</fw>\n<lb/>nes", "the planes"),
        # A break that is inside a word, with and without a hyphen and spaces.
        ("the pla<lb break='no'/>nes", "the planes"),
        ("the pla\n <lb break='no'/>nes", "the planes"),
        ("the pla-<lb break='no'/>nes", "the planes"),
        ("the pla-<fw>2</fw><pb break='no'/><lb/>nes", "the planes"),
        ("the Anglo-<lb break='no'/>Saxons", "the Anglo-Saxons"),
        ("<w>the</w> <w part='I'>pla-</w><lb/><w part='F'>nes</w>", "the planes"),
        # A compound of the text keeps its hyphen, and a half is no word.
        ("to-day, and To-<lb/>day", "to-day, and To-day"),
        ("pre-<lb/>and post-war", "pre- and post-war"),
        ("1810-<lb/>1860", "1810- 1860"),
    ],
)
def test_words_that_tei_divides(tmp_path, body, text):
    assert read(tmp_path / "wood.xml", tei(body=f"<p>{body}</p>"))[1][2] == text


@pytest.mark.parametrize(
    ("source", "profile", "date"),
    [
        ("<bibl><date>1641.</date></bibl>", "", "1641"),
        ("<biblFull><publicationStmt><date>Anno Dom. [1641?]</date></publicationStmt></biblFull>", "", "1641"),
        ('<bibl><date notBefore="1641-01" notAfter="1641-12"/></bibl>', "", "1641"),
        ('<bibl><date from="1641" to="1655"/></bibl>', "", "1641/1655"),
        ("<bibl><date>1641</date></bibl>", '<creation><date when="1639"/></creation>', "1639"),
        ("<bibl/>", '<settingDesc><setting><date when="2015-02-03"/></setting></settingDesc>', "2015-02-03"),
        # As in the headers of ELTeC, DraCor and the German text archive
        (
            '<bibl type="digitalSource"><date>2015</date></bibl><bibl type="printSource"><date>1902</date></bibl>'
            '<bibl type="firstEdition"><date>1847</date></bibl>',
            "",
            "1847",
        ),
        (
            '<bibl type="digitalSource"><date>2015</date><bibl type="originalSource"><date type="print" when="1623"/>'
            '<date type="premiere" when="1601"/></bibl></bibl>',
            "",
            "1601",
        ),
        (
            '<bibl type="M">Leipzig</bibl><biblFull><publicationStmt><date type="publication">1808</date>'
            "</publicationStmt></biblFull>",
            "",
            "1808",
        ),
        ('<bibl type="digitalSource"><bibl><date>2015</date></bibl></bibl>', "", "1700"),
        # The date of an edition does not date the text, but the file's name does.
        ("<bibl/>", "", "1700"),
    ],
)
def test_the_date_of_a_tei_text(tmp_path, source, profile, date):
    assert read(tmp_path / "wood_1700.txt", tei(source, profile=profile))[1][0] == date


def test_a_play_is_dated_by_its_events_and_has_the_name_of_its_writer(tmp_path):
    events = '<event type="print" when="1623"/><event type="written" notBefore="1599" notAfter="1601"/>'
    text = tei('<bibl type="digitalSource"><date>2015</date></bibl>').replace(
        "<text>", f"<standOff><listEvent>{events}</listEvent></standOff><text>"
    )
    for name, shown in (
        ("<persName>Ann Lee</persName><persName xml:lang='de'>Anna Lee</persName><idno>Q692</idno>", "Ann Lee"),
        ("Lee, Ann (1700-1755)<idno>Q692</idno>", "Lee, Ann (1700-1755)"),
    ):
        named = text.replace("<forename>Ann</forename> <surname>Lee</surname>", name)
        date, source, _ = read(tmp_path / "wood_1700.txt", named)[1]
        assert (date, source) == ("1599/1601", f"{shown}, The Wood, wood_1700.txt, passage 2")


def test_a_tei_corpus_in_one_file(tmp_path):
    texts = "".join(tei(f"<bibl><date>{year}</date></bibl>") for year in (1641, 1815))
    corpus = f'<?xml version="1.0"?>\n<teiCorpus xmlns="http://www.tei-c.org/ns/1.0"><teiHeader/>{texts}</teiCorpus>'
    (tmp_path / "all.xml.gz").write_bytes(gzip.compress(corpus.encode()))
    passages = [(passage.date, passage.join()) for passage in read_passages(tmp_path)]
    assert passages == [(date, text) for date in ("1641", "1815") for text in ("Preface", "A plane.")]
    latin = '<?xml version="1.0" encoding="ISO-8859-1"?>' + tei(body="<p>Kn\u00f6tchen</p>", root="TEI.2")
    (tmp_path / "latin.xml").write_bytes(latin.encode("latin-1"))
    assert [passage.join() for passage in read_passages(tmp_path / "latin.xml")] == ["Preface", "Kn\u00f6tchen"]


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("<book><p>A plane.</p></book>", "line 1: .*<TEI>, got <book>"),
        (tei(body="<p>A plane.\n</div>"), "line 2, column .*mismatched tag"),
        (tei(body="<p>A plane&mdash;gone.</p>"), "line 1, column .*entity"),
        ("", "line 1.*no element"),
    ],
)
def test_xml_that_is_refused(tmp_path, content, named):
    with pytest.raises(ValueError, match=rf"wood\.xml, {named}"):
        read(tmp_path / "wood.xml", content)


HEAD = """The Project Gutenberg eBook of The Wood

This eBook is for the use of anyone anywhere.

Title: The Wood

Author: Ann Lee

Release date: June 1, 1998 [eBook #1342]

{start}

Produced by a volunteer

CHAPTER I

It rained in the wood, and the old planes stood in the rain as
they had stood in the year before.

The planes left.

{end}

Updated editions will replace the previous one. End of the licence.
"""
MARKERS = [
    ("*** START OF THE PROJECT GUTENBERG EBOOK THE WOOD ***", "*** END OF THE PROJECT GUTENBERG EBOOK THE WOOD ***"),
    ("*** START OF THIS PROJECT GUTENBERG EBOOK THE\nWOOD ***", "End of the Project Gutenberg EBook of The Wood"),
    ("***START OF THE PROJECT GUTENBERG EBOOK THE WOOD***", "***END OF THE PROJECT GUTENBERG EBOOK THE WOOD***"),
    (
        "*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*",
        "End of Project Gutenberg's The Wood, by Ann Lee",
    ),
    ("*END THE SMALL PRINT*\n\n*** START OF THE PROJECT GUTENBERG EBOOK ***", "End of The Project Gutenberg Etext"),
]
PARAGRAPHS = [
    "CHAPTER I",
    "It rained in the wood, and the old planes stood in the rain as they had stood in the year before.",
    "The planes left.",
]


@pytest.mark.parametrize(("start", "end"), MARKERS)
def test_gutenberg(tmp_path, start, end):
    """Only the text is read, in paragraphs. The number of a book is no year."""
    book = HEAD.format(start=start, end=end)
    # A paragraph that names who made the file stands before the first one.
    first = 15 + start.count("\n")
    for name, date in (("pg1342.txt", ""), ("1342-0.txt", ""), ("wood_1813.txt", "1813")):
        texts = read(tmp_path / name, book)
        assert [text for _, _, text in texts] == PARAGRAPHS
        assert texts[0][:2] == (date, f"Ann Lee, The Wood, {name}, line {first}")


def test_several_books_in_one_file(tmp_path):
    books = [HEAD.format(start=start, end=end) for start, end in MARKERS]
    texts = read(tmp_path / "1810-1860.txt", "\n".join(books))
    assert [text for _, _, text in texts] == PARAGRAPHS * len(books) and texts[0][0] == ""


def test_a_book_without_an_end_is_read_up_to_the_next(tmp_path):
    """The line that names the project begins the next book, with its own author and title."""
    start, licence = MARKERS[0][0], "\n\nUpdated editions will replace the previous one. End of the licence.\n"
    first = HEAD.format(start=start, end="").removesuffix(licence)
    second = HEAD.format(start=start, end=MARKERS[0][1]).replace("The Wood", "The Rain").replace("left", "fell")
    texts = read(tmp_path / "two.txt", f"{first}\n\n{second}")
    assert [text for _, _, text in texts] == [*PARAGRAPHS, *PARAGRAPHS[:2], "The planes fell."]
    assert [source.split(", ")[1] for _, source, _ in texts] == ["The Wood"] * 3 + ["The Rain"] * 3


def test_a_book_of_gutenberg_without_a_start_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"pg1342\.txt.*START OF"):
        read(tmp_path / "pg1342.txt", HEAD.format(start="", end=""))


LINE = "It rained in the wood, and the old planes stood in the rain"
WRAPPED = f"THE WOOD\n\n{LINE}\n{LINE}\nas before.\n\n{LINE}\n{LINE}\n{LINE}.\n\n{LINE}\n{LINE}.\n"


def test_wrapped_lines_are_joined(tmp_path, caplog):
    texts = read(tmp_path / "1815.txt", WRAPPED)
    assert texts[1] == ("1815", "1815.txt, line 3", f"{LINE} {LINE} as before.") and len(texts) == 4
    assert "1815.txt" in caplog.text and "joined" in caplog.text


DIVIDED = """It rained in the wood, and the old man who had planted the pla-
nes stood in the rain to-day as he had stood there, in the well-
worn coat of his father-in-law, and To-
day, he said, they are cut, for the Anglo-
Saxon takes what he wants and more, of pre-
and post-war wood, and the mother-in-
law of the man took the rest\u00ac
less away, and 1810-
1860 he said.
"""
WHOLE = (
    "It rained in the wood, and the old man who had planted the planes stood in the rain to-day as he had stood there,"
    " in the wellworn coat of his father-in-law, and To-day, he said, they are cut, for the Anglo- Saxon takes what he"
    " wants and more, of pre- and post-war wood, and the mother-inlaw of the man took the restless away, and 1810-"
    " 1860 he said."
)


@pytest.mark.parametrize("kind", ["wrapped", "gutenberg", "table"])
def test_words_that_lines_divide_are_joined(tmp_path, kind):
    """A small letter follows. A word that has a hyphen elsewhere in the text keeps it, whatever its capitals."""
    if kind == "table":
        assert read(tmp_path / "a.csv", f'text\n"{DIVIDED}"\n') == [("", "a.csv, row 0", WHOLE)]
        return
    text = "\n".join([f"{LINE}\n{LINE}\n{LINE}.\n"] * 20 + [DIVIDED, f"{LINE}.\n"])
    if kind == "gutenberg":
        text = f"Project Gutenberg\n*** START OF THE PROJECT GUTENBERG EBOOK ***\n{text}"
    texts = [text for _, _, text in read(tmp_path / "1815.txt", text)]
    assert texts == [f"{LINE} {LINE} {LINE}."] * 20 + [WHOLE, f"{LINE}."]


def test_a_compound_elsewhere_in_a_wrapped_text_keeps_its_hyphen(tmp_path):
    pair = f"{LINE}\n{LINE}\n{LINE} to-\nday.\n"
    for others, word in (("", "today"), (f"{LINE}\n{LINE}\n{LINE} \u201cTo\u2010day\u201d.\n\n", "to-day")):
        texts = read(tmp_path / "1815.txt", f"{pair}\n{pair}\n{pair}\n{others}")
        assert [text.split()[-1] for _, _, text in texts[:3]] == [f"{word}."] * 3


@pytest.mark.parametrize(
    "lines",
    [
        # Sentences of many lengths, a long one, verses, and paragraphs without blank lines between them.
        ["It rained.", LINE, "", LINE, "The planes left.", LINE, ""] * 5,
        [LINE, LINE, LINE, "", LINE, LINE, LINE, "", f"{LINE}, {LINE}", ""] * 5,
        [f"{LINE}.", f"{LINE}.", LINE, f"{LINE}.", ""] * 5,
        ["So much depends", "upon a red wheel", "barrow glazed", "with rain", ""] * 5,
        [LINE] * 20,
    ],
)
def test_other_lines_are_texts(tmp_path, lines):
    assert len(read(tmp_path / "1815.txt", "\n".join(lines))) == sum(map(bool, lines))


def test_an_identifier_before_each_text_is_its_source(tmp_path):
    """As in the plain text of ParlaMint: each speech is a document. Lines of a table with a header are as they are."""
    lines = [f"Parl_1996-01-15.u{number}\tThe plane left at {number}." for number in range(3)]
    (tmp_path / "Parl_1996-01-15.txt").write_text("\n".join(lines), encoding="utf-8")
    passages = list(read_passages(tmp_path / "Parl_1996-01-15.txt"))
    assert [passage.join() for passage in passages] == [f"The plane left at {number}." for number in range(3)]
    for number, passage in enumerate(passages):
        assert f"Parl_1996-01-15.u{number}" in passage.source and f"line {number + 1}" in passage.source
    assert len({passage.document for passage in passages}) == 3 and passages[0].date == "1996-01-15"
    # The numbers of verses are no documents. Times that repeat, and words, are no identifiers.
    (tmp_path / "verses.txt").write_text("1\tThe plane left\n2\tand it rained\n", encoding="utf-8")
    verses = list(read_passages(tmp_path / "verses.txt"))
    assert [(verse.join(), verse.document) for verse in verses] == [("The plane left", ""), ("and it rained", "")]
    for table in ("9:30\tThe plane left\n9:30\tit rained\n", "id\ttext of it\nu1\tthe plane left\n"):
        assert [text for _, _, text in read(tmp_path / "a.txt", table)] == table.replace("\t", " ").splitlines()


@pytest.mark.parametrize("name", ["{:08}.txt", "39002088672754_{:06}.txt", "Page_{}.txt"])
def test_the_pages_of_a_volume_are_one_document(tmp_path, caplog, name):
    """Words are joined across lines and pages, past running heads. A refrain is none, and letters may have numbers."""
    volume = [f"1   THE WOOD.\n{LINE}\nthere they were assem-\n", "THE WOOD. 2\nbled, he said.\n\nIt rained.\n\n2\n"]
    volume += [f"{number}   THE WOOD.\n{LINE} of ga-\ntes {number}.\n" for number in range(3, 12)]
    poem = [f"O the plane\nIt rained {number}\n" for number in range(3)]
    folders = {"a": (volume, name), "b": (poem, name), "c": (poem, "{:06}.txt")}
    for folder, (pages, form) in folders.items():
        (tmp_path / folder).mkdir()
        for number, page in enumerate(pages, 1):
            (tmp_path / folder / form.format(number)).write_text(page, encoding="utf-8")
    passages = list(read_passages(tmp_path))
    by_folder = {
        folder: [passage for passage in passages if passage.origin.file.startswith(folder)] for folder in folders
    }
    texts = [f"{LINE} there they were assembled,", "he said.", "It rained."]
    texts += [f"{LINE} of gates {number}." for number in range(3, 12)]
    assert [passage.join() for passage in by_folder["a"]] == texts
    assert by_folder["a"][0].source == f"a/{name.format(1)}, line 2"
    assert by_folder["a"][-1].source == f"a/{name.format(11)}, line 2"
    assert [passage.join() for passage in by_folder["b"]] == [f"O the plane It rained {number}" for number in range(3)]
    assert [len({passage.document for passage in by_folder[folder]}) for folder in folders] == [1, 1, 3]
    assert len({passage.document for passage in passages}) == 5
    assert "left out 12 running heads" in caplog.text and "a/" in caplog.text


def test_pages_of_another_layout_are_read_in_it(tmp_path):
    for number in (1, 2):
        tokens = "the\tX\nplane\tX\nleft\tX\n.\tX\n"
        (tmp_path / f"0000000{number}.txt").write_text(tokens, encoding="utf-8")
    passages = list(read_passages(tmp_path))
    assert [passage.join() for passage in passages] == ["the plane left."] * 2
    assert len({passage.document for passage in passages}) == 1


@pytest.mark.parametrize(
    ("text", "is_named"),
    [
        ("飞机离开了，因为天下雨了。\n" * 20, True),
        ("飞机 离开 了 ， 因为 天 下雨 了 。\n" * 20, False),
        ("เครื่องบินออกไปแล้วเพราะฝนตก\n" * 20, True),
        ("Die Flugzeuge verließen die Donaudampfschifffahrtsgesellschaft.\n" * 20, False),
    ],
)
def test_texts_without_spaces_are_named(tmp_path, caplog, text, is_named):
    read(tmp_path / "1815.txt", text)
    assert ("no spaces" in caplog.text) == is_named


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("1815", "1815"),
        ("18.06.1815", "18.06.1815"),
        ("1815-06-18_letter", "1815-06-18"),
        ("letters-1815-06", "1815-06"),
        ("fic_1817_8554", "1817"),
        ("Printed in the yeare, 1641.", "1641"),
        *((other, "") for other in ("1810-1860", "1641\u20131655", "pg1342", "letter", "7", "8554", "wlp_1810s_ksw")),
    ],
)
def test_dates_in_names_and_notes(text, date):
    assert find_date(text) == date


def test_the_common_part_of_two_dates():
    assert common_date("18150101", "18151231") == "1815"
    assert common_date("1815-06-01", "1815-06-30") == "1815-06"
    assert common_date("1815-06-18", "1815-06-18") == "1815-06-18"
    assert common_date("1815", "1816") == "1815/1816"


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        *((f"plane_{tag}", ("plane", f"_{tag}")) for tag in ("NOUN", "NN", "NNS", "nn", "nn1", "vvd", "VERB", "vb")),
        (",_PUNCT", (",", "_PUNCT")),
        (",_,", (",", "_,")),
        ("social_security_NOUN", ("social_security", "_NOUN")),
        *((word, (word, "")) for word in ("x_y", "_nn", "plane", "_plane_", "plane_nn.", "file_name", "a_b_c")),
    ],
)
def test_parts_of_speech_after_words(word, parts):
    assert split_tag(word) == parts


def test_names_of_files_and_folders_are_times():
    for name in ("1990s.txt", "1990s.txt.gz", "1990s.vrt", "1990s.conllu.gz", "1990s.xml", "1990s.csv", "1990s"):
        assert time_of_file(f"corpora/{name}") == "1990s"
