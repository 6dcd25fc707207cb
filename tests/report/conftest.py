"""One browser for all tests of the page, and the pages of the samples as files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangscope.report.html.render import render_html
from tests.report.chromium import Browser, find_chromium
from tests.report.samples import HOSTILE, MARKDOWN, document


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    binary = find_chromium()
    if binary is None:
        message = "Chromium is not installed: apt-get install chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    with Browser(binary) as opened:
        yield opened


class Pages(dict[str, Path]):
    """The pages of the samples, each written when a test first asks for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __missing__(self, name: str) -> Path:
        path = self[name] = self.folder / f"{name}.html"
        markdown = HOSTILE if name == "hostile" else MARKDOWN
        path.write_text(render_html(document(name), markdown=markdown), encoding="utf-8")
        return path


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return Pages(tmp_path_factory.mktemp("reports"))
