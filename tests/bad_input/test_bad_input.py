"""What docs/bad_input.md says is refused is refused, with the error that it says, and nothing else is tested here."""

import re
from pathlib import Path

import pytest
from refused_arguments import CHANGE, CROSS_VALIDATION, GLUE, ROOT, TEMPORAL_MLM
from refused_batches import COLLATOR, FORWARD, PIPELINE, STEP, TEMPORAL, TOKENIZER
from refused_checkpoints import CHECKPOINTS
from refused_files import POST_CASES, TABLES


PAGE = Path(__file__).parents[2] / "docs" / "bad_input.md"
CASES = {
    "Tables": TABLES,
    "Posts": POST_CASES,
    "Rows and batches": COLLATOR,
    "TempoFormer": FORWARD,
    "TempoFormer, post by post": STEP,
    "BERT and RoBERTa with temporal attention": TEMPORAL,
    "Tokenizer": TOKENIZER,
    "Pipeline": PIPELINE,
    "run_glue_style.py": GLUE,
    "run_cross_validation.py": CROSS_VALIDATION,
    "run_temporal_mlm.py": TEMPORAL_MLM,
    "run_semantic_change.py": CHANGE,
    "Saved models": CHECKPOINTS,
}
ROW = re.compile(r"\| (.+) \| `(\w+)` \| ``? ?(.+?) ?`?` \|")


def refusals() -> list[tuple[str, str, str, str]]:
    """The rows of the page: section, what is given, the error and its message."""
    rows, section = [], ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line[3:].strip()
        if match := ROW.fullmatch(line):
            rows.append((section, *match.groups()))
    return rows


def test_the_page_and_the_cases_agree():
    on_page = [(section, given) for section, given, _, _ in refusals()]
    assert len(set(on_page)) == len(on_page)
    assert set(on_page) == {(section, given) for section, cases in CASES.items() for given in cases}


@pytest.mark.parametrize(
    ("section", "given", "error", "message"), refusals(), ids=[f"{row[0]}-{row[1]}" for row in refusals()]
)
def test_it_is_refused_as_the_page_says(tmp_path, monkeypatch, capsys, section, given, error, message):
    monkeypatch.chdir(ROOT)
    with pytest.raises((Exception, SystemExit)) as raised:
        CASES[section][given](tmp_path)
    said = capsys.readouterr().err if raised.type is SystemExit else str(raised.value)
    assert raised.type.__name__ == error
    # An ellipsis stands for anything.
    pattern = ".*".join(re.escape(part) for part in message.split("…"))
    assert re.fullmatch(pattern, " ".join(said.split())), said
