"""What lowers the confidence of a verdict: each doubt by its name, with the level that it leaves at most.

A doubt is a function from the case and its match to a `Doubt`, or None where it does not apply. They are asked in the order of
`DOUBTS`, and only those that lower the level are told.
"""

from __future__ import annotations

from collections.abc import Callable

from hangscope.align.nodes import Untold
from hangscope.align.rankset import ranks_phrase
from hangscope.causes.case import Case, Match
from hangscope.causes.ends.process import shows_a_wait
from hangscope.dataclass import dataclass
from hangscope.explain.finding import Absent, Different, Lagging, Nothing, Unseen
from hangscope.explain.predict import MOST_REPLAYED, Replay
from hangscope.explain.statements.bounds import idle
from hangscope.explain.statements.standstill import stood_still
from hangscope.explain.text.excerpt import beyond_the_text, not_collected, without_a_log
from hangscope.incident import Absence
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.torch_logs.c10d import DumpObserved, WatchdogTimeout
from hangscope.knowledge.callsite import user_frame
from hangscope.verdict.damage import damage, only_communication_failed, torn_death
from hangscope.verdict.status import trouble

LOW, MEDIUM = 0, 1
EXPLAINS = 0.9  # of the waiting ranks, below which a root is not the whole story
LEFT = 0.1  # of them that still wait once the named ranks are imagined to behave
UNSEEN = 0.5  # of a group's members, or of the ranks whose text is read, from which on nobody knows the most

#: Causes that say how a rank's program differs, and not only that its call does.
_OF_PROGRAMS = frozenset(
    {
        "shape_mismatch", "gradient_sync_mismatch", "rank_conditional_collective", "uneven_loader", "collective_order_mismatch",
        "collective_mismatch",
    }
)  # fmt: skip
#: Causes that lines of text establish by themselves, whatever the calls show.
_TOLD = frozenset({"crashed_rank", "early_exit", "model_mismatch", "init_hang"})


@dataclass(frozen=True, slots=True)
class Doubt:
    """A level that a verdict has at most (0 low, 1 medium), and why."""

    most: int
    why: str


def _by_calls(case: Case, match: Match) -> bool:
    """Return whether a match stands or falls with what the finding says of calls."""
    return not isinstance(case.finding, Nothing) and match.cause not in _TOLD


def _doubtful(case: Case, match: Match) -> list[int]:
    """Return the ranks without a usable dump at which waiting ends, but for those that are named."""
    return sorted(
        {r for root in case.graph.roots if root.kind == "unseen" for r in root.ranks} - set(match.culprits)
    )


def damaged(case: Case, match: Match) -> Doubt | None:
    """Files are damaged or lines torn, or on an error that a peer's end brings about as well."""
    why = damage(case, match) or torn_death(case, match) or only_communication_failed(case, match)
    return Doubt(MEDIUM, why) if why else None


def raised_elsewhere(case: Case, match: Match) -> Doubt | None:
    """Tracebacks of those who are called absent stand in another call than the one that the others wait in."""
    waited = user_frame(case.finding.stuck.kind.stack) if case.finding.stuck.kind is not None else None
    if not isinstance(case.finding, Absent) or case.from_text or waited is None:
        return None
    for rank in match.culprits:
        where = case.statements.whereabouts.get(rank)
        if where is None or where.kind != "log" or not where.inside or where.op is None:
            continue
        if not any((f.file, f.line) == (waited.file, waited.line) for f in where.stack):
            why = f"rank {rank}'s traceback stands in another call, so that its dump may be older than the freeze"
            return Doubt(LOW, why)
    return None


def even_sides(case: Case, match: Match) -> Doubt | None:
    """Nobody is named, for the sides are even."""
    if case.finding.tie and not match.culprits:
        return Doubt(MEDIUM, "the sides are even and history does not tell which is wrong")
    return None


def went_on(case: Case, match: Match) -> Doubt | None:
    """Who waits counts further steps behind its timeout, or says that its loop is over and no line tells of trouble."""
    gave_up = {(e.file, e.rank): e.line for e in case.statements.all(WatchdogTimeout)}
    for e in case.statements.all(Progress) if match.cause != "slow_rank" else ():
        if e.step is not None and gave_up.get((e.file, e.rank), e.line) < e.line and _by_calls(case, match):
            return Doubt(LOW, f"{e.file} counts further steps behind the line of a timeout")
        if e.done and e.rank not in match.culprits and match.cause == "stuck_rank" and not trouble(case):
            return Doubt(LOW, "a line says that the loop ended, and none tells of trouble")
    return None


def explains_few(case: Case, match: Match) -> Doubt | None:
    """Too few of the waiting ranks lead to the root."""
    explained, waiting = case.finding.explained, len(case.finding.waiting)
    if _by_calls(case, match) and waiting and explained < EXPLAINS * waiting:
        return Doubt(MEDIUM, f"it explains only {explained} of {waiting} waiting ranks")
    return None


