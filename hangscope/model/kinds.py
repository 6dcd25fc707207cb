"""The kinds of call of a job, by index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import overload

from hangscope.model.incident import CallKind, Column, Sizes


class Kinds(Sequence[CallKind]):
    """A job's kinds of call, by index.

    Members of an all_to_all may send as much as they like, so such calls are of one kind and their sizes are their own: each
    has an index, under which the kind stands with its sizes, and `plain[index]` is the kind in `alone`, without them. What
    calls are compared by is worked out for the kinds in `alone` and taken for every index through `plain`.
    """

    def __init__(
        self,
        alone: Sequence[CallKind],
        plain: Column,
        sizes: Callable[[int], tuple[Sizes, Sizes]] | None = None,
    ) -> None:
        self.alone, self.plain, self._sizes = alone, plain, sizes
        self._sized = range(len(alone), len(plain))

    def and_also(self, more: Sequence[CallKind]) -> Kinds:
        """Return these kinds followed by more of them, under the next indexes."""
        import numpy as np  # only where text tells of calls

        first = len(self.alone)
        added = np.arange(first, first + len(more), dtype=np.asarray(self.plain).dtype)
        result = Kinds([*self.alone, *more], np.concatenate([self.plain, added]), self._sizes)
        result._sized = self._sized
        return result

    def __len__(self) -> int:
        return len(self.plain)

    @overload
    def __getitem__(self, index: int) -> CallKind: ...
    @overload
    def __getitem__(self, index: slice) -> list[CallKind]: ...
    def __getitem__(self, index: int | slice) -> CallKind | list[CallKind]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        kind = self.alone[int(self.plain[index])]
        if index not in self._sized or self._sizes is None:
            return kind
        inputs, outputs = self._sizes(index)
        return replace(kind, input_sizes=inputs, output_sizes=outputs)

    def without_sizes(self, index: int) -> CallKind:
        """Return a kind where sizes of its own do not matter; they need not be loaded then."""
        return self.alone[int(self.plain[index])]
