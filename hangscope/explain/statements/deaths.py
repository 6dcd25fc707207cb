"""Which ranks died of a fault of their own, and which only show the consequences of another one's end (`exits`), as lost connections."""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.explain.statements.exits import CLEANUPS, Exits
from hangscope.explain.statements.statements import INTERRUPTS, WAITED, AnyEvent, Death, Statements
from hangscope.explain.statements.torn_lines import Endings, Originals
from hangscope.ingest.job_logs.endings import Exit, WorkerDied
from hangscope.ingest.job_logs.faults import DiskFull, LoaderWorkerDeath, OomCuda, OomHost
from hangscope.ingest.job_logs.last_lines import Printed
from hangscope.ingest.job_logs.messages import HcclTimeout, Message
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.lines.vocabulary import words
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.c10d import (
    DumpObserved,
    DumpSignal,
    HeartbeatTimeout,
    WatchdogStatus,
    WatchdogTimeout,
)
from hangscope.ingest.torch_logs.reports import Terminate
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import GlooSizeMismatch
from hangscope.knowledge.callsite import is_user, user_frame
from hangscope.model.events import Event
from hangscope.model.regex import regex

_PREFIX = "[rank"  # of each line of a traceback that ended a process of a group (torch 2.3 and later)
#: With what the traceback of an error begins that nothing caught.
_OUTERMOST = frozenset(
    ("<module>", "_bootstrap", "_bootstrap_inner", "_wrap", "wrapper", "_run_code", "_run_module_as_main", "main", "launch")
)  # fmt: skip
#: What Python raises in the communication layer for a wrong argument.
_ARGUMENT_ERRORS = {"ValueError", "TypeError", "AssertionError", "KeyError", "IndexError", "AttributeError"}
#: What a rank reports that waited for others, or noticed something, before it was aborted.
_ABORTING: tuple[type[Event], ...] = (
    *WAITED, GlooSizeMismatch, RankException, HeartbeatTimeout, DumpSignal, DumpObserved, WatchdogStatus,
)  # fmt: skip
_FAULTS: tuple[tuple[type[Event], str], ...] = (
    (OomCuda, "ran out of GPU memory"),
    (OomHost, "was killed by the host's out-of-memory killer"),
    (LoaderWorkerDeath, "lost a data loader worker"),
)
_HANDLED = 60  # seconds
#: How a process's own handler reports a signal that no peer sends.
_CRASH = regex(r"SIG(?:SEGV|BUS|ILL|FPE)\b|Caught signal (?:4|7|8|11) |Segmentation fault")


def own_deaths(statements: Statements) -> list[Death]:
    """Return the ranks' own deaths, by rank; none of a rank that shows only consequences."""
    exits = Exits(statements)
    found = (_own_death(rank, statements, exits) for rank in sorted(statements.of_rank))
    return [death for death in found if death is not None]


def _own_death(rank: int, statements: Statements, exits: Exits) -> Death | None:
    # A traceback that breaks off need not have ended anything.
    raised = [e for e in _not_survived(rank, RankException, statements) if not (e.symptom or e.truncated)]
    raised = [e for e in raised if e.type not in INTERRUPTS]
    of_nccl = statements.all(NcclWarn)
    if raised and any(e.fault in ("size_mismatch", "collective_mismatch") for e in of_nccl):
        # An exception only passes on that NCCL refused a call, of which NCCL itself says what did not fit.
        raised = [e for e in raised if not e.type.endswith("DistBackendError")]
    if statements.of(rank, HcclTimeout):
        raised = []  # what fails after HCCL gave up its wait for a peer
    frame, exception = (user_frame(raised[0].frames), raised[0].type) if raised else (None, "")
    for kind, how in _FAULTS:
        for fault in _not_survived(rank, kind, statements)[:1]:
            return Death(rank, how, fault, 4, frame, exception)
    refused = [e for e in of_nccl if e.fault == "oom" and e.tier == 1]
    if {e.rank for e in refused} == {rank}:  # of several nobody knows which was first
        return Death(rank, "got no GPU memory for NCCL's buffers", refused[0], 4, frame, exception)
    if raised:
        return Death(rank, f"raised {exception or 'an exception'}", raised[0], 3, frame, exception)
    crashes = statements.of(rank, Terminate)
    several = sum(e.rank is None for e in statements.all(Terminate)) > 1
    fatal = [e.what for e in crashes if e.what.startswith("Fatal Python error") and "Aborted" not in e.what]
    unowned = any(e.rank is None for e in statements.all(GlooSizeMismatch))  # gloo aborts who receives
    lost_a_peer = any(e.fault == "closed_by_peer" for e in statements.of(rank, NcclWarn))
    aborting = several or unowned or lost_a_peer or len(fatal) < len(crashes)
    aborting = aborting or bool(statements.of(rank, *_ABORTING)) or _of_several(rank, statements)
    if how := exits.own_end(rank, aborting):
        return Death(rank, how, statements.exits[rank], 3)
    for crash in crashes:
        if _CRASH.search(crash.what) and not statements.of(rank, *WAITED):
            return Death(rank, f"crashed ({crash.what[:60].strip(' *')})", crash, 3)
    for died in statements.of(rank, WorkerDied)[: not aborting]:
        how = f"ended with {crashes[0].what}" if crashes else "died without printing an error"
        return Death(rank, how, died, 3)
    for full in _not_survived(rank, DiskFull, statements)[:1]:
        return Death(rank, "ran out of disk space", full, 2)
    return None


def _of_several(rank: int, statements: Statements) -> bool:
    """Return whether a rank printed a known message of a fault that other ranks printed as well: whatever it is about ends all of them."""
    own = {e.id for e in statements.of(rank, Message)}
    return any(e.id in own and e.rank is not None and e.rank != rank for e in statements.all(Message))


