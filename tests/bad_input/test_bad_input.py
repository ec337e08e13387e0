"""
Checks input that is refused. Each case has the input, the words that the message must contain (the position and the
value, not the sentence), and the error's type if it is not a `ValueError`.
"""

import re

import pytest
from refused_batches import COLLATOR, FORWARD, PIPELINE, STEP, TEMPORAL
from refused_files import POST_CASES, TABLES, TEXTS


CASES = {
    "tables": TABLES,
    "posts": POST_CASES,
    "texts": TEXTS,
    "collator": COLLATOR,
    "tempoformer": FORWARD,
    "step": STEP,
    "temporal": TEMPORAL,
    "pipeline": PIPELINE,
}


def assert_named(named: str, error: Exception):
    """Checks that the message has these words in this order. An ellipsis stands for any text."""
    pattern = ".*".join(re.escape(part) for part in named.split("…"))
    assert re.search(pattern, " ".join(str(error).split())), str(error)


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=f"{where}-{given}") for where, cases in CASES.items() for given, case in cases.items()],
)
def test_it_is_refused(tmp_path, case):
    give, named, error = (*case, "ValueError")[:3]
    with pytest.raises(Exception) as raised:
        give(tmp_path)
    assert raised.type.__name__ == error
    assert_named(named, raised.value)
