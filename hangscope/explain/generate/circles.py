"""Calls that wait for each other in a circle, and sends and receives that do not pair: whose program made it, or which few would undo it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from hangscope.align.matching import numel
from hangscope.align.p2p import PairInstance
from hangscope.align.program import Programs
from hangscope.align.waitgraph import Called, Instance, Node, Root
from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import (
    Change,
    Circular,
    Different,
    Finding,
    Miscounted,
    OwnCall,
    Stalled,
    Unpaired,
)
from hangscope.knowledge.callsite import user_frame
from hangscope.model.incident import Queue

EXAMINED = 128  # pairs, and ranks of a cycle whose programs are examined
LAST_CALLS = 48  # of a rank's program, among which a deviation is looked for
LEAST = 2  # equal counts before the one that differs


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
    programs, nodes = aligned.programs, {r: _first_recorded(aligned, r) for r in ranks[:MOST_CLASSES]}
    first = {rank: node for rank, node in nodes.items() if isinstance(node, Instance)}
    keeps = {rank: programs.keeps_pattern_at(rank, node.gid, node.seq) for rank, node in first.items()}
    off = tuple(rank for rank in ranks if keeps.get(rank) is False)
    on = [rank for rank in ranks if keeps.get(rank)]
    if not (off and on) or len(off) + len(on) < len(ranks):
        return None
    node, made = first[on[0]], first[off[0]]
    own = OwnCall(aligned.views[made.gid].kind_of(off[0], made.seq), made.seq, made.gid)
    row = programs.row_at(off[0], made.gid, made.seq) or 0
    wanted = programs.kinds(off[0], programs.wanted(off[0], row))
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
    small = (own for own in classes.values() if 2 * len(own) < most)
    solving = sorted((len(own), own) for own in small if not aligned.replay.stuck(own) & explains)
    if not solving or [size for size, _ in solving].count(solving[0][0]) > 1:
        return None
    _, own = solving[0]
    stuck_in = Counter(_first_recorded(aligned, r) for r in aligned.waiting if r not in own)
    node = max(stuck_in, key=lambda n: (stuck_in[n], str(n)), default=None)
    made = _first_recorded(aligned, own[0])
    if not isinstance(node, Instance) or not isinstance(made, Instance):
        return None
    view, elsewhere = aligned.views[made.gid], made.gid != node.gid
    if len(own) == 1 and aligned.programs.keeps_pattern_at(own[0], made.gid, made.seq):
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
    views = aligned.views
    kept = (n for n in nodes if not isinstance(n, Instance) or views[n.gid].kind_of(rank, n.seq) is not None)
    return next(kept, nodes[0] if nodes else None)


def unequal_pair(aligned: Aligned) -> Unpaired | None:
    """Return the finding of a send and a receive of different sizes; the one that leaves its rank's pattern deviates."""
    roots = aligned.roots("call")
    pairs = [(node, root) for root in roots for node in root.nodes if isinstance(node, PairInstance)]
    found = (_unequal(aligned, *place) for place in pairs[:EXAMINED])
    return next((finding for finding in found if finding is not None), None)


def _unequal(aligned: Aligned, node: PairInstance, root: Root) -> Unpaired | None:
    pair, kinds, programs = aligned.graph.pairs[node], aligned.incident.kinds, aligned.programs
    assert pair.send is not None and pair.recv is not None  # else the root were who has not posted its half
    sent, received = kinds[pair.send.kind], kinds[pair.recv.kind]
    equal = numel(sent.input_sizes) == numel(received.input_sizes)
    if equal and sent.input_dtypes == received.input_dtypes:
        return None
    calls = (pair.send, pair.recv)
    rows = {call.rank: programs.row_of(call.rank, call.order) for call in calls}
    culprits = [rank for rank, row in rows.items() if programs.keeps_pattern(rank, row) is False]
    named = (culprits[0],) if len(culprits) == 1 else ()
    own, other = (pair.recv, pair.send) if named == (pair.recv.rank,) else (pair.send, pair.recv)
    stuck = replace(aligned.stuck_in(node, named), kind=kinds[other.kind], rank=other.rank)
    finding = Unpaired(named, stuck, OwnCall(kinds[own.kind], own.seq), tie=not named)
    return aligned.reached_by(finding)


