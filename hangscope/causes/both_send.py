"""The rule about two ranks that both send where NCCL's lines hold their sends and receives, but no line says that any ended."""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from hangscope.causes.case import Case, Match, answer
from hangscope.explain.finding import Nothing
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import CallKind

Pair = tuple[int, int]  # source and destination


@dataclass(slots=True)
class _Posted:
    """What the members of one group posted: sends and receives by pair, and the last operation of each, with its pair.

    Ranks are global; lines of NCCL's that do not tell a communicator's members count as its ranks do.
    """

    sends: Counter[Pair] = field(default_factory=Counter)
    recvs: Counter[Pair] = field(default_factory=Counter)
    last: dict[int, tuple[CallKind, Pair]] = field(default_factory=dict)

    def add(self, rank: int, kind: CallKind) -> None:
        """Count one operation of a rank."""
        own, peer = (kind.src, kind.dst) if kind.op == "send" else (kind.dst, kind.src)
        here = rank if own is None or own < 0 else own
        pair = (here, peer or 0) if kind.op == "send" else (peer or 0, here)
        (self.sends if kind.op == "send" else self.recvs)[pair] += 1
        self.last[here] = (kind, pair)

    def facing(self) -> Pair | None:
        """Return a pair of ranks whose last operations are sends to each other, each beyond the receives of the other one."""
        for rank, (kind, pair) in sorted(self.last.items()):
            other = self.last.get(pair[1])
            back = pair[::-1]
            both = kind.op == "send" and other is not None and other[0].op == "send" and other[1] == back
            if both and rank < pair[1] and all(self.sends[p] > self.recvs[p] for p in (pair, back)):
                return pair
        return None


def both_send(case: Case) -> Match | None:
    """Two ranks whose last operations are sends to each other, each beyond the receives that the other one posted."""
    if not isinstance(case.finding, Nothing) or any(r.dump_file for r in case.incident.ranks.values()):
        return None
    for gid in sorted({gid for record in case.incident.ranks.values() for gid in record.p2p}):
        posted = _Posted()
        for rank, record in sorted(case.incident.ranks.items()):
            for index in record.p2p[gid].kind.tolist() if gid in record.p2p else ():
                posted.add(rank, case.incident.kinds[index])
        if (pair := posted.facing()) is not None:
            return _answer(case, posted, pair)
    return None


def _answer(case: Case, posted: _Posted, pair: Pair) -> Match:
    source, target = pair
    sizes = posted.last[source][0].input_sizes
    size = f" of {sizes[0][0]} elements" if sizes and sizes[0] else ""
    number = posted.recvs[pair] + 1
    return answer(
        "p2p_mismatch",
        (),
        f"rank {source} posted {posted.sends[pair]} sends{size} to rank {target}, which posted {posted.recvs[pair]} receives and then a send back: from number {number} on both are sending and neither has a recv posted",
        f"Check the order of sends and receives of ranks {source} and {target} at number {number}, and issue both directions in one batch_isend_irecv.",
        strength=0,
        evidence=[case.recorded(rank, f"rank {rank}: its last operation is a send") for rank in pair],
    )
