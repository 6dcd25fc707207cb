"""The other explanations of a hang: which of them the evidence leaves possible, and which fact excludes the rest.

An explanation whose deciding observation is there is confirmed or excluded, never left open; one that a verdict at `high`
leaves open would contradict that verdict. Ranks are global.
"""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.align.waitgraph import Instance
from hangscope.causes.case import Case, Match
from hangscope.causes.participation import kept_up
from hangscope.explain.predict import MOST_REPLAYED
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.torch_logs.c10d import WatchdogStatus, WatchdogTimeout
from hangscope.ingest.torch_logs.wrapper import CallFingerprint
from hangscope.knowledge.catalog import CATALOG
from hangscope.model.conclusion import Alternative, Hypothesis, RuledOut, Verdict
from hangscope.model.dataclass import dataclass
from hangscope.model.rankset import agree, ranks_phrase

#: causes by which a rank did not make a call that its peers made
_BEHIND = frozenset({"rank_conditional_collective", "uneven_loader", "stuck_rank", "slow_rank"})
MOST_HYPOTHESES, MOST_ALTERNATIVES, MOST_RULED_OUT = 6, 3, 12


@dataclass(frozen=True, slots=True)
class Rivals:
    """The other explanations: those that remain possible, and those that a fact excludes."""

    possible: tuple[Hypothesis, ...]
    ruled_out: tuple[RuledOut, ...]

    @property
    def alternatives(self) -> list[Alternative]:
        """Return the causes that remain possible, at most three, each once and with why."""
        whys: dict[str, str] = {}
        for rival in self.possible:
            whys.setdefault(rival.cause, rival.fits[0])
        return [Alternative(cause, why) for cause, why in whys.items()][:MOST_ALTERNATIVES]


def rivals(case: Case, match: Match, others: Sequence[Match], verdict: Verdict) -> Rivals:
    """Return the other explanations of a case, each possible or excluded; `others` are the rules' later answers."""
    possible: list[Hypothesis] = []
    ruled_out: list[RuledOut] = []
    seen = {(verdict.cause, verdict.culprit_ranks)}
    complete = bool(verdict.waiting_ranks) and verdict.explained == len(verdict.waiting_ranks)
    # A lookalike cause is about the verdict's own ranks.
    alike = match.rivals or CATALOG[match.cause].lookalikes
    candidates = [(cause, verdict.culprit_ranks, why) for cause, why in alike]
    candidates += [(other.cause, other.culprits, other.why) for other in others]
    for cause, named, why in candidates:
        ranks = tuple(sorted(set(named)))
        if (cause, ranks) in seen or (not ranks and cause in {known for known, _ in seen}):
            continue
        seen.add((cause, ranks))
        left = blocked_without(case, ranks)
        # The same ranks account for the same waits, whatever they did.
        fewer = left if complete and ranks != verdict.culprit_ranks else ()
        because = _excluded(case, match, verdict, cause, ranks)
        if not because and (proof := _identified(match, verdict)):
            if cause == "slow_rank":
                continue  # whether it would have gone on, one moment does not show
            because = proof
        if because := because or "".join(fewer):
            ruled_out.append(RuledOut(cause, ranks, because))
        else:
            possible.append(Hypothesis(cause, ranks, (why,), left, CATALOG[cause].would_decide))
    for candidate in case.explanation.set_aside:
        ranks = tuple(sorted(set(candidate.ranks)))
        if ranks and ranks != verdict.culprit_ranks:
            ruled_out.append(RuledOut("unknown", ranks, candidate.why_set_aside))
    return Rivals(tuple(possible[: MOST_HYPOTHESES - 1]), tuple(dict.fromkeys(ruled_out))[:MOST_RULED_OUT])


