"""Dumps that are like an earlier one, read without loading their entries.

Ranks of one role issue the same collectives in the same order, so all but the head of their dumps is the same, byte for byte, except
for times, the numbers of threads, and texts in frames that may be a rank's own, such as the file that a compiler wrote for it
(torch/csrc/distributed/c10d/FlightRecorderDetail.hpp writes the keys of an entry in one order, and
torch/csrc/jit/serialization/pickler.cpp numbers what it memoizes in order). Of such a dump only the head is loaded, and the times of
its calls are picked out: a tenth of the work.

A template is a dump and the places in which others may differ. These places are found by their form. To prove them, the dump
is loaded once more with other bytes in all of them, and other texts in its head, and must then give what the template says.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from sys import intern
from typing import Any

from hangscope.ingest.recorder import flight_recorder, safe_pickle
from hangscope.ingest.recorder.entries import Entries
from hangscope.ingest.recorder.fast.entry_forms import EntryForms
from hangscope.ingest.recorder.flight_recorder import is_torchcomms
from hangscope.ingest.recorder.recording import Recording, StackRow
from hangscope.ingest.recorder.values import as_desc, as_text
from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex

SMALLEST = 1 << 16  # bytes; a smaller dump is loaded in no time
SIGHTINGS = 2  # dumps whose entries have equally many bytes, and their first times in the same places, before one becomes a template
_COMPARED = 64  # first times
KEPT = 1 << 21  # bytes of templates
UNUSED = 4  # templates that are made beyond the number of dumps that were like one
_START, _ENTRIES = b"\x80\x02", b"X\x07\0\0\0entries"
_MEMOIZED = regex(rb"(?s)(?:q.|r.{4})?")
_END = b"u."
_TIME = regex(rb"(?s)\x8a\x08.{7}[\x10-\x1f]")  # ns, from 2006 to 2043
_LOWEST, _HIGHEST = b"\x8a\x08" + bytes(7) + b"\x10", b"\x8a\x08" + b"\xff" * 7 + b"\x1f"
_NUMBER_OF_THREAD = regex(rb"X[\x05-\x14]\0\0\0(\d{5,20})[qr]")
_KEYS = frozenset({"name", "filename", "line", "desc", "ranks"})


@dataclass(slots=True)
class _Template:
    """A dump that others are compared with: its entries as bytes under a mask, and its recording.

    `created` picks the times of its calls, `texts` are the places of the texts in frames. `fixed` is what the head memoizes, by
    number, except the `free` texts about groups; `names` are the numbers of each group's name and description.
    """

    length: int
    mask: int
    value: int
    created: struct.Struct
    texts: Sequence[tuple[int, int, str]]
    fixed: dict[int, Any]
    free: frozenset[int]
    names: Sequence[tuple[int, int] | None]
    recording: Recording

    def recording_of(
        self, top: dict[Any, Any], memo: Mapping[int, Any], body: bytes, value: int
    ) -> Recording | None:
        """Return the recording of a dump, whose `body` as a number is `value`; None if it is not surely like the template."""
        if value & self.mask != self.value:
            return None
        if any(memo.get(number) != value for number, value in self.fixed.items()):
            return None
        if not all(type(memo.get(number)) is str for number in self.free):
            return None
        groups = [
            group if pair is None else (group[0], as_text(memo[pair[0]]), as_desc(memo[pair[1]]))
            for group, pair in zip(self.recording.groups, self.names, strict=True)
        ]
        stacks = self._stacks(body)
        if stacks is None or len(set(groups)) < len(groups):
            return None
        created = array("q", self.created.unpack_from(body))
        return replace(
            flight_recorder.reduce_dump(top),
            groups=groups,
            kinds=self.recording.kinds,
            stacks=stacks,
            columns={**self.recording.columns, "created": created},
            own_sizes=self.recording.own_sizes,
        )

    def _stacks(self, body: bytes) -> list[StackRow] | None:
        """Return the template's stacks with the texts of a dump; None if two of its texts are equal, so that stacks may be."""
        new = {old: intern(body[start:end].decode("ascii")) for start, end, old in self.texts}
        stacks = self.recording.stacks
        if all(old == text for old, text in new.items()):
            return stacks
        rows = {row: row for stack in stacks for row in stack}
        kept = {text for name, file, _ in rows for text in (name, file) if text not in new}
        if len(set(new.values())) < len(new) or not kept.isdisjoint(new.values()):
            return None
        for name, file, line in rows:
            if name in new or file in new:
                rows[name, file, line] = new.get(name, name), new.get(file, file), line
        return [tuple(map(rows.__getitem__, stack)) for stack in stacks]


