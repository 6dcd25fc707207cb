"""Watchdog timeouts of which a person left the rest out, as the whole ones beside them say.

[rank0]:[E ...] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9631, OpType=ALLREDUCE, NumelIn=64, ..., Timeout(ms)=1800000) ran for ...
[rank4]:[E ...] [Rank 4] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9631, ...
[rank5]:[E ...] [Rank 5] Watchdog caught ...
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.model.events import Event

_STATED = ("seq", "op", "numel_in", "numel_out", "timeout_ms")


def completed(events: Sequence[Event]) -> list[Event]:
    """Return the events of a log, shortened timeouts with what all whole ones of their group and seq state; without those that lack an op."""
    timeouts = [event for event in events if isinstance(event, WatchdogTimeout)]
    whole: dict[str | None, set[tuple[Any, ...]]] = defaultdict(set)
    for event in timeouts:
        if event.op and event.timeout_ms is not None:
            whole[event.group_name].add(attrgetter(*_STATED)(event))
    found: dict[int, WatchdogTimeout] = {}
    for event in timeouts:
        fitting = [stated for stated in whole[event.group_name] if event.seq in (stated[0], None)]
        if event.timeout_ms is None and len(fitting) == 1:
            found[id(event)] = replace(event, **dict(zip(_STATED, fitting[0], strict=True)))
    known = (found.get(id(event), event) for event in events)
    return [e for e in known if not isinstance(e, WatchdogTimeout) or e.timeout_ms is not None or e.op]
