"""Entries that follow one another again and again, such as those of one training step, read at once.

Comparing a stretch under one mask is comparing its entries one by one, but for the twentieth part of the steps in Python.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from hangscope.model.dataclass import dataclass

if TYPE_CHECKING:
    from hangscope.ingest.recorder.calls.own_sizes import Ranks
    from hangscope.ingest.recorder.forms.form import Form

#: what picks some of the numbers of an entry
Picker: TypeAlias = "Callable[[tuple[Any, ...]], tuple[Any, ...]]"
_SIGN = 12  # bytes that tell a stretch from most others
LONGEST = 256  # entries of a stretch
OF_ONE_FORM = 4  # stretches that begin with one form


def picker(places: Sequence[int]) -> Picker:
    """Return what picks values by their places out of a tuple, as a tuple."""
    if len(places) > 1:
        return itemgetter(*places)
    return itemgetter(slice(places[0], places[0] + 1) if places else slice(0))


@dataclass(slots=True, eq=False)
class Stretch:
    """Forms in a row: their length, mask, value and numbers as those of one.

    `taken` picks the numbers that every entry has out of all numbers, None where there are no others; the others are sizes: `sizes` holds of each entry with sizes of its own how many dimensions its tensors have, and what picks them. `sign` stands at
    `sign_at` in all that are alike: most others are told by it alone.
    """

    forms: tuple[Form, ...]
    length: int
    mask: int
    value: int
    sign: bytes
    sign_at: int
    numbers: struct.Struct
    taken: itemgetter[Any] | None
    sizes: tuple[tuple[Ranks, Picker], ...]


def learn(forms: Sequence[Form]) -> int:
    """Take note of forms that follow one another again and again, and return how long they are where that is new."""
    stretch, known = tuple(forms), forms[0].stretches
    if len(known) >= OF_ONE_FORM or any(one.forms == stretch for one in known):
        return 0
    if any(form.content.puts for form in stretch):
        return 0
    known.append(_stretch(stretch))
    return known[-1].length


def _stretch(forms: tuple[Form, ...]) -> Stretch:
    starts = list(accumulate((form.layout.length for form in forms), initial=0))
    mask = sum(form.layout.mask << 8 * start for form, start in zip(forms, starts, strict=False))
    value = sum(form.value << 8 * start for form, start in zip(forms, starts, strict=False))
    sign_at = max(0, mask.to_bytes(starts[-1], "little").rfind(b"\xff" * _SIGN))
    pattern, end = "<", 0
    taken: list[int] = []
    sizes: list[tuple[Ranks, Picker]] = []
    count = 0
    for layout, start in zip([form.layout for form in forms], starts, strict=False):
        whole = len(layout.numbers.unpack(bytes(layout.numbers.size)))
        pattern += f"{start - end}x{layout.numbers.format[1:]}"
        end = start + layout.numbers.size
        taken += [count + place for place in layout.places]
        if layout.own is not None:
            sizes.append((layout.own, picker([count + place for place in layout.extents])))
        count += whole
    return Stretch(
        forms,
        starts[-1],
        mask,
        value,
        value.to_bytes(starts[-1], "little")[sign_at : sign_at + _SIGN] if sign_at else b"",
        sign_at,
        struct.Struct(pattern),
        None if taken == list(range(count)) else itemgetter(*taken),
        tuple(sizes),
    )
