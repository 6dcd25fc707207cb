"""Entries that differ in the numbers of what they refer to: the pickler numbers texts and frames as it meets them.

Where a ring begins at another call, the same entries refer by other numbers to the same texts and frames. Such an entry is not
parsed again: its form is that of the first one, with its own numbers put in.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from hangscope.ingest.recorder.forms.entry_parts import NewFrame
from hangscope.ingest.recorder.forms.form import Content, Form
from hangscope.model.dataclass import dataclass


@dataclass(slots=True, eq=False)
class Shape:
    """What forms have in common: all but memo numbers. `form` is one of them, `numbers` are its memo numbers in order."""

    form: Form
    mask: int
    value: int
    operands: struct.Struct
    numbers: tuple[int, ...]
    known: dict[tuple[int, ...], Form] = field(default_factory=dict)
    followers: list[Shape] = field(default_factory=list)

    @classmethod
    def of(cls, form: Form, operands: Sequence[tuple[int, str, int]]) -> Shape:
        """Return the shape of a form that was parsed, with its memo numbers as `PlainEntry` has them."""
        mask, layout, end = form.layout.mask, "<", 0
        for start, code, _ in operands:
            size = struct.calcsize("<" + code)
            mask &= ~(((1 << 8 * size) - 1) << 8 * start)
            layout, end = f"{layout}{start - end}x{code}", start + size
        numbers = tuple(number for *_, number in operands)
        return cls(form, mask, form.value & mask, struct.Struct(layout), numbers)

    @property
    def key(self) -> tuple[int, int, int, str]:
        """Return what is equal for equal shapes."""
        gets = self.form.content.gets
        told = repr([gets.get(number) for number in self.numbers])
        return self.form.layout.length, self.mask, self.value, told

    def form_at(self, body: bytes, at: int, memo: Mapping[int, Any]) -> Form | None:
        """Return the form of the entry at `at`, None where it is of another shape, or refers to something else."""
        layout = self.form.layout
        bits = int.from_bytes(body[at : at + layout.length], "little")
        if bits & self.mask != self.value:
            return None
        numbers = self.operands.unpack_from(body, at)
        known = self.known.get(numbers)
        if known is None:
            content = self._renumbered(numbers, memo)
            if content is not None:
                new = dict(zip(self.numbers, numbers, strict=True))
                texts = [(start, end, new[number]) for start, end, number in self.form.texts]
                known = self.known[numbers] = Form(layout, bits & layout.mask, content, texts, self)
        return known

    def _renumbered(self, numbers: tuple[int, ...], memo: Mapping[int, Any]) -> Content | None:
        """Return what the form's entries say, with other memo numbers; None where these refer to something else."""
        content = self.form.content
        known = content.renumbered.get((self.numbers, numbers))
        if known is not None:
            return known
        new = dict(zip(self.numbers, numbers, strict=True))
        if tuple(map(new.__getitem__, self.numbers)) != numbers or len(set(numbers)) < len(new):
            return None
        gets = {new[number]: value for number, value in content.gets.items()}
        if list(map(memo.get, gets)) != list(gets.values()):
            return None
        frames = content.frames and tuple(
            NewFrame(new[f.number], f.made, tuple(None if n is None else new[n] for n in f.texts))
            if isinstance(f, NewFrame)
            else new[f]
            for f in content.frames
        )
        pair = content.pair and (new[content.pair[0]], new[content.pair[1]])
        puts = {new[number]: value for number, value in content.puts.items()}
        known = content.renumbered[self.numbers, numbers] = Content(content.value, gets, puts, pair, frames)
        return known
