"""Which evidence decides, and what the explanations that were weighed have for and against them.

A line that is true of any freeze, such as the timeout of a rank that waited, decides nothing. What tells two explanations
apart is one observation, and the best advice there is.
"""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.align.rankset import ranks_phrase
from hangscope.causes.case import Case, Match
from hangscope.conclusion import Evidence, Hypothesis
from hangscope.explain.predict import MOST_REPLAYED, Replay
from hangscope.ingest.torch_logs.c10d import DumpSignal, WatchdogStatus, WatchdogTimeout
from hangscope.ingest.torch_logs.wrapper import GlooClosed, GlooTimeout
from hangscope.knowledge.catalog import CATALOG

MOST_DECIDING = 3
MOST_HYPOTHESES = 6


def deciding(case: Case, match: Match, evidence: Sequence[Evidence]) -> tuple[int, ...]:
    """Return the indexes of the evidence that tells this cause from its rivals, the most telling first."""
    culprits = set(match.culprits)
    anyway = {
        (e.file, e.line)
        for e in (
            *case.statements.all(WatchdogTimeout, GlooTimeout, GlooClosed),
            *case.statements.all(WatchdogStatus),
            *case.statements.all(DumpSignal),
        )
        if e.rank not in culprits
    }
    own = {(item.text, item.rank) for item in match.evidence}
    ranked = []
    for index, item in enumerate(evidence):
        source = (item.source.file, item.source.line) if item.source is not None else None
        if item.stance != "for" or item.kind == "method" or source in anyway:
            continue
        of_culprit = item.rank in culprits
        weight = 4 * of_culprit + 2 * ((item.text, item.rank) in own) + (item.kind == "dump")
        if weight or not culprits:
            ranked.append((-weight, index))
    return tuple(index for _, index in sorted(ranked)[:MOST_DECIDING])


def hypotheses(
    case: Case, match: Match, others: Sequence[Match], evidence: Sequence[Evidence], decided: Sequence[int]
) -> list[Hypothesis]:
    """Return the explanations that were weighed, best first, each with what fits it and what contradicts it."""
    replay = Replay(case.graph)
    against = [item.text for item in evidence if item.stance == "against"]
    result = [
        Hypothesis(
            match.cause,
            tuple(sorted(set(match.culprits))),
            tuple(evidence[i].text for i in decided) or (match.why,),
            # What text alone tells of who waits is no graph that could be replayed.
            (
                *(
                    ()
                    if case.finding.explained >= len(case.finding.waiting)
                    or set(match.culprits) != set(case.finding.culprits)
                    else _left(replay, match.culprits)
                ),
                *against[:3],
            ),
        )
    ]
    told = {(result[0].cause, result[0].ranks), ("unknown", result[0].ranks)}
    rows = [(other.cause, other.culprits, other.why, "") for other in others]
    rows += [("unknown", c.ranks, c.what, c.why_set_aside) for c in case.explanation.set_aside]
    for cause, named, fits, why_not in rows:
        ranks = tuple(sorted(set(named)))
        if (cause, ranks) in told or (why_not and not ranks):
            continue
        told.add((cause, ranks))
        contradicts = (*filter(None, [why_not]), *_left(replay, ranks))
        result.append(Hypothesis(cause, ranks, (fits,), contradicts, CATALOG[cause].would_decide))
    return result[:MOST_HYPOTHESES]


def _left(replay: Replay, ranks: Sequence[int]) -> tuple[str, ...]:
    """Return who would still wait if these ranks had done what is expected of them, as a contradiction, or nothing."""
    if not ranks or not replay.waiting or len(ranks) > MOST_REPLAYED:
        return ()
    stuck = replay.stuck(ranks) - set(ranks)
    return (f"it leaves unexplained why {ranks_phrase(stuck)} would wait",) if stuck else ()
