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

from hangscope.errors import Note
from hangscope.ingest.nccl.calls import user_op
from hangscope.ingest.nccl.ras.snapshot import NcclRas, part, text_of, whole_number

_MAX_KEYS = 100_000
_MAX_LINE = 1 << 16


def read(lines: Iterable[bytes], file: str) -> tuple[list[NcclRas], list[Note]]:
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
            if (before is None and len(last) < _MAX_KEYS) or (
                before and (event.count or 0) >= (before.count or 0)
            ):
                last[key] = event
    notes = []
    if bad:
        text, hint = (
            f"{bad} lines are no complete Inspector records",
            "the last line of a killed process is often cut",
        )
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
