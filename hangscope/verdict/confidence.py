"""How sure a verdict may be: what lowers its confidence, each doubt by its name, and what was missing that would have made it surer.

Confidence starts from what the rule itself can establish and falls with everything that is missing or assumed. A doubt is a
function from the case and its match to the level that it leaves at most (0 low, 1 medium) and why, or None where it does not
apply. They are asked in the order of `DOUBTS`, and only those that lower the level are told.
"""

from __future__ import annotations

from collections.abc import Callable

from hangscope.align.nodes import Untold
from hangscope.align.rankset import ranks_phrase
from hangscope.causes.case import Case, Match
from hangscope.causes.ends.process import shows_a_wait
from hangscope.explain.finding import Absent, Different, Lagging, Nothing, Unseen
from hangscope.explain.predict import MOST_REPLAYED, Replay
from hangscope.explain.statements.bounds import idle
from hangscope.explain.text.excerpt import beyond_the_text, not_collected, without_a_log
from hangscope.incident import Absence
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.torch_logs.c10d import DumpObserved, WatchdogTimeout
from hangscope.verdict.damage import TOLD, damage, doubtful_death
from hangscope.verdict.status import trouble

LOW, MEDIUM = 0, 1
LEFT = 0.1  # of the waiting ranks, that still wait once the named ranks are imagined to behave
#: What a rule says of itself whose facts leave other readings open.
USUAL = "the usual reading of this evidence"
_BY_STRENGTH = ("a guess: other causes fit as well", USUAL, "no other cause fits the evidence as well")
#: Causes that say how a rank's program differs, and not only that its call does.
_OF_PROGRAMS = frozenset(
    {
        "shape_mismatch", "gradient_sync_mismatch", "rank_conditional_collective", "uneven_loader", "collective_order_mismatch",
        "collective_mismatch",
    }
)  # fmt: skip

Doubt = tuple[int, str] | None


def confidence(case: Case, match: Match) -> tuple[int, list[str]]:
    """Return the level (2 high, 1 medium, 0 low) that a match has earned, and the reasons of each step."""
    level, reasons = match.strength, [_BY_STRENGTH[match.strength]]
    for asks in DOUBTS:
        doubt = asks(case, match) if level > LOW else None
        if doubt is not None and doubt[0] < level:
            level = doubt[0]
            reasons.append(doubt[1])
    dumps = case.finding.stuck.view is not None and any(r.dump_file for r in case.incident.ranks.values())
    kinds = sorted({*(item.kind for item in match.evidence), *(("dump",) if dumps else ())})
    if len(kinds) > 1:
        reasons.append(f"independent evidence agrees: {', '.join(kinds)}")
    return level, reasons


def missing_inputs(case: Case) -> list[str]:
    """Return what was not there, with the setting that brings it next time."""
    records, result = case.incident.ranks.values(), []
    unusable = (Absence.STALE, Absence.UNREADABLE)
    gone = [r.rank for r in records if r.dump_file is None or r.absence in unusable]
    if all(r.dump_file is None for r in records):
        result.append(
            "no Flight Recorder dump: keep TORCH_FR_BUFFER_SIZE at 2000 or more, and with gloo call torch._C._distributed_c10d._dump_fr_trace() from a watcher thread"
        )
    elif gone:
        result.append(f"no usable dump of {ranks_phrase(gone)}")
    if case.incident.momentary:
        result.append(
            "the dumps were written within a second of the last call, or show calls made since others before: take them again a minute later"
        )
    if not case.statements.whereabouts:
        result.append("no stacks: py-spy dump --pid PID on each rank, or faulthandler.dump_traceback_later")
    logged = any(r.events or set(r.files) - {r.dump_file} for r in records)
    if not logged and not case.statements.kinds:
        result.append("no logs: one file per rank (torchrun --log-dir DIR --tee 3)")
    return result


def _by_calls(case: Case, match: Match) -> bool:
    """Return whether a match stands or falls with what the finding says of calls."""
    return not isinstance(case.finding, Nothing) and match.cause not in TOLD


def _unseen(case: Case, match: Match) -> set[int]:
    """Return the ranks without a usable dump at which waiting ends, but for those that are named."""
    ranks = {r for root in case.graph.roots if root.kind == "unseen" for r in root.ranks}
    return ranks - set(match.culprits)


def damaged(case: Case, match: Match) -> Doubt:
    """Files are damaged or lines torn, or on an error that a peer's end brings about as well."""
    why = damage(case, match) or doubtful_death(case, match)
    return (MEDIUM, why) if why else None


