"""One entry of a recorder's dump, parsed from the bytes of the pickle, with the places of its numbers.

torch writes an entry as `}(` key value ... `u`, in plain opcodes of protocol 2, and refers by number to texts and frames that
it wrote before (torch/csrc/jit/serialization/pickler.cpp). Whatever else stands there is not read here.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from hangscope.ingest.recorder.forms.entry_parts import (
    COUNTED,
    SIZES,
    THREAD,
    TIMES,
    Field,
    NewFrame,
    NotPlain,
    PlainEntry,
)

DEEPEST = 8  # containers in one another; an entry of torch's has three
# Opcodes, as the pickle module names them.
_GETS, _PUTS, _WIDE = b"hj", b"qr", b"jr"
_EMPTY, _UPDATE = b"]}", ord("u")
_OF_THE_KEY = b"qr\x86"
_CONSTANTS = {ord("N"): None, 0x88: True, 0x89: False}
#: what a number is unpacked as, by its opcode
_NUMBERS = {ord("K"): "B", ord("M"): "H", ord("J"): "i"}


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
        if data[at : at + 2] != b"}(":
            raise NotPlain
        code = 0
        while marks or code != _UPDATE:
            code = data[at]
            if len(marks) == 1 and (len(stack) - marks[0]) % 2 != 0 and code not in _OF_THE_KEY:
                key = stack[-1]  # a value of the entry begins
                if not isinstance(key, str):
                    raise NotPlain
                self.key, self.asked = key, []
            at = _STEPS[code](self, code, at + 1)
            if at > len(data):
                raise NotPlain
        (found.value,) = stack
        found.length = at - self.start
        if not all(type(k) is str for k in found.value):
            raise NotPlain
        found.texts = self._own_texts()
        return found

    # Each of these reads one opcode, whose operand stands at `at`, and returns where the next one stands.

    def refer(self, code: int, at: int) -> int:
        size = 4 if code in _WIDE else 1
        number = int.from_bytes(self.data[at : at + size], "little")
        self.found.operands.append((at - self.start, "I" if size == 4 else "B", number))
        (self._get if code in _GETS else self._put)(number)
        return at + size

    def number(self, code: int, at: int) -> int:
        form = _NUMBERS[code]
        self.stack.append(struct.unpack_from("<" + form, self.data, at)[0])
        if self.key in COUNTED and self._is_value():
            self.found.numbers.append(Field(self.key, at - self.start, form))
        elif self.key in SIZES and not self._is_value():
            self.found.sizes.append(Field(self.key, at - self.start, form))
        return at + struct.calcsize("<" + form)

    def long(self, code: int, at: int) -> int:
        if self.data[at] != 8:
            raise NotPlain
        self.stack.append(int.from_bytes(self.data[at + 1 : at + 9], "little", signed=True))
        if self.key in TIMES and self._is_value() and 0 <= self.stack[-1] < 2**62:
            self.found.times.append(Field(self.key, at + 1 - self.start, "q"))
        return at + 9

    def float(self, code: int, at: int) -> int:
        self.stack.append(struct.unpack_from(">d", self.data, at)[0])
        if self.key == "duration_ms" and self._is_value():
            self.found.times.append(Field(self.key, at - self.start, "d"))
        return at + 8

    def unicode(self, code: int, at: int) -> int:
        stack = self.stack
        end = at + 4 + int.from_bytes(self.data[at : at + 4], "little")
        stack.append(self.data[at + 4 : end].decode())  # a surrogate, or what is no UTF-8, is not plain
        self.text = at + 4 - self.start, end - self.start
        self.numbers.pop(len(stack) - 1, None)
        if self.key == "thread_id" and self._is_value() and stack[-1].isascii():
            self.found.thread = self.text
            stack[-1] = THREAD
        return end

    def constant(self, code: int, at: int) -> int:
        self.stack.append(_CONSTANTS[code])
        return at

    def empty(self, code: int, at: int) -> int:
        self.stack.append([] if code == _EMPTY[0] else {})
        self.made.add(id(self.stack[-1]))
        return at

    def mark(self, code: int, at: int) -> int:
        if len(self.marks) == DEEPEST:
            raise NotPlain
        self.marks.append(len(self.stack))
        return at

    def pair(self, code: int, at: int) -> int:
        second, first = self.stack.pop(), self.stack.pop()
        self.stack.append((first, second))
        if self.key == "process_group" and self._is_value() and len(self.asked) == 2:
            self.found.pair = self.asked[0], self.asked[1]
            self._forget(self.found.pair)
        return at

    def extend(self, code: int, at: int) -> int:
        _, items = self._filled(list)
        self.stack[-1].extend(items)
        if self.key == "frames" and self._is_value():
            self._end_of_frames(items)
        return at

    def update(self, code: int, at: int) -> int:
        mark, items = self._filled(dict)
        made = self.stack[-1]
        made.update(zip(items[::2], items[1::2], strict=True))
        if not self.marks and len(made) * 2 != len(items):
            raise NotPlain  # a key twice
        if self._in_frames(2):
            self._new_frame(mark, items)
        return at

    def _filled(self, kind: type) -> tuple[int, list[Any]]:
        """Return the last mark and what stood behind it, which a container of this entry's own takes."""
        mark = self.marks.pop()
        items = self.stack[mark:]
        del self.stack[mark:]
        if id(self.stack[-1]) not in self.made or type(self.stack[-1]) is not kind:
            raise NotPlain
        return mark, items

    def _is_value(self) -> bool:
        """Return whether what was read last is a value of the entry itself, and not a part of one."""
        return len(self.marks) == 1 and (len(self.stack) - self.marks[0]) % 2 == 0

    def _in_frames(self, depth: int) -> bool:
        """Return whether what was read last is a part of the frames, so many containers below the entry."""
        return self.key == "frames" and len(self.marks) == depth

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


_STEPS: dict[int, Callable[[_Parser, int, int], int]] = {
    **dict.fromkeys(_GETS + _PUTS, _Parser.refer),
    **dict.fromkeys(_NUMBERS, _Parser.number),
    **dict.fromkeys(_CONSTANTS, _Parser.constant),
    **dict.fromkeys(_EMPTY, _Parser.empty),
    0x8A: _Parser.long,
    ord("G"): _Parser.float,
    ord("X"): _Parser.unicode,
    ord("("): _Parser.mark,
    0x86: _Parser.pair,
    ord("e"): _Parser.extend,
    _UPDATE: _Parser.update,
}
