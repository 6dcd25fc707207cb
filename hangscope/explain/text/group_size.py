"""How many ranks take part, as the text states it: by the sizes of a collective, arguments, announcements. The highest rank seen states nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from hangscope.explain.statements.statements import Statements
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.ingest.job_logs.starts import Announced
from hangscope.ingest.nccl.comm import NcclInit
from hangscope.ingest.torch_logs.analyzer import NoAnswer
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.ingest.torch_logs.store import StoreBarrier, StoreTimeout
from hangscope.model.incident import Incident

_MOST_LISTED = 64  # ranks


def world_size(statements: Statements) -> int | None:
    """Return how many ranks the text states for the whole job; None where it states none."""
    sizes: list[int | None] = [n for e in statements.all(Excerpt) for n in e.sizes[-1:]]
    sizes += [e.world_size for e in statements.all(Announced)]
    sizes += [e.expected for e in statements.all(StoreTimeout)]
    sizes += [e.world_size for e in statements.all(StoreBarrier)]
    sizes += [e.world for e in statements.all(NoAnswer)]
    return max(filter(None, sizes), default=None)


def stated_size(incident: Incident, statements: Statements) -> int | None:
    """Return the number of ranks of a job where an input states it, and shows no higher rank."""
    if incident.size_stated:
        return incident.world_size
    size = world_size(statements)
    return size if size is not None and size >= incident.world_size else None


def formed(statements: Statements) -> tuple[int, ...]:
    """Return the ranks of a communicator of NCCL whose creation every one of its members reports to be complete; none where one does not."""
    done = [e for e in statements.all(NcclInit) if e.step.endswith("COMPLETE") and e.rank is not None]
    size = max((e.nranks or 0 for e in done), default=0)
    ranks = sorted({e.rank for e in done if e.rank is not None and e.nranks == size})
    return tuple(ranks) if size > 1 and ranks == [*range(size)] else ()


def others_of(size: int | None, seen: Iterable[int]) -> tuple[int, ...]:
    """Return the ranks of a job of known size that were not seen; none where it is unknown or too large to list."""
    known = set(seen)
    if size is None or not known or max(known) >= size or size - len(known) > _MOST_LISTED:
        return ()
    return tuple(sorted(set(range(size)) - known))


def all_timed_out(statements: Statements) -> bool:
    """Return whether all ranks of a collective of stated size timed out in it."""
    world, ranks = world_size(statements), defaultdict[tuple[str, int | None], set[int]](set)
    for e in statements.all(WatchdogTimeout):
        rank = e.rank if e.rank is not None else e.group_rank
        ranks[e.op, e.seq] |= {rank} if rank is not None else set()
    sizes = {(e.op, e.seq): e.members or world for e in statements.all(WatchdogTimeout)}
    return any(len(those) == sizes[call] for call, those in ranks.items())
