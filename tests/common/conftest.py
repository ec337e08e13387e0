"""Registers the markers of the common tests, and marks the tests that are known to fail."""

import pytest
from suite import KNOWN_FAILURES, MARKERS


def pytest_configure(config):
    for name in MARKERS:
        config.addinivalue_line("markers", f"{name}: of the common tests of Transformers")


def pytest_collection_modifyitems(items):
    for item in items:
        for base in item.cls.__mro__ if item.cls else ():
            if reason := KNOWN_FAILURES.get(f"{base.__name__}.{item.name}"):
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
