"""The verdict as a part of the document, and back."""

from __future__ import annotations

from hangscope.conclusion import Alternative, CallRef, Evidence, Location, Source, Verdict
from hangscope.incident import Frame, Group, Incident
from hangscope.report.schema.document import (
    AlternativePart,
    CallPart,
    CulpritPart,
    EvidencePart,
    Explains,
    FramePart,
    GroupRef,
    LocationPart,
    SourcePart,
    VerdictPart,
)

_CULPRITS = 64  # named with host and device
_TENSORS = 8


def verdict_part(verdict: Verdict, incident: Incident) -> VerdictPart:
    """Return the `verdict` of a document."""
    group, location = verdict.group, verdict.location
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
        location=LocationPart(location.file, location.line, location.function, location.rank)
        if location is not None
        else None,
        summary=verdict.summary,
        evidence=tuple(
            EvidencePart(
                e.kind,
                e.text,
                e.rank,
                e.stance,
                SourcePart(e.source.file, e.source.line) if e.source is not None else None,
            )
            for e in verdict.evidence
        ),
        advice=tuple(verdict.advice),
        alternatives=tuple(AlternativePart(a.cause, a.why) for a in verdict.alternatives),
        deciding=tuple(verdict.deciding),
        api=verdict.api,
        since=None if verdict.since is None else str(verdict.since),
        until=None if verdict.until is None else str(verdict.until),
    )


def _culprit(incident: Incident, rank: int) -> CulpritPart:
    record = incident.ranks[rank]
    return CulpritPart(record.rank, record.host, record.local_rank, record.device, record.pid)


def _call(call: CallRef | None) -> CallPart | None:
    if call is None:
        return None
    return CallPart(
        call.op,
        call.seq,
        tuple(tuple(s) for s in call.sizes[:_TENSORS]),
        tuple(call.dtypes[:_TENSORS]),
        tuple(FramePart(f.name, f.file, f.line) for f in call.frames),
        call.group,
    )


def verdict_of(part: VerdictPart | None) -> Verdict | None:
    """Return the verdict that a document holds, for reports that were made in another process; None where it has none."""
    if part is None:
        return None
    group, location = part.group, part.location
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
        culprit_call=_ref(part.culprit_call),
        waiting_call=_ref(part.waiting_call),
        location=Location(location.file, location.line, location.function, location.rank)
        if location
        else None,
        evidence=tuple(
            Evidence(
                e.kind, e.text, e.rank, Source(e.source.file, e.source.line) if e.source else None, e.stance
            )
            for e in part.evidence
        ),
        advice=part.advice,
        alternatives=tuple(Alternative(a.cause, a.why) for a in part.alternatives),
        fingerprint=part.fingerprint,
        deciding=part.deciding,
        api=part.api,
        since=None if part.since is None else int(part.since),
        until=None if part.until is None else int(part.until),
    )


def _ref(call: CallPart | None) -> CallRef | None:
    if call is None:
        return None
    frames = tuple(Frame(f.name, f.file, f.line) for f in call.frames)
    return CallRef(call.op, call.seq, frames, call.sizes, call.dtypes, call.group)
