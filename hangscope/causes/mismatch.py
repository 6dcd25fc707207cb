"""Rules about calls that meet at one seq and do not fit: sizes, types, ops."""

from __future__ import annotations

from math import prod

from hangscope.align.rankset import ranks_phrase
from hangscope.causes.case import Case, Match, quote
from hangscope.causes.difference import Difference
from hangscope.conclusion import Evidence
from hangscope.explain.finding import Different, Nothing, Stalled, Unseen
from hangscope.incident import CallKind
from hangscope.ingest.torch_logs.wrapper import CallFingerprint, GlooSizeMismatch

_BYTES = {
    "Double": 8,
    "Long": 8,
    "Float": 4,
    "Int": 4,
    "Half": 2,
    "BFloat16": 2,
    "Short": 2,
    "Byte": 1,
    "Char": 1,
    "Bool": 1,
}


def describe(kind: CallKind | None) -> str:
    """Return a call for a sentence: `all_reduce([64, 32] Float)`."""
    if kind is None:
        return "a call that was not recorded"
    sizes = ", ".join(str(list(s)) for s in (kind.input_sizes or kind.output_sizes)[:3])
    dtype = (kind.input_dtypes or kind.output_dtypes or ("",))[0]
    inside = " ".join(p for p in (sizes, dtype) if p)
    return f"{kind.op or 'a call'}({inside})" if inside else kind.op or "a call"


def _meeting(case: Case, d: Difference) -> str:
    """Return who called what where the others called something else; without whom where nobody is named."""
    own, peer = describe(d.own), describe(d.peer)
    if own == peer and d.differs == "root" and d.own is not None and d.peer is not None:
        own, peer = f"{own} of root {d.own.root}", f"{peer} of root {d.peer.root}"
    elif own == peer:
        lines = [f" at {frame}" if (frame := case.frame_of(kind)) else "" for kind in (d.own, d.peer)]
        own, peer = f"{own}{lines[0]}", f"another {peer}{lines[1]}"
    finding = case.finding
    if not finding.culprits:
        return f"{own} meets {peer}"
    view, seq = finding.stuck.view, finding.stuck.seq
    peers = (
        [r for r in view.seen if r not in finding.culprits and view.kind_of(r, seq) == d.peer]
        if view is not None and seq is not None
        else []
    )
    others = ranks_phrase(peers) if peers else "the others"
    return f"{ranks_phrase(finding.culprits)} called {own} where {others} called {peer}"


def wrong_dtype(case: Case) -> Match | None:
    """The same call with another element type."""
    d = Difference(case)
    if not isinstance(case.finding, Different) or d.differs != "dtype" or case.finding.change.elsewhere:
        return None
    if d.another_call:
        return None
    return Match(
        "dtype_mismatch",
        case.finding.culprits,
        f"{_meeting(case, d)}: the same call with another element type",
        strength=2,
        frame=case.frame_of(d.own),
        evidence=aspects(case),
        advice=[
            f"Make {ranks_phrase(case.finding.culprits) if case.finding.culprits else 'both sides'} use the same dtype as the others at that line: autocast, .to(dtype), or the data's own type."
        ],
    )


def wrong_shape(case: Case) -> Match | None:
    """The same call from the same place with other sizes."""
    d = Difference(case)
    if not isinstance(case.finding, Different) or d.differs != "shape" or case.finding.change.elsewhere:
        return None
    if d.another_call or (d.times_before(d.own) and d.times_before(d.peer)):
        return None  # two calls that merely share their name
    # A source and its receivers are two sides by their roles: that one of them has more ranks accuses nobody.
    roles = d.met_before and case.frame_of(d.own) != case.frame_of(d.peer)
    culprits = () if roles else case.finding.culprits
    return Match(
        "shape_mismatch",
        culprits,
        f"{_meeting(case, d)}: the same call with other sizes",
        strength=1 if d.same_site is None or roles else 2,
        frame=case.frame_of(d.own),
        evidence=aspects(case) + _received(case),
        advice=[
            f"Pad or drop what made {ranks_phrase(culprits) if culprits else 'one side'} send other sizes (a last small batch, a variable length), or exchange sizes first."
        ],
    )


