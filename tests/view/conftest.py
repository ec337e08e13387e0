"""The browser of the tests that look at pages."""

import pytest


@pytest.fixture(scope="session")
def browser():
    """One [`Browser`] for all tests."""
    from browser import Browser

    browser = Browser()
    yield browser
    browser.driver.quit()
