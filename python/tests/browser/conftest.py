"""One browser for all pages; without Chromium every test here is skipped, with that reason."""

from collections.abc import Iterator

import pytest

import chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[chromium.Browser]:
    if not chromium.find():
        pytest.skip("no Chromium on this machine")
    one = chromium.Browser()
    yield one
    one.close()
