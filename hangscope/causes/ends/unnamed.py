"""Rules about faults that no rank's name stands beside: they are the cause all the same, and nobody is accused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangscope.causes.case import Case, Match, answer
from hangscope.causes.device import device_error, remedy
from hangscope.causes.ends.whose import whose
from hangscope.explain.finding import Nothing, Stalled
from hangscope.explain.statements.statements import INTERRUPTS
from hangscope.explain.text.stop import find_stop
from hangscope.ingest.job_logs.endings import CleanupSignal, Exit, WorkerDied, WorkersSwept
from hangscope.ingest.job_logs.excerpt import Excerpt
from hangscope.ingest.job_logs.faults import CudaError, DiskFull, LoaderWorkerDeath, OomCuda, OomHost, Xid
from hangscope.ingest.job_logs.messages import Message, Notice, table
from hangscope.ingest.torch_logs.abort import Terminate
from hangscope.ingest.torch_logs.exception_meaning import is_symptom
from hangscope.ingest.torch_logs.store import FsdpOrder
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import CallFingerprint
from hangscope.model.events import Event
from hangscope.model.rankset import ranks_phrase

_ENDED_BY_LAUNCHER = frozenset({0, -15, 143})
_KILLED = frozenset({-9, -11, -7, -4, -8})


def fault_without_rank(case: Case) -> Match | None:
    """A line that tells its fault by itself, and names no rank."""
    return _plain(case) if _nothing_else(case) else None


def end_without_rank(case: Case) -> Match | None:
    """An end of a process, or a call that did not fit, by a line that names no rank."""
    went_on = any(e.moves for e in case.statements.all(Excerpt)) and case.statements.all(Notice)
    rules = (_halves, _ended, _exception, _swept) if _nothing_else(case) and not went_on else ()
    return next((match for rule in rules if (match := rule(case)) is not None), None)


def _nothing_else(case: Case) -> bool:
    """Return whether calls show nothing, so that the first fault of any rank explains the stop."""
    return isinstance(case.finding, Nothing) or (isinstance(case.finding, Stalled) and case.from_text)


def _match(
    case: Case,
    cause: str,
    events: Sequence[Event],
    what: str,
    *advice: str,
    strength: int = 1,
    category: str | None = None,
) -> Match:
    """Return the answer for a fault that `events` tell of, with which process it was as far as the text says."""
    told, several = whose(case, events), len({e.rank for e in events if e.rank is not None}) > 1
    one = "; which of them was first is not known" if several else ""
    subject, _, ids = told.partition(" (")
    why = what if subject in what else f"{what}: {told}{one}"
    if what.startswith("a process "):
        why = f"{told} {what.removeprefix('a process ')}{one}"
    elif what.endswith(" a process"):
        why = f"{what.removesuffix('a process')}{told}{one}"
    elif subject == "a process":
        why = f"{what} ({ids}" if ids else what
    return answer(cause, (), why, *advice, strength=strength, category=category, evidence=events[:4])


_RERUN = "Rerun with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL and one file per process; compare the collectives rank by rank."
#: Cause, by which events or faults of NCCL's warnings it is told, what they say, what to do, and how sure that is.
_FAULTS: tuple[tuple[str, tuple[str | type[Event], ...], str, str, int], ...] = (
    ("gpu_stall", (Xid, CudaError, "cuda"), "a device error was reported", "", 1),
    ("crashed_rank", ("oom",), "NCCL got no GPU memory", "Leave memory for NCCL's buffers: a smaller batch, or a smaller share for the allocator or the engine's cache.", 1),
    ("crashed_rank", ("shm",), "NCCL got no shared memory", "Enlarge /dev/shm (docker's --shm-size, or --ipc=host) on the host that printed it.", 1),
    ("crashed_rank", (OomCuda,), "a process ran out of GPU memory", "Lower the peak memory of that process: its longest batch, activations, fragmentation.", 1),
    ("crashed_rank", (OomHost,), "the out-of-memory killer ended a process", "Use fewer loader workers, a smaller prefetch, or a larger memory request.", 1),
    ("crashed_rank", (LoaderWorkerDeath,), "a data loader worker died", "Find what killed the worker: host memory, or /dev/shm (a larger --shm-size, fewer workers).", 1),
    ("crashed_rank", (DiskFull,), "a disk was full", "Free space where that process writes.", 1),
    ("collective_mismatch", (FsdpOrder,), "FSDP reports that ranks gather parameters in different orders", "Let every rank run the same modules in the same order in its first forward pass: look for a branch on data or on the rank.", 1),
    ("collective_mismatch", ("collective_mismatch",), "NCCL reports collectives that do not match", _RERUN, 0),
    ("collective_mismatch", ("size_mismatch",), "a message was larger than its receiver expected (mismatched collectives, or hosts with different NCCL settings)", _RERUN, 0),
)  # fmt: skip


def _plain(case: Case) -> Match | None:
    """Return the answer for a line that tells its fault by itself."""
    for cause, kinds, what, advice, strength in _FAULTS:
        told: list[Event] = [e for kind in kinds if isinstance(kind, type) for e in case.statements.all(kind)]
        told += case.warned(*(fault for fault in kinds if isinstance(fault, str)))
        told = [e for e in told if not (isinstance(e, OomCuda) and e.implausible)]
        if events := [e for e in told if not (isinstance(e, FsdpOrder) and e.group_rank is not None)]:
            why = f"{what}: {device_error(events[0])}" if cause == "gpu_stall" else what
            return _match(case, cause, events, why, advice or remedy(events[0]), strength=strength)
    return None


def _halves(case: Case) -> Match | None:
    """Return the answer for one rank's report of the DETAIL check: the collectives differ, and it cannot tell who is the outlier."""
    mine = [e for e in case.statements.all(CallFingerprint) if e.context == "mismatch"]
    if not mine:
        return None
    named = sorted({e.rank for e in mine if e.rank is not None})
    aspects = {aspect for e in mine for aspect in e.aspects} - {"sequence number"}
    finer = {"shapes": "shape_mismatch", "dtypes": "dtype_mismatch"}
    cause = finer.get("/".join(sorted(aspects)), "collective_mismatch")
    what = _mismatch(mine, named)
    advice = "Collect this error from every rank: the collective that only a minority of ranks called is the wrong one, which one rank alone cannot show."
    return _match(case, cause, mine, what, advice)


