"""Rules about order: circular waits over groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from hangscope.align.waitgraph import OpenCall
from hangscope.causes.case import Case, Match, answer, at, who
from hangscope.causes.mismatch import OWN_GROUP, describe
from hangscope.causes.participation import busy
from hangscope.explain.statements.whereabouts import located
from hangscope.model.conclusion import Evidence, Source
from hangscope.model.incident import CallKind, on_group
from hangscope.model.rankset import agree

_CAUSE = "collective_order_mismatch"
_ONE_ORDER = "Make every rank enter these groups in one global order, whatever the data; issue no collective inside a branch that ranks take differently."
FEW = 4  # ranks of a cycle without an outlier that are named; more of them mostly wait in their turn
COMPARED = 64  # ranks on either side of a cycle whose orders are compared


def circular_wait(case: Case) -> Match | None:
    """Members hold what the others need: groups entered in opposite orders."""
    finding = case.finding
    assert finding.circle is not None
    members = tuple(sorted(finding.circle.ranks)) or finding.culprits
    ranks = members or finding.waiting
    heads = {r: calls for r in ranks if (calls := case.graph.open_calls.get(r))}
    culprits = members if len(members) <= FEW else ()
    first = next((r for r in ranks if r in heads), None)
    # One CPU thread that is busy elsewhere while its collective is pending makes the same cycle, as lines would show.
    fits = len(members) <= FEW and (len(culprits) != 1 or bool(case.statements.kinds))
    why = f"{who(ranks)} {agree(ranks, 'is', 'are')} in a circular wait: each is blocked in a group that another has not entered"
    facts = [_pending(case, rank) for rank in sorted(heads)[:8]]
    match = answer(_CAUSE, culprits, why, _ONE_ORDER, strength=int(fits), evidence=facts)
    kind = _kind(case, first, heads[first][0]) if first is not None else None
    return replace(match, frame=case.frame_of(kind), frame_rank=first)


def false_circle(case: Case) -> Match | None:
    """A cycle of pending collectives of which one member is not blocked in its collective, as its stack shows."""
    finding = case.finding
    if finding.circle is None or finding.circle.kind != "cycle":
        return None
    away = tuple(case.elsewhere(finding.culprits))
    if not away or len(away) * 2 > len(case.incident.ranks):
        return None
    its = agree(away, "its", "their")
    why = f"{who(away)} {agree(away, 'is', 'are')} busy outside of {its} pending collective, by {its} stack; the circular wait is only apparent"
    return replace(busy(case, away), why=why, strength=1)


def each_in_another_group(case: Case) -> Match | None:
    """All ranks wait at one line of the program, each of them alone in another group: they take these groups in different orders."""
    heads = {rank: calls[0] for rank, calls in case.graph.open_calls.items() if calls}
    if len(heads) < 2 or heads.keys() != case.incident.ranks.keys():
        return None
    kinds = [_kind(case, rank, call) for rank, call in heads.items()]
    places = {(kind.op if kind is not None else "", case.frame_of(kind)) for kind in kinds}
    (op, frame) = next(iter(places))
    if len(places) > 1 or frame is None or len({call.gid for call in heads.values()}) < len(heads):
        return None
    why = f"{who(heads)} are each alone in {op} of another group{at(frame)}: they take these groups in different orders"
    fix = "Take the groups in one order on every rank: sort what the loop runs over (a set, a dict, the keys of a file)."
    evidence = [_pending(case, rank) for rank in [*heads][:8]]
    sure = int(case.incident.size_stated)  # else those that they wait for may be ranks that were not seen
    return replace(
        answer(_CAUSE, (), why, fix, strength=sure, evidence=evidence), frame=frame, frame_rank=min(heads)
    )


def two_threads(case: Case) -> Match | None:
    """Every rank waits in two collectives at once, each of another thread: nothing orders those of one group alike on all ranks."""
    found = {}
    for rank in case.stacks:
        places = [(name, located(stack, "", "stack")) for name, stack in case.incident.ranks[rank].threads]
        found[rank] = [(name, where.op) for name, where in places if where.inside and where.op]
    if len(found) < 2 or not all(len(threads) > 1 for threads in found.values()):
        return None
    where, facts = {}, []
    for rank, threads in found.items():
        where[rank] = " and ".join(f"{op} ({name})" for name, op in threads[:2])
        source = Source(case.incident.ranks[rank].stack_file or "")
        facts.append(Evidence("stack", f"rank {rank} is in {where[rank]}", rank, source))
    why = f"{who(where)} are each in two collectives at once, from two threads: {next(iter(where.values()))}"
    return answer(_CAUSE, (), why, OWN_GROUP, evidence=facts[:4])


def crossed_groups(case: Case) -> Match | None:
    """A rank that entered another group first than its pattern, and its peers, call for."""
    finding, change = case.finding, case.finding.change
    circle = finding.circle is not None and finding.circle.kind == "cycle"
    other_order = change.swapped or change.last_word or change.postponed
    by_role = change.votes > 1 and change.elsewhere and other_order
    if not (circle or by_role):
        return None
    few = change.postponed or 0 < len(change.skipped) <= 2
    if not (few and other_order) and not _entered_first(case):
        return None
    opened, groups, view = case.graph.open_calls, case.incident.groups, finding.stuck.view
    skipped = change.skipped[0] if change.skipped else finding.stuck.kind
    first, second = describe(finding.own.kind), describe(skipped)
    if finding.own.gid is not None and view is not None:
        first, second = f"group {groups[finding.own.gid].label}", f"group {view.group.label}"
    shown = dict.fromkeys((*finding.culprits[:4], *finding.waiting))
    why = f"{who(finding.culprits)} entered {first} before {second}, the others in the opposite order"
    evidence = [_pending(case, rank) for rank in shown if opened.get(rank)][:6]
    strength = 2 if change.swapped else 1
    return answer(_CAUSE, finding.culprits, why, strength=strength, evidence=evidence)


def _entered_first(case: Case) -> bool:
    """Return whether each culprit has two collectives pending that a rank which waits has pending in the opposite order."""
    opened, sides = case.graph.open_calls, (case.finding.culprits, case.finding.waiting)
    own, others = ([opened.get(r, []) for r in ranks[:COMPARED]] for ranks in sides)
    return bool(own) and all(any(_opposite_orders((a, b)) for b in others) for a in own)


def _opposite_orders(opened: Iterable[list[OpenCall]]) -> bool:
    """Return whether no order of the pending collectives agrees with that of each rank: two ranks, or more, enqueued them in a cycle."""
    after: dict[object, set[object]] = defaultdict(set)
    for calls in opened:
        for first, second in pairwise(c.node for c in calls[:8]):
            after[first].add(second)
    while firsts := after.keys() - set[object]().union(*after.values()):
        for node in firsts:
            del after[node]
    return bool(after)


def _kind(case: Case, rank: int, call: OpenCall) -> CallKind | None:
    record = case.incident.ranks[rank]
    for queue in (*record.queues.values(), *record.p2p.values()):
        found = (queue.order == call.order).nonzero()[0]
        if len(found):
            return case.incident.kinds[int(queue.kind[found[0]])]
    return None


def _pending(case: Case, rank: int) -> Evidence:
    """Return the first two collectives that a rank has pending."""
    named = []
    for call in case.graph.open_calls[rank][:2]:
        kind, group = _kind(case, rank, call), case.incident.groups[call.gid]
        named.append(f"{describe(kind)} {on_group(group.label)}{at(case.frame_of(kind))}")
    return case.recorded(rank, f"rank {rank} is in {', then '.join(named)}")
