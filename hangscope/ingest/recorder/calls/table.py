"""The values of a dump's entries by key, as columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

from hangscope.ingest.recorder.values import LIMIT, as_int

#: keys whose values are equal in entries of one call
PARTS = (
    "frames", "profiling_name", "state", "pg_id", "process_group", "is_p2p", "retired", "input_dtypes", "output_dtypes",
)  # fmt: skip
SIZES = ("input_sizes", "output_sizes")
_NUMBERS = ("record_id", "collective_seq_id", "seq_id", "p2p_seq_id", "time_created_ns")
#: record_id, collective_seq_id, p2p_seq_id and time_created_ns of an entry
Numbers: TypeAlias = tuple[int, int, int, int]


class EntryTable:
    """The columns of a dump. Its entries are large, so each is looked at once for all keys."""

    def __init__(self, entries: Sequence[dict[str, Any]]) -> None:
        self.entries = entries
        keys = [key for key in (*PARTS, *SIZES, *_NUMBERS) if any(key in entry for entry in entries)]
        try:
            rows = list(map(itemgetter(*keys), entries)) if keys else []
        except KeyError:  # some entries lack some keys
            rows = [tuple(map(entry.get, keys)) for entry in entries]
        self._columns = dict(zip(keys, zip(*rows, strict=True), strict=bool(rows)))

    def parts(self) -> Iterator[tuple[Any, ...]]:
        """Return what each entry has in common with others of its call, first its frames, if the dump has any."""
        return zip(*(self._columns[key] for key in PARTS if key in self._columns), strict=True)

    def sizes(self) -> Iterator[tuple[Any, ...]]:
        """Return the input and output sizes of each entry."""
        missing = [None] * len(self.entries)
        return zip(*(self._columns.get(key, missing) for key in SIZES), strict=True)

    def numbers(self) -> list[Numbers]:
        """Return the numbers of each entry; before version 2.0 `seq_id` counted collectives, sends and receives together."""
        none = [0] * len(self.entries)
        seqs = self._whole("collective_seq_id", self._whole("seq_id", none))
        orders = self._whole("record_id", range(len(none)))
        p2p_seqs, created = self._whole("p2p_seq_id", seqs), self._whole("time_created_ns", none)
        return list(zip(orders, seqs, p2p_seqs, created, strict=True))

    def _whole(self, key: str, missing: Sequence[int]) -> Sequence[int]:
        """Return a column of whole numbers; an entry without a valid one gets the number in `missing`."""
        values = self._columns.get(key, missing)
        if set(map(type, values)) == {int} and min(values) > -LIMIT and max(values) < LIMIT:
            return values
        return list(map(as_int, values, missing))
