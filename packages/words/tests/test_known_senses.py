"""Checks the senses of a lexicographer's table: how they are read, and which usages have them."""

import math

import numpy as np
import pandas as pd
import pytest

from semantic_change.attestations import Search
from semantic_change.entries import make_entry, sense_rows
from semantic_change.known_senses import KnownSenses, place_of, read_known_senses, read_senses, take_words, to_usages
from semantic_change.senses import SenseSpace, find_senses
from semantic_change.usages import Usage


TIMES = ["1800", "1900"]


def write(path, text: str):
    (path / "senses.csv").write_text(text, encoding="utf-8")
    return path / "senses.csv"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("word,sense\nplane,a\n", ["line 1", "'text'"]),
        ("word:sense:text\nplane:a:b\n", ["line 1", "'word'"]),
        ("word,sense,text\nplane,Machine,b\nair,machine,b\nplane,machine,c\n", ["line 4", "line 2", "'Machine'"]),
        ("word,sense,text\n\nplane,a,b\nplane,a, \n", ["line 4", "'text'"]),
        ('word,sense,text\nplane,a,"b\nb"\nplane,,b\n', ["line 4", "'sense'"]),
        ("word,sense,text,start\nplane,a,the plane,9\n", ["line 2", "'9'", "'start'"]),
        ("word,sense,text,start\nplane,a,the plane,-1\n", ["line 2", "'-1'"]),
        ("word,sense,text\nplane,a,b\nplane,a,the plane, which flew\n", ["line 3", "columns"]),
        ('word,sense,text\nplane,a,"the plane\nplane,b,c\n', ["line 2"]),
        ("word,sense,text\n", ["no rows"]),
    ],
)
def test_a_table_of_another_form_is_refused_with_its_line(tmp_path, text, problem):
    with pytest.raises(ValueError) as raised:
        read_known_senses(write(tmp_path, text))
    assert all(part in str(raised.value) for part in ["senses.csv", *problem])


def test_a_table_of_a_spreadsheet_may_have_semicolons(tmp_path):
    text = '\ufeffword;sense;text\nplane;machine;"a plane, which flew; twice"\nplane;level;a plane, flat\n'
    (machine, level), *others = read_known_senses(write(tmp_path, text)).values()
    assert (machine.sense, machine.text) == ("machine", "a plane, which flew; twice") and not others
    assert (level.sense, level.text) == ("level", "a plane, flat")


def test_texts_of_other_words_are_counted(tmp_path, caplog):
    texts = read_known_senses(write(tmp_path, "word,sense,text\nplane,a,b\ntree,c,d\ntree,c,e\n"))
    assert list(take_words(texts, ["plane", "air"])) == ["plane"]
    assert "tree (2)" in caplog.text


class Reader:
    """Reads usages as vectors of one number, and keeps what it was asked for."""

    def __call__(self, usages):
        self.usages = usages
        return usages, {
            word: {time: np.arange(len(part), dtype=float)[:, None] for time, part in parts.items()}
            for word, parts in usages.items()
        }


def read(tmp_path, text: str, forms=("planes",)) -> tuple[KnownSenses, list[Usage]]:
    reader, found = Reader(), {"1800": [[Usage("1800", f"{form} fly", 0, len(form))] for form in forms]}
    given = to_usages(read_known_senses(write(tmp_path, text)), {"plane_nn": found}, "1900")
    known = read_senses(given, "1900", reader)
    return known["plane_nn"], reader.usages["plane_nn"]["1900"]


