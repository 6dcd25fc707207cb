"""When two lines say the same: torch, `what()`, Python and the launcher each repeat one failure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hangscope.incident import Event

_BY_RANK = {
    "watchdog_timeout": ("seq", "op", "timeout_ms"),
    "watchdog_status": ("seq", "last_enqueued", "last_completed", "group_name"),
    "fingerprint": ("context", "sequence_number", "op"),
    "monitored_barrier": ("absent", "what"),
    "monitored_barrier_witness": ("from_group_rank",),
    "dump_signal": ("detector",),
    "dump_observed": (),
    "heartbeat_timeout": ("what",),
    "async_error": ("error",),
    "exception": ("type", "message", "frames"),
    "terminate": ("what",),
    "desync": ("seq", "op", "never_joined", "joined_not_finished", "not_joined"),
    "failed_stack": ("frames",),
    "gloo_timeout": ("what",),
    "gloo_closed": ("what", "peer"),
    "gloo_size_mismatch": ("received", "expected"),
    "ddp_params": ("counts",),
    "ddp_shape": ("index", "sizes"),
    "ddp_unused": ("indices", "names"),
    "ddp_unfinished": (),
    "fsdp_order": (),
    "join_exhausted": (),
    "store_timeout": ("key", "joined", "expected"),
    "store_unreachable": ("host", "port", "what"),
    "store_barrier": ("world_size", "joined"),
    "rendezvous_timeout": (),
    "port_in_use": ("port",),
    "cuda_error": ("error",),
    "oom_cuda": ("requested",),
    "loader_worker_death": ("worker_pid",),
    "external_end": ("reason",),
    "xid": ("code", "device"),
    "oom_host": ("victim_pid",),
    "disk_full": (),
    "no_progress": (),
}


def identity(event: Event) -> tuple[Any, ...] | None:
    """Return a key that is equal for two events which tell the same thing, or None where each counts for itself.

    Valid within a log and across logs: file, line and text have no part in it. An exit is told by process id;
    everything else by who says it (rank, else local rank, task, host) and by what it says.
    """
    fields = event.fields
    attempt = event.attempt or 0  # a log without restarts is the first attempt
    if event.kind == "exit":
        pid = fields.get("pid")
        return ("exit", pid, fields.get("code"), attempt) if pid is not None else None
    names = _BY_RANK.get(event.kind)
    if names is None:
        return None
    who = (
        event.rank
        if event.rank is not None
        else ("local", fields.get("local_rank"), fields.get("task"), event.host, event.group_rank)
    )
    return (event.kind, who, attempt, *(_frozen(fields.get(name)) for name in names))


def same_event(a: Event, b: Event) -> bool:
    """Return whether two events tell the same thing."""
    key = identity(a)
    return key is not None and key == identity(b)


def merge_repeats(events: Iterable[Event]) -> list[Event]:
    """Return the events without repeats, each at its first place, with what the repeats added to its fields."""
    kept: list[Event] = []
    index: dict[tuple[Any, ...], int] = {}
    for event in events:
        key = identity(event)
        at = index.get(key) if key is not None else None
        if at is None:
            if key is not None:
                index[key] = len(kept)
            kept.append(event)
        elif _compatible(kept[at], event):
            kept[at] = merge(kept[at], event)
        else:
            kept.append(event)
    return kept


def merge(first: Event, second: Event) -> Event:
    """Return the first event with the rank, the time and the fields that only the second one knows."""
    told = (
        second if second.fields.get("via") == "table" else first
    )  # the table knows rank and host, the agent's line does not
    return replace(
        told,
        rank=first.rank if first.rank is not None else second.rank,
        group_rank=first.group_rank if first.group_rank is not None else second.group_rank,
        time=told.time if told.time is not None else (first.time if first.time is not None else second.time),
        pid=first.pid if first.pid is not None else second.pid,
        fields={**second.fields, **first.fields, **({"via": "table"} if told is second else {})},
    )


def _compatible(a: Event, b: Event) -> bool:
    """Return whether no group that both name is another one."""
    x, y = a.fields.get("group_name"), b.fields.get("group_name")
    return x is None or y is None or x == y


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(sorted((k, _frozen(v)) for k, v in value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(v) for v in value)
    return value
