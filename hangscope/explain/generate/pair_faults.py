"""Sends and receives that do not fit: of different sizes, or without their counterpart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hangscope.align.matching import numel
from hangscope.align.p2p import Half, PairInstance
from hangscope.align.waitgraph import Called, Root
from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import OwnCall, Unpaired
from hangscope.explain.generate.peer_groups import one_fault
from hangscope.explain.generate.self_deviation import Deviation, deviations
from hangscope.model.incident import State

COMPARED = 128  # ranks of a circle whose programs are looked at, those of its sends and receives first; and pairs that are open


def unequal_pair(aligned: Aligned) -> Unpaired | None:
    """Return the finding of a send and a receive that meet with different sizes; the odd one differs from what the pair exchanged before."""
    roots = aligned.roots("call")
    asked = [(node, root) for root in roots for node in root.nodes if isinstance(node, PairInstance)]
    findings = [f for f in (_unequal(aligned, *place) for place in asked[:COMPARED]) if f is not None]
    return one_fault(aligned, findings[0], findings[1:]) if findings else None


def _unequal(aligned: Aligned, node: PairInstance, root: Root) -> Unpaired | None:
    pair, kinds = aligned.graph.pairs[node], aligned.incident.kinds
    if pair.send is None or pair.recv is None:
        return None
    sent, received = kinds[pair.send.kind], kinds[pair.recv.kind]
    equal = numel(sent.input_sizes) == numel(received.input_sizes)
    if equal and sent.input_dtypes == received.input_dtypes:
        return None
    odd = [h for h in (pair.send, pair.recv) if _unlike_before(aligned, h, node.gid)]
    culprits = (odd[0].rank,) if len(odd) == 1 else ()
    own, other = (pair.recv, pair.send) if culprits == (pair.recv.rank,) else (pair.send, pair.recv)
    stuck = replace(aligned.stuck_in(node, culprits), kind=kinds[other.kind], rank=other.rank)
    finding = Unpaired(culprits, stuck, OwnCall(kinds[own.kind], own.seq), tie=not culprits)
    return aligned.reached_by(finding, root.explains)


def _unlike_before(aligned: Aligned, half: Half, gid: int) -> bool:
    """Return whether a half is of another size than what its rank exchanged most often with this peer before."""
    queue, kinds = aligned.incident.ranks[half.rank].p2p[gid], aligned.incident.kinds
    this = kinds[half.kind]
    before = (kinds[k] for k in queue.kind[queue.state >= State.DONE].tolist())
    sizes = Counter(
        numel(k.input_sizes) for k in before if (k.op, k.src, k.dst) == (this.op, this.src, this.dst)
    )
    return bool(sizes) and sizes.most_common(1)[0][0] != numel(this.input_sizes)


def guilty_half(
    aligned: Aligned, calls: Sequence[Called], unpaired: Sequence[PairInstance]
) -> tuple[PairInstance, int, Deviation | None] | None:
    """Return the send or receive that started a circle of `calls`, whose fault it is, and how its own program shows it.

    A rank whose own half breaks the pattern of its program waits for the wrong peer; one that deviates from its
    pattern near the end left its half out. What several of them do alike is no such sign, and without one a rank
    that starves in an unpaired call itself is only a link of the chain. None where every half has its counterpart
    and no program shows that it was meant for another.
    """
    lacking = ((node, aligned.missing_half(node)) for node in unpaired)
    # A dump that is older than its peers' lacks what its rank did since.
    missing = [(node, r) for node, r in lacking if r is not None and r not in aligned.early]
    pairs = [node for node in calls if isinstance(node, PairInstance)]
    if not pairs:
        return None
    inside = [rank for _, rank in missing]
    inside += [rank for node in (*unpaired, *pairs, *calls) for rank, _ in aligned.graph.calls_of(node)]
    deviating = deviations(aligned.programs, list(dict.fromkeys(inside))[:COMPARED])
    for node in unpaired:
        half = aligned.graph.pairs[node].send or aligned.graph.pairs[node].recv
        if half is None:
            continue
        row = aligned.programs.row_of(half.rank, half.order)
        for deviation in deviating.get(half.rank, ()):
            if deviation.row == row:
                return node, half.rank, deviation
    for node, rank in missing:
        if rank in deviating:
            return node, rank, deviating[rank][0]
    if len(deviating) == 1:
        rank, (deviation, *_) = next(iter(deviating.items()))
        if deviation.is_p2p:
            return (unpaired or sorted(pairs, key=aligned.when))[0], rank, deviation
    opened = aligned.graph.open_calls
    free = [(n, r) for n, r in missing if not (opened.get(r) and opened[r][0].node in unpaired)]
    return (*(free or missing)[0], None) if missing else None
