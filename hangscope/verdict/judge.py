"""From findings and rules to one verdict: who, what, why, how sure, and the evidence against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from hangscope.align.frontier import GroupFrontier
from hangscope.causes.case import Case, Match
from hangscope.causes.rules import match_all
from hangscope.explain.finding import Candidate, Circular, Different, Explanation, Finding, Lagging, Source
from hangscope.explain.statements.torn_lines import is_garbled
from hangscope.explain.text.stop import find_stop, says_it_hangs
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.ingest.job_logs.faults import CudaError, Xid
from hangscope.ingest.job_logs.progress import JobCompleted, WorkersEnded
from hangscope.model.conclusion import Hypothesis, RuledOut, Verdict
from hangscope.model.dataclass import dataclass
from hangscope.model.rankset import ranks_phrase
from hangscope.verdict import substantiation, verdicts
from hangscope.verdict.answer.compose import answered
from hangscope.verdict.answer.course import advances, over
from hangscope.verdict.answer.no_hang import reports_a_stop, to_collect, why_no_hang
from hangscope.verdict.answer.observation import pasted
from hangscope.verdict.confidence import confidence
from hangscope.verdict.damage import damage
from hangscope.verdict.library_terms import in_library_terms
from hangscope.verdict.phrasing import in_the_imperative, retitled
from hangscope.verdict.rivals import rivals
from hangscope.verdict.status import (
    counts_more,
    ended_well,
    moved_on,
    status_without_verdict,
    still_moves,
    trouble,
)

CROWD = 4  # an unconfirmed match may name at most this part of the job's ranks, or one
MOST = 4  # faults of one hang that are reported separately; more at once have one common cause

_BY_ITS_REPORTER = "only the person who pasted the text says that the job hangs; no line of a log proves it"


@dataclass(slots=True)
class Judgement:
    """A verdict with the status of the job and the rest of what a report shows."""

    status: str
    verdict: Verdict | None
    reasons: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    candidates: Sequence[Candidate] = ()
    hypotheses: Sequence[Hypothesis] = ()
    ruled_out: Sequence[RuledOut] = ()


def judge(case: Case, views: Sequence[GroupFrontier]) -> Judgement:
    """Return the verdict on a case and the status of its job; `views` are the frontiers of each group. Without dumps, further facts from the logs go into the explanation."""
    judgement = _judged(case, views)
    dumped = any(record.dump_file for record in case.incident.ranks.values())
    if judgement.status == "no_hang" and judgement.verdict is None and pasted(case) and not dumped:
        reasons = why_no_hang(case, verdicts.unknown(case, ()))
        return replace(judgement, reasons=reasons, missing=to_collect(case))
    if judgement.verdict is None or dumped:
        return judgement
    verdict = in_the_imperative(retitled(answered(case, judgement.verdict)))
    missing = list(dict.fromkeys(item.text for item in verdict.collect))
    kept = [fact for fact in verdict.evidence if fact.stance != "missing" or fact.text in missing]
    verdict = replace(verdict, evidence=kept)
    weighed = [replace(h, ranks=verdict.culprit_ranks) for h in judgement.hypotheses[:1]]
    weighed += judgement.hypotheses[1:]
    judgement = replace(judgement, verdict=verdict, missing=missing, hypotheses=weighed)
    if judgement.status == "inconclusive" and pasted(case) and reports_a_stop(case):
        judgement = replace(judgement, status="hang", reasons=[*judgement.reasons, _BY_ITS_REPORTER])
    return judgement


def _judged(case: Case, views: Sequence[GroupFrontier]) -> Judgement:
    """Return the verdict on a case and the status of its job."""
    if _finished(case):
        return Judgement("no_hang", None)
    wanted, set_aside = substantiation.missing_inputs(case), case.explanation.set_aside
    missing = [item.text for item in wanted]
    matches = match_all(case, case.incident.notes)
    if moved_on(case):
        matches = [match for match in matches if match.cause == "slow_rank"]
        if not matches:
            return Judgement("no_hang", None)
    while matches and (_names_a_crowd(case, matches[0]) or _by_a_moving_job(case, matches[0])):
        matches.pop(0)
    if not matches and pasted(case) and advances(case):
        return Judgement("no_hang", None)
    if not matches:
        status, stop = status_without_verdict(case, views), find_stop(case.statements)
        if status == "no_hang":
            return Judgement(status, None)
        if stop is None:
            return Judgement(status, verdicts.unknown(case, wanted), [], missing, set_aside)
        why = "the job certainly stopped, but the logs do not show which rank blocked the others"
        return Judgement("hang", verdicts.stopped(case, stop, wanted), [why], missing, set_aside)
    best = _with_the_others(case, in_library_terms(case, matches[0]))
    sure = confidence(case, best)
    verdict = verdicts.named(case, best, sure, wanted, views)
    others = rivals(case, best, matches[1:], verdict)
    verdict = replace(verdict, alternatives=[a for a in others.alternatives if a.cause != verdict.cause])
    status, weighed = "hang", [substantiation.hypothesis(case, best, verdict), *others.possible]
    # That one rank printed something of its own does not show that the job stopped.
    own = any(w.source is Source.OUTPUT for w in case.explanation.weighed[:1])
    if own and not case.finding.waiting and find_stop(case.statements) is None:
        status = "inconclusive"
    dumped = any(record.dump_file for record in case.incident.ranks.values())
    if best.cause == "slow_rank" and (dumped or find_stop(case.statements) is None):
        status, weighed = "inconclusive" if damage(case, best) else "no_hang", []
    return Judgement(status, verdict, sure.reasons, missing, set_aside, weighed, others.ruled_out)


def _finished(case: Case) -> bool:
    """Return whether a job ended well; a pasted one also if it finished or serves requests again, and the person who asks about it does not state that it hangs."""
    if pasted(case) and says_it_hangs(
        case.statements
    ):  # a finished job hangs if no line says that its processes ended
        ends = case.statements.exits or case.statements.all(WorkersEnded, JobCompleted)
        return bool(ends) and ended_well(case)
    asked = any("?" in e.prose and not is_garbled(e.prose) for e in case.statements.all(Excerpt))
    return ended_well(case) or (pasted(case) and asked and over(case) is not None)


def _names_a_crowd(case: Case, match: Match) -> bool:
    """Return whether a match names many ranks without proof: naming half of a job's ranks identifies nobody."""
    number, ranks = len(match.culprits), len(case.incident.ranks)
    died = {death.rank for death in case.statements.first_deaths}
    if number < 2 or number * CROWD <= ranks or died.issuperset(match.culprits):
        return False
    best = case.explanation.weighed[:1]
    reported = any(w.source is Source.REPORT for w in best)  # torch itself lists who did not arrive
    half = match.cause == "stuck_rank" and 2 * number >= ranks and not reported
    assumed = isinstance(case.finding, Different) and case.finding.assumed
    return confidence(case, match).level < (2 if half or assumed else 1)


