"""The collective-sequence table: one row per (rank, group, call), as a pandas DataFrame.

Columns (all ranks are global; times in ns since the epoch):

| column | dtype | meaning |
| --- | --- | --- |
| rank | int32 | who made the call |
| group | category | the group's name and description; groups are told apart by name *and* members |
| gid | int32 | number of the group in the report's `groups` |
| seq | int64 | collective_seq_id, or p2p_seq_id of a point-to-point call, from 1 |
| order | int64 | the rank's own running number over all its groups |
| op | category | the name that users know |
| is_p2p | bool | a send or a receive |
| src, dst | Int32 | group-local ranks of a point-to-point call, else missing |
| sizes_in, sizes_out | category | tensor sizes, as text |
| dtype | category | element type of the first tensor |
| state | category | pending, started, done or unknown (gloo's last call) |
| created | Int64 | enqueue time in ns; missing where it is not known |
| file, line, function | category, Int32, category | the deepest user frame; missing where no frame was recorded |

What a ring overwrote has no row: `report.to_dict()["coverage"]["windows"]` says from where each rank's rows run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from hangscope.incident import CallKind, Queue, State
from hangscope.knowledge.callsite import user_frame

if TYPE_CHECKING:
    from hangscope.analysis import Analysis

#: Rows that are built unasked; above it only the calls around the frontier, unless the full table is wanted.
FREE_ROWS = 2_000_000
TAIL = 64
_STATES = [s.name.lower() for s in State]
COLUMNS = (
    "rank",
    "group",
    "gid",
    "seq",
    "order",
    "op",
    "is_p2p",
    "src",
    "dst",
    "sizes_in",
    "sizes_out",
    "dtype",
    "state",
    "created",
    "file",
    "line",
    "function",
)


def build_table(analysis: Analysis | None, *, full: bool = False) -> pd.DataFrame:
    """Return the table of an analysis, ordered by rank and enqueue order; empty without one.

    A job of more than FREE_ROWS calls gives only the last TAIL calls of each rank on each group unless `full`.
    """
    queues: list[Queue] = []
    kinds: Sequence[CallKind] = []
    sized: Sequence[CallKind] = []
    plain = np.empty(0, np.int64)
    labels: list[str] = []
    if analysis is not None:
        sized = analysis.incident.kinds
        kinds, plain = analysis.incident.kinds.alone, analysis.incident.kinds.plain
        labels = [g.label for g in analysis.incident.groups]
        queues = [
            q
            for _, record in sorted(analysis.incident.ranks.items())
            for queues_of in (record.queues, record.p2p)
            for _, q in sorted(queues_of.items())
            if len(q)
        ]
    cut = slice(None) if full or sum(map(len, queues)) <= FREE_ROWS else slice(-TAIL, None)
    with_sizes, used = np.unique(_join([q.kind[cut] for q in queues], np.int32), return_inverse=True)
    kind = plain[with_sizes][used]
    lengths = [len(q.kind[cut]) for q in queues]
    gid = np.repeat(np.array([q.gid for q in queues], np.int32), lengths)
    created = _join([q.created[cut] for q in queues], np.int64)
    frames = [user_frame(k.stack) for k in kinds]
    table = pd.DataFrame({
        "rank": np.repeat(np.array([q.rank for q in queues], np.int32), lengths),
        "group": _category(gid, labels),
        "gid": gid,
        "seq": _join([q.seq[cut] for q in queues], np.int64),
        "order": _join([q.order[cut] for q in queues], np.int64),
        "op": _category(kind, [k.op for k in kinds]),
        "is_p2p": np.array([k.is_p2p for k in kinds], bool)[kind] if kinds else np.empty(0, bool),
        "src": _integers(kind, [k.src for k in kinds]),
        "dst": _integers(kind, [k.dst for k in kinds]),
        "sizes_in": _category(used, [_sizes(sized[k].input_sizes) for k in with_sizes]),
        "sizes_out": _category(used, [_sizes(sized[k].output_sizes) for k in with_sizes]),
        "dtype": _category(kind, [(k.input_dtypes or k.output_dtypes or ("",))[0] for k in kinds]),
        "state": _category(_join([q.state[cut] for q in queues], np.int8), _STATES),
        "created": pd.Series(created, dtype="Int64").mask(created == 0),
        "file": _category(kind, [f.file if f else None for f in frames]),
        "line": _integers(kind, [f.line if f else None for f in frames]),
        "function": _category(kind, [f.name if f else None for f in frames]),
    })  # fmt: skip
    return table.sort_values(["rank", "order"], kind="stable", ignore_index=True)[list(COLUMNS)]


def _join(parts: list[Any], dtype: Any) -> Any:
    return np.concatenate(parts).astype(dtype) if parts else np.empty(0, dtype)


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
