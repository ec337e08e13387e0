"""
Input that is refused: each case has what is given, what the message must name (the place and the value, not its
sentence), and the error's type where it is no `ValueError`.
"""

import re

import pytest
from helpers import ROOT
from refused_arguments import BASELINE, CHANGE, CROSS_VALIDATION, GLUE, TEMPORAL_MLM
from refused_batches import COLLATOR, FORWARD, PIPELINE, STEP, TEMPORAL, TOKENIZER
from refused_checkpoints import CHECKPOINTS
from refused_files import POST_CASES, TABLES


CASES = {
    "tables": TABLES,
    "posts": POST_CASES,
    "collator": COLLATOR,
    "tempoformer": FORWARD,
    "step": STEP,
    "temporal": TEMPORAL,
    "tokenizer": TOKENIZER,
    "pipeline": PIPELINE,
    "run_glue_style": GLUE,
    "run_baseline": BASELINE,
    "run_cross_validation": CROSS_VALIDATION,
    "run_temporal_mlm": TEMPORAL_MLM,
    "run_semantic_change": CHANGE,
    "checkpoints": CHECKPOINTS,
}


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=f"{where}-{given}") for where, cases in CASES.items() for given, case in cases.items()],
)
def test_it_is_refused(tmp_path, monkeypatch, capsys, case):
    give, named, error = (*case, "ValueError")[:3]
    monkeypatch.chdir(ROOT)
    with pytest.raises((Exception, SystemExit)) as raised:
        give(tmp_path)
    said = capsys.readouterr().err if raised.type is SystemExit else str(raised.value)
    assert raised.type.__name__ == error
    # An ellipsis stands for anything.
    pattern = ".*".join(re.escape(part) for part in named.split("…"))
    assert re.search(pattern, " ".join(said.split())), said
