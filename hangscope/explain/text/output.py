"""What ranks printed last: who fell silent while its peers failed, at which lines they were blocked, how far they counted.

The weakest evidence of all. That the job stood still must be told by something else: an error of the communication layer,
or a watcher's line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from hangscope.explain.finding import Absent, AnyFinding, Different, Finding, StuckCall, Unseen
from hangscope.explain.statements.standstill import by_steps
from hangscope.explain.statements.statements import Statements
from hangscope.explain.text.excerpt import beyond_the_text, without_a_log
from hangscope.incident import Event, Incident
from hangscope.ingest.job_logs.faults import NoProgress
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.abort import Terminate
from hangscope.ingest.torch_logs.c10d import AsyncError, WatchdogTimeout
from hangscope.ingest.torch_logs.store import (
    DdpParams,
    DdpShape,
    DdpUnfinished,
    DdpUnused,
    RendezvousTimeout,
    StoreTimeout,
    StoreUnreachable,
)
from hangscope.ingest.torch_logs.store_barrier import StoreBarrier
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import (
    CallFingerprint,
    GlooClosed,
    GlooSizeMismatch,
    GlooTimeout,
    MonitoredBarrier,
    MonitoredBarrierWitness,
)
from hangscope.knowledge.callsite import runs_backward, user_frames
from hangscope.regex import regex

_LOST: tuple[type[Event], ...] = (GlooClosed,)
_WAITED: tuple[type[Event], ...] = (GlooTimeout, WatchdogTimeout)
_INVOLVED: tuple[type[Event], ...] = (
    GlooSizeMismatch,
    Terminate,
    MonitoredBarrier,
    MonitoredBarrierWitness,
    CallFingerprint,
)
_BEGINNINGS: tuple[type[Event], ...] = (StoreTimeout, StoreBarrier, StoreUnreachable, RendezvousTimeout)
_ENDED_BY_LAUNCHER = frozenset({-15, 143})
_NUMBERS = regex(r"-?\d[\d.,]*(?:e[+-]?\d{1,3})?|\bnan\b|\binf\b", re.IGNORECASE)
_PEERS = 2  # that stand at one line before another is said to be apart


def _lost_a_peer(rank: int, statements: Statements) -> bool:
    return (
        bool(statements.of(rank, *_LOST))
        or any(e.fault == "closed_by_peer" for e in statements.of(rank, NcclWarn))
        or any(e.error == "remote" for e in statements.of(rank, AsyncError))
    )


def _failed(rank: int, statements: Statements) -> bool:
    """Return whether a rank shows that it waited: it timed out, lost a peer, or was aborted over what a peer sent."""
    symptom = any(e.symptom for e in statements.of(rank, RankException))
    return symptom or _lost_a_peer(rank, statements) or bool(statements.of(rank, *_WAITED, *_INVOLVED))


def silent(incident: Incident, statements: Statements) -> Finding | None:
    """Name the few ranks that printed no error while all the others timed out or lost a peer.

    Who lost the connection lost it to a process that ended; who timed out had a peer that was still there. Where lines of some
    ranks are not here, only one alone is named whose log is.
    """
    not_here = beyond_the_text(incident, statements) | without_a_log(incident, statements)
    failed = [r for r in sorted(incident.ranks) if _failed(r, statements)]
    quiet = [r for r in sorted(incident.ranks) if r not in failed and r not in not_here]
    if not failed or not quiet or len(quiet) > len(failed):
        return None
    if not_here and (len(quiet) > 1 or len(failed) <= _PEERS or not incident.ranks[quiet[0]].files):
        return None
    if statements.all(*_BEGINNINGS) and not statements.all(*_LOST, *_WAITED, NcclWarn, AsyncError):
        return None  # the group never formed: who is missing is told by the store
    swept = [r for r in quiet if (e := statements.exits.get(r)) is not None and e.code in _ENDED_BY_LAUNCHER]
    aborted = statements.all(GlooSizeMismatch)
    if any(e.rank is not None for e in aborted) and any(r not in statements.exits for r in quiet):
        return None  # another rank was aborted: these may have been ended before they could print
    if swept and (len(quiet) > 1 or aborted):
        return None  # the launcher ended them before they could print, the innocent with the guilty
    lost = [r for r in failed if _lost_a_peer(r, statements)]
    # Who left no file at all may have timed out like the others.
    files = [file for r in failed for file in incident.ranks[r].files]
    unread = bool(files) and len(files) == len(set(files)) and any(not incident.ranks[r].files for r in quiet)
    kind = Unseen if len(lost) == len(failed) or unread else Absent
    if kind is Absent and any((w := statements.whereabouts.get(r)) is not None and w.inside for r in quiet):
        return None  # its stack shows it waiting: it is in a call, and perhaps in another one
    return kind(
        tuple(quiet), stood(failed[0], statements), waiting=tuple(failed), reached=frozenset(failed),
        events=tuple(errors(failed, statements)),
    )  # fmt: skip


def stood(rank: int, statements: Statements) -> StuckCall:
    """Return the call that a rank stood in, as far as its stack or traceback tells."""
    where = statements.whereabouts.get(rank)
    return StuckCall(rank=rank, kind=where.call if where is not None else None)


def errors(ranks: list[int], statements: Statements) -> list[Event]:
    """Return one error line of each of the first few ranks."""
    return [e for r in ranks[:3] for e in statements.of(r, *_LOST, *_WAITED, RankException, NcclWarn)[:1]]


def apart_from_its_peers(incident: Incident, statements: Statements) -> Different | None:
    """Name the rank that gloo aborted over a message which its peers sent from a backward pass that they are all in.

    Gradient buckets have one size on all ranks, so whose buffer does not fit them is in another call.
    """
    aborted = {e.rank for e in statements.all(GlooSizeMismatch) if e.rank is not None}
    inside = {r: w for r, w in statements.whereabouts.items() if w.inside and r not in aborted}
    others = sorted(set(incident.ranks) - aborted)
    if len(aborted) != 1 or len(others) < _PEERS or set(inside) != set(others):
        return None
    lines = {user_frames(where.stack) for where in inside.values()}
    if len(lines) != 1 or not all(runs_backward(where.call) for where in inside.values()):
        return None
    events = [e for e in statements.all(GlooSizeMismatch) if e.rank in aborted][:1]
    return Different(
        tuple(sorted(aborted)), stood(others[0], statements), waiting=tuple(others), reached=frozenset(others),
        events=(*events, *errors(others, statements)),
    )  # fmt: skip


def batches(statements: Statements) -> dict[int, int]:
    """Return how many steps each rank's last line of progress says that its loop has, of ranks that are in its second half."""
    last = _last_of_each(e for e in statements.all(Progress) if e.total)
    return {
        r: e.total
        for r, e in last.items()
        if e.total and e.step is not None and e.step <= e.total <= 2 * e.step
    }


