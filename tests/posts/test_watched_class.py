"""Checks which class a new model watches, and that only the rarest one is called so."""

import logging
from collections import Counter

import pytest

from modeling_tempoformer.posts.model_fields import choose_watched


NAMES = ["implicit", "explicit", "none"]


@pytest.mark.parametrize(
    ("counts", "no_change", "watched"),
    [([5, 20, 70], None, 0), ([5, 20, 70], 2, 0), ([30, 20, 5], 2, 1), ([30, 20, 20], 2, 1)],
)
def test_only_the_rarest_class_is_called_so(counts, no_change, watched, monkeypatch, caplog):
    monkeypatch.setattr(logging.getLogger("modeling_tempoformer"), "propagate", True)
    with caplog.at_level("INFO"):
        assert choose_watched(Counter(dict(enumerate(counts))), NAMES, no_change) == watched
    (message,) = (record.getMessage() for record in caplog.records)
    # Another class is rarer, and is left out by name.
    is_rarest = counts[watched] == min(counts)
    assert NAMES[watched] in message and ("but none" in message) == (not is_rarest)
