"""The collective-sequence table: one row per (rank, group, call), as a pandas DataFrame.

Columns (all ranks are global; times in ns since the epoch):

| column | dtype | meaning |
| --- | --- | --- |
| rank | int32 | who made the call |
| group | category | the group's name and description; groups are distinguished by name *and* members |
| gid | int32 | number of the group in the report's `groups` |
| seq | int64 | collective_seq_id, or p2p_seq_id of a point-to-point call, from 1 |
| order | int64 | the running number of the collective on its rank, over all groups |
| op | category | the name that users know |
| is_p2p | bool | a send or a receive |
| src, dst | Int32 | group-local ranks of a point-to-point call, else missing |
| sizes_in, sizes_out | category | tensor sizes, as text |
| dtype | category | element type of the first tensor |
| state | category | pending, started, done or unknown (gloo's last call) |
| created | Int64 | enqueue time in ns; missing where it is not known |
| file, line, function | category, Int32, category | the deepest user frame; missing where no frame was recorded |

Calls that the recorder's buffer lost have no row: `report.to_dict()["coverage"]["windows"]` says where each rank's rows begin.
`hangscope table` writes the same columns (docs/table.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from hangscope.knowledge.callsite import user_frame
from hangscope.model.incident import Incident, Queue, State
from hangscope.model.kinds import Kinds

if TYPE_CHECKING:
    from hangscope.analysis import Analysis

#: Rows that are built unasked; above it only the calls around the frontier, unless the full table is wanted.
FREE_ROWS = 2_000_000
TAIL = 64
_STATES = [s.name.lower() for s in State]
_CALL = ("rank", "group", "gid", "seq", "order", "op", "is_p2p", "src", "dst")
COLUMNS = (*_CALL, "sizes_in", "sizes_out", "dtype", "state", "created", "file", "line", "function")


def build_table(analysis: Analysis | None, *, full: bool = False) -> pd.DataFrame:
    """Return the table of an analysis, ordered by rank and enqueue order; empty without one.

    A job of more than FREE_ROWS calls gives only the last TAIL calls of each rank on each group unless `full`.
    """
    queues = [] if analysis is None else list(queues_of(analysis.incident))
    cut = slice(None) if full or sum(map(len, queues)) <= FREE_ROWS else slice(-TAIL, None)
    return TableBuilder(analysis).rows([(queue, cut) for queue in queues])


def queues_of(incident: Incident) -> Iterator[Queue]:
    """Yield the queues of all ranks that hold calls, rank by rank."""
    for _, record in sorted(incident.ranks.items()):
        yield from filter(len, record.all_queues)


def is_p2p(incident: Incident, queue: Queue) -> bool:
    """Return whether a queue holds sends and receives, which have seqs of their own."""
    record = incident.ranks[queue.rank]
    return record.p2p.get(queue.gid) is queue


class TableBuilder:
    """Builds rows of the table from chosen calls; what all rows share is looked up once."""

    def __init__(self, analysis: Analysis | None) -> None:
        empty = Kinds([], np.empty(0, np.int64))
        self._sized = analysis.incident.kinds if analysis is not None else empty
        self._kinds, self._plain = self._sized.alone, self._sized.plain
        self._labels = [g.label for g in analysis.incident.groups] if analysis is not None else []
        self._frames = [user_frame(kind.stack) for kind in self._kinds]

    def rows(self, parts: Sequence[tuple[Queue, Any]]) -> pd.DataFrame:
        """Return the rows of queues, of each those that an index chooses (a slice or a mask), by rank and enqueue order."""

        def column(name: str, dtype: Any) -> Any:
            found = [getattr(queue, name)[chosen] for queue, chosen in parts]
            return np.concatenate(found).astype(dtype) if found else np.empty(0, dtype)

        lengths = [len(queue.seq[chosen]) for queue, chosen in parts]
        with_sizes, used = np.unique(column("kind", np.int32), return_inverse=True)
        kind = self._plain[with_sizes][used]
        gid = np.repeat(np.array([queue.gid for queue, _ in parts], np.int32), lengths)
        created = column("created", np.int64)
        kinds, frames = self._kinds, self._frames
        table = pd.DataFrame({
            "rank": np.repeat(np.array([queue.rank for queue, _ in parts], np.int32), lengths),
            "group": _category(gid, self._labels),
            "gid": gid,
            "seq": column("seq", np.int64),
            "order": column("order", np.int64),
            "op": _category(kind, [k.op for k in kinds]),
            "is_p2p": np.array([k.is_p2p for k in kinds], bool)[kind] if kinds else np.empty(0, bool),
            "src": _integers(kind, [k.src for k in kinds]),
            "dst": _integers(kind, [k.dst for k in kinds]),
            "sizes_in": _category(used, [_sizes(self._sized[k].input_sizes) for k in with_sizes]),
            "sizes_out": _category(used, [_sizes(self._sized[k].output_sizes) for k in with_sizes]),
            "dtype": _category(kind, [(k.input_dtypes or k.output_dtypes or ("",))[0] for k in kinds]),
            "state": _category(column("state", np.int8), _STATES),
            "created": pd.Series(created, dtype="Int64").mask(created == 0),
            "file": _category(kind, [f.file if f else None for f in frames]),
            "line": _integers(kind, [f.line if f else None for f in frames]),
            "function": _category(kind, [f.name if f else None for f in frames]),
        })  # fmt: skip
        return table.sort_values(["rank", "order"], kind="stable", ignore_index=True)[list(COLUMNS)]


def _category(choice: Any, values: Sequence[str | None]) -> pd.Categorical:
    """Return `values[choice]` as categories, from one index per call; None is missing, equal values are one category."""
    index: dict[str, int] = {}
    codes = np.array([-1 if v is None else index.setdefault(v, len(index)) for v in values] or [-1], np.int32)
    categories: Any = pd.Index(list(index))
    categorical: pd.Categorical = pd.Categorical.from_codes(codes[choice], categories)
    return categorical


def _integers(kind: Any, values: list[int | None]) -> pd.Series:
    known = np.array([v is not None for v in values] or [False])
    numbers = np.array([v or 0 for v in values] or [0], np.int64)
    return pd.Series(numbers[kind], dtype="Int32").mask(~known[kind])


def _sizes(sizes: tuple[tuple[int, ...], ...]) -> str:
    return " ".join(str(list(s)) for s in sizes)
