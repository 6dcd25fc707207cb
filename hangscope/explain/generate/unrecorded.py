"""Sends and receives that a recorder counts and does not keep, as gloo's: whose number of them differs from each time before.

    rank 1: all_reduce 1, 2 and 3 after 8 other operations each, all_reduce 4 after 6
    ranks 0 and 2: all_reduce 1, 2 and 3 after 4 other operations each, no all_reduce 4

Rank 1 left out two, and its neighbours wait for them. The count is `op_id` of the entries (torch/csrc/distributed/c10d, 2.10 of the format).
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from hangscope.align.waitgraph import Instance
from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import Change, Miscounted, OwnCall
from hangscope.model.incident import Queue

LEAST = 2  # equal counts before the one that differs


def miscounted(aligned: Aligned) -> Miscounted | None:
    """Return the finding of the one rank whose count before a collective differs from its own habit, if others never made that collective."""
    for view in aligned.views.values():
        gid, found = view.group.gid, dict[int, tuple[int, int, int]]()
        queues = {r: q for r in view.members if (q := aligned.incident.ranks[r].queues.get(gid)) is not None}
        for rank, queue in queues.items():
            if (changed := _changed(queue)) is not None:
                found[rank] = changed
        if len(found) != 1:
            continue
        ((rank, (row, count, usual)),) = found.items()
        seq = int(queues[rank].seq[row])
        behind = [r for r, q in queues.items() if r != rank and len(q) and int(q.seq[-1]) < seq]
        node = Instance(gid, seq)
        if not behind or node not in aligned.graph.edges:
            continue
        votes = sum(q.issued is not None and len(q) > LEAST for r, q in queues.items() if r != rank)
        own = OwnCall(view.kind_of(rank, seq), seq)
        finding = Miscounted(
            (rank,), aligned.stuck_in(node, (rank,)), own, Change(votes=votes), usual=usual, count=count
        )
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
