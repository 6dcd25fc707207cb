"""One browser for all tests of the page."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.report.chromium import find_chromium
from tests.report.shown import Samples


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Samples]:
    binary = find_chromium()
    if binary is None:
        message = "Chromium is not installed: apt-get install chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    with Samples(binary, tmp_path_factory.mktemp("reports")) as opened:
        yield opened
