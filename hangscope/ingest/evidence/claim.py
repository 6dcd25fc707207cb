"""A recording that is taken for a rank, and when it was made."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from hangscope.ingest.recorder.recording import Recording
from hangscope.model.dataclass import dataclass


@dataclass
class Claim:
    """A recording, the file that holds it, and the rank that it is taken for."""

    file: str
    recording: Recording
    rank: int

    def column(self, name: str) -> Any:
        """Return a column of the recording as an array."""
        column = self.recording.columns[name]
        return np.frombuffer(column, column.typecode)

    def by_group(self) -> Iterator[tuple[str, str, str, Any]]:
        """Yield the local id, name and description of each group, and which rows are its collectives."""
        group = self.column("group")
        for index, (local_id, name, desc) in enumerate(self.recording.groups):
            yield local_id, name, desc, group == index

    @cached_property
    def last_created(self) -> int:
        """Return the newest enqueue time in ns, 0 where there is none."""
        return int(self.column("created").max(initial=0))

    @cached_property
    def first_created(self) -> int:
        """Return the oldest enqueue time in ns, 0 where there is none."""
        created = self.column("created")
        known = created[created != 0]
        return int(known.min()) if len(known) else 0

    @cached_property
    def progress(self) -> tuple[int, int, int]:
        """Return a measure by which a later snapshot of the same attempt is never smaller."""
        done = sum(max(0, completed) for _, _, completed in self.recording.status.values())
        issued = sum(max(0, enqueued) for enqueued, _, _ in self.recording.status.values())
        return (self.last_created, issued + max(self.recording.columns["order"], default=-1), done)


def is_default(name: str, desc: str) -> bool:
    """Return whether a group is the default one, which has all ranks of a job."""
    return desc == "default_pg" or name == "0"


def world_of(recording: Recording) -> tuple[int, ...] | None:
    """Return the members of the default group, or None where the dump does not list it (NCCL fills groups in lazily)."""
    for name, (desc, ranks) in recording.config.items():
        if ranks and is_default(name, desc):
            return ranks
    return None
