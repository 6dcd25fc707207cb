"""The captures of a job that may be hung: two, to see what moves between them, and those that other nodes ask for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from hangscope.live.folder import RunFolder
from hangscope.live.look.activity import Activity, Work
from hangscope.live.look.capture import GAP, Taken, capture
from hangscope.live.look.processes import Process
from hangscope.live.watch.job import Job
from hangscope.live.watch.progress import Patience, mark_of
from hangscope.live.watch.reporting import Reporting
from hangscope.live.watch.stalls import Stalls


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
            taken = self._capture(self._job.processes)
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

    def _capture(self, processes: Sequence[Process], **how: Any) -> Taken | None:
        """Take one capture; a disk that is full or gone costs the capture, and never the job."""
        try:
            taken = capture(self._folder, processes, hurry=self._hurry, before=self._activity, **how)
        except OSError as error:
            self._reporting.problem(f"no capture: {error.filename}: {error.strerror or error}")
            return None
        self._activity = taken.activity
        return taken

    def of_other_nodes(self) -> None:
        """Ask the ranks of other nodes, which may still wait for ours."""
        self._capture([], everywhere=True)

    def answer_others(self) -> bool:
        """Take part in a capture that another node has asked for, and return whether one has."""
        asked = self._folder.captures(self._answered)
        if asked <= self._answered:
            return False
        self._answered = asked
        self._job.search(now=True)
        self._capture(self._job.processes, number=asked)
        return True
