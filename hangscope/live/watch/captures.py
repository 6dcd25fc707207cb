"""The captures of a job that may be hung: two, to see what moves between them, and those that other nodes ask for.

Stalls that resolved themselves leave a line in `stalls.txt` each, and the captures that were taken of them in `stalls/N/`.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hangscope.live.folder import RunFolder
from hangscope.live.look.activity import Activity, Work
from hangscope.live.look.capture import GAP, Taken, capture
from hangscope.live.look.processes import Process
from hangscope.live.watch.job import Job
from hangscope.live.watch.progress import SHORT, Look, Patience, mark_of
from hangscope.live.watch.reporting import Reporting
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
        for taken in captures:
            with suppress(OSError):
                target.mkdir(mode=0o700, parents=True, exist_ok=True)
                taken.rename(target / taken.name)
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


class Captures:
    """The captures of one run on one node. `hurry` ends all waiting."""

    def __init__(
        self, folder: RunFolder, job: Job, patience: Patience, reporting: Reporting, hurry: Callable[[], bool]
    ) -> None:
        self._folder, self._job, self._patience = folder, job, patience
        self._reporting, self._hurry = reporting, hurry
        self._answered = folder.captures()
        self._activity: Activity | None = None  # at the last capture
        self.stalls = Stalls(folder)
        self.work: dict[int, Work] = {}  # of the ranks' processes that computed between the last two captures

    def twice(self, over: Callable[[], bool], ending: bool) -> bool:
        """Take two captures, and return whether the job made no progress meanwhile.

        `over` says that the command has ended, `ending` that somebody is ending it. Ranks of a job that runs are not captured
        in the same moment, so that one of them would seem to be behind: its captures become the record of a stall.
        """
        before, own = self._job.look(), []
        for number in range(2):
            if number and not self._hurry():
                time.sleep(GAP)
            self._job.search(now=True)
            if self._hurry() or over():
                return True
            taken = self.take(self._job.processes)
            if taken is not None:
                self._answered = taken.number
                self._reporting.missing = taken.missing
                own += [taken.folder] if taken.own else []
        after = self._job.look()
        if {rank.pid for rank in before.ranks} - {rank.pid for rank in after.ranks} and ending:
            return True  # it took longer than a signal waits: the job is ending
        mark = mark_of(before)
        same = mark_of(after).told_by == mark.told_by and not self._patience.is_beyond(after, mark)
        if same and self._patience.stands_still(time.monotonic()):
            self.work = after.activity.since(before.activity)
            return True
        self.stalls.ended_by_look(before, own)
        return False

    def take(self, processes: Sequence[Process], **how: Any) -> Taken | None:
        """Take one capture; a disk that is full or gone costs the capture, and never the job."""
        try:
            taken = capture(self._folder, processes, hurry=self._hurry, before=self._activity, **how)
        except OSError as error:
            self._reporting.problem(f"no capture: {error.filename}: {error.strerror or error}")
            return None
        self._activity = taken.activity
        return taken

    def answer_others(self) -> bool:
        """Take part in a capture that another node has asked for, and return whether one has."""
        asked = self._folder.captures(self._answered)
        if asked <= self._answered:
            return False
        self._answered = asked
        self._job.search(now=True)
        self.take(self._job.processes, number=asked)
        return True
