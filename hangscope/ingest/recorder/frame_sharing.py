"""Rewrite pickles whose entries repeat their frames in full, so that equal stacks are stored once and loaded once.

torch writes a frame once and refers to it from then on (torch/csrc/jit/serialization/pickler.cpp memoizes what is used
more than once). A dump that went through another tool may carry every frame of every entry down to its strings: ten times
the bytes, nearly all of them the same few stacks, and loading those is most of what such a dump costs. Here a list of
frames that was seen before, byte for byte but for the numbers under which its parts are memoized, becomes a reference to
the first of its kind in the file.

Nothing is loaded here: bytes that do not parse as a plain list stay as they are, and where the rewritten pickle does not
load, the original decides (`safe_pickle.load`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

WORTHWHILE = 300  # bytes of a list of frames; references to shared frames take a tenth of this
LONGEST = 1 << 16  # bytes of a list of frames that is looked at
MAX_STACKS = 256  # different ones in a file
MAX_MISSES = 64  # lists that are parsed beyond the number of those that were recognised
MAX_FOLLOWERS = 16  # stacks that are tried as the next of one
FREE_BYTES = 1 << 20  # that are looked at in any dump, beyond as many as it has
COMPARED = 16  # bytes are compared in the time in which one is parsed
#: the key of the frames in the first entry; it stands there in full, and is memoized unless the pickler memoizes nothing
_KEY = re.compile(rb"X\x06\x00\x00\x00frames(?:q(.)|r(.{4})|(?=\]))", re.DOTALL)
#: what a list of frames is made of; text and long integers carry their length
_TOKEN = re.compile(
    rb"(?P<put>q.|r.{4})|(?P<open>\()|(?P<close>[eu])|X(?P<text>.{4})|\x8a(?P<long>.)|[\]}]|h.|j.{4}|K.|M..|J.{4}",
    re.DOTALL,
)


@dataclass(slots=True, eq=False)
class _Stack:
    """A list of frames as bytes: its length, and what it is (`value`) where its memo numbers are masked out."""

    length: int
    mask: int
    value: int
    followers: list[_Stack] = field(default_factory=list)  # which stacks came next, the latest first

    def stands_at(self, data: bytes, start: int) -> bool:
        return int.from_bytes(data[start : start + self.length], "little") & self.mask == self.value


class FrameSharing:
    """Shares the frames of one dump after another.

    Ranks of one role make the same calls, so what stood at the same place of the dump before is tried first: comparing it
    takes a tenth of the time of masking out the memo numbers.
    """

    def __init__(self) -> None:
        self._stacks: dict[tuple[int, int, int], _Stack] = {}
        self._before: list[tuple[bytes, _Stack]] = []

    def share(self, data: bytes) -> bytes:
        """Return a pickle of the same value with each stack stored once; `data` itself where that would gain nothing."""
        key = _KEY.search(data)
        if key is None or not data.startswith(b"\x80\x02"):
            return data  # later protocols number what they memoize by counting, so nothing may be left out
        mark = (b"h" + key[1] if key[1] else b"j" + key[2] if key[2] else key[0]) + b"]"
        if len(self._stacks) > MAX_STACKS:
            self._stacks.clear()
        lists: list[tuple[bytes, _Stack]] = []
        memo: dict[_Stack, bytes] = {}
        pieces: list[bytes] = []
        # Numbers are given in order, and what is memoized takes six bytes at least with its number, so these are free.
        free = 256 + len(data) // 6
        last = _Stack(0, 0, 0)
        copied = misses = 0
        budget = len(data) + FREE_BYTES
        position = data.find(mark, key.start() if mark.startswith(b"X") else key.end())
        while position >= 0:
            start = position + len(mark) - 1
            chunk, stack = self._before[len(lists)] if len(lists) < len(self._before) else (b"", last)
            if not chunk or not data.startswith(chunk, start):
                budget -= sum(one.length for one in last.followers) // COMPARED
                known = next((one for one in last.followers if one.stands_at(data, start)), None)
                if known is None:
                    known, parsed = self._parsed(data, start)
                    budget -= parsed
                    misses += 1
                    if (
                        misses > MAX_MISSES + len(lists)
                        or (misses == 4 and not memo)
                        or len(memo) > MAX_STACKS
                        or budget < 0
                    ):
                        return data
                    if known is None:
                        position = data.find(mark, position + 1)
                        continue
                    last.followers.insert(0, known)
                    del last.followers[MAX_FOLLOWERS:]
                stack = known
                chunk = data[start : start + stack.length]
            lists.append((chunk, stack))
            end = start + len(chunk)
            number = memo.get(stack)
            if number is None:
                number = memo[stack] = (free + len(memo)).to_bytes(4, "little")
                pieces += data[copied:end], b"r", number
            else:
                pieces += data[copied:start], b"j", number
            copied, last = end, stack
            position = data.find(mark, end)
        self._before = lists
        return b"".join([*pieces, data[copied:]])

    def _parsed(self, data: bytes, start: int) -> tuple[_Stack | None, int]:
        """Return the stack at `start`, and how many bytes were looked at.

        None where there is no plain list, or one too short to gain anything.
        """
        puts: list[tuple[int, int]] = []
        end, whole = _end(data, start, puts)
        length = end - start
        if not whole or length < WORTHWHILE:
            return None, length
        mask = bytearray(b"\xff") * length
        for first, behind in puts:
            mask[first - start : behind - start] = bytes(behind - first)
        bits = int.from_bytes(mask, "little")
        form = length, bits, int.from_bytes(data[start:end], "little") & bits
        return self._stacks.setdefault(form, _Stack(*form)), length


def _end(data: bytes, start: int, puts: list[tuple[int, int]]) -> tuple[int, bool]:
    """Return where the list at `start` ends, or where it ceases to be a plain one, and whether it is whole.

    `puts` is filled with the places of the numbers under which its parts are memoized. A list is `](...e`, or `]}(...ua`
    where it has a single element, a dict. One of more than 1,000 goes on behind its first part, and is none for us.
    """
    position, depth, tokens, single = start + 1, 0, 0, False
    while token := _TOKEN.match(data, position, start + LONGEST):
        position = token.end()
        kind = token.lastgroup
        if kind == "put":
            puts.append((token.start() + 1, position))
            continue
        tokens += 1
        if tokens == 1:
            single = token[0] == b"}"
        if depth == 0 and kind != "open" and not (single and tokens == 1):
            break  # an empty list, and what follows is its dict's
        if kind == "open":
            depth += 1
        elif kind == "text":
            position += int.from_bytes(token["text"], "little")
        elif kind == "long":
            position += token["long"][0]
        elif kind == "close":
            depth -= 1
            if depth == 0 and (single or token["close"] == b"e"):
                position += single
                whole = (not single or data[position - 1 : position] == b"a") and not _goes_on(data, position)
                return position, whole
            if depth <= 0:
                break
    return min(position, len(data)), False


def _goes_on(data: bytes, position: int) -> bool:
    """Return whether more elements are added to the list that ended here: what follows is no key and no end of a dict."""
    following = data[position : position + 1]
    if following == b"h":
        return data[position + 2 : position + 3] == b"a"
    if following == b"j":
        return data[position + 5 : position + 6] == b"a"
    return following not in (b"X", b"s", b"u")
