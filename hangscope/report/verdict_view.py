"""The verdict as a part of the document, and back."""

from __future__ import annotations

from dataclasses import replace

from hangscope.model.conclusion import CallRef, Verdict
from hangscope.model.incident import Group, Incident
from hangscope.report.schema.document import CulpritPart, Explains, GroupRef, VerdictPart

_CULPRITS = 64  # named with host and device
_TENSORS = 8


def verdict_part(verdict: Verdict, incident: Incident) -> VerdictPart:
    """Return the `verdict` of a document."""
    group = verdict.group
    return VerdictPart(
        cause=verdict.cause,
        confidence=verdict.confidence,
        culprit_ranks=tuple(verdict.culprit_ranks),
        culprits=tuple(
            _culprit(incident, r) for r in verdict.culprit_ranks[:_CULPRITS] if r in incident.ranks
        ),
        category=verdict.category,
        group=GroupRef(group.name, group.desc, group.role, tuple(group.ranks), group.members_known)
        if group is not None
        else None,
        op=verdict.op,
        seq=verdict.seq,
        is_p2p=verdict.is_p2p,
        waiting_ranks=tuple(verdict.waiting_ranks),
        in_call=tuple(verdict.in_call),
        explains=Explains(verdict.explained, len(verdict.waiting_ranks)),
        fingerprint=verdict.fingerprint,
        culprit_call=_call(verdict.culprit_call),
        waiting_call=_call(verdict.waiting_call),
        location=verdict.location,
        summary=verdict.summary,
        evidence=tuple(verdict.evidence),
        advice=tuple(verdict.advice),
        alternatives=tuple(verdict.alternatives),
        deciding=tuple(verdict.deciding),
        api=verdict.api,
        since=None if verdict.since is None else str(verdict.since),
        until=None if verdict.until is None else str(verdict.until),
        title=verdict.title,
        explanation=verdict.explanation,
        rank_confidence=verdict.rank_confidence,
        cause_confidence=verdict.cause_confidence,
        suspect_ranks=tuple(verdict.suspect_ranks),
        collect=tuple(verdict.collect),
    )


def _culprit(incident: Incident, rank: int) -> CulpritPart:
    record = incident.ranks[rank]
    return CulpritPart(record.rank, record.host, record.local_rank, record.device, record.pid)


def _call(call: CallRef | None) -> CallRef | None:
    return call and replace(call, sizes=call.sizes[:_TENSORS], dtypes=call.dtypes[:_TENSORS])


def verdict_of(part: VerdictPart | None) -> Verdict | None:
    """Return the verdict of a document from another process; None if it has none."""
    if part is None:
        return None
    group = part.group
    return Verdict(
        cause=part.cause,
        confidence=part.confidence,
        culprit_ranks=part.culprit_ranks,
        category=part.category,
        summary=part.summary,
        group=Group(-1, group.name, group.desc, group.ranks, group.members_known, group.role)
        if group
        else None,
        op=part.op,
        seq=part.seq,
        is_p2p=part.is_p2p,
        waiting_ranks=part.waiting_ranks,
        in_call=part.in_call,
        explained=part.explains.ranks,
        culprit_call=part.culprit_call,
        waiting_call=part.waiting_call,
        location=part.location,
        evidence=part.evidence,
        advice=part.advice,
        alternatives=part.alternatives,
        fingerprint=part.fingerprint,
        deciding=part.deciding,
        api=part.api,
        since=None if part.since is None else int(part.since),
        until=None if part.until is None else int(part.until),
        title=part.title,
        explanation=part.explanation,
        rank_confidence=part.rank_confidence,
        cause_confidence=part.cause_confidence,
        suspect_ranks=part.suspect_ranks,
        collect=part.collect,
    )
