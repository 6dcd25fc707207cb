"""Which evidence decides, and what the explanations that were weighed have for and against them.

A line that is true of any freeze, such as the timeout of a rank that waited, decides nothing. What tells two explanations
apart is one observation, and the best advice there is.
"""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.align.rankset import ranks_phrase
from hangscope.causes.case import Case, Match
from hangscope.conclusion import Evidence, Hypothesis, Verdict
from hangscope.explain.predict import MOST_REPLAYED, Replay
from hangscope.ingest.torch_logs.c10d import DumpSignal, WatchdogStatus, WatchdogTimeout
from hangscope.ingest.torch_logs.wrapper import GlooClosed, GlooTimeout
from hangscope.knowledge.catalog import CATALOG

MOST_DECIDING = 3
MOST_HYPOTHESES = 6
#: What ranks that wait print in any freeze.
_ANYWAY = (WatchdogTimeout, GlooTimeout, GlooClosed, WatchdogStatus, DumpSignal)


def deciding(case: Case, match: Match, evidence: Sequence[Evidence]) -> tuple[int, ...]:
    """Return the indexes of the evidence that tells this cause from its rivals, the most telling first."""
    culprits = set(match.culprits)
    anyway = {
        (e.file, e.line)
        for kind in _ANYWAY
        for e in case.statements.kinds.get(kind, ())
        if e.rank not in culprits
    }
    own = {(item.text, item.rank) for item in match.evidence}
    ranked = []
    for index, item in enumerate(evidence):
        source = item.source and (item.source.file, item.source.line)
        if item.stance == "for" and item.kind != "method" and source not in anyway:
            weight = (item.rank in culprits, (item.text, item.rank) in own, item.kind == "dump")
            if any(weight) or not culprits:
                ranked.append((*(not part for part in weight), index))
    return tuple(index for *_, index in sorted(ranked)[:MOST_DECIDING])


def hypotheses(case: Case, match: Match, others: Sequence[Match], verdict: Verdict) -> list[Hypothesis]:
    """Return the explanations that were weighed, best first, each with what fits it and what contradicts it."""
    replay = Replay(case.graph)
    against = tuple(item.text for item in verdict.evidence if item.stance == "against")[:3]
    fits = tuple(verdict.evidence[i].text for i in verdict.deciding) or (match.why,)
    # What text alone tells of who waits is no graph that could be replayed.
    explains_all = case.finding.explained >= len(case.finding.waiting)
    left = () if explains_all else _left(replay, verdict.culprit_ranks)
    result = [Hypothesis(match.cause, verdict.culprit_ranks, fits, (*left, *against))]
    told = {(match.cause, verdict.culprit_ranks), ("unknown", verdict.culprit_ranks)}
    rows = [(other.cause, other.culprits, other.why, "") for other in others]
    rows += [("unknown", c.ranks, c.what, c.why_set_aside) for c in case.explanation.set_aside]
    for cause, named, why, why_not in rows:
        ranks = tuple(sorted(set(named)))
        if (cause, ranks) not in told and (ranks or not why_not):
            told.add((cause, ranks))
            contradicts = (*filter(None, [why_not]), *_left(replay, ranks))
            result.append(Hypothesis(cause, ranks, (why,), contradicts, CATALOG[cause].would_decide))
    return result[:MOST_HYPOTHESES]


def _left(replay: Replay, ranks: Sequence[int]) -> tuple[str, ...]:
    """Return who would still wait if these ranks had done what is expected of them, as a contradiction, or nothing."""
    if not 0 < len(ranks) <= MOST_REPLAYED:
        return ()
    stuck = replay.stuck(ranks) - set(ranks)
    return (f"it leaves unexplained why {ranks_phrase(stuck)} would wait",) if stuck else ()
