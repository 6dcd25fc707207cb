"""Whether a job hangs at all: proof that it does not, and signs that it was still moving while its dumps were written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from hangscope.align.frontier import GroupFrontier
from hangscope.causes.case import Case
from hangscope.explain.finding import Lagging
from hangscope.explain.text.steps import last_output
from hangscope.ingest.job_logs.endings import CleanupSignal, Exit, ExitOk
from hangscope.ingest.job_logs.excerpt import Excerpt
from hangscope.ingest.job_logs.faults import NoProgress
from hangscope.ingest.job_logs.good_ends import JobCompleted, Served, WorkersEnded
from hangscope.ingest.job_logs.launchers.starts import Spawned
from hangscope.ingest.job_logs.line_groups import ERROR
from hangscope.ingest.job_logs.printed import Printed
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.nccl.ras.snapshot import NcclRas
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.store import StoreUnreachable
from hangscope.model.events import Event, since_new_year
from hangscope.model.regex import regex
from hangscope.verdict.damage import damaged_files

#: Of the kinds of lines that are not calm, those that a job which goes on leaves as well.
_OF_ANY_JOB = (Progress, NcclRas, CleanupSignal)
_UNRECORDED = frozenset(
    {"init_process_group", "new_group"}
)  # waits for other ranks that are no calls of a group
#: What an inference server prints of requests that wait.
_QUEUED = regex(
    r"(?i)#[\w-]{0,20}(?:queue|prealloc|transfer)-req: [1-9]|\b(?:waiting|pending|queued): [1-9]\d{0,8} req"
)
_LATER, _ZONE = 3.0, 900.0  # s: more than clocks differ, and what time zones differ by
_STEPS, _LONG = 3.0, 10.0  # times the pace of the steps, and s: no step takes longer to be printed
_PER_HOST = frozenset({2, 4, 8, 16})  # devices


def still_moves(case: Case, named: Collection[int]) -> bool:
    """Return whether the job may have moved on while its dumps were made.

    So it may where no line tells of trouble, and as many of the ranks that were seen are in no call as wait in one, or all. `named`
    are the ranks (global) that are to blame. Who stops lets all wait that need it, within moments; dumps of a moving job,
    made seconds apart, show a call here and a gap there, or devices here and there that lag by a call: most wait for others.
    """
    if trouble(case):
        return False
    finding, waiting, ranks = case.finding, set(case.graph.waiting), case.incident.ranks
    seen = {r for r, record in ranks.items() if record.seen and record.dump_file}
    if not waiting:
        return 0 < len(seen) == len(ranks)
    lag = isinstance(finding, Lagging)
    # Each of two faults is a part.
    two = set[int]().union(*(root.explains for root in case.graph.roots[:2]))
    reached = finding.explained if lag and len(finding.culprits) != 1 else max(finding.explained, len(two))
    if (lag and not finding.culprits) or 2 * reached < len(waiting):
        return True
    seen_at = case.statements.whereabouts.items()  # who is blocked in another call than the named is not free
    blocked = {rank for rank, where in seen_at if where.inside} if named else set()
    # Where as many dumps are older as show a wait, the one that lacks a call may be older as well.
    early = finding.stuck.view.early if finding.stuck.view is not None else set[int]()
    free = seen - waiting - blocked - early
    alone = free == set(named) and len(free) == 1 and len(early) < len(waiting)
    if len(waiting) < 2 and finding.stuck.view is not None and not finding.stuck.view.group.members_known:
        return True  # of two that were seen, of who knows how many, one is always ahead
    return not alone and len(free) >= len(waiting)


def ended_well(case: Case) -> bool:
    """Return whether the launcher reports that the whole job ended with exit code 0; dumps may have been written before. One agent reports only its own workers. It speaks for the whole job if all ranks print in its log alone, or if nearly all ranks wait, among them one of its own."""
    statements = case.statements
    if any(not harmless_at_an_end(e) for e in trouble(case)):
        return False
    everywhere = {e.everywhere for e in statements.all(WorkersEnded) if not e.of_a_script}
    if statements.all(JobCompleted) or len(everywhere) == 2:
        return True
    if case.graph.waiting and _finished_after_the_dumps(case):
        return True
    if not case.graph.waiting:
        ends = any(_is_the_end_of_all(case, e) for e in statements.all(WorkersEnded))
        return ends or _all_processes_ended(case) or _all_took_their_leave(case)
    hosts = Counter(r.host for r in case.incident.ranks.values() if r.host)
    free = len(case.incident.ranks) - len(case.graph.waiting)
    return False in everywhere and free < max([2, *hosts.values()])


def last_answer(case: Case) -> str:
    """Return the last line in which a server reports its load; empty if there is none."""
    last = max(case.statements.all(Served), key=lambda e: (e.file, e.line), default=None)
    return " ".join(last.text.split()) if last is not None else ""


def serves(case: Case) -> bool:
    """Return whether a server's last line about its load shows it answering, after every line about a wait."""
    last = max(case.statements.all(Served), key=lambda e: (e.file, e.line), default=None)
    if last is None or not last.well or case.graph.waiting or last.file in damaged_files(case.incident):
        return False
    events = (e for e in _lines(case) if not isinstance(e, Progress))
    failed = any(g.kind == ERROR for e in case.statements.all(Excerpt) for g in e.groups)
    harmless = not (failed and _QUEUED.search(last.text)) and all(
        isinstance(e, NoProgress) or harmless_at_an_end(e) for e in trouble(case)
    )
    return harmless and all(e.file == last.file and e.line <= last.line for e in events)


