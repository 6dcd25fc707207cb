"""Which rows of the collective-sequence table are wanted: by rank, group, seq, state, or distance from the divergence."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from hangscope.align.p2p import PairInstance
from hangscope.align.waitgraph import Instance
from hangscope.analysis import Analysis
from hangscope.errors import UsageError
from hangscope.export.frame import queues_of
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import Incident, Queue, State
from hangscope.model.rankset import spans
from hangscope.model.regex import regex
from hangscope.report.words import listed

#: Collectives before and after the first pending one that `around_divergence` keeps.
AROUND = 8
_SEQS = regex(r"(\d{0,18}):(\d{0,18})|(\d{1,18})")


@dataclass(frozen=True, slots=True)
class Selection:
    """What to keep of each queue; the default keeps everything. `ranks` are ranges of global ranks, seqs are inclusive.

    `groups` match a group's name, description, role or label. `pending`: only calls that are not known to be complete.
    `around_divergence`: only calls near the first pending one of each stalled group.
    """

    ranks: tuple[range, ...] = ()
    groups: tuple[str, ...] = ()
    seqs: tuple[int | None, int | None] = (None, None)
    pending: bool = False
    around_divergence: bool = False

    @classmethod
    def of(cls, ranks: str | None, groups: tuple[str, ...], seqs: str | None, **more: bool) -> Selection:
        """Return the selection that a user wrote down. Raises UsageError."""
        wanted = parse_ranks(ranks) if ranks else ()
        return cls(wanted, groups, parse_seqs(seqs) if seqs else (None, None), **more)

    def parts(self, analysis: Analysis) -> Iterator[tuple[Queue, Any]]:
        """Yield the queues with wanted rows, rank by rank, each with the mask of those rows."""
        gids = self._gids(analysis.incident)
        near = stalls(analysis) if self.around_divergence else {}
        for queue in queues_of(analysis.incident):
            if self.ranks and not any(queue.rank in span for span in self.ranks):
                continue
            if gids is not None and queue.gid not in gids:
                continue
            mask = self._mask(queue, analysis.incident, near)
            if mask.any():
                yield queue, mask

    def _mask(self, queue: Queue, incident: Incident, near: dict[tuple[int, bool], int]) -> Any:
        first, last = self.seqs
        mask = queue.seq >= (0 if first is None else first)
        if last is not None:
            mask &= queue.seq <= last
        if self.pending:
            mask &= queue.state != State.DONE
        if self.around_divergence:
            stall = near.get((queue.gid, is_p2p(incident, queue)))
            mask &= (abs(queue.seq - stall) <= AROUND) if stall is not None else False
        return mask

    def _gids(self, incident: Incident) -> Collection[int] | None:
        if not self.groups:
            return None
        known = {g.gid: {g.name, g.desc, g.role, g.label} for g in incident.groups}
        for wanted in self.groups:
            if not any(wanted in names for names in known.values()):
                labels = sorted({g.label for g in incident.groups})
                hint = f"the groups are {listed(labels, 12)}" if labels else ""
                raise UsageError(f"no group is called {wanted!r}", hint)
        return {gid for gid, names in known.items() if not names.isdisjoint(self.groups)}


def is_p2p(incident: Incident, queue: Queue) -> bool:
    """Return whether a queue holds sends and receives, which have seqs of their own."""
    record = incident.ranks[queue.rank]
    return record.p2p.get(queue.gid) is queue


def stalls(analysis: Analysis) -> dict[tuple[int, bool], int]:
    """Return the first pending seq of each stalled group, by gid and whether it is of sends and receives."""
    found: dict[tuple[int, bool], list[int]] = {}
    verdict = analysis.judgement.verdict
    if verdict is not None and verdict.group is not None and verdict.seq is not None:
        found[verdict.group.gid, verdict.is_p2p] = [verdict.seq]
    for rank, calls in analysis.case.graph.open_calls.items():
        for call in calls[:1]:
            if isinstance(call.node, Instance):
                found.setdefault((call.gid, False), []).append(call.node.seq)
            elif isinstance(call.node, PairInstance):
                queue = analysis.incident.ranks[rank].p2p.get(call.gid)
                seqs = queue.seq[queue.order == call.order].tolist() if queue is not None else []
                found.setdefault((call.gid, True), []).extend(seqs)
    return {key: min(seqs) for key, seqs in found.items() if seqs}


def parse_ranks(text: str) -> tuple[range, ...]:
    """Return the ranks of `3,8-15,0-63:8`, as hangscope writes them. Raises UsageError."""
    try:
        return tuple(spans(text))
    except ValueError as error:
        raise UsageError(str(error), "--rank 3,8-15,0-63:8") from None


def parse_seqs(text: str) -> tuple[int | None, int | None]:
    """Return the bounds of `40:60`, `40:`, `:60` or `40`, both included. Raises UsageError."""
    match = _SEQS.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text[:40]!r} is not a range of sequence numbers", "--seq 40:60, 40:, :60 or 40")
    first, last, one = match.groups()
    if one:
        return int(one), int(one)
    return int(first) if first else None, int(last) if last else None