def received_sizes(case: Case) -> Match | None:
    """Gloo received more bytes than it expected, from a job without any other record of the calls."""
    events = case.statements.all(GlooSizeMismatch)
    if not events or not isinstance(case.finding, Nothing | Unseen):
        return None
    culprits = case.finding.culprits if isinstance(case.finding, Unseen) else ()
    other = _in_another_call(case, events)
    culprits = other if other and set(other) <= set(culprits) else culprits
    return Match(
        "shape_mismatch",
        culprits,
        f"the buffer of {ranks_phrase(culprits)} does not fit what the others sent: gloo received a message of another size"
        if culprits
        else "gloo received a message of another size than the buffer that waited for it",
        strength=0 if _may_be_types(events) or not culprits else 1,
        evidence=_received(case),
        rivals=[("dtype_mismatch", "another element type would give these sizes as well")]
        if _may_be_types(events)
        else []
        if culprits
        else [("collective_mismatch", "two different calls that meet differ in size as well")],
        advice=[
            "The process that gloo aborted is the receiver and may be innocent: rerun with TORCH_DISTRIBUTED_DEBUG=DETAIL, which names the calls of both sides."
        ],
    )


def _in_another_call(case: Case, events: list[GlooSizeMismatch]) -> tuple[int, ...]:
    """Return the ranks whose own buffer is too small or too large for any part of the call that the others wait in.

    gloo sends a buffer in parts: at least a part for each member, and two in flight.
    """
    kind, world = case.finding.stuck.kind, len(case.incident.ranks)
    bytes_of = _BYTES.get((kind.input_dtypes or ("",))[0]) if kind is not None else None
    if kind is None or bytes_of is None or not kind.input_sizes:
        return ()
    whole = sum(prod(size) for size in kind.input_sizes) * bytes_of
    odd = {
        e.rank
        for e in events
        if e.rank is not None and (e.expected > whole or e.expected * 4 * world < whole)
    }
    return tuple(sorted(odd))


def _may_be_types(events: list[GlooSizeMismatch]) -> bool:
    """Return whether every message differs from its buffer by the factor between two element types."""
    ratios = [e.received / e.expected for e in events if e.expected]
    return bool(ratios) and all(r in (2.0, 4.0, 8.0) for r in ratios)


def _received(case: Case) -> list[Evidence]:
    return [
        quote(
            e,
            f"gloo received {e.received} bytes for a buffer of {e.expected}; the aborted process is the receiver and may be innocent",
        )
        for e in case.statements.all(GlooSizeMismatch)[:2]
    ]


def different_calls(case: Case) -> Match | None:
    """Different calls at one seq that no finer rule explains."""
    if not isinstance(case.finding, Different):
        return None
    d = Difference(case)
    if case.finding.change.elsewhere and d.own is not None and d.peer is not None:
        return _on_another_group(case, d)
    return Match(
        "collective_mismatch",
        case.finding.culprits,
        f"{_meeting(case, d)} at the same seq",
        strength=1,
        frame=case.frame_of(d.own),
        evidence=aspects(case),
        advice=[
            "Compare the two lines: every member must make the same calls in the same order; if one of them is in an exception handler, let the process die instead."
        ],
    )


def refused(case: Case) -> Match | None:
    """All members came to a call that DETAIL let nobody make: calls that do not fit, of which no record tells what they were."""
    finding = case.finding
    if not isinstance(finding, Stalled) or finding.stuck.kind is None or finding.stuck.kind.op:
        return None
    return Match(
        "collective_mismatch",
        (),
        "all members came to their next call, and the check that DETAIL makes before it let none through: the calls do not fit",
        frame=case.frame_of(finding.stuck.kind),
        advice=[
            "Read what the check raised: TORCH_DISTRIBUTED_DEBUG=DETAIL prints the calls of both sides in each rank's log."
        ],
    )


def _on_another_group(case: Case, d: Difference) -> Match:
    """Return the answer where all that is known is that the culprits entered another group than the one the others wait in."""
    who = ranks_phrase(case.finding.culprits) if case.finding.culprits else "one side"
    return Match(
        "collective_order_mismatch",
        case.finding.culprits,
        f"{who} entered {describe(d.own)} on another group first, where the others entered {describe(d.peer)}",
        strength=0,
        frame=case.frame_of(d.own),
        advice=["Let every rank enter these two groups in one order; no call on a group inside a branch that ranks take differently."],
        rivals=[("rank_conditional_collective", "whether it would have made the others' call next, no record tells")],
    )  # fmt: skip


def aspects(case: Case) -> list[Evidence]:
    """Return what DETAIL itself printed about the difference, for dumps and text alike."""
    ranks = {*case.finding.culprits, *case.finding.waiting[:1]}
    return [quote(e) for r in sorted(ranks) for e in case.statements.of(r, CallFingerprint)[:1]]
