"""Which ranks died of a fault of their own, and which only show what another one's end did to them.

A survivor that reports "connection closed by peer", a process that the launcher ended with SIGTERM and a watchdog's abort are
victims, whatever their exit code says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import inf

from hangscope.explain.statements.statements import (
    CLOCK_SKEW,
    INTERRUPTS,
    WAITED,
    AnyEvent,
    Death,
    Statements,
)
from hangscope.ingest.job_logs.endings import CleanupSignal, Exit, ExternalEnd, WorkerDied, signal_name
from hangscope.ingest.job_logs.faults import DiskFull, LoaderWorkerDeath, OomCuda, OomHost
from hangscope.ingest.job_logs.printed import Printed
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.abort import Terminate
from hangscope.ingest.torch_logs.c10d import (
    DumpObserved,
    DumpSignal,
    HeartbeatTimeout,
    WatchdogStatus,
    WatchdogTimeout,
)
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import GlooSizeMismatch
from hangscope.knowledge.callsite import is_user, user_frame
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

_ABORTS = frozenset({-6, 134})  # by SIGABRT, as a launcher or a shell tells it
_CLEANUPS = frozenset({-15, 143})
_OF_THE_FIRST = ("composer", "test", "mpirun")
_GRACE = (
    25.0  # seconds: a torchrun agent waits 30 between SIGTERM and SIGKILL, and its table counts whole seconds
)
_PREFIX = "[rank"  # of each line of a traceback that ended a process of a group (torch 2.3 and later)

REPLACED = "\ufffd"  # stands for bytes that are no text
#: Where calls of the communication layer raise what C++ threw, and what Python raises there for a wrong argument.
_COMMUNICATION = (
    "distributed/distributed_c10d.py",
    "distributed/rendezvous.py",
    "distributed/_functional_collectives.py",
)
_ARGUMENT_ERRORS = frozenset(
    {"ValueError", "TypeError", "AssertionError", "KeyError", "IndexError", "AttributeError"}
)
#: What stands in its messages, so that one of them is known where a letter of it is changed.
_ITS_WORDS = regex(
    r"[Cc]ollective|\bpeers?\b|nccl|NCCL|gloo|[Bb]arrier|\bDDP\b|ProcessGroup|communicator|TCPStore|across all ranks|"
    r"\[[Rr]ank \d|[Rr]anks? \d{1,7} (?:failed|is|successfully)|failed to pass|Op type|Sequence number|SequenceNumber|OpType|TensorShape"
)
#: What a rank tells that waited for others, or noticed something, before it was aborted.
_ABORTING: tuple[type[Event], ...] = (
    *WAITED, GlooSizeMismatch, Terminate, RankException, HeartbeatTimeout, DumpSignal, DumpObserved, WatchdogStatus,
)  # fmt: skip
_FAULTS: tuple[tuple[type[Event], str], ...] = (
    (OomCuda, "ran out of GPU memory"),
    (OomHost, "was killed by the host's out-of-memory killer"),
    (LoaderWorkerDeath, "lost a data loader worker"),
)


def own_deaths(statements: Statements) -> list[Death]:
    """Return the ranks' own deaths, by rank; of a rank that shows consequences alone there is none."""
    job = _Job.of(statements)
    found = (_own_death(rank, statements, job) for rank in sorted(statements.of_rank))
    return [death for death in found if death is not None]


@dataclass(frozen=True, slots=True)
class _Job:
    """What the ends of all ranks together say, found once: exits are told apart by their identity."""

    answered: frozenset[int]
    killed: frozenset[int]
    refused: list[NcclWarn]  # NCCL got no memory
    reported: list[Exit]  # by launchers that report the first failure alone

    @classmethod
    def of(cls, statements: Statements) -> _Job:
        answered, killed = _sweeps(statements)
        return cls(
            frozenset(map(id, answered)),
            frozenset(map(id, killed)),
            [e for e in statements.all(NcclWarn) if e.fault == "oom" and e.tier == 1],
            [e for e in statements.all(Exit) if e.via in _OF_THE_FIRST and e.code not in _CLEANUPS],
        )


