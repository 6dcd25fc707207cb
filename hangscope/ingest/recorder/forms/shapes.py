"""Entries that differ in the numbers of what they refer to: the pickler numbers texts and frames as it meets them.

Where a ring begins at another call, the same entries refer by other numbers to the same texts and frames. Such an entry is not
parsed again: its form is that of the first one, with its own numbers put in.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from hangscope.dataclass import dataclass
from hangscope.ingest.recorder.forms.entry_parts import NewFrame

if TYPE_CHECKING:
    from hangscope.ingest.recorder.forms.form import Form


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
    def of(cls, form: Form) -> Shape:
        """Return the shape of a form that was parsed."""
        mask, layout, end = form.mask, "<", 0
        for start, code, _ in form.entry.operands:
            size = struct.calcsize("<" + code)
            mask &= ~(((1 << 8 * size) - 1) << 8 * start)
            layout, end = f"{layout}{start - end}x{code}", start + size
        numbers = tuple(number for *_, number in form.entry.operands)
        return cls(form, mask, form.value & mask, struct.Struct(layout), numbers)

    @property
    def key(self) -> tuple[int, int, int, str]:
        """Return what is equal for equal shapes."""
        gets = self.form.entry.gets
        return self.form.length, self.mask, self.value, repr([gets.get(number) for number in self.numbers])

    def form_at(self, body: bytes, at: int, memo: Mapping[int, Any]) -> Form | None:
        """Return the form of the entry at `at`, None where it is of another shape, or refers to something else."""
        length = self.form.length
        bits = int.from_bytes(body[at : at + length], "little")
        if bits & self.mask != self.value:
            return None
        numbers = self.operands.unpack_from(body, at)
        known = self.known.get(numbers)
        if known is None:
            known = self._renumbered(numbers, bits & self.form.mask, memo)
            if known is not None:
                self.known[numbers] = known
        return known

    def _renumbered(self, numbers: tuple[int, ...], value: int, memo: Mapping[int, Any]) -> Form | None:
        new = dict(zip(self.numbers, numbers, strict=True))
        if tuple(map(new.__getitem__, self.numbers)) != numbers or len(set(numbers)) < len(new):
            return None
        entry = self.form.entry
        gets = {new[number]: value for number, value in entry.gets.items()}
        if list(map(memo.get, gets)) != list(gets.values()):
            return None
        frames = entry.frames and tuple(
            NewFrame(new[f.number], f.made, tuple(None if n is None else new[n] for n in f.texts))
            if isinstance(f, NewFrame)
            else new[f]
            for f in entry.frames
        )
        return replace(
            self.form,
            entry=replace(
                entry,
                gets=gets,
                puts={new[number]: value for number, value in entry.puts.items()},
                pair=entry.pair and (new[entry.pair[0]], new[entry.pair[1]]),
                frames=frames,
                texts=[(start, end, new[number]) for start, end, number in entry.texts],
            ),
            value=value,
            followers=[],
            stretches=[],
        )
