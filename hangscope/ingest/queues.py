"""From a rank's recording to its queues: the calls split by group, their kinds numbered for the whole job.

Ranks of one role share their columns (`members.py`), so they share the split as well: at 16,384 ranks it is made a
handful of times, and only the enqueue times are a rank's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from hangscope.ingest.groups import GroupIndex
from hangscope.ingest.kinds import KindTable
from hangscope.ingest.recorder.recording import COMPLETED, ISSUED, Recording
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import Absence, Frontier, Queue, RankRecord, State


@dataclass(frozen=True, slots=True)
class _Part:
    """The calls of one local group in one numbering: `rows` are their positions in the recording, or a slice of all."""

    place: int
    p2p: bool
    rows: Any
    seq: Any
    kind: Any
    state: Any
    order: Any
    starts_late: bool


@dataclass(frozen=True, slots=True)
class _Split:
    """A recording's parts, and what its columns say as a whole."""

    parts: tuple[_Part, ...]
    pending_only: bool
    ring_wrapped: bool
    recording: Recording  # keeps the columns alive by whose identity the split is found


_SHARED = ("group", "seq", "kind", "state", "order")  # columns that ranks of one role have in common


class QueueBuilder:
    """Fills rank records with their queues. One instance per incident, made of all its recordings."""

    def __init__(self, index: GroupIndex, recordings: Iterable[Recording]) -> None:
        self._index = index
        self.kinds = KindTable()
        self._mappings: dict[tuple[int, int], tuple[Any, Recording]] = {}
        self._splits: dict[tuple[Any, ...], _Split] = {}
        for recording in recordings:
            self._mapping(recording)

    def fill(self, record: RankRecord, recording: Recording) -> None:
        """Set a rank's queues, its host and process, and what is missing of it."""
        record.host, record.pid = recording.host, recording.pid
        local = self._index.local[record.rank]
        places = range(len(recording.groups))
        gids = [self._index.gid[local[place]] if place in local else None for place in places]
        split = self._split(recording, gids)
        created = np.frombuffer(recording.columns["created"], np.int64)
        optional = (recording.columns.get(name) for name in (COMPLETED, ISSUED))
        completed, issued = (None if c is None else np.frombuffer(c, np.int64) for c in optional)
        own = self.kinds.with_sizes(recording, self._mapping(recording)) if recording.own_sizes else None
        for gid, part in sorted(
            ((gids[p.place] or 0, p) for p in split.parts), key=lambda x: (x[0], x[1].p2p)
        ):
            (record.p2p if part.p2p else record.queues)[gid] = Queue(
                record.rank, gid,
                seq=part.seq, kind=part.kind if own is None else own[part.rows], state=part.state, created=created[part.rows], order=part.order,
                overwritten=part.starts_late and split.ring_wrapped, pending_only=split.pending_only,
                tells_completion=recording.source not in ("nccl_log", "detail_log"),
                completed=completed if completed is None else completed[part.rows],
                issued=issued if issued is None else issued[part.rows],
            )  # fmt: skip
        for gid, frontier in self._frontiers(record.rank, recording).items():
            _set_frontier(record, gid, frontier)
        if not len(recording):
            empty = Absence.EMPTY_LOG if recording.source == "nccl_log" else Absence.EMPTY_DUMP
            record.absence = empty if not recording.status else None
        elif split.pending_only:
            record.absence = Absence.PENDING_ONLY

    def _split(self, recording: Recording, gids: list[int | None]) -> _Split:
        # Local groups that are one group are found by the pattern of their gids, which ranks of a role have in common; their gids differ.
        first: dict[int | None, int] = {None: -1}
        pattern = tuple(first.setdefault(gid, place) for place, gid in enumerate(gids))
        columns = recording.columns
        shared = (*(columns[name] for name in _SHARED), recording.kinds, recording.stacks)
        key = (*map(id, shared), pattern)
        if key not in self._splits:
            self._splits[key] = self._new_split(recording, pattern)
        return self._splits[key]

    def _new_split(self, recording: Recording, pattern: tuple[int, ...]) -> _Split:
        found = {name: recording.columns[name] for name in _SHARED}
        columns = {name: np.frombuffer(column, column.typecode) for name, column in found.items()}
        mapping = self._mapping(recording)
        kind = mapping[columns["kind"]] if len(mapping) else np.empty(0, np.int32)
        p2p_kinds = np.array([row[6] is not None for row in recording.kinds], dtype=bool)
        is_p2p = p2p_kinds[columns["kind"]] if len(p2p_kinds) else np.empty(0, bool)
        parts = []
        places = np.array(pattern, np.int64)[columns["group"]]
        for mine in _runs(places):
            if places[mine[0]] < 0:
                continue
            lives = _last_life(*(columns[name][mine] for name in ("group", "seq", "order")))
            mine = mine[np.isin(columns["group"][mine], lives)]
            for p2p in (False, True):
                own = mine[is_p2p[mine] == p2p]
                if not len(own):
                    continue
                rows = slice(None) if len(own) == len(recording) else own
                seq, state, order = (columns[name][rows] for name in ("seq", "state", "order"))
                place = int(places[own[0]])
                parts.append(_Part(place, p2p, rows, seq, kind[rows], state, order, int(seq.min()) > 1))
        seen = len(recording)
        return _Split(
            tuple(parts),
            pending_only=seen > 0 and not bool(np.any(columns["state"] >= State.DONE)),
            ring_wrapped=seen > 0 and int(columns["order"].max()) + 1 > seen,
            recording=recording,
        )

    def _mapping(self, recording: Recording) -> Any:
        key = (id(recording.kinds), id(recording.stacks))
        if key not in self._mappings:
            self._mappings[key] = self.kinds.mapping(recording), recording
        return self._mappings[key][0]

    def _frontiers(self, rank: int, recording: Recording) -> dict[int, Frontier]:
        placed = self._index.status_of[rank]
        result = {}
        # Of a group that was made anew, the newest local id counts.
        by_age = sorted(recording.status.items(), key=lambda item: (len(item[0]), item[0]))
        for local_id, (enqueued, started, completed) in by_age:
            identity = placed.get(local_id)
            if identity is not None:
                result[self._index.gid[identity]] = Frontier(
                    max(0, enqueued), None if started < 0 else started, max(0, completed)
                )
        return result


