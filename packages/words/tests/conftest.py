import logging

import pytest


@pytest.fixture(autouse=True)
def logs_reach_pytest(monkeypatch):
    monkeypatch.setattr(logging.getLogger("semantic_change"), "propagate", True)
