"""What c10d and the NCCL watchdog print around a freeze: timeouts, dump signals, heartbeat, asynchronous errors.

    [rank3]:[E1016 03:31:38.928019586 ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog caught collective operation timeout:
        WorkNCCL(SeqNum=6, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.
    [rank3]:[E1016 ...] [PG ID 0 PG GUID 0(default_pg) Rank 3]  failure detected by watchdog at work sequence id: 6
        PG status: last enqueued work: 9, last completed work: 5

(torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp; the wordings of 1.11 to 2.13.) The rank in square brackets
is local to its group, and on `WorkNCCL` lines it is even that of the first group of the process; only
`[rank3]:` is global. A timeout says who waited, never who is to blame.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, TypeVar

from hangscope.dataclass import dataclass
from hangscope.events import Event
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.lines.rules import Build, Rule, integer, rule, told
from hangscope.ingest.torch_logs.c10d_names import GroupEvent, group_fields, is_default_group, user_op
from hangscope.regex import regex

_WORK = {
    "seq": regex(r"\bSeqNum=(\d{1,18})"),
    "op": regex(r"\bOpType=([A-Z_]{1,60})"),
    "numel_in": regex(r"\bNumelIn=(\d{1,18})"),
    "numel_out": regex(r"\bNumelOut=(\d{1,18})"),
    "timeout_ms": regex(r"\bTimeout\(ms\)=(\d{1,18})"),
}
_ASYNC_ERRORS = (
    ("remote", ("ncclRemoteError", "remote process exited", "remote error")),
    ("system", ("ncclSystemError", "unhandled system error", "system error")),
    ("unhandled_cuda", ("ncclUnhandledCudaError", "unhandled cuda error", "unhandled CUDA error")),
    ("invalid_usage", ("ncclInvalidUsage", "invalid usage", "ncclInvalidArgument", "invalid argument")),
    ("internal", ("ncclInternalError", "internal error")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchdogTimeout(GroupEvent, same_by=("seq", "op", "timeout_ms"), prints_group_rank=True):
    """The line "Watchdog caught collective operation timeout: WorkNCCL(…)". `seq` is absent before torch 1.12; times in ms."""

    op: str
    seq: int | None = None
    numel_in: int | None = None
    numel_out: int | None = None
    timeout_ms: int | None = None
    ran_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchdogStatus(
    GroupEvent, same_by=("seq", "last_enqueued", "last_completed", "group_name"), prints_group_rank=True
):
    """The line "last enqueued … last completed …" of one group, in all wordings; -1 where there was none yet.

    `last_started` and `started_op`, the call's name, are of newer builds only.
    """

    last_enqueued: int
    last_completed: int
    seq: int | None = None
    last_started: int | None = None
    started_op: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpSignal(GroupEvent, same_by=("detector",), prints_group_rank=True):
    """The line "Received a dump signal due to a collective timeout from …". The counts are those of process group 0.

    `detector` is the rank that timed out, None for this one itself.
    """

    detector: int | None = None
    last_enqueued: int | None = None
    last_completed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpObserved(GroupEvent, same_by=(), prints_group_rank=True):
    """The line "Observed flight recorder dump signal from another rank": alive, and nothing of its own was overdue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatTimeout(GroupEvent, same_by=("what",), prints_group_rank=True):
    """The watchdog itself stood still. `what` is watchdog_stuck or gil; `pending` counts the calls in its list."""

    what: str
    pending: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncError(GroupEvent, same_by=("error",), prints_group_rank=True):
    """An asynchronous NCCL error that torch saw. `error` is remote, system, unhandled_cuda, internal, invalid_usage or other.

    `op` and the numbers are those of the call that the rank was in, where the line tells it.
    """

    error: str
    peer_rank: int | None = None
    op: str = ""
    seq: int | None = None
    numel_in: int | None = None
    numel_out: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessDown(GroupEvent, same_by=("group_name",), prints_group_rank=True):
    """The line "To avoid data inconsistency, we are taking the entire process down": what the rank says later is another attempt's."""


OfGroup = TypeVar("OfGroup", bound=GroupEvent)


def group_event(line: Line, kind: type[OfGroup], **fields: Any) -> OfGroup:
    """Return an event with the group that the line names; in the default group the printed rank is the global one."""
    group = group_fields(line.text)
    group_rank = group.pop("group_rank", None)
    event = line.event(kind, group_rank, **group, **fields)
    if event.rank is None and group_rank is not None and is_default_group(group):
        return replace(event, rank=group_rank)
    return event


def told_of_group(kind: type[GroupEvent], **known: str) -> Build:
    """Return what makes an event of a kind out of a match (`rules.told`), with the group that the line names."""
    return told(kind, group_event, **known)


