"""What processes print of themselves before a group forms: which rank of how many came.

    Initializing distributed: GLOBAL_RANK: 3, MEMBER: 4/4
    | distributed init (rank 3): env://
    2026-01-14 05:02:11 | INFO | fairseq.distributed.utils | initialized host gpu07 as rank 3

(lightning/fabric/utilities/distributed.py; the example scripts of torchvision and what was made of them; fairseq.)
"""

from __future__ import annotations

import re
from typing import Any

from hangscope.ingest.lines.forms import says
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event


def _announced(line: Line, match: re.Match[str]) -> dict[str, Any] | None:
    rank, *size = (int(number) for number in match.groups() if number)
    fits = rank < MAX_RANKS and line.rank in (None, rank) and all(rank < n <= MAX_RANKS for n in size)
    return {"rank": rank} if fits else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced(Event, calm=True):
    """A rank's own word that it came to form a group (of `world_size`, where it says so)."""

    world_size: int | None = None
    forms = (
        says(
            r"nitializing (?:distributed|ddp|fsdp|deepspeed): GLOBAL_RANK: (\d{1,7}), MEMBER: \d{1,7}/(?P<world_size>\d{1,7})",
            read=_announced,
        ),
        # gloo/transport/tcp/pair.cc, of a connection that it could not make
        says(r"\(rank=(\d{1,7}), size=(?P<world_size>\d{1,7}), local=\[", read=_announced),
        says(r"\bdistributed init \(rank (\d{1,7})\)", read=_announced),
        # vllm/distributed/parallel_state.py
        says(r"\brank (\d{1,7}) in world size (?P<world_size>\d{1,7}) is assigned as", read=_announced),
        says(r"\binitialized host \S{1,253} as rank (\d{1,7})$", read=_announced),
    )
