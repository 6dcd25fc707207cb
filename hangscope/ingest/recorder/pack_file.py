"""The pack: what a node's dumps and logs say, as one Parquet file.

Made by `hangscope pack` where files lie on each node's own disk, and read like the files themselves. Layout, version 1
(in the file's metadata as `hangscope.pack`): one row per input file, by name.

| column | type | meaning |
| --- | --- | --- |
| file | string | the name that reports show: the pack's own name, a slash, the file's |
| bytes | int64 | size of the file |
| answer | binary | what the file says apart from its calls: a pickle of plain builtins (`answer.Wire`) |
| like | int32 | the row whose calls are this row's as well, apart from their times; null: it has its own |
| kinds | binary | kinds and stacks of the calls: a pickle of plain builtins (`Recording.to_wire()["calls"]`) |
| group, seq, kind, state, order | list of int64 | one number per call; see `recording.COLUMNS` |
| created | list of int64 | enqueue times in ns, a rank's own |

Calls stand in columns where a file is one recorder's dump; in any other answer they are left inside. Nothing is lost:
a pack gives the report that its files give.
"""

from __future__ import annotations

import io
import pickle
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from hangscope.ingest.recorder import safe_pickle
from hangscope.ingest.recorder.recording import COLUMNS

VERSION = 1
METADATA_KEY = b"hangscope.pack"
MAGIC = b"PAR1"
SHARED = ("group", "seq", "kind", "state", "order")
ROWS_AT_A_TIME = 128  # all of them are unpacked at once where a pack is read
ROWS_READ = 16

#: (the name that reports show, size in bytes, what `reader.read_file` answered)
Entry = tuple[str, int, dict[str, Any]]


class NotAPack(ValueError):
    """The Parquet file is no pack."""


def write_pack(to: BinaryIO, entries: Sequence[Entry]) -> None:
    """Write a pack to a stream. Needs pyarrow; raises OSError where it cannot be written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    numbers = pa.list_(pa.int64())
    schema = pa.schema(
        [
            ("file", pa.string()),
            ("bytes", pa.int64()),
            ("answer", pa.binary()),
            ("like", pa.int32()),
            ("kinds", pa.binary()),
            *((name, numbers) for name in (*SHARED, "created")),
        ],
        metadata={METADATA_KEY: str(VERSION)},
    )
    encodings = {f"{name}.list.element": "DELTA_BINARY_PACKED" for name in (*SHARED, "created")}
    first_with: dict[tuple[bytes, ...], int] = {}
    rows = (_row(entry, number, first_with) for number, entry in enumerate(entries))
    with pq.ParquetWriter(
        to, schema, compression="zstd", compression_level=9, use_dictionary=False, column_encoding=encodings
    ) as writer:
        batch: list[dict[str, Any]] = []
        for row in rows:
            batch.append(row)
            if len(batch) == ROWS_AT_A_TIME:
                writer.write_table(pa.Table.from_pylist(batch, schema=schema))
                batch = []
        if batch or not entries:
            writer.write_table(pa.Table.from_pylist(batch, schema=schema))


def _row(entry: Entry, number: int, first_with: dict[tuple[bytes, ...], int]) -> dict[str, Any]:
    name, size, wire = entry
    row: dict[str, Any] = {"file": name, "bytes": size, "like": None}
    recordings = wire["recordings"]
    if len(recordings) == 1:
        recording = dict(recordings[0])
        columns, calls = recording.pop("columns"), recording.pop("calls")
        wire = {**wire, "recordings": [recording]}
        row["created"] = array(COLUMNS["created"], columns["created"]).tolist()
        key = (calls, *(columns[column] for column in SHARED))
        like = first_with.setdefault(key, number)
        if like != number:
            row["like"] = like
        else:
            row["kinds"] = calls
            row.update({column: array(COLUMNS[column], columns[column]).tolist() for column in SHARED})
    row["answer"] = pickle.dumps(wire, protocol=5)
    return row


def read_pack(data: bytes) -> Iterator[Entry]:
    """Yield the entries of a pack as they were written.

    Raises NotAPack for a file that is none, ImportError without pyarrow, ValueError for another version, and whatever
    pyarrow raises for a broken file.
    """
    import pyarrow.parquet as pq

    file = pq.ParquetFile(io.BytesIO(data))
    metadata = file.schema_arrow.metadata or {}
    version = metadata.get(METADATA_KEY)
    if version is None:
        raise NotAPack("is a Parquet file and no pack of hangscope")
    if version != str(VERSION).encode():
        raise ValueError(
            f"a pack of version {version.decode(errors='replace')[:20]}; this hangscope reads {VERSION}"
        )
    own: dict[int, tuple[bytes, dict[str, bytes]]] = {}
    same: dict[bytes, bytes] = {}  # one object for equal columns
    number = 0
    for batch in file.iter_batches(batch_size=ROWS_READ, use_threads=False):
        columns: dict[str, list[Any]] = {
            name: _lists(batch.column(name), COLUMNS[name])
            if name in COLUMNS
            else batch.column(name).to_pylist()
            for name in batch.schema.names
        }
        for at in range(batch.num_rows):
            row = {name: values[at] for name, values in columns.items()}
            yield row["file"], row["bytes"], _answer(row, number, own, same)
            number += 1


def _lists(column: Any, code: str) -> list[bytes | None]:
    """Return the lists of numbers of a column as the bytes of an array, without making Python's numbers of them."""
    size = array(code).itemsize
    if column.values.null_count:
        raise ValueError("a number is missing")
    numbers = column.values.cast(f"int{8 * size}")
    data = memoryview(numbers.buffers()[1] or b"")[numbers.offset * size :]
    offsets = column.offsets.to_pylist()
    return [
        bytes(data[first * size : last * size]) if known else None
        for first, last, known in zip(offsets, offsets[1:], column.is_valid().to_pylist(), strict=False)
    ]


def _answer(
    row: dict[str, Any],
    number: int,
    own: dict[int, tuple[bytes, dict[str, bytes]]],
    same: dict[bytes, bytes],
) -> dict[str, Any]:
    wire: dict[str, Any] = safe_pickle.load(row["answer"])
    if row["created"] is None:
        return wire
    if row["like"] is None:
        own[number] = row["kinds"], {name: same.setdefault(row[name], row[name]) for name in SHARED}
    calls, columns = own[number if row["like"] is None else row["like"]]
    recording = wire["recordings"][0]
    recording["calls"] = calls
    recording["columns"] = {**columns, "created": row["created"]}
    return wire