def went_on(case: Case, match: Match) -> Doubt:
    """Who waits counts further steps behind its timeout, or says that its loop is over and no line tells of trouble."""
    gave_up = {(e.file, e.rank): e.line for e in case.statements.all(WatchdogTimeout)}
    for e in case.statements.all(Progress) if _by_calls(case, match) and match.cause != "slow_rank" else ():
        if e.step is not None and gave_up.get((e.file, e.rank), e.line) < e.line:
            return LOW, f"{e.file} counts further steps behind the line of a timeout"
        if e.done and match.cause == "stuck_rank" and e.rank not in match.culprits and not trouble(case):
            return LOW, "a line says that the loop ended, and none tells of trouble"
    return None


def even_sides(case: Case, match: Match) -> Doubt:
    """Nobody is named, for the sides are even: surely so where others' lines are not here, who may be of either side."""
    if not case.finding.tie:
        return None
    unread = beyond_the_text(case.incident, case.statements) | without_a_log(case.incident, case.statements)
    if case.from_text and unread:
        return LOW, f"the sides are even, and the lines of {ranks_phrase(unread)} are not here"
    why = "the sides are even and history does not tell which is wrong"
    return (MEDIUM, why) if not match.culprits else None


def leaves_waiting(case: Case, match: Match) -> Doubt:
    """Ranks would still wait if the named ones, and those that were not seen, did what is expected of them."""
    if not _by_calls(case, match) or not 0 < len(match.culprits) <= MOST_REPLAYED:
        return None
    freed = {*match.culprits, *_unseen(case, match)}
    # Of some only text says that they waited, and not for whom.
    nowhere = {r for r, calls in case.graph.open_calls.items() if isinstance(calls[0].node, Untold)}
    left = Replay(case.graph).stuck(freed) - freed - nowhere
    if len(left) <= LEFT * len(case.graph.waiting):
        return None
    for root in case.graph.roots:
        if root.ranks and freed.isdisjoint(root.ranks) and left <= root.explains:
            return LOW, f"{ranks_phrase(root.ranks)} would keep {ranks_phrase(left)} waiting without it"
    return MEDIUM, f"it leaves unexplained why {ranks_phrase(left)} would wait"


def guessed(case: Case, match: Match) -> Doubt:
    """Nothing but what ranks printed last tells, or what was so for a moment; or who waits for whom is assumed."""
    end, told = case.statements.external, case.solid or match.cause in TOLD
    signalled = end is not None and end.signal is not None and not told and shows_a_wait(case)
    if signalled or (_by_calls(case, match) and case.finding.guess):
        return LOW, "it rests on what the ranks printed last, or on counts or stacks of one moment"
    why = "it rests on an assumption about who waits for whom, or about which group a log line means"
    return (MEDIUM, why) if _by_calls(case, match) and case.finding.assumed else None


def of_one_moment(case: Case, match: Match) -> Doubt:
    """Ranks are in no call by dumps alone: so are several of a job that moves, and those whose dumps are older than others'."""
    if not isinstance(case.finding, Absent) or case.from_text:
        return None
    waited, stood = (
        case.frame_of(case.finding.stuck.kind),
        map(case.statements.whereabouts.get, match.culprits),
    )
    raised = [where.stack for where in stood if where is not None and where.kind == "log" and where.op]
    if waited is not None and any(waited not in stack for stack in raised):
        return LOW, "a traceback stands in another call, so that its rank's dump may be older than the freeze"
    if case.graph.early and not trouble(case):
        return LOW, "another dump is older than its peers', and so may be what shows it in no call"
    why = "several ranks are in no call by their dumps alone, which may be of a moment"
    return (MEDIUM, why) if len(match.culprits) > 1 and not trouble(case) else None


def died_beside(case: Case, match: Match) -> Doubt:
    """Another rank died of its own fault: its peers wait for it, or abort their communicators, which finishes calls unevenly.

    Or who is said to lag had nothing overdue when the others timed out: its dump is older than that.
    """
    died = {death.rank for death in case.statements.deaths} - set(match.culprits)
    if match.cause == "stuck_rank" and isinstance(case.finding, Absent) and died:
        return LOW, f"{ranks_phrase(died)} died of a fault of its own"
    if match.cause != "gpu_stall" or not isinstance(case.finding, Lagging):
        return None
    if gone := _unseen(case, match) | died:
        why = "may have died, whose peers' communicators then finish calls unevenly"
        return LOW, f"{ranks_phrase(gone)} {why}"
    early = idle(case.statements).intersection(match.culprits)
    why = f"the log of {ranks_phrase(early)} tells of nothing overdue, so its dump may be older"
    return (LOW, why) if early else None


