"""Whether a job hangs at all: proof that it does not, and signs that it was still moving while its dumps were written."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hangscope.align.frontier import GroupFrontier
from hangscope.causes.case import Case
from hangscope.causes.difference import Difference
from hangscope.explain.finding import Lagging
from hangscope.explain.text.sites import POINT_TO_POINT
from hangscope.explain.text.steps import last_output
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.ingest.job_logs.endings import CleanupSignal, Exit
from hangscope.ingest.job_logs.last_lines import Printed
from hangscope.ingest.job_logs.progress import JobCompleted, Progress, WorkersEnded
from hangscope.ingest.lines.vocabulary import words
from hangscope.ingest.nccl.ras_json import NcclRas
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.store import StoreUnreachable
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.knowledge.callsite import forms_a_group
from hangscope.model.events import Event, since_new_year
from hangscope.model.incident import RankRecord
from hangscope.model.regex import regex
from hangscope.verdict.damage import damaged_files

#: Of the kinds of lines that are not calm, those that a job which goes on leaves as well.
_OF_ANY_JOB = (Progress, NcclRas, CleanupSignal)
# waits for others that are no collectives of a group
_UNRECORDED = frozenset({"init_process_group", "new_group"})
_CLOCK = regex(r"[\[(]?(\d\d):(\d\d):(\d\d(?:\.\d{1,9})?)\b")
_NUMBER = regex(r"(?<![\d.])\d{1,15}(?:\.\d{1,9})?")
_AGAIN = 3  # times
_LATER, _ZONE = 3.0, 900.0  # s: more than clocks differ, and what time zones differ by
_STEPS, _LONG = 1.5, 10.0  # times the pace of the lines of steps, and s: the next line comes sooner


def trouble(case: Case) -> list[Event]:
    """Return the lines that report an error, a timeout or an end."""
    kinds = case.statements.kinds.items()
    found = [e for kind, events in kinds if not kind.calm and kind not in _OF_ANY_JOB for e in events]
    return [e for e in found if not (isinstance(e, Exit) and e.code == 0)]


def counts_more(record: RankRecord) -> bool:
    """Return whether a rank's recorder counts operations that it does not keep: it may wait in one of them."""
    queues = [q for q in record.queues.values() if len(q) and q.issued is not None]
    return any(int(q.issued[-1]) > int(q.seq[-1]) for q in queues if q.issued is not None)


def harmless_at_an_end(event: Event) -> bool:
    """Return whether jobs that end well print it: a rank that leaves before rank 0 does may find its store gone, and NCCL its peers."""
    if isinstance(event, NcclWarn):
        return event.retrying or event.fault == "other"
    if isinstance(event, RankException):
        return event.type.rsplit(".", 1)[-1] == "CancelledError"  # asyncio's, of a server that is shut down
    return isinstance(event, StoreUnreachable)


def still_moves(case: Case, named: Collection[int]) -> bool:
    """Return whether the job may have moved on while its dumps were made; `named` are the ranks (global) that are to blame.

    So it may where no line reports trouble, and as many of the ranks that were seen have no collective pending as wait in
    one, or all. A rank that stops blocks all that need it within moments; dumps of a moving job, made seconds apart, show
    a collective here and a gap there.
    """
    if trouble(case):
        return False
    finding, waiting, ranks = case.finding, set(case.graph.waiting), case.incident.ranks
    forming = [rank for rank, where in case.stacks.items() if forms_a_group(where.stack)]
    if len(forming) > 1 and ranks.keys() <= {*forming}:
        return False  # a group whose members have all come forms within moments
    seen = {r for r, record in ranks.items() if record.seen and record.dump_file}
    if not waiting:
        return 0 < len(seen) == len(ranks)
    several_lag = isinstance(finding, Lagging) and len(finding.culprits) != 1
    two = set[int]().union(*(root.explains for root in case.graph.roots[:2]))  # each of two faults is a part
    reached = finding.explained if several_lag else max(finding.explained, len(two))
    if 2 * reached < len(waiting) or (several_lag and not finding.culprits):
        return True
    view = finding.stuck.view
    if len(waiting) < 2 and view is not None and not view.group.members_known:
        return True  # of two that were seen, of an unknown number, one is always ahead
    # If as many dumps are older as show a wait, the one without a pending collective may be older as well.
    early = view.early if view is not None else set[int]()
    blocked = {rank for rank, where in case.statements.whereabouts.items() if where.inside}
    free = seen - waiting - early - (blocked if named else set())
    alone = len(free) == 1 and free == set(named) and len(early) < len(waiting)
    return len(free) >= len(waiting) and not alone


