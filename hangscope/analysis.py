"""The stages in their order, from an incident to a judgement; no I/O here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hangscope.align import divergence, frontier, waitgraph
from hangscope.causes.case import Case
from hangscope.explain import facts, statements
from hangscope.explain.aligned import Aligned
from hangscope.explain.explanation import explain
from hangscope.explain.finding import Nothing
from hangscope.explain.text import excerpt
from hangscope.incident import ASSUMED, Absence, Incident
from hangscope.ingest.job_logs.launcher import Exit
from hangscope.ingest.torch_logs.abort import Terminate
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import CallFingerprint, GlooClosed, GlooTimeout, MonitoredBarrier
from hangscope.knowledge.library import Knowledge, own_knowledge
from hangscope.verdict.judge import Judgement, judge

STATUSES = ("no_hang", "inconclusive", "hang")
CONFIDENCES = ("low", "medium", "high")


@dataclass(slots=True)
class Analysis:
    """An incident with all that was found in it; what reports are made of."""

    incident: Incident
    views: list[frontier.GroupFrontier]
    histories: dict[int, divergence.GroupHistory]
    case: Case
    judgement: Judgement
    culprits: frozenset[int] = field(init=False)  # of the verdict, to look ranks up in
    waiting: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        verdict = self.judgement.verdict
        self.culprits = frozenset(verdict.culprit_ranks if verdict is not None else ())
        self.waiting = frozenset(verdict.waiting_ranks if verdict is not None else ())


def analyse(incident: Incident, knowledge: Knowledge | None = None) -> Analysis:
    """Return the analysis of an incident, with a site's own knowledge of calls where there is any."""
    digest = facts.digest(incident)
    incident = statements.joined(incident, digest)
    views = frontier.frontiers(incident)
    histories = divergence.histories(views)
    trouble = digest.all(
        GlooClosed, GlooTimeout, RankException, Terminate, Exit, CallFingerprint, MonitoredBarrier
    )
    graph = waitgraph.build(
        incident, views, bool(trouble), statements.idle(digest), statements.overdue(incident, digest)
    )
    uncollected = excerpt.not_collected(incident, digest)
    ended = frozenset(death.rank for death in digest.deaths)
    aligned = Aligned(incident, views, histories, graph, digest.witnesses, uncollected, ended, digest.busy)
    explanation = explain(aligned, digest)
    found = explanation.best
    recorded = any(r.calls_file and r.absence is not Absence.TOLD for r in incident.ranks.values())
    from_text = explanation.from_text or isinstance(found, Nothing) or not recorded
    if not explanation.from_text and not isinstance(found, Nothing):
        view = found.stuck.view
        assumed = found.assumed or (view is not None and ASSUMED in view.group.name)
        if from_text and not found.events:
            lines = statements.behind(digest, found.waiting, found.culprits)
            assumed = assumed or any(e.rank_assumed for e in lines)
            found = replace(found, events=tuple(lines))
        explanation = replace(explanation, best=replace(found, assumed=assumed))
    case = Case(incident, explanation, digest, graph, from_text, knowledge or own_knowledge())
    return Analysis(incident, views, histories, case, judge(case))


def surest(found: Sequence[Analysis]) -> int:
    """Return the place of the analysis that shows a freeze most surely; of equals that of the larger job."""

    def weight(place: int) -> tuple[int, ...]:
        judgement = found[place].judgement
        verdict = judgement.verdict
        confidence = CONFIDENCES.index(verdict.confidence) if verdict is not None else -1
        named = verdict is not None and bool(verdict.culprit_ranks)
        return (STATUSES.index(judgement.status), named, confidence, found[place].incident.world_size, -place)

    return max(range(len(found)), key=weight)