def _lines(case: Case) -> list[Event]:
    """Return all that text says."""
    return [e for kind, events in case.statements.kinds.items() if kind is not Excerpt for e in events]


def _is_the_end_of_all(case: Case, end: WorkersEnded) -> bool:
    """Return whether all ranks print in the log that reports the successful end, in no other log, and nothing after it."""
    counts_all = end.of_a_script and end.everywhere
    printed = [e for e in _lines(case) if (counts_all if e.rank is None else not e.by_launcher)]
    behind = any(e.file != end.file or (e.line > end.line and end.of_a_script) for e in printed)
    return (
        bool(printed) and not behind and (counts_all or {e.rank for e in printed} == set(case.incident.ranks))
    )


def _all_processes_ended(case: Case) -> bool:
    """Return whether a launcher reports that all the processes it started ended well.

    If the log contains only their ends, they must be as many as a host has devices and as the job has ranks, with consecutive
    process ids.
    """
    ends = [e for e in case.statements.all(ExitOk) if e.pid is not None]
    ended = sorted({e.pid for e in ends if e.pid is not None})
    started = {e.pid for e in case.statements.all(Spawned)}
    if started or not ended:
        return bool(started) and started.issubset(ended)
    row = len(case.incident.ranks) <= len(ended) in _PER_HOST and ended[-1] - ended[0] == len(ended) - 1
    one_file = len({e.file for e in _lines(case)}) == 1
    return row and one_file and all(e.calm or e.line < min(end.line for end in ends) for e in _lines(case))


def _all_took_their_leave(case: Case) -> bool:
    """Return whether the last that every rank printed is that its job is over, and no stack shows it anywhere."""
    records = case.incident.ranks.values()
    for record in records:
        printed = [e for e in record.events if not e.by_launcher and not isinstance(e, Printed)]
        last = max(printed, key=lambda e: e.line, default=None)
        if record.threads or not (isinstance(last, Progress) and last.over):
            return False
    return len(records) > 1


def _finished_after_the_dumps(case: Case) -> bool:
    """Return whether every rank printed that it was finished after the newest call in all dumps: these were written during a pause.

    A log's clock may be that of any time zone, all of which differ by quarters of an hour: what is later counts up to half of one.
    """
    newest = _newest_call(case)
    if not newest:
        return False
    called = since_new_year(newest / 1e9)
    for rank, record in case.incident.ranks.items():
        last = last_output(case.statements, rank)
        if last is None or not (last.over or last.done) or last.in_the_year is None or record.threads:
            return False
        if not _LATER < (last.in_the_year - called) % _ZONE < _ZONE / 2:
            return False
    return True


def moved_on(case: Case) -> Progress | None:
    """Return a step that was printed several steps after the newest call in all dumps: the job moved on after they were written."""
    newest = _newest_call(case)
    if not newest or not case.graph.waiting or trouble(case):
        return None
    called = since_new_year(newest / 1e9)
    for e in case.statements.all(Progress):
        if e.step is None or e.in_the_year is None:
            continue
        since = max(_LATER, _STEPS * e.pace) if e.pace is not None else _LONG
        if since < (e.in_the_year - called) % _ZONE < _ZONE / 2:
            return e
    return None


def _newest_call(case: Case) -> int:
    """Return when the newest call of all dumps was enqueued (ns, 0: unknown)."""
    records = case.incident.ranks.values()
    queues = (queue for r in records for queue in (*r.queues.values(), *r.p2p.values()))
    return max((int(queue.created[-1]) for queue in queues if len(queue)), default=0)


def harmless_at_an_end(event: Event) -> bool:
    """Return whether jobs that end well print it: who leaves before rank 0 does may find its store gone, and NCCL its peers."""
    if isinstance(event, NcclWarn):
        return event.retrying or event.fault == "other"
    return isinstance(event, StoreUnreachable)


def trouble(case: Case) -> list[Event]:
    """Return the lines that report an error, a timeout or an end."""
    kinds = case.statements.kinds.items()
    found = [e for kind, events in kinds if not kind.calm and kind not in _OF_ANY_JOB for e in events]
    return [e for e in found if not (isinstance(e, Exit) and e.code == 0)]


def status_without_verdict(case: Case, views: Sequence[GroupFrontier]) -> str:
    """Return no_hang only with positive proof, else inconclusive."""
    incident = case.incident
    if trouble(case) or case.graph.waiting or damaged_files(incident) or not incident.ranks:
        return "inconclusive"
    # Under DETAIL the call that mismatches is never dispatched, so it is missing from every dump alike.
    blind = any(n.code == "detail_recording" for n in incident.notes)
    makes_groups = any(where.op in _UNRECORDED for where in case.statements.whereabouts.values())
    all_seen = not (blind or makes_groups) and all(r.seen and r.dump_file for r in incident.ranks.values())
    all_exited = case.statements.left_quietly.keys() >= incident.ranks.keys()
    return "no_hang" if (all_seen and _equal_frontiers(views)) or all_exited else "inconclusive"


def _equal_frontiers(views: Sequence[GroupFrontier]) -> bool:
    """Return whether all members of every group are at the same seq, and at least one collective was issued."""
    ends = [{member.enqueued or 0 for member in view.members.values()} for view in views]
    return all(len(seqs) <= 1 for seqs in ends) and any(map(any, ends))
