"""Sizes in which the members of one collective may legally differ, such as the splits of an all_to_all.

A mixture-of-experts job issues thousands of such collectives on every rank, no two with equal sizes. If sizes were a part of their
kind, each would have its own. So the sizes are columns of numbers, and are put together only when those of one call are needed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import accumulate, islice, pairwise
from typing import Any, TypeAlias

#: shapes of a call's inputs and of its outputs
Shapes: TypeAlias = tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]
#: how many dimensions each input and each output has
Dimensions: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
#: these and all extents, one after the other
Flat: TypeAlias = tuple[Dimensions, tuple[int, ...]]


def may_differ(op: str) -> bool:
    """Return whether members of a collective may legally pass different sizes; `op` is the name that users know."""
    return op.startswith("all_to_all")


class OwnSizes:
    """The sizes of one recording's calls whose kind has none.

    `picks`: for each such call, in order, the index of its sizes among the distinct ones. For each of these, `form` is an index
    into `forms`, and `numbers` holds its extents, one after the other.
    """

    def __init__(self) -> None:
        self.picks: array[int] = array("i")
        self.forms: list[Dimensions] = []
        self.form: array[int] = array("i")
        self.numbers: array[int] = array("q")
        self._known: dict[Flat, int] = {}
        self._starts: list[int] = []

    def __len__(self) -> int:
        return len(self.form)

    def add(self, sizes: Iterable[Flat]) -> list[int]:
        """Return the index of each of these sizes, adding those that are new."""
        indexes = [self._known.setdefault(one, len(self._known)) for one in sizes]
        for dimensions, numbers in islice(self._known, len(self.form), None):
            if dimensions not in self.forms:
                self.forms.append(dimensions)
            self.form.append(self.forms.index(dimensions))
            self.numbers.extend(numbers)
        return indexes

    def of(self, index: int) -> Shapes:
        """Return sizes by their index."""
        if len(self._starts) <= len(self.form):
            self._starts = list(accumulate(self._counts(), initial=0))
        inputs, outputs = self.forms[self.form[index]]
        ends = list(accumulate((*inputs, *outputs), initial=self._starts[index]))
        shapes = [tuple(self.numbers[a:b]) for a, b in pairwise(ends)]
        return tuple(shapes[: len(inputs)]), tuple(shapes[len(inputs) :])

    def _counts(self) -> list[int]:
        counts = [sum(map(sum, dimensions)) for dimensions in self.forms]
        return [counts[form] for form in self.form]

    @property
    def consistent(self) -> bool:
        """Return whether every pick has sizes, and every size its numbers."""
        return (
            all(n >= 0 for dimensions in self.forms for part in dimensions for n in part)
            and all(0 <= form < len(self.forms) for form in self.form)
            and sum(self._counts()) == len(self.numbers)
            and all(0 <= pick < len(self.form) for pick in self.picks)
        )

    def to_wire(self) -> tuple[bytes, list[Dimensions], bytes, bytes]:
        """Return the plain-builtins form."""
        return self.picks.tobytes(), self.forms, self.form.tobytes(), self.numbers.tobytes()

    @classmethod
    def from_wire(cls, wire: Any) -> OwnSizes:
        """Return what `to_wire` wrote."""
        own = cls()
        picks, own.forms, form, numbers = wire
        own.picks, own.form, own.numbers = array("i", picks), array("i", form), array("q", numbers)
        return own


def flat(inputs: Any, outputs: Any) -> Flat:
    """Return shapes as their dimensions and their extents, one after the other."""
    dimensions = tuple(map(len, inputs)), tuple(map(len, outputs))
    return dimensions, tuple(n for shapes in (inputs, outputs) for shape in shapes for n in shape)
