"""RAS's JSON form, 2.28.7 on (src/ras/client_support.cc), and the events of its monitor, 2.29 on."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import field
from typing import Any

from hangscope.errors import Note
from hangscope.ingest.nccl.calls import user_op
from hangscope.ingest.nccl.ras.snapshot import MAX_LISTED, NcclRas, comm_hash, part, text_of, whole_number
from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex

# 2.28.7 to 2.28.9 leave out a comma between the members of a missing rank.
_MISSING_COMMA = regex(r'("nvml_dev": -?\d{1,9})(\s{0,200}"status")')

_IN_PROGRESS = 7  # ncclInProgress
_Place = tuple[Any, Any, Any]


def read_json(text: str, file: str) -> tuple[list[NcclRas], list[Note]]:
    """Return the events of one or more JSON objects, snapshots or the monitor's, and notes. Never raises."""
    notes: list[Note] = []
    repaired = _MISSING_COMMA.sub(r"\1,\2", text)
    if repaired != text:
        what = "RAS of NCCL 2.28.7 to 2.28.9 leaves out commas before `status`; they were put back"
        notes.append(Note("repaired_json", what, file))
    events: list[NcclRas] = []
    decoder = json.JSONDecoder()
    end, line = 0, 1
    while (start := repaired.find("{", end)) >= 0:
        line += repaired.count("\n", end, start)
        try:
            value, end = decoder.raw_decode(repaired, start)
        except (ValueError, RecursionError) as error:
            what = f"RAS JSON is not complete: {type(error).__name__}"
            notes.append(Note("truncated", what, file, line, "collect it again"))
            break
        events += _Answer(file, line, text_of(value.get("timestamp"))).events(value)
        line += repaired.count("\n", start, end)
    return events, notes


@dataclass(slots=True)
class _Answer:
    """One JSON object. `ranks`: each process's rank in the largest communicator."""

    file: str
    line: int
    timestamp: str | None
    ranks: dict[_Place, int] = field(default_factory=dict)

    def events(self, value: dict[str, Any]) -> Iterator[NcclRas]:
        """Yield what the object states."""
        if value.get("event") == "PEER_DEAD" and (peer := part(value, "peer")):
            yield self._event(peer, "PEER_DEAD", what="dead")
        communicators = _rows(value, "communicators")
        self.ranks = _global_ranks(communicators)
        for communicator in communicators:
            yield from self._communicator(communicator)

    def _communicator(self, communicator: dict[str, Any]) -> Iterator[NcclRas]:
        comm = {
            "comm": comm_hash(text_of(communicator.get("hash")) or ""),
            "nranks": whole_number(communicator.get("size")),
        }
        launched: dict[str, list[tuple[int, int, dict[str, Any]]]] = defaultdict(list)
        for row in _rows(communicator, "ranks"):
            rank = whole_number(row.get("rank"))
            for name, raw in part(row, "collective_counts").items():
                count = whole_number(raw)
                if rank is not None and count is not None:
                    launched[user_op(name[:40])].append((rank, count, row))
            for key in ("init_state", "async_error"):
                result = whole_number(part(row, "status").get(key))
                if result and (result != _IN_PROGRESS or key == "init_state"):
                    what = "initializing" if result == _IN_PROGRESS else "error"
                    yield self._event(row, f"{key} {result}", what=what, result=result, **comm)
        for row in _rows(communicator, "missing_ranks"):
            dead = part(row, "status").get("considered_dead") in (True, 1, "true")
            what = "dead" if dead else "missing"
            yield self._event(row, f"rank is {what}", what=what, **comm)
        for op, entries in sorted(launched.items()):
            most = max(count for _, count, _ in entries)
            behind = sorted((e for e in entries if e[1] < most), key=lambda e: e[:2])
            for rank, count, row in behind[:MAX_LISTED]:
                text = f"rank {rank} launched {count} {op} of {most}"
                yield self._event(row, text, what="behind", op=op, count=count, most=most, **comm)
            if rest := behind[MAX_LISTED:]:
                text, least = f"{len(rest)} more ranks are behind on {op}", min(count for _, count, _ in rest)
                yield self._event({}, text, what="behind", op=op, count=least, ranks=len(rest), **comm)

    def _event(self, row: dict[str, Any], text: str, **fields: Any) -> NcclRas:
        host, pid, _ = place = _place(row)
        stated = {"comm_rank": whole_number(row.get("rank")), "host": host, "pid": pid}
        known = {"rank": self.ranks.get(place), "snapshot": self.timestamp}
        return NcclRas.at(self.file, self.line, text, **stated, **known, **fields)


def _place(row: dict[str, Any]) -> _Place:
    return (text_of(row.get("host")), whole_number(row.get("pid")), whole_number(row.get("cuda_dev")))


def _global_ranks(communicators: list[dict[str, Any]]) -> dict[_Place, int]:
    """Return each process's rank in the largest communicator; nothing where two differ in their members."""
    sizes = [whole_number(communicator.get("size")) or 0 for communicator in communicators]
    found: dict[_Place, int] = {}
    for communicator, size in zip(communicators, sizes, strict=True):
        if size == max(sizes):
            rows = _rows(communicator, "ranks") + _rows(communicator, "missing_ranks")
            places = {
                _place(row): rank for row in rows if (rank := whole_number(row.get("rank"))) is not None
            }
            if found and places.keys() != found.keys():
                return {}
            found = found or places
    return found


def _rows(value: dict[str, Any], key: str) -> list[dict[str, Any]]:
    rows = value.get(key)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
