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
from typing import Any

from hangscope.incident import Event
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.lines.rules import Rule, RuleParser, integer, rule
from hangscope.ingest.torch_logs.c10d_names import group_fields, is_default_group, user_op

_WORK = {
    "seq": re.compile(r"\bSeqNum=(\d{1,18})"),
    "op": re.compile(r"\bOpType=([A-Z_]{1,60})"),
    "numel_in": re.compile(r"\bNumelIn=(\d{1,18})"),
    "numel_out": re.compile(r"\bNumelOut=(\d{1,18})"),
    "timeout_ms": re.compile(r"\bTimeout\(ms\)=(\d{1,18})"),
}
_ASYNC_ERRORS = (
    ("remote", ("ncclRemoteError", "remote process exited", "remote error")),
    ("system", ("ncclSystemError", "unhandled system error", "system error")),
    ("unhandled_cuda", ("ncclUnhandledCudaError", "unhandled cuda error", "unhandled CUDA error")),
    ("invalid_usage", ("ncclInvalidUsage", "invalid usage", "ncclInvalidArgument", "invalid argument")),
    ("internal", ("ncclInternalError", "internal error")),
)


def group_event(line: Line, kind: str, **fields: Any) -> Event:
    """Return an event with the group that the line names; in the default group the printed rank is the global one."""
    group = group_fields(line.text)
    group_rank = group.pop("group_rank", None)
    event = line.event(kind, group_rank, **{k: v for k, v in group.items() if v is not None}, **fields)
    if event.rank is None and group_rank is not None and is_default_group(group):
        return Event(
            kind,
            event.file,
            event.line,
            event.text,
            group_rank,
            group_rank,
            event.host,
            event.pid,
            event.time,
            None,
            event.fields,
        )
    return event


def _timeout(line: Line, match: re.Match[str]) -> Event | None:
    work = match.group("work")
    found = {name: m.group(1) for name, pattern in _WORK.items() if (m := pattern.search(work))}
    if "op" not in found:
        return None
    numbers = {name: integer(value) for name, value in found.items() if name != "op"}
    return group_event(
        line, "watchdog_timeout", op=user_op(found["op"]), ran_ms=integer(match.group("ran")), **numbers
    )


def _status(line: Line, match: re.Match[str]) -> Event:
    seq, enqueued, completed = match.groups()
    return group_event(
        line, "watchdog_status", seq=integer(seq), last_enqueued=int(enqueued), last_completed=int(completed)
    )


def _dump_signal(line: Line, match: re.Match[str]) -> Event:
    rank = match.group("rank")
    counts = re.search(
        r"[Ll]ast enqueued NCCL work: (-?\d{1,18}), last completed NCCL work: (-?\d{1,18})", line.text
    )
    enqueued, completed = (int(counts.group(1)), int(counts.group(2))) if counts else (None, None)
    return group_event(
        line,
        "dump_signal",
        detector=int(rank) if rank else "local",
        last_enqueued=enqueued,
        last_completed=completed,
    )


def _heartbeat(what: str) -> Any:
    return lambda line, match: group_event(line, "heartbeat_timeout", what=what)


def _async_error(line: Line, match: re.Match[str]) -> Event:
    tail = line.text[match.start() :]
    error = next((name for name, marks in _ASYNC_ERRORS if any(mark in tail for mark in marks)), "other")
    peer = re.search(r"remote error detected from rank: (\d{1,7})", tail)
    return group_event(line, "async_error", error=error, peer_rank=int(peer.group(1)) if peer else None)


def _key_wait(line: Line, match: re.Match[str]) -> Event:
    return group_event(
        line,
        "store_timeout",
        key=match.group("key"),
        waited_rank=int(match.group("rank")),
        what="ncclUniqueId",
    )


RULES: tuple[Rule, ...] = (
    rule(
        "Watchdog caught collective operation timeout",
        r"Watchdog caught collective operation timeout: WorkNCCL\((?P<work>.{0,400}?)\) ran for (?P<ran>\d{1,"
        r"18}) milliseconds",
        _timeout,
    ),
    rule(
        "timed out in blocking wait",
        r"Work WorkNCCL\((?P<work>.{0,400}?)\) timed out in blocking wait(?P<ran>)",
        _timeout,
    ),
    rule(
        "last completed ",
        r"(?:Timeout at NCCL work|detected by watchdog at work(?: sequence id)?): (-?\d{1,18})(?:,| PG "
        r"status:) "
        r"last enqueued (?:NCCL )?work: (-?\d{1,18}), last completed (?:NCCL )?work: (-?\d{1,18})",
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
    rule(
        "Observed flight recorder dump signal",
        r"Observed flight recorder dump signal from another rank",
        lambda line, match: group_event(line, "dump_observed"),
    ),
    rule("watchdog got stuck for", r"watchdog got stuck for \d+ seconds", _heartbeat("watchdog_stuck")),
    rule("NCCL monitor thread timeout", r"NCCL monitor thread timeout", _heartbeat("watchdog_stuck")),
    rule("Heartbeat monitor timed out", r"Heartbeat monitor timed out", _heartbeat("watchdog_stuck")),
    rule(
        "detected no heartbeat of its watchdog",
        r"detected no heartbeat of its watchdog",
        _heartbeat("watchdog_stuck"),
    ),
    rule("Could not acquire GIL within", r"Could not acquire GIL within \d+ ms", _heartbeat("gil")),
    rule("raised the following async exception", r"raised the following async exception", _async_error),
    rule(
        "NCCL communicator encountered error set by",
        r"NCCL communicator encountered error set by",
        _async_error,
    ),
    rule("DistBackendError: NCCL error in", r"DistBackendError: NCCL error in", _async_error),
    rule("remote error detected from rank", r"remote error detected from rank", _async_error),
    rule(
        "retrieving ncclUniqueId from",
        r"retrieving ncclUniqueId from \[(?P<rank>\d{1,7})\] via c10d key-value store by key '(?P<key>[^']{0,"
        r"300})'",
        _key_wait,
    ),
)


def watchdog_parser() -> RuleParser:
    """Return the parser of the single lines of the NCCL backend."""
    return RuleParser(RULES)