def ended_well(case: Case) -> bool:
    """Return whether the whole job is reported to have ended with exit code 0; dumps may have been written before.

    One agent reports only its own workers. It speaks for the whole job if all ranks print in its log alone, or if all ranks,
    or all but one, wait.
    """
    statements, ranks = case.statements, case.incident.ranks
    if not _survived(case, [e for e in trouble(case) if not harmless_at_an_end(e)]):
        return False
    everywhere = {e.everywhere for e in statements.all(WorkersEnded) if not e.of_a_script}
    waiting = bool(case.graph.waiting)  # in dumps that are older then
    ends = statements.exits
    every_code_is_0 = bool(ends) and ends.keys() >= ranks.keys() and not any(e.code for e in ends.values())
    by_script = any(e.of_a_script and e.everywhere for e in statements.all(WorkersEnded))
    if statements.all(JobCompleted) or len(everywhere) == 2 or every_code_is_0 or (waiting and by_script):
        return True
    if case.graph.waiting:
        nearly_all = len(ranks) - len(case.graph.waiting) < 2
        kind = case.finding.stuck.kind
        # No job repeats a collective of its loop after its end: then the dumps, and stacks with them, are older.
        if kind is not None and Difference(case).times_before(kind) >= _AGAIN and _all_said_so(case):
            return True
        return (False in everywhere and nearly_all) or _all_took_their_leave(case)
    last = any(_is_the_end_of_all(case, e) for e in statements.all(WorkersEnded))
    return last or _all_took_their_leave(case)


def _ends(case: Case) -> dict[str, dict[int, int]]:
    """Return by file and rank the last line in which the rank printed that its job or a loop is over."""
    found: dict[str, dict[int, int]] = {}
    for e in case.statements.all(Progress):
        if (e.over or e.done) and e.rank is not None:
            of_file = found.setdefault(e.file, {})
            of_file[e.rank] = max(e.line, of_file.get(e.rank, 0))
    return found


def _survived(case: Case, events: Sequence[Event]) -> bool:
    """Return whether who reports trouble, or every rank where it is not known, printed later in the same file that its job or a loop is over."""
    ends, ranks = _ends(case), case.incident.ranks.keys()
    every = {file: min(lines.values()) if lines.keys() >= ranks else 0 for file, lines in ends.items()}
    own = (every.get(e.file, 0) if e.rank is None else ends.get(e.file, {}).get(e.rank, 0) for e in events)
    return all(e.line < end for e, end in zip(events, own, strict=True))


def _is_the_end_of_all(case: Case, end: WorkersEnded) -> bool:
    """Return whether all ranks print in the log that reports the successful end, in no other log, and nothing after it."""
    counts_all = end.of_a_script and end.everywhere
    said = (e for kind, events in case.statements.kinds.items() if kind is not Excerpt for e in events)
    printed = [e for e in said if (counts_all if e.rank is None else not e.by_launcher)]
    after = any(e.file != end.file or (e.line > end.line and end.of_a_script) for e in printed)
    complete = counts_all or {e.rank for e in printed} == set(case.incident.ranks)
    return bool(printed) and not after and complete


def _all_took_their_leave(case: Case) -> bool:
    """Return whether the last that every rank printed is that its job is over, and no stack shows it anywhere.

    If dumps show a wait, they were written during a pause: the lines are later than their newest collective.
    """
    records, waited = case.incident.ranks.values(), bool(case.graph.waiting)
    newest = _newest(case) if waited else 0
    for record in records:
        printed = [e for e in record.events if not e.by_launcher and not isinstance(e, Printed)]
        last = max(printed, key=lambda e: e.line, default=None)
        over = isinstance(last, Progress) and (last.over or (waited and last.done))
        if record.threads or last is None or not over or (waited and _after(newest, last) <= _LATER):
            return False
    return waited or len(records) > 1