def _by_a_moving_job(case: Case, match: Match) -> bool:
    """Return whether dumps alone show a wait that may have been momentary."""
    finding = case.finding
    # No later moment undoes that ranks of one role went different ways, or that one came late.
    if finding.change.votes > 1 or match.cause == "slow_rank":
        return False
    if match.cause == "p2p_mismatch" and {where.op for where in case.stacks.values()} == {"send"}:
        return False  # whoever sends receives nothing
    by_events = any(item.kind in ("stack", "log", "exit") for item in match.evidence)
    # Collectives at one seq of their group that cannot match wait for ever.
    at_one = finding.own.gid is None and finding.own.seq == finding.stuck.seq
    if case.incident.momentary and not by_events and not (isinstance(finding, Different) and at_one):
        return not trouble(case)
    # If no recorder shows a pending collective, a stack is of a moment as well.
    firm = (by_events or isinstance(finding, Circular)) and bool(case.graph.waiting)
    return not firm and still_moves(case, match.culprits)


def _with_the_others(case: Case, best: Match) -> Match:
    """Return the best match, joined with those of other roots that no other root explains and that are needed to free all ranks.

    The wait-for graph is replayed as if the named ranks had done what is expected of them.
    """
    if not best.culprits or not case.explanation.rivals:
        return best
    first = set(best.culprits)
    alone = case.replay.stuck(first)
    answers = [_about(case, rival, first) for rival in case.explanation.rivals[:MOST] if alone]
    others = [match for match in answers if match is not None]
    added = {rank for match in others for rank in match.culprits}
    if case.replay.stuck(first | added) >= alone - added:
        return best  # the added ranks would free nobody but themselves
    reasons = "; ".join(f"{match.why} ({match.cause})" for match in others)
    first_steps = ((ranks_phrase(m.culprits), m.advice[0]) for m in others if m.advice)
    also = [f"For {whose}: {step[:1].lower()}{step[1:]}" for whose, step in first_steps]
    why, strength = f"{best.why}; and independently, {reasons}", min(best.strength, 1)
    facts = [item for match in (best, *others) for item in match.evidence]
    steps, culprits = [*best.advice[:1], *also, *best.advice[1:]], tuple(sorted(first | added))
    return replace(best, culprits=culprits, why=why, strength=strength, evidence=facts, advice=steps)


def _about(case: Case, rival: Finding, named: set[int]) -> Match | None:
    """Return the match for the ranks of another root if it is unambiguous.

    When a rank dies, its peers abort their communicators, which completes collectives on some of them only: counts prove nothing then.
    """
    ranks = set(rival.culprits) - named
    places = {rank: case.stacks.get(rank) for rank in ranks}
    # A rank without a pending collective is in a send or receive that its recorder does not keep, or may be.
    if any(w.inside if w is not None else counts_more(case.incident.ranks[r]) for r, w in places.items()):
        return None
    answers = match_all(replace(case, explanation=Explanation(rival)), [])
    match = next((m for m in answers if m.culprits and ranks.issuperset(m.culprits)), None)
    if match is None or match.strength < 2:
        return None
    by_events = match.cause == "crashed_rank" or any(item.kind in ("stack", "log") for item in match.evidence)
    view, died = rival.telling.view, {death.rank for death in case.statements.deaths}
    if isinstance(rival, Lagging) and view is not None and not died.isdisjoint(view.members):
        by_events = any(case.statements.of(rank, Xid, CudaError) for rank in ranks)
    return match if by_events or not died else None
