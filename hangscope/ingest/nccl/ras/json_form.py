"""RAS's JSON form, 2.28.7 on (src/ras/client_support.cc), and the events of its monitor, 2.29 on."""

from __future__ import annotations

import json
from typing import Any

from hangscope.errors import Note
from hangscope.ingest.lines.prefixes import quote
from hangscope.ingest.nccl.calls import user_op
from hangscope.ingest.nccl.ras.snapshot import MAX_LISTED, NcclRas, RasSnapshot, comm_hash
from hangscope.model.codec import is_number
from hangscope.model.regex import regex

# 2.28.7 to 2.28.9 leave out a comma between the members of a missing rank.
_MISSING_COMMA = regex(r'("nvml_dev": -?\d{1,9})(\s{0,200}"status")')

_IN_PROGRESS = 7  # ncclInProgress
_Place = tuple[Any, Any, Any]
_Counts = dict[str, list[tuple[int, int, dict[str, Any]]]]  # by operation: (rank, launches, row)


def read_json(text: str, file: str) -> tuple[list[RasSnapshot], list[Note]]:
    """Return the snapshots and monitor events in one or more JSON objects, and notes. Never raises."""
    notes: list[Note] = []
    repaired = _MISSING_COMMA.sub(r"\1,\2", text)
    if repaired != text:
        notes.append(
            Note(
                "repaired_json",
                "RAS of NCCL 2.28.7 to 2.28.9 leaves out commas before `status`; they were put back",
                file,
            )
        )
    snapshots: list[RasSnapshot] = []
    decoder = json.JSONDecoder()
    at, line = 0, 1
    while True:
        start = repaired.find("{", at)
        if start < 0:
            break
        line += repaired.count("\n", at, start)
        try:
            value, end = decoder.raw_decode(repaired, start)
        except (ValueError, RecursionError) as error:
            notes.append(
                Note(
                    "truncated",
                    f"RAS JSON is not whole: {type(error).__name__}",
                    file,
                    line,
                    "collect it again",
                )
            )
            break
        if isinstance(value, dict):
            _value(value, file, line, snapshots)
        line += repaired.count("\n", start, end)
        at = end
    return snapshots, notes


def _value(value: dict[str, Any], file: str, line: int, snapshots: list[RasSnapshot]) -> None:
    if isinstance(value.get("communicators"), list):
        snapshot = RasSnapshot(
            file, line, _text(value.get("nccl_version")) or "", _text(value.get("timestamp"))
        )
        communicators = [c for c in value["communicators"] if isinstance(c, dict)]
        ranks = _global_ranks(communicators)
        for communicator in communicators:
            _communicator(communicator, snapshot, ranks)
        snapshots.append(snapshot)
    elif value.get("event") == "PEER_DEAD":
        peer = value.get("peer")
        if isinstance(peer, dict):
            snapshot = RasSnapshot(file, line, timestamp=_text(value.get("timestamp")))
            snapshot.events.append(_event(snapshot, {}, peer, {"what": "dead"}, "PEER_DEAD"))
            snapshots.append(snapshot)


def _place(rank: dict[str, Any]) -> _Place:
    return (_text(rank.get("host")), whole_number(rank.get("pid")), whole_number(rank.get("cuda_dev")))


def _global_ranks(communicators: list[dict[str, Any]]) -> dict[_Place, int]:
    """Return each process's rank in the largest communicator; nothing where two differ in their members."""
    size = max((whole_number(c.get("size")) or 0 for c in communicators), default=0)
    found: dict[_Place, int] = {}
    for communicator in communicators:
        if whole_number(communicator.get("size")) != size:
            continue
        places = {
            _place(r): whole_number(r.get("rank"))
            for r in _rows(communicator, "ranks") + _rows(communicator, "missing_ranks")
        }
        if found and places.keys() != found.keys():
            return {}
        if not found:
            found = {place: rank for place, rank in places.items() if rank is not None}
    return found


