"""Lines that a terminal broke, a quote marked or a page numbered, put back as they were printed.

A paste of a terminal of 116 columns holds `NumelIn=112` and on the next line `4, NumelOut=1124`. A line that does not begin
like one is joined with the one before it only where the join completes a form that is known, or where the lines before the breaks are as wide as the terminal and no other line is wider, so nothing is joined on
suspicion. Line numbers stay those of the paste: a joined line has the number of its first part, and empty lines stand for the
others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container
from itertools import pairwise

from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex

LIMIT = 1 << 18  # bytes; no paste is longer, and what is longer is read as it is
_WIDTH = 400  # of a terminal, in characters
_NARROW = 20
_PARTS = 16  # of one line
_FULL = 0.75  # of the width that a broken line fills at least, where it is broken between words
_INDENT = "    "
_NUMBERED = 3  # lines that must be numbered on end before numbers are taken for those of a page

_TERMINAL = 60  # characters, of the narrowest terminal that is looked for by its edge
_EDGES = 2  # lines that reach the edge
_MOST_FULL = 0.8  # of them that go on in the next line
_TASK = regex(r"^ {0,6}\d{1,7}: ")
_TABLE = regex(r"^\s*[|+│├╭╰└=*#-]|[|+│┤╮╯┘]\s*$")

_WRITERS = 0.9  # of the lines that begin with a writer's name, where a collector put it before each

_WRITER = regex(
    r" {0,6}(?:\[[^\]\s]{1,100}\]|[\w.-]{1,100}(?::| {1,20}\|)|[\w.-]{1,100} \[std(?:out|err)\])(?= |$)"
)
_QUOTE = regex(r"^(?:>[ >]{0,8})(?=\S|$)|^(?:>[ >]{0,8}) ")
_POSITION = regex(r"(?: {1,400})?\[\d{1,6}/\d{1,6}\]$")
_NUMBER = regex(r"^ {0,6}(\d{1,7})(?:[:|\t] ?| {1,4})")
#: What a line of a job begins with: such a line is never the rest of another.
_BEGINS = regex(
    r"\s{0,4}(?:\[rank\d|\[(?:default|trainer)\d|\[[EWIF]\d{3,4} |\[[EWIF] \w|[EWIF]\d{4} \d\d:|\[\d{1,9},\d{1,7}\]|\d{4}-\d\d-\d\d|"
    r"\[\d{4}-\d\d-\d\d|Traceback |File \"|\(\w{1,60} (?:pid|rank)=|(?:[\w./-]{1,200}\.(?:log|txt|out|err):)?[\w.-]{1,100}:\d{1,10}:\d{1,10} \[|\[-?\d{1,5}\] NCCL |terminate called|"
    r"slurmstepd: |srun: |```|#\d{1,4} |Thread (?:0x|\d)|Current thread 0x|Process \d{1,9}: |[\w.]{1,100}(?:Error|Exception): )"
)
#: Forms that are long enough to be broken, as a pair: a word that must stand in the joined text, and the whole form.
_FORMS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (word, regex(pattern))
    for word, pattern in (
        ("before timing out", r"Watchdog caught collective operation timeout: Work[A-Z]{3,6}\([^()]{0,300}Timeout\(ms\)=\d{1,12}\) ran for \d{1,12} milliseconds before timing out"),
        ("last completed ", r"(?:Timeout at NCCL work|detected by watchdog at work)[^\n]{0,300} last completed (?:NCCL )?work: -?\d{1,18}"),
        ("is running ", r"Rank \d{1,7} is running (?:inconsistent )?collective: CollectiveFingerPrint\([^\n]{0,1200}, but Rank \d{1,7} is running collective: CollectiveFingerPrint\([^\n]{10,1200}\)\."),
        ("Running collective", r"Running collective: CollectiveFingerPrint\(SequenceNumber=\d{1,18},? ?OpType=[A-Z_]{3,40}(?:, TensorShape=\[[\d, ]{0,200}\][^\n]{0,600}\)\)|\))"),
        ("dump signal", r"Received a dump signal due to a collective timeout from [^\n]{0,300}last completed NCCL work: -?\d{1,18}"),
        ("monitoredBarrier", r"Ranks? \d{1,7}(?:, ?\d{1,7}){0,9000} failed to pass monitoredBarrier in \d{1,12} ?ms"),
        ("monitoredBarrier", r"Rank \d{1,7} successfully reached monitoredBarrier, but received errors while waiting[^\n]{0,60}from rank \d{1,7}"),
        ("operation to complete", r"Timed out waiting \d{1,12} ?ms for (?:recv|send) operation to complete"),
        ("by peer", r"Connection closed by peer \[[\w.:]{2,64}\]:\d{1,5}"),
        (" joined", r"Timed out after \d{1,9} seconds waiting for (?:clients|workers)\. \d{1,7}/\d{1,7} (?:clients|workers) joined"),
        ("joined=", r"store based barrier on rank:? \d{1,7}[^\n]{0,200}joined=\d{1,7}"),
        ("client socket has ", r"client socket has (?:timed out after|failed to connect to)[^\n]{0,200}\d\)"),
        ("exitcode", r"failed \(exitcode: -?\d{1,4}\) local_rank: \d{1,6} \(pid: \d{1,9}\) of binary"),
        ("Got completion", r"Got completion (?:from peer \S{1,200} )?with (?:error|status)[ =][^\n]{0,200}vendor[ _]err[ =]\d{1,9}"),
        ("Duplicate GPU", r"Duplicate GPU detected ?: rank \d{1,7} and rank \d{1,7} both on CUDA device [0-9a-f]{2,16}"),
        ("remote peer", r"Connection closed by remote peer [\w.-]{1,255}<\d{1,5}>"),
        ("connect to ", r"connect to \S{1,255}<\d{1,5}> returned [^\n]{3,200}\(\d{1,6}/\d{1,6}\)"),
        ("opCount", r"opCount [0-9a-f]{1,16} sendbuff \S{1,20} recvbuff \S{1,20} count \d{1,18} datatype \d{1,3} op \d{1,3} root \d{1,7} comm \S{1,20} \[nranks=\d{1,7}\] stream (?:0x[0-9a-f]{1,16}|\(nil\))"),
        (" - Init ", r"comm 0x[0-9a-f]{1,16} rank \d{1,7} nranks \d{1,7} [^\n]{0,200} - Init (?:START|COMPLETE)"),
        ("CUDA error", r"thread terminated with exception: CUDA error: [a-z][a-z ]{8,80}"),
        ("DataLoader worker", r"DataLoader worker \(pid\(?s?\)? [\d, ]{1,200}\) (?:is killed by signal: \w{3,20}|exited unexpectedly)"),
        ("CANCELLED AT", r"\*\*\* (?:JOB|STEP) [^\n]{1,200} CANCELLED AT \S{10,40}(?: DUE TO [A-Z ]{3,40})? \*\*\*"),
        ("inconsistent", r"Rank \d{1,7} has \d{1,9} params, while rank \d{1,7} has inconsistent \d{1,9} params"),
        ("oom", r"Detected \d{1,6} oom[_-]kill event\S{0,3} in StepId=[\d.]{1,30}"),
        ("broadcast block", r"No available shared memory broadcast block found in \d{1,9} seconds"),
        ("due to ", r"\[TC\][^\n]{0,300}due to (?:timeout|error) - [a-z][a-z ]{20,60}(?:timeout|error|timed out)"),
        ("async error", r"nccl hit async error on rank \d{1,7}: [a-z][^\n]{10,100}"),
        ("workMetaList_", r"Heartbeat monitor timed out[^\n]{0,200}workMetaList_\.size\(\)=\d{1,9}"),
        ("dump signal", r"Observed flight recorder dump signal from another rank"),
        ("got stuck for", r"(?:ProcessGroupNCCL's )?watchdog got stuck for \d{1,9} seconds without"),
        ("to allocate", r"out of memory\. Tried to allocate \d[\d.]{0,9} [KMGTP]iB"),
        ("ncclUniqueId", r"is setting up NCCL communicator and retrieving ncclUniqueId from \[\d{1,7}\] via c10d key-value store by key '[^'\n]{0,300}', but store->get\([^\n]{1,300}\) got error: [^\n]{1,80}? after \d{1,18} ?ms"),
        ("terminate called", r"terminate called after throwing an instance of '[\w:]{3,100}'"),
        ("preamble", r"op\.preamble\.length <= op\.nbytes\.? \d{1,18} vs \d{1,18}"),
        ("didn't finish", r"\] joined but didn't finish collective #\d{1,18} \("),
        ("didn't join", r"\] finished collective #\d{1,18}, but didn't join collective #\d{1,18} \("),
        ("Timeout at ", r"- \[\d{1,7}\] Timeout at collective: [A-Z_]{3,40}, #\d{1,18}"),
        ("Last error", r"Last error:\s{0,4}\S[^\n]{10,200}"),
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mended:
    """A text with its lines put together; `joined` counts the breaks that were taken out."""

    data: bytes
    joined: int


def mend(data: bytes) -> Mended:
    """Return a text as it was printed, with as many line feeds as before. Linear in its length."""
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    lines = _undented(_unnumbered([_unquoted(line) for line in _without_position(lines)]))
    writers = _writers(lines)
    if sum(writers.values()) >= max(_NUMBERED, _WRITERS * sum(1 for line in lines if line.strip())):
        # a collector put the writer's name before each line, and so no line is the rest of another: pdsh's `host: `
        return Mended("\n".join(lines).encode("utf-8", "surrogateescape"), 0)
    joined = _join_at_width(lines, writers)
    at = 0
    widths: set[int] = set()
    while at < len(lines) - 1:
        parts, full = _parts(lines, at, writers)
        count, text = _join(parts, full, widths) if len(parts) > 1 else (1, "")
        if count > 1:
            widths.add(len(lines[at]))
            lines[at] = text
            lines[at + 1 : at + count] = [""] * (count - 1)
            joined += count - 1
        at += count
    return Mended("\n".join(lines).encode("utf-8", "surrogateescape"), joined)


def _join_at_width(lines: list[str], writers: Container[str]) -> int:
    """Join in place what a terminal broke at its right edge; return how many breaks that were.

    No line is wider than the edge, and nearly all lines that reach it are followed by one that does not begin like a line.
    """
    width = max(map(len, lines))
    full = [n for n, line in enumerate(lines[:-1]) if len(line.rstrip()) >= width - 1]
    broken = [n for n in full if _goes_on(lines[n], lines[n + 1], writers)]
    if not _TERMINAL <= width <= _WIDTH or len(broken) < _EDGES or len(broken) < _MOST_FULL * len(full):
        return 0
    for n in reversed(broken):  # so that the rest of a rest is joined first
        lines[n], lines[n + 1] = lines[n].ljust(width) + lines[n + 1], ""
    return len(broken)


def _goes_on(line: str, after: str, writers: Container[str]) -> bool:
    """Return whether a line may be the rest of the one before it, and neither is of a table or of another bar of the same loop."""
    own = _TASK.sub("", after, count=1)
    if (
        not own.strip()
        or own.startswith("  ")
        or line.rstrip()[-1:] in ".:"
        or _BEGINS.match(own)
        or _TABLE.search(line)
        or _TABLE.match(after)
    ):
        return False
    writer = _WRITER.match(after)
    alike = line.split(maxsplit=1)[:1] == after.split(maxsplit=1)[:1]
    return not alike and not (writer and writer[0] in writers)


def _writers(lines: list[str]) -> Counter[str]:
    """Return the names of writers that a collector put before lines, each with how often, as far as they repeat.

    What stands behind a full line only, each time, is the rest of a word that a terminal broke: `e` and `rror: wait timeout`.
    """
    width = max(map(len, lines)) - 1
    found, behind = Counter[str](), Counter[str]()
    for before, line in pairwise(["", *lines]):
        if match := _WRITER.match(line):
            found[match[0]] += 1
            behind[match[0]] += len(before) >= width and not _WRITER.match(before)
    return Counter(
        {name: times for name, times in found.items() if times >= _NUMBERED and times > behind[name]}
    )


def _without_position(lines: list[str]) -> list[str]:
    """Return the lines without the place in its history that tmux shows at the right edge of a screen's first line: `[76/904]`."""
    width = max(map(len, lines))
    found = [n for n, line in enumerate(lines) if (match := _POSITION.search(line)) and match.end() == width]
    return [_POSITION.sub("", line) if found == [n] else line for n, line in enumerate(lines)]


