"""Entries that are like an earlier one except for their numbers, read without loading them.

A training job issues the same few collectives over and over, so most entries of a dump are, byte for byte, like an earlier entry
except for sequence numbers and times. Such an entry is compared with the earlier one under a mask, and its numbers are
picked out, which takes a fraction of the time of loading it.

torch writes an entry as `}(` key value ... `u` in opcodes of protocol 2, and refers by number to texts and frames that it wrote before
(torch/csrc/jit/serialization/pickler.cpp). These numbers depend on the entry with which the recorder's buffer begins. So an entry
of another dump may have others, if they refer to equal values. An entry that writes a text or a frame is loaded.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any, NamedTuple

from hangscope.ingest.recorder import safe_pickle
from hangscope.ingest.recorder.calls import Call
from hangscope.ingest.recorder.entries import SIZES, Entries, names_a_call
from hangscope.ingest.recorder.plausibility import Implausible, check_entry
from hangscope.ingest.recorder.recording import Dimensions, Flat, flat
from hangscope.ingest.recorder.values import Numbers, as_int
from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex

_KEPT = ("record_id", "collective_seq_id", "p2p_seq_id", "time_created_ns")
_DROPPED = ("op_id", "time_discovered_started_ns", "time_discovered_completed_ns", "duration_ms")
_NUMBERS = frozenset(_KEPT + _DROPPED)
_struct = lru_cache(struct.Struct)
_FREE, _SHARE = 128, 4  # a dump's entries that may be loaded one by one: so many, and one in so many
_MOST = 1024  # entries that are remembered
_GET, _EXTENT = rb"(?:h.|j.{4})", rb"(?:K.|M..|J.{4})"
_LONG = rb"(?:\x8a\x08.{8}|G.{8})"
_SHAPES = rb"\](?:\((?:\](?:\(%s+e)?)+e)?" % _EXTENT
_VALUE = b"(?:%s)" % b"|".join(
    (_GET + _GET + rb"\x86", _GET, _EXTENT, _LONG, rb"[N\x88\x89]", rb"\]\(%s+e" % _GET, _SHAPES)
)
#: An entry that writes no text. Each of the bytes outside operands begins one opcode only, so there is one way to read it.
_ENTRY = regex(rb"(?s)\}\((?:%s%s)+u(?=\}\(|eu\.$)" % (_GET, _VALUE))
_PAIR = regex(rb"(?s)(%s)%s" % (_GET, _VALUE))
_TOKEN = regex(rb"(?s)%s|%s|%s|." % (_GET, _EXTENT, _LONG))
_OPERANDS = dict(zip(b"hjKMJ\x8aG", "BIBHiqd", strict=True))
#: the bits of an operand's last byte that are equal in all entries of a form: a number is neither negative nor beyond 2^62
_FIXED = {"i": 0x80, "q": 0xC0}


class NotPlain(Exception):
    """The entries are not as torch writes them, or too few of them are alike."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the numbers and the references are in entries of `length` bytes.

    `mask` covers the bytes that are equal in entries of one call in one dump, `steady` those that are equal in other dumps as well, and
    `value` is what these are. `numbers` is the `struct` format of the numbers that are kept and then of the own sizes, which have these
    `dimensions`. `references` is the format of the memo numbers, and `free` has the key of each that may refer to a rank's own text.
    """

    length: int
    mask: int
    steady: int
    value: int
    numbers: str
    references: str
    free: tuple[str, ...]
    dimensions: Dimensions | None


@dataclass(slots=True, eq=False)
class _Form:
    """Entries of one call in one dump, which equal `value` under the layout's mask. `followers` came after them."""

    call: Call
    layout: _Layout
    value: int
    numbers: struct.Struct
    followers: list[_Form] = field(default_factory=list)


