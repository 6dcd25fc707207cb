"""The pack: what a node's dumps and logs say, as one small file.

Made by `hangscope pack` where files lie on each node's own disk, and read like the files themselves. Layout: the line
`hangscope.pack 4` behind a byte that no text has, and then a zlib stream of messages (`isolated.send`): of each input file, by name, a pickle of plain
builtins, and in the end an empty one.

| key | meaning |
| --- | --- |
| file | the name that reports show: the pack's own name, a slash, the file's |
| bytes | size of the file |
| answer | what the file says apart from its calls (`answer.Wire`) |
| like | the row whose calls are this row's as well, apart from their times; None: it has its own |
| calls | kinds and stacks of the calls (`Recording.to_wire()["calls"]`) |
| columns | of group, seq, kind, state, order (where they are its own) and created the packed numbers |

Numbers of eight bytes are packed as their differences, the first bytes of all before the second ones, which is what zlib finds
repeats in. Calls stand in columns where a file is one recorder's dump; in any other answer they are left inside. Nothing is lost:
a pack gives the report that its files give.
"""

from __future__ import annotations

import pickle
import struct
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import sub
from typing import Any, BinaryIO

from hangscope.ingest.files.sniff import PACK
from hangscope.ingest.files.text_forms import Remade
from hangscope.ingest.recorder import safe_pickle
from hangscope.ingest.recorder.recording import COLUMNS, ISSUED

VERSION = b"4"
SHARED = ("group", "seq", "kind", "state", "order")
_OWN = ("created", ISSUED)  # columns of each recording itself, as far as it has them
LARGEST = 2**30  # bytes of one message
_LENGTH = struct.Struct("<Q")
_CHUNK = 1 << 16

#: (the name that reports show, size in bytes, what `reader.read_file` answered)
Entry = tuple[str, int, dict[str, Any]]


def write_pack(to: BinaryIO, entries: Sequence[Entry]) -> None:
    """Write a pack to a stream. Raises OSError where it cannot be written."""
    first_with: dict[tuple[bytes, ...], int] = {}
    write_rows(to, (_row(entry, number, first_with) for number, entry in enumerate(entries)))


def write_rows(to: BinaryIO, rows: Iterable[dict[str, Any]]) -> None:
    """Write rows as a pack."""
    packer = zlib.compressobj(9)
    to.write(PACK + VERSION + b"\n")
    for row in rows:
        payload = pickle.dumps(row, protocol=4)
        to.write(packer.compress(_LENGTH.pack(len(payload)) + payload))
    to.write(packer.compress(_LENGTH.pack(0)) + packer.flush())


def _row(entry: Entry, number: int, first_with: dict[tuple[bytes, ...], int]) -> dict[str, Any]:
    name, size, wire = entry
    row: dict[str, Any] = {"file": name, "bytes": size, "like": None, "calls": None, "columns": None}
    recordings = wire["recordings"]
    if len(recordings) == 1:
        recording = dict(recordings[0])
        columns, calls = recording.pop("columns"), recording.pop("calls")
        wire = {**wire, "recordings": [recording]}
        like = first_with.setdefault((calls, *(columns[column] for column in SHARED)), number)
        own = (*(() if like != number else SHARED), *(name for name in _OWN if name in columns))
        row["like"], row["calls"] = (like, None) if like != number else (None, calls)
        row["columns"] = {name: _packed(COLUMNS.get(name, "q"), columns[name]) for name in own}
    row["answer"] = wire
    return row


def _packed(code: str, data: bytes) -> bytes:
    numbers = array(code, data)
    if numbers.itemsize < 8 or not numbers:
        return data
    steps = array(code, [numbers[0], *map(sub, numbers[1:], numbers)]).tobytes()
    return b"".join(steps[place :: numbers.itemsize] for place in range(numbers.itemsize))


def _unpacked(code: str, data: bytes) -> bytes:
    size = array(code).itemsize
    if size < 8:
        return data
    steps, count = bytearray(len(data)), len(data) // size
    for place in range(size):
        steps[place::size] = data[place * count : (place + 1) * count]
    return array(code, accumulate(array(code, bytes(steps)))).tobytes()


def read_pack(stream: BinaryIO) -> Iterator[Entry]:
    """Yield the entries of a pack as they were written.

    Raises ValueError for another version, and whatever zlib, the pickle module or a forged row raises for a broken file.
    """
    own: dict[int, tuple[bytes, dict[str, bytes]]] = {}
    same: dict[bytes, bytes] = {}  # one object for equal columns
    for number, row in enumerate(read_rows(stream)):
        wire = row["answer"]
        if row["columns"] is not None:
            columns = {name: _unpacked(COLUMNS.get(name, "q"), data) for name, data in row["columns"].items()}
            alone = {name: columns.pop(name) for name in _OWN if name in columns}
            if row["like"] is None:
                own[number] = (
                    row["calls"],
                    {name: same.setdefault(data, data) for name, data in columns.items()},
                )
            calls, columns = own[number if row["like"] is None else row["like"]]
            recording = wire["recordings"][0]
            recording["calls"], recording["columns"] = calls, {**columns, **alone}
        yield row["file"], row["bytes"], wire


def read_rows(stream: BinaryIO) -> Iterator[dict[str, Any]]:
    """Yield the rows of a pack. Raises as `read_pack` does."""
    plain = Remade(stream, _inflated)
    while size := _LENGTH.unpack(_exactly(plain, _LENGTH.size))[0]:
        if size > LARGEST:
            raise ValueError(f"a message of {size:,} bytes")
        yield safe_pickle.load(_exactly(plain, size))
    plain.read()  # raises where the stream is not whole


def _exactly(plain: Remade, size: int) -> bytes:
    data = plain.read(size)
    if len(data) < size:
        raise EOFError("it ends before its end")
    return data


def _inflated(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the plain bytes of a pack's zlib stream, a piece at a time."""
    first = stream.readline(len(PACK) + 20)
    version = first[len(PACK) :].rstrip(b"\n")
    if not first.endswith(b"\n"):
        raise EOFError("it ends before its end")
    if version != VERSION:
        shown = version.decode(errors="replace")
        raise ValueError(f"a pack of version {shown}; this hangscope reads {VERSION.decode()}")
    member = zlib.decompressobj()
    while not member.eof:
        packed = member.unconsumed_tail or stream.read(_CHUNK)
        if not packed:
            raise EOFError("it ends before its end")
        yield member.decompress(packed, _CHUNK)