def _own_death(rank: int, statements: Statements, job: _Job) -> Death | None:
    own = [
        # a traceback that breaks off need not have ended anything
        e
        for e in _not_survived(rank, RankException, statements)
        if not (e.symptom or e.truncated or e.type in INTERRUPTS)
    ]
    frame, exception = (user_frame(own[0].frames), own[0].type) if own else (None, "")
    for kind, how in _FAULTS:
        for fault in _not_survived(rank, kind, statements)[:1]:
            return Death(rank, how, fault, 4, frame, exception)
    if job.refused and {e.rank for e in job.refused} == {rank}:  # of several nobody knows who was first
        return Death(rank, "got no GPU memory for NCCL's buffers", job.refused[0], 4, frame, exception)
    if own:
        return Death(rank, f"raised {exception or 'an exception'}", own[0], 3, frame, exception)
    end = statements.exits.get(rank)
    if id(end) in job.killed:
        return None
    if end is not None and end.code > 0 and (id(end) in job.answered or _chose_its_code(end, statements)):
        return Death(rank, f"ended with exit code {end.code}", end, 3)
    aborting = bool(statements.of(rank, *_ABORTING))
    if end is not None and (end.code < 0 or end.code > 128):
        number = -end.code if end.code < 0 else end.code - 128
        if number == 9 and _was_ended(end, statements):
            return None
        of_others = end.code in _ABORTS and (aborting or _unheard_abort(rank, statements))
        if of_others or end.code in _CLEANUPS or _not_alone(end, statements):
            return None
        signal = end.signal or signal_name(-number) or "?"
        return Death(rank, f"was killed by signal {number} ({signal})", end, 3)
    for crash in statements.of(rank, Terminate):
        if _CRASH.search(crash.what) and not statements.of(rank, *WAITED):
            return Death(rank, f"crashed ({crash.what[:60].strip(' *')})", crash, 3)
    aborting = any(not isinstance(e, Terminate) or not _by_signal(e) for e in statements.of(rank, *_ABORTING))
    for died in statements.of(rank, WorkerDied)[: not aborting]:
        told = next((e.what for e in statements.of(rank, Terminate)), "")
        return Death(rank, f"ended with {told}" if told else "died without printing an error", died, 3)
    # Composer ends all others with SIGTERM; torch's own tests tell of those that failed alone, mpirun of the first
    if len(job.reported) == 1 and job.reported == [end] and not aborting:
        return Death(rank, f"ended with exit code {job.reported[0].code}", job.reported[0], 3)
    for full in _not_survived(rank, DiskFull, statements)[:1]:
        return Death(rank, "ran out of disk space", full, 2)
    return None


#: How a process's own handler reports a signal that no peer sends.
_CRASH = regex(r"SIG(?:SEGV|BUS|ILL|FPE)\b|Caught signal (?:4|7|8|11) |Segmentation fault")


def _by_signal(event: Terminate) -> bool:
    """Return whether the interpreter tells of a signal that is no abort: an address or an instruction that is none."""
    return event.what.startswith("Fatal Python error") and "Aborted" not in event.what


def _sweeps(statements: Statements) -> tuple[list[Exit], list[Exit]]:
    """Return the exits that an agent answered by ending all others of the job or of a host, and those of whom it then killed.

    It kills who outlives its grace, and says whom it sent a signal before: they ran when another one had failed.
    """
    closed = {(e.file, e.pid) for e in statements.all(CleanupSignal) if e.pid is not None}
    ended = [e for e in statements.exits.values() if e.via == "table" and e.code not in {0, *_CLEANUPS}]
    answered, killed = [], [e for e in ended if e.code == -9 and (e.file, e.pid) in closed]
    of_host: dict[str | None, list[Exit]] = defaultdict(list)
    for event in sorted(ended, key=lambda e: (e.time or 0.0, e.rank or 0)):
        for place in {event.host, event.host and ""}:
            of_host[place].append(event)
    for first, *later in of_host.values():
        late = (e.code == -9 and first.time and e.time and e.time - first.time >= _GRACE for e in later)
        if later and all(late):
            answered.append(first)
            killed += later
    return answered, killed


def _not_alone(event: Exit, statements: Statements) -> bool:
    """Return whether a signal ended all processes of a table in one moment, or its abort was not the first one.

    Whoever sent it meant all of them; it is watchdogs that abort one process behind another. Lists of containers and tasks have no times.
    """
    others = [e for e in statements.exits.values() if e is not event]
    if event.code in _ABORTS and any(e.code in _ABORTS and e.time is event.time is None for e in others):
        return True
    others = [e for e in others if e.via in ("table", "docker")]
    if others and event.via == "docker":
        return all(e.code == event.code for e in others)
    beside = [e.code == event.code and (e.time or inf) <= (event.time or -inf) + CLOCK_SKEW for e in others]
    return any(beside) and (event.code in _ABORTS or all(beside))


def _chose_its_code(event: Exit, statements: Statements) -> bool:
    """Return whether a rank alone of torchrun's table ended itself: with a code that no exception gives, and SIGTERM for the others."""
    if event.via != "table" or not 1 < event.code < 128 or statements.all(*WAITED):
        return False
    others = (e for e in statements.exits.values() if e.via == "table" and e is not event)
    first = next(others, None)
    return first is not None and first.code in _CLEANUPS and all(e.code in _CLEANUPS for e in others)


def _was_ended(event: Exit, statements: Statements) -> bool:
    """Return whether a launcher reported before this exit that the whole job is being ended: SIGKILL follows."""
    return any(e.file == event.file and e.line < event.line for e in statements.all(ExternalEnd))


def _unheard_abort(rank: int, statements: Statements) -> bool:
    """Return whether a rank of which only the launcher tells was aborted in a job whose communication layer aborts processes.

    NCCL's watchdogs abort those that wait, and gloo whoever gets a message that does not fit its buffer.
    """
    said = (e for events in statements.of_rank[rank].values() for e in events)
    heard = any(not e.by_launcher and not isinstance(e, Progress | Printed) for e in said)
    return not heard and statements.any_of(*WAITED)