def test_a_text_with_a_form_of_the_word_is_a_quotation_and_another_one_a_definition(tmp_path):
    machine, level = ("The  Planes flew", "aeroplanes and others"), ("on a plane; a plane", "a surface")
    rows = [*(f"plane_nn,machine,{text}" for text in machine), *(f'plane_nn,level,"{text}"' for text in level)]
    known, usages = read(tmp_path, "\n".join(["word,sense,text", *rows]))
    assert [usage.text[: usage.start] + "*" + usage.text[usage.start : usage.end] for usage in usages] == [
        "The *Planes",
        "*plane",
        "on a *plane",
        "*plane",
    ]
    assert [usage.text for usage in usages[1::2]] == ["plane: aeroplanes and others", "plane: a surface"]
    assert known.names == ["machine", "level"] and known.labels.tolist() == [0, 0, 1, 1]
    assert known.is_quotation.tolist() == [True, False, True, False]
    assert known.quoted == {("The Planes flew", 4): 0, ("on a plane; a plane", 5): 1}


def test_a_quotation_may_tell_where_the_word_is(tmp_path):
    text = "word,sense,text,start\nplane_nn,a,a plane and a plane,14\nplane_nn,a,in eroplain,3\n"
    _, usages = read(tmp_path, text)
    assert [(usage.start, usage.end) for usage in usages] == [(14, 19), (3, 11)]
    with pytest.raises(ValueError, match="line 2.*character 1"):
        read(tmp_path, "word,sense,text,start\nplane_nn,a,a plane,1\n")


def test_accents_of_texts_are_written_as_in_corpora(tmp_path):
    rows = "plane_nn,caf\u00e9,pla\u0302ne u\u0308ber,\nplane_nn,cafe\u0301,u\u0308ber pla\u0302ne,6\n"
    known, usages = read(tmp_path, f"word,sense,text,start\n{rows}", forms=["pl\u00e2ne"])
    assert known.names == ["caf\u00e9"]
    assert [usage.text[usage.start : usage.end] for usage in usages] == ["pl\u00e2ne"] * 2
    assert [usage.text for usage in usages] == ["pl\u00e2ne \u00fcber", "\u00fcber pl\u00e2ne"]


def test_one_quotation_has_one_sense(tmp_path):
    with pytest.raises(ValueError, match="line 3.*'b'.*line 2.*'a'"):
        read(tmp_path, "word,sense,text\nplane_nn,a,a plane\nplane_nn,b,a plane\n")
    known, _ = read(tmp_path, "word,sense,text\nplane_nn,a,a plane\nplane_nn,a,a plane\n")
    assert len(known.labels) == 1
    with pytest.raises(ValueError, match="line 3.*'b'.*line 2.*'a'"):
        read(tmp_path, "word,sense,text\nplane_nn,a,It fell. A plane flew.\nplane_nn,b,A plane flew.\n")


CENTRES = 10 * np.eye(6)


def around(*centres: int, seed: int = 0) -> np.ndarray:
    return CENTRES[list(centres)] + np.random.default_rng(seed).normal(size=(len(centres), 6))


def usages_of(first: list[int], last: list[int]) -> tuple[dict, dict]:
    """Returns usages around some centres at two times, and their vectors."""
    parts = dict(zip(TIMES, (first, last), strict=True))
    usages = {time: [Usage(time, f"{time} {n} plane", len(f"{time} {n} "), 11) for n in range(len(part))]
              for time, part in parts.items()}  # fmt: skip
    return usages, {time: around(*part, seed=number) for number, (time, part) in enumerate(parts.items())}


def known_of(labels: list[int], names: list[str], is_quotation=True, quoted=None) -> KnownSenses:
    """Returns known senses whose texts are around the centres of the same numbers."""
    vectors, is_quotation = around(*labels, seed=9), np.full(len(labels), is_quotation)
    return KnownSenses(names, vectors, np.array(labels), is_quotation, quoted or {})


