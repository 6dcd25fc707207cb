"""Rules about processes: who died first, who left, who was ended from outside."""

from __future__ import annotations

from math import inf

from hangscope.causes.case import Case, Match, answer, quote, who
from hangscope.causes.init import never_formed
from hangscope.explain.finding import Absent, Different, Extra, Lagging, Nothing, Unseen
from hangscope.explain.statements.standstill import for_hours, stood_still
from hangscope.explain.statements.statements import Death
from hangscope.explain.text.excerpt import traced
from hangscope.ingest.job_logs.activity import EngineTimeout
from hangscope.ingest.job_logs.endings import Exit
from hangscope.ingest.job_logs.faults import NoProgress
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.c10d import HeartbeatTimeout, WatchdogTimeout
from hangscope.ingest.torch_logs.store import RendezvousBegun
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import CallFingerprint, GlooClosed, GlooTimeout, MonitoredBarrier
from hangscope.knowledge.callsite import is_user
from hangscope.model.conclusion import Evidence
from hangscope.model.events import Event

REASONS = {
    "preemption": "was preempted",
    "time_limit": "reached its time limit",
    "cancelled": "was cancelled",
    "sigterm": "was terminated from outside (SIGTERM)",
    "evicted": "was evicted by the cluster",
}
_OF_A_HOST = frozenset({"node_failure", "evicted"})  # ends for which the other hosts' ranks wait
_BY_PEOPLE = frozenset({"cancelled", "time_limit"})  # or when all of its time was over
_UNTOLD = _BY_PEOPLE | {"sigterm"}  # of which nobody tells why
#: What to do, by whether the job had stalled before: yes, no, or not known.
_ADVICE = {
    False: "The job was still making progress. Write a checkpoint on SIGTERM and let the scheduler requeue it.",
    None: "Check whether the job was still making progress when it was terminated: the time of its last step, or a stack of each rank.",
    True: "The job had stalled before it was terminated: take a stack of every rank before ending it next time.",
}
_SOME = 2  # ranks that wait for one before it is more than the slower one of a pair


def ended_from_outside(case: Case) -> Match | None:
    """Preemption, time limit, cancellation, SIGTERM to the launcher: nobody's fault in the job."""
    event, finding, statements = case.statements.external, case.finding, case.statements
    if event is None or statements.first_deaths or _had_timed_out(case, event):
        return None
    still = stood_still(case.incident, statements, event)
    # Dumps of a job that moves show some in their next call already, where who stops lets nearly all others wait.
    few = (
        not case.from_text and isinstance(finding, Absent) and len(finding.culprits) > len(case.graph.waiting)
    )
    if finding.culprits and not case.from_text:
        frozen = statements.all(WatchdogTimeout, GlooTimeout, HeartbeatTimeout, NoProgress)
        if frozen or (still and not few) or isinstance(finding, Different | Lagging):
            return None
    of_host = event.reason in _OF_A_HOST
    waits = (case.graph.waiting and not of_host) or (finding.waiting and not isinstance(finding, Nothing))
    if still and ((waits and not few) or for_hours(statements, event) is not None):
        return None  # it was frozen, whoever ended it
    start = never_formed(case) if event.reason in _BY_PEOPLE and still is not False else None
    if start is not None and (start.culprits or statements.all(RendezvousBegun)):
        return None  # a start takes moments, and who cancels a job looked at it for longer
    waited = still is not False and shows_a_wait(case)
    if waited and looked_at(case, set(finding.culprits) or set(case.incident.ranks)):
        return None
    if waited and event.signal == "SIGINT" and _blocked_in_a_library(case):
        return None
    # Who cancels a job of which nobody tells a step or a call may have seen that it never began.
    begun = case.solid or any(e.step is not None for e in statements.all(Progress))
    absent = set(case.incident.ranks) - traced(case.incident, statements)
    lost = sorted(absent) if event.reason in _UNTOLD and not begun and len(absent) == 1 else []
    told = REASONS.get(str(event.reason), "was terminated from outside")
    # People cancel jobs that are frozen, platforms end those that stand still, and calls that do not fit stop a job by themselves.
    doubtful = still is not False or event.signal == "SIGINT" or statements.all(CallFingerprint)
    rivals = []
    if still is not False:
        rivals = [
            ("unknown", "nothing shows that the job was still making progress: it may have been hung before")
        ]
        if lost:
            rivals = [("init_hang", f"rank {lost[0]} alone left no output, and no rank reports a step")]
    return answer(
        "crashed_rank",
        (),
        f"the job {told}",
        _ADVICE[still],
        # In the moment when it was ended a job that moves may wait as well.
        strength=0 if waited or lost else 1 if doubtful else 2,
        category="external",
        rivals=rivals,
        evidence=[event],
    )