def _last_of_each(events: Iterable[Progress]) -> dict[int, Progress]:
    """Return the last line of each rank."""
    last: dict[int, Progress] = {}
    for event in events:
        if event.rank is not None and event.line >= (last[event.rank].line if event.rank in last else 0):
            last[event.rank] = event
    return last


def stuck(statements: Statements) -> bool:
    """Return whether anything says that the job stood still, and nothing tells better than the output why."""
    told = statements.all(DdpParams, DdpShape, DdpUnused, DdpUnfinished)
    if statements.deaths or told or in_one_call(statements):
        return False
    if statements.external is not None:  # somebody ended it, and may have done so because it stood still
        return by_steps(statements, statements.external) is True
    return bool(statements.all(GlooTimeout, GlooClosed, WatchdogTimeout, NoProgress, RankException))


def in_one_call(statements: Statements) -> bool:
    """Return whether every rank that was seen timed out in one and the same call: what they printed last accuses nobody."""
    calls = {
        (e.rank, e.seq, e.op, e.numel_in, e.numel_out)
        for e in statements.all(WatchdogTimeout)
        if e.rank is not None and e.seq is not None
    }
    ranks = {call[0] for call in calls}
    return len(ranks) > 1 and len({call[1:] for call in calls}) == 1 and ranks >= set(statements.of_rank)


def progress(incident: Incident, statements: Statements) -> Finding | None:
    """Name the ranks whose output counts fewer or more steps than the others', or says alone that the loop is over."""
    if not stuck(statements):
        return None
    steps: dict[int, tuple[int, int]] = {}
    done: set[int] = set()
    for event in statements.all(Progress):
        if event.rank is None:
            continue
        if event.done:
            done.add(event.rank)
        step, epoch = event.step, event.epoch
        if isinstance(step, int) and not event.leaving:
            at = (epoch if isinstance(epoch, int) else 0, step)
            steps[event.rank] = max(at, steps.get(event.rank, at))
    everybody = set(incident.ranks)
    if done and len(done) * 2 <= len(everybody) and done < everybody:
        return by_output(Different, tuple(sorted(done)), incident)
    places = sorted(set(steps.values()))
    if len(places) == 2 and set(steps) == everybody:
        low, high = (tuple(r for r in sorted(steps) if steps[r] == place) for place in places)
        few = low if len(low) < len(high) else high
        kind: type[Finding] = Absent if few is low else Different
        if len(few) == 1 or len(few) * 4 <= len(everybody):
            return by_output(kind, few, incident) if len(low) != len(high) else None
    return None


def last_words(incident: Incident, statements: Statements) -> Finding | None:
    """Name the few ranks whose last line of progress, numbers apart, is another than that of all others, who agree."""
    last = _last_of_each(statements.all(Progress))
    if not last or not stuck(statements) or set(last) != set(incident.ranks):
        return None
    said = {rank: _NUMBERS.sub("#", event.text) for rank, event in last.items()}
    ((usual, times),) = Counter(said.values()).most_common(1)
    few = tuple(sorted(rank for rank, text in said.items() if text != usual))
    if not few or times * 2 <= len(last) or (len(few) > 1 and len(few) * 4 > len(last)):
        return None
    return by_output(Different, few, incident)


def by_output(kind: type[AnyFinding], culprits: tuple[int, ...], incident: Incident) -> AnyFinding:
    """Return the finding that ranks are set apart from all others by what they printed."""
    return apart(kind, culprits, [r for r in sorted(incident.ranks) if r not in culprits], guess=True)


def apart(
    kind: type[AnyFinding], culprits: Iterable[int], waiting: Sequence[int], events: Iterable[Event] = (), *, guess: bool = False
) -> AnyFinding:  # fmt: skip
    """Return the finding that text sets ranks apart from those that wait (global, ascending), in a call that it does not tell."""
    stuck = StuckCall(rank=waiting[0] if waiting else None)
    return kind(
        tuple(culprits),
        stuck,
        waiting=tuple(waiting),
        reached=frozenset(waiting),
        guess=guess,
        events=tuple(events),
    )