class EntryForms:
    """What one process knows of entries: their layouts, by length, and the first entry of each layout that refers to these values."""

    def __init__(self) -> None:
        self.layouts: dict[int, dict[_Layout, None]] = {}
        self.entries: dict[tuple[_Layout, tuple[Any, ...]], dict[str, Any]] = {}

    def read(self, body: bytes, memo: Any, entries: Entries) -> list[Call]:
        """Add the entries of a dump to its recording, and return their calls.

        `body` begins after the key of the entries, `memo` holds what the pickle memoized before. Raises NotPlain, or whatever the
        pickle module raises, if the entries are not as torch writes them.
        """
        if len(self.entries) > _MOST:
            self.layouts, self.entries = {}, {}
        dump = _Dump(self, body, memo, entries)
        dump.read()
        room = sum(len(numbers) + sum(map(len, dimensions)) for dimensions, numbers in set(dump.own))
        if not entries.kinds.tensors.room(room):
            raise NotPlain
        entries.add(dump.calls, dump.numbers, dump.own)
        return dump.calls


class _Dump:
    """The entries of one dump."""

    def __init__(self, known: EntryForms, body: bytes, memo: Any, entries: Entries) -> None:
        self._known, self._body, self._entries = known, body, entries
        self._forms: dict[int, list[_Form]] = defaultdict(list)  # by length
        self._values: dict[int, Any] = {}
        self._hashable: dict[int, Any] = {}
        self._memoize(memo)
        self._loads = 0
        self.calls: list[Call] = []
        self.numbers: list[Numbers] = []
        self.own: list[Flat] = []

    def read(self) -> None:
        """Read all entries."""
        body, from_bytes = self._body, int.from_bytes
        if not body.startswith(b"](}(") or not body.endswith(b"ueu."):
            raise NotPlain
        at, end = 2, len(body) - 3
        followers: list[_Form] = []
        while at < end:
            for form in followers:
                layout = form.layout
                if from_bytes(body[at : at + layout.length], "little") & layout.mask == form.value:
                    break
            else:
                written = _ENTRY.match(body, at)
                if written is None:  # it writes texts or frames
                    at, followers = self._load_at(at, end), []
                    continue
                form = self._form(written.group())
                followers.insert(0, form)
            self.calls.append(form.call)
            picked = form.numbers.unpack_from(body, at)
            if form.layout.dimensions is not None:
                self.own.append((form.layout.dimensions, picked[len(_KEPT) :]))
                picked = picked[: len(_KEPT)]
            self.numbers.append(picked)
            at += form.layout.length
            followers = form.followers

    def _load_at(self, at: int, end: int) -> int:
        """Load and add the entry at `at`, which writes texts or frames, and return where it ends."""
        stop = at
        while stop < end:
            stop = self._body.find(b"u}(", stop, end) + 1 or end
            try:
                entry, memo = self._loaded(self._body[at:stop])
            except Exception:
                continue  # these bytes are inside a value
            self._memoize(memo)
            call = self._entries.new_call(entry)
            if call.backend == "gloo":
                raise NotPlain  # its numbers count other things, which is found out from all of them
            self.calls.append(call)
            self.numbers.append((entry[_KEPT[0]], entry[_KEPT[1]], entry[_KEPT[2]], entry[_KEPT[3]]))
            if call.own_sizes:
                self.own.append(self._entries.kinds.own(*map(entry.get, SIZES)))
            return stop
        raise NotPlain

    def _memoize(self, memo: Any) -> None:
        """Take over the memo after an entry. Raises NotPlain if it replaced what earlier entries refer to."""
        values = memo.copy()
        if not self._values.items() <= values.items():
            raise NotPlain
        for number in values.keys() - self._values.keys():
            value = values[number]
            self._hashable[number] = tuple(value.items()) if isinstance(value, dict) else value
        self._memo, self._values = memo, values

    def _loaded(self, part: bytes) -> tuple[dict[str, Any], Any]:
        """Return an entry and the memo after it. Raises NotPlain if the bytes are none, or if too many were loaded."""
        self._loads += 1
        if self._loads > _FREE + len(self.calls) // _SHARE:
            raise NotPlain
        entry, memo = safe_pickle.load_part(part, self._memo)
        if not names_a_call(entry) or min(as_int(entry.get(key), -1) for key in _KEPT) < 0:
            raise NotPlain
        return entry, memo

    def _form(self, part: bytes) -> _Form:
        """Return the form of an entry that writes nothing."""
        bits = int.from_bytes(part, "little")
        forms = self._forms[len(part)]
        for form in forms:
            if bits & form.layout.mask == form.value:
                return form
        layouts = self._known.layouts.setdefault(len(part), {})
        for layout in layouts:
            if bits & layout.steady == layout.value:
                texts, group = self._texts(layout, part)
                entry = self._known.entries.get((layout, texts))
                if entry is not None:
                    entry = {**entry, "process_group": group} if group else entry
                    call = self._entries.new_call(entry, checked=True)
                    break
        else:
            entry, _ = self._loaded(part)
            call = self._entries.new_call(entry)
            layout = _layout(part, entry, self._values, call.own_sizes)
            layouts[layout] = None
            self._known.entries[layout, self._texts(layout, part)[0]] = entry
        forms.append(_Form(call, layout, bits & layout.mask, _struct(layout.numbers)))
        return forms[-1]

    def _texts(self, layout: _Layout, part: bytes) -> tuple[tuple[Any, ...], tuple[str, ...]]:
        """Return what an entry refers to, without the texts that may be a rank's own, and the name and description of its group."""
        found = list(map(self._hashable.__getitem__, struct.unpack_from(layout.references, part)))
        group = []
        for place, key in enumerate(layout.free):
            if key:
                if type(found[place]) is not str:
                    raise NotPlain
                if key == "process_group":
                    group.append(found[place])
                found[place] = None
        return tuple(found), tuple(group)


