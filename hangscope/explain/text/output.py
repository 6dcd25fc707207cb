"""What ranks printed last: who fell silent while its peers failed, how far they counted, who ends earlier or otherwise.

The weakest evidence of all. That the job stood still must be told by something else: an error of the communication layer,
or a watcher's line.
"""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.explain.finding import Absent, Different, Finding, Unseen
from hangscope.explain.statements.outlier_lines import TELLING
from hangscope.explain.statements.standstill import by_steps
from hangscope.explain.statements.statements import WAITED, Statements
from hangscope.explain.text.excerpt import beyond_the_text, without_a_log
from hangscope.explain.text.sides import stood
from hangscope.ingest.job_logs.faults import NoProgress
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.nccl.hccl import HcclTimeout
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.abort import Terminate
from hangscope.ingest.torch_logs.c10d import AsyncError, WatchdogTimeout
from hangscope.ingest.torch_logs.store import RendezvousTimeout, StoreTimeout, StoreUnreachable
from hangscope.ingest.torch_logs.store_barrier import StoreBarrier
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import (
    CallFingerprint,
    GlooClosed,
    GlooSizeMismatch,
    MonitoredBarrier,
    MonitoredBarrierWitness,
)
from hangscope.knowledge.callsite import runs_backward, user_frames
from hangscope.model.incident import Event, Incident

#: What a rank prints that was aborted, or had a part in a check of all.
_INVOLVED: tuple[type[Event], ...] = (
    GlooSizeMismatch, Terminate, MonitoredBarrier, MonitoredBarrierWitness, CallFingerprint, HcclTimeout,
)  # fmt: skip
_BEGINNINGS: tuple[type[Event], ...] = (StoreTimeout, StoreBarrier, StoreUnreachable, RendezvousTimeout)
_ENDED_BY_LAUNCHER = frozenset({-15, 143})
_PEERS = 2  # that stand at one line before another is said to be apart


def _lost_a_peer(statements: Statements) -> frozenset[int]:
    warned = statements.by_rank(NcclWarn, lambda e: e.fault == "closed_by_peer")
    remote = statements.by_rank(AsyncError, lambda e: e.error == "remote")
    return statements.ranks(GlooClosed) | warned.keys() | remote.keys()


def silent(incident: Incident, statements: Statements) -> Finding | None:
    """Name the few ranks that printed no error while all the others timed out or lost a peer.

    Who lost the connection lost it to a process that ended; who timed out had a peer that was still there. Where lines of some
    ranks are not here, only one alone is named whose log is.
    """
    lost, ranks = _lost_a_peer(statements), incident.ranks
    not_here = beyond_the_text(incident, statements) | without_a_log(incident, statements)
    involved = lost | statements.symptoms | statements.ranks(*WAITED, *_INVOLVED)
    failed = sorted(involved)
    quiet = tuple(r for r in sorted(ranks) if r not in involved and r not in not_here)
    if not quiet or len(quiet) > len(failed):
        return None
    if not_here and (len(quiet) > 1 or len(failed) <= _PEERS or not ranks[quiet[0]].files):
        return None
    if statements.all(*_BEGINNINGS) and not statements.all(*WAITED, NcclWarn, AsyncError):
        return None  # the group never formed: who is missing is told by the store
    aborted = statements.all(GlooSizeMismatch)
    if statements.ranks(GlooSizeMismatch) and any(r not in statements.exits for r in quiet):
        return None  # another rank was aborted: these may have been ended before they could print
    swept = any(r in statements.exits and statements.exits[r].code in _ENDED_BY_LAUNCHER for r in quiet)
    if swept and (len(quiet) > 1 or aborted):
        return None  # the launcher ended them before they could print, the innocent with the guilty
    # Who left no file at all may have timed out like the others.
    files = [file for r in failed for file in ranks[r].files]
    unread = bool(files) and len(files) == len(set(files)) and any(not ranks[r].files for r in quiet)
    kind = Unseen if lost.issuperset(failed) or unread else Absent
    if kind is Absent and not statements.inside.isdisjoint(quiet):
        return None  # its stack shows it waiting: it is in a call, and perhaps in another one
    return kind(
        quiet, stood(failed[0], statements), waiting=tuple(failed), events=tuple(errors(failed, statements))
    )


