"""Which ranks died of a fault of their own, and which only show what another one's end did to them.

A survivor that reports "connection closed by peer", a process that the launcher ended with SIGTERM and a watchdog's abort are
victims, whatever their exit code says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from hangscope.events import Event
from hangscope.explain.statements.statements import CLOCK_SKEW, INTERRUPTS, Death, Statements
from hangscope.ingest.job_logs.endings import CleanupSignal, Exit
from hangscope.ingest.job_logs.faults import DiskFull, LoaderWorkerDeath, OomCuda, OomHost
from hangscope.ingest.job_logs.printed import PrintedTail
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.job_logs.ray import WorkerDied
from hangscope.ingest.torch_logs.abort import Terminate
from hangscope.ingest.torch_logs.c10d import (
    DumpObserved,
    DumpSignal,
    HeartbeatTimeout,
    WatchdogStatus,
    WatchdogTimeout,
)
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import GlooClosed, GlooSizeMismatch, GlooTimeout
from hangscope.knowledge.callsite import user_frame

_ABORTS = frozenset({-6, 134})
_CLEANUPS = frozenset({-15, 143})
_GRACE = (
    25.0  # seconds: a torchrun agent waits 30 between SIGTERM and SIGKILL, and its table counts whole seconds
)

#: What a rank tells that waited for others, or noticed something, before it was aborted.
_ABORTING: tuple[type[Event], ...] = (
    GlooSizeMismatch, WatchdogTimeout, GlooClosed, GlooTimeout, Terminate, RankException, HeartbeatTimeout, DumpSignal, DumpObserved,
    WatchdogStatus,
)  # fmt: skip


def own_death(rank: int, statements: Statements) -> Death | None:
    """Return a rank's own death, or None where all it shows is a consequence."""
    exit_event = statements.exits.get(rank)
    own = [
        e
        for e in statements.of(rank, RankException)
        # a traceback that breaks off need not have ended anything
        if not e.symptom
        and not e.truncated
        and e.type not in INTERRUPTS
        and not _went_on(rank, e, statements)
    ]
    faults: tuple[tuple[type[Event], str], ...] = (
        (OomCuda, "ran out of GPU memory"),
        (OomHost, "was killed by the host's out-of-memory killer"),
        (LoaderWorkerDeath, "lost a data loader worker"),
    )
    for kind, how in faults:
        found = [e for e in statements.of(rank, kind) if not _went_on(rank, e, statements)]
        if found:
            return Death(
                rank,
                how,
                found[0],
                4,
                user_frame(own[0].frames) if own else None,
                own[0].type if own else "",
            )
    if own:
        return Death(
            rank,
            f"raised {own[0].type or 'an exception'}",
            own[0],
            3,
            user_frame(own[0].frames),
            own[0].type,
        )
    if exit_event is not None and _swept(exit_event, statements):
        return None
    if exit_event is not None and exit_event.code > 0 and any(s[0] is exit_event for s in statements.sweeps):
        return Death(rank, f"ended with exit code {exit_event.code}", exit_event, 3)
    if exit_event is not None:
        code = exit_event.code
        if code < 0 or code > 128:
            number = -code if code < 0 else code - 128
            if code in _CLEANUPS or _not_alone(exit_event, statements):
                return None
            if code in _ABORTS and _unheard_abort(rank, statements):
                return None
            if code in _ABORTS and statements.of(rank, *_ABORTING):
                return None
            return Death(
                rank,
                f"was killed by signal {number} ({exit_event.signal or _SIGNALS.get(number, '?')})",
                exit_event,
                3,
            )
    aborting = [
        e for e in statements.of(rank, *_ABORTING) if not (isinstance(e, Terminate) and _by_signal(e))
    ]
    died = statements.of(rank, WorkerDied)
    if died and not aborting:
        told = next((e.what for e in statements.of(rank, Terminate)), "")
        return Death(rank, f"ended with {told}" if told else "ended without a word of its own", died[0], 3)
    # Composer ends all others with SIGTERM; torch's own tests tell of those that failed alone
    told_of = [e for e in statements.all(Exit) if e.via in ("composer", "test") and e.code not in _CLEANUPS]
    if told_of and told_of == [exit_event] and not aborting:
        return Death(rank, f"ended with exit code {told_of[0].code}", told_of[0], 3)
    full = [e for e in statements.of(rank, DiskFull) if not _went_on(rank, e, statements)]
    return Death(rank, "ran out of disk space", full[0], 2) if full else None


