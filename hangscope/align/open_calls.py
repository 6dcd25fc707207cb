"""Which calls of a group its members are really waiting in, whatever a recorder says of their states."""

from __future__ import annotations

from hangscope.align.frontier import GroupFrontier
from hangscope.align.matching import match_key, proves_participation


def open_seqs(view: GroupFrontier, trouble: bool = True) -> dict[int, list[int]]:
    """Return for each seen member the seqs that it is really waiting in.

    On gloo a retired last call may be done or failed, and a done one may still read "scheduled": where every member
    joined a call with matching kinds and one of them retired it, it is over; where peers' later calls prove it, too. A
    retired call alone accuses no member that was not seen, unless `trouble` was told in text.
    """
    result: dict[int, list[int]] = {}
    verdict: dict[int, bool] = {}
    for rank, member in view.members.items():
        if member.enqueued is None and rank not in view.early:
            continue
        kept = []
        for seq in (*member.pending, *member.unknown):
            row = member.row_of(seq)
            gloo = (
                row is not None
                and member.queue is not None
                and view.kinds.without_sizes(int(member.queue.kind[row])).backend == "gloo"
            )
            if gloo:
                if seq <= view.proven:
                    continue
                kind = view.kind_of(rank, seq)
                if seq in member.pending and kind is not None and not proves_participation(kind):
                    # That another member is done with a gather or a broadcast tells nothing of this one.
                    kept.append(seq)
                    continue
                if seq not in verdict:
                    verdict[seq] = _over_on_gloo(view, seq, trouble)
                if verdict[seq]:
                    continue
            kept.append(seq)
        result[rank] = sorted(kept)
    return result


def _over_on_gloo(view: GroupFrontier, seq: int, trouble: bool) -> bool:
    retired = pending = False
    keys = set()
    for rank, member in view.members.items():
        if member.enqueued is None:
            continue
        if member.enqueued < seq:
            return False
        kind = view.kind_of(rank, seq)
        if kind is not None:
            keys.add(match_key(kind))
        retired = retired or seq in member.unknown
        pending = pending or seq in member.pending
    if view.unseen and (trouble or pending):
        return False
    return retired and len(keys) <= 1
