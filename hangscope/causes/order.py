"""Rules about order: circular waits over groups."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hangscope.align.program import Programs
from hangscope.align.rankset import ranks_phrase
from hangscope.align.waitgraph import OpenCall
from hangscope.causes.case import Case, Match
from hangscope.causes.mismatch import describe
from hangscope.causes.participation import busy
from hangscope.conclusion import Evidence
from hangscope.explain.finding import Circular, Different
from hangscope.incident import CallKind

FEW = 4  # ranks of a circle of which nobody is odd that are named; more of them mostly wait in their turn
LOOKED_AT = 64  # ranks on either side of a circle whose orders are compared


def circular_wait(case: Case) -> Match | None:
    """Members hold what the others need: groups entered in opposite orders."""
    finding = case.finding
    if not isinstance(finding, Circular) or finding.circle is None:
        return None
    members = tuple(sorted(finding.circle.ranks)) or finding.culprits
    ranks = members or finding.waiting
    heads = {r: case.graph.open_calls[r] for r in ranks if case.graph.open_calls.get(r)}
    odd = _odd_order(case, heads)
    opposite = _opposite_orders(heads)
    stacks = any(
        (w := case.statements.whereabouts.get(r)) is not None and w.kind == "stack" and w.inside
        for r in ranks
    )
    culprits = odd or (members if len(members) <= FEW else ())
    first = next((r for r in culprits or ranks if r in heads), next(iter(sorted(heads)), None))
    kind = _kind(case, first, heads[first][0]) if first is not None else None
    blocked = all(len(calls) == 1 for calls in heads.values())
    if not (opposite or stacks or odd or blocked):
        return None  # the circle rests on assumptions
    return Match(
        "collective_order_mismatch",
        culprits,
        f"{ranks_phrase(ranks)} wait for each other in a circle: each holds a group that another needs"
        + (f"; the order of {ranks_phrase(odd)} is the odd one" if odd else ""),
        # One host that is busy elsewhere while its call is pending makes the same circle; where there are lines, they tell of it.
        strength=2
        if (opposite or stacks) and odd
        else int(len(members) <= FEW and (len(culprits) != 1 or bool(case.statements.kinds))),
        evidence=[_in_calls(case, rank) for rank in sorted(heads)[:8]],
        frame=case.frame_of(kind),
        frame_rank=first,
        advice=[
            "Make every rank enter these groups in one global order, whatever the data; no call on a group inside a branch that ranks take differently."
        ],
    )


def false_circle(case: Case) -> Match | None:
    """A circle of open calls whose odd member is not blocked in its call at all, as its stack shows."""
    finding = case.finding
    if finding.circle is None or finding.circle.kind != "cycle":
        return None
    members = finding.circle.ranks if isinstance(finding, Circular) else ()
    who = tuple(case.elsewhere(sorted({*members, *finding.culprits})))
    if not who or len(who) * 2 > len(case.incident.ranks):
        return None
    why = f"{ranks_phrase(who)} left a call open and is busy outside of it, as its stack shows; the circle of open calls is not a true one"
    return replace(busy(case, who), why=why, strength=1)


def crossed_groups(case: Case) -> Match | None:
    """A rank that entered another group first than its pattern, and its peers, call for."""
    finding = case.finding
    if finding.circle is None or finding.circle.kind != "cycle" or not isinstance(finding, Different):
        return None
    shown = _entered_first(case)
    if not shown and (
        not finding.change.skipped
        or len(finding.change.skipped) > 2
        or not (finding.change.swapped or finding.change.last_word)
    ):
        return None
    skipped = finding.change.skipped[0] if finding.change.skipped else finding.stuck.kind
    who = ranks_phrase(finding.culprits)
    first = next((calls[0].gid for r in finding.culprits if (calls := case.graph.open_calls.get(r))), None)
    on, there, groups = "", "", "these two groups"
    if first is not None and finding.stuck.view is not None and first != finding.stuck.view.group.gid:
        own, other = case.incident.groups[first].label, finding.stuck.view.group.label
        on, there, groups = f" on group {own}", f" on group {other}", f"groups {own} and {other}"
    shown_ranks = dict.fromkeys((*finding.culprits[:4], *finding.waiting))
    evidence = [_in_calls(case, rank) for rank in shown_ranks if case.graph.open_calls.get(rank)][:6]
    return Match(
        "collective_order_mismatch",
        finding.culprits,
        f"{who} entered {describe(finding.own.kind)}{on} before {describe(skipped)}{there}, the others the other way round",
        strength=2 if finding.change.swapped else 1,
        evidence=evidence,
        frame=case.frame_of(finding.own.kind),
        advice=[
            f"Make {who} enter {groups} in the order that the others use; no call on a group inside a branch that ranks take differently."
        ],
    )


def crossed_threads(case: Case) -> Match | None:
    """Two threads of each rank call on one group, and on some ranks the other one came first: between them there is no order."""
    finding, own, peer = case.finding, case.finding.own.kind, case.finding.stuck.kind
    if (
        not isinstance(finding, Different)
        or own is None
        or peer is None
        or own.of_a_thread == peer.of_a_thread
    ):
        return None
    opened = ((r, c) for r in finding.waiting[:LOOKED_AT] for c in case.graph.open_calls.get(r, ()))
    if all(_kind(case, rank, call) != own for rank, call in opened):
        return None  # the others' threads do not make it
    who = ranks_phrase(finding.culprits) if finding.culprits else "one side"
    return Match(
        "collective_order_mismatch",
        finding.culprits,
        f"{who} made {describe(own)} before {describe(peer)}, the others the other way round: two threads of each rank call on one group",
        frame=case.frame_of(own),
        advice=["Give the thread a process group of its own, or make its calls from the main thread, at one place of the step."],
        rivals=[("rank_conditional_collective", "whether the others' threads make it at all, too")],
    )  # fmt: skip


def _entered_first(case: Case) -> bool:
    """Return whether each culprit has two calls open that a rank which waits has open in the opposite order."""
    opened = case.graph.open_calls
    waiting = [rank for rank in case.finding.waiting[:LOOKED_AT] if len(opened.get(rank, ())) > 1]
    return bool(case.finding.culprits) and all(
        any(_opposite_orders({rank: opened.get(rank, []), other: opened[other]}) for other in waiting)
        for rank in case.finding.culprits[:LOOKED_AT]
    )


def _opposite_orders(heads: dict[int, list[OpenCall]]) -> bool:
    """Return whether two ranks enqueued the same two open calls in opposite orders."""
    orders: set[tuple[object, object]] = set()
    for calls in heads.values():
        nodes = [c.node for c in calls[:8]]
        orders.update((a, b) for i, a in enumerate(nodes) for b in nodes[i + 1 :])
    return any((b, a) in orders for a, b in orders)


def _odd_order(case: Case, heads: dict[int, list[OpenCall]]) -> tuple[int, ...]:
    """Return the few ranks in the cycle whose first open call breaks the order that they repeated before, or that others have."""
    programs = Programs(case.incident)
    broken = [rank for rank, calls in sorted(heads.items()) if programs.breaks_pattern(rank, calls[0].order)]
    if 0 < 2 * len(broken) <= len(heads):
        return tuple(broken)
    orders = {rank: _roles(case, calls) for rank, calls in sorted(heads.items())}
    (usual, count), *_ = Counter(orders.values()).most_common(1) or [((), 0)]
    others = tuple(rank for rank, order in orders.items() if order != usual)
    return others if 2 * count > len(heads) and all(orders[r] == usual[::-1] for r in others) else ()


def _roles(case: Case, calls: list[OpenCall]) -> tuple[tuple[str, int], ...]:
    """Return what the groups of a rank's first two open calls are for: description and size, which ranks of a mesh share."""
    groups = [case.incident.groups[call.gid] for call in calls[:2]]
    return tuple((group.desc, len(group.ranks)) for group in groups)


def _kind(case: Case, rank: int, call: OpenCall) -> CallKind | None:
    record = case.incident.ranks[rank]
    for queue in (*record.queues.values(), *record.p2p.values()):
        for order, kind in zip(queue.order, queue.kind, strict=True):
            if int(order) == call.order:
                return case.incident.kinds[int(kind)]
    return None


def _in_calls(case: Case, rank: int) -> Evidence:
    """Return the first two calls that a rank has open."""
    named = ", then ".join(_name(case, rank, call) for call in case.graph.open_calls[rank][:2])
    return case.recorded(rank, f"rank {rank} is in {named}")


def _name(case: Case, rank: int, call: OpenCall) -> str:
    kind = _kind(case, rank, call)
    group = case.incident.groups[call.gid]
    frame = case.frame_of(kind)
    return f"{describe(kind)} on group {group.label}" + (f" at {frame}" if frame else "")
