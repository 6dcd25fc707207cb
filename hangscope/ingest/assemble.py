"""Put the readings of all files together into one Incident.

Decides which file speaks for which rank, which local group is which, and keeps a typed reason for everything that is
not known. No cause is decided here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from hangscope.errors import Note
from hangscope.incident import Absence, CallKind, Frame, Frontier, Incident, Input, Queue, RankRecord, State
from hangscope.ingest import snapshots, text_evidence
from hangscope.ingest.groups import GroupIndex, detail_helpers, roles
from hangscope.ingest.reading import Reading
from hangscope.ingest.recording import Recording


def assemble(readings: Sequence[Reading], *, world_size: int | None = None, attempt: int | str | None = None) -> Incident:
    """Return the incident that the readings describe.

    `world_size` overrides what the inputs say; `attempt` picks a restart attempt (default: the last one; "all": mix).
    """
    notes = [note for reading in readings for note in reading.notes]
    readings = _of_attempt(sorted(readings, key=lambda r: r.file), attempt, notes)
    claims = []
    for reading in readings:
        for recording in reading.recordings:
            if recording.source == "flight_recorder":
                notes += [Note(n.code, n.message, reading.file, n.line, n.hint) for n in recording.notes]
                claim = snapshots.claim_rank(reading.file, recording, notes)
                if claim is not None:
                    claims.append(claim)
    text = text_evidence.collect(readings, notes)
    claims += text.claims_beside({c.rank for c in claims})
    chosen, unchanged, stale = snapshots.choose(claims, notes)
    index = GroupIndex(chosen)
    if any(detail_helpers(claim.recording) for claim in chosen.values()):
        notes.append(Note("detail_recording", "recorded under TORCH_DISTRIBUTED_DEBUG=DETAIL, which stops a call that does not fit its peers' before it is recorded: dumps alone cannot show such a hang", hint="the logs name the calls of both sides"))
    size = _world_size(index, chosen, text.world_size, world_size)
    index.complete(size)
    kinds = _Kinds()
    ranks: dict[int, RankRecord] = {}
    for rank in range(size):
        record = ranks[rank] = RankRecord(rank)
        claim = chosen.get(rank)
        if claim is None:
            record.absence = Absence.NO_DUMP
            continue
        record.calls_file = claim.file
        if claim.recording.source == "flight_recorder":
            record.dump_file = claim.file
        record.files.append(claim.file)
        record.unchanged_snapshots = unchanged.get(rank, 0)
        _fill(record, claim.recording, index, kinds)
    for claim in stale:
        if claim.rank < size:
            ranks[claim.rank].absence = Absence.STALE
    for reading in readings:
        rank = snapshots.rank_from_name(reading.file)
        if reading.status == "failed" and reading.kind in ("dump", "pickle", "hostile") and rank is not None and rank < size and ranks[rank].dump_file is None:
            ranks[rank].absence = Absence.UNREADABLE
    text.attach(ranks, index.groups)
    return Incident(
        world_size=size,
        ranks=ranks,
        groups=roles(index.groups, size),
        kinds=kinds.all,
        events=text.events,
        inputs=_inputs(readings, {c.file: c.rank for c in claims}, {c.file for c in chosen.values()}, {c.file for c in stale}),
        notes=notes,
    )


def _of_attempt(readings: Sequence[Reading], wanted: int | str | None, notes: list[Note]) -> list[Reading]:
    attempts = {r.file: snapshots.attempt_of(r.file) for r in readings}
    known = sorted({a for a in attempts.values() if a is not None})
    if not known or wanted == "all":
        return list(readings)
    last = int(wanted) if wanted is not None else known[-1]
    dropped = [r.file for r in readings if attempts[r.file] not in (None, last)]
    if dropped:
        notes.append(Note("earlier_attempt", f"{len(dropped)} files of other restart attempts were set aside; attempt {last} is analysed", dropped[0], hint="--attempt N picks another"))
    return [r for r in readings if attempts[r.file] in (None, last)]


def _world_size(index: GroupIndex, chosen: dict[int, snapshots.Claim], from_text: int, wanted: int | None) -> int:
    members = [max(g.ranks) + 1 for g in index.groups if g.ranks]
    return max([wanted or 0, from_text, max(chosen, default=-1) + 1, *members])


class _Kinds:
    """Interns call kinds and frames over all ranks."""

    def __init__(self) -> None:
        self.all: list[CallKind] = []
        self._index: dict[CallKind, int] = {}
        self._frames: dict[tuple[str, str, int], Frame] = {}

    def mapping(self, recording: Recording) -> Any:
        """Return the job-wide index for each of the recording's kinds (int32 array)."""
        stacks = [tuple(self._frames.setdefault(row, Frame(*row)) for row in stack) for stack in recording.stacks]
        result = np.empty(len(recording.kinds), dtype=np.int32)
        for position, row in enumerate(recording.kinds):
            op, backend, size_in, size_out, type_in, type_out, src, dst, stack, root = row
            kind = CallKind(op, backend, size_in, size_out, type_in, type_out, src, dst, stacks[stack] if 0 <= stack < len(stacks) else (), root)  # type: ignore[arg-type]
            index = self._index.get(kind)
            if index is None:
                index = self._index[kind] = len(self.all)
                self.all.append(kind)
            result[position] = index
        return result