def _timeout(line: Line, match: re.Match[str]) -> Event | None:
    work = match.group("work")
    told = _work(work)
    return group_event(line, WatchdogTimeout, ran_ms=integer(match.group("ran")), **told) if told else None


def _work(text: str) -> dict[str, Any]:
    """Return what `WorkNCCL(…)` tells of a call; nothing where its op is not told."""
    found = {name: m.group(1) for name, pattern in _WORK.items() if (m := pattern.search(text))}
    if "op" not in found:
        return {}
    return {name: user_op(value) if name == "op" else integer(value) for name, value in found.items()}


def _status(line: Line, match: re.Match[str]) -> Event:
    seq, enqueued, started, op, completed = match.groups()
    return group_event(
        line,
        WatchdogStatus,
        seq=integer(seq),
        last_enqueued=int(enqueued),
        last_started=integer(started),
        started_op=user_op(op) if op else None,
        last_completed=int(completed),
    )


def _dump_signal(line: Line, match: re.Match[str]) -> Event:
    rank = match.group("rank")
    counts = re.search(
        r"[Ll]ast enqueued NCCL work: (-?\d{1,18}), last completed NCCL work: (-?\d{1,18})", line.text
    )
    enqueued, completed = (int(counts.group(1)), int(counts.group(2))) if counts else (None, None)
    return group_event(
        line,
        DumpSignal,
        detector=int(rank) if rank else None,
        last_enqueued=enqueued,
        last_completed=completed,
    )


def _heartbeat(what: str) -> Any:
    def build(line: Line, match: re.Match[str]) -> Event:
        pending = re.search(r"workMetaList_\.size\(\)=(\d{1,9})", line.text)
        return group_event(
            line, HeartbeatTimeout, what=what, pending=integer(pending[1]) if pending else None
        )

    return build


def _async_error(line: Line, match: re.Match[str]) -> Event:
    tail = line.text[match.start() :]
    error = next((name for name, marks in _ASYNC_ERRORS if any(mark in tail for mark in marks)), "other")
    peer = re.search(r"remote error detected from rank: (\d{1,7})", tail)
    call = _work(line.text[: match.start()])
    call.pop("timeout_ms", None)
    return group_event(line, AsyncError, error=error, peer_rank=int(peer.group(1)) if peer else None, **call)


RULES: tuple[Rule, ...] = (
    rule(
        "Watchdog caught collective operation timeout",
        r"Watchdog caught collective operation timeout: Work[A-Z]{3,6}\((?P<work>.{0,400}?)\) ran for (?P<ran>\d{1,"
        r"18}) milliseconds",
        _timeout,
    ),
    rule(
        "timed out in blocking wait",
        r"Work Work[A-Z]{3,6}\((?P<work>.{0,400}?)\) timed out in blocking wait(?P<ran>)",
        _timeout,
    ),
    rule(
        "last completed ",
        r"(?:Timeout at NCCL work|detected by watchdog at work(?: sequence id)?): (-?\d{1,18})(?:,| PG "
        r"status:) "
        r"last enqueued (?:NCCL )?work: (-?\d{1,18}), "
        r"(?:last started (?:NCCL )?work: (-?\d{1,18})(?: \(([A-Z_]{1,60})\))?, )?last completed (?:NCCL )?work: (-?\d{1,18})",
        _status,
    ),
    rule(
        "Received a dump signal due to a collective timeout from",
        r"collective timeout from (?:this local rank| ?rank (?P<rank>\d{1,7}))",
        _dump_signal,
    ),
    rule(
        "Received a timeout signal from this local rank",
        r"Received a timeout signal from this local rank(?P<rank>)",
        _dump_signal,
    ),
    rule(
        "First PG on this rank to signal dumping",
        r"First PG on this rank to signal dumping(?P<rank>)",
        _dump_signal,
    ),
    rule("Observed flight recorder dump signal from another rank", None, told_of_group(DumpObserved)),
    rule("we are taking the entire process down", None, told_of_group(ProcessDown)),
    rule("watchdog got stuck for", r"watchdog got stuck for \d+ seconds", _heartbeat("watchdog_stuck")),
    rule("NCCL monitor thread timeout", None, _heartbeat("watchdog_stuck")),
    rule("Heartbeat monitor timed out", None, _heartbeat("watchdog_stuck")),
    rule("detected no heartbeat of its watchdog", None, _heartbeat("watchdog_stuck")),
    rule("Could not acquire GIL within", r"Could not acquire GIL within \d+ ms", _heartbeat("gil")),
    rule("raised the following async exception", None, _async_error),
    rule("NCCL communicator encountered error set by", None, _async_error),
    rule("DistBackendError: NCCL error in", None, _async_error),
    rule("NCCL communicator was aborted on rank", None, _async_error),  # up to 2.0
    rule("remote error detected from rank", None, _async_error),
)