def _not_survived(rank: int, kind: type[AnyEvent], statements: Statements) -> list[AnyEvent]:
    """Return a rank's errors of a kind that it did not survive, but for the size of a buffer that a call never filled."""
    # Nothing has so much memory: the call that was to tell the size timed out.
    unfilled = [e for e in statements.of(rank, OomCuda) if e.implausible]
    timed = statements.all(*WAITED) if unfilled else []
    behind = [
        e for e in timed if e.rank == rank or (e.file == unfilled[0].file and e.line < unfilled[0].line)
    ]

    def of_a_wait(event: Event) -> bool:
        told = event.message if isinstance(event, RankException) else event.text
        return bool(behind) and "out of memory" in told

    return [e for e in statements.of(rank, kind) if not (_went_on(e, statements) or of_a_wait(e))]


def _went_on(event: Event, statements: Statements) -> bool:
    """Return whether a rank went on after an error: with its steps, to its end, or into a call in which it waited.

    A traceback that a library printed has its frames alone, and what a program logs lacks the prefix that torch gives to those
    that end the process: then an error of a later wait shows that it was caught.
    """
    if event.rank is None:
        return False
    waited = bool(
        statements.all(*WAITED)
    )  # "done" may be the word of a handler, for which the others still wait
    told = [e for e in statements.of(event.rank, Progress) if not e.leaving]
    later: list[Event] = [e for e in told if e.step is not None or (e.over and not waited)]
    later = [e for e in later if e.attempt == event.attempt]
    if not waited:
        later += [
            p
            for p in statements.of(event.rank, Printed)
            if p.numbers[-1] > event.line and p.file == event.file
        ]
    if isinstance(event, RankException) and event.frames:
        logged = not event.text.startswith(_PREFIX)
        raised = [e for e in statements.of(event.rank, RankException) if e.symptom]
        by_library = user_frame(event.frames) is None
        if not _left_its_peers(event, raised, statements):
            later += [e for e in raised if by_library or (logged and e.text.startswith(_PREFIX))]
    return any(e.file == event.file and max(e.line, *_numbers(e)) > event.line for e in later)


def _left_its_peers(event: RankException, raised: Sequence[RankException], statements: Statements) -> bool:
    """Return whether an error took a rank out of a function in which its peers wait, and it waits outside that itself.

    Then the error is what parted them, whatever its handler did next.
    """
    passed = {(frame.file, frame.name) for frame in event.frames if is_user(frame)}
    own = {(frame.file, frame.name) for later in raised for frame in later.frames}
    peers = [e for e in statements.all(RankException) if e.symptom and e.rank != event.rank]
    left = passed - own
    return bool(raised) and any((frame.file, frame.name) in left for e in peers for frame in e.frames)


def _numbers(event: Event) -> tuple[int, ...]:
    return event.numbers if isinstance(event, Printed) else (0,)


def survived(statements: Statements) -> list[RankException]:
    """Return the exceptions that ranks caught: they went on after them, or another rank did that logged the same one."""
    raised = [e for e in statements.all(RankException) if not e.symptom and e.rank is not None]
    caught = [e for e in raised if _went_on(e, statements)]
    logged = {(e.type, user_frame(e.frames)) for e in caught if not e.text.startswith(_PREFIX)}
    failed = {e.rank for e in statements.all(Exit) if e.code not in {0, *_CLEANUPS}}
    for event in raised:
        same = (event.type, user_frame(event.frames)) in logged and not event.text.startswith(_PREFIX)
        caught += [event] if same and event not in caught and event.rank not in failed else []
    return caught


def doubt(death: Death, statements: Statements) -> str:
    """Return why a death may be none, or none of the rank's own; nothing where it is one.

    Its traceback's beginning, or all of its frames, are not there, and nothing else says that the rank ended. Or the
    communication layer raised it, in words that no rule knows: a rank whose peer is gone gets such an error, too.
    """
    event, told, who = death.event, statements.exits.get(death.rank), f"rank {death.rank}"
    if isinstance(event, Exit) and event.code in _ABORTS and statements.all(WatchdogTimeout):
        return f"a watchdog aborts its process as well, as those of other ranks did: the log of {who} may be incomplete"
    if not isinstance(event, RankException):
        return ""
    if any(REPLACED in frame.file + frame.name for frame in event.frames):
        return f"the traceback of {who} contains invalid bytes"
    if event.torn and (told is None or not told.code):
        return f"the traceback of {who} is incomplete: its last line may be of an error that was caught"
    place = event.frames[0].file.replace("\\", "/") if event.frames else ""
    of_peers = place.endswith(_COMMUNICATION) or _ITS_WORDS.search(event.message)
    if of_peers and event.type.rsplit(".", 1)[-1] not in _ARGUMENT_ERRORS:
        return f"the communication layer raised the error of {who}, as it also does for the fault of a peer"
    return ""
