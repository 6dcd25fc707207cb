"""Whether anything in an input shows that what a verdict rests on was damaged, by the lines and entries of undamaged inputs.

A line of another job's log in the place of one, a digit that became another, a file under another file's name: each is what some
job may leave. Such an input cannot be told from that of a true incident, and a verdict on it has no damage to speak of. The rule:

    every line and every entry of a dump that the verdict rests on is one that an undamaged input holds, numbers aside

(of a line that holds records of several ranks, as writers to one file leave them, the record that is the evidence)

and where a verdict rests on nothing (that nothing hangs), every line and entry of every file is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Any

import hangscope
from hangscope.ingest.lines.prefixes import pieces
from hangscope.ingest.recorder import safe_pickle

_NUMBER = re.compile(r"-?\b(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|nan|inf|True)\b|-?\d+")

_WRITER = re.compile(r"\[rank\d+\]")


def _form(text: str) -> str:
    """Return a text without its numbers."""
    return _NUMBER.sub("0", text.strip())


def _dump(data: bytes) -> Any:
    """Return a dump's value, or None for what is none."""
    if data[:1] not in (b"{", b"[", b"\x80"):
        return None
    try:
        return json.loads(data) if data[:1] != b"\x80" else safe_pickle.load(data)
    except Exception:  # cut, or no dump after all
        return None


def _entries(value: Any) -> Iterator[Any]:
    """Yield the parts of a dump: each entry, each group's status, and what else stands at its top."""
    if not isinstance(value, dict):
        yield value
        return
    for key, part in value.items():
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else (part,)
        yield from ((key, item) for item in inner)


def forms(data: bytes) -> Iterator[str]:
    """Yield the form of each entry of a dump, or of each line of anything else."""
    value = _dump(data)
    if value is not None:
        yield from (_form(repr(part)) for part in _entries(value))
    else:
        yield from map(_form, data.decode("utf-8", "replace").splitlines())


class WholeLines:
    """The lines and entries of undamaged inputs, which are read when they are first asked for."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = tuple(folders)
        self._known: set[str] | None = None

    def carry(self, report: hangscope.Report, folder: Path) -> bool:
        """Return whether every line and entry that a report rests on is one of them."""
        verdict = report.verdict
        told = [item for item in verdict.evidence if item.stance == "for"] if verdict is not None else []
        records = {_form(item.text) for item in told}
        sources = {(item.source.file, item.source.line) for item in told if item.source is not None}
        if not sources:
            return all(self._holds(path) for path in folder.rglob("*") if path.is_file())
        # What is told of a log as a whole follows from those of its lines that are evidence as well.
        by_line = {file for file, line in sources if line is not None}
        sources = {(file, line) for file, line in sources if line is not None or file not in by_line}
        return all(self._holds(folder / file, line, records) for file, line in sources)

    def _holds(self, path: Path, line: int | None = None, records: Container[str] = ()) -> bool:
        """Return whether one line of a file is known, or that of `records` which it holds beside another rank's, or all of the file."""
        if not path.is_file():
            return False  # within an archive
        data = path.read_bytes()
        if line is not None and _dump(data) is None:
            lines = data.split(b"\n")
            text = b"".join(lines[line - 1 : line])
            parts = pieces(text.decode("utf-8", "replace"))
            writers = {found[0] for part in parts if (found := _WRITER.search(part))}
            beside = [form for form in map(_form, parts) if form in records] if len(writers) > 1 else []
            return line <= len(lines) and all(form in self._all() for form in beside or forms(text))
        return all(form in self._all() for form in forms(data))

    def _all(self) -> set[str]:
        if self._known is None:
            files = (path for folder in self._folders for path in folder.rglob("*") if path.is_file())
            self._known = {"", *(form for path in files for form in forms(path.read_bytes()))}
        return self._known
