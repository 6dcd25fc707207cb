"""Watchdog timeouts of which a person left the rest out, as the whole ones beside them say.

[rank0]:[E ...] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9631, OpType=ALLREDUCE, NumelIn=64, ..., Timeout(ms)=1800000) ran for ...
[rank4]:[E ...] [Rank 4] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9631, ...
[rank5]:[E ...] [Rank 5] Watchdog caught ...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.model.events import Event

_Stated = tuple["int | None", str, "int | None", "int | None", "int | None"]


def completed(events: Iterable[Event]) -> Iterator[Event]:
    """Yield the events of a log, shortened timeouts with what all whole ones of their group and seq state; without those that lack an op."""
    known = [*events]
    whole: dict[str | None, set[_Stated]] = {}
    for event in known:
        if isinstance(event, WatchdogTimeout) and event.op and event.timeout_ms is not None:
            stated = (event.seq, event.op, event.numel_in, event.numel_out, event.timeout_ms)
            whole.setdefault(event.group_name, set()).add(stated)
    for event in known:
        if not isinstance(event, WatchdogTimeout) or event.timeout_ms is not None:
            yield event
            continue
        fitting = [s for s in whole.get(event.group_name, ()) if event.seq in (s[0], None)]
        if len(fitting) == 1:
            seq, op, numel_in, numel_out, timeout_ms = fitting[0]
            yield replace(
                event, seq=seq, op=op, numel_in=numel_in, numel_out=numel_out, timeout_ms=timeout_ms
            )
        elif event.op:
            yield event
