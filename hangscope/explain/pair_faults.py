"""Sends and receives that do not fit: of different sizes, or without their counterpart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hangscope.align.matching import numel
from hangscope.align.nodes import Called, PairInstance
from hangscope.align.p2p import Pair
from hangscope.align.waitgraph import Root
from hangscope.explain.finding import Finding
from hangscope.explain.scene import Scene
from hangscope.explain.straying import Stray, strays
from hangscope.incident import State

COMPARED = 128  # ranks of a circle whose programs are looked at, those of its sends and receives first


class PairFaults:
    """Finds faulty pairs among the open calls."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def unequal(self) -> Finding | None:
        """Return the finding of a send and a receive that meet with different sizes; the odd one differs from what the pair exchanged before."""
        for root in self.scene.graph.roots:
            for node in root.nodes if root.kind == "call" else ():
                finding = self._unequal(node, root) if isinstance(node, PairInstance) else None
                if finding is not None:
                    return finding
        return None

    def _unequal(self, node: PairInstance, root: Root) -> Finding | None:
        pair = self.scene.graph.pairs[node]
        if pair.send is None or pair.recv is None:
            return None
        kinds = self.scene.incident.kinds
        sent, received = kinds[pair.send.kind], kinds[pair.recv.kind]
        if (
            numel(sent.input_sizes) == numel(received.input_sizes)
            and sent.input_dtypes == received.input_dtypes
        ):
            return None
        odd = [
            h
            for h in (pair.send, pair.recv)
            if (usual := self._usual(pair, h.rank)) is not None and numel(kinds[h.kind].input_sizes) != usual
        ]
        finding = self.scene.at(node, "unpaired", (odd[0].rank,) if len(odd) == 1 else ())
        finding.root, finding.tie = root, len(odd) != 1
        own = odd[0] if len(odd) == 1 else pair.send
        other = pair.recv if own is pair.send else pair.send
        finding.own_kind, finding.own_seq = kinds[own.kind], own.seq
        finding.waiting_kind, finding.waiting_rank = kinds[other.kind], other.rank
        return self.scene.with_waiting(finding, set(root.explains))

    def _usual(self, pair: Pair, rank: int) -> tuple[int, ...] | None:
        """Return the size that a rank exchanged most often with this peer before, in elements."""
        queue = self.scene.incident.ranks[rank].p2p[pair.key.gid]
        this = (
            pair.send.kind
            if pair.send is not None and pair.send.rank == rank
            else pair.recv.kind
            if pair.recv is not None
            else -1
        )
        wanted = self.scene.incident.kinds[this]
        sizes = Counter(
            numel(kind.input_sizes)
            for k, s in zip(queue.kind, queue.state, strict=True)
            if (kind := self.scene.incident.kinds[int(k)]).op == wanted.op
            and (kind.src, kind.dst) == (wanted.src, wanted.dst)
            and int(s) == State.DONE
        )
        return sizes.most_common(1)[0][0] if sizes else None

    def missing_half(self, node: PairInstance) -> int | None:
        """Return the rank that has not made its half of a pair, or None where both are there."""
        pair = self.scene.graph.pairs[node]
        return node.source if pair.send is None else node.destination if pair.recv is None else None

    def guilty_half(
        self, calls: Sequence[Called], unpaired: Sequence[PairInstance]
    ) -> tuple[PairInstance, int, Stray | None] | None:
        """Return the send or receive that started a circle of `calls`, whose fault it is, and how its own program shows it.

        A rank whose own half breaks the pattern of its program waits for the wrong peer; one that strays from its
        pattern near the end left its half out. What several of them do alike is no such sign, and without one a rank
        that starves in an unpaired call itself is only a link of the chain. None where every half has its counterpart
        and no program shows that it was meant for another.
        """
        missing = [(node, rank) for node in unpaired if (rank := self.missing_half(node)) is not None]
        pairs = [node for node in calls if isinstance(node, PairInstance)]
        if not pairs:
            return None
        inside = [rank for _, rank in missing]
        inside += [rank for node in (*unpaired, *pairs, *calls) for rank, _ in self.scene.calls_of(node)]
        astray = strays(self.scene.programs, list(dict.fromkeys(inside))[:COMPARED])
        for node in unpaired:
            pair = self.scene.graph.pairs[node]
            half = pair.send or pair.recv
            if half is None:
                continue
            row = self.scene.programs.row_of(half.rank, half.order)
            for stray in astray.get(half.rank, ()):
                if stray.row == row:
                    return node, half.rank, stray
        for node, rank in missing:
            if rank in astray:
                return node, rank, astray[rank][0]
        if len(astray) == 1:
            rank, (stray, *_) = next(iter(astray.items()))
            if unpaired or stray.is_p2p:
                return (unpaired or sorted(pairs, key=self.scene.when))[0], rank, stray
        for node, rank in missing:
            opened = self.scene.graph.open_calls.get(rank, [])
            if not (opened and opened[0].node in unpaired):
                return node, rank, None
        return (*missing[0], None) if missing else None
