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

from hangscope.dataclass import dataclass
from hangscope.errors import Note
from hangscope.ingest.lines.prefixes import quote
from hangscope.ingest.nccl.calls import user_op
from hangscope.ingest.nccl.ras.json_form import whole_number
from hangscope.ingest.nccl.ras.snapshot import NcclRas

_SIGNS = (b'"coll_perf"', b'"p2p_perf"')
_MAX_KEYS = 100_000
_MAX_LINE = 1 << 16


@dataclass(frozen=True, slots=True)
class LastCompleted:
    """The last completion of one operation that one rank dumped. `comm_rank` and `peer` are group-local."""

    file: str
    line: int
    comm: str
    op: str
    comm_rank: int
    nranks: int | None
    number: int
    peer: int | None = None
    host: str | None = None
    pid: int | None = None

    def event(self) -> NcclRas:
        """Return it as an event, `what` completed."""
        text = f"rank {self.comm_rank} of {self.comm} completed {self.op} {self.number}"
        return NcclRas(
            self.file, self.line, quote(text), group_rank=self.comm_rank, host=self.host, pid=self.pid,
            what="completed", comm=self.comm, comm_rank=self.comm_rank, op=self.op, count=self.number, peer=self.peer,
            nranks=self.nranks,
        )  # fmt: skip


def sniff(head: bytes) -> bool:
    """Return whether the first bytes of a file are the Inspector's."""
    first = head.lstrip().split(b"\n", 1)[0]
    return first[:1] == b"{" and any(sign in first for sign in _SIGNS)


def read(lines: Iterable[bytes], file: str) -> tuple[list[LastCompleted], list[Note]]:
    """Return the last completed call per communicator, operation, rank and peer, sorted, and notes.

    Never raises. Lines are streamed; memory grows with the number of such keys only.
    """
    last: dict[tuple[str, str, int, int], LastCompleted] = {}
    bad = first_bad = 0
    for number, raw in enumerate(lines, start=1):
        if not raw.strip():
            continue
        found = _parse(raw, file, number)
        if found is None:
            bad += 1
            first_bad = first_bad or number
            continue
        key = (found.comm, found.op, found.comm_rank, -1 if found.peer is None else found.peer)
        known = last.get(key)
        if known is None and len(last) >= _MAX_KEYS:
            continue
        if known is None or found.number >= known.number:
            last[key] = found
    notes = []
    if bad:
        text = f"{bad} lines are no whole Inspector records"
        notes.append(
            Note("truncated", text, file, first_bad, "the last line of a killed process is often cut")
        )
    return [last[key] for key in sorted(last)], notes


def collectives(records: Iterable[LastCompleted]) -> list[LastCompleted]:
    """Return the records of collectives, whose numbers compare across the ranks of a communicator (one file holds one rank)."""
    return [record for record in records if record.peer is None]


def _parse(raw: bytes, file: str, line: int) -> LastCompleted | None:
    if len(raw) > _MAX_LINE:
        return None
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    header, metadata = value.get("header"), value.get("metadata")
    if not isinstance(header, dict):
        return None
    host = metadata.get("hostname") if isinstance(metadata, dict) else None
    pid = metadata.get("pid") if isinstance(metadata, dict) else None
    comm, rank = header.get("id"), whole_number(header.get("rank"))
    for section, name_key, number_key in (("coll_perf", "coll", "coll_sn"), ("p2p_perf", "p2p", "p2p_sn")):
        perf = value.get(section)
        if not isinstance(perf, dict) or not isinstance(comm, str) or rank is None:
            continue
        name, number = perf.get(name_key), whole_number(perf.get(number_key))
        if not isinstance(name, str) or number is None:
            continue
        return LastCompleted(
            file,
            line,
            quote(comm, 64),
            user_op(quote(name, 40)),
            rank,
            whole_number(header.get("n_ranks")),
            number,
            whole_number(perf.get("p2p_peer")) if section == "p2p_perf" else None,
            quote(host, 255) if isinstance(host, str) else None,
            whole_number(pid),
        )
    return None
