"""Rules about lines that establish a cause by themselves: known messages (knowledge/messages), and faults that name no rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from hangscope.causes.case import Case, Match, answer, quote
from hangscope.causes.faults import CALM_XIDS, FAULTS, device_error, remedy
from hangscope.explain.finding import Absent, Nothing, Stalled, Unseen
from hangscope.explain.statements.exits import CLEANUPS
from hangscope.explain.statements.statements import INTERRUPTS, WAITED
from hangscope.explain.text.blocked import idle_alone
from hangscope.explain.text.group_size import others_of, stated_size
from hangscope.explain.text.known_messages import blanks_of, filled
from hangscope.explain.text.stop import find_stop, stopped
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.ingest.job_logs.activity import GpuUse, WaitedFor
from hangscope.ingest.job_logs.endings import Exit, WorkerDied, ended_with
from hangscope.ingest.job_logs.faults import OomCuda, Xid
from hangscope.ingest.job_logs.messages import Known, Message, Notice, table
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.lines.rank_words import ranks_in
from hangscope.ingest.torch_logs.c10d import ProcessDown
from hangscope.ingest.torch_logs.reports import Terminate
from hangscope.ingest.torch_logs.store import FsdpOrder
from hangscope.ingest.torch_logs.symptoms import is_symptom
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import CallFingerprint
from hangscope.model.events import Event
from hangscope.model.rankset import ranks_phrase
from hangscope.model.regex import regex

_WHOSE = "Find the process that printed it: its prefix, its file, or the process id in the kernel's log names the rank."
_KILLED = frozenset({-9, -11, -7, -4, -8})
_NEAR = 4  # lines
_RETURNED = ("early_exit", "a process that returned without an error is gone as well")
_ABORT = regex(r"Aborted|SIGABRT")
_RETRIES = regex(r"(?i)\bretr(?:y|ies|ying)\b|\btrying again\b|\battempt \d")


def known_defect(case: Case) -> Match | None:
    """A library, driver or version whose error message is known, by the entry of that message."""
    return _by_message(case, defect=True)


def known_message(case: Case) -> Match | None:
    """A message of an engine, a vendor or a launcher that establishes its cause by itself."""
    return _by_message(case, defect=False)


def known_culprit(case: Case) -> Match | None:
    """The same where the message is of the rank to blame: what it printed comes before what only its silence says of another."""
    match = known_message(case)
    return match if match is not None and match.culprits else None


def known_notice(case: Case) -> Match | None:
    """A line that healthy jobs print as well, and that is why one stopped which spans hosts."""
    if case.on_one_host or not stopped(case.statements):
        return None
    match = _of_entry(case, [(e, table()[e.id]) for e in case.statements.all(Notice) if table()[e.id].cause])
    return replace(match, strength=0) if match is not None else None


def _by_message(case: Case, defect: bool) -> Match | None:
    """Return the answer of the first entry with a cause, which is a known defect or not."""
    messages = [(e, table()[e.id]) for e in case.statements.all(Message) if e.id in table()]
    messages.sort(key=lambda row: row[1].category != "external")  # the rest follows from an end from outside
    return _of_entry(case, [(e, k) for e, k in messages if k.cause and (k.cause == "known_defect") == defect])


def _of_entry(case: Case, messages: Sequence[tuple[Message | Notice, Known]]) -> Match | None:
    """Return the answer of the first entry; its lines name a rank where the entry says so and one rank alone printed it."""
    of_text = isinstance(case.finding, Stalled | Absent) and case.from_text
    if not messages or not (isinstance(case.finding, Nothing | Unseen) or of_text):
        return None
    counted = [e for e in case.statements.all(Progress) if e.step is not None or (e.epoch or 0) > 1]
    for entry in dict.fromkeys(known for _, known in messages):
        events = [e for e, known in messages if known is entry]
        went_on = any(e.file == events[-1].file and e.line > events[-1].line for e in counted)
        if not went_on and not (entry.cause == "init_hang" and case.statements.all(Progress)):
            break
    else:
        return None  # the program caught it, or it had been there before
    blanks, ranks = blanks_of(events), {e.rank for e in events if e.rank is not None}
    if ranks and case.finding.culprits and ranks <= case.statements.ranks(WaitedFor):
        return None  # these ranks had given up their wait for another one
    culprits = ranks if entry.culprit and len(ranks) == 1 else ()
    why = filled(entry.says, blanks) + (f" (known: {entry.upstream})" if entry.upstream else "")
    steps, category = f"Collect {filled(entry.collect, blanks)}.", entry.category or None
    # Who tries it again is alive, and stays where it is.
    again = culprits and entry.cause == "crashed_rank" and any(_RETRIES.search(e.text) for e in events)
    cause = "stuck_rank" if again else entry.cause
    match = answer(cause, culprits, why, steps, evidence=events[:4])
    return _by_silence(case, replace(match, category=category))


def _by_silence(case: Case, match: Match) -> Match:
    """Return the fault of a GPU of no known rank as that of the one rank which did not wait for the others, where all others did."""
    if match.culprits or match.cause != "gpu_stall":
        return match
    waited = case.statements.ranks(*WAITED)
    silent = others_of(stated_size(case.incident, case.statements), waited)
    if len(silent) != 1 or len(waited) < 2:
        return match
    why = f"{match.why}; it is probably that of rank {silent[0]}, the only rank that did not time out waiting for the others"
    return replace(match, culprits=silent, why=why)


def fault_without_rank(case: Case) -> Match | None:
    """A line that reports a fault by itself, and names no rank."""
    for fault in FAULTS if _nothing_else(case) else ():
        events = [e for e in fault.reports(case.statements) if fault.cause]
        events = [e for e in events if not (isinstance(e, OomCuda) and e.implausible)]
        events = [e for e in events if not (isinstance(e, Xid) and e.code in CALM_XIDS)]
        if events := [e for e in events if not (isinstance(e, FsdpOrder) and e.group_rank is not None)]:
            what = fault.says.replace("{error}", device_error(events[0]))
            steps = (remedy(events[0], "that process"), _WHOSE)
            match = _match(case, fault.cause, events, what, *steps, strength=fault.strength)
            return _by_silence(case, match)
    return None


def end_without_rank(case: Case) -> Match | None:
    """An end of a process, or a collective that did not match, by a line that names no rank."""
    went_on = any(e.moves for e in case.statements.all(Excerpt)) and case.statements.all(Notice)
    if not _nothing_else(case) or went_on:
        return None
    return _mismatched(case) or _by_its_gpu(case, _ended(case) or _raised(case))


def _by_its_gpu(case: Case, end: Match | None) -> Match | None:
    """Return the end of a process of no known rank with the rank whose GPU alone is idle: the others' spin while they wait for it."""
    use = idle_alone(case.incident, case.statements)
    sizes = {case.incident.world_size, *(n for e in case.statements.all(Excerpt) for n in e.sizes)}
    number = len({e.gpu for e in case.statements.all(GpuUse)})
    if end is None or end.culprits or use is None or number not in sizes:
        return end
    why = f"{end.why.replace('a process', f'rank {use.gpu}', 1)}; GPU {use.gpu} alone is idle, while the others' spin"
    return replace(end, culprits=(use.gpu,), why=why, strength=1, evidence=[*end.evidence, quote(use)])