def _fill(record: RankRecord, recording: Recording, index: GroupIndex, kinds: _Kinds) -> None:
    record.host = recording.host
    record.pid = recording.pid
    columns = {name: np.frombuffer(data, dtype=data.typecode) for name, data in recording.columns.items()}
    local, placed = index.local[record.rank], index.status_of[record.rank]
    mapping = kinds.mapping(recording)
    kind = mapping[columns["kind"]] if len(mapping) else np.empty(0, np.int32)
    p2p_kinds = np.array([row[6] is not None for row in recording.kinds], dtype=bool)
    is_p2p = p2p_kinds[columns["kind"]] if len(p2p_kinds) else np.empty(0, bool)
    pending_only = len(recording) > 0 and not np.any(columns["state"] >= State.DONE)
    seen = sum(1 for _ in recording.columns["seq"])
    issued = int(columns["order"].max()) + 1 if seen else 0
    rows_of: dict[tuple[int, bool], list[Any]] = defaultdict(list)
    for group, identity in local.items():
        for p2p in (False, True):
            mask = np.flatnonzero((columns["group"] == group) & (is_p2p == p2p))
            if len(mask):
                rows_of[(index.gid[identity], p2p)].append(mask)
    frontiers = _frontiers(recording, index, placed)
    for (gid, p2p), parts in sorted(rows_of.items()):
        rows = np.concatenate(parts) if len(parts) > 1 else parts[0]
        queue = Queue(
            record.rank, gid,
            seq=columns["seq"][rows], kind=kind[rows], state=columns["state"][rows],
            created=columns["created"][rows], order=columns["order"][rows], pending_only=bool(pending_only),
            tells_completion=recording.source != "nccl_log",
        )
        queue.overwritten = bool(len(rows)) and int(queue.seq.min()) > 1 and issued > seen
        (record.p2p if p2p else record.queues)[gid] = queue
    for gid, frontier in frontiers.items():
        both = [q for q in (record.queues.get(gid), record.p2p.get(gid)) if q is not None]
        if not both:
            empty = np.empty(0, np.int64)
            record.queues[gid] = Queue(record.rank, gid, empty, empty, empty, empty, empty, frontier, overwritten=(frontier.enqueued or 0) > 0)
        else:
            # pg_status counts the last work on the group, in the numbering of that work: collective or point-to-point.
            latest = max(both, key=lambda q: int(q.order.max()))
            latest.frontier = frontier
            sends = record.p2p.get(gid)
            if sends is not None and latest is sends and _in_p2p_numbers(frontier, record.queues.get(gid)):
                # Members of a batch stay "scheduled" in the recorder; the group's frontier says that they are over.
                sends.state = np.where((sends.seq <= frontier.completed) & (sends.state != State.DONE), np.int8(State.DONE), sends.state)
    if not len(recording):
        record.absence = Absence.EMPTY_DUMP if not recording.status else None
    elif pending_only:
        record.absence = Absence.PENDING_ONLY


def _in_p2p_numbers(frontier: Frontier, collectives: Queue | None) -> bool:
    """Return whether the last completed work of a group, whose last enqueued is a send or receive, was one as well.

    Each is given in its own numbering. A completed number above the enqueued one, or that of the last collective known to
    be complete, is a collective's.
    """
    if frontier.completed is None or frontier.completed > (frontier.enqueued or 0):
        return False
    done = collectives.seq[collectives.state >= State.DONE] if collectives is not None and len(collectives) else ()
    return not len(done) or int(max(done)) != frontier.completed


def _frontiers(recording: Recording, index: GroupIndex, placed: dict[str, Any]) -> dict[int, Frontier]:
    result = {}
    for local_id, (enqueued, started, completed) in sorted(recording.status.items()):
        identity = placed.get(local_id)
        if identity is not None:
            result[index.gid[identity]] = Frontier(max(0, enqueued), None if started < 0 else started, max(0, completed))
    return result


def _inputs(readings: Sequence[Reading], rank_of: dict[str, int], used: set[str], stale: set[str]) -> list[Input]:
    rows = []
    for reading in readings:
        status, reason = reading.status, reading.reason
        if reading.file in stale:
            status, reason = "set aside", "stale"
        elif reading.kind == "flight_recorder" and reading.file not in used and status == "used":
            status, reason = "set aside", "another file speaks for this rank" if reading.file in rank_of else "rank unknown"
        rows.append(Input(reading.file, reading.kind, rank_of.get(reading.file), status, reason))
    return rows
