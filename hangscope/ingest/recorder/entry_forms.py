"""The entries of a recorder's dump, read by their form: entries of one form differ in numbers and times only.

A training job makes the same few calls over and over, so most entries of a dump are, byte for byte, one that was seen before
but for the operands of its numbers. Such an entry is not loaded: it is compared under a mask, and its numbers are picked out,
which takes a third of the time. Only the first entry of a form is parsed.

An entry of a known form is believed only where every byte that is not masked is equal and everything that it refers to is
what it was, so that it would be loaded as the first one was.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from hangscope.ingest.recorder.entries import Entries, Stacks, names_a_call
from hangscope.ingest.recorder.own_sizes import Ranks
from hangscope.ingest.recorder.plain_entry import Field, NewFrame, NotPlain, PlainEntry, parse
from hangscope.ingest.recorder.recording import Recording
from hangscope.ingest.recorder.rows import Call
from hangscope.ingest.recorder.shapes import Shape
from hangscope.ingest.recorder.stretches import TAKEN, Stretch, learn

MAX_FOLLOWERS = 24  # forms that are tried as the next of one
KEPT = 1 << 23  # bytes of forms that are kept from dump to dump
FREE_PARSES = 96  # entries of a dump that are parsed beyond those that need it least
PARSED_SHARE = 8  # of a dump's entries one in so many may be parsed
LEARNED_SHARE = 8  # of a dump's entries one in so many may be read alone before its stretches are learned
TENSORS = 64  # of a call with sizes of its own; more of them make more forms than they save
_TAKEN = ("record_id", "collective_seq_id", "p2p_seq_id", "time_created_ns")


@dataclass(slots=True, eq=False)
class Form:
    """What entries have in common as bytes: length, mask and value, and where their numbers stand.

    `steady` is the mask under which entries are equal in everything but times. `own` says of how many dimensions the tensors
    are, where its calls have sizes of their own; None where they have not.
    """

    entry: PlainEntry
    length: int
    mask: int
    value: int
    steady: bytes
    numbers: struct.Struct
    created: int
    own: Ranks | None
    shape: Shape | None = None
    followers: list[Form] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)


@dataclass(slots=True)
class Found:
    """A dump's entries as columns, and their forms in order."""

    calls: list[Call]
    numbers: list[int]  # order, seq, p2p_seq and created, one after the other
    own: list[int]
    forms: list[Form]


