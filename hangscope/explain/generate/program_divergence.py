"""Ranks that left their peers' program: a call skipped, added or made in another order, across all groups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from hangscope.align.waitgraph import Host, Instance, Node
from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import Change, Different, OwnCall, StuckCall, Unpaired
from hangscope.explain.generate.interleaving import Parting, part

CALLS, ABSENT = 64, 32  # of a circle, and ranks that have not made each of them, that are looked at
PEERS = 2  # that a rank's program is compared with: of those looked at, the most like it
NEAR = 6  # of the nearest numbers are looked at


def program_divergence(aligned: Aligned, nodes: Collection[Node]) -> Different | Unpaired | None:
    """Return a finding where ranks left their peers' program, by comparing those who made a call with those who did not."""
    partings: list[Parting] = []
    for node in sorted((n for n in nodes if isinstance(n, Instance)), key=aligned.when)[:CALLS]:
        view = aligned.views[node.gid]
        joined = [r for r in view.seen if view.members[r].row_of(node.seq) is not None]
        absent = [r for r in view.seen if (view.members[r].enqueued or 0) < node.seq]
        for behind in [r for r in absent if r not in aligned.early][:ABSENT]:
            partings += _partings(aligned, behind, joined, node)
    told = [p for p in partings if p.odd]
    guilty = _alone(partings)
    if guilty:
        told = partings
    elif told:  # a rank that kept its own pattern was only misled by the others
        waiting = (n.rank for n in nodes if isinstance(n, Host))
        first_calls = {r: calls[0] for r in waiting if (calls := aligned.graph.open_calls.get(r))}
        broke = {r for r, call in first_calls.items() if aligned.programs.breaks_pattern(r, call.order)}
        guilty = broke.union(*(p.broke for p in partings)).difference(*(p.kept for p in partings))
        guilty = guilty or set().union(*(p.odd for p in told))
    parted = [p for p in told if not guilty.isdisjoint(p.rows)]
    if not parted:
        return None
    programs = aligned.programs
    first = min(parted, key=lambda p: (min(programs.call(*at)[3] for at in p.rows.items()), tuple(p.rows)))
    return _finding(aligned, first.rows, tuple(sorted(guilty)))


def _alone(partings: Sequence[Parting]) -> set[int]:
    """Return the one rank that parted from each of at least three others, if there is one."""
    ranks = [set(p.rows) for p in partings]
    common = set.intersection(*ranks) if ranks else set()
    return common if len(common) == 1 and len(set.union(*ranks)) >= 4 else set()


def _partings(aligned: Aligned, behind: int, joined: Sequence[int], call: Instance) -> Iterable[Parting]:
    """Yield where a rank parted from those who made the call and whose programs are most like its own.

    Ranks of another pipeline stage run another program and cannot be compared. Ranks of one stage mostly have near
    numbers, so the nearest are looked at along with the first.
    """
    near = sorted(joined, key=lambda rank: abs(rank - behind))[:NEAR]
    looked_at = dict.fromkeys([*joined[:PEERS], *near])
    peers = sorted(looked_at, key=lambda rank: -aligned.programs.likeness(behind, rank))
    for ahead in peers[:PEERS]:
        parting = part(aligned.programs, behind, ahead, call.gid, call.seq)
        if parting is not None:
            yield parting


def _finding(aligned: Aligned, rows: dict[int, int], culprits: tuple[int, ...]) -> Different | Unpaired:
    """Return the finding that the culprits parted from a peer at these rows of their programs."""
    programs = aligned.programs
    odd = next(r for r in rows if r in culprits)
    peer = next(r for r in rows if r != odd)
    gid, seq, kind, _ = programs.call(peer, rows[peer])
    own_gid, own_seq, own_kind, _ = programs.call(odd, rows[odd])
    left_out, tokens = programs.left_out(odd, rows[odd]), programs.of(odd).tokens
    skipped = tuple(programs.call(odd, row)[2] for row in left_out)
    own = OwnCall(own_kind, own_seq, own_gid if own_gid != gid else None)
    halves = [n for n in aligned.graph.pairs if aligned.missing_half(n) in culprits]
    if halves and skipped and all(call.is_p2p for call in skipped):
        stuck = aligned.stuck_in(min(halves, key=aligned.when), culprits)
        return Unpaired(culprits, stuck, own, Change(skipped=skipped if len(culprits) == 1 else ()))
    later = tokens[rows[odd] + 1 : rows[odd] + 1 + len(left_out)]
    history = aligned.histories.get(gid)
    change = Change(
        skipped=skipped,
        swapped=bool(left_out) and later == [tokens[row] for row in left_out],
        edit=history.edit_of(culprits) if history is not None else None,
        last_word=rows[odd] == len(tokens) - 1,
        elsewhere=own_gid != gid,
        before=tuple(programs.before(peer, rows[peer])),
    )
    return Different(culprits, StuckCall(aligned.views[gid], seq, peer, kind, history), own, change)
