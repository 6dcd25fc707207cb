"""Load a pickle of plain containers and nothing else.

A Flight Recorder dump is a protocol-2 pickle of dicts, lists, tuples, strings and numbers; it never names a global
(torch/csrc/jit/serialization/pickler.cpp writes only container and scalar opcodes for these values). So no global is
ever looked up here: a pickle that asks for one is hostile or not a dump, and is refused before anything runs.

Two attacks remain that no unpickler can refuse by itself: a few bytes that ask for gigabytes, and nested tuples used as
a key, whose hash overflows the C stack. They are why dumps are parsed in a child process with limits (`workers/pool.py`).
"""

from __future__ import annotations

import io
import pickle
import secrets
import struct
from collections.abc import Mapping
from typing import Any, NoReturn, cast

_BELOW = secrets.token_hex(8)  # is below the opcodes of a part; no file can contain it


class HostilePickle(Exception):
    """The pickle asks to import something. `wanted` is `module.name`."""

    def __init__(self, wanted: str) -> None:
        super().__init__(wanted)
        self.wanted = wanted


class _PlainUnpickler(pickle.Unpickler):
    """An unpickler that allows no global, no persistent id and no extension code."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse every global."""
        raise HostilePickle(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> NoReturn:
        """Refuse every persistent id."""
        raise HostilePickle(f"persistent id {str(pid)[:80]}")


def load(data: bytes) -> Any:
    """Return the plain value that `data` holds.

    Raises HostilePickle, or whatever the pickle module raises for bytes that are no whole pickle.
    """
    return _unpickler(data).load()


def load_with_memo(data: bytes) -> tuple[Any, Any]:
    """Return the plain value that `data` holds, and what it memoizes, for `load_part`. Raises as `load` does."""
    unpickler = _unpickler(data)
    return unpickler.load(), unpickler.memo


def load_part(data: bytes, memo: Any) -> tuple[Any, Any]:
    """Return the one value that opcodes from within a pickle make, and the memo after them.

    `memo` is what the pickle memoized before them. Raises ValueError if they make anything else than one value, or as `load` does.
    """
    unpickler = _unpickler(b"\x80\x02X\x10\0\0\0" + _BELOW.encode() + b"(" + data + b"t\x86.")
    unpickler.memo = memo
    below, made = unpickler.load()
    if below != _BELOW or len(made) != 1:  # they left other values or marks between
        raise ValueError("not the opcodes of one value")
    return made[0], unpickler.memo


def memo_of(texts: Mapping[int, str]) -> Any:
    """Return a memo of texts, by number."""
    written = ((number, text.encode()) for number, text in texts.items())
    puts = [
        struct.pack("<cI", b"X", len(text)) + text + struct.pack("<cIc", b"r", number, b"0")
        for number, text in written
    ]
    return load_with_memo(b"\x80\x02" + b"".join(puts) + b"N.")[1]


def _unpickler(data: bytes) -> _PlainUnpickler:
    # Without a buffer that can be peeked into, the unpickler asks for each opcode: four times the time.
    stream = io.BufferedReader(cast(io.RawIOBase, io.BytesIO(data)), 1 << 18)
    return _PlainUnpickler(stream, encoding="utf-8", errors="replace")
