"""Why a job has not started to make progress: who has started, who reaches which address, who is missing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from hangscope.live.look.meeting import meetings
from hangscope.live.look.processes import Process
from hangscope.live.look.sockets import inodes_of, tcp_sockets
from hangscope.live.look.status import read_status
from hangscope.model.rankset import ranks_phrase


def diagnosis(processes: Sequence[Process]) -> list[str]:
    """Return sentences about the ranks and launchers of this node, the most telling first."""
    ranks = [process for process in processes if process.is_rank]
    stores = _by_rank((meeting.rank, str(meeting)) for meeting in meetings(ranks))
    sizes = _by_rank((p.rank or 0, f"WORLD_SIZE={p.world_size}") for p in ranks)
    return [
        *_missing(ranks),
        *(sizes if len(sizes) > 1 else ()),
        *sorted(stores, key=lambda text: not text.partition(": ")[2].startswith("no ")),
        *_by_rank((p.rank or 0, f"at {s.at}") for p in ranks if (s := read_status(p.pid)) and s.at),
        *(() if ranks else _launchers(processes)),
    ]


def _missing(ranks: Sequence[Process]) -> Iterator[str]:
    """Say which ranks have started and joined, and which have not."""
    seen = {process.rank for process in ranks if process.rank is not None}
    world = max((process.world_size or 0 for process in ranks), default=0)
    if absent := set(range(world)) - seen:
        yield f"{ranks_phrase(seen)} of {world} started on this node; {ranks_phrase(absent)} did not start here"
    joined = {p.rank for p in ranks if p.rank is not None and (s := read_status(p.pid)) and s.world_size}
    if seen - joined and joined:
        yield f"{ranks_phrase(joined)} joined the process group; {ranks_phrase(seen - joined)} did not"


def _by_rank(told: Iterable[tuple[int, str]]) -> list[str]:
    """Return one sentence for all ranks of which the same is said."""
    ranks = defaultdict(list)
    for rank, text in told:
        ranks[text].append(rank)
    return [f"{ranks_phrase(sorted(who))}: {text}" for text, who in sorted(ranks.items())]


def _launchers(processes: Sequence[Process]) -> Iterator[str]:
    """Say whom launchers try to reach that have started no rank."""
    for process in processes:
        if process.is_launcher:
            sockets = tcp_sockets(process.pid, inodes_of(process.pid))
            tried = {f"{s.host}:{s.port} ({s.state})" for s in sockets if s.state != "listening"}
            where = ", ".join(sorted(tried)) or "nobody"
            yield f"the launcher (process {process.pid}) has started no rank; it connects to {where}"
