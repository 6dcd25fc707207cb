"""A finished analysis as the library hands it out: its verdict, its table, and its written forms."""

from __future__ import annotations

import os
from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hangscope.errors import Note

if TYPE_CHECKING:
    import pandas as pd

    from hangscope.analysis import Analysis
    from hangscope.report.schema.document import Document, VerdictPart


class Report:
    """One analysis: its status, its verdict, its table, and its written forms."""

    def __init__(
        self,
        document: Document,
        analysis: Analysis | None = None,
        *,
        full_table: bool = False,
        redacted: Collection[str] = (),
    ) -> None:
        self.document, self._full_table, self._redacted = document, full_table, redacted
        #: What the report was made from; None for a report from another process or a file.
        self.analysis = analysis

    @property
    def status(self) -> str:
        """Return `hang`, `no_hang` or `inconclusive`."""
        return self.document.status

    @property
    def verdict(self) -> VerdictPart | None:
        """Return the verdict, or None where nothing is named."""
        return self.document.verdict

    @property
    def warnings(self) -> list[Note]:
        """Return what could not be read or does not fit, each with the file and the reason."""
        return [Note(w.code, w.message, w.file, w.line, w.hint) for w in self.document.warnings]

    @cached_property
    def table(self) -> pd.DataFrame:
        """Return the collective-sequence table: one row per (rank, group, call); see `hangscope.export.frame`."""
        from hangscope.export.frame import build_table

        table = build_table(self.analysis, full=self._full_table)
        if self._redacted:
            from hangscope.report.masking.redaction import Redaction

            files = [str(file) for file in table["file"].cat.categories]
            redaction = Redaction(files, self._redacted)
            hidden = {file: redaction.text(file) for file in files}
            table["file"] = table["file"].map(hidden).astype("category")
        return table

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data (schema `hangscope.report/1`)."""
        from hangscope.report.json import report_data

        return report_data(self.document)

    def to_json(self) -> str:
        """Return the JSON report."""
        from hangscope.report.json import render_json

        return render_json(self.document)

    def to_markdown(self, dialect: str = "markdown") -> str:
        """Return the report for a ticket: GitHub's `markdown`, `gitlab`, `jira` or `slack`."""
        from hangscope.report.markdown import render_markdown

        return render_markdown(self.document, dialect)

    def to_text(self, *, color: bool = False, width: int | None = None, verbose: bool = False) -> str:
        """Return the report for a terminal of `width` columns."""
        from hangscope.report.text import render_text

        return render_text(self.document, color=color, width=width, verbose=verbose)

    def to_brief(self, max_bytes: int = 16_000) -> str:
        """Return what is needed to check the verdict, in at most so many bytes of UTF-8: see `hangscope brief`."""
        from hangscope.export.brief import render_brief

        return render_brief(self.document, None if self._redacted else self.analysis, max_bytes)

    def to_html(self) -> str:
        """Return the report as one self-contained HTML page."""
        from hangscope.report.html.page import render_html

        return render_html(self.document, markdown=self.to_markdown())

    def __repr__(self) -> str:
        """Return the answer in one line."""
        return f"<hangscope.Report {self.status}: {self.document.title}>"

    def _repr_html_(self) -> str:
        """Return the page for a notebook's cell, in a frame that runs no script of the notebook's own."""
        from html import escape

        return f'<iframe sandbox="allow-scripts" width="100%" height="720" srcdoc="{escape(self.to_html())}"></iframe>'

    def write_html(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the HTML page to `path`.

        The file is complete or not written at all. A file that is not a report of hangscope is not overwritten without `force`; a device or a pipe is written to. Raises UsageError if it refuses, OSError where it cannot be
        written.
        """
        from hangscope.export.output import write_report

        write_report(Path(path), self.to_html(), force=force)
