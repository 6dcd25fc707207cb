"""Lines of the job's source around what matters: from tracebacks, and from a folder that the user names.

A path of a stack is looked for under the folder by its longest tail that exists there; nothing outside the folder is read,
and nothing at all unless the user asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from hangscope.report.schema.page import PageFrame, SidePart, Snippet, SnippetLine

AROUND = 3
MAX_BYTES = 4 << 20
_LINE_CHARS = 200


class SourceFolder:
    """A folder of source code, read as text and only below itself."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def lines(self, path: str) -> list[str] | None:
        """Return the lines of a stack's file, or None where the folder has no such file."""
        parts = [p for p in PurePosixPath(path.replace("\\", "/")).parts if p not in ("/", ".", "..")]
        for start in range(len(parts)):
            with suppress(OSError, ValueError):
                found = self._root.joinpath(*parts[start:]).resolve()
                if found.is_relative_to(self._root) and found.is_file() and found.stat().st_size <= MAX_BYTES:
                    return found.read_text(encoding="utf-8", errors="replace").splitlines()
        return None


def snippets(both: Sequence[SidePart], folder: SourceFolder | None) -> tuple[Snippet, ...]:
    """Return the source around the deciding line on each side."""
    result = []
    for side in both:
        frame = telling(side.frames)
        if frame is None or frame.line < 1:
            continue
        label = f"{side.title}: {side.call}" if side.call else side.title
        lines = folder.lines(frame.file) if folder is not None else None
        shown, origin = {frame.line: frame.code} if frame.code else {}, "traceback"
        if lines is not None and frame.line <= len(lines):
            around = range(max(1, frame.line - AROUND), min(len(lines), frame.line + AROUND) + 1)
            shown, origin = {number: lines[number - 1] for number in around}, "source folder"
        if shown:
            found = (SnippetLine(n, text[:_LINE_CHARS], n == frame.line) for n, text in shown.items())
            result.append(Snippet(side.role, frame.file, label, tuple(found), origin))
    return tuple(result)


def telling(frames: Sequence[PageFrame]) -> PageFrame | None:
    """Return the frame of user code that the other side does not have, else the deepest of user code."""
    user = [frame for frame in frames if frame.user]
    return next((frame for frame in user if frame.differs), user[0] if user else None)