def test_usages_have_the_nearest_known_sense_and_others_are_one_group():
    """Usages around the centres 2 and 3 are of two senses that nobody knows."""
    first, last = [0] * 12 + [1] * 4 + [2] * 6, [0] * 4 + [1] * 10 + [2] * 8 + [3] * 8
    usages, vectors = usages_of(first, last)
    one, senses = find_senses(usages, vectors, known=known_of([0] * 5 + [1] * 5, ["level", "machine"]))
    assert one.counts.tolist() == [[22, 30]] and one.names == [""]
    by_name = {name: senses.counts[number].tolist() for number, name in enumerate(senses.names)}
    assert by_name.pop("level") == [12, 4] and by_name.pop("machine") == [4, 10]
    assert by_name == {"none of these": [6, 16]} and senses.num_unfitting == 22 and one.num_unfitting == 0
    # From the sense that grew most to the sense that shrank most, as clusters are, and then the others.
    assert senses.names == ["machine", "level", "none of these"]
    centre_of = np.minimum([*first, *last], 2)
    assert senses.labels.tolist() == [{0: 1, 1: 0, 2: 2}[centre] for centre in centre_of]


def test_no_two_senses_have_one_name():
    usages, vectors = usages_of([0] * 12 + [2] * 8, [0] * 10 + [1] * 12)
    for taken in (["none of these", "machine"], ["none of these", "none of these (2)"]):
        senses = find_senses(usages, vectors, known=known_of([0] * 5 + [1] * 5, taken))[-1]
        assert len(senses.names) == len(set(senses.names)) == 3


def test_a_sense_nobody_uses_has_a_row_without_first_attestation():
    usages, vectors = usages_of([0] * 6, [0] * 6)
    known = known_of([0] * 4 + [1] * 4, ["level", "machine"])
    rows = pd.DataFrame(sense_rows("plane", make_entry(Search(usages, vectors, known=known)), TIMES)).set_index("name")
    assert rows.loc["machine", "usages_1800"] == 0 and pd.isna(rows.loc["machine", "first_time"])
    assert rows.loc["level", "usages_1900"] > 3 and rows.loc["level", "first_time"] == "1800"
    assert rows["usages_1900"].sum() == 6
    # One of the eight quotations is too far from the others, as one in twenty or more is.
    assert (rows["quotations_right"] == 7 / 8).all() and (rows["largest_share"] > 0.4).all()
    assert rows["share_1900"].isna().tolist() == [False, False, True]


def test_the_reach_of_a_sense_is_that_of_its_quotations():
    usages, vectors = usages_of([0, 1] * 10, [0, 1] * 10)
    known = known_of([0] * 6 + [1] * 6, ["a", "b"])
    senses = find_senses(usages, vectors, known=known)[-1]
    joined = np.concatenate(list(vectors.values()))
    space = SenseSpace(joined)
    texts, points = space.place(known.vectors), space.place(joined)
    others = [
        math.dist(text, np.mean([o for j, o in enumerate(texts) if j != i and known.labels[j] == known.labels[i]], 0))
        for i, text in enumerate(texts)
    ]
    spread = np.quantile(np.linalg.norm(points - points.mean(0), axis=1), 0.75)
    assert senses.known.reach == pytest.approx(max(np.quantile(others, 0.95), spread))


def test_quotations_are_assigned_by_the_other_texts_of_their_sense():
    """One of the quotations lies among those of the other sense, and one far from all."""
    usages, vectors = usages_of([0, 1] * 10, [0, 1] * 10)
    known = known_of([0] * 12 + [1] * 12, ["level", "machine"])
    known.vectors[0], known.vectors[23] = CENTRES[1], -CENTRES[2]
    senses = find_senses(usages, vectors, known=known)[-1]
    joined = np.concatenate(list(vectors.values()))
    texts = SenseSpace(joined).place(known.vectors)
    expected = {name: [0, 0, 0] for name in known.names}
    for left_out, text in enumerate(texts):
        others = [np.arange(24) != left_out] * 2
        means = [texts[(known.labels == sense) & others[sense]].mean(axis=0) for sense in range(2)]
        distances = [math.dist(text, mean) for mean in means]
        nearest = known.names[int(np.argmin(distances))] if min(distances) <= senses.known.reach else "none of these"
        expected[known.names[known.labels[left_out]]][senses.names.index(nearest)] += 1
    assert {name: row.tolist() for name, row in zip(senses.names, senses.known.outcomes)} == expected
    assert sum(row[2] for row in expected.values()) == 1 and senses.known.share_right == 22 / 24
    assert senses.known.tells_senses