def _had_timed_out(case: Case, end: Event) -> bool:
    """Return whether a watchdog, gloo or an engine had given up a wait before the job was ended: it was frozen, whoever ended it."""
    gave_up = case.statements.all(
        WatchdogTimeout, GlooTimeout, HeartbeatTimeout, EngineTimeout, MonitoredBarrier
    )
    return any(
        (e.line < end.line if e.file == end.file else (e.in_the_year or inf) < (end.in_the_year or 0.0))
        for e in gave_up
    )


def shows_a_wait(case: Case) -> bool:
    """Return whether where ranks stood shows them waiting for others at work, or all of them in calls that do not meet."""
    stood, culprits = case.statements.whereabouts, set(case.finding.culprits)
    inside = {rank for rank, where in stood.items() if where.inside}
    if isinstance(case.finding, Different):
        return inside == set(case.incident.ranks) and looked_at(case, inside)
    others = set(stood) - culprits
    return bool(culprits) and culprits <= case.statements.busy and len(others) >= _SOME and others <= inside


def _blocked_in_a_library(case: Case) -> bool:
    """Return whether all ranks tell where they stood, and those that others wait for in a library's wait and not in a step's work."""
    stood = case.statements.whereabouts
    tops = [frame for rank in case.finding.culprits if rank in stood for frame in stood[rank].stack[:1]]
    at_work = any(is_user(frame) or "torch/" in frame.file.replace("\\", "/") for frame in tops)
    return bool(tops) and set(stood) == set(case.incident.ranks) and not at_work


def looked_at(case: Case, ranks: set[int]) -> bool:
    """Return whether the stacks of all of these are in files of their own: one in a log may be of a signal's handler, and of the end."""
    told = {event.file for events in case.statements.kinds.values() for event in events}
    files = {case.incident.ranks[rank].stack_file for rank in ranks}
    return bool(ranks) and None not in files and not files & told


def died(case: Case) -> Match | None:
    """The first rank that died of its own fault, unless the dumps show that it died while it was waiting."""
    statements = case.statements
    deaths = [d for d in statements.first_deaths if _is_the_root(case, d)]
    if all(_refused_at_start(case, d.event) for d in deaths):
        return None
    if len(deaths) < len(statements.first_deaths) and all(isinstance(d.event, Exit) for d in deaths):
        return None  # ranks that waited were ended in the same moment
    culprits = tuple(sorted({d.rank for d in deaths}))
    first, named = deaths[0], case.finding.culprits
    doubtful = bool(named) and culprits != named and _may_be_of_another_attempt(case)
    why = f"{who(culprits)} {first.how}"
    if isinstance(first.event, RankException | Exit) and first.event.message and first.exception:
        why += f": {first.event.message[:160]}"
    if len(culprits) > 1:
        why += "; which of them ended first is not known"
    return answer(
        "crashed_rank",
        culprits,
        why,
        *_remedy(case, first),
        strength=0 if doubtful else 2 if len(culprits) == 1 else 1,
        category="hardware" if first.event.kind in ("xid", "cuda_error") else None,
        evidence=[death.event for death in deaths],
        frame=first.frame,
        frame_rank=first.rank,
    )


_REMEDIES = {
    "oom_cuda": "Lower rank {rank}'s peak memory{where}: its longest batch, activations, or fragmentation (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True).",
    "oom_host": "Rank {rank}'s host ran out of memory: fewer loader workers, smaller prefetch, or a larger memory request.",
    "loader_worker_death": "Find what killed rank {rank}'s data loader worker: host memory, or /dev/shm (a larger --shm-size, fewer workers).",
    "exception": "Fix the {what} that rank {rank} raised{where}{handler}.",
}
_LOOK = "Find what ended rank {rank}: the kernel log of its host (out-of-memory killer), a segmentation fault, or an operator."


