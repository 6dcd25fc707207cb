"""What remains blocked if some ranks are assumed to do what their peers wait for: the test of an explanation.

The wait-for graph is run on with these ranks free: they make the calls that others miss, and their own order of calls holds
nobody back. Whoever is still stuck then is not explained by them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from itertools import chain, groupby, pairwise, product

from hangscope.align.waitgraph import Host, Node, Unnamed, Untold, WaitGraph

MOST_REPLAYED = 64  # ranks of an explanation whose undoing is tried


class Replay:
    """One wait-for graph, ready to be run on."""

    def __init__(self, graph: WaitGraph) -> None:
        # Of whom no line tells for whom they wait, every root may be the one: they count for none, and against none.
        nowhere = {r for r, calls in graph.open_calls.items() if calls and isinstance(calls[0].node, Untold)}
        self.waiting = frozenset(graph.waiting) - nowhere
        self._roots = [root for root in graph.roots if root.kind in ("host", "unseen")]
        self._still = {node for root in graph.roots if root.kind == "call" for node in root.nodes}
        # A rank's open calls, those that run at the same time together.
        self._batches: dict[int, list[list[Node]]] = {}
        self._callers: dict[Node, set[int]] = defaultdict(set)
        for rank, calls in graph.open_calls.items():
            batches = groupby(calls, key=lambda call: call.batch)
            self._batches[rank] = [[call.node for call in batch] for _, batch in batches]
            for call in calls:
                self._callers[call.node].add(rank)
        targets = {node: graph.edges.get(node, {}) for node in self._callers}
        self._partial = {node for node, own in targets.items() if any(isinstance(t, Unnamed) for t in own)}
        self._absent = {
            n: frozenset(t.rank for t in own if isinstance(t, Host)) for n, own in targets.items()
        }

    def stuck(self, undone: Iterable[int]) -> frozenset[int]:
        """Return the ranks that still wait when the ranks `undone` (global) do what is expected of them. Linear in the graph."""
        guilty = frozenset(undone)
        followers: dict[Node, list[Node]] = defaultdict(list)
        lacking: dict[int, list[Node]] = defaultdict(list)
        heads: dict[Node, list[int]] = defaultdict(list)
        blocked = {node: 0 for node in self._callers if self._may_end(node, guilty)}
        for rank, batches in self._batches.items():
            if batches:
                heads[batches[0][0]].append(rank)
            if rank not in guilty:
                for earlier, later in pairwise(batches):
                    for node, before in product(set(later), set(earlier)):
                        followers[before].append(node)
                        if node in blocked:
                            blocked[node] += 1
        for node in blocked:
            missing = self._absent[node] - guilty
            blocked[node] += len(missing)
            for rank in missing:
                lacking[rank].append(node)
        free, done = set(guilty), {node for node, callers in self._callers.items() if callers <= guilty}
        ready = [*done, *(node for node, count in blocked.items() if not count and node not in done)]
        while ready:
            ended = ready.pop()
            done.add(ended)
            freed = [rank for rank in heads[ended] if rank not in free]
            free.update(freed)
            for node in chain(followers[ended], *(lacking[rank] for rank in freed)):
                if node in blocked:
                    blocked[node] -= 1
                    if not blocked[node] and node not in done:
                        ready.append(node)
        return self.waiting - free

    def accounts_for(self, culprits: Collection[int], undone: Iterable[int] = ()) -> frozenset[int]:
        """Return the waiting ranks that are blocked on one of some ranks, or would go on if these (or `undone`) and those without a dump did as expected."""
        unseen = {rank for root in self._roots if root.kind == "unseen" for rank in root.ranks}
        blocked = (root.explains for root in self._roots if not set(culprits).isdisjoint(root.ranks))
        return (self.waiting - self.stuck({*(undone or culprits), *unseen})).union(*blocked)

    def _may_end(self, node: Node, guilty: frozenset[int]) -> bool:
        """Return whether a call ends once all that it lacks comes: not if nobody guilty is in it, or missing, and it is stuck itself."""
        callers = self._callers[node]
        by_itself = node in self._still and not callers & guilty
        return not (by_itself or (node in self._partial and guilty <= callers) or isinstance(node, Untold))
