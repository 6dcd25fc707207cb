"""The stages in their order, from an incident to a judgement; no I/O here."""

from __future__ import annotations

from dataclasses import dataclass

from hangscope.align import divergence, frontier, waitgraph
from hangscope.causes.case import Case
from hangscope.explain import facts, finder, scene, text_finding
from hangscope.incident import ASSUMED, Incident
from hangscope.ingest.job_logs.launcher import Exit
from hangscope.ingest.torch_logs.abort import Terminate
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import CallFingerprint, GlooClosed, GlooTimeout, MonitoredBarrier
from hangscope.knowledge.library import Knowledge, own_knowledge
from hangscope.verdict.judge import Judgement, judge


@dataclass(slots=True)
class Analysis:
    """An incident with all that was found in it; what reports are made of."""

    incident: Incident
    views: list[frontier.GroupFrontier]
    histories: dict[int, divergence.GroupHistory]
    case: Case
    judgement: Judgement


def analyse(incident: Incident, knowledge: Knowledge | None = None) -> Analysis:
    """Return the analysis of an incident, with a site's own knowledge of calls where there is any."""
    views = frontier.frontiers(incident)
    histories = divergence.histories(views)
    digest = facts.digest(incident)
    trouble = digest.all(
        GlooClosed, GlooTimeout, RankException, Terminate, Exit, CallFingerprint, MonitoredBarrier
    )
    graph = waitgraph.build(incident, views, bool(trouble))
    found = finder.Finder(scene.Scene(incident, views, histories, graph, digest.witnesses)).find()
    if found.view is not None and ASSUMED in found.view.group.name:
        found.assumed = True
    from_text = found.form == "none"
    if from_text:
        found = text_finding.find_in_text(incident, digest)
    case = Case(incident, found, digest, graph, from_text, knowledge or own_knowledge())
    return Analysis(incident, views, histories, case, judge(case))
