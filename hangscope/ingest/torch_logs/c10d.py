"""What c10d and the NCCL watchdog print around a freeze: timeouts, dump signals, heartbeat, asynchronous errors.

    [rank3]:[E1016 03:31:38.928019586 ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog caught collective operation timeout:
        WorkNCCL(SeqNum=6, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.
    [rank3]:[E1016 ...] [PG ID 0 PG GUID 0(default_pg) Rank 3]  failure detected by watchdog at work sequence id: 6
        PG status: last enqueued work: 9, last completed work: 5

(torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp; the wordings of 1.11 to 2.13.) The rank in square brackets
is local to its group, and on `WorkNCCL` lines it is even that of the first group of the process; only
`[rank3]:` is global. A timeout shows who waited, never who is to blame.

    [rank3]:[E1102 19:05:51.300711023 ...cpp:402] [TC][rank=3][name=0] Aborting process on rank 3 due to timeout - timeout watchdog detected operation timeout

is of torch 2.15's second NCCL backend, which `nccl` means by default (TORCH_DIST_USE_NCCL2=0 brings the first one back;
c10d/nccl2/Logging.hpp, ProcessGroupNCCLUtils.cpp and WorkNCCL.cpp, read in the 2.15.0 wheel). No line of it names the collective
that timed out: the dump does.

Groups are named as in `[PG ID 2 PG GUID 9(tp) Rank 4]`; `GroupEvent` is the base of all events that name one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hangscope.ingest.lines.forms import integer, says
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.ingest.recorder.values import user_op
from hangscope.model.events import Event
from hangscope.model.regex import regex

if TYPE_CHECKING:
    from typing_extensions import Self

# 2.0-2.2 `[Rank 3]`; 2.3 `[PG 0 Rank 3]`; 2.4 `[PG 0 (default_pg) Rank 3]`; since 2.5 `[PG ID 0 PG GUID 0(default_pg) Rank 3]`.
_GROUP = regex(
    r"\[(?:PG (?:ID \d{1,9} PG GUID )?([^\s\](]{1,200}) ?(?:\(([^)\]]{0,200})\))? )?Rank (\d{1,7})\]"
)
#: nccl2, since 2.15 (torch/csrc/distributed/c10d/nccl2/Logging.hpp): the rank in the communicator, the group's name
_GROUP_2 = regex(r"\[TC\](?:\[rank=(\d{1,7})\])?(?:\[name=([^\]]{0,200})\])?")
_OPS = ("op", "started_op")  # fields with the name of an operation


class GroupEvent(Event, kind=""):
    """What c10d prints of one process group: its name across ranks, its description."""

    group_name: str | None = None
    group_desc: str | None = None

    @classmethod
    def of(cls, line: Any, **fields: Any) -> Self:
        """Return an event with the group that the line names; in the default group the printed rank is the global one.

        It is the writer's also where another rank's prefix precedes a `what():`, which std::terminate prints without any.
        Operations get the names that users know.
        """
        group = group_fields(line.text)
        fields |= {name: user_op(fields[name]) for name in _OPS if fields.get(name)}
        event: Self = line.event(cls, **{**group, **fields})
        copied = line.text.lstrip().startswith("what(): ")
        if (event.rank is None or (copied and event.group_rank is not None)) and is_default_group(group):
            return replace(event, rank=event.group_rank)
        return event


def ranks_in(text: str) -> tuple[int, ...]:
    """Return the ranks that a list names, such as `1, 3`."""
    return tuple(sorted({int(number) for number in re.findall(r"\d{1,7}", text)}))


def group_fields(text: str) -> dict[str, Any]:
    """Return group_rank (local to its group), group_name and group_desc, as far as the text names a group.

    A prefix with a group's name is preferred to a bare `[Rank 3]`, which names none.
    """
    best: dict[str, Any] = {}
    for match in _GROUP.finditer(text[:2000]):
        name, desc, rank = match.groups()
        fields: dict[str, Any] = {"group_rank": int(rank)}
        if name is not None:
            fields |= {"group_name": name, "group_desc": desc or ""}
            return fields
        best = best or fields
    if not best and (head := _GROUP_2.search(text)) is not None:
        best = {"group_rank": integer(head[1]), "group_name": head[2] or None}
    return best


def is_default_group(fields: dict[str, Any]) -> bool:
    """Return whether the group is the default one, whose group-local ranks are the global ranks."""
    name, desc = fields.get("group_name"), fields.get("group_desc")
    return desc == "default_pg" or (name in {"0", "default_pg"} and not desc)


#: what `WorkNCCL(...)` states about a collective
_WORK = (
    regex(r"\bSeqNum=(?P<seq>\d{1,18})"),
    regex(r"\bOpType=(?P<op>[A-Z_]{1,60})"),
    regex(r"\bNumelIn=(?P<numel_in>\d{1,18}(?!\d))"),  # 2^64 - 1 is -1: a batch has no size
    regex(r"\bNumelOut=(?P<numel_out>\d{1,18}(?!\d))"),
    regex(r"\bTimeout\(ms\)=(?P<timeout_ms>\d{1,18})"),
)
_ASYNC_ERRORS = (
    ("remote", ("ncclRemoteError", "remote process exited", "remote error")),
    ("system", ("ncclSystemError", "unhandled system error", "system error")),
    ("unhandled_cuda", ("ncclUnhandledCudaError", "unhandled cuda error", "unhandled CUDA error")),
    ("invalid_usage", ("ncclInvalidUsage", "invalid usage", "ncclInvalidArgument", "invalid argument")),
    ("internal", ("ncclInternalError", "internal error")),
)


def _async_error(line: Line, match: re.Match[str]) -> dict[str, Any]:
    tail = line.text[match.start() :]
    error = next((name for name, marks in _ASYNC_ERRORS if any(mark in tail for mark in marks)), "other")
    return {"error": error}


_LATE = 60_000  # ms


class WatchdogTimeout(GroupEvent, same_by=("seq", "op", "timeout_ms"), prints_group_rank=True):
    """The line "Watchdog caught collective operation timeout: WorkNCCL(…)". `seq` is absent before torch 1.12; times in ms.

    Of a line that a person shortened (`...`) the rest is as in whole lines; see `shortened.py`.
    """

    op: str = ""
    seq: int | None = None
    numel_in: int | None = None
    numel_out: int | None = None
    timeout_ms: int | None = None
    ran_ms: int | None = None
    forms = (
        says(
            r"aught collective operation timeout: Work[A-Z]{3,6}\(.{0,200}?\bOpType=[A-Z_].{0,400}?\)"
            r" ran for (?P<ran_ms>\d{1,18}) milliseconds"
        ),
        says(r"Work Work[A-Z]{3,6}\(.{0,200}?\bOpType=[A-Z_].{0,400}?\) timed out in blocking wait"),
        says(
            r"\bWatchdog caught (?:collective operation timeout: )?(?:Work[A-Z]{3,6}\((?:SeqNum=\d[^()]{0,300}?)?)?(?:\.{3}|…)"
            r"(?:.{0,80}?ran for (?P<ran_ms>\d{1,18}) milliseconds)?"
        ),
    )
    also = _WORK

    @property
    def is_late(self) -> bool:
        """Whether the watchdog reported it long after its limit: its process, or the watchdog itself, stood still."""
        return bool(self.ran_ms and self.timeout_ms and self.ran_ms > 2 * self.timeout_ms + _LATE)

    @property
    def members(self) -> int | None:
        """How many ranks a gathering or scattering collective has, by how many elements go in and out; None of others."""
        less, more = self.numel_in or 0, self.numel_out or 0
        if self.op.startswith("reduce_scatter"):
            less, more = more, less
        elif not self.op.startswith("all_gather"):
            return None
        fits = 0 < less < more and more % less == 0 and more // less <= MAX_RANKS
        return more // less if fits else None

    def least_sizes(self) -> Iterator[int]:
        """Yield how many ranks the job has at least."""
        yield from GroupEvent.least_sizes(self)
        if self.members is not None:
            yield self.members


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
    forms = (
        says(
            r"(?:Timeout at NCCL work|detected by watchdog at work(?: sequence id)?): (?P<seq>-?\d{1,18})(?:,| PG status:) "
            r"last enqueued (?:NCCL )?work: (?P<last_enqueued>-?\d{1,18}), "
            r"(?:last started (?:NCCL )?work: (?P<last_started>-?\d{1,18})(?: \((?P<started_op>[A-Z_]{1,60})\))?, )?"
            r"last completed (?:NCCL )?work: (?P<last_completed>-?\d{1,18})"
        ),
    )


class DumpSignal(GroupEvent, same_by=("detector",), prints_group_rank=True):
    """The line "Received a dump signal due to a collective timeout from …". The counts are those of process group 0.

    `detector` is the rank that timed out, None for this one itself.
    """

    detector: int | None = None
    last_enqueued: int | None = None
    last_completed: int | None = None
    forms = (
        says(
            r"Received a dump signal due to a collective timeout from"
            r" (?:this local rank| ?rank (?P<detector>\d{1,7}))"
        ),
        says("Received a timeout signal from this local rank"),
        says("First PG on this rank to signal dumping"),
    )
    also = (
        regex(
            r"[Ll]ast enqueued NCCL work: (?P<last_enqueued>-?\d{1,18}),"
            r" last completed NCCL work: (?P<last_completed>-?\d{1,18})"
        ),
    )


class DumpObserved(GroupEvent, same_by=(), prints_group_rank=True):
    """The line "Observed flight recorder dump signal from another rank": alive, and nothing of its own was overdue."""

    forms = (says("Observed flight recorder dump signal from another rank"),)


class HeartbeatTimeout(GroupEvent, same_by=("what",), prints_group_rank=True):
    """The watchdog itself was stuck. `what` is watchdog_stuck or gil; `pending` counts the calls in its list, `seconds` is for how long."""

    what: str
    pending: int | None = None
    seconds: int | None = None
    forms = (
        says(r"watchdog got stuck for (?P<seconds>\d{1,9}) ?seconds", what="watchdog_stuck"),
        says("NCCL monitor thread timeout", what="watchdog_stuck"),
        says("Heartbeat monitor timed out", what="watchdog_stuck"),
        says("detected no heartbeat of its watchdog", what="watchdog_stuck"),
        says(r"Could not acquire GIL within \d+ ms", what="gil"),
    )
    also = (regex(r"workMetaList_\.size\(\) ?= ?(?P<pending>\d{1,9})"),)


class AsyncError(GroupEvent, same_by=("error",), prints_group_rank=True):
    """An asynchronous NCCL error that torch saw. `error` is remote, system, unhandled_cuda, internal, invalid_usage or other.

    `op` and the numbers are those of the call that the rank was in, where the line states it.
    """

    error: str
    peer_rank: int | None = None
    op: str = ""
    seq: int | None = None
    numel_in: int | None = None
    numel_out: int | None = None
    forms = (
        says("raised the following async exception", read=_async_error),
        says("NCCL communicator encountered error set by", read=_async_error),
        says("DistBackendError: NCCL error in", read=_async_error),
        says("NCCL communicator was aborted on rank", read=_async_error),  # up to 2.0
        says("remote error detected from rank", read=_async_error),
        # nccl2, which is what `nccl` means since 2.15
        says(r"\[TC\].{0,300}nccl hit async error", read=_async_error),
        says(
            r"\[TC\].{0,300}due to error - (?:timeout watchdog detected operation error|nccl hit)",
            read=_async_error,
        ),
    )
    also = (*_WORK, regex(r"remote error detected from rank: (?P<peer_rank>\d{1,7})"))


class ProcessDown(GroupEvent, same_by=("group_name",), prints_group_rank=True):
    """The line "To avoid data inconsistency, we are taking the entire process down": what the rank says later is another attempt's."""

    forms = (says("we are taking the entire process down"),)


class Nccl2Timeout(GroupEvent, same_by=(), prints_group_rank=True):
    """nccl2's watchdog gave up a collective, which none of its lines names. `what` noticed it, as printed."""

    what: str
    forms = (
        says(
            r"\[TC\].{0,300}due to timeout - "
            r"(?P<what>collective operation timed out|timeout watchdog detected operation timeout)"
        ),
        says(
            r"Watchdog caught collective operation timeout: (?P<what>NCCL operation timed out)",
            literal="NCCL operation timed out",
        ),
    )
