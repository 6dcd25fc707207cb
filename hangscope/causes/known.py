"""Rules about messages whose meaning is known (knowledge/messages), and about CPU threads that never returned."""

from __future__ import annotations

from hangscope.causes.case import Case, Match, answer, who
from hangscope.explain.finding import Absent, Nothing, Stalled, Unseen
from hangscope.explain.text.known_messages import blanks_of, filled
from hangscope.ingest.job_logs.messages import Message, table
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.torch_logs.c10d import HeartbeatTimeout, WatchdogTimeout

_WHOLE = ("stuck_rank", "the process may be stopped as a whole: a signal, a debugger, a dead disk")


def known_defect(case: Case) -> Match | None:
    """A library, driver or version whose error message is known, by the entry of that message."""
    return _by_message(case, defect=True)


def known_message(case: Case) -> Match | None:
    """A message of an engine, a vendor or a launcher that establishes its cause by itself."""
    return _by_message(case, defect=False)


def _by_message(case: Case, defect: bool) -> Match | None:
    """Return the answer of the first entry with a cause; its lines name a rank where the entry says so and one rank alone printed it."""
    of_text = isinstance(case.finding, Stalled | Absent) and case.from_text
    if not isinstance(case.finding, Nothing | Unseen) and not of_text:
        return None
    messages = [(e, table()[e.id]) for e in case.statements.all(Message) if e.id in table()]
    causes = (known for _, known in messages if known.cause and (known.cause == "known_defect") == defect)
    entry = next(causes, None)
    if entry is None or (entry.cause == "init_hang" and case.statements.all(Progress)):
        return None
    events = [e for e, known in messages if known is entry]
    blanks, ranks = blanks_of(events), {e.rank for e in events if e.rank is not None}
    culprits = ranks if entry.culprit and len(ranks) == 1 else ()
    why = filled(entry.says, blanks) + (f" (known: {entry.upstream})" if entry.upstream else "")
    steps, category = f"Collect {filled(entry.collect, blanks)}.", entry.category or None
    return answer(entry.cause, culprits, why, steps, category=category, evidence=events[:4])


def host_thread_stuck(case: Case) -> Match | None:
    """A CPU thread of one rank never returned from a CUDA, NCCL or driver call: its own watchdog stood still before any timeout."""
    finding, statements = case.finding, case.statements
    if not isinstance(finding, Absent) or not case.from_text or len(finding.culprits) != 1:
        return None
    own = statements.of(finding.culprits[0], HeartbeatTimeout)
    alone = statements.ranks(HeartbeatTimeout) == set(finding.culprits)
    if not alone or own[0] not in finding.events or statements.of(finding.culprits[0], WatchdogTimeout):
        return None  # where watchdogs stood still on several ranks, the named one is named for another reason
    locked = any(e.what == "gil" for e in own)
    what = "a thread held the GIL" if locked else "its NCCL watchdog thread made no progress"
    why = f"a CPU thread of {who(finding.culprits)} did not return from a CUDA, NCCL or driver call: {what} before any collective timed out"
    strength, rivals = 0 if finding.guess else 1, [_WHOLE]
    return answer(
        "runtime_deadlock", finding.culprits, why, strength=strength, evidence=own[:3], rivals=rivals
    )
