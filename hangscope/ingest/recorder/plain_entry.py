"""One entry of a recorder's dump, parsed from the bytes of the pickle, with the places of its numbers.

torch writes an entry as `}(` key value ... `u`, in plain opcodes of protocol 2, and refers by number to texts and frames that
it wrote before (torch/csrc/jit/serialization/pickler.cpp). Whatever else stands there is not read here.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

DEEPEST = 8  # containers in one another; an entry of torch's has three
#: what a number or time is unpacked as, by its opcode; the width follows from the format
_NUMBERS = {ord("K"): "B", ord("M"): "H", ord("J"): "i"}
_COUNTED = frozenset({"record_id", "collective_seq_id", "p2p_seq_id", "op_id"})
_TIMES = frozenset({"time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns"})
_SIZES = frozenset({"input_sizes", "output_sizes"})
_END, _MARK = ord("u"), ord("(")


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


@dataclass(slots=True)
class PlainEntry:
    """A parsed entry: its value and length, its numbers, and what it takes from and gives to the memo.

    `numbers` are counted per rank or group, `times` a rank's own, `sizes` those of its tensors, in their order. `thread` is
    where the text of a thread's number stands. `pair` holds the memo numbers of its group's name and description.
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
    frames: tuple[int, ...] | None = None


def parse(data: bytes, start: int, memo: dict[int, Any]) -> PlainEntry:
    """Return the entry at `start`. `memo` holds what was memoized before it and is left as it is. Raises NotPlain."""
    try:
        return _Parser(data, start, memo).entry()
    except (IndexError, KeyError, TypeError, ValueError, struct.error):
        raise NotPlain from None


class _Parser:
    def __init__(self, data: bytes, start: int, memo: dict[int, Any]) -> None:
        self.data, self.start, self.memo = data, start, memo
        self.found = PlainEntry()
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.made: set[int] = set()  # containers that this entry made: no other may be added to
        self.key = ""  # of the entry's own, to which the value belongs that is being read
        self.asked: list[int] = []  # memo numbers that the current value was made of
        self.times_asked: Counter[int] = Counter()

    def entry(self) -> PlainEntry:
        data, at, stack, found = self.data, self.start, self.stack, self.found
        if data[at : at + 2] != b"}(":
            raise NotPlain
        while True:
            code = data[at]
            at += 1
            if len(self.marks) == 1 and (len(stack) - self.marks[0]) % 2 != 0 and code not in b"qr\x86":
                key = stack[-1]  # a value of the entry begins
                if not isinstance(key, str):
                    raise NotPlain
                self.key, self.asked = key, []
            if code == ord("h"):
                self._get(data[at])
                at += 1
            elif code == ord("j"):
                self._get(int.from_bytes(data[at : at + 4], "little"))
                at += 4
            elif code in _NUMBERS:
                number = Field(self.key, at - self.start, _NUMBERS[code])
                at = self.start + number.end
                stack.append(struct.unpack_from("<" + number.form, data, self.start + number.start)[0])
                self._number(number)
            elif code == 0x8A and data[at] == 8:
                stack.append(int.from_bytes(data[at + 1 : at + 9], "little", signed=True))
                if self._is_value() and self.key in _TIMES and 0 <= stack[-1] < 2**62:
                    found.times.append(Field(self.key, at + 1 - self.start, "q"))
                at += 9
            elif code == ord("G"):
                stack.append(struct.unpack_from(">d", data, at)[0])
                if self._is_value() and self.key == "duration_ms":
                    found.times.append(Field(self.key, at - self.start, "d"))
                at += 8
            elif code == ord("X"):
                end = at + 4 + int.from_bytes(data[at : at + 4], "little")
                stack.append(data[at + 4 : end].decode())  # a surrogate, or what is no UTF-8, is not plain
                if self._is_value() and self.key == "thread_id" and stack[-1].isascii():
                    found.thread = at + 4 - self.start, end - self.start
                    stack[-1] = THREAD
                at = end
            elif code == ord("q"):
                self._put(data[at])
                at += 1
            elif code == ord("r"):
                self._put(int.from_bytes(data[at : at + 4], "little"))
                at += 4
            elif code == ord("N"):
                stack.append(None)
            elif code in (0x88, 0x89):
                stack.append(code == 0x88)
            elif code in b"]}":
                stack.append([] if code == ord("]") else {})
                self.made.add(id(stack[-1]))
            elif code == _MARK:
                if len(self.marks) == DEEPEST:
                    raise NotPlain
                self.marks.append(len(stack))
            elif code == 0x86:
                second, first = stack.pop(), stack.pop()
                stack.append((first, second))
                if self._is_value() and self.key == "process_group" and len(self.asked) == 2:
                    found.pair = self.asked[0], self.asked[1]
                    self._forget(found.pair)
            elif code in b"eu":
                mark = self.marks.pop()
                items = stack[mark:]
                del stack[mark:]
                if id(stack[-1]) not in self.made:
                    raise NotPlain
                if code == ord("e"):
                    stack[-1].extend(items)
                    if self._is_value() and self.key == "frames":
                        self._frames(items)
                else:
                    stack[-1].update(zip(items[::2], items[1::2], strict=True))
                    if not self.marks:
                        break
            else:
                raise NotPlain
            if at > len(data):
                raise NotPlain
        found.value, found.length = stack[0], at - self.start
        if (
            len(stack) != 1
            or len(found.value) * 2 != len(items)
            or not all(type(k) is str for k in found.value)
        ):
            raise NotPlain
        return found

    def _is_value(self) -> bool:
        """Return whether what was read last is a value of the entry itself, and not a part of one."""
        return len(self.marks) == 1 and (len(self.stack) - self.marks[0]) % 2 == 0

    def _number(self, number: Field) -> None:
        if self._is_value() and self.key in _COUNTED:
            self.found.numbers.append(number)
        elif not self._is_value() and self.key in _SIZES:
            self.found.sizes.append(number)

    def _get(self, number: int) -> None:
        value = self.found.puts[number] if number in self.found.puts else self.memo[number]
        if not isinstance(value, (str, dict)) or (value is THREAD and self.key != "thread_id"):
            raise NotPlain
        self.stack.append(value)
        self.asked.append(number)
        if number not in self.found.puts:
            self.found.gets[number] = value
            self.times_asked[number] += 1

    def _frames(self, frames: list[Any]) -> None:
        """Take note of which frames these are, where all of them were written before."""
        known = {**self.memo, **self.found.puts} if len(frames) == len(self.asked) else {}
        if frames and known and all(known[n] is frame for n, frame in zip(self.asked, frames, strict=True)):
            self.found.frames = tuple(self.asked)
            self._forget(self.found.frames)

    def _forget(self, numbers: tuple[int, ...]) -> None:
        """Demand of what `numbers` refer to no more than where it stands, unless something else refers to it as well."""
        for number, count in Counter(numbers).items():
            if self.times_asked[number] == count:
                self.found.gets.pop(number, None)

    def _put(self, number: int) -> None:
        value = self.stack[-1]
        if number in self.memo or number in self.found.puts or not isinstance(value, (str, dict)):
            raise NotPlain
        self.found.puts[number] = value
        self.made.discard(id(value))
        if isinstance(value, str) and self.key == "process_group":
            self.asked.append(number)
