"""Rules about ranks that are late: others have ended, or the timeout is over."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hangscope.align.waitgraph import Untold
from hangscope.causes.case import Case, Match, answer, at, who
from hangscope.explain.finding import Nothing
from hangscope.explain.text.blocked import worked_on
from hangscope.explain.text.excerpt import beyond_the_text
from hangscope.explain.text.stop import find_stop
from hangscope.ingest.job_logs.durations import Durations, LongWork
from hangscope.ingest.job_logs.last_lines import Printed
from hangscope.ingest.lines.prefixes import quote as quote_text
from hangscope.ingest.lines.vocabulary import words
from hangscope.ingest.torch_logs.c10d import AsyncError, WatchdogTimeout
from hangscope.ingest.torch_logs.wrapper import GlooClosed, GlooTimeout
from hangscope.knowledge.callsite import user_frame
from hangscope.model.conclusion import Evidence
from hangscope.model.incident import Event, Group, Queue, State
from hangscope.model.rankset import agree

LATE = 30 * 10**9  # ns that one rank is later than all others: far more than the clocks of two hosts differ
SEVERAL, LONGER, SHORTEST = 3, 3.0, 0.05  # ranks; times as long as any other; s
_LOOPBACK = ("[127.", "127.", "[::1]", "::1")
_SHOWN = 90  # characters of a line
_MISSED = ("early_exit", "the others may have exited before a collective that all should have issued")


def made_after_the_end(case: Case) -> Match | None:
    """Few ranks are blocked in a collective while most have ended without an error: those few issued an extra one.

    The launcher lists the ranks that failed; the others ended well. The parent of `mp.spawn` reports the first alone.
    """
    statements, records = case.statements, case.incident.ranks
    failed = sorted(r for r, e in statements.exits.items() if e.code != 0 and e.via != "spawn")
    others = set(records).difference(failed)
    waited = statements.witnesses & set(records)
    if not failed or statements.deaths or waited != set(failed) or len(failed) * 2 >= len(records):
        return None
    unheard = beyond_the_text(case.incident, statements) & others - set(statements.left_quietly)
    if unheard and not any((e.peer or "").startswith(_LOOPBACK) for e in statements.all(GlooClosed)):
        return None  # ranks of which nothing was collected may have been on another node, with a launcher of its own
    stack = case.stack_of(None, failed[:1])
    listed = f"the launcher lists only {who(failed)} as failed: the others exited normally"
    why = f"{who(failed)} {agree(failed, 'was', 'were')} still blocked in a collective{at(user_frame(stack))} after {who(others)} had exited without an error"
    fix = "Let every rank issue the same collectives up to the end: work that one rank does after the loop must not issue a collective."
    evidence: list[Evidence | Event] = [Evidence("exit", listed), *(statements.exits[r] for r in failed[:2])]
    strength = int(all(records[r].files for r in others))
    cause, rivals = "rank_conditional_collective", [_MISSED]
    match = answer(cause, failed, why, fix, strength=strength, evidence=evidence, rivals=rivals)
    return replace(match, stack=stack)


def came_late(case: Case) -> Match | None:
    """Watchdogs timed out, and yet every collective is complete in the dumps: a rank was slow, and nothing hangs."""
    timeouts, records = case.statements.all(WatchdogTimeout), case.incident.ranks
    # Of a collective whose peers no line names, nothing but the timeout itself says that it is still pending.
    pending = (call.node for calls in case.graph.open_calls.values() for call in calls)
    waiting = any(not isinstance(node, Untold) for node in pending)
    if not timeouts or waiting or case.statements.deaths or not _went_on(case, timeouts):
        return None
    silent = sorted(set(records) - {e.rank for e in timeouts})
    # Only a rank whose log was collected is known not to have timed out.
    logged = all(set(records[r].files) - {records[r].dump_file} for r in silent)
    culprits = silent if logged and len(silent) * 2 < len(records) else []
    why = f"{who(culprits, 'a rank')} arrived after the timeout; the collective that the others timed out in did complete"
    complete = "no dump has a pending collective: the one that timed out is complete in every dump"
    evidence: list[Evidence | Event] = [timeouts[0], Evidence("dump", complete)]
    return answer("slow_rank", culprits, why, strength=2 if culprits else 0, evidence=evidence)


def outlasted_the_timeout(case: Case) -> Match | None:
    """One rank's own work lasted as long as the others' timeout, and it went on when they had given up."""
    timed = case.statements.all(WatchdogTimeout)
    limits: list[tuple[Event, float]] = [(e, (e.timeout_ms or 0) / 1000) for e in timed]
    limits += [(e, (e.ran_ms or 0) / 1000) for e in case.statements.all(GlooTimeout)]
    timeouts = [(e, limit) for e, limit in limits if e.rank is not None and limit]
    gave_up, limit = {e.rank for e, _ in timeouts}, min((limit for _, limit in timeouts), default=0.0)
    works = _printed_late(case)
    works += [(e.rank, e.seconds, e) for e in case.statements.all(LongWork) if e.rank is not None]
    works = [work for work in works if work[0] not in gave_up and work[1] >= limit > 0]
    if len({rank for rank, *_ in works}) != 1 or len(gave_up) < 2:
        return None
    rank, seconds, work = works[-1]  # what a line itself reports rather than what the times of lines show
    moments = [e.in_the_year for e, _ in timeouts]
    if work.in_the_year is not None and not any(m is None or m <= work.in_the_year for m in moments):
        return None  # it was done before the others gave up
    after = quote_text(work.after, _SHOWN) if isinstance(work, LongWork) else ""
    begun = f" (begun after '{after}')" if after else ""
    why = f"rank {rank} worked for {seconds:.0f} s on its own, while the others waited for it with a timeout of {limit:.0f} s: '{quote_text(work.text, _SHOWN)}'{begun}"
    fix = f"Find out why that work of rank {rank} takes so long (its disk, its data, its host), and let it run beside the steps or on every rank for its part; until then a timeout above {seconds:.0f} s lets the others wait for it."
    return answer("slow_rank", (rank,), why, fix, evidence=[work, timeouts[0][0]])


def _printed_late(case: Case) -> list[tuple[int, float, Event]]:
    """Return the rank whose own program printed on after that of all others and which then joined them, for how long (s), and its last line."""
    last: dict[int, tuple[float, Event]] = {}
    for e in case.statements.all(Printed):
        if e.rank is not None and (moment := e.in_the_year) is not None:
            last[e.rank] = max(last.get(e.rank, (moment, e)), (moment, e), key=lambda own: own[0])
    ends = sorted((moment, rank) for rank, (moment, _) in last.items())
    if len(ends) <= 2 or not case.statements.of(ends[-1][1], GlooClosed, AsyncError):
        return []
    (before, _), (end, rank) = ends[-2:]
    return [(rank, end - before, last[rank][1])]


def arrived_late(case: Case) -> Match | None:
    """No dump shows a hang, and one rank entered a collective long after all others: who waited there lost that time."""
    seen = any(record.dump_file for record in case.incident.ranks.values())
    calm = case.incident.momentary or (isinstance(case.finding, Nothing) and not case.graph.waiting)
    if not seen or not calm or case.statements.deaths:
        return None
    found = [late for group in case.incident.groups if (late := _first_late(case, group)) is not None]
    if not found:
        return None
    _, gap, rank, queue, row = min(found, key=lambda late: late[:3])
    kind = case.incident.kinds[int(queue.kind[row])]
    call, lag = f"{kind.op} seq {int(queue.seq[row])}", f"{gap / 1e9:.0f} s"
    why = f"rank {rank} was {lag} late in {call}; all other members of its group waited for it, and then the collective completed"
    entered = f"rank {rank} entered {call}, {lag} after all other members of its group"
    facts, frame = [case.recorded(rank, entered)], case.frame_of(kind)
    return answer("slow_rank", (rank,), why, evidence=facts, frame=frame)


def at_work(case: Case) -> Match | None:
    """One rank printed lines of its own while all others waited for their timeout: it does something that they do not."""
    printed = worked_on(case.statements)
    if printed is None or case.finding.culprits != (printed.rank,):
        return None
    shown = quote_text(printed.texts[-1], _SHOWN)
    why = f"{who(case.finding.culprits)} still worked while the others waited: it printed {printed.counts[-1]} lines like '{shown}'"
    fix = f"Let all ranks wait for that work with a longer timeout, or move it out of the step: into another process, to a faster disk, or to every rank for its part; a stack of {who(case.finding.culprits)} shows whether it is slow or stuck."
    return answer("stuck_rank", case.finding.culprits, why, fix, evidence=[printed])


def takes_longer(case: Case) -> Match | None:
    """Nothing stopped, and one rank spends far longer than all others in a part of its steps, by the times that the ranks print."""
    statements, waiting = case.statements, case.graph.waiting and not case.incident.momentary
    if find_stop(statements) is not None or statements.deaths or waiting:
        return None
    found = []
    for label, of_rank in _usual_times(case).items():
        longest = sorted(((time, rank) for rank, time in of_rank.items()), reverse=True)
        ((most, often), rank), ((second, _), _) = longest[:2]
        if len(of_rank) >= SEVERAL and often > 1 and most > LONGER * max(second, SHORTEST):
            found.append((most - second, rank, label, most, second))
    if len({rank for _, rank, *_ in found}) != 1:
        return None
    _, rank, label, most, second = max(found)
    why = f"{who([rank])} spends {most:.3g} s of each step in {label}, the others at most {second:.3g} s: they wait for it, and the steps go on"
    fix = f"Look at what {who([rank])} does in {label}: its data, its storage, its host; on a GPU its clocks and temperature (nvidia-smi -q -d PERFORMANCE)."
    lines = [e for e in statements.all(Durations) if label in e.labels]
    shown = sorted(lines, key=lambda e: e.rank != rank)[:SEVERAL]
    return answer("slow_rank", (rank,), why, fix, strength=1, evidence=shown)


def _usual_times(case: Case) -> dict[str, dict[int, tuple[float, int]]]:
    """Return the usual time (s) of each labelled part of a step in which ranks do not wait for others, and of how many lines, by rank."""
    times: dict[str, dict[int, tuple[float, int]]] = {}
    for e in case.statements.all(Durations):
        for label, seconds, count in zip(e.labels, e.seconds, e.counts, strict=True):
            if e.rank is not None and not words("waiting_parts").match(label):
                times.setdefault(label, {})[e.rank] = (seconds, count)
    return {label: of_rank for label, of_rank in times.items() if len(of_rank) > 1}


def _first_late(case: Case, group: Group) -> tuple[int, int, int, Queue, int] | None:
    """Return the first time that one member of a group came late to a collective: when, by how much (ns), who, and its row.

    Whoever waits for it comes late elsewhere, but later. How long a rank takes to start does not count.
    """
    records = [case.incident.ranks[rank] for rank in group.ranks]
    queues = [record.queues[group.gid] for record in records if len(record.queues.get(group.gid, ()))]
    if len(queues) < max(2, len(group.ranks)):
        return None
    first, end = max(2, *(int(q.seq[0]) for q in queues)), min(int(q.seq[-1]) for q in queues) + 1
    rows = [slice(*np.searchsorted(q.seq, (first, max(first, end)))) for q in queues]
    times = [q.created[own] for q, own in zip(queues, rows, strict=True)]
    if len({len(column) for column in times}) > 1 or not len(times[0]):
        return None
    last, before, places = times[0], np.zeros_like(times[0]), np.zeros(len(times[0]), np.int64)
    for place, column in enumerate(times[1:], start=1):
        places = np.where(column > last, place, places)
        last, before = np.maximum(last, column), np.maximum(before, np.minimum(last, column))
    late = np.flatnonzero((last - before > LATE) & (before > 0))
    if not late.size:
        return None
    at = int(late[last[late].argmin()])
    queue, own = queues[int(places[at])], rows[int(places[at])]
    return int(last[at]), int(last[at] - before[at]), queue.rank, queue, own.start + at


def _went_on(case: Case, timeouts: list[WatchdogTimeout]) -> bool:
    """Return whether dumps show that the collectives which timed out were completed, and no rank is hung."""
    records, kinds = case.incident.ranks.values(), case.incident.kinds
    if records and all(r.seen and r.dump_file for r in records):
        return True
    dumped, completed = [r for r in records if r.dump_file], set[tuple[int, str]]()
    for queue in (queue for record in dumped[:8] for queue in record.queues.values()):
        done = queue.state == State.DONE
        completed |= {
            (int(n), kinds[int(k)].op) for n, k in zip(queue.seq[done], queue.kind[done], strict=True)
        }
    return len(dumped) > 1 and not completed.isdisjoint((e.seq, e.op) for e in timeouts)