def gone_by_a_list(case: Case) -> Match | None:
    """A list of processes has none of one local rank, and the others still run: it ended, and they wait for it."""
    text = next((e for e in case.statements.all(Excerpt) if len(e.gone) == 1), None)
    if text is None:
        return None
    (gone,) = text.gone
    why = f"the list of processes has no process of local rank {gone}, while the others of its launcher still run"
    look = "Find out how it ended: the launcher's output, the kernel log of the host (oom-kill), and what it did last: space, quota and permissions where it wrote."
    named = [gone] if text.one_node or not case.incident.ranks else []
    return answer("crashed_rank", named, why, look, strength=1, evidence=[text], rivals=[_RETURNED])


def _nothing_else(case: Case) -> bool:
    """Return whether collectives show nothing, so that the first fault of any rank explains the stop."""
    return isinstance(case.finding, Nothing) or (isinstance(case.finding, Stalled) and case.from_text)


def _match(
    case: Case, cause: str, events: Sequence[Event], what: str, *advice: str, strength: int = 1
) -> Match:
    """Return the answer for a fault that `events` report, with which process it was as far as the text says."""
    several = len({e.rank for e in events if e.rank is not None}) > 1
    why = what.replace("{who}", whose(case, events))
    why += "; which of them was first is not known" if several else ""
    return answer(cause, (), why, *advice, strength=strength, evidence=events[:4])


def _mismatched(case: Case) -> Match | None:
    """Return the answer for one rank's report of the DETAIL check: the collectives differ, and it cannot tell which rank is the outlier."""
    events = [e for e in case.statements.all(CallFingerprint) if e.context == "mismatch"]
    if not events:
        return None
    first, named = events[0], sorted({e.rank for e in events if e.rank is not None})
    aspects = {aspect for e in events for aspect in e.aspects} - {"sequence number"}
    finer = {"shapes": "shape_mismatch", "dtypes": "dtype_mismatch"}
    cause = finer.get("/".join(sorted(aspects)), "collective_mismatch")
    subject, other = ranks_phrase(named) if named else "a rank", first.peer_op or "something else"
    what = f"{subject} called {first.op}, a peer called {other}"
    if other == first.op:
        what = f"{subject} and a peer passed different {' and '.join(first.aspects) or 'arguments'} to {first.op}"
    advice = "Collect this error from every rank: the collective that only a minority of ranks called is the wrong one, which one rank alone cannot show."
    return _match(case, cause, events, what, advice)