def leaves_waiting(case: Case, match: Match) -> Doubt | None:
    """Ranks would still wait if the named ones did what is expected of them."""
    if not (_by_calls(case, match) and 0 < len(match.culprits) <= MOST_REPLAYED and case.graph.waiting):
        return None
    unseen = {r for root in case.graph.roots if root.kind == "unseen" for r in root.ranks}
    freed = {*match.culprits, *(unseen if isinstance(case.finding, Different) else ())}
    left = Replay(case.graph).stuck(freed) - freed - _nowhere(case)
    if len(left) <= LEFT * len(case.graph.waiting):
        return None
    others = (
        root.ranks
        for root in case.graph.roots
        if root.kind != "unseen" and not freed.intersection(root.ranks) and left <= {*root.explains, *freed}
    )
    beside = next(others, None)
    if beside:
        return Doubt(LOW, f"{ranks_phrase(beside)} would keep {ranks_phrase(left)} waiting without it")
    return Doubt(MEDIUM, f"it leaves unexplained why {ranks_phrase(left)} would wait")


def guessed(case: Case, match: Match) -> Doubt | None:
    """Nothing but what ranks printed last tells, or counts of one moment."""
    if _by_calls(case, match) and case.finding.guess:
        return Doubt(LOW, "it rests on what the ranks printed last, or on counts of one moment")
    return None


def interrupted(case: Case, match: Match) -> Doubt | None:
    """Stacks of one moment alone tell that a job that a signal ended had stood still."""
    end = case.statements.external
    if end is None or end.signal is None or case.solid or match.cause in _TOLD or not shows_a_wait(case):
        return None
    if stood_still(case.incident, case.statements, end):
        return None
    return Doubt(
        LOW, "a signal ended the job, and stacks of one moment are all that tells of a freeze before"
    )


def died_beside(case: Case, match: Match) -> Doubt | None:
    """Another rank died of its own fault: its peers abort their communicators, which finishes calls unevenly, or wait for it."""
    died = {death.rank for death in case.statements.deaths} - set(match.culprits)
    lags = isinstance(case.finding, Lagging) and match.cause == "gpu_stall"
    stuck = isinstance(case.finding, Absent) and match.cause == "stuck_rank"
    doubtful = (_doubtful(case, match) if lags else []) or sorted(died)
    if doubtful and (lags or stuck):
        why = f"{ranks_phrase(doubtful)} may have died, whose peers' communicators then finish calls unevenly"
        return Doubt(LOW, why if lags else f"{ranks_phrase(doubtful)} died of a fault of its own")
    return None


def nothing_overdue(case: Case, match: Match) -> Doubt | None:
    """Who is said to lag had nothing overdue by its own log when the others timed out: its dump is older than that."""
    idle_ranks = idle(case.statements).intersection(match.culprits)
    if isinstance(case.finding, Lagging) and match.cause == "gpu_stall" and idle_ranks:
        return Doubt(
            LOW,
            f"the log of {ranks_phrase(sorted(idle_ranks))} tells of nothing overdue, so its dump may be older",
        )
    return None


def of_one_moment(case: Case, match: Match) -> Doubt | None:
    """Ranks are in no call by dumps alone: so are several of a job that moves, and those whose dumps are older than others'."""
    if not isinstance(case.finding, Absent) or case.from_text:
        return None
    if case.graph.early and not trouble(case):
        return Doubt(LOW, "another dump is older than its peers', and so may be what shows it in no call")
    if len(match.culprits) < 2:
        return None
    told = idle(case.statements) | case.statements.busy
    if not trouble(case) or (case.graph.early and not told.issuperset(match.culprits)):
        return Doubt(MEDIUM, "several ranks are in no call by their dumps alone, which may be of a moment")
    return None


def others_unseen(case: Case, match: Match) -> Doubt | None:
    """Other ranks that calls wait for left no usable dump."""
    doubtful = _doubtful(case, match)
    if _by_calls(case, match) and doubtful and not isinstance(case.finding, Different):
        return Doubt(MEDIUM, f"calls also lack {ranks_phrase(doubtful)}, of which no usable dump was seen")
    return None


def assumed(case: Case, match: Match) -> Doubt | None:
    """Who waits for whom is assumed."""
    if _by_calls(case, match) and case.finding.assumed:
        why = "it rests on an assumption about who waits for whom, or about which group a log line means"
        return Doubt(MEDIUM, why)
    return None


def members_unknown(case: Case, match: Match) -> Doubt | None:
    """Somebody is called absent from a group whose members nobody recorded."""
    view = case.finding.stuck.view
    if not _by_calls(case, match) or view is None or not isinstance(case.finding, Absent | Unseen):
        return None
    if view.group.members_known or match.frame:
        return None
    why = "the members of the group are not recorded, so that nobody can be called absent for certain"
    return Doubt(MEDIUM, why)


