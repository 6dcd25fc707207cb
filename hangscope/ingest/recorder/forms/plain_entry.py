"""One entry of a recorder's dump, parsed from the bytes of the pickle, with the places of its numbers.

torch writes an entry as `}(` key value ... `u`, in plain opcodes of protocol 2, and refers by number to texts and frames that
it wrote before (torch/csrc/jit/serialization/pickler.cpp). Whatever else stands there is not read here.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import field
from typing import Any

from hangscope.dataclass import dataclass

DEEPEST = 8  # containers in one another; an entry of torch's has three
#: what a number or time is unpacked as, by its opcode; the width follows from the format
_NUMBERS = {ord("K"): "B", ord("M"): "H", ord("J"): "i"}
COUNTED = frozenset({"record_id", "collective_seq_id", "p2p_seq_id", "op_id"})
TIMES = frozenset({"time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns"})
SIZES = frozenset({"input_sizes", "output_sizes"})
# Opcodes, as the pickle module names them.
_GET, _LONG_GET, _PUT, _LONG_PUT, _TEXT, _LONG, _FLOAT = b"hjqrX\x8aG"
_MARK, _NONE, _PAIR = b"(N\x86"
_TRUTHS, _EMPTY, _FILL = b"\x88\x89", b"]}", b"eu"
_OF_THE_KEY = b"qr\x86"


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
        self.numbers: dict[int, int] = {}  # memo numbers of what stands on the stack, by its place
        self.frames: list[int | NewFrame] = []
        self.by_place: list[int] = []  # memo numbers of frames and of their texts
        self.text = 0, 0  # where the text stands that was read last

    def entry(self) -> PlainEntry:
        data, at, stack, marks, found = self.data, self.start, self.stack, self.marks, self.found
        operands = found.operands
        if data[at : at + 2] != b"}(":
            raise NotPlain
        while True:
            code = data[at]
            at += 1
            if len(marks) == 1 and (len(stack) - marks[0]) % 2 != 0 and code not in _OF_THE_KEY:
                key = stack[-1]  # a value of the entry begins
                if not isinstance(key, str):
                    raise NotPlain
                self.key, self.asked = key, []
            if code == _GET:
                operands.append((at - self.start, "B", data[at]))
                self._get(data[at])
                at += 1
            elif code == _LONG_GET:
                operands.append((at - self.start, "I", int.from_bytes(data[at : at + 4], "little")))
                self._get(operands[-1][2])
                at += 4
            elif code in _NUMBERS:
                number = Field(self.key, at - self.start, _NUMBERS[code])
                at = self.start + number.end
                stack.append(struct.unpack_from("<" + number.form, data, self.start + number.start)[0])
                self._number(number)
            elif code == _LONG and data[at] == 8:
                stack.append(int.from_bytes(data[at + 1 : at + 9], "little", signed=True))
                if self._is_value() and self.key in TIMES and 0 <= stack[-1] < 2**62:
                    found.times.append(Field(self.key, at + 1 - self.start, "q"))
                at += 9
            elif code == _FLOAT:
                stack.append(struct.unpack_from(">d", data, at)[0])
                if self._is_value() and self.key == "duration_ms":
                    found.times.append(Field(self.key, at - self.start, "d"))
                at += 8
            elif code == _TEXT:
                end = at + 4 + int.from_bytes(data[at : at + 4], "little")
                stack.append(data[at + 4 : end].decode())  # a surrogate, or what is no UTF-8, is not plain
                self.text = at + 4 - self.start, end - self.start
                self.numbers.pop(len(stack) - 1, None)
                if self._is_value() and self.key == "thread_id" and stack[-1].isascii():
                    found.thread = self.text
                    stack[-1] = THREAD
                at = end
            elif code == _PUT:
                operands.append((at - self.start, "B", data[at]))
                self._put(data[at])
                at += 1
            elif code == _LONG_PUT:
                operands.append((at - self.start, "I", int.from_bytes(data[at : at + 4], "little")))
                self._put(operands[-1][2])
                at += 4
            elif code == _NONE:
                stack.append(None)
            elif code in _TRUTHS:
                stack.append(code == _TRUTHS[0])
            elif code in _EMPTY:
                stack.append([] if code == _EMPTY[0] else {})
                self.made.add(id(stack[-1]))
            elif code == _MARK:
                if len(marks) == DEEPEST:
                    raise NotPlain
                marks.append(len(stack))
            elif code == _PAIR:
                second, first = stack.pop(), stack.pop()
                stack.append((first, second))
                if self._is_value() and self.key == "process_group" and len(self.asked) == 2:
                    found.pair = self.asked[0], self.asked[1]
                    self._forget(found.pair)
            elif code in _FILL:
                mark = marks.pop()
                items = stack[mark:]
                del stack[mark:]
                if id(stack[-1]) not in self.made:
                    raise NotPlain
                if code == _FILL[0]:
                    stack[-1].extend(items)
                    if self._is_value() and self.key == "frames":
                        self._end_of_frames(items)
                else:
                    stack[-1].update(zip(items[::2], items[1::2], strict=True))
                    if not marks:
                        break
                    if self._in_frames(2):
                        self._new_frame(mark, items)
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
        found.texts = self._own_texts()
        return found

    def _is_value(self) -> bool:
        """Return whether what was read last is a value of the entry itself, and not a part of one."""
        return len(self.marks) == 1 and (len(self.stack) - self.marks[0]) % 2 == 0

    def _in_frames(self, depth: int) -> bool:
        """Return whether what was read last is a part of the frames, so many containers below the entry."""
        return self.key == "frames" and len(self.marks) == depth

    def _number(self, number: Field) -> None:
        if self._is_value() and self.key in COUNTED:
            self.found.numbers.append(number)
        elif not self._is_value() and self.key in SIZES:
            self.found.sizes.append(number)

    def _get(self, number: int) -> None:
        found = self.found
        value = found.puts[number] if number in found.puts else self.memo[number]
        if not isinstance(value, (str, dict)) or (value is THREAD and self.key != "thread_id"):
            raise NotPlain
        self.numbers[len(self.stack)] = number
        self.stack.append(value)
        self.asked.append(number)
        self.times_asked[number] += 1
        if number not in found.puts:
            found.gets[number] = value
        elif self.key != "frames" and isinstance(value, dict):
            raise NotPlain
        if self._in_frames(2) and isinstance(value, dict):
            self.frames.append(number)
            self.by_place.append(number)

    def _new_frame(self, mark: int, items: list[Any]) -> None:
        """Take note of a frame whose keys and values stood behind `mark`; its memo number comes next."""
        made = self.stack[-1]
        if len(made) * 2 != len(items):
            raise NotPlain  # a key twice
        places = range(mark + 1, mark + len(items), 2)
        texts = tuple(
            self.numbers.get(place) if isinstance(value, str) else None
            for place, value in zip(places, items[1::2], strict=True)
        )
        self.by_place += [number for number in texts if number is not None]
        self.frames.append(NewFrame(-1, made, texts))

    def _end_of_frames(self, frames: list[Any]) -> None:
        """Take note of how the frames are had from the memo, where all of them are."""
        found = self.found
        if found.frames is not None:
            raise NotPlain  # a list that goes on behind its end
        if not frames or len(self.frames) != len(frames):
            return
        for frame, value in zip(self.frames, frames, strict=True):
            if isinstance(frame, NewFrame) and (frame.made is not value or frame.number < 0):
                return
        found.frames = tuple(self.frames)
        self._forget(self.by_place)

    def _forget(self, numbers: Iterable[int]) -> None:
        """Demand of what `numbers` refer to no more than where it stands, unless something else refers to it as well."""
        for number, count in Counter(numbers).items():
            if self.times_asked[number] == count:
                self.found.gets.pop(number, None)

    def _own_texts(self) -> list[tuple[int, int, int]]:
        """Return the texts that stand in the frames which this entry writes, and are nothing else in it."""
        if self.found.frames is None:
            return []
        placed = Counter(self.by_place)
        return [text for text in self.found.texts if self.times_asked[text[2]] == placed[text[2]] - 1]

    def _put(self, number: int) -> None:
        value, found = self.stack[-1], self.found
        if number in self.memo or number in found.puts or not isinstance(value, (str, dict)):
            raise NotPlain
        found.puts[number] = value
        self.made.discard(id(value))
        self.numbers[len(self.stack) - 1] = number
        if isinstance(value, str):
            if self.key == "process_group":
                self.asked.append(number)
            elif self._in_frames(3) and (len(self.stack) - self.marks[-1]) % 2 == 0 and value.isascii():
                found.texts.append((*self.text, number))
        elif self._in_frames(2) and self.frames:
            frame = self.frames[-1]
            if isinstance(frame, NewFrame) and frame.made is value:
                frame.number = number