class Templates:
    """Reads the dumps of one process."""

    def __init__(self) -> None:
        self._templates: list[_Template] = []
        self._sightings: Counter[tuple[int, ...]] = Counter()
        self._forms = EntryForms()
        self._unused = 0

    def read(self, data: bytes) -> Recording | None:
        """Return the recording of a dump, None if it must be loaded."""
        try:
            return self._read(data) if len(data) >= SMALLEST else None
        except Exception:  # it is not as torch writes it; loading it says what is wrong with it
            return None

    def _read(self, data: bytes) -> Recording | None:
        found = data.find(_ENTRIES) if data.startswith(_START) else -1
        key = _MEMOIZED.match(data, found + len(_ENTRIES)) if found >= 0 else None
        if key is None:
            return None
        top, memo = safe_pickle.load_with_memo(data[: key.end()] + b"Nu.")
        texts = memo.copy()
        body = data[key.end() :]
        if not isinstance(top, dict) or "entries" not in top or is_torchcomms(top):
            return None
        alike = [template for template in self._templates if template.length == len(body)]
        value = int.from_bytes(body, "little") if alike else 0
        for template in alike:
            if like := template.recording_of(top, texts, body, value):
                self._unused -= 1
                return like
        recording = flight_recorder.reduce_dump(top)
        entries = Entries(recording)
        calls = self._forms.read(body, memo, entries)
        if not flight_recorder.looks_like_dump({**top, "entries": [call.entry for call in calls[:4]]}):
            return None
        sight = len(body), *(found.start() for found in islice(_TIME.finditer(body), _COMPARED))
        self._sightings[sight] += 1
        if self._sightings[sight] >= SIGHTINGS and self._unused < UNUSED and not recording.notes:
            self._unused += 1
            with suppress(Exception):  # the dump itself was read
                self._keep(_template(top, texts, body, recording, entries.kept))
        return recording

    def _keep(self, template: _Template | None) -> None:
        if template is not None:
            self._templates.insert(0, template)
        while len(self._templates) > 1 and sum(one.length for one in self._templates) > KEPT:
            self._templates.pop()


def _template(
    top: dict[Any, Any], memo: dict[int, Any], body: bytes, recording: Recording, kept: Sequence[int]
) -> _Template | None:
    """Return a dump as a template; None if its places are not proved."""
    texts = list(_texts(body, recording.stacks))
    bits = _mask(body, texts)
    value = int.from_bytes(body, "little")
    free = frozenset(_about_groups(top, memo))
    template = _Template(
        length=len(body),
        mask=bits,
        value=value & bits,
        created=_created(body, kept),
        texts=texts,
        fixed={number: value for number, value in memo.items() if number not in free},
        free=free,
        names=list(_names(recording.groups, memo)),
        recording=recording,
    )
    flipped = value ^ (~bits & int.from_bytes(b"\1" * len(body), "little"))
    other, its_memo = flipped.to_bytes(len(body), "little"), {**memo, **{n: f"other {n}" for n in free}}
    expected = flight_recorder.reduce_dump(top)
    Entries(expected).reduce(
        safe_pickle.load_part(other.removesuffix(_END), safe_pickle.memo_of(its_memo))[0]
    )
    like = template.recording_of(top, its_memo, other, flipped)
    return template if like is not None and like.to_wire() == expected.to_wire() else None


def _mask(body: bytes, texts: Sequence[tuple[int, int, str]]) -> int:
    """Return a mask of the bytes that are equal in other dumps like this."""
    low, high = (int.from_bytes(_TIME.sub(time, body), "little") for time in (_LOWEST, _HIGHEST))
    mask = bytearray((((1 << 8 * len(body)) - 1) ^ low ^ high).to_bytes(len(body), "little"))
    for start, end in _values(body, "duration_ms", b"G"):
        mask[start:end] = bytes(8)
    threads = [found.span(1) for found in _NUMBER_OF_THREAD.finditer(body)]
    for start, end in (*threads, *((start, end) for start, end, _ in texts)):
        mask[start:end] = b"\x80" * (end - start)  # other texts, too, are ASCII
    return int.from_bytes(mask, "little")


def _texts(body: bytes, stacks: Sequence[StackRow]) -> Iterator[tuple[int, int, str]]:
    """Yield (start, end, text) of the names of functions and files that the dump writes only once."""
    for text in sorted({text for stack in stacks for name, file, _ in stack for text in (name, file)}):
        written = b"X" + len(text).to_bytes(4, "little") + text.encode()
        if text.isascii() and text not in _KEYS and body.count(written) == 1:
            start = body.index(written) + 5
            yield start, start + len(text), text


def _values(body: bytes, key: str, opcode: bytes) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of a key's values with an operand of eight bytes after this opcode."""
    text = b"X" + len(key).to_bytes(4, "little") + key.encode()
    after = body.find(text) + len(text)
    if after < len(text):
        return
    put = body[after : after + (2 if body[after] == ord("q") else 5)]
    get = (b"h" if len(put) == 2 else b"j") + put[1:]
    either = b"(?:%s|%s)%s" % tuple(map(re.escape, (text + put, get, opcode)))
    for found in re.compile(either).finditer(body):
        yield found.end(), found.end() + 8


def _created(body: bytes, kept: Sequence[int]) -> struct.Struct:
    """Return what picks the times of a dump's calls. Raises IndexError if there are not enough."""
    starts = [start for start, _ in _values(body, "time_created_ns", b"\x8a\x08")]
    starts = [starts[index] for index in kept]
    gaps = [start - before - 8 for before, start in zip([-8, *starts], starts, strict=False)]
    return struct.Struct("<" + "".join(f"{gap}xq" for gap in gaps))


def _about_groups(top: dict[Any, Any], memo: Mapping[int, Any]) -> Iterator[int]:
    """Yield the numbers of the texts in the head that may differ: those about groups and versions."""
    config, status = top.get("pg_config", {}), top.get("pg_status", {})
    texts = [*config, *status, *top.values(), *(text for row in config.values() for text in row.values())]
    free = {text for text in texts if isinstance(text, str)} - _KEYS
    return (number for number, text in memo.items() if isinstance(text, str) and text in free)


def _names(
    groups: Sequence[tuple[str, str, str]], memo: Mapping[int, Any]
) -> Iterator[tuple[int, int] | None]:
    """Yield the numbers of each group's name and description, None for a group that the head does not name."""
    texts = [(number, text) for number, text in memo.items() if isinstance(text, str)]
    for _, name, desc in groups:
        named = next((number for number, text in texts if as_text(text) == name), None)
        described = next((number for number, text in texts if as_desc(text) == desc), None)
        yield None if named is None or described is None else (named, described)
