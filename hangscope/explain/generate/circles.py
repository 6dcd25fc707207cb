"""Calls that wait for each other in a circle: whose program made it, or which few alone would undo it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from hangscope.align.p2p import PairInstance
from hangscope.align.waitgraph import Called, Instance, Node, Root
from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import Change, Circular, Different, Finding, OwnCall, Stalled, Unpaired
from hangscope.explain.generate.pair_faults import guilty_half
from hangscope.explain.generate.peer_groups import counted_apart, one_fault
from hangscope.explain.generate.self_deviation import Deviation
from hangscope.explain.predict import Replay

MOST_CLASSES = 64  # of ranks in a circle, each of which is imagined to have behaved


def circular(aligned: Aligned) -> Finding | None:
    """Return the finding of the first circle, with those who made it where their programs tell."""
    circles = aligned.roots("cycle")
    if not circles:
        return None
    found = (aligned.reached_by(_in_circle(aligned, r), r.explains) for r in circles[:MOST_CLASSES])
    first = next(found)
    return one_fault(aligned, first, found) if isinstance(first, Unpaired) else first


def _in_circle(aligned: Aligned, root: Root) -> Finding:
    calls = [n for n in root.nodes if isinstance(n, Called)]
    pairs = [n for n in calls if isinstance(n, PairInstance) and aligned.missing_half(n) is not None]
    unpaired = sorted(pairs, key=aligned.when)
    counted = [(n, *differs) for n in unpaired if (differs := counted_apart(aligned, n)) is not None]
    if counted:
        node, _, more = counted[0]
        culprits = tuple(sorted({rank for _, rank, _ in counted}))
        return Unpaired(culprits, aligned.stuck_in(node, culprits), circle=root, more=more)
    guilty = guilty_half(aligned, calls, unpaired)
    if guilty is not None:
        return _without_its_half(aligned, root, *guilty)
    inside = {rank for node in calls for rank, _ in aligned.graph.calls_of(node)}
    ranks = root.ranks or tuple(sorted(inside))
    if len(ranks) > 1:
        apart = _few_apart(aligned, sorted(inside.union(root.ranks)), root.explains)
        if apart is not None and apart.culprits:
            return replace(apart, circle=root)
    stuck = aligned.stuck_in(min(calls, key=aligned.when), ranks)
    return Circular(ranks, stuck, circle=root, assumed=not root.certain)


def _without_its_half(
    aligned: Aligned, root: Root, node: PairInstance, culprit: int, deviation: Deviation | None
) -> Finding:
    """Return the finding of a rank that left out its half of a pair, or went another way before it."""
    stuck = aligned.stuck_in(node, (culprit,))
    lacks_it = aligned.missing_half(node) == culprit
    if deviation is None or (lacks_it and deviation.kind.is_p2p and not deviation.is_p2p):
        return Unpaired((culprit,), stuck, circle=root, assumed=True)
    own = OwnCall(deviation.kind, deviation.seq)
    if deviation.is_p2p:
        return Unpaired((culprit,), stuck, own, Change(skipped=deviation.wanted), circle=root)
    change = Change(deviation.wanted, last_word=deviation.last)
    if deviation.foreign:
        change = Change(added=(deviation.kind,), last_word=deviation.last)
    return Different((culprit,), replace(stuck, pair=None), own, change, circle=root)


def apart(aligned: Aligned) -> Finding | None:
    """Return the finding of the few that wait apart from all the rest, where text leaves open for whom they wait."""
    waiting = frozenset(aligned.waiting)
    finding = _few_apart(aligned, waiting, waiting)
    return None if finding is None else aligned.reached_by(finding, waiting)


def _few_apart(aligned: Aligned, ranks: Iterable[int], explains: frozenset[int]) -> Finding | None:
    """Return the finding of the smallest class of ranks that would free all others, if it is the only one of its size."""
    replay = Replay(aligned.graph)
    classes: dict[tuple[Node, ...], list[int]] = {}
    for rank in sorted(ranks):
        calls = aligned.graph.open_calls.get(rank, [])
        classes.setdefault(tuple(c.node for c in calls[:4]), []).append(rank)
    if not 1 < len(classes) <= MOST_CLASSES:
        return None
    most = sum(map(len, classes.values()))
    few = [own for own in classes.values() if 2 * len(own) < most and not (replay.stuck(own) & explains)]
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
        # All members of their group are in their call: it stands still itself, and nobody is apart.
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
