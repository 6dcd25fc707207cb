"""Dumps that differ from one that was read before in nothing but their times and the names of their groups.

Ranks of one role make the same calls in the same order, so all but the head of their dumps is the same, byte for byte, but
for times and the number of a thread (torch/csrc/distributed/c10d/FlightRecorderDetail.hpp writes the keys of an entry in
one order, and torch/csrc/jit/serialization/pickler.cpp numbers what it memoizes in order). Of such a twin only the head is
loaded, and the times of its calls are picked out: a tenth of the work.

A twin is believed only where every byte that is not masked is equal, so that it would be read as the first one was. What
the calls refer to in the head is compared as well; where it is the name of a group, the twin's own name is taken.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from hangscope.ingest.recorder import flight_recorder, safe_pickle
from hangscope.ingest.recorder.recording import Recording
from hangscope.ingest.recorder.values import as_desc, as_text

SMALLEST = 1 << 16  # bytes; a smaller dump is loaded in no time
SIGHTINGS = 4  # dumps whose calls take equally many bytes before one of them is kept to compare others with
LONGEST = 4096  # bytes of a text that is compared
KEPT = 1 << 24  # bytes of dumps that are kept to compare others with
TWINS_PER_MODEL = 16  # as many are read in the time that it takes to learn another model
_ENTRIES = b"X\x07\x00\x00\x00entries"
_KEY = re.compile(re.escape(_ENTRIES) + rb"(?:q.|r.{4})?", re.DOTALL)
#: the opcodes of plain containers and values at protocol 2; text (X) and long integers (\x8a) carry their length
_TOKEN = re.compile(
    rb"h(?P<get>.)|j(?P<long_get>.{4})|[})\](euaN\x85\x87-\x89]|(?P<stop>\.)|(?P<pair>\x86)|K.|M..|q(?P<put>.)|r(?P<long_put>.{4})"
    rb"|\x8a(?P<long>.)|J.{4}|G.{8}|X(?P<text>.{4})|\x80\x02",
    re.DOTALL,
)
_OWN_TIMES = ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")


class _NotPlain(Exception):
    """The bytes hold another opcode than those of plain values."""


@dataclass(slots=True)
class _Outline:
    """What a stretch of a pickle memoizes and refers to, and where its times and thread numbers stand."""

    memo: dict[int, str | None] = field(
        default_factory=dict
    )  # texts by memo number, None for what is no text
    used: set[int] = field(default_factory=set)  # memo numbers that are referred to
    names: set[tuple[int, int]] = field(default_factory=set)  # those of the (name, description) of a group
    created: list[int] = field(default_factory=list)  # where the 8 bytes of each time_created_ns begin
    threads: list[tuple[int, int]] = field(default_factory=list)  # where the text of a thread_id stands
    masked: list[tuple[int, int]] = field(default_factory=list)  # where the 8 bytes of any time stand


def _outline(data: bytes, memo: dict[int, str | None]) -> _Outline:
    """Walk a stretch of a pickle from end to end. `memo` holds what was memoized before it. Raises _NotPlain."""
    found = _Outline()
    position, size = 0, len(data)
    key: str | None = None  # the text just before this value
    last: str | None = None  # the last value, if it is a text
    pair: list[int] = []  # memo numbers of the texts behind the key of a group's name
    while position < size:
        token = _TOKEN.match(data, position)
        if token is None:
            raise _NotPlain
        position = token.end()
        kind = token.lastgroup
        if kind == "put" or kind == "long_put":
            found.memo[int.from_bytes(token[kind], "little")] = last
            continue
        key, last = last, None
        if kind == "get" or kind == "long_get":
            number = int.from_bytes(token[kind], "little")
            last = found.memo[number] if number in found.memo else memo.get(number)
            if key == "process_group" or len(pair) == 1:
                pair.append(number)
                continue
            found.used.add(number)
        elif kind == "text":
            end = position + int.from_bytes(token["text"], "little")
            # A text as long as the members of a large group is none that a call refers to.
            last = data[position:end].decode("utf-8", "replace") if end - position <= LONGEST else None
            if key == "thread_id":
                found.threads.append((position, end))
            position = end
        elif kind == "long":
            if key in _OWN_TIMES and token["long"] == b"\x08":
                found.masked.append((position, position + 8))
                if key == "time_created_ns":
                    found.created.append(position)
            position += token["long"][0]
        elif kind == "stop" and position != size:
            raise _NotPlain
        elif kind == "pair" and len(pair) == 2:
            found.names.add((pair[0], pair[1]))
            pair = []
            continue
        found.used.update(pair)
        pair = []
    if position != size:
        raise _NotPlain
    return found


@dataclass(slots=True)
class _Model:
    """A dump that others are compared with: its calls as bytes under a mask, and what they were read as."""

    length: int
    mask: int
    value: int
    created: struct.Struct  # picks the times of the calls
    used: dict[int, str | None]  # what the calls take from the head, by memo number
    names: dict[int, tuple[int, int]]  # by index of a group: the memo numbers of its name and description
    recording: Recording


class Twins:
    """Recognises twins among the dumps that one process reads."""

    def __init__(self) -> None:
        self._models: list[_Model] = []
        self._sighted: Counter[int] = Counter()
        self._worthwhile = 2.0  # models that may yet be learned

    def read(self, data: bytes) -> Recording | None:
        """Return the recording of a dump whose twin was learned before, else None."""
        split = _split(data) if self._models else None
        if split is None:
            return None
        head, body = split
        calls = -1
        for model in self._models:
            if model.length == len(body):
                calls = int.from_bytes(body, "little") if calls < 0 else calls
                if calls & model.mask == model.value:
                    self._worthwhile += 1 / TWINS_PER_MODEL
                    return _like(model, head, body)
        return None

    def learn(self, data: bytes, recording: Recording) -> None:
        """Take note of a dump that was loaded in full, and of what it was read as."""
        split = _split(data) if len(data) >= SMALLEST and self._worthwhile >= 1 else None
        if split is None:
            return
        head, body = split
        self._sighted[len(body)] += 1
        if self._sighted[len(body)] % SIGHTINGS == 0:
            self._worthwhile -= 1
            model = _model(head, body, recording)
            if model is not None:
                self._models.insert(0, model)
                while len(self._models) > 1 and sum(one.length for one in self._models) > KEPT:
                    self._models.pop()


def _split(data: bytes) -> tuple[bytes, bytes] | None:
    """Return a dump up to the key of its entries, and the rest; None where it has none or is of another protocol."""
    found = data.find(_ENTRIES) if data.startswith(b"\x80\x02") else -1
    key = _KEY.match(data, found) if found >= 0 else None
    return None if key is None else (data[: key.end()], data[key.end() :])


def _head(head: bytes) -> tuple[dict[Any, Any], dict[int, Any]]:
    """Return a dump without its entries, and what its head memoizes. Raises whatever the pickle module raises, or ValueError."""
    top, memo = safe_pickle.load_with_memo(head + b"Nu.")
    if not isinstance(top, dict) or "entries" not in top:
        raise ValueError("it ends before its entries")
    return top, memo


def _model(head: bytes, body: bytes, recording: Recording) -> _Model | None:
    try:
        memo = {
            number: value if isinstance(value, str) and len(value) <= LONGEST else None
            for number, value in _head(head)[1].items()
        }
        outline = _outline(body, memo)
    except Exception:  # it was loaded as a whole, but is not written as torch writes it
        return None
    times = [int.from_bytes(body[at : at + 8], "little", signed=True) for at in outline.created]
    if recording.notes or not times or times != recording.columns["created"].tolist():
        return None  # not every entry became a call, or not in this order
    if not 0 <= min(times) <= max(times) < 2**62:
        return None
    in_head = [(a, b) for a, b in outline.names if memo.get(a) is not None and memo.get(b) is not None]
    names = {}
    for index, (_, name, desc) in enumerate(recording.groups):
        pairs = [(a, b) for a, b in in_head if (as_text(memo[a]), as_desc(memo[b])) == (name, desc)]
        if len(pairs) > 1:
            return None
        if pairs:
            names[index] = pairs[0]
    used = outline.used | {n for pair in outline.names if pair not in names.values() for n in pair}
    used = {number for number in used if number in memo}
    if any(memo[number] is None for number in used):
        return None  # a container of the head, of which nothing is compared
    mask = bytearray(b"\xff") * len(body)
    for first, behind in outline.masked:
        mask[first:behind] = bytes(behind - first)
    for at in outline.created:
        mask[at + 7] = 0xC0  # so a twin's times, too, are neither negative nor beyond 2^62
    for first, behind in outline.threads:
        if body[first:behind].isascii():
            mask[first:behind] = b"\x80" * (behind - first)  # a twin's texts, too, are ASCII, so they load
    bits = int.from_bytes(mask, "little")
    gaps = [at - before - 8 for before, at in zip([-8, *outline.created], outline.created, strict=False)]
    return _Model(
        length=len(body),
        mask=bits,
        value=int.from_bytes(body, "little") & bits,
        created=struct.Struct("<" + "".join(f"{gap}xq" for gap in gaps)),
        used={number: memo[number] for number in used},
        names=names,
        recording=recording,
    )


def _like(model: _Model, head: bytes, body: bytes) -> Recording | None:
    """Return the recording of a dump whose calls are the model's."""
    try:
        top, memo = _head(head)
    except Exception:  # it is no twin then, and is loaded as a whole, which says what is wrong with it
        return None
    if any(memo.get(number) != text for number, text in model.used.items()):
        return None
    own = flight_recorder.reduce_dump(top)
    groups = list(model.recording.groups)
    for index, (name, desc) in model.names.items():
        if not isinstance(memo.get(name), str) or not isinstance(memo.get(desc), str):
            return None
        groups[index] = (groups[index][0], as_text(memo[name]), as_desc(memo[desc]))
    return replace(
        own,
        groups=groups,
        kinds=model.recording.kinds,
        stacks=model.recording.stacks,
        columns={**model.recording.columns, "created": array("q", model.created.unpack_from(body))},
    )