def _runs(column: Any) -> list[Any]:
    """Return for each value of a column the positions of its rows, by value."""
    order = np.argsort(column, kind="stable")
    return [rows for rows in np.split(order, np.flatnonzero(np.diff(column[order])) + 1) if len(rows)]


def _last_life(group: Any, seq: Any, order: Any) -> list[int]:
    """Return which of the local groups that are one group to keep: where it was made anew, its calls count from one again."""
    lives = ((seq[rows], order[rows].max(), group[rows[0]]) for rows in _runs(group))
    seen = sorted((int(newest), int(seqs.min()), int(seqs.max()), int(name)) for seqs, newest, name in lives)
    kept = seen[-1:]
    for life in reversed(seen[:-1]):
        if life[2] >= kept[-1][1]:
            break
        kept.append(life)
    return [name for *_, name in kept]


def _set_frontier(record: RankRecord, gid: int, frontier: Frontier) -> None:
    """Give a group's frontier to the queue in whose numbering it counts."""
    both = [q for q in (record.queues.get(gid), record.p2p.get(gid)) if q is not None]
    if not both:
        none = np.empty(0, np.int64)
        unseen = (frontier.enqueued or 0) > 0
        record.queues[gid] = Queue(
            record.rank, gid, none, none, none, none, none, frontier, overwritten=unseen
        )
        return
    # pg_status counts the last work on the group, in the numbering of that work: collective or point-to-point.
    latest = max(both, key=lambda q: int(q.order.max())) if len(both) > 1 else both[0]
    latest.frontier = frontier
    sends = record.p2p.get(gid)
    if sends is not None and latest is sends and _in_p2p_numbers(frontier, sends, record.queues.get(gid)):
        # Members of a batch stay "scheduled" in the recorder; the group's frontier says that they are over.
        sends.state = np.where(sends.seq <= (frontier.completed or 0), np.int8(State.DONE), sends.state)


def _in_p2p_numbers(frontier: Frontier, sends: Queue, collectives: Queue | None) -> bool:
    """Return whether the last completed work of a group, whose last enqueued is a send or receive, was one as well.

    Each is given in its own numbering, and a batch of sends may be counted as a collective. A completed number above the
    enqueued one or above the newest send, or that of the last collective known to be complete, is a collective's.
    """
    if frontier.completed is None or frontier.completed > min(frontier.enqueued or 0, int(sends.seq.max())):
        return False
    if collectives is None:
        return True
    done = collectives.seq[collectives.state >= State.DONE]
    return not len(done) or int(max(done)) != frontier.completed
