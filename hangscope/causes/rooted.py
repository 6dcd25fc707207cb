"""The rule about calls with a root (broadcast, scatter, gather, reduce) whose members may believe in different ones."""

from __future__ import annotations

from hangscope.causes.case import Case, Match, answer, at
from hangscope.conclusion import Evidence
from hangscope.explain.finding import Nothing, Stalled
from hangscope.explain.text.excerpt import not_collected
from hangscope.incident import CallKind
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.wrapper import GlooTimeout
from hangscope.knowledge.callsite import user_frames

_FROM = ("broadcast", "scatter", "broadcast_object_list", "scatter_object_list")
ROOTED = (*_FROM, "gather", "reduce", "gather_object")


def other_roots(case: Case) -> Match | None:
    """All members are in the same call with a root and none finishes it: they may disagree about who that is.

    No recorder keeps the root, so that two ranks which both send, or which wait for different ranks, look alike in it.
    """
    finding = case.finding
    if not_collected(case.incident, case.statements):
        return None  # what the others are in is not known
    if any(event.tier <= 2 for event in case.statements.all(NcclWarn)):
        return None  # the transport itself reports a fault
    stalled = isinstance(finding, Stalled) and finding.stuck.pair is None
    kind = finding.stuck.kind if stalled else _all_at_one_line(case)
    if kind is None or kind.op not in ROOTED or kind.root is not None:
        return None
    frame, root = case.frame_of(kind), "src" if kind.op in _FROM else "dst"
    backends = {k.backend for k in case.incident.kinds if k.backend}
    unknown = "recorders do not keep the root of a call: that all ranks pass the same one is not known"
    return answer(
        "collective_mismatch",
        (),
        f"every rank is in the same {kind.op}{at(frame)} and none finishes it: the ranks may disagree about `{root}`",
        f"Print `{root}` on every rank in front of that line: it must be the same global rank everywhere, taken from something that all ranks agree on and not from a rank's own values.",
        f"In a subgroup `{root}` is a global rank, and `group_{root}` the rank within the group.",
        strength=1 if backends <= {"gloo"} else 0,
        evidence=[*case.statements.all(GlooTimeout)[:4], Evidence("method", unknown)],
        frame=frame,
        frame_rank=finding.stuck.rank,
        rivals=[("network_stall", "a transport that moves nothing leaves the same record")],
        stack=kind.stack,
    )


def _all_at_one_line(case: Case) -> CallKind | None:
    """Return the call that all ranks timed out in at one line of the user's, of a job of which only text is left."""
    places = case.statements.whereabouts
    if not isinstance(case.finding, Nothing) or len(places) < 2 or set(places) != set(case.incident.ranks):
        return None
    stood = list(places.values())
    lines = {(where.op, user_frames(where.stack)) for where in stood}
    if len(lines) > 1 or not all(where.inside and where.kind == "log" for where in stood):
        return None
    return stood[0].call if case.statements.witnesses else None
