"""The Inspector profiler plugin's files: which collectives each rank *completed* last.

NCCL 2.28.3 on, ext-profiler/inspector (plugins/profiler/inspector from 2.30). One JSON object per line, one
file per process: `header` {id, rank, n_ranks}, `metadata` {hostname, pid}, `coll_perf` {coll, coll_sn} or
`p2p_perf`. Only completed calls are written (and from 2.30 none below 8,192 bytes unless asked), so the
largest number per communicator, operation and rank is the last completion that was dumped, and a rank whose
number is smaller lags.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from hangscope.errors import Note
from hangscope.ingest.lines.prefixes import quote
from hangscope.ingest.nccl.calls import user_op
from hangscope.ingest.nccl.ras.json_form import whole_number
from hangscope.ingest.nccl.ras.snapshot import NcclRas

#: where a record tells of its call, and by which names: of a collective, of a call between two ranks
_CALLS = (("coll_perf", "coll", "coll_sn"), ("p2p_perf", "p2p", "p2p_sn"))
_MAX_KEYS = 100_000
_MAX_LINE = 1 << 16


def read(lines: Iterable[bytes], file: str) -> tuple[list[NcclRas], list[Note]]:
    """Return the last completed call per communicator, operation and rank, sorted, and notes.

    Calls between two ranks are left out: their numbers do not compare across ranks. Never raises. Lines are streamed; memory
    grows with the number of such keys only.
    """
    last: dict[tuple[str, str, int], tuple[int, NcclRas]] = {}
    bad = first_bad = 0
    for number, raw in enumerate(lines, start=1):
        if not raw.strip():
            continue
        value = _object(raw)
        if value is None:
            bad += 1
            first_bad = first_bad or number
        elif (found := _completed(value, file, number)) is not None:
            count, key, event = found
            if (key in last and count >= last[key][0]) or (key not in last and len(last) < _MAX_KEYS):
                last[key] = count, event
    notes = []
    if bad:
        text = f"{bad} lines are no whole Inspector records"
        notes.append(
            Note("truncated", text, file, first_bad, "the last line of a killed process is often cut")
        )
    return [last[key][1] for key in sorted(last)], notes


def _object(raw: bytes) -> dict[str, Any] | None:
    """Return a record; None for what is none."""
    try:
        value = json.loads(raw) if len(raw) <= _MAX_LINE else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("header"), dict):
        return None
    return value if any(_call(value, *names) for names in _CALLS) else None


def _call(value: dict[str, Any], section: str, name: str, number: str) -> tuple[str, int] | None:
    """Return the operation of a record's section and the number of the call; None where it has none."""
    perf, header = value.get(section), value["header"]
    if (
        not isinstance(perf, dict)
        or not isinstance(header.get("id"), str)
        or whole_number(header.get("rank")) is None
    ):
        return None
    op, count = perf.get(name), whole_number(perf.get(number))
    return (user_op(quote(op, 40)), count) if isinstance(op, str) and count is not None else None


def _completed(
    value: dict[str, Any], file: str, line: int
) -> tuple[int, tuple[str, str, int], NcclRas] | None:
    """Return the number of a collective, what it is compared by, and the event; None for a call between two ranks."""
    found, header, metadata = _call(value, *_CALLS[0]), value["header"], value.get("metadata")
    if found is None:
        return None
    op, count = found
    comm, rank = quote(header["id"], 64), int(header["rank"])
    where = metadata if isinstance(metadata, dict) else {}
    host = where.get("hostname")
    event = NcclRas(
        file, line, quote(f"rank {rank} of {comm} completed {op} {count}"), group_rank=rank,
        host=quote(host, 255) if isinstance(host, str) else None, pid=whole_number(where.get("pid")),
        what="completed", comm=comm, comm_rank=rank, op=op, count=count, nranks=whole_number(header.get("n_ranks")),
    )  # fmt: skip
    return count, (comm, op, rank), event
