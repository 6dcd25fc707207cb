"""Which rank a process id is, as launchers, programs and people write it when they start it or look for it.

    launcher: started rank 6 pid 41206
    pid 41206 -> rank 6;  rank=6 pid=41206;  Rank 6 (host b2) runs as PID 41206
    [rank6]: pid 41206
    (RayTrainWorker pid=41206, ip=10.0.0.6) [rank6]: loaded

Only words of starting and being may stand between the two: what was done to a process is another thing. A local rank is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hangscope.ingest.job_logs.launchers.deepspeed import Spawned
from hangscope.ingest.lines.prefixes import Line, strip_prefix
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.regex import regex

_MOST = 4096  # process ids of one text
_CUT = 1000  # bytes of a line
_SIGNS = (b"pid", b"Pid", b"PID", b"rocess id")  # without which no line speaks of one
_MENTION = regex(rb"[Pp]id\b|PID\b|rocess id\b")
_RANK = r"(?<![\w-])(?:global[ _-]?|world[ _-]?)?rank[\s:=#]{0,3}(\d{1,7})(?![\w.])"
_PID = r"\b(?:os\.)?(?:pid|process[ _]id)[\s:=#]{0,3}(\d{2,9})(?![\w.])"
_HOST = r"(?:[(@]? ?(?:on|host|node)[ :=]{1,2}(?:(?:host|node) )?[\w.-]{1,100}[\s,;)]{1,3})?"
_BETWEEN = (
    rf"[\s:=,;|/()\[\]<>-]{{0,5}}{_HOST}"
    r"(?:(?:is|has|as|with|runs?|running|started|spawned|launched|process|worker|the|its)[\s:=,;(\[>-]{1,4}){0,4}"
)
_TOLD = regex(rf"{_RANK}{_BETWEEN}{_PID}|{_PID}{_BETWEEN}{_RANK}", re.IGNORECASE)
_LOCAL = regex(r"(?:local|node|group|machine)[ _-]{0,2}rank", re.IGNORECASE)
_OWN = regex(
    rf"^\W{{0,3}}(?:my |own |running (?:as|with) |started (?:as|with) )?{_PID}\s{{0,3}}(?:$|[,;)\]])",
    re.IGNORECASE,
)


def process_events(parts: Sequence[tuple[int, bytes]], file: str) -> list[Spawned]:
    """Return the processes that the parts of a log tell of: its beginning and its windows, as (number of the first line, bytes).

    Ids stand on every line of some logs, so no more than these is read. Each process is told once.
    """
    found: dict[tuple[int, int], Spawned] = {}
    for first, data in parts:
        counted, number = 0, first
        for start, raw in _lines(data):
            number += data.count(b"\n", counted, start)
            counted = start
            line = strip_prefix(raw.decode("utf-8", "replace"), number, file)
            told = _process(line)
            if told is not None and told[0] < MAX_RANKS and len(found) < _MOST:
                found.setdefault(told, line.event(Spawned, rank=told[0], pid=told[1]))
    return list(found.values())


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (where it starts, line) of the lines that speak of a process id and of a rank."""
    behind = 0
    if not any(sign in data for sign in _SIGNS):
        return
    for match in _MENTION.finditer(data):
        if match.start() < behind:
            continue
        start = data.rfind(b"\n", behind, match.start()) + 1 or behind
        end = data.find(b"\n", match.end())
        behind = end if end >= 0 else len(data)
        raw = data[start:behind]
        if len(raw) <= _CUT and (b"ank" in raw or b"ANK" in raw):
            yield start, raw


def _process(line: Line) -> tuple[int, int] | None:
    """Return (rank, process id) of a line that tells both."""
    if line.rank is not None:
        own = _OWN.match(line.text)
        number = int(own[1]) if own else line.pid
        return None if number is None or line.source is not None else (line.rank, number)
    match = _TOLD.search(line.text) if not _LOCAL.search(line.text) else None
    if match is None:
        return None
    rank, pid, other, its_rank = match.groups()
    return (int(rank), int(pid)) if rank is not None else (int(its_rank), int(other))
