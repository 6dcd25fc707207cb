"""The captures of a job that may be hung: two, to see what moves between them, and those that other nodes ask for.

Stalls that resolved themselves leave a line in `stalls.txt` each, and the captures that were taken of them in `stalls/N/`.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hangscope.ingest.files.run_evidence import RESOLVED
from hangscope.live.folder import RunFolder
from hangscope.live.look.activity import Activity, Work
from hangscope.live.look.capture import GAP, Taken, capture
from hangscope.live.look.processes import Process, by_rank
from hangscope.live.watch.progress import SHORT, Look, mark_of

if TYPE_CHECKING:
    from hangscope.live.watch.watcher import Watcher

_WORTH = 30.0  # s: shorter ones are recorded only if they were captured
_KEPT = 5  # stalls whose captures are kept, the last ones


class Stalls:
    """What the job did before it went on."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._still = 0.0
        self._reported = False
        self._ranks: set[int] = set()
        self._seen = Look(0.0, [], 0)  # during it

    def look(self, look: Look, still: float, report: bool) -> None:
        """Take note of a look at a job that has made no progress for `still` seconds; `report` says that it was reported."""
        ranks = {rank.pid for rank in look.ranks}
        all_there, self._ranks = self._ranks <= ranks, ranks  # a job that ends did not go on
        if all_there and still < self._still and (self._still >= _WORTH or self._reported):
            self._write()
        self._still, self._reported = still, report
        if still >= SHORT:
            self._seen = look

    def ended_by_look(self, before: Look, captures: Sequence[Path]) -> None:
        """Record a stall that ended while the job was captured; its captures are moved to where they are no evidence of another."""
        stalls = self._folder.path / RESOLVED
        numbers = sorted(int(p.name) for p in stalls.glob("*") if p.name.isdecimal())
        target = stalls / str(numbers[-1] + 1 if numbers else 1)
        for taken in captures:
            with suppress(OSError):
                target.mkdir(mode=0o700, parents=True, exist_ok=True)
                taken.rename(target / taken.name)
        for number in numbers[: 1 - _KEPT]:
            shutil.rmtree(stalls / str(number), ignore_errors=True)
        self._seen = before
        self._write(f" (captured in {target.relative_to(self._folder.path)})" if target.exists() else "")
        self._still = 0.0

    def _write(self, captured: str = "") -> None:
        where = "; ".join(by_rank(((rank.rank, rank.at) for rank in self._seen.ranks), " at "))
        what = f"no progress for {self._still:.0f} s, then progress again: {where or 'no stacks'}{captured}"
        with suppress(OSError), open(self._folder.path / "stalls.txt", "a") as file:
            file.write(f"{time.strftime('%F %T')} {what}\n")


class Captures:
    """The captures of one run on one node."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._answered = watcher.folder.captures()
        self._activity: Activity | None = None  # at the last capture
        self.stalls = Stalls(watcher.folder)
        self.work: dict[int, Work] = {}  # of the ranks' processes that computed between the last two captures

    def twice(self) -> bool:
        """Take two captures, and return whether the job made no progress meanwhile.

        Ranks of a job that runs are not captured in the same moment, so that one of them would seem to be behind: its
        captures become the record of a stall.
        """
        job, patience, ending = self._watcher.job, self._watcher.patience, self._watcher.ending.begun
        before, own = job.look(), []
        for number in range(2):
            if number and not self._watcher.is_hurried():
                time.sleep(GAP)
            job.search(now=True)
            if self._watcher.is_hurried() or self._watcher.ended is not None:
                return True
            taken = self.take(job.processes)
            if taken is not None:
                self._answered = taken.number
                self._watcher.reporting.missing = taken.missing
                own += [taken.folder] if taken.own else []
        after = job.look()
        if {rank.pid for rank in before.ranks} - {rank.pid for rank in after.ranks} and ending:
            return True  # it took longer than a signal waits: the job is ending
        mark = mark_of(before)
        same = mark_of(after).told_by == mark.told_by and not patience.is_beyond(after, mark)
        if same and patience.stands_still(time.monotonic()):
            self.work = after.activity.since(before.activity)
            return True
        self.stalls.ended_by_look(before, own)
        return False

    def take(self, processes: Sequence[Process], **how: Any) -> Taken | None:
        """Take one capture; a disk that is full or gone costs the capture, and never the job."""
        try:
            how |= {"hurry": self._watcher.is_hurried, "before": self._activity}
            taken = capture(self._watcher.folder, processes, **how)
        except OSError as error:
            self._watcher.reporting.problem(f"no capture: {error.filename}: {error.strerror or error}")
            return None
        self._activity = taken.activity
        return taken

    def answer_others(self) -> None:
        """Take part in a capture that another node has asked for."""
        asked = self._watcher.folder.captures(self._answered)
        if asked > self._answered:
            self._answered = asked
            self._watcher.job.search(now=True)
            self.take(self._watcher.job.processes, number=asked)
            self._watcher.nodes.show("done")