def test_the_support_of_a_usage_is_worth_what_it_is_for_quotations():
    """All usages near a quotation have its sense, so that the two quotations in the other sense's place seem sure."""
    usages, vectors = usages_of([0, 1] * 10, [0, 1] * 10)
    known = known_of([0] * 12 + [1] * 12, ["level", "machine"])
    known.vectors[:2] = CENTRES[1] + 0.1, CENTRES[1] - 0.1
    senses = find_senses(usages, vectors, known=known)[-1]
    right, number = senses.known.supported
    assert number - right == 2 and 20 <= number <= 24


def test_random_senses_of_quotations_are_not_counted():
    """Ten quotations of each of two senses are dealt to these at random 100 times, as no sense was theirs."""
    usages, vectors = usages_of([0, 1] * 10, [0, 1] * 10)
    generator, told = np.random.default_rng(0), 0
    for _ in range(100):
        known = known_of([0, 1] * 10, ["level", "machine"])
        known.labels[:] = generator.permutation(known.labels)
        told += find_senses(usages, vectors, known=known)[-1].known.tells_senses
    assert told <= 5


def test_two_quotations_of_each_sense_tell_too_little():
    usages, vectors = usages_of([0, 1] * 10, [0, 1] * 10)
    for labels in ([0, 1], [0, 0, 1, 1]):
        senses = find_senses(usages, vectors, known=known_of(labels, ["level", "machine"]))[-1]
        assert not senses.known.tells_senses
        assert math.isnan(senses.known.share_right) == (len(labels) == 2)


def test_definitions_alone_take_all_usages():
    usages, vectors = usages_of([0] * 5 + [2] * 5, [1] * 5)
    senses = find_senses(usages, vectors, known=known_of([0, 1], ["level", "machine"], is_quotation=False))[-1]
    assert sorted(senses.names) == ["level", "machine"] and senses.counts.sum() == 15


def test_a_quoted_usage_has_the_sense_of_its_quotation_wherever_it_is_found():
    usages, vectors = usages_of([0] * 8, [1] * 8)
    (odd, *_), outside = usages["1800"], Usage("1800", "1700 plane", 5, 10, "1700")
    quoted = {place_of(odd): 1, place_of(outside): 1}
    known = known_of([0] * 5 + [1] * 5, ["level", "machine"], quoted=quoted)
    search = Search(usages, vectors, [outside], known=known)
    search.add(1, [outside], around(0))
    entry = make_entry(search)
    machine = entry.senses.names.index("machine")
    assert entry.senses.counts[machine].tolist() == [1, 8]
    assert [entry.usages[usage].date for usage in entry.first_usages(entry.chosen, machine)][0] == "1700"


def test_a_usage_outside_the_sample_that_is_far_from_all_senses_is_no_first_attestation():
    usages, vectors = usages_of([0] * 8, [1] * 8)
    outside = [Usage("1800", f"{year} plane", 5, 10, str(year)) for year in (1700, 1710)]
    search = Search(usages, vectors, outside, known=known_of([0] * 5 + [1] * 5, ["level", "machine"]))
    search.add(2, outside, np.stack([10 * np.array([-1, -1, 0, 0, 0, 0]), CENTRES[0]]))
    entry = make_entry(search)
    first = {
        name: entry.usages[entry.first_usages(entry.chosen, sense)[0]].date
        for sense, name in enumerate(entry.senses.names)
        if entry.first_usages(entry.chosen, sense)
    }
    assert first["none of these"] == "1700" and first["level"] == "1710"
