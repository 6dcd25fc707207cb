"""Sends and receives that do not fit: of different sizes, or without their counterpart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hangscope.align.matching import numel
from hangscope.align.nodes import Called, PairInstance
from hangscope.align.p2p import Pair
from hangscope.align.waitgraph import Root
from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import OwnCall, Unpaired
from hangscope.explain.generate.peer_groups import one_fault
from hangscope.explain.generate.self_deviation import Deviation, deviations
from hangscope.incident import Absence, State

COMPARED = 128  # ranks of a circle whose programs are looked at, those of its sends and receives first; and pairs that are open


class PairFaults:
    """Finds faulty pairs among the open calls."""

    def __init__(self, aligned: Aligned) -> None:
        self.aligned = aligned

    def unequal(self) -> Unpaired | None:
        """Return the finding of a send and a receive that meet with different sizes; the odd one differs from what the pair exchanged before."""
        roots = [root for root in self.aligned.graph.roots if root.kind == "call"]
        asked = [(node, root) for root in roots for node in root.nodes if isinstance(node, PairInstance)]
        findings = [f for f in (self._unequal(*place) for place in asked[:COMPARED]) if f is not None]
        return one_fault(self.aligned, findings[0], findings[1:]) if findings else None

    def _unequal(self, node: PairInstance, root: Root) -> Unpaired | None:
        pair = self.aligned.graph.pairs[node]
        if pair.send is None or pair.recv is None:
            return None
        kinds = self.aligned.incident.kinds
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
        culprits = (odd[0].rank,) if len(odd) == 1 else ()
        own = odd[0] if len(odd) == 1 else pair.send
        other = pair.recv if own is pair.send else pair.send
        stuck = replace(self.aligned.stuck_in(node, culprits), kind=kinds[other.kind], rank=other.rank)
        finding = Unpaired(culprits, stuck, OwnCall(kinds[own.kind], own.seq), tie=len(odd) != 1)
        return self.aligned.reached_by(finding, root.explains)

    def _usual(self, pair: Pair, rank: int) -> tuple[int, ...] | None:
        """Return the size that a rank exchanged most often with this peer before, in elements."""
        queue = self.aligned.incident.ranks[rank].p2p[pair.key.gid]
        this = (
            pair.send.kind
            if pair.send is not None and pair.send.rank == rank
            else pair.recv.kind
            if pair.recv is not None
            else -1
        )
        wanted = self.aligned.incident.kinds[this]
        sizes = Counter(
            numel(kind.input_sizes)
            for k, s in zip(queue.kind, queue.state, strict=True)
            if (kind := self.aligned.incident.kinds[int(k)]).op == wanted.op
            and (kind.src, kind.dst) == (wanted.src, wanted.dst)
            and int(s) == State.DONE
        )
        return sizes.most_common(1)[0][0] if sizes else None

    def missing_half(self, node: PairInstance) -> int | None:
        """Return the rank that has not made its half of a pair, or None where both are there."""
        pair = self.aligned.graph.pairs[node]
        return node.source if pair.send is None else node.destination if pair.recv is None else None

    def guilty_half(
        self, calls: Sequence[Called], unpaired: Sequence[PairInstance]
    ) -> tuple[PairInstance, int, Deviation | None] | None:
        """Return the send or receive that started a circle of `calls`, whose fault it is, and how its own program shows it.

        A rank whose own half breaks the pattern of its program waits for the wrong peer; one that deviates from its
        pattern near the end left its half out. What several of them do alike is no such sign, and without one a rank
        that starves in an unpaired call itself is only a link of the chain. None where every half has its counterpart
        and no program shows that it was meant for another.
        """
        lacking = ((node, self.missing_half(node)) for node in unpaired)
        # A dump that is older than its peers' lacks what its rank did since.
        missing = [(node, r) for node, r in lacking if r is not None and r not in self.aligned.early]
        pairs = [node for node in calls if isinstance(node, PairInstance)]
        if not pairs:
            return None
        inside = [rank for _, rank in missing]
        inside += [rank for node in (*unpaired, *pairs, *calls) for rank, _ in self.aligned.calls_of(node)]
        deviating = deviations(self.aligned.programs, list(dict.fromkeys(inside))[:COMPARED])
        for node in unpaired:
            pair = self.aligned.graph.pairs[node]
            half = pair.send or pair.recv
            if half is None:
                continue
            row = self.aligned.programs.row_of(half.rank, half.order)
            for deviation in deviating.get(half.rank, ()):
                if deviation.row == row:
                    return node, half.rank, deviation
            if self._to_another(node) == half.rank:
                return node, half.rank, None
        for node, rank in missing:
            if rank in deviating:
                return node, rank, deviating[rank][0]
        if len(deviating) == 1:
            rank, (deviation, *_) = next(iter(deviating.items()))
            if deviation.is_p2p:
                return (unpaired or sorted(pairs, key=self.aligned.when))[0], rank, deviation
        if self.may_be_over(unpaired):
            return None
        opened = self.aligned.graph.open_calls
        free = [(n, r) for n, r in missing if not (opened.get(r) and opened[r][0].node in unpaired)]
        return (*(free or missing)[0], None) if missing else None

    def may_be_over(self, unpaired: Sequence[PairInstance]) -> bool:
        """Return whether several ranks lack halves, and all kept open calls alone: of halves that are over nothing is left."""
        ranks = {self.missing_half(node) for node in unpaired} - {None}
        records = self.aligned.incident.ranks
        return len(ranks) > 1 and all(
            records[rank].absence is Absence.PENDING_ONLY for rank in ranks if rank is not None
        )

    def _to_another(self, node: PairInstance) -> int | None:
        """Return who made a half that is the first of its pair, and whose half another open pair, in use before, lacks; else None."""
        pairs = self.aligned.graph.pairs
        sends = pairs[node].recv is None
        rank = node.source if sends else node.destination
        lacking = (
            (other.source if sends else other.destination, self.missing_half(other))
            for other in pairs
            if other.gid == node.gid and other.index > 0
        )
        return rank if node.index == 0 and (rank, rank) in lacking else None
