"""Put the readings of all files together into one Incident.

Decides which file speaks for which rank, which local group is which, and keeps a typed reason for everything that is
not known. No cause is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.errors import Note
from hangscope.ingest.evidence import snapshots, text_evidence
from hangscope.ingest.evidence.attempts import attempt_to_read, drop_copies
from hangscope.ingest.evidence.claim import Claim
from hangscope.ingest.evidence.snapshots import last_pages
from hangscope.ingest.evidence.text_evidence import TextEvidence
from hangscope.ingest.evidence.worlds import PER_RANK, UNPROVED, left_out, size_in_content
from hangscope.ingest.files.naming import attempt_of, rank_of_dump
from hangscope.ingest.groups import GroupIndex, detail_helpers, roles, with_pending_checks
from hangscope.ingest.queues import QueueBuilder
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.ingest.workers.reading import Reading
from hangscope.model.events import Event
from hangscope.model.incident import Absence, Incident, Input, RankRecord
from hangscope.model.regex import regex

_DIGITS = regex(r"\d+")

_RECORDED_UNDER_DETAIL = Note(
    "detail_recording",
    "recorded under TORCH_DISTRIBUTED_DEBUG=DETAIL, which stops a call that does not fit its peers' before it is recorded: dumps alone cannot show such a hang",
    hint="the logs name the calls of both sides",
)


def assemble(
    readings: Sequence[Reading], *, world_size: int | None = None, attempt: int | str | None = None
) -> Incident:
    """Return the incident that the readings describe.

    `world_size` overrides what the inputs say; `attempt` picks a restart attempt (default: the last one; "all": mix).
    """
    readings = sorted(readings, key=lambda r: r.file)  # they come in the order in which they were read
    notes = [note for reading in readings for note in reading.notes]
    readings, attempts = _of_attempt(readings, attempt, notes)
    readings = last_pages(readings, notes)
    claims = _dumps(readings, notes)
    text = text_evidence.collect(readings, notes, attempt)
    notes += _no_such_attempt(attempt, attempts | text.attempts)
    claims += text.claims_beside({c.rank for c in claims})
    chosen, unchanged, stale = snapshots.choose(claims, notes)
    if any(detail_helpers(claim.recording) for claim in chosen.values()):
        notes.append(_RECORDED_UNDER_DETAIL)
    index, size = _groups(chosen, text, world_size, notes)
    index.complete(size)
    queues = QueueBuilder(index, [chosen[rank].recording for rank in sorted(chosen)])
    ranks = _records(size, chosen, unchanged, queues)
    _set_absence(ranks, stale, readings, notes)
    versions = {recording.library for reading in readings for recording in reading.recordings}
    versions |= {recording.version for reading in readings for recording in reading.log.nccl}
    kinds = queues.kinds.kinds()
    text.attach(ranks, index.groups, [kind.stack for kind in kinds])
    return Incident(
        world_size=size,
        ranks=ranks,
        groups=roles(index.groups, size),
        kinds=kinds,
        events=text.events,
        inputs=_inputs(readings, claims, {c.file for c in chosen.values()}, {c.file for c in stale}),
        notes=notes,
        unplaced=tuple(text.unplaced),
        libraries=tuple(f"NCCL {version}" for version in sorted(versions) if version[:1].isdigit()),
        size_stated=world_size is not None or size_in_content(readings) >= size,
        momentary=size == len(chosen)
        and (snapshots.of_one_moment(chosen.values(), readings) or snapshots.of_a_moving_job(chosen, claims)),
    )


def _groups(
    chosen: dict[int, Claim], text: TextEvidence, wanted: int | None, notes: list[Note]
) -> tuple[GroupIndex, int]:
    """Return the groups and the size of the job; what speaks for more ranks than any job has is taken out."""
    index = GroupIndex(chosen)
    members = (max(g.ranks) for g in index.groups if g.ranks)
    size = max(wanted or 0, min(text.world_size, MAX_RANKS), 1 + max((*chosen, *members), default=-1))
    evident = len(chosen.keys() | text.ranks())
    limit = max(UNPROVED, PER_RANK * evident, wanted or 0)
    if size > limit:
        notes.append(left_out(size, evident, limit))
        for rank in [rank for rank in chosen if rank >= limit]:
            del chosen[rank]
        text.leave_out(limit)
        index, size = GroupIndex(chosen, limit), limit
    if wanted is not None and size > wanted:
        what = f"the inputs state {size} ranks, more than the {wanted} that were given; {size} is taken"
        hint = "check --world-size, or whether the folder holds two jobs"
        notes.append(Note("world_size", what, hint=hint))
    return index, size


def _dumps(readings: Sequence[Reading], notes: list[Note]) -> list[Claim]:
    """Return which dump speaks for which rank, and add what the dumps themselves note."""
    claims = []
    for reading in readings:
        for recording in reading.recordings:
            if recording.source == "flight_recorder":
                notes += [Note(n.code, n.message, reading.file, n.line, n.hint) for n in recording.notes]
                claim = snapshots.claim_rank(reading.file, with_pending_checks(recording), notes)
                if claim is not None:
                    claims.append(claim)
    return claims


def _records(
    size: int, chosen: dict[int, Claim], unchanged: dict[int, int], queues: QueueBuilder
) -> dict[int, RankRecord]:
    """Return the record of each rank with the calls that the chosen recording holds."""
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
        queues.fill(record, claim.recording)
    return ranks


def _set_absence(
    ranks: dict[int, RankRecord], stale: Sequence[Claim], readings: Sequence[Reading], notes: list[Note]
) -> None:
    """Say of ranks without a dump whether theirs was too old, or could not be read."""
    for claim in stale:
        if claim.rank in ranks:
            ranks[claim.rank].absence = Absence.STALE
    names = {_DIGITS.sub("#", record.dump_file) for record in ranks.values() if record.dump_file}
    for reading in readings:
        named = rank_of_dump(reading.file)
        if named not in ranks or ranks[named].dump_file is not None:
            continue
        if reading.status == "failed" and reading.kind in ("dump", "pickle", "hostile", "unread"):
            ranks[named].absence = Absence.UNREADABLE
        elif reading.kind in ("empty", "binary") and _DIGITS.sub("#", reading.file) in names:
            ranks[named].absence = Absence.UNREADABLE
            what = "is empty" if reading.kind == "empty" else "holds no dump, only other binary data"
            text = f"{what}, although its name is that of rank {named}'s dump"
            hint = "the process died or the disk was full while it was written; collect it again if the original still exists"
            notes.append(Note("no_dump", text, reading.file, hint=hint))


def _of_attempt(
    readings: Sequence[Reading], wanted: int | str | None, notes: list[Note]
) -> tuple[list[Reading], set[int]]:
    """Return the readings of one attempt and of none, and which attempts there are, by the paths of the files."""
    attempts = {r.file: attempt_of(r.file) for r in readings}
    known = {a for a in attempts.values() if a is not None}
    if not known or wanted == "all":
        return list(readings), known
    by_path: dict[int, list[Event]] = {a: [] for a in known}
    for reading in readings:
        if (attempt := attempts[reading.file]) is not None:
            by_path[attempt] += reading.all_events
    with_calls = {a for r in readings if r.recordings and (a := attempts[r.file]) is not None}
    last = int(wanted) if wanted is not None else attempt_to_read(by_path, with_calls)
    dropped = [r.file for r in readings if attempts[r.file] not in (None, last)]
    if dropped:
        failed = ": a later one never came to a step" if wanted is None and last < max(known) else ""
        text = f"{len(dropped)} files of other restart attempts were set aside; attempt {last} is analysed{failed}"
        notes.append(Note("earlier_attempt", text, dropped[0], hint="--attempt N picks another"))
    drop_copies(
        [r for r in readings if attempts[r.file] is None],
        [r for r in readings if attempts[r.file] not in (None, last)],
        [r for r in readings if attempts[r.file] == last],
    )
    return [r for r in readings if attempts[r.file] in (None, last)], known


def _no_such_attempt(wanted: int | str | None, known: set[int]) -> list[Note]:
    if wanted in (None, "all") or int(wanted) in known:
        return []
    others = f"there are {', '.join(map(str, sorted(known)))}" if known else "no input states any"
    text = f"no input is of restart attempt {wanted}: {others}"
    return [Note("no_such_attempt", text, hint="leave --attempt out for the last one")]


def _inputs(
    readings: Sequence[Reading], claims: Sequence[Claim], used: set[str], stale: set[str]
) -> list[Input]:
    rank_of, rows = {c.file: c.rank for c in claims}, []
    for reading in readings:
        status, reason = reading.status, reading.reason
        if reading.file in stale:
            status, reason = "set aside", "stale"
        elif reading.kind == "flight_recorder" and reading.file not in used and status == "used":
            known = reading.file in rank_of
            status, reason = "set aside", "another file speaks for this rank" if known else "rank unknown"
        rows.append(Input(reading.file, reading.kind, rank_of.get(reading.file), status, reason))
    return rows
