"""The pages of the samples in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hangscope.report.html.page import render_html
from tests.report.chromium import Browser
from tests.report.samples import HOSTILE, MARKDOWN, document


class Samples(Browser):
    """A browser that shows samples; the page of each is written when a test first asks for it."""

    def __init__(self, binary: str, folder: Path) -> None:
        super().__init__(binary)
        self.folder = folder

    def show(self, name: str, **options: Any) -> None:
        """Open the page of a sample."""
        path = self.folder / f"{name}.html"
        if not path.exists():
            markdown = HOSTILE if name == "hostile" else MARKDOWN
            path.write_text(render_html(document(name), markdown=markdown), encoding="utf-8")
        self.open(path, **options)
