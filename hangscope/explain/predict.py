"""What still stands still when some ranks are imagined to do what their peers wait for: the test of an explanation.

The wait-for graph is run on with these ranks free: they make the calls that others miss, and their own order of calls holds
nobody back. Whoever is still stuck then is not explained by them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import groupby, pairwise

from hangscope.align.waitgraph import Host, Node, Unnamed, Untold, WaitGraph

MOST_REPLAYED = 64  # ranks of an explanation whose undoing is tried


class Replay:
    """One wait-for graph, ready to be run on."""

    def __init__(self, graph: WaitGraph) -> None:
        # Of whom no line tells for whom they wait, every root may be the one: they count for none, and against none.
        nowhere = {r for r, calls in graph.open_calls.items() if calls and isinstance(calls[0].node, Untold)}
        self.waiting = frozenset(graph.waiting) - nowhere
        self._batches: dict[
            int, list[list[Node]]
        ] = {}  # a rank's open calls, those that run at the same time together
        self._callers: dict[Node, set[int]] = defaultdict(set)
        self._absent: dict[Node, frozenset[int]] = {}
        self._partial: set[Node] = set()
        self._still = {node for root in graph.roots if root.kind == "call" for node in root.nodes}
        for rank, calls in graph.open_calls.items():
            batches = groupby(calls, key=lambda call: call.batch)
            self._batches[rank] = [[call.node for call in batch] for _, batch in batches]
            for call in calls:
                self._callers[call.node].add(rank)
        for node in self._callers:
            targets = list(graph.edges.get(node, ()))
            if any(isinstance(target, Unnamed) for target in targets):
                self._partial.add(node)
            self._absent[node] = frozenset(target.rank for target in targets if isinstance(target, Host))

    def stuck(self, undone: Iterable[int]) -> frozenset[int]:
        """Return the ranks that still wait when the ranks `undone` (global) do what is expected of them."""
        guilty = frozenset(undone)
        free, needs = set(guilty), defaultdict[Node, set[Node]](set)
        for batches in (batches for rank, batches in self._batches.items() if rank not in guilty):
            for earlier, later in pairwise(batches):
                for node in later:
                    needs[node].update(earlier)
        done = {node for node, callers in self._callers.items() if callers <= guilty}
        todo = [node for node in self._callers if node not in done and not isinstance(node, Untold)]
        moved = True
        while moved:
            ready = {node for node in todo if self._may_end(node, guilty, free) and needs[node] <= done}
            done |= ready
            todo = [node for node in todo if node not in ready]
            freed = {r for r, batches in self._batches.items() if batches and batches[0][0] in done} - free
            free |= freed
            moved = bool(ready or freed)
        return self.waiting - free

    def _may_end(self, node: Node, guilty: frozenset[int], free: set[int]) -> bool:
        """Return whether all that a call lacks will come, unless it stands still by itself: nobody guilty is in it, or missing."""
        callers = self._callers[node]
        by_itself = node in self._still and not callers & guilty
        by_itself = by_itself or (node in self._partial and guilty <= callers)
        return not by_itself and self._absent[node] <= free
