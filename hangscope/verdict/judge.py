"""From findings and rules to one verdict: who, what, why, how sure, and what speaks against it.

Confidence is earned: it starts from what the rule itself can establish and falls with everything that is missing or
assumed. The reasons of each step are kept for the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from hangscope.align.nodes import Instance, Node
from hangscope.align.rankset import ranks_phrase
from hangscope.causes.case import Case, Match
from hangscope.causes.rules import match_all
from hangscope.conclusion import Hypothesis, Location, Verdict
from hangscope.dataclass import dataclass
from hangscope.explain.finding import Candidate, Circular, Different, Late
from hangscope.explain.text.stop import find_stop
from hangscope.ingest.job_logs.endings import Exit, ExternalEnd
from hangscope.ingest.torch_logs.wrapper import MonitoredBarrier
from hangscope.knowledge.callsite import user_frame
from hangscope.knowledge.catalog import CATALOG
from hangscope.verdict import confidence, ledger, substantiation
from hangscope.verdict.damage import damage
from hangscope.verdict.library_terms import in_library_terms
from hangscope.verdict.nameless import stopped, unknown
from hangscope.verdict.references import call_ref, fingerprint
from hangscope.verdict.several import with_the_others
from hangscope.verdict.status import ended_well, serves, status_without_verdict, still_moves, trouble

LEVELS = ("low", "medium", "high")
CROWD = 4  # a guess may name at most this part of the job's ranks, or one


@dataclass(slots=True)
class Judgement:
    """A verdict with the status of the job and what the report says around it."""

    status: str
    verdict: Verdict | None
    reasons: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    hypotheses: list[Hypothesis] = field(default_factory=list)


def judge(case: Case) -> Judgement:
    """Return the verdict on a case and the status of its job."""
    if ended_well(case) or serves(case):
        return Judgement("no_hang", None)
    missing = confidence.missing_inputs(case)
    matches = match_all(case, case.incident.notes)
    while matches and (_names_a_crowd(case, matches[0]) or _by_a_moving_job(case, matches[0])):
        first = matches.pop(0)
        if (
            isinstance(case.finding, Different)
            and case.solid
            and 2 * len(first.culprits) == len(case.incident.ranks)
        ):
            # Calls that do not fit prove the freeze, whoever is wrong.
            matches.insert(0, replace(first, culprits=()))
    if not matches:
        status = status_without_verdict(case)
        if status == "no_hang":
            return Judgement(status, None, missing=[])
        stop = find_stop(case.statements)
        if stop is not None:
            return Judgement(
                "hang",
                stopped(case, stop, missing),
                ["the stop is certain, its cause is not: what was left says who waited, not for whom"],
                missing,
                list(case.explanation.set_aside),
            )
        return Judgement(
            status,
            unknown(case, missing),
            missing=missing,
            candidates=list(case.explanation.set_aside),
        )
    faults = with_the_others(case, in_library_terms(case, matches[0], case.knowledge))
    best = faults.match
    level, reasons = confidence.confidence(case, best)
    verdict = _verdict(case, best, matches[1:], LEVELS[level], missing)
    if faults.explained is not None:
        verdict = replace(verdict, explained=min(faults.explained, len(verdict.waiting_ranks)))
    if best.cause == "slow_rank" and not isinstance(case.finding, Late):
        status = "inconclusive" if damage(case, best) else "no_hang"
        return Judgement(status, verdict, reasons, missing, list(case.explanation.set_aside))
    named = verdict.cause != "unknown" or verdict.culprit_ranks
    return Judgement(
        "hang" if named else "inconclusive",
        verdict,
        reasons,
        missing,
        list(case.explanation.set_aside),
        ledger.hypotheses(case, best, matches[1:], verdict.evidence, verdict.deciding),
    )


def _names_a_crowd(case: Case, match: Match) -> bool:
    """Return whether a match accuses many without proof: who names half of a job's ranks names nobody."""
    number = len(match.culprits)
    if number < 2 or number * CROWD <= len(case.incident.ranks):
        return False
    level = confidence.confidence(case, match)[0]
    return level == 0 or (
        level == 1 and match.cause == "stuck_rank" and 2 * number >= len(case.incident.ranks)
    )


def _by_a_moving_job(case: Case, match: Match) -> bool:
    """Return whether calls alone tell of a wait that may have lasted a moment only."""
    told = any(item.kind in ("stack", "log", "exit") for item in match.evidence)
    # Where no recorder shows a call open, a stack beside it is of a moment as well.
    momentary = not (told or isinstance(case.finding, Circular)) or not case.graph.waiting
    if case.incident.momentary and not told and not _do_not_fit(case):
        return not trouble(case)
    return momentary and match.cause != "slow_rank" and still_moves(case, match.culprits)


def _do_not_fit(case: Case) -> bool:
    """Return whether members made calls at one number of their group that cannot match: these wait for ever."""
    finding = case.finding
    apart = finding.own.gid is not None or finding.own.seq != finding.stuck.seq
    return isinstance(finding, Different) and not apart


