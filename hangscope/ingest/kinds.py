"""The kinds of calls of a whole job: numbered over all ranks, with stacks and frames that are stored once."""

from __future__ import annotations

from bisect import bisect_right
from functools import cache
from typing import Any

import numpy as np

from hangscope.ingest.recorder.recording import KindRow, OwnSizes, Recording, StackRow, may_differ
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import CallKind, Frame, Sizes, Stack
from hangscope.model.kinds import Kinds


@dataclass(frozen=True, slots=True)
class _Block:
    """The kinds of one rank that have sizes of their own: their kind without them, and which of the rank's sizes."""

    first: int
    plain: Any
    sizes: OwnSizes
    pick: Any


class KindTable:
    """Numbers call kinds and interns stacks over all ranks.

    A kind is found by its row with the job-wide number of its stack: hashing the frames of each would cost more than all else.
    """

    def __init__(self) -> None:
        self._alone: list[CallKind] = []
        self._index: dict[KindRow, int] = {}
        self._frame = cache(Frame)
        self._stack_numbers: dict[StackRow, int] = {(): 0}
        self._stacks: list[Stack] = [()]
        self._blocks: list[_Block] = []  # of kinds with sizes of one rank's own
        self._own = 0  # how many of those there are

    def mapping(self, recording: Recording) -> Any:
        """Return the job-wide index for each of the recording's kinds (int32 array)."""
        stacks = [self._stack(row) for row in recording.stacks]
        result = np.empty(len(recording.kinds), dtype=np.int32)
        for position, row in enumerate(recording.kinds):
            stack = stacks[row[8]] if 0 <= row[8] < len(stacks) else 0
            own: KindRow = (*row[:8], stack, row[9])
            index = self._index.get(own)
            if index is None:
                index = self._index[own] = len(self._alone)
                self._alone.append(CallKind(*row[:8], self._stacks[stack], row[9]))
            result[position] = index
        return result

    def with_sizes(self, recording: Recording, mapping: Any) -> Any:
        """Return the index of each call's kind (int32 array); where its sizes are its own, it has an index of its own.

        Call it when all recordings' kinds were mapped: such indexes lie behind all others.
        """
        assert recording.own_sizes is not None
        column = np.frombuffer(recording.columns["kind"], np.int32)
        differ = np.array([row[6] is None and may_differ(row[0]) for row in recording.kinds], bool)
        rows = np.flatnonzero(differ[column])
        kinds = mapping[column]
        picks = np.frombuffer(recording.own_sizes.picks, np.int32)
        most = int(picks.max(initial=0)) + 1
        both, places = np.unique(kinds[rows].astype(np.int64) * most + picks, return_inverse=True)
        plain, pick = np.divmod(both, most)
        first = len(self._alone) + self._own
        kinds[rows] = first + places
        self._blocks.append(_Block(first, plain, recording.own_sizes, pick))
        self._own += len(both)
        return kinds

    def kinds(self) -> Kinds:
        """Return all kinds by index."""
        firsts, blocks = [block.first for block in self._blocks], self._blocks

        def sizes(index: int) -> tuple[Sizes, Sizes]:
            block = blocks[bisect_right(firsts, index) - 1]
            return block.sizes.of(int(block.pick[index - block.first]))

        plain = [np.arange(len(self._alone)), *(block.plain for block in blocks)]
        return Kinds(self._alone, np.concatenate(plain), sizes)

    def _stack(self, row: StackRow) -> int:
        number = self._stack_numbers.get(row)
        if number is None:
            number = self._stack_numbers[row] = len(self._stacks)
            self._stacks.append(tuple(self._frame(*frame) for frame in row))
        return number
