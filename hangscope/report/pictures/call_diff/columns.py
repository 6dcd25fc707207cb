"""Which classes of ranks get a column in the call diff: what the culprits are compared with, the culprits, who else waits in the call."""

from __future__ import annotations

from hangscope.report.pictures.call_diff.alignment import align
from hangscope.report.pictures.call_diff.behaviour import Behaviour
from hangscope.report.subject import Subject

COLUMNS = 4
COMPARED = 16  # classes whose order of calls is compared with the culprit's
LIKE = 0.5  # classes less alike play different parts, and a comparison of their calls says nothing


def choose(subject: Subject, classes: list[Behaviour]) -> list[Behaviour]:
    """Return the classes that get a column: what the culprits are compared with, the culprits, who else waits in the call."""
    verdict, view = subject.verdict, subject.view
    inside = frozenset(verdict.in_call)
    culprits = [b for b in classes if b.role == "culprit"]
    others = [b for b in classes if b.role != "culprit" and len(b.program)]
    # In an order all call the same, and the side that is waited for tells more than the one that is most alike.
    ordered = verdict.cause == "collective_order_mismatch"
    known = next((b for b in culprits if len(b.program)), None)
    calls = {b.ranks[0]: subject.first_open(b.ranks[0]) for b in (*culprits, *others)}
    nodes = {rank: call.node for rank, call in calls.items() if call is not None}
    pending = calls[known.ranks[0]] if known is not None else None
    peers = frozenset(subject.incident.groups[pending.gid].ranks if pending is not None else ())
    own = nodes.get(known.ranks[0]) if known is not None and ordered else None
    others.sort(
        key=lambda b: (
            -round(8 * likeness(b, known)) if known is not None and not ordered else 0,
            own is not None and nodes.get(b.ranks[0]) == own,  # this shows nothing about an order
            peers.isdisjoint(b.ranks),
            not inside.intersection(b.ranks),
            known is not None and b.purposes != known.purposes,
            -len(b.ranks),
            b.ranks[0],
        )
    )
    if not others:
        return [b for b in culprits if len(b.program)][:COLUMNS]
    room = COLUMNS - 1
    if known is not None and not ordered:
        others[:COMPARED] = sorted(others[:COMPARED], key=lambda b: -round(8 * in_order(b, known)))
    if culprits:
        peer = others[0]
        # Culprits of another part (a stage of its own, say) are beside their peers, and not beside these.
        near = in_order(known, peer) if known is not None else 0.0
        shown = [b for b in culprits if b is known or not len(b.program) or 2 * in_order(b, peer) >= near]
        return [peer, *shown[:room]]
    # Where nobody is named, who left the call tells as much as who is still in it.
    members = inside.union(
        view.members if view is not None else (), () if verdict.cause else subject.incident.ranks
    )
    suspects = frozenset(verdict.suspect_ranks if len(verdict.suspect_ranks) <= COLUMNS else ())
    if verdict.is_p2p:
        members, suspects = frozenset(), frozenset()  # the two ends of a pair play different parts
    first, *rest = sorted(others, key=lambda b: not suspects.issuperset(b.ranks))
    beside = [
        b
        for b in rest
        if suspects.issuperset(b.ranks)
        or (members.intersection(b.ranks) and likeness(b, first) >= LIKE and meet(b, first))
    ]
    return [first, *beside[:room]]


def in_order(one: Behaviour, other: Behaviour) -> float:
    """Return which part of the longer program is in the same order in both, 0 to 1: pipeline stages issue the same collectives in turns."""
    return len(align(one.program, other.program).matched) / max(1, len(one.program), len(other.program))


def meet(one: Behaviour, other: Behaviour) -> bool:
    """Return whether the retained windows of two classes share a collective: dumps of different moments may not."""
    mine, theirs = (
        set(zip(b.program.purpose.tolist(), b.program.seq.tolist(), strict=True)) for b in (one, other)
    )
    return bool(mine & theirs)


def likeness(one: Behaviour, other: Behaviour) -> float:
    """Return how similar the collectives of two classes are, 0 to 1: replicas are similar, pipeline stages are not."""
    mine, theirs = set(one.program.tokens), set(other.program.tokens)
    return len(mine & theirs) / max(1, len(mine | theirs))