def _excluded(case: Case, match: Match, verdict: Verdict, cause: str, ranks: tuple[int, ...]) -> str:
    """Return the fact that excludes an explanation, empty where it remains possible."""
    records = case.incident.ranks
    if cause == "collective_mismatch" and CATALOG[match.cause].of_collectives:
        return f"it means that no finer cause fits, and {match.cause} does"
    if cause in ("crashed_rank", "early_exit") and (fact := _end_of(case, cause, ranks)):
        return fact
    if cause == "stuck_rank" and ranks and all(r in case.stacks and case.stacks[r].inside for r in ranks):
        where = case.stacks[ranks[0]]
        return f"the stack of {ranks_phrase(ranks[:1])} shows it in {where.op or 'a collective'}"
    if cause == "slow_rank" and any(records[r].unchanged_snapshots for r in ranks if r in records):
        return f"several dumps show {ranks_phrase(ranks)} at the same place"
    return contradicted(case, match.cause, cause, ranks)


def _identified(match: Match, verdict: Verdict) -> str:
    """Return the fact that decides a verdict of high confidence, empty for another one."""
    facts = [verdict.evidence[number] for number in verdict.deciding]
    facts = facts or [fact for fact in verdict.evidence if fact.stance == "for"][:1]
    sure = verdict.confidence == "high" and facts
    return f"the evidence identifies {match.cause}: {facts[0].text}" if sure else ""


def _end_of(case: Case, cause: str, ranks: tuple[int, ...]) -> str:
    """Return the fact about how these ranks ended that excludes a cause, empty if there is none."""
    died = {death.rank: death for death in case.statements.deaths}
    for rank in ranks:
        if cause == "early_exit" and rank in died:
            return f"rank {rank} {died[rank].how}"
        if rank in case.graph.waiting and rank in case.incident.ranks and case.incident.ranks[rank].dump_file:
            return f"the dump of rank {rank} shows it blocked in a collective, so it was alive"
    return ""


def blocked_without(case: Case, ranks: Sequence[int]) -> tuple[str, ...]:
    """Return who would stay blocked if these ranks had done what is expected of them, as a sentence, or nothing."""
    if not case.replay.waiting or not 0 < len(ranks) <= MOST_REPLAYED:
        return ()
    stuck = case.replay.waiting - case.replay.accounts_for(ranks) - set(ranks)
    text = f"it does not account for {ranks_phrase(stuck)}, which {agree(stuck, 'is', 'are')} blocked as well"
    return (text,) if stuck else ()


def contradicted(case: Case, verdict_cause: str, cause: str, ranks: Sequence[int]) -> str:
    """Return the fact that contradicts a cause of these ranks, empty where none is known."""
    collective = cause == "collective_mismatch" or CATALOG[cause].of_collectives
    known = any(record.queues or record.p2p for record in case.incident.ranks.values())
    known = known or any(event.step is not None for event in case.statements.all(Progress))
    known = known or case.statements.any_of(WatchdogTimeout, WatchdogStatus, CallFingerprint)
    if verdict_cause == "init_hang" and collective and not known:
        return "the ranks were still joining, and no collective is known"
    level = bool(ranks) and cause in _BEHIND and _waits_are_issued(case, ranks)
    if level and all(kept_up(case.incident, rank) for rank in ranks):
        return f"{ranks_phrase(ranks)} {agree(ranks, 'has', 'have')} issued every collective that the others of the groups issued"
    return ""


def _waits_are_issued(case: Case, ranks: Sequence[int]) -> bool:
    """Return whether each of these ranks issued every known collective that the others wait in, and none of the others waits in an unknown one."""
    records = [case.incident.ranks[rank] for rank in ranks if rank in case.incident.ranks]
    others = [call for rank, calls in case.graph.open_calls.items() if rank not in ranks for call in calls]
    for call in others:
        if not isinstance(call.node, Instance):
            return False
        queues = [record.queues.get(call.node.gid) for record in records]
        if any(q is not None and call.node.seq > int(q.seq.max(initial=0)) for q in queues):
            return False
    # NCCL prints a line for each call and none for its end, so that nobody is seen to wait.
    kept = [queue for record in records for queue in record.queues.values()]
    return bool(others) or not any(queue.tells_completion or queue.told for queue in kept)
