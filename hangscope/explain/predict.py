"""What still stands still when some ranks are imagined to do what their peers wait for: the test of an explanation.

The wait-for graph is run on with these ranks free: they make the calls that others miss, and their own order of calls holds
nobody back. Whoever is still stuck then is not explained by them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from hangscope.align.nodes import Host, Node, Unnamed, Untold
from hangscope.align.waitgraph import WaitGraph

MOST_REPLAYED = 64  # ranks of an explanation whose undoing is tried


class Replay:
    """One wait-for graph, ready to be run on."""

    def __init__(self, graph: WaitGraph) -> None:
        self.waiting = frozenset(graph.waiting)
        self._open = {rank: calls for rank, calls in graph.open_calls.items() if calls}
        self._callers: dict[Node, set[int]] = defaultdict(set)
        self._absent: dict[Node, frozenset[int]] = {}
        self._partial: set[Node] = set()
        self._still = {node for root in graph.roots if root.kind == "call" for node in root.nodes}
        self._before: dict[int, list[tuple[Node, tuple[Node, ...]]]] = {}
        for rank, calls in self._open.items():
            order: list[tuple[Node, tuple[Node, ...]]] = []
            earlier: tuple[Node, ...] = ()
            current: list[Node] = []
            batch = None
            for call in calls:
                if batch is not None and call.batch != batch:
                    earlier, current = tuple(current), []
                batch = call.batch
                current.append(call.node)
                self._callers[call.node].add(rank)
                if earlier:
                    order.append((call.node, earlier))
            self._before[rank] = order
        for node in graph.nodes:
            if not isinstance(node, Host | Unnamed):
                targets = graph.targets(node)
                if any(isinstance(t, Unnamed) for t, _ in targets):
                    self._partial.add(node)
                self._absent[node] = frozenset(t.rank for t, _ in targets if isinstance(t, Host))

    def stuck(self, undone: Iterable[int]) -> frozenset[int]:
        """Return the ranks that still wait when the ranks `undone` (global) do what is expected of them."""
        free = set(undone)
        needs: dict[Node, set[Node]] = defaultdict(set)
        for rank, order in self._before.items():
            if rank not in free:
                for node, earlier in order:
                    needs[node].update(earlier)
        guilty = frozenset(free)
        done: set[Node] = {node for node, callers in self._callers.items() if callers <= guilty}
        todo = [node for node in self._callers if node not in done]
        moved = True
        while moved and todo:
            moved, rest = False, []
            for node in todo:
                absent = self._absent.get(node, frozenset())
                # A call that all its members joined, and that waits for nothing, stands still by itself.
                by_itself = node in self._still and not self._callers[node] & guilty
                by_itself = by_itself or (node in self._partial and not guilty - self._callers[node])
                if isinstance(node, Untold) or by_itself or not absent <= free or not needs[node] <= done:
                    rest.append(node)
                    continue
                done.add(node)
                moved = True
            todo = rest
            for rank, calls in self._open.items():
                if rank not in free and calls[0].node in done:
                    free.add(rank)
                    moved = True
        return frozenset(r for r in self.waiting if r not in free)
