"""Logs of several ranks that were put into one text, one below the other under titles, read as if each line bore its rank.

    ==> logs/rank_0.log <==            tail and head over several files
    ===== rank 1 =====                 whoever pastes them by hand; `### rank 1`, `rank 1:`
    $ cat rank_2.log

A line of a program's own may look like a title that was made by hand: those count only where each rank has one, with lines
below it of which none bears another rank.
"""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.ingest.files.naming import rank_of_log
from hangscope.ingest.lines.titles import ranks_titled
from hangscope.regex import regex

_LONGEST = 320  # bytes of a title
_LEAST = 2  # titles made by hand
_FILE = regex(r"==> (.{1,300}) <==$")
_BY_HAND = regex(r"^[^\w\s]{2}|^# |^\$ |[:：]\W{0,3}$")
_BEARS = regex(rb"\[rank(\d{1,7})\]|\[default\d{1,6}\]:")
#: by a process: `[rank1]: Traceback (most recent call last):`
_PRINTED = regex(rb"[ \t]{0,8}\[(?:rank|default)\d{1,7}\]:[ \t]{0,8}\S")
#: of launchers, who speak of all ranks; what stands below them is nobody's own
_LAUNCHERS = regex(rb"torch[./]distributed[./](?:elastic|launcher|run\b)|slurmstepd: |srun: |mpirun ")


class Sections:
    """Puts the rank of its section in front of each line that has none, block by block; a text without titles stays as it is."""

    def __init__(self) -> None:
        self._head = b""  # what a line of the section gets
        self._titled: bool | None = None

    def block(self, data: bytes) -> bytes:
        """Return a block of whole lines with the ranks of its sections."""
        if self._titled is None:
            self._titled = b"\n" in data and _is_titled(data.split(b"\n"))
        if not self._titled:
            return data
        return b"\n".join(map(self._line, data.split(b"\n")))

    def _line(self, line: bytes) -> bytes:
        title = _title(line)
        if title is not None:
            self._head = title
        elif _LAUNCHERS.search(line):
            self._head = b""
        elif self._head and line.strip() and not _BEARS.search(line):
            return self._head + line
        return line


def _title(line: bytes) -> bytes | None:
    """Return what the lines below a title get in front: nothing below that of a file of no rank. None: it is no title."""
    if len(line) > _LONGEST or not (line.startswith(b"==> ") or b"ank" in line):
        return None
    if _PRINTED.match(line):
        return None
    text = line.decode("utf-8", "replace").strip()
    if file := _FILE.match(text):
        rank, local = rank_of_log(file[1])
        return b"[rank%d]: " % rank if rank is not None else b"" if local is None else b"[default%d]:" % local
    ranks = ranks_titled(text) if _BY_HAND.search(text) else ()
    return b"[rank%d]: " % ranks[0] if len(ranks) == 1 else None


def _is_titled(lines: Sequence[bytes]) -> bool:
    """Return whether titles tell whose the lines below them are: one of tail's, or each rank's own that was made by hand."""
    titles, below, head, bears = list[bytes](), 0, b"", False
    empty = False
    if not any(line.startswith(b"==> ") or (b"ank" in line and len(line) <= _LONGEST) for line in lines):
        return False
    for line in lines:
        title = _title(line)
        if title is None:
            below += bool(line.strip())
            own = _BEARS.search(line) if head else None
            bears = bears or (own is not None and own[1] is not None and head != b"[rank%s]: " % own[1])
            continue
        if title and line.startswith(b"==> "):
            return True
        empty = empty or (bool(titles) and not below)
        titles.append(title)
        head, below = title, 0
    return (
        len(titles) >= _LEAST and len(set(titles)) == len(titles) and not bears and not empty and bool(below)
    )