def unpaired(aligned: Aligned, root: Root) -> Unpaired | None:
    """Return the finding of the send or receive at which a cycle started: whose program strayed, else who has not posted its half (assumed)."""
    pairs = sorted((n for n in root.nodes if isinstance(n, PairInstance)), key=aligned.when)
    # A dump that is older than its peers' lacks what its rank did since.
    lacking = {node: rank for node in pairs if (rank := aligned.missing_half(node)) is not None}
    missing = {node: rank for node, rank in lacking.items() if rank not in aligned.early}
    inside = [*missing.values(), *(r for n in (*lacking, *pairs) for r, _ in aligned.graph.calls_of(n))]
    strayed = _strayed(aligned.programs, list(dict.fromkeys(inside))[:EXAMINED])
    if len(strayed) == 1:
        ((rank, row),) = strayed.items()
        _, seq, kind, _ = aligned.programs.call(rank, row)
        wanted = aligned.programs.kinds(rank, aligned.programs.wanted(rank, row))
        stuck = aligned.stuck_in(next(iter(lacking), pairs[0]), (rank,))
        return Unpaired((rank,), stuck, OwnCall(kind, seq), Change(skipped=wanted))
    # A rank that is blocked in an unpaired call itself is only a link of the chain.
    opened = aligned.graph.open_calls
    linked = {rank for rank, calls in opened.items() if calls[0].node in lacking}
    for node in [node for node, rank in missing.items() if rank not in linked] or missing:
        return Unpaired((missing[node],), aligned.stuck_in(node, (missing[node],)), assumed=True)
    return None


def _strayed(programs: Programs, ranks: Sequence[int]) -> dict[int, int]:
    """Return by rank the last row at which it alone left the pattern of its own program: what several do alike is nobody's fault."""
    breaks: dict[int, dict[tuple[object, ...], int]] = {}
    for rank in ranks:
        length = len(programs.of(rank).tokens)
        rows = range(max(1, length - LAST_CALLS), length)
        left = (row for row in rows if programs.keeps_pattern(rank, row) is False)
        breaks[rank] = {(_call(programs, rank, row - 1), _call(programs, rank, row)): row for row in left}
    steps = Counter(step for own in breaks.values() for step in own)
    alone = {r: [row for step, row in own.items() if steps[step] == 1] for r, own in breaks.items()}
    return {rank: max(rows) for rank, rows in alone.items() if rows}


def _call(programs: Programs, rank: int, row: int) -> tuple[object, ...]:
    """Return what identifies a call without its peers, which differ from stage to stage."""
    kind = programs.call(rank, row)[2]
    return kind.op, user_frame(kind.stack)


def miscounted(aligned: Aligned) -> Miscounted | None:
    """Return the finding of the one rank whose count before a collective differs from its own habit, if others never made that collective.

    Sends and receives that a recorder counts and does not keep, as gloo's, in `op_id` of the entries (torch/csrc/distributed/c10d, 2.10 of
    the format): rank 1 issued all_reduce 1, 2 and 3 after 8 other operations each and all_reduce 4 after 6; its neighbours wait.
    """
    for view in aligned.views.values():
        gid, ranks = view.group.gid, aligned.incident.ranks
        queues = {r: q for r in view.members if (q := ranks[r].queues.get(gid)) is not None}
        found = {rank: changed for rank, queue in queues.items() if (changed := _changed(queue)) is not None}
        if len(found) != 1:
            continue
        ((rank, (row, count, usual)),) = found.items()
        seq = int(queues[rank].seq[row])
        behind = [r for r, q in queues.items() if r != rank and len(q) and int(q.seq[-1]) < seq]
        node = Instance(gid, seq)
        if not behind or node not in aligned.graph.edges:
            continue
        votes = sum(q.issued is not None and len(q) > LEAST for r, q in queues.items() if r != rank)
        own, stuck = OwnCall(view.kind_of(rank, seq), seq), aligned.stuck_in(node, (rank,))
        finding = Miscounted((rank,), stuck, own, Change(votes=votes), usual=usual, count=count)
        return aligned.reached_by(finding)
    return None


def _changed(queue: Queue) -> tuple[int, int, int] | None:
    """Return (row, operations before it, operations each time before) of the last call before which their number differs."""
    if queue.issued is None or len(queue) <= LEAST:
        return None
    between = np.diff(queue.issued, prepend=0) - 1
    kinds = queue.kind[: len(between)].tolist()  # calls that only lines state were not counted
    steps = list(zip([-1, *kinds], kinds, strict=False))
    counts: dict[tuple[int, int], list[int]] = defaultdict(list)
    last = None
    for row, (step, count) in enumerate(zip(steps, between.tolist(), strict=True)):
        earlier = counts[step]
        if len(earlier) >= LEAST and len(set(earlier)) == 1 and count != earlier[0]:
            last = row, count, earlier[0]
        earlier.append(count)
    return last
