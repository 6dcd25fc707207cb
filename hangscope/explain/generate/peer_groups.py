"""Groups that run the same program side by side, and what they say of a tie.

In a grid of ranks the groups of one dimension (all data-parallel pairs, say) make the same calls. Where two halves of one
group contradict each other and history is silent, its peer groups show which half left the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hangscope.align.frontier import GroupFrontier
from hangscope.align.matching import match_key

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


def _alike(peer: GroupFrontier, view: GroupFrontier) -> bool:
    """Return whether two groups are of one dimension: equal size and description, and no common member."""
    a, b = peer.group, view.group
    return len(a.ranks) == len(b.ranks) and a.desc == b.desc and not set(a.ranks) & set(b.ranks)
