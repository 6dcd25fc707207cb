"""Rules about faults that no rank's name stands beside: they are the cause all the same, and nobody is accused.

A completion with an error of an InfiniBand adapter, an Xid of a host, a line of an out-of-memory killer, an exception of a
process that no prefix names.
"""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.align.rankset import ranks_phrase
from hangscope.causes.case import Case, Match, quote
from hangscope.events import Event
from hangscope.explain.finding import Nothing, Stalled
from hangscope.explain.text.stop import find_stop
from hangscope.ingest.job_logs.endings import CleanupSignal, Exit, WorkersSwept
from hangscope.ingest.job_logs.faults import CudaError, DiskFull, LoaderWorkerDeath, OomCuda, OomHost, Xid
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.job_logs.ray import WorkerDied
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.abort import Terminate
from hangscope.ingest.torch_logs.exception_meaning import is_symptom
from hangscope.ingest.torch_logs.store import FsdpOrder
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import CallFingerprint

_ENDED_BY_LAUNCHER = frozenset({0, -15, 143})
_KILLED = frozenset({-9, -11, -7, -4, -8})
_NO_FAULT = frozenset({"KeyboardInterrupt", "SystemExit", "SignalException"})


def fault_without_rank(case: Case) -> Match | None:
    """The first fault that explains a stop by itself, told by a line that names no rank."""
    if not isinstance(case.finding, Nothing | Stalled) or (
        isinstance(case.finding, Stalled) and not case.from_text
    ):
        return None
    for rule in (_device, _memory, _adapter, _mismatch, _ended, _exception, _swept):
        match = rule(case)
        if match is not None:
            return match
    return None


def _match(
    cause: str, events: Sequence[Event], what: str, category: str, advice: Sequence[str], strength: int = 1
) -> Match:
    first = events[0]
    where = f" on host {first.host}" if first.host else ""
    where += f" (task {first.task} of srun or mpirun)" if first.task is not None else ""
    where += (
        f" (local rank {first.local_rank})" if first.local_rank is not None and first.rank is None else ""
    )
    ranks = sorted({e.rank for e in events if e.rank is not None})
    which = (
        f"lines say it of {ranks_phrase(ranks)}"
        + (", and not which of them was first" if len(ranks) > 1 else "")
        if ranks
        else f"no line says which {'global ' if first.local_rank is not None else ''}rank that was"
    )
    return Match(
        cause,
        (),
        f"{what}{where}; {which}",
        strength=strength,
        category=category,
        evidence=[quote(event) for event in events[:4]],
        advice=list(advice),
    )


def _device(case: Case) -> Match | None:
    warned = [e for e in case.statements.all(NcclWarn) if e.fault == "cuda"]
    events: list[Event] = [*case.statements.all(Xid), *case.statements.all(CudaError), *warned]
    if not events:
        return None
    first = events[0]
    told = f"Xid {first.code}" if isinstance(first, Xid) else ""
    told = told or (first.error if isinstance(first, CudaError) else first.text)[:120]
    device = f" of device {first.device}" if isinstance(first, Xid) and first.device else ""
    return _match(
        "gpu_stall",
        events,
        f"a device error was reported{device} ({told})",
        "hardware",
        [
            "Find the process that printed it: its prefix, its file, or the process id in the kernel's log names the rank.",
            "Drain that GPU, and look for the first CUDA error or Xid; timeouts of other ranks came later.",
        ],
    )


_MEMORY: tuple[tuple[type[Event], str, str, str], ...] = (
    (OomCuda, "a process ran out of GPU memory", "code", "Lower the peak memory of that process: its longest batch, activations, fragmentation."),
    (OomHost, "the out-of-memory killer ended a process", "code", "Fewer loader workers, smaller prefetch, or a larger memory request."),
    (LoaderWorkerDeath, "a data loader worker died", "code", "Find what killed the worker: host memory, or /dev/shm (a larger --shm-size, fewer workers)."),
    (DiskFull, "a disk was full", "data", "Free space where that process writes."),
)  # fmt: skip


_OF_NCCL = (
    ("oom", "NCCL got no GPU memory", "Leave memory for NCCL's buffers: a smaller batch, or a smaller share for the allocator or the engine's cache."),
    ("shm", "NCCL got no shared memory", "Enlarge /dev/shm (docker's --shm-size, or --ipc=host) on the host that printed it."),
)  # fmt: skip

_UNLIKE = {
    "collective_mismatch": "NCCL's own check says that calls did not match",
    "size_mismatch": "a message was larger than its receiver expected (calls that do not match, or hosts with other settings of NCCL)",
}


def _memory(case: Case) -> Match | None:
    for fault, what, advice in _OF_NCCL:
        warned = [e for e in case.statements.all(NcclWarn) if e.fault == fault]
        if warned:
            return _match("crashed_rank", warned, what, "code", [advice])
    for kind, what, category, advice in _MEMORY:
        events = [e for e in case.statements.all(kind) if not (isinstance(e, OomCuda) and e.implausible)]
        if events:
            return _match("crashed_rank", events, what, category, [advice])
    return None


