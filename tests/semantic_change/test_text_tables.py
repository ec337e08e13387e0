"""Tables as text."""

import pandas as pd

from modeling_tempoformer.semantic_change.report import format_table


def test_cells_of_a_table():
    rows = [{"word": "sad", "score": 0.12345, "posts": 3}, {"word": "glad", "score": None, "posts": 12}]
    expected = [["word", "score", "posts"], ["sad", "0.123", "3"], ["glad", "12"]]
    for table in (rows, pd.DataFrame(rows)):
        assert [line.split() for line in format_table(table).split("\n")] == expected


def test_control_characters_cannot_break_a_table_or_reach_a_terminal():
    header, line = format_table([{"a\tb": "a\nb\x1b[31m"}]).split("\n")
    assert header.strip() == r"a\tb" and line.strip() == r"a\nb\x1b[31m"
