"""The last lines that a rank's own program printed, numbers masked, so that ranks can be compared by what they print.

    model ready in # s
    batch # fetched, tokens #
    forward # done loss #

What the communication layer, launchers and tracebacks print is left out, and so are progress bars: what is left is the
program's own course, as far as it tells of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangscope.dataclass import dataclass
from hangscope.events import Event
from hangscope.ingest.job_logs.own_rank import by_itself, counts_ranks
from hangscope.ingest.lines.prefixes import Line, clean, strip_prefix
from hangscope.regex import regex

KEPT = 40
_SHOWN, _WIDTH = 8, 200  # lines of a log's end, and characters of each, that a report shows
_LONGEST = 120
_LOOKED_AT = 1 << 14  # bytes before an error, or before the end
_NUMBER = regex(r"-?\d[\d.,:]*(?:e[+-]?\d{1,3})?|\bnan\b|\binf\b|\b0x[0-9a-f]+\b", re.IGNORECASE)
_NOT_ITS_OWN = regex(
    r"Traceback|Error\b|Exception\b|Warning\b|warnings\.warn|^\s|^\^|\[[EWIF]\d{3,4} |NCCL |gloo|c10d|torch\.distributed|elastic|"
    r"Watchdog|watchdog|\.(?:cpp|cc|hpp):\d|^[-=*#]{5,}|^Thread 0x|^Current thread|\d%\|"
)
#: an announcement of work, or a bar of examples or bytes before its end: bars of steps end in the middle wherever a job does
_ANNOUNCES = ("...", "…")
_BAR = regex(r"\b\d{1,2}%\|.{0,100}(?:examples|\d[kKMGT]?i?B)/s\]$")
_WAITS = regex(r"(?i)\bwait|barrier|\bsync|\bjoin|(?:all|reduce|broadcast|gather|scatter)_")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedTail(Event, kind="printed", calm=True):
    """The last lines of one log that are the program's own, the oldest first, numbers masked as `#` and without its rank.

    `at_work`: the last of them, or a bar behind it, tells of work of the rank's own that is not over.
    """

    lines: tuple[str, ...]
    at_work: bool = False


def last_lines(windows: Sequence[tuple[int, bytes]]) -> tuple[str, ...]:
    """Return the last lines of a log as they stand, but for empty ones and all but the last state of a progress bar."""
    if not windows:
        return ()
    lines = []
    for raw in reversed(windows[-1][1][-_LOOKED_AT:].split(b"\n")):
        shown = clean(
            raw.rstrip(b"\r").rpartition(b"\r")[2][: 4 * _WIDTH].decode("utf-8", "replace")
        ).rstrip()
        if shown:
            lines.append(shown if len(shown) <= _WIDTH else shown[: _WIDTH - 1] + "…")
        if len(lines) == _SHOWN:
            break
    return tuple(reversed(lines))


def printed_tail(windows: Sequence[tuple[int, bytes]], file: str) -> list[PrintedTail]:
    """Return the last lines that each writer of a log printed before its first error: of several only those whose rank is told.

    `windows` are (number of the first line, bytes) as `Scan` keeps them.
    """
    if not windows:
        return []
    number, data = windows[0]
    cut = data[-_LOOKED_AT:] if len(data) > _LOOKED_AT else data
    first = number + data.count(b"\n", 0, len(data) - len(cut))
    bare = counts_ranks(windows)
    own: dict[int | None, list[str]] = {}
    last: dict[int | None, Line] = {}
    writers: set[str] = set()
    at_work: set[int | None] = set()
    for offset, raw in enumerate(cut.split(b"\n")):
        if not raw.strip():
            continue
        head, *states = raw.rstrip(b"\r").split(b"\r")
        bar = _BAR.search((states[-1] if states else raw)[-1000:].decode("utf-8", "replace").rstrip())
        if states and bar is None:
            continue
        line = by_itself(strip_prefix(head[:1000].decode("utf-8", "replace"), first + offset, file), bare)
        if line.source is not None or (bar is None and _NOT_ITS_OWN.search(line.text)):
            continue
        if line.origin:
            writers.add(line.origin)
        own.setdefault(line.rank, []).append(_NUMBER.sub("#", line.text)[:_LONGEST].strip())
        last[line.rank] = line
        announces = line.text.endswith(_ANNOUNCES) and not _WAITS.search(line.text)
        (at_work.add if bar or announces else at_work.discard)(line.rank)
    if len(writers) > 1:
        own.pop(None, None)
    return [
        last[rank].event(PrintedTail, lines=tuple(lines[-KEPT:]), at_work=rank in at_work)
        for rank, lines in own.items()
        if len(lines) > 1 or rank in at_work
    ]
