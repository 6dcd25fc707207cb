"""Groups that run the same program side by side: what they say of a count, and the same fault in several of them.

In a grid of ranks the groups of one dimension (all data-parallel pairs, say) make the same calls. What ranks of one
replica do together (its tensor-parallel ranks, say) is one fault, though each of its groups shows a part of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from hangscope.align.p2p import PairInstance
from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import AnyFinding, Finding
from hangscope.model.incident import Group

_MOST = 64  # peer groups that are asked


def counted_apart(aligned: Aligned, pair: PairInstance) -> tuple[int, int] | None:
    """Return (rank, how many more) of the end of a pair that made more or fewer sends and receives than its like.

    Its like are the ranks at its place in the peer groups, most of which made one number of them. None where both ends or
    neither differ.
    """
    group = aligned.views[pair.gid].group
    peers = [peer for peer in aligned.incident.groups if _alike(peer, group)][:_MOST]
    if not group.members_known or not peers:
        return None
    apart = []
    for rank in (pair.source, pair.destination):
        place, own = group.ranks.index(rank), _sends_and_receives(aligned, pair.gid, rank)
        made = Counter(_sends_and_receives(aligned, peer.gid, peer.ranks[place]) for peer in peers)
        ((usual, times),) = made.most_common(1)
        if own is None or usual is None or 2 * times <= len(peers):
            return None
        apart += [(rank, own - usual)] if own != usual else []
    return apart[0] if len(apart) == 1 else None


def _sends_and_receives(aligned: Aligned, gid: int, rank: int) -> int | None:
    """Return the number of a rank's last send or receive on a group, or None where none was kept, or its dump is an earlier one."""
    record = aligned.incident.ranks[rank]
    queue = record.p2p.get(gid)
    if queue is None or rank in aligned.early:
        return None
    alone = gid not in record.queues  # else the counters are of the collectives
    return max(int(queue.seq.max(initial=0)), (queue.frontier.enqueued or 0) if alone else 0)


def one_fault(aligned: Aligned, first: AnyFinding, others: Iterable[Finding]) -> AnyFinding:
    """Return a finding with the culprits of those among `others` that show the same calls in a group of the same dimension."""
    view, calls = first.stuck.view, (first.own.kind, first.stuck.kind)
    if view is None or not first.culprits:
        return first
    alike = [
        other
        for other in others
        if other.culprits
        and other.stuck.view is not None
        and (other.own.kind, other.stuck.kind) == calls
        and (other.stuck.view is view or _alike(other.stuck.view.group, view.group))
    ]
    named = {*first.culprits, *(rank for other in alike for rank in other.culprits)}
    if 2 * len(named) > len(aligned.incident.ranks):
        return first
    reached = first.reached.union(*(other.reached for other in alike))
    return aligned.reached_by(replace(first, culprits=tuple(sorted(named))), reached)


def _alike(one: Group, other: Group) -> bool:
    """Return whether two groups are of one dimension: equal size and description, and no common member."""
    return (len(one.ranks), one.desc) == (len(other.ranks), other.desc) and set(one.ranks).isdisjoint(
        other.ranks
    )