class EntryForms:
    """The forms of the dumps that one process reads."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._known: dict[tuple[int, int, int, str], Form] = {}
        self._first: list[Form] = []
        self._shapes: dict[tuple[int, int, int, str], Shape] = {}
        self._first_shapes: list[Shape] = []
        self._bytes = 0
        self.stacks = Stacks()  # of the forms that are known

    def entries(self, recording: Recording) -> Entries:
        """Return what takes the entries of a dump that `read` is asked for next."""
        if self._bytes > KEPT:
            self._forget()
        return Entries(recording, self.stacks)

    def read(self, body: bytes, memo: dict[int, Any], entries: Entries) -> Found:
        """Return the entries of a dump, without adding them to `entries`. Raises NotPlain where they have no such form.

        `body` begins behind the key of the entries, `memo` holds what stands before it.
        """
        if not body.startswith(b"](") or not body.endswith(b"eu."):
            raise NotPlain
        reader = _Reader(self, body, memo, entries)
        found = reader.read()
        if reader.alone > len(found.forms) // LEARNED_SHARE:
            self._bytes += 4 * learn(found.forms)
        return found

    def learn(self, entry: PlainEntry, data: bytes, own: bool) -> Form:
        """Return the form of an entry whose bytes are `data`."""
        form = _form(entry, data, own)
        key = form.length, form.mask, form.value, repr((entry.gets, entry.puts, entry.pair, entry.frames))
        known = self._known.setdefault(key, form)
        if known is form:
            shape = Shape.of(form)
            form.shape = self._shapes.setdefault(shape.key, shape)
            form.shape.known[shape.numbers] = form
            self.count(form)
        return known

    def count(self, form: Form) -> None:
        """Take note that there is one more form."""
        self._bytes += 4 * form.length + 2048

    @property
    def first(self) -> list[Form]:
        """Return the forms that dumps begin with."""
        return self._first

    @property
    def first_shapes(self) -> list[Shape]:
        """Return the shapes that dumps begin with."""
        return self._first_shapes


class _Reader:
    """Reads the entries of one dump."""

    def __init__(self, forms: EntryForms, body: bytes, memo: dict[int, Any], entries: Entries) -> None:
        self.forms, self.body, self.memo, self.entries = forms, body, dict(memo), entries
        self.bound: dict[Form, Call] = {}
        self.parsed = self.alone = 0
        self.found = Found([], [], [], [])
        self.sizes: dict[tuple[Ranks, tuple[int, ...]], int] = {}

    def read(self) -> Found:
        body, bound, from_bytes = self.body, self.bound, int.from_bytes
        found, sizes = self.found, self.sizes
        followers, at, end = self.forms.first, 2, len(body) - 3
        while at < end:
            for form in followers:
                if from_bytes(body[at : at + form.length], "little") & form.mask == form.value:
                    call = bound.get(form) or self._bind(form, at)
                    if call is not None:
                        break
            else:
                form, call = self._new(at, len(found.calls))
                if form not in followers:
                    followers.insert(0, form)
                    del followers[MAX_FOLLOWERS:]
            if form.stretches:
                behind = self._stretches(form.stretches, at)
                if behind > at:
                    at, followers = behind, found.forms[-1].followers
                    continue
            found.calls.append(call)
            found.forms.append(form)
            picked = form.numbers.unpack_from(body, at)
            if form.own is not None:
                found.own.append(sizes.setdefault((form.own, picked[TAKEN:]), len(sizes)))
                picked = picked[:TAKEN]
            found.numbers += picked
            self.alone += 1
            at += form.length
            followers = form.followers
        if at != end:
            raise NotPlain
        numbers = sum(len(extents) + sum(map(len, ranks)) for ranks, extents in sizes)
        if not self.entries.tensors.room(numbers):
            raise NotPlain
        self.entries.own_sizes.extend(sizes)
        return found

    def _stretches(self, stretches: list[Stretch], at: int) -> int:
        """Take the stretches that stand at `at`, and return where they end."""
        body, found, sizes, from_bytes = self.body, self.found, self.sizes, int.from_bytes
        for stretch in stretches:
            calls = [call for form in stretch.forms if (call := self.bound.get(form)) is not None]
            if len(calls) < len(stretch.forms):
                continue  # one of them was not met in this dump yet
            begin, length, mask, value = at, stretch.length, stretch.mask, stretch.value
            while from_bytes(body[at : at + length], "little") & mask == value:
                picked = stretch.numbers.unpack_from(body, at)
                for ranks, first, last in stretch.sizes:
                    found.own.append(sizes.setdefault((ranks, picked[first:last]), len(sizes)))
                found.numbers += picked if stretch.taken is None else stretch.taken(picked)
                found.calls += calls
                found.forms += stretch.forms
                at += length
            if at > begin:
                return at
        return at

    def _new(self, at: int, before: int) -> tuple[Form, Call]:
        """Return the form of the entry at `at`, which was not expected there, and its call. `before`: so many were read."""
        self.parsed += 1
        if self.parsed > FREE_PARSES + before // PARSED_SHARE:
            raise NotPlain
        last = self.found.forms[-1].shape if before else None
        shapes = last.followers if last is not None else self.forms.first_shapes
        for shape in shapes:
            known = len(shape.known)
            form = shape.form_at(self.body, at, self.memo)
            call = self.bound.get(form) or self._bind(form, at) if form is not None else None
            if form is not None and call is not None:
                if len(shape.known) > known:
                    self.forms.count(form)
                return form, call
        form, call = self._parse(at)
        if form.shape is not None and form.shape not in shapes:
            shapes.insert(0, form.shape)
            del shapes[MAX_FOLLOWERS:]
        return form, call

    def _parse(self, at: int) -> tuple[Form, Call]:
        """Return the form of the entry at `at`, which is not known, and its call."""
        entry = parse(self.body, at, self.memo)
        if not names_a_call(entry.value):
            raise NotPlain
        own = self.entries.call(entry.value).own
        form = self.forms.learn(entry, self.body[at : at + entry.length], own)
        call = self._bind(form, at)
        if call is None:
            raise NotPlain
        return form, call

    def _bind(self, form: Form, at: int) -> Call | None:
        """Return the call of a form in this dump, where it stands at `at`; None where it refers to something else here."""
        entry, memo = form.entry, self.memo
        for number, value in entry.gets.items():
            if memo.get(number) != value:
                return None
        if entry.puts:
            if not memo.keys().isdisjoint(entry.puts):
                return None
            memo.update(entry.puts)
            for start, end, number in entry.texts:
                memo[number] = self.body[at + start : at + end].decode()
        value = entry.value
        if entry.pair is not None:
            names = memo.get(entry.pair[0]), memo.get(entry.pair[1])
            if not all(type(name) is str for name in names):
                raise NotPlain
            value = {**value, "process_group": names}
        if entry.frames is not None:
            value = {**value, "frames": [self._frame(frame) for frame in entry.frames]}
        call = self.entries.call(value)
        if call.own != (form.own is not None):
            raise NotPlain
        if not entry.puts:  # what is memoized is memoized once
            self.bound[form] = call
        return call

    def _frame(self, frame: int | NewFrame) -> dict[str, Any]:
        """Return a frame: one of the memo, or one that the entry writes, with this dump's texts in it."""
        memo = self.memo
        if isinstance(frame, NewFrame):
            texts = {
                key: memo.get(number)
                for key, number in zip(frame.made, frame.texts, strict=True)
                if number is not None
            }
            if not all(type(text) is str for text in texts.values()):
                raise NotPlain
            same = all(frame.made[key] == text for key, text in texts.items())
            memo[frame.number] = frame.made if same else {**frame.made, **texts}
            if not same:
                self.entries.own_frames.add(id(memo[frame.number]))
            return memo[frame.number]  # type: ignore[no-any-return]
        made = memo.get(frame)
        if not isinstance(made, dict):
            raise NotPlain
        return made