def _ended(case: Case) -> Match | None:
    # Whoever waited until a timeout ends with an error, too: then only a signal that nobody sends for that is a cause.
    exits = [e for e in case.statements.all(Exit) if e.code not in {0, *CLEANUPS}]
    if find_stop(case.statements) is not None:
        exits = [e for e in exits if e.rank is None and e.code in _KILLED]
    if not exits:
        return None
    # Whoever loses a peer is aborted: an end of another kind is the one that these answer.
    own = [e for e in exits if e.signal != "SIGABRT"] or exits
    first, others = own[0], [e.time or 0.0 for e in exits if e is not own[0]]
    how = f"was killed by {first.signal}" if first.signal else ended_with(first.code)
    look = "Look for its own last lines, and for its signal in the kernel log of its host."
    match = _match(case, "crashed_rank", own, f"{{who}} {how}", look)
    before_all = len(own) == 1 and bool(others) and min(others) > (first.time or inf)
    return replace(match, culprits=(first.rank,)) if before_all and first.rank is not None else match


def _raised(case: Case) -> Match | None:
    statements = case.statements
    raised = [e for e in statements.all(RankException) if e.type and not e.symptom and not e.truncated]
    events: list[Event] = [e for e in raised if e.type not in INTERRUPTS]
    down = {e.file for e in statements.all(ProcessDown)}  # a watchdog aborts its process
    crashes = [e for e in statements.all(Terminate) if not (e.file in down and _ABORT.search(e.what))]
    events += [e for e in crashes if not is_symptom(e.type or "", e.what)]
    events += statements.all(WorkerDied)
    events = [e for e in events if e.rank is None]
    waits = [e for e in statements.all(Message) if table()[e.id].stops and not table()[e.id].follows]
    if not events or any(e.file == events[0].file and e.line < events[0].line for e in waits):
        return None  # what is raised after a known message of a wait follows from it
    first, what = events[0], "{who} died without printing an error"
    advice = "Look for what ended this process: its last lines, and a core dump or the kernel log of its host"
    if isinstance(first, RankException):
        what = f"{{who}} raised {first.type}" + (f": {first.message}" if first.message else "")
        advice = f"Fix the {first.type} first: what other ranks report later follows from it"
    elif isinstance(first, Terminate):
        fatal = first.what[:80] if first.what.startswith("Fatal Python error") else None
        what = f"{{who}} aborted ({fatal or first.type or 'std::terminate'})"
    return _match(case, "crashed_rank", events, what, advice, strength=0)


def whose(case: Case, events: Sequence[Event]) -> str:
    """Return the processes of events as a subject, `a process` where the text does not say which."""
    first, alone = events[0], len(events) == 1
    ranks = {e.rank for e in events if e.rank is not None} or {r for e in events for r in _near(case, e)}
    names = [ranks_phrase(ranks)] if ranks else []
    names += [f"local rank {first.local_rank}"] if first.local_rank is not None and alone else []
    names += [f"task {first.task} of srun or mpirun"] if first.task is not None and not ranks else []
    names = names or ["a process"]
    pid = getattr(first, "victim_pid", None) or first.pid
    one = alone or len({e.pid for e in events}) == 1
    names += [f"pid {pid}"] if pid is not None and one else []
    names += [f"host {first.host}"] if first.host and len({e.host for e in events}) == 1 else []
    if not ranks and (named := ranks_in(first.message if isinstance(first, RankException) else first.text)):
        names.append(f"its message names {ranks_phrase(named)}")
    subject, *ids = names
    return f"{subject} ({', '.join(ids)})" if ids else subject


def _near(case: Case, event: Event) -> Sequence[int]:
    """Return the ranks of the line next to an event that names a rank and its process."""
    named = [n for e in case.statements.all(Excerpt) if e.file == event.file for n in e.named]
    frames = len(event.frames) if isinstance(event, RankException) else 0
    near = range(event.line - _NEAR, event.line + 2 * frames + _NEAR)
    own = [n for n in named if n.line in near and len(n.ranks) == 1 and n.pids]
    found = {n.ranks for n in own if event.pid is None or event.pid in n.pids}
    return found.pop() if len(found) == 1 else ()