def _not_survived(rank: int, kind: type[AnyEvent], statements: Statements) -> list[AnyEvent]:
    """Return a rank's errors of a kind that it did not survive; an implausible size is that of a buffer that a failed collective never filled."""
    unfilled = any(e.implausible for e in statements.of(rank, OomCuda)) and statements.any_of(*WAITED)

    def of_a_wait(event: Event) -> bool:
        return "out of memory" in (event.message if isinstance(event, RankException) else event.text)

    found = [e for e in statements.of(rank, kind) if not (unfilled and of_a_wait(e))]
    return [e for e in found if not _went_on(e, statements)]


def _went_on(event: Event, statements: Statements) -> bool:
    """Return whether a rank continued after an error: with its steps, to its end, or into a collective in which it waited.

    A traceback that a library printed has its frames alone, and what a program logs lacks the prefix that torch gives to those
    that end the process: then an error of a later wait shows that it was caught.
    """
    assert event.rank is not None
    failed = event.in_the_year
    timed = [(e.in_the_year, (e.ran_ms or 0) / 1000) for e in statements.of(event.rank, WatchdogTimeout)]
    # A handler issues a collective at once; one that was issued long after the error shows that the rank went on.
    if failed is not None and any(end is not None and end - ran > failed + _HANDLED for end, ran in timed):
        return True
    waited = statements.any_of(*WAITED)  # "done" may come from a handler, for which the others still wait
    steps = [e for e in statements.of(event.rank, Progress) if not e.leaving and e.attempt == event.attempt]
    later = [(e.file, e.line) for e in steps if e.step is not None or (e.over and not waited)]
    # Threads of their own go on for a while after an error that nothing caught.
    uncaught = isinstance(event, RankException) and event.frames and event.frames[-1].name == "<module>"
    if not waited and not uncaught:
        later += [(e.file, e.numbers[-1]) for e in statements.of(event.rank, Printed)]
    if isinstance(event, RankException) and event.frames:
        raised = [e for e in statements.of(event.rank, RankException) if e.symptom]
        logged, by_library = not event.text.startswith(_PREFIX), user_frame(event.frames) is None
        # The function that its traceback begins with caught it.
        handled = logged and event.frames[-1].name not in _OUTERMOST
        if handled or not _left_its_peers(event, raised, statements):
            ending = (e for e in raised if by_library or handled or (logged and e.text.startswith(_PREFIX)))
            later += [(e.file, e.line) for e in ending]
    return any(file == event.file and line > event.line for file, line in later)


def _left_its_peers(event: RankException, raised: Sequence[RankException], statements: Statements) -> bool:
    """Return whether an error took a rank out of a function in which its peers wait, and it waits outside that itself: then it parted them."""
    passed = {(frame.file, frame.name) for frame in event.frames if is_user(frame)}
    own = {(frame.file, frame.name) for later in raised for frame in later.frames}
    peers = [e for e in statements.all(RankException) if e.symptom and e.rank != event.rank]
    left = passed - own
    return bool(raised) and any((frame.file, frame.name) in left for e in peers for frame in e.frames)


def survived(statements: Statements) -> list[RankException]:
    """Return the exceptions that ranks caught: they went on after them, or another rank did that logged the same one."""
    raised = [e for e in statements.all(RankException) if not e.symptom and e.rank is not None]
    caught = [e for e in raised if _went_on(e, statements)]
    logged = {(e.type, user_frame(e.frames)) for e in caught if not e.text.startswith(_PREFIX)}
    failed = {e.rank for e in statements.all(Exit) if e.code not in {0, *CLEANUPS}}
    for event in raised:
        same = (event.type, user_frame(event.frames)) in logged and not event.text.startswith(_PREFIX)
        caught += [event] if same and event not in caught and event.rank not in failed else []
    return caught


def endings(statements: Statements) -> Endings:
    """Return how what logs hold of the output of their programs ends."""
    printed = [(e.file, text) for e in statements.all(Printed) for text in e.texts]
    return Endings(printed + [(e.file, e.text) for e in statements.all(Progress)])


def raised_by_victims(statements: Statements) -> Originals:
    """Return the last lines of the tracebacks of ranks that were interrupted, or lost a peer."""
    raised = (e for e in statements.all(RankException) if e.symptom or e.type in INTERRUPTS)
    return Originals(dict.fromkeys(f"{e.type}: {e.message}" for e in raised))


def doubt(death: Death, statements: Statements, printed: Endings, victims: Originals) -> str:
    """Return why a death may be none, or none of the rank's own: a part of its traceback is missing, or a rank whose peer is gone gets such an error, too."""
    event, told, who = death.event, statements.exits.get(death.rank), f"rank {death.rank}"
    if not isinstance(event, RankException):
        return ""
    if event.torn and (told is None or not told.code):
        return f"the traceback of {who} is incomplete: its last line may be of an error that was caught"
    if event.type == "RuntimeError" and not event.message:
        return f"the error of {who} has lost its message, or never had one"
    if printed.hold(event.file, event.text):
        return f"the last line of the traceback of {who} ends as another line does: its own end is lost"
    if victims.of(f"{event.type}: {event.message}"):
        return f"the last line of the traceback of {who} is a damaged copy of one of a rank that was interrupted or lost a peer"
    place = event.frames[0].file.replace("\\", "/") if event.frames else ""
    of_peers = words("communication_files").search(place) or words("communication").search(event.message)
    if of_peers and event.type.rsplit(".", 1)[-1] not in _ARGUMENT_ERRORS:
        return f"the communication layer raised the error of {who}, as it also does for the fault of a peer"
    return ""
