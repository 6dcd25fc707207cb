"""The verdict as a part of the document, and back."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from hangscope.model.conclusion import CallRef, Verdict
from hangscope.model.incident import Group, Incident
from hangscope.report.schema.document import CulpritPart, Explains, GroupRef, VerdictPart

_CULPRITS = 64  # named with host and device
_TENSORS = 8


def verdict_part(verdict: Verdict, incident: Incident) -> VerdictPart:
    """Return the `verdict` of a document."""
    records, group = incident.ranks, verdict.group
    named = [records[rank] for rank in verdict.culprit_ranks[:_CULPRITS] if rank in records]
    return VerdictPart(**_shared(verdict, VerdictPart) | {
        "culprits": tuple(CulpritPart(r.rank, r.host, r.local_rank, r.device, r.pid) for r in named),
        "group": group and GroupRef(group.name, group.desc, group.role, tuple(group.ranks), group.members_known),
        "explains": Explains(verdict.explained, len(verdict.waiting_ranks)),
        "culprit_call": _call(verdict.culprit_call),
        "waiting_call": _call(verdict.waiting_call),
        "since": None if verdict.since is None else str(verdict.since),
        "until": None if verdict.until is None else str(verdict.until),
    })  # fmt: skip


def verdict_of(part: VerdictPart | None) -> Verdict | None:
    """Return the verdict of a document from another process; None if it has none."""
    if part is None:
        return None
    group = part.group
    return Verdict(**_shared(part, Verdict) | {
        "group": group and Group(-1, group.name, group.desc, group.ranks, group.members_known, group.role),
        "explained": part.explains.ranks,
        "since": None if part.since is None else int(part.since),
        "until": None if part.until is None else int(part.until),
    })  # fmt: skip


def _shared(source: Verdict | VerdictPart, kind: Any) -> dict[str, Any]:
    """Return the fields that both kinds of verdict have, with tuples for lists."""
    found = {f.name: getattr(source, f.name) for f in fields(kind) if hasattr(source, f.name)}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}


def _call(call: CallRef | None) -> CallRef | None:
    return call and replace(call, sizes=call.sizes[:_TENSORS], dtypes=call.dtypes[:_TENSORS])
