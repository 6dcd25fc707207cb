"""Stalls that resolved themselves: each leaves a line in `stalls.txt`, and the captures that were taken of it in `stalls/N/`."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hangscope.live.folder import RunFolder
from hangscope.live.watch.progress import SHORT, Look
from hangscope.model.rankset import ranks_phrase

_WORTH = 30.0  # s: shorter ones are recorded only if they were captured
_KEPT = 5  # stalls whose captures are kept, the last ones


class Stalls:
    """What the job did before it went on."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
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
        """Record a stall that ended while the job was captured; `analyze` does not take its captures for evidence of another."""
        self._where = {rank.rank: rank.at for rank in before.ranks if rank.at}
        self._write(self._still, self._keep(captures))
        self._still = 0.0

    def _keep(self, captures: Sequence[Path]) -> str:
        """Move captures aside, and return a clause that says where to."""
        numbers = sorted(int(p.name) for p in self._folder.stalls.glob("*") if p.name.isdecimal())
        target = self._folder.stalls / str(numbers[-1] + 1 if numbers else 1)
        for capture in captures:
            with suppress(OSError):
                target.mkdir(mode=0o700, parents=True, exist_ok=True)
                capture.rename(target / capture.name)
        for number in numbers[: 1 - _KEPT]:
            shutil.rmtree(self._folder.stalls / str(number), ignore_errors=True)
        return f" (captured in {target.relative_to(self._folder.path)})" if target.exists() else ""

    def _write(self, seconds: float, captured: str = "") -> None:
        places = sorted(set(self._where.values()))
        ranks = {place: ranks_phrase(r for r, at in self._where.items() if at == place) for place in places}
        where = "; ".join(f"{who} at {place}" for place, who in ranks.items()) or "no stacks"
        what = f"no progress for {seconds:.0f} s, then progress again: {where}{captured}"
        with suppress(OSError), open(self._folder.path / "stalls.txt", "a") as file:
            file.write(f"{time.strftime('%F %T')} {what}\n")