def _unquoted(line: str) -> str:
    """Return a line without the marks of a quotation."""
    line = line.rstrip("\r")
    return _QUOTE.sub("", line, count=1) if line.startswith(">") else line


def _unnumbered(lines: list[str]) -> list[str]:
    """Return the lines without a page's line numbers, where nearly every line has the number after its predecessor's.

    A page counts from 1: what counts from 0 are srun's tasks.
    """
    found = [(_NUMBER.match(line), line) for line in lines]
    numbers = [int(match[1]) for match, line in found if match]
    steps = sum(1 for a, b in pairwise(numbers) if b == a + 1)
    written = sum(1 for line in lines if line.strip())
    if steps + 1 < _NUMBERED or steps + 1 < 0.8 * written or 0 in numbers:
        return lines
    return [line[match.end() :] if match else line for match, line in found]


def _undented(lines: list[str]) -> list[str]:
    """Return the lines without the four blanks that Markdown puts before quoted output: a block that begins like a line."""
    result: list[str] = []
    inside = False
    for line in lines:
        indented = line.startswith(_INDENT)
        inside = indented and (inside or bool(line[4:5].strip() and _BEGINS.match(line[4:])))
        result.append(line[4:] if inside else line)
    return result


def _parts(lines: list[str], at: int, writers: Container[str]) -> tuple[list[str], int]:
    """Return a line and those behind it that may be its rest, and how many of them fill the width of what is broken in a word.

    None of them begins like a line, or with the name of one of the writers. A terminal breaks where its width ends, whereas a mail is broken between words.
    """
    parts = [lines[at]]
    if not _NARROW <= len(lines[at].rstrip()) <= _WIDTH:
        return parts, 1
    full = 1
    for line in lines[at + 1 : at + _PARTS]:
        if not line.strip() or len(line) > _WIDTH or _BEGINS.match(line):
            break
        if (writer := _WRITER.match(line)) and writer[0] in writers:
            break
        fits = len(line) * _FULL <= len(parts[0]) and len(parts[-1]) >= len(parts[0]) * _FULL
        parts.append(line)
        full += fits and full == len(parts) - 1
    return parts, full


def _join(parts: list[str], full: int, widths: set[int]) -> tuple[int, str]:
    """Return how many parts make one line, and that line; (1, "") where no join completes a known form.

    The first `full` of them may be put together without a blank.
    """
    for glue, most in (("", full), (" ", len(parts))):
        parts = [part.rstrip() for part in parts] if glue else parts
        whole = glue.join(parts[:most])
        forms = [pattern for word, pattern in _FORMS if word in whole]
        for count in range(2, most + 1) if forms else ():
            text = glue.join(parts[:count])
            if _completes(text, len(text) - len(parts[count - 1]), forms):
                width = max(map(len, parts[:count]))
                while count < most and len(parts[count - 1]) >= width - 1:
                    text += glue + parts[count]
                    count += 1
                return count, text.rstrip()
    if len(parts[0]) in widths and parts[0][-1:].isdigit() and parts[1][:1].isdigit():
        return 2, (parts[0] + parts[1]).rstrip()  # a number that was broken
    return 1, ""


def _completes(text: str, last: int, forms: list[re.Pattern[str]]) -> bool:
    """Return whether one of the forms ends in the last part, which begins at `last`, and began before it."""
    return any((match := form.search(text)) and match.start() < last < match.end() for form in forms)
