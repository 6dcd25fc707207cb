"""How each process ended, as scripts around a job print it, one line for each.

    rank 1 exited with code 0
    Process 1 exit code: 0
    [rank 2] (pid 812) returned with status 1
    exit code of worker 3: 137
    2026-03-02 10:00:18 launcher: task 2 (pid 812) killed by signal 9 (SIGKILL)

The number of a rank is the rank. What counts processes or workers counts the ranks where there is one line for each from 0 on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hangscope.ingest.job_logs.endings import Exit
from hangscope.ingest.lines.prefixes import Line, strip_prefix
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.regex import regex

_LEAST, _MOST = 2, 4096  # processes that are counted
_CUT = 1000  # bytes of a line
_WORDS = (b"exit", b"return", b"code", b"status", b"rc ", b"rc:", b"rc=", b"signal")
_WHO = r"(?<!local )\b(?:rank[ :=#_-]{0,2}(\d{1,7})|(?:process|proc|worker|child|trainer|task)[ :=#_-]{0,2}(\d{1,4}))"
_PID = r"(?:[\])]?,? ?[(\[]?pid[ :=]{1,2}(\d{1,9})[)\]]?)?"
_CODE = r"(?:(?:exit|return)[ _-]?)?(?:code|status)|rc"
_SAYS = (
    rf"(?:(?:exit(?:s|ed)?|returned|finished|ended|terminated|died|stopped|left|quit)(?: with)?(?: an?)? (?:{_CODE})"
    rf"|exit(?:s|ed)?(?: with)?|{_CODE})"
)
_KILLED = r"(?:(?:was |got |has been )?(?:killed|terminated|ended|stopped|died|exited)(?: by| with| on| of| from)?,? )?signal"
_NUMBER = r"(-?\d{1,3})(?: \(SIG[A-Z]{1,8}\))?\W{0,3}$"
_LINE = regex(
    rf"^(?!srun:|slurmstepd)(?:\S{{1,60}} ){{0,4}}?\W{{0,3}}{_WHO}{_PID}[\s:,=>\])-]{{1,5}}(?:process )?(?:has |was |is )?"
    rf"(?:{_SAYS}|({_KILLED}))[\s:=(]{{1,4}}{_NUMBER}",
    re.IGNORECASE,
)
_OF = regex(
    rf"\b(?:{_CODE}) (?:of|from|for) {_WHO}{_PID}()[\s:=]{{1,4}}(?:is |was )?{_NUMBER}", re.IGNORECASE
)


def of_one(text: str) -> re.Match[str] | None:
    """Return what matches where a line tells how one process of several ended: (rank, number, process id, what tells of a signal, code)."""
    return _LINE.match(text) or _OF.search(text)


def _candidates(first: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (number, line) of the lines that hold a word for an end."""
    lower, starts = data.lower(), set[int]()
    for word in _WORDS:
        at = lower.find(word)
        while at >= 0:
            starts.add(lower.rfind(b"\n", 0, at) + 1)
            at = lower.find(word, end) if (end := lower.find(b"\n", at)) >= 0 else -1
    counted, number = 0, first
    for start in sorted(starts):
        number += data.count(b"\n", counted, start)
        counted = start
        raw = data[start : start + _CUT + 1].split(b"\n", 1)[0]
        if len(raw) <= _CUT:
            yield number, raw


def exit_events(windows: Sequence[tuple[int, bytes]], file: str) -> list[Exit]:
    """Return the ends that the end of a text tells; `windows` are (number of the first line, bytes) as `Scan` keeps them."""
    first, data = windows[-1] if windows else (1, b"")
    ends, counted = list[Exit](), dict[int, tuple[Line, int, int | None]]()
    for number, raw in _candidates(first, data):
        line = strip_prefix(raw.decode("utf-8", "replace"), number, file)
        match = of_one(line.text) if line.source is None else None
        if match is None:
            continue
        rank, process, pid = (int(n) if n else None for n in match.groups()[:3])
        code = -abs(int(match.group(5))) if match.group(4) else int(match.group(5))
        if rank is not None and rank < MAX_RANKS and len(ends) < _MOST:
            ends.append(Exit.of(line, code=code, rank=rank, pid=pid, via="script"))
        elif process is not None and len(counted) < _MOST:
            counted[process] = (line, code, pid)
    if len(counted) >= _LEAST and set(counted) == set(range(len(counted))):
        ends += [
            Exit.of(line, code=code, task=n, pid=pid, via="script")
            for n, (line, code, pid) in counted.items()
        ]
    return ends
