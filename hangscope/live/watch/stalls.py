"""Stalls that resolved themselves: each leaves a line in `stalls.txt`, with how long it took and where each rank was."""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from hangscope.live.watch.progress import SHORT, Look
from hangscope.rankset import ranks_phrase

_WORTH = 30.0  # s: shorter ones are recorded only if somebody looked


class Stalls:
    """What the job did before it went on."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "stalls.txt"
        self._still = 0.0
        self._reported = False
        self._ranks: set[int] = set()
        self._where: dict[int, str] = {}

    def look(self, look: Look, still: float, report: bool) -> None:
        """Take note of a look at a job that has made no progress for `still` seconds; `report` says that it was reported."""
        ranks = {rank.pid for rank in look.ranks}
        all_there, self._ranks = self._ranks <= ranks, ranks  # a job that ends did not go on
        if all_there and still < self._still and (self._still >= _WORTH or self._reported):
            self._write(self._still)
        self._still, self._reported = still, report
        if still >= SHORT:
            self._where = {rank.rank: rank.at for rank in look.ranks if rank.at}

    def ended_by_look(self, before: Look, captures: Sequence[Path]) -> None:
        """Record a stall that ended while the job was looked at, and remove what was captured: it is of no one moment."""
        self._where = {rank.rank: rank.at for rank in before.ranks if rank.at}
        self._write(self._still)
        self._still = 0.0
        for folder in captures:
            shutil.rmtree(folder, ignore_errors=True)

    def _write(self, seconds: float) -> None:
        ranks = defaultdict(list)
        for rank, place in self._where.items():
            ranks[place].append(rank)
        where = "; ".join(
            f"{ranks_phrase(sorted(found))} at {place}" for place, found in sorted(ranks.items())
        )
        with open(self._file, "a") as file:
            file.write(
                f"{time.strftime('%F %T')} no progress for {seconds:.0f} s, then it went on: {where or 'no stacks'}\n"
            )
