"""How many ranks the inputs tell the job to have at least."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hangscope.incident import Event
from hangscope.ingest.workers.reading import Reading

MOST_RANKS = 1 << 17  # a larger number in a line or a name is no rank


def sizes(event: Event) -> Iterator[int]:
    """Yield numbers of ranks that an event tells the job to have at least."""
    fields = event.fields
    if event.kind in ("store_timeout", "store_barrier"):
        told = [fields.get("world_size"), fields.get("expected")]
    elif event.kind in ("nccl_init", "nccl_ras"):
        told = [fields.get("nranks")]
    else:
        lists = [
            fields.get("absent"),
            fields.get("never_joined"),
            *dict(fields.get("not_joined") or {}).values(),
            *dict(fields.get("joined_not_finished") or {}).values(),
        ]
        named = (
            [n for numbers in lists for n in numbers or ()]
            if event.kind in ("monitored_barrier", "desync")
            else []
        )
        named += [int(r) for r in fields.get("counts") or ()] if event.kind == "ddp_params" else []
        told = [
            n + 1 for n in (*named, event.group_rank, fields.get("peer_group_rank")) if isinstance(n, int)
        ]
    yield from (n for n in told if isinstance(n, int) and n <= MOST_RANKS)


def size_in_content(readings: Sequence[Reading]) -> int:
    """Return the size that dumps, stores and communicators name; 0 where none does. Names of files do not count."""
    told = [0]
    for reading in readings:
        for recording in reading.recordings:
            told += [max(ranks) + 1 for _, ranks in recording.config.values() if ranks]
        for event in (*reading.events, *(reading.log.events if reading.log else ())):
            if event.kind in ("store_timeout", "store_barrier", "nccl_init", "nccl_ras"):
                told += sizes(event)
    return max(told)
