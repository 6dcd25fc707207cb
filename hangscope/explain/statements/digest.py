"""From an incident to all that its text and stacks state."""

from __future__ import annotations

from dataclasses import replace

from hangscope.explain.statements.deaths import own_deaths, survived
from hangscope.explain.statements.group_ranks import GroupRanks
from hangscope.explain.statements.outlier_lines import outlier_lines
from hangscope.explain.statements.statements import CTRL_C, INTERRUPTS, WAITED, Statements
from hangscope.explain.statements.whereabouts import whereabouts
from hangscope.ingest.job_logs.activity import EngineTimeout
from hangscope.ingest.job_logs.endings import CleanupSignal, Exit, ExitOk, ExternalEnd
from hangscope.ingest.job_logs.faults import OomHost
from hangscope.ingest.job_logs.last_lines import Printed
from hangscope.ingest.torch_logs.reports import Terminate
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import (
    GlooClosed,
    GlooSizeMismatch,
    GlooTimeout,
    MonitoredBarrierWitness,
)
from hangscope.model.incident import Incident

_TERMINATED = frozenset({0, -15})  # exit codes of tasks that were terminated
_ENDING = frozenset({-15, -9, 143, 137})  # of signals with which jobs are ended


def digest(incident: Incident) -> Statements:
    """Return what an incident states."""
    statements = Statements(group_ranks=GroupRanks(incident.groups, incident.events))
    for event in incident.events:
        # Where a line of c10d prints only a group-local rank, its printer's global one.
        if event.rank is None and event.group_rank is not None and event.prints_group_rank:
            ranks, assumed = statements.group_ranks.resolve(event, (event.group_rank,))
            event = replace(event, rank=ranks[0], rank_assumed=assumed) if ranks else event
        statements.kinds[type(event)].append(event)
        if event.rank is not None:
            statements.of_rank[event.rank][type(event)].append(event)
    waited = [e for e in statements.all(RankException) if e.symptom]
    gave_up = statements.all(*WAITED, GlooSizeMismatch, Terminate, MonitoredBarrierWitness, EngineTimeout)
    # By rank and file the first line that reports what the freeze did to the rank.
    backwards = sorted([*waited, *gave_up], key=lambda e: -e.line)
    after = {(e.rank, e.file): e.line for e in backwards if e.rank is not None}
    statements.outlier_lines = outlier_lines(statements.all(Printed), _heard(incident), after)
    for caught in survived(statements):
        statements.kinds[RankException].remove(caught)
        if caught.rank is not None:
            statements.of_rank[caught.rank][RankException].remove(caught)
    statements.exits = statements.by_rank(Exit)
    statements.external = _external(statements)
    statements.deaths = own_deaths(statements)
    if statements.external is not None and (statements.external.moving or statements.external.early):
        ends = [d for d in statements.deaths if isinstance(d.event, Exit) and d.event.code in _ENDING]
        statements.deaths = [d for d in statements.deaths if d not in ends]
    statements.left_quietly = _left_quietly(incident, statements)
    found = {rank: whereabouts(record, statements) for rank, record in sorted(incident.ranks.items())}
    statements.whereabouts = {rank: where for rank, where in found.items() if where is not None}
    return statements


def _heard(incident: Incident) -> set[int]:
    """Return the ranks whose own output was collected."""
    by_line = {r for r, own in incident.ranks.items() if any(not event.by_launcher for event in own.events)}
    files = {r: {*own.files} - {own.dump_file, own.stack_file} for r, own in incident.ranks.items()}
    return by_line.union(rank for rank, own in files.items() if own)


def _external(statements: Statements) -> ExternalEnd | None:
    """Return the line of an external termination: what a scheduler or launcher reports, or Ctrl-C in tracebacks."""
    events = [e for e in statements.all(ExternalEnd) if not _answers_a_failure(e, statements)]
    if events:
        watched = next((e.moving for e in events if e.moving is not None), None)
        return replace(events[0], moving=watched, early=any(e.early for e in events))
    raised = statements.all(RankException)
    pressed = [e for e in raised if e.type == CTRL_C]
    if not pressed or any(not e.symptom and e.type not in INTERRUPTS for e in raised):
        return None
    first = pressed[0]
    return ExternalEnd(
        first.file, first.line, first.text, host=first.host, time=first.time, stamp=first.stamp,
        reason="cancelled", signal="SIGINT",
    )  # fmt: skip


def _answers_a_failure(end: ExternalEnd, statements: Statements) -> bool:
    """Return whether srun itself ended a step because a task of it had failed: it reports that task first."""
    failed = [e for e in statements.all(Exit) if e.via == "srun" and e.code not in _TERMINATED]
    before = (e for e in (*failed, *statements.all(OomHost)) if e.file == end.file and e.line < end.line)
    return end.reason == "cancelled" and any(before)


def _left_quietly(incident: Incident, statements: Statements) -> dict[int, str]:
    """Return the ranks that ended without an error, each with what shows it: exit code 0, or that a launcher's failure table lists all others.

    What srun prints of each task as it ends is no table: a task that it does not list may be still running, unless it alone left
    no dump, which a live process writes when its peers time out.
    """
    left = {r: "its process exited with code 0" for r, e in statements.exits.items() if e.code == 0}
    left |= dict.fromkeys(sorted(statements.ranks(ExitOk)), "its process ended without an error")
    listed = {rank: event for rank, event in statements.exits.items() if event.via == "table"}
    lists = "failure table lists the other ranks and not this one, so it exited with code 0"
    dumped = {rank for rank, record in incident.ranks.items() if record.dump_file is not None}
    if not listed and dumped == set(statements.exits) and len(dumped) == len(incident.ranks) - 1:
        listed, lists = statements.exits, "lines name the other ranks and not this one, which left no dump"
    missing = [r for r in incident.ranks if r not in statements.exits and r not in left]
    # A process that got a closing signal was alive, even if it answers by exiting with code 0, and is in no table then.
    swept = {e.pid for e in statements.all(CleanupSignal)} - {e.pid for e in statements.all(Exit)} - {None}
    torn = any(note.code == "torn_table" for note in incident.notes)
    if not listed or torn or swept or len(missing) * 2 > len(incident.ranks):
        return left
    waited = statements.ranks(GlooClosed, GlooTimeout) | statements.symptoms
    of_nodes = _of_its_nodes(listed, missing, len(incident.ranks)) if missing else []
    return left | {rank: f"the launcher's {lists}" for rank in of_nodes if rank not in waited}


def _of_its_nodes(exits: dict[int, Exit], missing: list[int], world_size: int) -> list[int]:
    """Return those of the missing ranks that are on the nodes which a launcher lists, as each node's launcher lists its own workers alone."""
    local = {rank: event.local_rank for rank, event in exits.items()}
    known = {rank: n for rank, n in local.items() if isinstance(n, int) and 0 <= n <= rank}
    if len(known) < len(exits):
        return missing
    per_node = max(known.values()) + 1
    if len(missing) == 1 and world_size == per_node + 1:
        per_node += 1  # one node, whose last worker is the missing one
    first = {rank - n for rank, n in known.items()}
    return [rank for rank in missing if any(base <= rank < base + per_node for base in first)]