def errors(ranks: Sequence[int], statements: Statements) -> list[Event]:
    """Return one error line of each of the first few ranks."""
    return [e for r in ranks[:3] for e in statements.of(r, *WAITED, RankException, NcclWarn)[:1]]


def apart_from_its_peers(incident: Incident, statements: Statements) -> Different | None:
    """Name the rank that gloo aborted over a message which its peers sent from a backward pass that they are all in.

    Gradient buckets have one size on all ranks, so whose buffer does not fit them is in another call.
    """
    aborted = statements.by_rank(GlooSizeMismatch)
    others = [r for r in sorted(incident.ranks) if r not in aborted]
    if len(aborted) != 1 or len(others) < _PEERS or not statements.inside.issuperset(others):
        return None
    calls = [statements.whereabouts[r].call for r in others]
    if len({user_frames(call.stack) for call in calls}) > 1 or not all(map(runs_backward, calls)):
        return None
    events = (*aborted.values(), *errors(others, statements))
    return Different(tuple(aborted), stood(others[0], statements), events=events)


def stuck(statements: Statements) -> bool:
    """Return whether anything says that the job stood still, and nothing tells better than the output why."""
    if statements.deaths or in_one_call(statements):
        return False
    if statements.external is not None:  # somebody ended it, and may have done so because it stood still
        return by_steps(statements, statements.external) is True
    return bool(statements.all(*WAITED, NoProgress, RankException))


def in_one_call(statements: Statements) -> bool:
    """Return whether every rank that was seen timed out in one and the same call: what they printed last accuses nobody."""
    timed = [e for e in statements.all(WatchdogTimeout) if e.rank is not None and e.seq is not None]
    ranks = {e.rank for e in timed}
    calls = {(e.seq, e.op, e.numel_in, e.numel_out) for e in timed}
    return len(ranks) > 1 and len(calls) == 1 and ranks >= set(statements.of_rank)


def progress(incident: Incident, statements: Statements) -> Finding | None:
    """Name the ranks whose output counts fewer or more steps than the others', or says alone that the loop is over."""
    done = tuple(statements.by_rank(Progress, lambda e: e.done))
    if done and 2 * len(done) <= len(incident.ranks):
        return Different(done, guess=True)
    steps = {
        rank: max((e.epoch or 0, e.step) for e in counted if e.step is not None)
        for rank in incident.ranks
        if (counted := [e for e in statements.of(rank, Progress) if e.step is not None and not e.leaving])
    }
    places = sorted(set(steps.values()))
    if len(places) != 2 or len(steps) < len(incident.ranks):
        return None
    low, high = (tuple(r for r in sorted(steps) if steps[r] == place) for place in places)
    few, kind = (low, Absent) if len(low) < len(high) else (high, Different)
    return kind(few, guess=True) if _may_be_odd(few, incident) else None


def _may_be_odd(few: tuple[int, ...], incident: Incident) -> bool:
    """Return whether what sets ranks apart may be a fault of theirs: they are one against several, or few."""
    return 0 < 2 * len(few) < len(incident.ranks) and (len(few) == 1 or 4 * len(few) <= len(incident.ranks))


def odd_output(incident: Incident, statements: Statements) -> Finding | None:
    """Name the few ranks that the most telling of the lines which only a minority printed, or lacks, sets apart."""
    told = [
        odd for odd in statements.outlier_lines if odd.score >= TELLING and _may_be_odd(odd.ranks, incident)
    ]
    if not told or any(odd.ranks != told[0].ranks for odd in told):
        return None  # two lines that set different ranks apart tell of neither
    kind = Absent if told[0].how in ("missing", "count") else Different
    return kind(told[0].ranks, guess=True)
