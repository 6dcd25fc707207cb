"""Rules about messages whose meaning is known (knowledge/messages), and about host threads that never returned."""

from __future__ import annotations

from collections.abc import Callable

from hangscope.causes.case import Case, Match, answer, who
from hangscope.explain.finding import Absent, Nothing, Stalled, Unseen
from hangscope.explain.text.known_messages import blanks_of, filled
from hangscope.ingest.job_logs.messages import Known, Message, table
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.torch_logs.c10d import HeartbeatTimeout, WatchdogTimeout

Fits = Callable[[Known], bool]


def known_defect(case: Case) -> Match | None:
    """A library, driver or version whose error message is known, by the entry of that message."""
    return _by_message(case, lambda entry: entry.cause == "known_defect")


def known_message(case: Case) -> Match | None:
    """A message of an engine, a vendor or a launcher that establishes its cause by itself."""
    return _by_message(case, lambda entry: entry.cause not in ("", "known_defect"))


def _by_message(case: Case, fits: Fits) -> Match | None:
    """Return the answer of the first entry that fits; its lines name a rank where the entry says so and one rank alone printed it."""
    if not isinstance(case.finding, Nothing | Unseen) and not (
        isinstance(case.finding, Stalled | Absent) and case.from_text
    ):
        return None
    known, moved = table(), bool(case.statements.all(Progress))
    told = [e for e in case.statements.all(Message) if e.id in known]
    entry = next((known[e.id] for e in told if fits(known[e.id])), None)
    if entry is None or (entry.cause == "init_hang" and moved):
        return None
    events = [e for e in told if e.id == entry.id]
    blanks = blanks_of(events)
    ranks = sorted({e.rank for e in events if e.rank is not None})
    culprits = tuple(ranks) if entry.culprit and len(ranks) == 1 else ()
    return answer(
        entry.cause,
        culprits,
        filled(entry.says, blanks) + (f" (known: {entry.upstream})" if entry.upstream else ""),
        f"Collect {filled(entry.collect, blanks)}.",
        strength=1,
        category=entry.category or None,
        evidence=events[:4],
    )


def host_thread_stuck(case: Case) -> Match | None:
    """A host thread of one rank never returned from a CUDA, NCCL or driver call: its own watchdog stood still before any timeout."""
    finding, statements = case.finding, case.statements
    if not isinstance(finding, Absent) or not case.from_text or len(finding.culprits) != 1:
        return None
    if statements.ranks(HeartbeatTimeout) != set(finding.culprits):
        return None  # where watchdogs stood still on several ranks, the one named has another reason
    own = statements.of(finding.culprits[0], HeartbeatTimeout)
    if not own or own[0] not in finding.events or statements.of(finding.culprits[0], WatchdogTimeout):
        return None
    whose, locked = who(finding.culprits), any(e.what == "gil" for e in own)
    what = "a thread held the GIL" if locked else "its NCCL watchdog thread made no progress"
    return answer(
        "runtime_deadlock",
        finding.culprits,
        f"a host thread of {whose} did not return from a CUDA, NCCL or driver call: {what} before any collective timed out",
        f"Take native stacks of all threads of {whose} while it stands (py-spy dump --native, or gdb -p PID): the thread inside libcuda or libnccl, and the one that it waits for.",
        strength=0 if finding.guess else 1,
        evidence=own[:3],
        rivals=[("stuck_rank", "the process may be stopped as a whole: a signal, a debugger, a dead disk")],
    )