def _form(entry: PlainEntry, data: bytes, own: bool) -> Form:
    """Return the form of an entry. Raises NotPlain where it lacks a number that is taken of every call."""
    taken: dict[str, Field] = {}
    mask, steady = bytearray(b"\xff") * len(data), bytearray(b"\xff") * len(data)
    for number in (*entry.numbers, *entry.times):
        taken[number.key] = number
        mask[number.start : number.end] = bytes(number.end - number.start)
    for time in entry.times:
        steady[time.start : time.end] = bytes(time.end - time.start)
        if time.form == "q":
            mask[time.end - 1] = steady[time.end - 1] = (
                0xC0  # neither negative nor beyond 2^62, like this one
            )
    if entry.thread is not None:
        start, end = entry.thread
        mask[start:end] = steady[start:end] = b"\x80" * (end - start)  # other texts, too, are ASCII
    for start, end, _ in entry.texts:
        mask[start:end] = b"\x80" * (end - start)
    fields = [taken[key] for key in _TAKEN if key in taken]
    ranks = _ranks(entry) if own else None
    if own:
        fields += entry.sizes
        for size in entry.sizes:
            mask[size.start : size.end] = bytes(size.end - size.start)
    ends = [0, *(one.end for one in fields)]
    gaps = [one.start - end for end, one in zip(ends, fields, strict=False)]
    if len(fields) < len(_TAKEN) or min(gaps) < 0:
        raise NotPlain
    bits = int.from_bytes(mask, "little")
    return Form(
        entry=entry,
        length=len(data),
        mask=bits,
        value=int.from_bytes(data, "little") & bits,
        steady=bytes(steady),
        numbers=struct.Struct(
            "<" + "".join(f"{gap}x{one.form}" for gap, one in zip(gaps, fields, strict=True))
        ),
        created=taken["time_created_ns"].start,
        own=ranks,
    )


def _ranks(entry: PlainEntry) -> Ranks:
    """Return of how many dimensions an entry's inputs and outputs are. Raises NotPlain where they are no plain shapes."""
    both = []
    for key in ("input_sizes", "output_sizes"):
        shapes = entry.value.get(key, [])
        if not isinstance(shapes, list) or len(shapes) > TENSORS:
            raise NotPlain
        for shape in shapes:
            if not isinstance(shape, list) or len(shape) > TENSORS or not all(type(n) is int for n in shape):
                raise NotPlain
        both.append(tuple(map(len, shapes)))
    if sum(map(sum, both)) != len(entry.sizes):
        raise NotPlain
    return both[0], both[1]