def _verdict(
    case: Case, match: Match, others: Sequence[Match], confidence: str, missing: list[str]
) -> Verdict:
    finding = case.finding
    entry = CATALOG[match.cause]
    culprits = tuple(sorted(set(match.culprits)))
    waiting = tuple(
        r for r in (case.graph.waiting or finding.waiting or _stuck_in_text(case)) if r not in culprits
    )
    explained = finding.explained if set(culprits) == set(finding.culprits) else sum(1 for r in waiting)
    in_call = _in_call(case, waiting)
    frame = match.frame or user_frame(finding.own.kind.stack if finding.own.kind else ())
    at = match.frame_rank if match.frame is not None else None
    frame_rank = culprits[0] if at is None and culprits else at
    location = Location(frame.file, frame.line, frame.name, frame_rank) if frame is not None else None
    kind = finding.stuck.kind
    view = finding.stuck.view
    evidence = substantiation.collect(case, match, missing)
    verdict = Verdict(
        cause=match.cause,
        confidence=confidence,
        culprit_ranks=culprits,
        category=match.category or entry.category,
        summary=_summary(case, match, culprits, waiting, in_call),
        group=view.group if view is not None else None,
        op=kind.op or None if kind is not None else None,
        seq=finding.stuck.seq,
        is_p2p=finding.stuck.pair is not None,
        waiting_ranks=waiting,
        in_call=in_call,
        explained=min(explained, len(waiting)),
        culprit_call=call_ref(finding.own.kind, finding.own.seq, _label(case, finding.own.gid)),
        waiting_call=call_ref(kind, finding.stuck.seq),
        location=location,
        api=match.api,
        evidence=evidence,
        deciding=ledger.deciding(case, match, evidence),
        since=_since(case, in_call),
        until=_until(case),
        advice=match.advice[:3],
        alternatives=substantiation.alternatives(match, others, case),
        fingerprint=fingerprint(match.cause, kind, location, finding),
    )
    return verdict


def _since(case: Case, in_call: tuple[int, ...]) -> int | None:
    """Return when the first of the ranks in the verdict's call entered its own open call (ns), as far as dumps tell."""
    opened = (case.graph.open_calls.get(rank, []) for rank in in_call)
    return min((calls[0].created for calls in opened if calls and calls[0].created), default=None)


def _until(case: Case) -> int | None:
    """Return when the job ended (ns), by the last line of a launcher or scheduler that carries a date."""
    told = (*case.statements.all(Exit), *case.statements.all(ExternalEnd))
    return max((int(e.time * 1_000_000_000) for e in told if e.time is not None), default=None)


def _stuck_in_text(case: Case) -> tuple[int, ...]:
    """Return the ranks that text shows waiting: they timed out or lost a peer, or sat in a monitored barrier."""
    barrier = {e.rank for e in case.statements.all(MonitoredBarrier) if e.rank is not None}
    return tuple(sorted(case.statements.witnesses | barrier))


def _in_call(case: Case, waiting: tuple[int, ...]) -> tuple[int, ...]:
    """Return those of the waiting ranks that are in the very call that the verdict names; others wait behind them."""
    finding = case.finding
    if finding.stuck.view is None or finding.stuck.seq is None or not case.graph.open_calls:
        return waiting
    inside = _inside(case)
    # Where all have left it (a device that did not end it), they are its members and wait behind it.
    return tuple(r for r in waiting if r in inside) or tuple(
        r for r in waiting if r in finding.stuck.view.members
    )


def _inside(case: Case) -> set[int]:
    """Return the ranks that the graph has in the call that the verdict names."""
    stuck = case.finding.stuck
    if stuck.view is None or stuck.seq is None:
        return set()
    node: Node = Instance(stuck.view.group.gid, stuck.seq) if stuck.pair is None else stuck.pair.key
    return {rank for rank, _ in case.graph.calls_of(node)} if node in case.graph.index else set()


def _label(case: Case, gid: int | None) -> str | None:
    return case.incident.groups[gid].label if gid is not None else None


def _summary(
    case: Case, match: Match, culprits: tuple[int, ...], waiting: tuple[int, ...], in_call: tuple[int, ...]
) -> str:
    finding = case.finding
    host = case.incident.ranks[culprits[0]].host if culprits and culprits[0] in case.incident.ranks else None
    on = f" (host {host})" if host and len(culprits) == 1 else ""
    why = match.why
    phrase = ranks_phrase(culprits) if culprits else ""
    if on and why.startswith(phrase):
        why = phrase + on + why[len(phrase) :]
    sentence = why[:1].upper() + why[1:] if why.startswith(("rank", "the ", "a ", "one ")) else why
    seq = f" seq {finding.stuck.seq}" if finding.stuck.seq is not None else ""
    op = finding.stuck.kind.op if finding.stuck.kind is not None else ""
    where = f" at {op}" if op else " at a call," if seq and finding.stuck.kind is not None else ""
    group = f" on group {finding.stuck.view.group.label}" if finding.stuck.view is not None else ""
    if in_call and (where or seq):
        verb = "waits" if len(in_call) == 1 else "wait"
        inside = _inside(case)
        if inside and not inside.intersection(in_call):
            where = where.replace(" at ", " behind ", 1)
        sentence += f"; {ranks_phrase(in_call)} {verb}{where}{seq}{group}"
        behind = len(waiting) - len(in_call)
        if behind:
            sentence += f", and {behind:,} more rank{'s wait' if behind > 1 else ' waits'} behind"
    return sentence + "."
