"""Rules about order: circular waits over groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from hangscope.align.waitgraph import OpenCall
from hangscope.causes.case import Case, Match, answer, at, who
from hangscope.causes.mismatch import describe
from hangscope.causes.participation import busy
from hangscope.explain.finding import Circular, Different
from hangscope.model.conclusion import Evidence
from hangscope.model.incident import CallKind
from hangscope.model.rankset import agree

FEW = 4  # ranks of a circle of which nobody is odd that are named; more of them mostly wait in their turn
LOOKED_AT = 64  # ranks on either side of a circle whose orders are compared


def circular_wait(case: Case) -> Match | None:
    """Members hold what the others need: groups entered in opposite orders."""
    finding = case.finding
    if not isinstance(finding, Circular) or finding.circle is None:
        return None
    members = tuple(sorted(finding.circle.ranks)) or finding.culprits
    ranks = members or finding.waiting
    heads = {r: calls for r in ranks if (calls := case.graph.open_calls.get(r))}
    seen = any(r in ranks and where.inside for r, where in case.stacks.items())
    shown = seen or _opposite_orders(heads.values())
    if not (shown or all(len(calls) == 1 for calls in heads.values())):
        return None  # the circle rests on assumptions
    culprits = members if len(members) <= FEW else ()
    first = next((r for r in (*culprits, *ranks, *sorted(heads)) if r in heads), None)
    # One host that is busy elsewhere while its call is pending makes the same circle; where there are lines, they tell of it.
    fits = len(members) <= FEW and (len(culprits) != 1 or bool(case.statements.kinds))
    return answer(
        "collective_order_mismatch",
        culprits,
        f"{who(ranks)} {agree(ranks, 'is', 'are')} in a circular wait: each is blocked in a group that another has not entered",
        "Make every rank enter these groups in one global order, whatever the data; issue no collective inside a branch that ranks take differently.",
        strength=int(fits),
        evidence=[_in_calls(case, rank) for rank in sorted(heads)[:8]],
        frame=case.frame_of(_kind(case, first, heads[first][0])) if first is not None else None,
        frame_rank=first,
    )


def false_circle(case: Case) -> Match | None:
    """A circle of open calls whose odd member is not blocked in its call at all, as its stack shows."""
    finding = case.finding
    if finding.circle is None or finding.circle.kind != "cycle":
        return None
    members = finding.circle.ranks if isinstance(finding, Circular) else ()
    away = tuple(case.elsewhere(sorted({*members, *finding.culprits})))
    if not away or len(away) * 2 > len(case.incident.ranks):
        return None
    why = f"{who(away)} {agree(away, 'is', 'are')} busy outside of {agree(away, 'its', 'their')} pending collective, by {agree(away, 'its', 'their')} stack; the circular wait is only apparent"
    return replace(busy(case, away), why=why, strength=1)


def crossed_groups(case: Case) -> Match | None:
    """A rank that entered another group first than its pattern, and its peers, call for."""
    finding, change = case.finding, case.finding.change
    circle = finding.circle is not None and finding.circle.kind == "cycle"
    by_role = change.votes > 1 and change.elsewhere and (change.swapped or change.last_word)
    if not isinstance(finding, Different) or not (circle or by_role):
        return None
    by_pattern = 0 < len(change.skipped) <= 2 and (change.swapped or change.last_word)
    if not by_pattern and not _entered_first(case):
        return None
    skipped = change.skipped[0] if change.skipped else finding.stuck.kind
    opened, groups = case.graph.open_calls, case.incident.groups
    gid, view = finding.own.gid, finding.stuck.view
    first, second = describe(finding.own.kind), describe(skipped)
    if gid is not None and view is not None:
        first, second = f"group {groups[gid].label}", f"group {view.group.label}"
    shown = dict.fromkeys((*finding.culprits[:4], *finding.waiting))
    return answer(
        "collective_order_mismatch",
        finding.culprits,
        f"{who(finding.culprits)} entered {first} before {second}, the others in the opposite order",
        f"Make {who(finding.culprits)} enter these two groups in the order that the others use; issue no collective inside a branch that ranks take differently.",
        strength=2 if change.swapped else 1,
        evidence=[_in_calls(case, rank) for rank in shown if opened.get(rank)][:6],
    )


def _entered_first(case: Case) -> bool:
    """Return whether each culprit has two calls open that a rank which waits has open in the opposite order."""
    opened, finding = case.graph.open_calls, case.finding
    culprits, waiting = (
        [opened.get(rank, []) for rank in ranks[:LOOKED_AT]] for ranks in (finding.culprits, finding.waiting)
    )
    return bool(culprits) and all(any(_opposite_orders((a, b)) for b in waiting) for a in culprits)


def _opposite_orders(opened: Iterable[list[OpenCall]]) -> bool:
    """Return whether no order of the open calls agrees with that of each rank: two enqueued the same two in opposite orders, or more go round."""
    behind: dict[object, set[object]] = defaultdict(set)
    for calls in opened:
        for first, second in pairwise(c.node for c in calls[:8]):
            behind[first].add(second)
    while first_ones := behind.keys() - set[object]().union(*behind.values()):
        for node in first_ones:
            del behind[node]
    return bool(behind)


def _kind(case: Case, rank: int, call: OpenCall) -> CallKind | None:
    record = case.incident.ranks[rank]
    for queue in (*record.queues.values(), *record.p2p.values()):
        for order, kind in zip(queue.order, queue.kind, strict=True):
            if int(order) == call.order:
                return case.incident.kinds[int(kind)]
    return None


def _in_calls(case: Case, rank: int) -> Evidence:
    """Return the first two calls that a rank has open."""
    named = []
    for call in case.graph.open_calls[rank][:2]:
        kind, group = _kind(case, rank, call), case.incident.groups[call.gid]
        named.append(f"{describe(kind)} on group {group.label}{at(case.frame_of(kind))}")
    return case.recorded(rank, f"rank {rank} is in {', then '.join(named)}")