def _remedy(case: Case, death: Death) -> list[str]:
    at = death.frame
    where = f" at {at.file}:{at.line} in {at.name}" if at is not None else ""
    told = _REMEDIES.get(death.event.kind, _LOOK)
    keep = "Do not raise the timeout: the others are waiting for a process that is gone."
    if not case.on_gloo and not case.statements.all(GlooClosed, GlooTimeout):
        keep = "Leave TORCH_NCCL_ASYNC_ERROR_HANDLING at its default (3), so that survivors abort and dump; do not raise the timeout."
    own, stuck = case.finding.own, case.finding.stuck
    # Who fails and yet calls something else there does so while it handles the exception.
    called = own.kind is not None and own.gid is None and own.seq == stuck.seq
    handler = "; issue no collective in an except or finally block" if called else ""
    return [
        told.format(rank=death.rank, where=where, handler=handler, what=death.exception or "exception"),
        keep,
    ]


def _refused_at_start(case: Case, event: Event) -> bool:
    """Return whether an error tells a rank that the job cannot start as it was started: NCCL's refusal, or the store's port is taken."""
    if not isinstance(event, RankException):
        return False
    if event.type.endswith("DistBackendError"):
        return any(e.refuses for e in case.statements.all(NcclWarn))
    # A server of the program's own raises an OSError.
    of_store = event.type.endswith(("RuntimeError", "DistNetworkError"))
    return of_store and "ddress already in use" in event.message


def _is_the_root(case: Case, death: Death) -> bool:
    finding = case.finding
    if death.rank in finding.culprits or not case.solid or _may_be_of_another_attempt(case):
        return True
    if isinstance(finding, Different | Extra):
        return finding.tie and not finding.culprits and _raised_before_it_waited(case, death)
    # The dumps show this rank inside a call: it died there, of the freeze or after it.
    return death.rank not in case.graph.waiting and not (isinstance(finding, Absent) and finding.culprits)


def _may_be_of_another_attempt(case: Case) -> bool:
    """Return whether the logs go on behind a restart: the dumps may be what the attempt before left."""
    return any(note.code == "several_attempts" for note in case.incident.notes)


def _raised_before_it_waited(case: Case, death: Death) -> bool:
    """Return whether a rank raised its own exception first, and waited for its peers while it handled that."""
    waited = case.statements.of(death.rank, CallFingerprint, GlooTimeout, GlooClosed, WatchdogTimeout)
    lines = [e.line for e in waited if e.file == death.event.file]
    return isinstance(death.event, RankException) and bool(lines) and death.event.line < min(lines)


def left_quietly(case: Case) -> Match | None:
    """A rank that ended without an error while others still had calls to make: in a library's loop it ran out of batches.

    The user's code cannot return from within such a loop: it is over where the batches are, or where it was told to stop.
    """
    quiet, world = case.statements.left_quietly, len(case.incident.ranks)
    finding = case.finding
    if isinstance(finding, Absent | Unseen):
        # Of several unseen ranks the launcher may have ended some before they could dump; the one that left is the root.
        left = [r for r in finding.culprits if r in quiet]
    else:
        stopped = case.statements.all(GlooClosed, GlooTimeout, RankException, WatchdogTimeout)
        left = sorted(quiet) if not case.solid and (stopped or not isinstance(finding, Nothing)) else []
    if not left or len(quiet) >= world or len(left) * 2 > world - (len(left) > 1):
        return None  # where as many left as stayed, nobody is odd
    evidence: list[Evidence | Event] = [Evidence("exit", f"rank {r}: {quiet[r]}", r) for r in left]
    others = (rank for rank in sorted(case.statements.whereabouts) if rank not in left)
    reading = case.knowledge.read(case.stack_of(finding.stuck.kind, others))
    if reading.loop is not None and reading.stage == "step" and not reading.by_user:
        return answer(
            "uneven_loader",
            left,
            f"{who(left)} finished {reading.loop.api} and exited without an error while the others are still in a step",
            evidence=evidence,
            rivals=[
                ("early_exit", "a rank that stopped the loop or the program by itself ends the same way"),
                ("gradient_sync_mismatch", "a rank that skipped a backward pass finishes one step early"),
            ],
        )
    last = {r: e for r in left for e in case.statements.of(r, Progress)[-1:]}
    after = f" after printing {last[left[0]].text.strip()[:80]!r}" if left[0] in last else ""
    return answer(
        "early_exit",
        left,
        f"{who(left)} exited without an error while the others still had collectives to issue",
        f"Find the return, break or sys.exit(0) that {who(left)} took{after}.",
        "Exit together: let all ranks agree on the end (an all_reduce of a flag, or a barrier) before any of them returns.",
        strength=2 if any("code 0" in quiet[r] for r in left) else 1,
        evidence=[*evidence, *(quote(e, f"its last output: {e.text}") for e in last.values())],
    )
