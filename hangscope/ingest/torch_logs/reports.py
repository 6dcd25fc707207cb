"""Reports of several lines that torch, C++ or the interpreter print of a process: the desync report, the failed collective's stack, its last message.

    [rank0]:[E...] [PG ID 0 ...] Rank 0
             - [0] Timeout at collective: ALLREDUCE, #6
             - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:
               - [0, 2] joined but didn't finish collective #6 (count from 1)
                 [1] finished collective #5, but didn't join collective #6 (count from 1)
             - Snapshot of ranks' latest states:
               #6 started ranks:
                 [0, 2] started ALLREDUCE

(torch/csrc/distributed/c10d/TraceUtils.h.) Only the first line carries a prefix; the ranks are local to the
group.

    terminate called after throwing an instance of 'c10::DistBackendError'
      what():  [PG ID 0 PG GUID 0(default_pg) Rank 3] ...

    Fatal Python error: Segmentation fault

    Current thread 0x00007f04cabffb80 (most recent call first):
      File "train.py", line 57 in load

(libstdc++; CPython Modules/faulthandler.c.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from hangscope.ingest.lines.blocks import Found, block
from hangscope.ingest.lines.forms import says
from hangscope.ingest.lines.prefixes import quote
from hangscope.ingest.recorder.values import user_op
from hangscope.ingest.torch_logs.c10d import GroupEvent, ranks_in
from hangscope.model.events import Event
from hangscope.model.frames import Frame, Stack
from hangscope.model.regex import regex

_LINES = 80  # of one report
_FRAMES = 60

_NEVER = (
    r"ranks \[(?P<never_joined>[\d, ]{1,60000})\] are the lagging ranks that caused this timeout\. "
    r"They never joined any collectives"
)
_JOINED = (
    r"\[(?P<joined_not_finished>[\d, ]{1,60000})\] joined but didn't finish collective #(?P<at>\d{1,18})"
)
_MISSED = r"\[(?P<not_joined>[\d, ]{1,60000})\] finished collective #\d{1,18}, but didn't join collective #(?P<at>\d{1,18})"


class Desync(
    GroupEvent,
    same_by=("seq", "op", "never_joined", "joined_not_finished", "not_joined"),
    prints_group_rank=True,
    rank_fields=("never_joined", "not_joined", "joined_not_finished"),
):
    """The report of TORCH_NCCL_DESYNC_DEBUG. All ranks are group-local. The mappings are keyed by seq; `started` maps the operation that was started at `seq` to its ranks."""

    op: str | None = None
    seq: int | None = None
    never_joined: tuple[int, ...] = ()
    joined_not_finished: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    not_joined: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    started: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


class FailedStack(GroupEvent, same_by=("frames",), prints_group_rank=True):
    """The line "Stack trace of the failed collective": the code that issued the collective that timed out, innermost first."""

    frames: Stack


def _desync(found: Found) -> Iterator[Event]:
    """Yield the report. Of the collectives that ranks started, those at the number of the one that timed out count."""
    fields = found.caught(Desync)
    for name in ("joined_not_finished", "not_joined"):
        fields[name] = {int(seq): ranks_in(ranks) for ranks, seq in found.all(name, "at")}
    started: dict[str, tuple[int, ...]] = {}
    counted = False  # whether the list of ranks is of that number
    for caught in (match.groupdict() for _, match in found.parts):
        if "number" in caught:
            counted = int(caught["number"]) == fields.get("seq")
        elif "began" in caught and counted:
            started[user_op(caught["began"])] = ranks_in(caught["ranks"])
    yield Desync.of(found.first, started=started, **fields)


def _stack(found: Found) -> Iterator[Event]:
    frames = [Frame(name, file, int(line)) for name, file, line in found.all("name", "file", "line")]
    if frames:
        yield FailedStack.of(found.first, frames=tuple(frames[:_FRAMES]))


REPORT = block(
    says(r"- \[(?P<group_rank>\d{1,7})\] Timeout at collective: (?P<op>[A-Z_]{1,60}), #(?P<seq>\d{1,18})"),
    *map(says, (_NEVER, _JOINED, _MISSED)),
    *map(regex, (_NEVER, _JOINED, _MISSED)),
    regex(r"^\s*#(?P<number>\d{1,18}) (?:started|finished) ranks:"),
    regex(r"^\s*\[(?P<ranks>[\d, ]{1,60000})\] started (?P<began>[A-Z_]{1,60})\b"),
    regex(r"^\s*(?:- (?!\[\d{1,7}\] Timeout at)|\[|#\d)"),
    lines=_LINES,
    gap=0,
    made=_desync,
)
STACK = block(
    says("Stack trace of the failed collective: "),
    regex(r"^\s*#\d{1,4} (?P<name>.{1,300}?) from (?P<file>.{1,500}):(?P<line>\d{1,9})\s*$"),
    lines=_LINES,
    gap=0,
    made=_stack,
)


class Terminate(Event, same_by=("what",)):
    """C++'s `terminate called …` / `what():`, or the interpreter's `Fatal Python error` with the frames of its current thread."""

    what: str
    type: str | None = None
    frames: Stack = ()
    forms = (
        says(r"(?P<what>\*\*\* SIGSEGV.{0,100})", literal="*** SIGSEGV"),
        # UCX, which NCCL's plugins and MPI bring along
        says(
            r"\[[\w.-]{1,253}:(?P<pid>\d{1,9}) {0,3}:\d{1,9}:\d{1,9}\] (?P<what>Caught signal \d{1,2} \([\w :]{3,80})",
            literal="Caught signal ",
        ),
        says(r"^(?P<what>Segmentation fault \(core dumped\))", literal="Segmentation fault (core dumped)"),
    )


def _terminated(found: Found) -> Iterator[Event]:
    """Yield the death at the line of its message, by the writer of its first line."""
    where, message = found.first, found.last("message")
    kind = found.last("type")
    what = kind or ("without an active exception" if "without an active" in where.text else "terminate")
    if message is not None:
        last = found.parts[-1][0]
        where, what = replace(where, number=last.number, raw=last.raw), quote(message)
    yield where.event(Terminate, what=what, type=kind)


def _fatal(found: Found) -> Iterator[Event]:
    """Yield the death with the frames of the thread that it happened in."""
    frames: list[Frame] | None = None
    for _, match in found.parts[1:]:
        caught = match.groupdict()
        if "thread" in caught:
            if frames:
                break
            frames = [] if match["thread"] == "Current thread" else None
        elif frames is not None:
            line = match["line"]
            frames.append(Frame(match["name"], match["file"], int(line) if line.isdigit() else 0))
    what = quote(found.last("what") or "", 200)
    yield found.first.event(Terminate, what=what, frames=tuple(frames or ())[:_FRAMES])


MESSAGE = block(
    says(r"terminate called (?:.{0,40}?throwing an instance of '(?P<type>.{1,200}?)')?"),
    says(r"  what\(\):  "),
    ends=regex(r"what\(\):  (?P<message>.*)"),
    lines=4,
    made=_terminated,
)
FATAL_STACK = block(
    says(r"^(?P<what>Fatal Python error: .{1,200})", literal="Fatal Python error: "),
    regex(r"^(?P<thread>Current thread|Thread) 0x[0-9a-fA-F]{1,16}"),
    regex(r'^\s{2}File "(?P<file>.{1,1000}?)", line (?P<line>\d{1,9}|\?\?\?) in (?P<name>.{1,300})$'),
    lines=400,
    made=_fatal,
)
