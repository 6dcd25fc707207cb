"""Calls that wait for each other in a circle: whose program made it, or which few alone would undo it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hangscope.align.nodes import Called, Instance, Node, PairInstance
from hangscope.align.waitgraph import Root
from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import Change, Circular, Different, Finding, OwnCall, Stalled, Unpaired
from hangscope.explain.generate.pair_faults import PairFaults
from hangscope.explain.generate.peer_groups import counted_apart, one_fault
from hangscope.explain.generate.program_divergence import ProgramDivergence
from hangscope.explain.generate.self_deviation import Deviation
from hangscope.explain.predict import Replay

MOST_CLASSES = 64  # of ranks in a circle, each of which is imagined to have behaved


class Circles:
    """Finds circular waits, and ranks that wait apart from all others."""

    def __init__(self, aligned: Aligned) -> None:
        self.aligned = aligned
        self.pairs = PairFaults(aligned)

    def find(self) -> Finding | None:
        """Return the finding of the first circle, with those who made it where their programs tell."""
        circles = [root for root in self.aligned.graph.roots if root.kind == "cycle" and root.explains]
        if not circles:
            return self._everybody_waits()
        root = circles[0]
        parted = ProgramDivergence(self.aligned).find(set(root.nodes))
        if parted is not None:
            return self.aligned.reached_by(replace(parted, circle=root), root.explains | set(root.ranks))
        first = self.aligned.reached_by(self._in_circle(root), root.explains)
        if not isinstance(first, Unpaired):
            return first
        others = ((self._in_circle(other), other.explains) for other in circles[1:MOST_CLASSES])
        return one_fault(self.aligned, first, [self.aligned.reached_by(*other) for other in others])

    def _everybody_waits(self) -> Finding | None:
        """Return the finding of a job all of whose ranks are blocked, each alone in a call of a group whose members nobody recorded.

        Whoever belongs to these groups waits in another call, so that a circle of them waits, whoever is in it.
        """
        opened, stood = self.aligned.graph.open_calls, self.aligned.stated.whereabouts
        ranks = tuple(sorted(self.aligned.incident.ranks))
        if not all(
            opened.get(r) and r in stood and stood[r].inside and stood[r].kind == "stack" for r in ranks
        ):
            return None
        nodes = {opened[rank][0].node for rank in ranks}
        alone = [
            n for n in nodes if isinstance(n, Instance) and not self.aligned.views[n.gid].group.members_known
        ]
        if len(ranks) < 2 or len(alone) < len(ranks):
            return None
        stuck = self.aligned.stuck_in(min(alone, key=self.aligned.when))
        root = Root("cycle", tuple(alone), (), frozenset(ranks), False)
        return self.aligned.reached_by(Circular((), stuck, circle=root, assumed=True), root.explains)

    def _in_circle(self, root: Root) -> Finding:
        calls = [n for n in root.nodes if isinstance(n, Called)]
        unpaired = sorted(
            (n for n in calls if isinstance(n, PairInstance) and self.pairs.missing_half(n) is not None),
            key=self.aligned.when,
        )
        counted = {n: differs for n in unpaired if (differs := counted_apart(self.aligned, n)) is not None}
        if counted:
            node, (_, more) = next(iter(counted.items()))
            ranks = tuple(sorted({rank for rank, _ in counted.values()}))
            return Unpaired(ranks, self.aligned.stuck_in(node, ranks), circle=root, more=more)
        guilty = self.pairs.guilty_half(calls, unpaired)
        if guilty is not None:
            return self._without_its_half(root, *guilty)
        if self.pairs.may_be_over(unpaired):
            return Unpaired((), self.aligned.stuck_in(unpaired[0]), circle=root, assumed=True, tie=True)
        in_calls = (r for r, cs in self.aligned.graph.open_calls.items() if any(c.node in calls for c in cs))
        ranks = root.ranks or tuple(sorted(in_calls))
        if len(ranks) > 1:
            inside = {r for n in root.nodes if isinstance(n, Instance) for r, _ in self.aligned.calls_of(n)}
            apart = self._few_apart(sorted(inside | set(root.ranks)), root.explains)
            if apart is not None and apart.culprits:
                return replace(apart, circle=root)
        stuck = self.aligned.stuck_in(min(calls, key=self.aligned.when), ranks)
        return Circular(ranks, stuck, circle=root, assumed=not root.certain)

    def _without_its_half(
        self, root: Root, node: PairInstance, culprit: int, deviation: Deviation | None
    ) -> Finding:
        """Return the finding of a rank that left out its half of a pair, or went another way before it."""
        stuck = self.aligned.stuck_in(node, (culprit,))
        lacks_it = self.pairs.missing_half(node) == culprit
        if deviation is None or (lacks_it and deviation.kind.is_p2p and not deviation.is_p2p):
            return Unpaired((culprit,), stuck, circle=root, assumed=True)
        own = OwnCall(deviation.kind, deviation.seq)
        if deviation.is_p2p:
            return Unpaired((culprit,), stuck, own, Change(skipped=deviation.wanted), circle=root)
        change = Change(
            skipped=() if deviation.foreign else deviation.wanted,
            added=(deviation.kind,) if deviation.foreign else (),
            last_word=deviation.last,
        )
        return Different((culprit,), replace(stuck, pair=None), own, change, circle=root)

    def apart(self) -> Finding | None:
        """Return the finding of the few that wait apart from all the rest, where text leaves open for whom they wait."""
        waiting = frozenset(self.aligned.waiting)
        finding = self._few_apart(self.aligned.waiting, waiting)
        return None if finding is None else self.aligned.reached_by(finding, waiting)

    def _few_apart(self, ranks: Sequence[int], explains: frozenset[int]) -> Finding | None:
        """Return the finding of the smallest class of ranks that would free all others, if it is the only one of its size."""
        replay = Replay(self.aligned.graph)
        classes: dict[tuple[Node, ...], list[int]] = {}
        for rank in ranks:
            calls = self.aligned.graph.open_calls.get(rank, [])
            classes.setdefault(tuple(c.node for c in calls[:4]), []).append(rank)
        if not 1 < len(classes) <= MOST_CLASSES:
            return None
        solving = sorted(
            (
                (len(own), own, nodes)
                for nodes, own in classes.items()
                if 2 * len(own) < len(ranks) and not (replay.stuck(own) & explains)
            ),
            key=lambda found: found[:2],
        )
        if not solving or (len(solving) > 1 and solving[0][0] == solving[1][0]):
            return None
        _, own, _ = solving[0]
        others = [r for r in self.aligned.waiting if r not in own]
        stuck_in = Counter(self._first_recorded(r) for r in others)
        node = max(stuck_in, key=lambda n: (stuck_in[n], str(n)), default=None)
        made = self._first_recorded(own[0])
        if not isinstance(node, Instance) or not isinstance(made, Instance):
            return None
        view = self.aligned.views[made.gid]
        row = self.aligned.programs.of(own[0]).row_of(made.gid, made.seq)
        if len(own) == 1 and row is not None and self.aligned.programs.keeps_pattern(own[0], row):
            return None
        if len(view.members) > 1 and set(view.members) <= set(own):
            # All members of their group are in their call: it stands still itself, and nobody is apart.
            return Stalled((), self.aligned.stuck_in(made), assumed=True)
        call = OwnCall(view.kind_of(own[0], made.seq), made.seq, made.gid if made.gid != node.gid else None)
        change = Change(last_word=True, elsewhere=made.gid != node.gid)
        return Different(tuple(own), self.aligned.stuck_in(node, own), call, change, assumed=True)

    def _first_recorded(self, rank: int) -> Node | None:
        """Return the first open call of a rank of which more is left than its number, or the first where there is none."""
        nodes = [call.node for call in self.aligned.graph.open_calls.get(rank, [])]
        recorded = (
            n
            for n in nodes
            if not isinstance(n, Instance) or self.aligned.views[n.gid].kind_of(rank, n.seq) is not None
        )
        return next(recorded, nodes[0] if nodes else None)