def _communicator(
    communicator: dict[str, Any], snapshot: RasSnapshot, global_ranks: dict[_Place, int]
) -> None:
    comm: dict[str, Any] = {"comm": comm_hash(_text(communicator.get("hash")) or "")}
    size = whole_number(communicator.get("size"))
    if size is not None:
        comm["nranks"] = size
    counts: _Counts = {}
    for row in _rows(communicator, "ranks"):
        rank = whole_number(row.get("rank"))
        collectives = row.get("collective_counts")
        if rank is not None and isinstance(collectives, dict):
            for name, raw in sorted(collectives.items()):
                count = whole_number(raw)
                if count is not None:
                    counts.setdefault(user_op(str(name)[:40]), []).append((rank, count, row))
        state = row.get("status")
        if isinstance(state, dict):
            for key in ("init_state", "async_error"):
                result = whole_number(state.get(key))
                if not result or (result == _IN_PROGRESS and key == "async_error"):
                    continue
                state_fields = {
                    "what": "initializing" if result == _IN_PROGRESS else "error",
                    "result": result,
                }
                snapshot.events.append(
                    _event(snapshot, comm, row, state_fields, f"{key} {result}", global_ranks)
                )
    for row in _rows(communicator, "missing_ranks"):
        state = row.get("status")
        dead = isinstance(state, dict) and state.get("considered_dead") in (True, 1, "true")
        fields: dict[str, Any] = {"what": "dead" if dead else "missing"}
        snapshot.events.append(_event(snapshot, comm, row, fields, f"rank is {fields['what']}", global_ranks))
    _behind(counts, comm, snapshot, global_ranks)


def _behind(
    counts: _Counts, comm: dict[str, Any], snapshot: RasSnapshot, global_ranks: dict[_Place, int]
) -> None:
    """Add who launched fewer operations than others, and how many more than are listed."""
    for op, entries in sorted(counts.items()):
        most = max(count for _, count, _ in entries)
        behind = sorted(
            ((rank, count, row) for rank, count, row in entries if count < most), key=lambda e: e[:2]
        )
        for rank, count, row in behind[:MAX_LISTED]:
            fields = {"what": "behind", "op": op, "count": count, "most": most}
            text = f"rank {rank} launched {count} {op} of {most}"
            snapshot.events.append(_event(snapshot, comm, row, fields, text, global_ranks))
        if len(behind) > MAX_LISTED:
            rest = behind[MAX_LISTED:]
            fields = {
                "what": "behind",
                "op": op,
                "count": min(count for _, count, _ in rest),
                "ranks": len(rest),
            }
            snapshot.events.append(
                _event(snapshot, comm, {}, fields, f"{len(rest)} more ranks are behind on {op}")
            )


def _event(
    snapshot: RasSnapshot,
    comm: dict[str, Any],
    row: dict[str, Any],
    fields: dict[str, Any],
    text: str,
    global_ranks: dict[_Place, int] | None = None,
) -> NcclRas:
    rank = whole_number(row.get("rank"))
    kept = {**comm, **fields, **({"comm_rank": rank} if rank is not None else {})}
    if snapshot.timestamp:
        kept["snapshot"] = snapshot.timestamp
    return NcclRas(
        snapshot.file, snapshot.line, quote(text),
        rank=(global_ranks or {}).get(_place(row)), group_rank=rank,
        host=_text(row.get("host")), pid=whole_number(row.get("pid")), **kept,
    )  # fmt: skip


def _rows(communicator: dict[str, Any], key: str) -> list[dict[str, Any]]:
    rows = communicator.get(key)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _text(value: Any) -> str | None:
    return quote(value, 255) if isinstance(value, str) else None


def whole_number(value: Any) -> int | None:
    """Return an int of at most 64 bits, or None for anything else, True and False included."""
    return value if is_number(value) else None
