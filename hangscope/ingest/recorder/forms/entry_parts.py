"""What is known of one entry of a dump once it is parsed: its value, and where its numbers stand in the bytes."""

from __future__ import annotations

import struct
from dataclasses import field
from typing import Any

from hangscope.model.dataclass import dataclass

COUNTED = frozenset({"record_id", "collective_seq_id", "p2p_seq_id", "op_id"})
TIMES = frozenset({"time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns"})
SIZES = frozenset({"input_sizes", "output_sizes"})


class NotPlain(Exception):
    """The bytes are no entry as torch writes it."""


class _ThreadNumber(str):
    """The number of a thread, which is a rank's own: equal to any other, and nothing but the number of a thread."""

    __slots__ = ()


THREAD = _ThreadNumber()


@dataclass(slots=True)
class Field:
    """A number: the key that it belongs to, where it stands in the entry, and its `struct` format."""

    key: str
    start: int
    form: str

    @property
    def end(self) -> int:
        """Return where it ends."""
        return self.start + struct.calcsize("<" + self.form)

    @property
    def is_text(self) -> bool:
        """Return whether it is written as digits."""
        return self.form.endswith("s")

    @property
    def mask(self) -> bytes:
        """Return the bits in which it is like any other that is as long: none, but of digits those that make them digits."""
        return (b"\xf0" if self.is_text else b"\0") * (self.end - self.start)


@dataclass(slots=True, eq=False)
class NewFrame:
    """A frame that an entry writes: its memo number, keys and values, and the memo numbers of those that have one."""

    number: int
    made: dict[str, Any]
    texts: tuple[int | None, ...]


@dataclass(slots=True)
class PlainEntry:
    """A parsed entry: its value and length, its numbers, and what it takes from and gives to the memo.

    `numbers` are counted per rank or group, `times` a rank's own, `sizes` those of its tensors, in their order. `thread` is
    where the text of a thread's number stands. `pair` holds the memo numbers of its group's name and description. `frames`
    are the memo numbers of its frames, or what it writes of them; of the texts in these, `texts` says where they stand and
    under which memo number: those may be a rank's own. `operands` are all memo numbers, with their places and formats.
    """

    value: dict[str, Any] = field(default_factory=dict)
    length: int = 0
    numbers: list[Field] = field(default_factory=list)
    times: list[Field] = field(default_factory=list)
    sizes: list[Field] = field(default_factory=list)
    thread: tuple[int, int] | None = None
    gets: dict[int, Any] = field(default_factory=dict)
    puts: dict[int, Any] = field(default_factory=dict)
    pair: tuple[int, int] | None = None
    frames: tuple[int | NewFrame, ...] | None = None
    texts: list[tuple[int, int, int]] = field(default_factory=list)
    operands: list[tuple[int, str, int]] = field(default_factory=list)