def _all_said_so(case: Case) -> bool:
    """Return whether the last that every rank printed is that its job is over, or its loop, well after the newest collective of all dumps."""
    last, newest = [last_output(case.statements, rank) for rank in case.incident.ranks], _newest(case)
    over = (e is not None and (e.over or (e.done and _after(newest, e) > _LATER)) for e in last)
    return len(last) > 1 and all(over)


def moved_on(case: Case) -> Event | None:
    """Return a step that was printed several steps after the newest collective in all dumps: the job moved on after they were written.

    A line of any words counts where every rank that waits in the dumps has printed it again, each time with larger numbers.
    """
    if not case.graph.waiting:
        return None
    newest, troubles = _newest(case), trouble(case)
    files, last = {e.file for e in troubles}, max((e.line for e in troubles), default=0)
    steps = (e for e in case.statements.all(Progress) if e.step is not None)
    after = (e for e in steps if not troubles or (files == {e.file} and last < e.line))
    paces = ((e, _STEPS * e.pace if e.pace is not None else _LONG) for e in after)
    step = next((e for e, pace in paces if _after(newest, e) > max(_LATER, pace)), None)
    if step is not None or troubles:
        return step
    counts = {e.rank: e for e in case.statements.all(Printed) if _counts_on(e) and _after(newest, e) > _LONG}
    return next(iter(counts.values())) if counts and counts.keys() >= set(case.graph.waiting) else None


def _counts_on(event: Printed) -> bool:
    """Return whether the last line of a rank counts on from the one before it of the same words, as it did several times."""
    first, last = (_NUMBER.search(text) for text in (event.earlier[-1], event.texts[-1]))
    more = first is not None and last is not None and float(first[0]) < float(last[0])
    return more and event.counts[-1] >= _AGAIN and not words("watches").search(event.texts[-1])


def _newest(case: Case) -> int:
    """Return when the newest collective of all dumps was enqueued (ns, 0: unknown)."""
    records = case.incident.ranks.values()
    queues = (queue for r in records for queue in (*r.queues.values(), *r.p2p.values()))
    return max((int(queue.created[-1]) for queue in queues if len(queue)), default=0)


def _after(newest: int, event: Event) -> float:
    """Return how many seconds after the newest collective a line was printed; 0 if it was not, or that is not known.

    A log's clock may be that of any time zone, all of which differ by quarters of an hour: what is later counts up to half of one.
    """
    printed = event.in_the_year if event.in_the_year is not None else _clock(event.text)
    if not newest or printed is None:
        return 0.0
    later = (printed - since_new_year(newest / 1e9)) % _ZONE
    return later if later < _ZONE / 2 else 0.0


def _clock(text: str) -> float | None:
    """Return the seconds since midnight that a line without a date begins with."""
    clock = _CLOCK.match(text)
    return 3600 * int(clock[1]) + 60 * int(clock[2]) + float(clock[3]) if clock else None


def status_without_verdict(case: Case, views: Sequence[GroupFrontier]) -> str:
    """Return no_hang only with positive proof, else inconclusive."""
    incident = case.incident
    if trouble(case) or case.graph.waiting or damaged_files(incident) or not incident.ranks:
        return "inconclusive"
    # Under DETAIL the collective that mismatches is never dispatched, so it is missing from every dump alike.
    blind = any(n.code == "detail_recording" for n in incident.notes)
    makes_groups = any(where.op in _UNRECORDED for where in case.statements.whereabouts.values())
    # gloo records neither sends nor receives: who is seen in one may wait for ever.
    paired = any(where.inside and where.op in POINT_TO_POINT for where in case.stacks.values())
    paired |= any(map(counts_more, incident.ranks.values()))
    all_seen = all(r.seen and r.dump_file for r in incident.ranks.values())
    # Then those that are known are not all.
    named = {rank for e in case.statements.all(Excerpt) for one in e.named for rank in one.ranks}
    all_exited = case.statements.left_quietly.keys() >= {*incident.ranks, *named}
    ends = [{member.enqueued or 0 for member in view.members.values()} for view in views]
    equal = all(len(seqs) <= 1 for seqs in ends) and any(map(any, ends))
    well = (all_seen and equal and not (blind or makes_groups or paired)) or all_exited
    return "no_hang" if well else "inconclusive"