def _mismatch(mine: Sequence[CallFingerprint], named: Sequence[int]) -> str:
    """Return who called what while a peer called what, with the sizes where the op is the same."""
    first = mine[0]
    whose = ranks_phrase(named) if named else "a rank"
    other = first.peer_op or "something else"
    if other == first.op:
        return f"collective mismatch in {first.op}: {whose} and a peer passed different {' and '.join(first.aspects) or 'arguments'}"
    return f"collective mismatch: {whose} called {first.op}, a peer called {other}"


def _ended(case: Case) -> Match | None:
    # Who waited until a timeout ends with an error, too: then only a signal that nobody sends for that is a cause.
    exits = [e for e in case.statements.all(Exit) if e.code not in _ENDED_BY_LAUNCHER]
    if find_stop(case.statements) is not None:
        exits = [e for e in exits if e.rank is None and e.code in _KILLED]
    exits.sort(key=lambda e: not e.first)
    if not exits:
        return None
    # Who loses a peer is aborted: an end of another kind before all of these is the one that they answer.
    own = [e for e in exits if e.signal != "SIGABRT"] or exits
    first, later = own[0], [e.time or 0.0 for e in exits if e is not own[0]]
    named = (first.rank,) if later and len(own) == 1 and first.time and min(later) > first.time else ()
    how = f"was killed by {first.signal}" if first.signal else f"ended with exit code {first.code}"
    look = "Look for its own last lines, and for its signal in the kernel log of its host."
    match = _match(
        case, "crashed_rank", own, f"a process {how}{', before all others' if named else ''}", look
    )
    return replace(match, culprits=tuple(r for r in named if r is not None))


def _exception(case: Case) -> Match | None:
    statements = case.statements
    raised = [e for e in statements.all(RankException) if e.type and not e.symptom and not e.truncated]
    events: list[Event] = [e for e in raised if e.type not in INTERRUPTS]
    events += [e for e in statements.all(Terminate) if not is_symptom(e.type or "", e.what)]
    events += statements.all(WorkerDied)
    events = [e for e in events if e.rank is None]
    waits = [e for e in statements.all(Message) if table()[e.id].stops and not table()[e.id].follows]
    if not events or any(e.file == events[0].file and e.line < events[0].line for e in waits):
        return None  # what is raised behind a known message of a wait follows from it
    first = events[0]
    name = ""
    if isinstance(first, RankException):
        name = first.type
    elif isinstance(first, Terminate):
        fatal = first.what[:80] if first.what.startswith("Fatal Python error") else None
        name = fatal or first.type or "an abort (std::terminate)"
    advice = f"Fix the {name} first: what other ranks report later follows from it"
    if not isinstance(first, RankException):
        advice = "Look for what aborted this process: its last lines, and a core dump or the kernel log of its host"
    if isinstance(first, WorkerDied):
        advice = "Look for what ended this process"
    return _match(
        case,
        "crashed_rank",
        events,
        f"a process ended with {name}" if name else "a process died without printing an error",
        advice,
        strength=0,
    )


def _swept(case: Case) -> Match | None:
    """Return the answer where a launcher ended its workers and nothing tells which of them failed, or whether one did."""
    swept = case.statements.all(WorkersSwept)
    signals = [e for e in case.statements.all(CleanupSignal) if e.signal != "restart"]
    events: list[Event] = [*swept, *signals]
    # That the signal came from outside is for another rule to say.
    if not events or find_stop(case.statements) is not None or case.statements.external is not None:
        return None
    failed = next((e.failed for e in swept if e.failed), None)
    what = "the launcher terminated its workers: one of them failed, or the launcher got a signal"
    return _match(
        case,
        "crashed_rank",
        events,
        f"the launcher reports that {failed} failed" if failed else what,
        "Look above these lines, or in the log of each rank, for the first traceback, exit code or signal.",
        strength=1 if failed else 0,
        category=None if failed else "external",
    )
