"""What ranks printed last, the weakest evidence: which fell silent while its peers failed, how far each counted, which output ends differently."""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.explain.finding import Absent, Different, Finding, Unseen
from hangscope.explain.statements.exits import CLEANUPS
from hangscope.explain.statements.outlier_lines import TELLING
from hangscope.explain.statements.standstill import by_steps
from hangscope.explain.statements.statements import WAITED, Statements
from hangscope.explain.text.excerpt import unproved
from hangscope.explain.text.partitions import last_call
from hangscope.explain.text.stop import says_it_hangs
from hangscope.ingest.job_logs.faults import NoProgress, OomCuda, OomHost
from hangscope.ingest.job_logs.messages import HcclTimeout, Message
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.c10d import AsyncError, WatchdogTimeout
from hangscope.ingest.torch_logs.reports import Terminate
from hangscope.ingest.torch_logs.store import RendezvousTimeout, StoreBarrier, StoreTimeout, StoreUnreachable
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import (
    CallFingerprint,
    GlooClosed,
    GlooSizeMismatch,
    MonitoredBarrier,
    MonitoredBarrierWitness,
)
from hangscope.model.incident import Event, Incident

#: What a rank prints that was aborted, or took part in a check of all ranks.
_INVOLVED: tuple[type[Event], ...] = (
    GlooSizeMismatch, Terminate, MonitoredBarrier, MonitoredBarrierWitness, CallFingerprint, HcclTimeout,
)  # fmt: skip
_BEGINNINGS: tuple[type[Event], ...] = (StoreTimeout, StoreBarrier, StoreUnreachable, RendezvousTimeout)
_PEERS = 2


def silent(incident: Incident, statements: Statements) -> Finding | None:
    """Name the few ranks that printed no error while all the others timed out or lost a peer.

    A lost connection means that the peer ended; a timeout means that it was still there. If lines of some ranks are missing,
    only a single rank is named, and only if its log was collected.
    """
    warned = statements.by_rank(NcclWarn, lambda e: e.fault == "closed_by_peer")
    remote = statements.by_rank(AsyncError, lambda e: e.error == "remote")
    lost, ranks = statements.ranks(GlooClosed) | warned.keys() | remote.keys(), incident.ranks
    not_here = unproved(incident, statements)
    involved = lost | statements.symptoms | statements.ranks(*WAITED, *_INVOLVED)
    failed = sorted(involved)
    quiet = tuple(r for r in sorted(ranks) if r not in involved and r not in not_here)
    if not quiet or len(quiet) > len(failed):
        return None
    timed_out = statements.all(WatchdogTimeout)
    if max((e.members or 0 for e in timed_out), default=0) > len(failed) + len(quiet):
        return None  # the collective has members that left no line at all
    if not_here and (len(quiet) > 1 or len(failed) <= _PEERS or not ranks[quiet[0]].files):
        return None
    if statements.all(*_BEGINNINGS) and not statements.all(*WAITED, NcclWarn, AsyncError):
        return None  # the group never formed: the store shows who is missing
    if statements.ranks(GlooSizeMismatch) and any(r not in statements.exits for r in quiet):
        return None  # another rank was aborted: these may have been terminated before they could print
    swept = any(r in statements.exits and statements.exits[r].code in CLEANUPS for r in quiet)
    if swept and (len(quiet) > 1 or statements.any_of(GlooSizeMismatch)):
        return None  # the launcher terminated them before they could print, victims and culprit alike
    # A rank without any file may have timed out like the others.
    files = [file for r in failed for file in ranks[r].files]
    unread = bool(files) and len(files) == len(set(files)) and any(not ranks[r].files for r in quiet)
    kind = Unseen if lost.issuperset(failed) or unread else Absent
    if kind is Absent and not statements.inside.isdisjoint(quiet):
        return None  # its stack shows it waiting in a collective, perhaps in another one
    stuck, lines = last_call(failed[0], statements), tuple(errors(failed, statements))
    return kind(quiet, stuck, waiting=tuple(failed), events=lines)


def errors(ranks: Sequence[int], statements: Statements) -> list[Event]:
    """Return one error line of each of the first few ranks."""
    return [e for r in ranks[:3] for e in statements.of(r, *WAITED, RankException, NcclWarn)[:1]]


def stuck(statements: Statements) -> bool:
    """Return whether something shows that the job hung, and nothing shows the cause better than the output."""
    timed = [e for e in statements.all(WatchdogTimeout) if e.rank is not None and e.seq is not None]
    ranks, calls = {e.rank for e in timed}, {(e.seq, e.op, e.numel_in, e.numel_out) for e in timed}
    # Where every rank that was seen timed out in one and the same collective, the last lines show no culprit.
    in_one_call = len(ranks) > 1 and len(calls) == 1 and ranks >= set(statements.of_rank)
    if statements.deaths or in_one_call:
        return False
    if statements.external is not None:  # it may have been terminated because it hung
        by_hand = statements.external.signal == "SIGINT" and says_it_hangs(statements)
        return by_hand or by_steps(statements, statements.external) is True
    return bool(statements.all(*WAITED, NoProgress, RankException))


def progress(incident: Incident, statements: Statements) -> Finding | None:
    """Name the ranks whose output counts fewer or more steps than the others', or alone reports the end of the loop."""
    if not stuck(statements):
        return None
    done = tuple(statements.by_rank(Progress, lambda e: e.done))
    if done and 2 * len(done) <= len(incident.ranks):
        return Different(done, guess=True)
    steps = dict[int, tuple[int, int]]()
    for e in statements.all(Progress):
        if e.rank in incident.ranks and e.step is not None and not e.leaving:
            steps[e.rank] = max((e.epoch or 0, e.step), steps.get(e.rank, (0, e.step)))
    places = sorted(set(steps.values()))
    if len(places) != 2 or len(steps) < len(incident.ranks):
        return None
    low, high = (tuple(r for r in sorted(steps) if steps[r] == place) for place in places)
    few, kind = (low, Absent) if len(low) < len(high) else (high, Different)
    return kind(few, guess=True) if _may_be_outliers(few, incident) else None


def _may_be_outliers(few: tuple[int, ...], incident: Incident) -> bool:
    """Return whether a difference may be a fault of these ranks: they are one among several, or few."""
    return 0 < 2 * len(few) < len(incident.ranks) and (len(few) == 1 or 4 * len(few) <= len(incident.ranks))


def outlier_output(incident: Incident, statements: Statements) -> Finding | None:
    """Name the few ranks that alone printed, or did not, the most telling line; only one rank's own lines where nothing shows a hang."""
    # What a library or a device reports has rules of its own.
    known = {(e.file, e.line) for e in statements.all(Message, OomCuda, OomHost)}
    telling = [o for o in statements.outlier_lines if o.score >= TELLING or (o.telling and o.how == "value")]
    telling = [o for o in telling if _may_be_outliers(o.ranks, incident)]
    if not stuck(statements):
        hangs = says_it_hangs(statements)
        telling = [o for o in statements.outlier_lines if o.telling or (o.lacks_the_last and hangs)]
        telling = [] if statements.deaths else telling
        known |= {(o.file, o.line) for o in telling if len(o.ranks) > 1}
    if any((o.file, o.line) in known for o in telling):
        return None
    if not telling or any(line.ranks != telling[0].ranks for line in telling):
        return None  # two lines point at different ranks
    kind = Absent if telling[0].how in ("missing", "count") else Different
    return kind(telling[0].ranks, guess=True)
