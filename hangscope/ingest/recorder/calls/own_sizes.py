"""Sizes that are a call's own: members of an all_to_all may send as much as they like, so sizes are no part of what it is.

A job of experts makes thousands of such calls on every rank, no two alike. They stand beside the calls as columns of
numbers, and become sizes only where somebody asks for those of one call.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

#: shapes of a call's inputs and of its outputs
Both: TypeAlias = tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]
#: of how many dimensions each of them is
Ranks: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]


def may_differ(op: str) -> bool:
    """Return whether members of a collective may legally call it with other sizes; op is the name that users know."""
    return op.startswith("all_to_all")


class OwnSizes:
    """The sizes of one recording's calls whose kind has none.

    `picks`: for each such call, in order, the number of its sizes among the different ones. Of each of those, `form` says
    which of `forms` it has, and `numbers` holds its extents, one after the other.
    """

    def __init__(self) -> None:
        self.picks: array[int] = array("i")
        self.forms: list[Ranks] = []
        self.form: array[int] = array("i")
        self.numbers: array[int] = array("q")
        self._starts: list[int] = []

    def __len__(self) -> int:
        return len(self.form)

    def number_of(self, form: Ranks) -> int:
        """Return the number of a form."""
        if form not in self.forms:
            self.forms.append(form)
        return self.forms.index(form)

    def add(self, form: Ranks, numbers: tuple[int, ...]) -> int:
        """Add sizes that differ from all before, and return their number."""
        self.form.append(self.number_of(form))
        self.numbers.extend(numbers)
        return len(self.form) - 1

    def extend(self, forms: Sequence[int], numbers: Sequence[int]) -> None:
        """Add sizes that are all different from one another and from all before: the number of each one's form, and the extents of all."""
        self.form.extend(array("i", forms))
        self.numbers.extend(array("q", numbers))

    def of(self, number: int) -> Both:
        """Return sizes by their number."""
        if len(self._starts) <= len(self.form):
            counts = [sum(map(sum, form)) for form in self.forms]
            self._starts = list(accumulate((counts[form] for form in self.form), initial=0))
        at = self._starts[number]
        inputs, outputs = self.forms[self.form[number]]
        ends = list(accumulate((*inputs, *outputs), initial=at))
        shapes = [tuple(self.numbers[a:b]) for a, b in pairwise(ends)]
        return tuple(shapes[: len(inputs)]), tuple(shapes[len(inputs) :])

    @property
    def consistent(self) -> bool:
        """Return whether every pick has sizes, and every size its numbers."""
        counts = [sum(map(sum, form)) for form in self.forms]
        return (
            all(0 <= form < len(counts) for form in self.form)
            and sum(counts[form] for form in self.form) == len(self.numbers)
            and all(0 <= pick < len(self.form) for pick in self.picks)
        )

    def to_wire(self) -> tuple[bytes, list[Ranks], bytes, bytes]:
        """Return the plain-builtins form."""
        return self.picks.tobytes(), self.forms, self.form.tobytes(), self.numbers.tobytes()

    @classmethod
    def from_wire(cls, wire: Any) -> OwnSizes:
        """Return what `to_wire` wrote."""
        own = cls()
        picks, own.forms, form, numbers = wire
        own.picks, own.form, own.numbers = array("i", picks), array("i", form), array("q", numbers)
        return own