def _adapter(case: Case) -> Match | None:
    told = [e for e in case.statements.all(NcclWarn) if e.of_transport and e.tier <= 2 and not e.retrying]
    warnings = [e for e in told if e.fault != "size_mismatch"]  # that is the program's own
    if not warnings:
        return None
    first = min(warnings, key=lambda e: (e.tier, e.file, e.line))
    peer = first.peer_node or first.peer_host
    what = "the transport reported a fault" + (f" towards {peer}" if peer else "")
    return _match(
        "network_stall",
        [first, *(e for e in warnings if e is not first)],
        what + (f" (adapter {first.nic})" if first.nic else ""),
        "network",
        [
            f"Check NIC, cable and switch port{f' towards {peer}' if peer else ''}; then run a pairwise bandwidth test over these hosts.",
            "Compare NCCL_SOCKET_IFNAME and NCCL_IB_GID_INDEX over the hosts.",
        ],
    )


def _mismatch(case: Case) -> Match | None:
    halves = [e for e in case.statements.all(CallFingerprint) if e.context == "mismatch"]
    if halves:
        return _unlike(halves)
    if orders := [e for e in case.statements.all(FsdpOrder) if e.group_rank is None]:
        what = "FSDP's own check says that ranks gather parameters in different orders"
        advice = "Let every rank run the same modules in the same order in its first forward pass: look for a branch on data or on the rank."
        return _match("collective_mismatch", orders, what, "code", [advice])
    warnings = [e for e in case.statements.all(NcclWarn) if e.fault in _UNLIKE]
    if not warnings:
        return None
    return _match(
        "collective_mismatch",
        warnings,
        _UNLIKE[warnings[0].fault],
        "code",
        [
            "Rerun with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL and one file per process; compare the calls rank by rank."
        ],
        strength=0,
    )


def _unlike(halves: Sequence[CallFingerprint]) -> Match:
    """Return the answer for one rank's word of DETAIL's check: the calls differ, and who is odd it cannot tell."""
    aspects = {aspect for e in halves for aspect in e.aspects} - {"sequence number"}
    finer = {"shapes": "shape_mismatch", "dtypes": "dtype_mismatch"}
    first = halves[0]
    who = f"rank {first.rank}" if first.rank is not None else "a rank"
    other = f"a peer that was in {first.peer_op}" if first.peer_op else "a peer"
    return Match(
        finer.get("/".join(sorted(aspects)), "collective_mismatch"),
        (),
        f"{who} was in {first.op} and {other}; from one side alone it cannot be told which is odd",
        strength=1,
        category="code",
        evidence=[quote(event) for event in halves[:4]],
        advice=["Collect this error from every rank: the call that the minority was in is the odd one."],
    )


def _ended(case: Case) -> Match | None:
    # Who waited until a timeout ends with an error, too: then only a signal that nobody sends for that is a cause.
    waited = find_stop(case.statements) is not None
    exits = [
        e
        for e in case.statements.all(Exit)
        if e.code not in _ENDED_BY_LAUNCHER and (not waited or (e.rank is None and e.code in _KILLED))
    ]
    if not exits:
        return None
    first = next((e for e in exits if e.first), exits[0])
    how = f"was killed by {first.signal}" if first.signal else f"ended with exit code {first.code}"
    return _match(
        "crashed_rank",
        [first, *(e for e in exits if e is not first)],
        f"a process {how}",
        "code",
        ["Look for its own last lines, and for its signal in the kernel log of its host."],
    )


def _exception(case: Case) -> Match | None:
    raised = [
        e
        for e in case.statements.all(RankException)
        if e.type and not e.symptom and not e.truncated and e.type not in _NO_FAULT and not _went_on(case, e)
    ]
    ended = [
        e
        for e in case.statements.all(Terminate)
        if not is_symptom(e.type or "", e.what) and not _went_on(case, e)
    ]
    lost = [e for e in case.statements.all(WorkerDied) if not _went_on(case, e)]
    events: list[Event] = [e for e in (*raised, *ended, *lost) if e.rank is None]
    if not events:
        return None
    first = events[0]
    name = (first.type if isinstance(first, (RankException, Terminate)) else None) or (
        "no word of its own" if isinstance(first, WorkerDied) else "an abort"
    )
    if isinstance(first, Terminate) and first.what.startswith("Fatal Python error"):
        name = first.what[:80]
    message = first.message if isinstance(first, RankException) else first.text
    return _match(
        "crashed_rank",
        events,
        f"a process ended with {name}",
        "code",
        [
            "Look for what ended this process"
            if isinstance(first, WorkerDied)
            else f"Mend the {name}" + ("" if name in message else f": {message[:120]}")
        ],
        strength=0,
    )


def _swept(case: Case) -> Match | None:
    """Return the answer where a launcher ended its workers and nothing tells which of them failed, or whether one did."""
    events: list[Event] = [
        *case.statements.all(WorkersSwept),
        *(e for e in case.statements.all(CleanupSignal) if e.signal != "restart"),
    ]
    if not events or find_stop(case.statements) is not None or any(_went_on(case, e) for e in events):
        return None
    if case.statements.external is not None:
        return None  # that rule has its say: the signal came from outside
    failed = next((e.failed for e in events if isinstance(e, WorkersSwept) and e.failed), None)
    what = (
        f"the launcher reports that {failed} failed"
        if failed
        else "the launcher ended its workers: one failed, or it got a signal"
    )
    return _match(
        "crashed_rank",
        events,
        what,
        "code" if failed else "external",
        ["Look above these lines, or in the ranks' own logs, for the first traceback, exit code or signal."],
        strength=1 if failed else 0,
    )


def _went_on(case: Case, event: Event) -> bool:
    """Return whether the file goes on counting steps after an error, so that it was caught."""
    return any(
        e.file == event.file and e.line > event.line and e.step is not None
        for e in case.statements.all(Progress)
    )