def half_unseen(case: Case, match: Match) -> Doubt | None:
    """Half of the group's members were not seen; where a device is said to lag, any: one of them may have broken the call."""
    view = case.finding.stuck.view
    if (
        not _by_calls(case, match)
        or view is None
        or not isinstance(case.finding, Absent | Different | Lagging)
    ):
        return None
    ranks, gid = case.incident.ranks, view.group.gid
    # Of a group with sends and receives a frontier is not always known, although the rank was seen.
    others = [
        r for r in view.unseen if r not in match.culprits and not (ranks[r].seen and gid in ranks[r].p2p)
    ]
    lags = isinstance(case.finding, Lagging)
    if others and (lags or len(others) >= UNSEEN * len(view.members)):
        part = "members of the group" if lags else "half of the group's members"
        return Doubt(MEDIUM, f"{part} were not seen ({ranks_phrase(others)})")
    return None


def text_alone(case: Case, match: Match) -> Doubt | None:
    """No call was recorded."""
    if case.from_text and not case.solid and match.cause not in _TOLD | {"slow_rank"}:
        return Doubt(MEDIUM, "there is no record of the calls: it rests on lines of text")
    return None


def no_history(case: Case, match: Match) -> Doubt | None:
    """Lines tell the odd call, and nothing of what was called before it."""
    finding, ranks = case.finding, case.incident.ranks
    own, peer = finding.own.kind, finding.stuck.kind
    other_op = own is not None and peer is not None and own.op != peer.op
    if other_op and not finding.change.elsewhere and not finding.assumed:
        return None
    told = all(ranks[r].absence is Absence.TOLD for r in match.culprits if r in ranks)
    if match.cause in _OF_PROGRAMS and match.culprits and told and finding.stuck.view is not None:
        why = "lines tell the odd call's op and size, and not what was called before it, so other causes fit as well"
        return Doubt(LOW, why)
    return None


def sides_not_here(case: Case, match: Match) -> Doubt | None:
    """Those whose lines are here are even, and others' lines are not here."""
    unread = beyond_the_text(case.incident, case.statements) | without_a_log(case.incident, case.statements)
    if case.from_text and case.finding.tie and unread:
        return Doubt(LOW, f"the sides are even, and the lines of {ranks_phrase(unread)} are not here")
    return None


def not_here(case: Case, match: Match) -> Doubt | None:
    """Nothing was collected of ranks for whom the named one may wait in its turn."""
    gone = not_collected(case.incident, case.statements) - set(match.culprits)
    if not gone or case.from_text:
        return None
    placed = any(case.statements.of(r, DumpObserved) for r in match.culprits)
    own_words = any(i.rank in match.culprits and i.kind in ("log", "exit", "stack") for i in match.evidence)
    absent = isinstance(case.finding, Absent) and len(gone) > 1 and not placed
    lagging = isinstance(case.finding, Lagging) and match.cause == "gpu_stall"
    if absent or ((isinstance(case.finding, Unseen) or lagging) and not own_words):
        return Doubt(LOW, f"nothing was collected of {ranks_phrase(gone)}, for whom it may wait in its turn")
    return None


def no_frames(case: Case, match: Match) -> Doubt | None:
    """No frames tell calls of one op apart."""
    blind = not case.frames_recorded and not case.from_text
    if match.cause not in _OF_PROGRAMS or not blind or case.finding.stuck.view is None:
        return None
    shown = case.finding.change.edit is not None or match.cause == "collective_order_mismatch"
    why = "no frames were recorded, so that calls of one op from other lines look alike"
    return Doubt(MEDIUM if shown else LOW, why)


def mostly_silent(case: Case, match: Match) -> Doubt | None:
    """Most ranks left no text, where text is all there is."""
    ranks = case.incident.ranks
    silent = [r for r, record in ranks.items() if not record.files and not record.events]
    if case.from_text and len(silent) > UNSEEN * len(ranks):
        return Doubt(MEDIUM, f"most ranks left no text ({len(silent)} of {len(ranks)})")
    return None


DOUBTS: tuple[Callable[[Case, Match], Doubt | None], ...] = (
    damaged, raised_elsewhere, went_on, even_sides, explains_few, leaves_waiting, guessed, interrupted, died_beside, nothing_overdue, of_one_moment, others_unseen, assumed,
    members_unknown, half_unseen, text_alone, no_history, sides_not_here, not_here, no_frames, mostly_silent,
)  # fmt: skip


def _nowhere(case: Case) -> set[int]:
    """Return the ranks of which text says that they waited, and not for whom."""
    opened = case.graph.open_calls.items()
    return {rank for rank, calls in opened if calls and isinstance(calls[0].node, Untold)}