def _by_signal(event: Terminate) -> bool:
    """Return whether the interpreter tells of a signal that is no abort: an address or an instruction that is none."""
    return event.what.startswith("Fatal Python error") and "Aborted" not in event.what


def sweeps(exits: Iterable[Exit]) -> list[list[Exit]]:
    """Return, of the job and of each host, the exit that an agent answered by ending all others, then theirs.

    Half a minute later the agent killed those that did not go.
    """
    of_host: dict[str | None, list[Exit]] = defaultdict(list)
    ended = [e for e in exits if e.via == "table" and e.code not in _CLEANUPS and e.code != 0]
    for event in sorted(ended, key=lambda e: (e.time or 0.0, e.rank or 0)):
        of_host[event.host].append(event)
        if event.host is not None:
            of_host[""].append(event)
    return [
        [first, *later]
        for first, *later in of_host.values()
        if later
        and all(e.code == -9 and first.time and e.time and e.time - first.time >= _GRACE for e in later)
    ]


def _swept(event: Exit, statements: Statements) -> bool:
    """Return whether a process was killed because it outlived the agent's grace after another one's end.

    So was one that its agent says to have sent a signal: it ran when another one had failed.
    """
    closed = {(e.file, e.pid) for e in statements.all(CleanupSignal) if e.pid is not None}
    return (
        event.code == -9
        and event.via == "table"
        and ((event.file, event.pid) in closed or any(event in later for _, *later in statements.sweeps))
    )


_SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}


def _not_alone(event: Exit, statements: Statements) -> bool:
    """Return whether a signal ended all processes of a table in one moment, or its abort was not the first one.

    Whoever sent it meant all of them; it is watchdogs that abort one process behind another. A list of containers has no times.
    """
    others = [e for e in statements.exits.values() if e.via in ("table", "docker") and e is not event]
    if others and event.via == "docker":
        return all(e.code == event.code for e in others)
    beside = [
        e.code == event.code
        and e.time is not None
        and event.time is not None
        and e.time <= event.time + CLOCK_SKEW
        for e in others
    ]
    return any(beside) if event.code in _ABORTS else bool(beside) and all(beside)


def _unheard_abort(rank: int, statements: Statements) -> bool:
    """Return whether a rank of which only the launcher tells was aborted in a job whose communication layer aborts processes.

    NCCL's watchdogs abort those that wait, and gloo whoever gets a message that does not fit its buffer.
    """
    said = (e for events in statements.of_rank[rank].values() for e in events)
    heard = any(not e.by_launcher and not isinstance(e, Progress | PrintedTail) for e in said)
    return not heard and bool(statements.all(WatchdogTimeout, GlooClosed, GlooTimeout))


def _went_on(rank: int, event: Event, statements: Statements) -> bool:
    """Return whether a rank went on after an error, with its steps or into a call in which it waited: it caught it, and lived.

    A traceback of a library's frames alone was printed by that library, which caught the error.
    """
    if isinstance(event, RankException) and event.frames and user_frame(event.frames) is None:
        later = (e for e in statements.of(rank, RankException) if e.symptom)
        if any(e.file == event.file and e.line > event.line for e in later):
            return True
    return any(
        e.file == event.file
        and e.line > event.line
        and e.attempt == event.attempt
        and isinstance(e.step, int)
        and not e.leaving
        for e in statements.of(rank, Progress)
    )
