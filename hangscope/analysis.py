"""The stages in their order, from an incident to a judgement; no I/O here."""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.align import frontier, waiting
from hangscope.align.counters import contradictions
from hangscope.causes.case import Case
from hangscope.explain.aligned import Aligned
from hangscope.explain.explanation import explain
from hangscope.explain.statements import bounds
from hangscope.explain.statements.digest import digest
from hangscope.explain.statements.pending_calls import placed_by_stacks
from hangscope.knowledge.library import Knowledge, own_knowledge
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import Incident
from hangscope.verdict.judge import Judgement, judge

STATUSES = ("no_hang", "inconclusive", "hang")
CONFIDENCES = ("low", "medium", "high")


@dataclass(slots=True)
class Analysis:
    """An incident with all that was found in it; what reports are made of."""

    incident: Incident
    views: list[frontier.GroupFrontier]
    case: Case
    judgement: Judgement


def analyse(incident: Incident, knowledge: Knowledge | None = None) -> Analysis:
    """Return the analysis of an incident, with a site's own knowledge of calls where there is any."""
    stated, contradicting = digest(incident), contradictions(incident)
    incident = placed_by_stacks(bounds.joined(incident, stated), stated)
    views = frontier.frontiers(incident)
    graph = waiting.build(
        incident, views, stated.of_trouble, bounds.free(stated), bounds.overdue(incident, stated)
    )
    explanation = explain(Aligned(incident, views, graph, stated, contradicting))
    case = Case(incident, explanation, stated, graph, knowledge or own_knowledge())
    return Analysis(incident, views, case, judge(case, views))


def surest(found: Sequence[Analysis]) -> int:
    """Return the place of the analysis that shows a freeze most surely; of equals that of the larger job."""

    def weight(place: int) -> tuple[int, ...]:
        judgement = found[place].judgement
        verdict = judgement.verdict
        confidence = CONFIDENCES.index(verdict.confidence) if verdict is not None else -1
        named = verdict is not None and bool(verdict.culprit_ranks)
        return (STATUSES.index(judgement.status), named, confidence, found[place].incident.world_size, -place)

    return max(range(len(found)), key=weight)
