"""How a job ends: a hung one that the user wants killed, and ranks that outlive their launcher."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from hangscope.live.look.activity import computing_in
from hangscope.live.look.processes import send
from hangscope.model.rankset import agree, ranks_phrase

if TYPE_CHECKING:
    from hangscope.live.watch.watcher import Watcher

_GRACE = 60.0  # s that a hung job has to end after SIGTERM; torchrun gives its ranks 30


class Ending:
    """The end of one job. `begun` says that somebody is ending it; `unheard` is a signal that only the launcher got."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self.begun = False
        self.unheard: int | None = None

    def of_hung_job(self) -> None:
        """End the job, if the report says that it hangs, all its ranks were seen and none computes; ranks that wait for others may spin."""
        reporting, link, job = self._watcher.reporting, self._watcher.link, self._watcher.job
        folder, work = self._watcher.folder, self._watcher.captures.work
        moved = computing_in(folder.capture(folder.captures()))  # also on other nodes
        for process in job.processes:
            if process.rank is not None and process.pid in work:
                moved[process.rank] = work[process.pid].moved is not False
        if ranks := sorted(rank for rank in moved if moved[rank] or rank in reporting.culprits):
            return reporting.say(f"not terminated: {ranks_phrase(ranks)} may yet make progress (computing)")
        if reporting.status != "hang":
            return reporting.say(f"not terminated: the report says {reporting.status}")
        if not reporting.here:
            return reporting.say("not terminated: no rank was seen here")
        if unseen := sorted(reporting.unseen() - moved.keys()):
            what = f"{ranks_phrase(unseen)} {agree(unseen, 'was', 'were')} not seen here"
            return reporting.say(f"not terminated: {what}, and may be at work on another node")
        if late := sorted(self._watcher.nodes.late()):
            return reporting.say(f"not terminated: {', '.join(late)} did not answer")
        self.begun = reporting.settled = True  # what follows is our own doing
        for number, patience in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, 5.0)):
            if not self._watcher.is_over:
                link.send(send=number)
                self._watcher.hear_for(patience)
        for process in job.left():
            send(process, signal.SIGKILL)

    def pass_on(self) -> None:
        """Send a signal that killed the launcher to the ranks that it left: a shell, for instance, cannot have passed it on."""
        if self.unheard is not None and self._watcher.ended == -self.unheard:
            for process in self._watcher.job.left():
                send(process, self.unheard)
            self.unheard = None

    def of_ranks_left(self) -> None:
        """Wait until the ranks have ended whose launcher was ended first, as long as they need: they may be saving.

        The scheduler decides how long that is, or the user, with a second signal.
        """
        job, link = self._watcher.job, self._watcher.link
        self.pass_on()
        if left := job.left():
            ranks = ranks_phrase(process.rank or 0 for process in left)
            what = f"waiting for {ranks} (send the signal again to stop waiting)"
            self._watcher.reporting.say(f"the launcher has ended; {what}")
        while job.left() and not self._watcher.is_hurried():
            link.send(wait=10)
            time.sleep(0.2)
