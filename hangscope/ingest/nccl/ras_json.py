"""What NCCL's RAS and its Inspector write as JSON.

RAS (`ncclras`, 2.24 on) has a JSON form from 2.28.7 on (src/ras/client_support.cc), and the events of its monitor from 2.29 on. It
counts the collectives that each rank *launched* on each communicator, five operations only and none of a captured CUDA graph. One snapshot with different counts is normal.

The files of the Inspector profiler plugin state which collectives each rank *completed* last. NCCL 2.28.3 on, ext-profiler/inspector (plugins/profiler/inspector from 2.30). One JSON object per line, one
file per process: `header` {id, rank, n_ranks}, `metadata` {hostname, pid}, `coll_perf` {coll, coll_sn} or
`p2p_perf`. Only completed calls are written (and from 2.30 none below 8,192 bytes unless asked), so the
largest number per communicator, operation and rank is the last completion that was dumped, and a rank whose
number is smaller lags.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Any

from hangscope.errors import Note
from hangscope.ingest.lines.prefixes import quote
from hangscope.ingest.nccl.line import user_op
from hangscope.model.codec import is_number
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

#: Ranks that get an event each, per communicator and operation; the rest are counted in a last one.
MAX_LISTED = 256


class NcclRas(Event, size_field="nranks"):
    """A rank that RAS lists, or what the Inspector saw complete.

    `what`: missing, dead, behind, ahead, initializing, error, status or completed. `comm_rank` is group-local, `count` the
    number of launches (completions), `most` the largest of the communicator, `ranks` how many ranks a line without numbers
    is about; `snapshot` is when, as printed, or which one of several in a file.
    """

    what: str
    comm: str | None = None
    comm_rank: int | None = None
    nranks: int | None = None
    count: int | None = None
    most: int | None = None
    ranks: int | None = None
    op: str | None = None
    peer_host: str | None = None
    status: str | None = None
    result: int | str | None = None
    snapshot: str | None = None

    @classmethod
    def at(cls, file: str, line: int, text: str, **fields: Any) -> NcclRas:
        """Return an event that quotes a text; its rank in the communicator is its rank in the group."""
        return cls(file, line, quote(text), group_rank=fields.get("comm_rank"), **fields)

    def least_sizes(self) -> Iterator[int]:
        """Yield the size of the communicator, and what a rank that is gone proves; without a process it is what 2.27 found in memory."""
        yield self.nranks or 0
        if self.what in ("missing", "dead") and self.comm_rank is not None and self.pid:
            yield self.comm_rank + 1


def comm_hash(text: str) -> str:
    """Return a communicator's hash as NCCL's INIT lines print it from 2.26 on: 0x and no leading zeros."""
    try:
        return f"0x{int(text, 16):x}"
    except ValueError:
        return text


def part(value: Any, name: str) -> dict[str, Any]:
    """Return an object within a JSON object; empty where there is none."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def text_of(value: Any) -> str | None:
    """Return a text cut for quoting, or None for anything else."""
    return quote(value, 255) if isinstance(value, str) else None


def whole_number(value: Any) -> int | None:
    """Return an int of at most 64 bits, or None for anything else, True and False included."""
    return value if is_number(value) else None


_MAX_KEYS = 100_000
_MAX_LINE = 1 << 16


def read_inspector_lines(lines: Iterable[bytes], file: str) -> tuple[list[NcclRas], list[Note]]:
    """Return the last completed call per communicator, operation and rank, sorted, and notes.

    P2P ops are left out: their numbers do not compare across ranks. Never raises. Lines are streamed; memory
    grows with the number of such keys only.
    """
    last: dict[tuple[str, str, int], NcclRas] = {}
    bad = first_bad = 0
    for number, raw in enumerate(lines, start=1):
        if not raw.strip():
            continue
        try:
            event = _completed(raw, file, number)
        except (ValueError, RecursionError):
            bad += 1
            first_bad = first_bad or number
            continue
        if event is not None:
            key = (event.comm or "", event.op or "", event.comm_rank or 0)
            before = last.get(key)
            if len(last) < _MAX_KEYS if before is None else (event.count or 0) >= (before.count or 0):
                last[key] = event
    notes = []
    if bad:
        text = f"{bad} lines are no complete Inspector records"
        hint = "the last line of a killed process is often cut"
        notes.append(Note("truncated", text, file, first_bad, hint))
    return [event for _, event in sorted(last.items())], notes


def _completed(raw: bytes, file: str, line: int) -> NcclRas | None:
    """Return the completion of a collective, None for that of a P2P op; raise ValueError for what is no record."""
    value = json.loads(raw) if len(raw) <= _MAX_LINE else None
    header, where, perf = part(value, "header"), part(value, "metadata"), part(value, "coll_perf")
    if not perf and header and part(value, "p2p_perf"):
        return None
    comm, op = text_of(header.get("id")), text_of(perf.get("coll"))
    rank, count = whole_number(header.get("rank")), whole_number(perf.get("coll_sn"))
    if comm is None or op is None or rank is None or count is None:
        raise ValueError
    op = user_op(op[:40])
    text = f"rank {rank} of {comm} completed {op} {count}"
    who = {"host": text_of(where.get("hostname")), "pid": whole_number(where.get("pid")), "comm_rank": rank}
    size = whole_number(header.get("n_ranks"))
    return NcclRas.at(file, line, text, what="completed", comm=comm, op=op, count=count, nranks=size, **who)


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
        events += _Answer(value, file, line).events()
        line += repaired.count("\n", start, end)
    return events, notes


@dataclass(slots=True)
class _Answer:
    """One JSON object. `ranks`: each process's rank in the largest communicator."""

    value: dict[str, Any]
    file: str
    line: int
    ranks: dict[_Place, int] = field(default_factory=dict)

    def events(self) -> Iterator[NcclRas]:
        """Yield what the object states."""
        if self.value.get("event") == "PEER_DEAD" and (peer := part(self.value, "peer")):
            yield self._event(peer, "PEER_DEAD", what="dead")
        communicators = _rows(self.value, "communicators")
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
        known = {"rank": self.ranks.get(place), "snapshot": text_of(self.value.get("timestamp"))}
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