class _Operand(NamedTuple):
    """The operand of an opcode in an entry: the key to whose value it belongs, empty for a key's own, and its place."""

    key: str
    start: int
    format: str
    is_reference: bool


def _operands(part: bytes, memo: Mapping[int, Any]) -> Iterator[_Operand]:
    """Yield the operands of an entry that writes nothing."""
    for pair in _PAIR.finditer(part, 2):
        key = ""
        for token in _TOKEN.finditer(part, *pair.span()):
            opcode = part[token.start()]
            format = _OPERANDS.get(opcode, "")
            if format:
                start = token.end() - struct.calcsize("<" + format)
                yield _Operand(key, start, format, opcode in b"hj")
                key = key or memo[int.from_bytes(part[start : token.end()], "little")]


def _layout(part: bytes, entry: dict[str, Any], memo: Mapping[int, Any], own_sizes: bool) -> _Layout:
    """Return the layout of an entry that writes nothing. Raises NotPlain if it lacks a number, or has an implausible value."""
    operands = list(_operands(part, memo))
    references = [operand for operand in operands if operand.is_reference]
    wanted = _NUMBERS | frozenset(SIZES if own_sizes else ())
    numbers = [operand for operand in operands if operand.key in wanted and not operand.is_reference]
    kept = [operand for operand in numbers if operand.key not in _DROPPED]
    implausible = Implausible()
    check_entry(entry, implausible)
    if (
        tuple(operand.key for operand in kept[: len(_KEPT)]) != _KEPT
        or sum(not operand.key for operand in operands) != len(entry)  # a key twice
        or any(implausible.notes())
    ):
        raise NotPlain
    mask = bytearray(b"\xff" * len(part))
    for _, start, format, _ in numbers:
        end = start + struct.calcsize("<" + format)
        mask[start:end] = bytes(end - start)
        mask[end - 1] = _FIXED.get(format, 0)
    steady = bytearray(mask)
    for _, start, format, _ in references:
        steady[start : start + struct.calcsize("<" + format)] = bytes(struct.calcsize("<" + format))
    group = {"process_group"} if isinstance(entry.get("process_group"), tuple) else set()
    return _Layout(
        length=len(part),
        mask=int.from_bytes(mask, "little"),
        steady=int.from_bytes(steady, "little"),
        value=int.from_bytes(part, "little") & int.from_bytes(steady, "little"),
        numbers=_format(kept),
        references=_format(references),
        free=tuple(operand.key if operand.key in {"thread_id", *group} else "" for operand in references),
        dimensions=flat(*(entry.get(key) or () for key in SIZES))[0] if own_sizes else None,
    )


def _format(operands: Sequence[_Operand]) -> str:
    """Return the `struct` format of operands of an entry."""
    layout, end = "<", 0
    for _, start, format, _ in operands:
        layout, end = f"{layout}{start - end}x{format}", start + struct.calcsize("<" + format)
    return layout
