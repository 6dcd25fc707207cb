"""Calls that wait for each other in a circle: whose program made it, or which few alone would undo it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from hangscope.align.waitgraph import Called, Instance, Node, Root
from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import Change, Circular, Different, Finding, OwnCall, Stalled, Unpaired
from hangscope.explain.generate.pairs import unpaired

MOST_CYCLES = 64  # that are compared
MOST_CLASSES = 64  # of ranks in a cycle, each of which is imagined to have behaved


def circular(aligned: Aligned) -> Finding | None:
    """Return the finding of the first cycle, with the ranks at fault where counts or programs show them."""
    found = (aligned.reached_by(_in_cycle(aligned, root)) for root in aligned.roots("cycle")[:MOST_CYCLES])
    first = next(found, None)
    return aligned.of_one_fault(first, found) if isinstance(first, Unpaired) else first


def _in_cycle(aligned: Aligned, root: Root) -> Finding:
    if (found := unpaired(aligned, root)) is not None:
        return replace(found, circle=root)
    calls = [n for n in root.nodes if isinstance(n, Called)]
    inside = {rank for node in calls for rank, _ in aligned.graph.calls_of(node)}
    ranks = root.ranks or tuple(sorted(inside))
    if (own := _off_their_pattern(aligned, ranks)) is not None:
        return replace(own, circle=root)
    apart = _few_apart(aligned, sorted(inside.union(root.ranks)), root.explains)
    if apart is not None and apart.culprits:
        return replace(apart, circle=root)
    stuck = aligned.stuck_in(min(calls, key=aligned.when), ranks)
    return Circular(ranks, stuck, circle=root, assumed=not root.certain)


def _off_their_pattern(aligned: Aligned, ranks: tuple[int, ...]) -> Different | None:
    """Return the finding of the ranks of a cycle whose pending collective breaks their own pattern, where those of all others continue theirs."""
    keeps: dict[int, bool | None] = {}
    first: dict[int, Instance] = {}
    for rank in ranks[:MOST_CLASSES]:
        node = _first_recorded(aligned, rank)
        if isinstance(node, Instance):
            first[rank] = node
            row = aligned.programs.row_at(rank, node.gid, node.seq)
            keeps[rank] = aligned.programs.keeps_pattern(rank, row)
    off = tuple(rank for rank in ranks if keeps.get(rank) is False)
    on = [rank for rank in ranks if keeps.get(rank)]
    if not (off and on) or len(off) + len(on) < len(ranks):
        return None
    node, made = first[on[0]], first[off[0]]
    own = OwnCall(aligned.views[made.gid].kind_of(off[0], made.seq), made.seq, made.gid)
    row = aligned.programs.row_at(off[0], made.gid, made.seq) or 0
    wanted = tuple(aligned.programs.call(off[0], at)[2] for at in aligned.programs.wanted(off[0], row))
    change = Change(skipped=wanted, last_word=True, elsewhere=True)
    return Different(off, aligned.stuck_in(node, off), own, change)


def apart(aligned: Aligned) -> Finding | None:
    """Return the finding of the few that wait apart from all the rest, if the text does not show which rank they wait for."""
    waiting = frozenset(aligned.waiting)
    finding = _few_apart(aligned, waiting, waiting)
    return None if finding is None else aligned.reached_by(finding)


def _few_apart(aligned: Aligned, ranks: Iterable[int], explains: frozenset[int]) -> Finding | None:
    """Return the finding of the smallest class of ranks that would free all others, if it is the only one of its size."""
    classes: dict[tuple[Node, ...], list[int]] = {}
    for rank in sorted(ranks):
        calls = aligned.graph.open_calls.get(rank, [])
        classes.setdefault(tuple(c.node for c in calls[:4]), []).append(rank)
    if not 1 < len(classes) <= MOST_CLASSES:
        return None
    most = sum(map(len, classes.values()))
    few = [
        own for own in classes.values() if 2 * len(own) < most and not (aligned.replay.stuck(own) & explains)
    ]
    solving = sorted(few, key=lambda own: (len(own), own))
    if not solving or [len(own) for own in solving].count(len(solving[0])) > 1:
        return None
    own = solving[0]
    stuck_in = Counter(_first_recorded(aligned, r) for r in aligned.waiting if r not in own)
    node = max(stuck_in, key=lambda n: (stuck_in[n], str(n)), default=None)
    made = _first_recorded(aligned, own[0])
    if not isinstance(node, Instance) or not isinstance(made, Instance):
        return None
    view, elsewhere = aligned.views[made.gid], made.gid != node.gid
    programs = aligned.programs
    if len(own) == 1 and programs.keeps_pattern(own[0], programs.row_at(own[0], made.gid, made.seq)):
        return None
    if len(view.members) > 1 and view.members.keys() <= set(own):
        # All members of their group are in their call: the group itself is stalled, and no member differs.
        return Stalled((), aligned.stuck_in(made), assumed=True)
    call = OwnCall(view.kind_of(own[0], made.seq), made.seq, made.gid if elsewhere else None)
    change = Change(last_word=True, elsewhere=elsewhere)
    return Different(tuple(own), aligned.stuck_in(node, own), call, change, assumed=True)


def _first_recorded(aligned: Aligned, rank: int) -> Node | None:
    """Return the first open call of a rank of which more is left than its number, or the first where there is none."""
    nodes = [call.node for call in aligned.graph.open_calls.get(rank, [])]
    kept = (
        n
        for n in nodes
        if not isinstance(n, Instance) or aligned.views[n.gid].kind_of(rank, n.seq) is not None
    )
    return next(kept, nodes[0] if nodes else None)