def others_unseen(case: Case, match: Match) -> Doubt:
    """Other ranks that calls wait for left no usable dump, or half of the group's members.

    Where a device is said to lag, any of them: one may have broken the call.
    """
    finding, view, ranks = case.finding, case.finding.stuck.view, case.incident.ranks
    if not _by_calls(case, match):
        return None
    if (gone := _unseen(case, match)) and not isinstance(finding, Different):
        return MEDIUM, f"calls also lack {ranks_phrase(gone)}, of which no usable dump was seen"
    if view is None:
        return None
    # Of a group with sends and receives a frontier is not always known, although the rank was seen.
    others = [r for r in view.unseen if not (ranks[r].seen and view.group.gid in ranks[r].p2p)]
    few = f"{len(others)} of {len(view.members)} members of the group were not seen ({ranks_phrase(others)})"
    doubtful = 2 * len(others) >= len(view.members) or (others and isinstance(finding, Lagging))
    return (MEDIUM, few) if doubtful else None


def members_unknown(case: Case, match: Match) -> Doubt:
    """Somebody is called absent from a group whose members nobody recorded."""
    group, absent = case.finding.stuck.group, isinstance(case.finding, Absent | Unseen)
    unknown = group is not None and not group.members_known and not match.frame and _by_calls(case, match)
    why = "the members of the group are not recorded, so that nobody can be called absent for certain"
    return (MEDIUM, why) if unknown and absent else None


def mostly_silent(case: Case, match: Match) -> Doubt:
    """Where text is all there is, most ranks left none, and no line tells of a wait or an end: the job may have gone on."""
    records, told = case.incident.ranks.values(), case.statements
    silent = sum(not record.files and not record.events for record in records)
    doubtful = case.from_text and 2 * silent > len(records) and not (told.exits or told.witnesses)
    return (MEDIUM, f"most ranks left no text ({silent} of {len(records)})") if doubtful else None


def text_alone(case: Case, match: Match) -> Doubt:
    """No call was recorded."""
    alone = case.from_text and not case.solid and match.cause not in TOLD | {"slow_rank"}
    return (MEDIUM, "there is no record of the calls: it rests on lines of text") if alone else None


def no_history(case: Case, match: Match) -> Doubt:
    """Lines tell the odd call, and nothing of what was called before it."""
    finding, ranks = case.finding, case.incident.ranks
    own, peer = finding.own.kind, finding.stuck.kind
    other_op = own is not None and peer is not None and own.op != peer.op
    told = all(ranks[r].absence is Absence.TOLD for r in match.culprits if r in ranks)
    rests = match.cause in _OF_PROGRAMS and match.culprits and told and finding.stuck.view is not None
    if not rests or (other_op and not finding.change.elsewhere and not finding.assumed):
        return None
    why = "lines tell the odd call's op and size, and not what was called before it, so other causes fit as well"
    return LOW, why


def not_here(case: Case, match: Match) -> Doubt:
    """Nothing was collected of ranks for whom the named one may wait in its turn."""
    gone = not_collected(case.incident, case.statements) - set(match.culprits)
    placed = any(case.statements.of(r, DumpObserved) for r in match.culprits)
    own_words = any(i.rank in match.culprits and i.kind in ("log", "exit", "stack") for i in match.evidence)
    absent = isinstance(case.finding, Absent) and len(gone) > 1 and not placed
    lags = isinstance(case.finding, Lagging) and match.cause == "gpu_stall"
    doubtful = absent or ((lags or isinstance(case.finding, Unseen)) and not own_words)
    why = f"nothing was collected of {ranks_phrase(gone)}, for whom it may wait in its turn"
    return (LOW, why) if gone and doubtful and not case.from_text else None


def no_frames(case: Case, match: Match) -> Doubt:
    """No frames tell calls of one op apart."""
    recorded = case.frames_recorded or case.from_text or case.finding.stuck.view is None
    why = "no frames were recorded, so that calls of one op from other lines look alike"
    if recorded or match.cause not in _OF_PROGRAMS:
        return None
    shown = case.finding.change.edit is not None or match.cause == "collective_order_mismatch"
    return MEDIUM if shown else LOW, why


DOUBTS: tuple[Callable[[Case, Match], Doubt], ...] = (
    damaged, went_on, even_sides, leaves_waiting, guessed, of_one_moment, died_beside, others_unseen, members_unknown, mostly_silent,
    text_alone, no_history, not_here, no_frames,
)  # fmt: skip
