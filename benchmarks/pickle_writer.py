"""Plain values as torch's C++ pickler writes them (torch/csrc/jit/serialization/pickler.cpp)."""

from __future__ import annotations

_LONG = b"\x8a\x08"


class PickleWriter:
    """Writes protocol 2: every container opened by a mark, strings memoized by their content."""

    def __init__(self, memoized: int = 0, strings: dict[str, int] | None = None) -> None:
        self.out = bytearray()
        self.memoized = memoized
        self.strings = dict(strings or {})

    def raw(self, code: bytes) -> None:
        self.out += code

    def put(self) -> int:
        number, self.memoized = self.memoized, self.memoized + 1
        self.out += b"q" + bytes([number]) if number < 256 else b"r" + number.to_bytes(4, "little")
        return number

    def get(self, number: int) -> None:
        self.out += b"h" + bytes([number]) if number < 256 else b"j" + number.to_bytes(4, "little")

    def fresh(self, text: str) -> int:
        """Write a string without looking it up, and return its memo number."""
        data = text.encode()
        self.out += b"X" + len(data).to_bytes(4, "little") + data
        return self.put()

    def text(self, text: str) -> None:
        number = self.strings.get(text)
        if number is None:
            self.strings[text] = self.fresh(text)
        else:
            self.get(number)

    def integer(self, value: int) -> None:
        self.out += integer(value)

    def time(self) -> int:
        """Write room for a time and return its offset."""
        self.out += _LONG + bytes(8)
        return len(self.out) - 8

    def duration(self) -> int:
        """Write room for a float and return its offset."""
        self.out += b"G" + bytes(8)
        return len(self.out) - 8


def integer(value: int) -> bytes:
    """Return a whole number as the pickler writes it, in as many bytes as it needs."""
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if 0 <= value < 65536:
        return b"M" + value.to_bytes(2, "little")
    if -(2**31) <= value < 2**31:
        return b"J" + value.to_bytes(4, "little", signed=True)
    return _LONG + value.to_bytes(8, "little", signed=True)
