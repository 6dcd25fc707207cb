"""The size of a job as every part of a report shows it: what an input states, else the number of ranks that were seen."""

from __future__ import annotations

from dataclasses import replace

from hangscope.analysis import Analysis
from hangscope.explain.text.group_size import stated_size
from hangscope.model.incident import Absence, Group, Incident, RankRecord

_MOST = 1 << 15  # ranks of which nothing was seen that are listed: a number in a short text costs no more


def of_stated_size(analysis: Analysis) -> Analysis:
    """Return an analysis with a record of every rank that the job has by what an input states."""
    incident = analysis.incident
    size = stated_size(incident, analysis.case.statements)
    if size is None or size > _MOST or incident.size_stated:
        return analysis
    ranks = {rank: RankRecord(rank, absence=Absence.NO_DUMP) for rank in range(size)}
    ranks.update(incident.ranks)
    return replace(analysis, incident=replace(incident, world_size=size, ranks=ranks, size_stated=True))


def with_members(group: Group, incident: Incident) -> Group:
    """Return a group as far as its members are known: of the default group they are all ranks of a job of known size."""
    if not (group.desc == "default_pg" or (group.name in ("", "0") and not group.desc)):
        return group
    if not incident.size_stated:
        return replace(group, members_known=False)
    is_short = 0 < len(group.ranks) < incident.world_size
    return replace(group, ranks=tuple(range(incident.world_size))) if is_short else group
