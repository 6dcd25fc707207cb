"""What the end of a text tells of a job that ended well, or of a server that answers.

    [launch.sh] torchrun exit code: 0, elapsed 00:41:13
    srun: job 812 step 0 completed, all 16 tasks exited with exit code 0
    INFO 02-26 11:43:10 [loggers.py:123] Engine 000: Avg prompt throughput: 12.4 tokens/s, Avg generation throughput: 211.0 tokens/s, Running: 6 reqs
    INFO:     10.8.0.4:51020 - "POST /v1/completions HTTP/1.1" 200 OK

(Scripts around a job; vllm/v1/metrics/loggers.py; sglang/srt/managers/scheduler.py; uvicorn's access log.) Whoever writes that a
job hangs saw what no line shows: beside such words these lines count for nothing.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hangscope.ingest.job_logs.endings import WorkersEnded
from hangscope.ingest.lines.prefixes import Line, strip_prefix
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex


@dataclass(frozen=True, slots=True, kw_only=True)
class Served(Event, same_by=("well",), by_launcher=True, calm=True):
    """The last line of an inference server's load: it generates or answered (`well`), or holds requests and generates nothing."""

    well: bool


_CUT = 1000
_MOST = 4096  # lines that are looked at, from the end back
_CANDIDATE = regex(
    rb"[Ee]xit|EXIT|eturned|nded|inished|erminated|ompleted|throughput|HTTP/1|broadcast block|[Nn]o progress"
)
_ZERO = r"(?:with )?(?:an? )?(?:exit )?(?:(?:codes?|status(?:es)?) ?[:=]? ?)?(?:0|\[0(?:, ?0){0,200}\])"
_ENDED = (
    r"(?:workers|ranks|processes|procs|tasks|pods) (?:have )?(?:exited|returned|ended|finished|terminated|completed)[,:]? "
    rf"(?:{_ZERO}|cleanly|successfully|normally)\W{{0,3}}$"
)
_ALL = regex(rf"(?i)\b(?:all (?:\d{{1,7}} )?|(?<![\d./])(\d{{1,7}}) ?(?:/|of|out of) ?(\d{{1,7}}) ){_ENDED}")
_CODE = r"(?:exit(?:ed)?(?: with)?[ _](?:code|status)(?: ?[:=] ?| )|exited(?: with)? |rc ?[:=] ?)0(?: on [\w.-]{1,100})?"
_SCRIPT = regex(
    rf"(?i)^[\[(+]?(?:[\[\w./-]{{1,60}}[\]:,]{{0,2}} ){{0,4}}{_CODE}(?:, {_CODE}){{0,64}}"
    r"(?:,? (?:elapsed|after|in|took) [^,]{1,40})?[\])]?$"
)
_OF_ONE = regex(
    r"(?i)\b(?:rank|proc(?:ess)?|worker|child|trainer|task)[ :=#_-]{0,2}\d"
)  # of several, one ended so
_LAUNCHER = regex(r"\b(?:torchrun|srun|mpirun|mpiexec|deepspeed|accelerate)\b")
_LOAD = regex(r"Avg generation throughput: (\d{1,9}(?:\.\d{1,9})?) tokens/s, Running: (\d{1,9}) req")
_DECODED = regex(
    r"Decode batch.{0,300}gen throughput \(token/s\): (\d{1,9}(?:\.\d{1,9})?)[^\"]{0,200}$"
)  # whole: no server prints quotes
_WAITS = regex(r"No available shared memory broadcast block|(?i:\bno progress (?:for|in|within|since)\b)")
_ANSWERED = regex(r"\"POST /\S{1,200} HTTP/1\.\d\" 200\b")
#: what people write of a job that stands
_STANDS = regex(
    rb"(?i)\b(?:hang(?:s|ing)?|hung|stuck|fr[eo]ezes?|froze|frozen|stall(?:s|ed)?|deadlock(?:s|ed)?|unresponsive"
    rb"|never (?:returns?|ends|finish(?:es)?|exits?|comes?)|no (?:more )?(?:output|progress|response)"
    rb"|not (?:respond|return|exit|finish|end|terminate))\b"
)
_NOT_SO = regex(
    r"(?i)\b(?:not|never|no|without)\W{1,3}(?:\w{1,10}\W)?(?:hang|hung|stuck|fr[eo]ez|froz|stall|deadlock)|n't hang"
)
_LOGGED = regex(r"\b(?:INFO|WARN|WARNING|ERROR|DEBUG|NCCL|export|env)\b|^\s*\w{1,60}\s{0,2}[=:]\s{0,2}\S+$")


def good_ends(windows: Sequence[tuple[int, bytes]], file: str) -> list[Event]:
    """Return the last line of a script that tells of a good end, and a server's last of its load; nothing where somebody says that it stands.

    `windows` are (number of the first line, bytes) as `Scan` keeps them.
    """
    if not windows:
        return []
    first, data = windows[-1]
    found: dict[str, Event] = {}
    for start, raw in _lines(_CANDIDATE, data):
        line = strip_prefix(raw.decode("utf-8", "replace"), 0, file)
        event = _end(line) or _served(line)
        if event is not None:
            found.setdefault(event.kind, replace(event, line=first + data.count(b"\n", 0, start)))
        if len(found) > 1:
            break
    if not found or any(_says_so(raw) for _, raw in _lines(_STANDS, data)):
        return []
    return [found[kind] for kind in sorted(found)]


def _lines(words: re.Pattern[bytes], data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (where it starts, line) of the last lines that hold one of the words, the last first."""
    before = len(data) + 1
    for match in reversed(deque(words.finditer(data), maxlen=_MOST)):
        if match.start() >= before:
            continue
        low = max(0, match.start() - _CUT)
        before = (
            max(data.rfind(b"\n", low, match.start()), data.rfind(b"\r", low, match.start()), low - 1) + 1
        )
        yield before, data[before : match.end() + _CUT].splitlines()[0]


def _end(line: Line) -> WorkersEnded | None:
    all_of_them = _ALL.search(line.text)
    if all_of_them is not None and all_of_them[1] == all_of_them[2]:
        return line.event(WorkersEnded, everywhere=True, of_a_script=True)
    if not _SCRIPT.match(line.text) or _OF_ONE.search(line.text):
        return None
    # a launcher ends with 0 where all its workers did
    return line.event(WorkersEnded, everywhere=_LAUNCHER.search(line.text) is not None, of_a_script=True)


def _served(line: Line) -> Served | None:
    load = _LOAD.search(line.text)
    if load is not None:
        busy = float(load[1]) > 0
        return line.event(Served, well=busy) if busy or int(load[2]) else None
    decoded = _DECODED.search(line.text)
    if decoded is not None:
        return line.event(Served, well=float(decoded[1]) > 0)
    if _WAITS.search(line.text):
        return line.event(Served, well=False)
    return line.event(Served, well=True) if _ANSWERED.search(line.text) else None


def _says_so(raw: bytes) -> bool:
    """Return whether somebody says in a line that the job stands, and no program that it might."""
    line = strip_prefix(raw.decode("utf-8", "replace"), 0, "")
    prefixed = (line.source, line.level, line.rank, line.host, line.time, line.stamp) != (None,) * 6
    return not prefixed and not _LOGGED.search(line.raw) and not _NOT_SO.search(line.raw)
