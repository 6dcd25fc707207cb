"""Groups that run the same program side by side: what they say of a tie, and the same fault in several of them.

In a grid of ranks the groups of one dimension (all data-parallel pairs, say) make the same calls. Where two halves of one
group contradict each other and history is silent, its peer groups show which half left the program. What ranks of one
replica do together (its tensor-parallel ranks, say) is one fault, though each of its groups shows a part of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hangscope.align.frontier import GroupFrontier
from hangscope.align.matching import match_key
from hangscope.align.nodes import PairInstance
from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import AnyFinding, Finding

_MOST = 64  # peer groups that are asked


def outlier_among_peers(
    views: Iterable[GroupFrontier], view: GroupFrontier, seq: int, sides: Sequence[tuple[int, ...]]
) -> tuple[int, ...] | None:
    """Return the one side whose call at `seq` no peer makes while all peer groups that got there make another side's, or None."""
    keys = []
    for side in sides:
        kind = view.kind_of(side[0], seq)
        if kind is None:
            return None
        keys.append(match_key(kind))
    asked = 0
    made: set[object] = set()
    for peer in views:
        if peer.group.gid == view.group.gid or not _alike(peer, view):
            continue
        kinds = {match_key(kind) for rank in peer.seen if (kind := peer.kind_of(rank, seq)) is not None}
        made |= kinds
        asked += bool(kinds)
        if asked >= _MOST:
            break
    if len(made) != 1:
        return None
    odd = [side for side, key in zip(sides, keys, strict=True) if key not in made]
    return odd[0] if len(odd) == 1 and len(sides) == 2 else None


def counted_apart(aligned: Aligned, pair: PairInstance) -> tuple[int, int] | None:
    """Return (rank, how many more) of the end of a pair that made more or fewer sends and receives than its like.

    Its like are the ranks at its place in the peer groups, most of which made one number of them. None where both ends or
    neither differ.
    """
    view = aligned.views[pair.gid]
    peers = [
        peer.group for peer in aligned.views.values() if peer.group.gid != pair.gid and _alike(peer, view)
    ]
    apart = []
    for rank in (pair.source, pair.destination):
        place = (
            view.group.ranks.index(rank) if rank in view.group.ranks and view.group.members_known else None
        )
        own = _sends_and_receives(aligned, pair.gid, rank)
        made = Counter(
            _sends_and_receives(aligned, g.gid, g.ranks[place]) for g in peers[:_MOST] if place is not None
        )
        usual, times = made.most_common(1)[0] if made else (None, 0)
        if own is None or usual is None or 2 * times <= len(peers[:_MOST]):
            return None
        apart += [(rank, own - usual)] if own != usual else []
    return apart[0] if len(apart) == 1 else None


def _sends_and_receives(aligned: Aligned, gid: int, rank: int) -> int | None:
    """Return the number of a rank's last send or receive on a group, or None where none was kept, or its dump is an earlier one."""
    record = aligned.incident.ranks.get(rank)
    queue = record.p2p.get(gid) if record is not None else None
    if record is None or queue is None or not len(queue) or rank in aligned.early:
        return None
    alone = gid not in record.queues  # else the counters are of the collectives
    return max(int(queue.seq.max()), (queue.frontier.enqueued or 0) if alone else 0)


def one_fault(aligned: Aligned, first: AnyFinding, others: Iterable[Finding]) -> AnyFinding:
    """Return a finding with the culprits of those among `others` that show the same calls in a group of the same dimension."""
    view = first.stuck.view
    alike = [
        other
        for other in others
        if view is not None
        and other.stuck.view is not None
        and other.culprits
        and (other.own.kind, other.stuck.kind) == (first.own.kind, first.stuck.kind)
        and (other.stuck.view.group.gid == view.group.gid or _alike(other.stuck.view, view))
    ]
    named = {*first.culprits, *(rank for other in alike for rank in other.culprits)}
    if not first.culprits or not alike or 2 * len(named) > len(aligned.incident.ranks):
        return first
    reached = first.reached.union(*(other.reached for other in alike))
    return aligned.reached_by(replace(first, culprits=tuple(sorted(named))), reached)


def _alike(peer: GroupFrontier, view: GroupFrontier) -> bool:
    """Return whether two groups are of one dimension: equal size and description, and no common member."""
    a, b = peer.group, view.group
    return len(a.ranks) == len(b.ranks) and a.desc == b.desc and not set(a.ranks) & set(b.ranks)
