"""`hangscope run`: start a command, watch it, and leave a report when it fails, is ended or stands still."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from hangscope.dataclass import dataclass
from hangscope.live.folder import RunFolder
from hangscope.live.look.capture import GAP, Taken, capture
from hangscope.live.look.processes import Process, cpu_seconds, job_of, of_run
from hangscope.live.look.status import StatusReader
from hangscope.live.settings import additions
from hangscope.live.torch_version import torch_version
from hangscope.live.watch.command import ANNOUNCING, ENDING, PASSED_ON, Command, check
from hangscope.live.watch.nodes import Nodes
from hangscope.live.watch.output import Output
from hangscope.live.watch.progress import OWN_TIME, Look, Mark, Patience, mark_of
from hangscope.live.watch.reporting import Reporting

_LOOK = 0.5  # s between two looks at the command
_SEARCH = 5.0  # s between two searches for its processes
_GRACE = 30.0  # s that a command has to end after SIGTERM
_ANALYSIS_BEFORE_END = (
    15.0  # s for the analysis while somebody waits for the end: Slurm and Kubernetes give 30
)
_ANNOUNCED = 10.0  # s of standstill in which an announced end is reason to look
_REST = 5.0  # s that ranks have whose launcher is gone
_OTHER_NODES = 20.0  # s for what other nodes still write


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked of a run: `hang_timeout` in seconds, None is off; `on_hang` is report, kill or continue."""

    directory: str | None = None
    hang_timeout: float | None = None
    on_hang: str = "report"
    summary: str | None = None
    quiet: bool = False


class Runner:
    """One run on one node."""

    def __init__(self, words: Sequence[str], options: Options, environment: Mapping[str, str]) -> None:
        self.options = options
        check(words[0])  # before anything is written
        self.folder = RunFolder.of_job(options.directory)
        self.folder.make()
        self.nodes = Nodes(self.folder.path)
        self.reporting = Reporting(self.folder, self.nodes, options.summary, options.quiet)
        version = torch_version(words)
        self.added = additions(str(self.folder.path), version, environment)
        self.environment = {
            **environment,
            **self.added,
            "HANGSCOPE_DIR": str(self.folder.path),
            "HANGSCOPE_RUN": self.nodes.name,
        }
        self.environment["PYTHONPATH"] = os.pathsep.join(
            path for path in (str(self.folder.agent), environment.get("PYTHONPATH", "")) if path
        )
        self.words = list(words)
        self.known: dict[str, Any] = {"program": os.path.basename(words[0]), **self.added}
        self.statuses = StatusReader()
        self.patience = Patience(options.hang_timeout or float("inf"))
        self.processes: list[Process] = []
        self.searched = -_SEARCH
        self.signals: list[int] = []
        self.ending = self.hurried = False
        self.answered = self.folder.captures()
        self.reported: Mark | None = None  # how far the job had come when it was reported as frozen

    def run(self) -> int:
        """Run the command to its end and return its return code, as subprocess has it."""
        for number in (*PASSED_ON, *ANNOUNCING, *ENDING):
            signal.signal(number, self._receive)
        self.command = Command(self.words, self.environment)
        self.output = Output(self.folder.path / "launcher", self.nodes.name.rpartition(".")[0])
        self.output.follow(self.command.streams)
        self._note(started=time.time())
        while (code := self.command.wait(_LOOK)) is None:
            self._search()
            self._heed_signals()
            self._answer_others()
            self._watch()
        if self.ending:
            self._end_rest()
        self.output.close()
        self._note(ended=time.time(), exit=code)
        if code != 0 and not self.reporting.settled:
            self._after_failure()
        self.nodes.done()
        return code

    def _receive(self, number: int, _: Any) -> None:
        if number in PASSED_ON:
            self.command.send(number)
        elif number in ANNOUNCING:
            self.signals.append(number)
        elif self.ending:
            self._pass_on(number)  # asked twice: at once
        else:
            self.ending = True
            self.signals.append(number)

    def _heed_signals(self) -> None:
        while self.signals:
            received = self.signals.pop(0)
            if received in ANNOUNCING:
                self._announce(received)
            else:
                self._end_by(received)

    def _watch(self) -> None:
        """Look once whether the job makes progress, and act where it does not, or does again."""
        look = self._look()
        frozen = self.patience.frozen(look)
        if self.patience.active:
            self.nodes.work()
        if self.reported is not None and mark_of(look).is_beyond(self.reported) and not self.ending:
            self.reported, self.reporting.settled = None, False
            self.reporting.say("it goes on; what the report tells of was a pause")
        if frozen and self.options.hang_timeout is not None and self.reported is None:
            self._freeze()

    def _pass_on(self, number: int) -> None:
        self.hurried = True
        self.command.send(number, all_of_it=number == signal.SIGINT)

    def _end_rest(self) -> None:
        """End the ranks that a launcher left behind when it was ended: nobody else will."""
        for number, patience in ((signal.SIGTERM, _REST), (signal.SIGKILL, 1.0)):
            for process in self._left():
                with suppress(OSError):
                    os.kill(process.pid, number)
            deadline = time.monotonic() + patience
            while self._left() and time.monotonic() < deadline:
                time.sleep(0.1)

    def _left(self) -> list[Process]:
        return of_run(str(self.folder.path), self.nodes.name)

    def _search(self) -> None:
        if time.monotonic() - self.searched >= _SEARCH:
            self.searched = time.monotonic()
            self.processes = job_of([self.command.pid])
            self.reporting.world_size = max(
                [self.reporting.world_size, *(p.world_size or 0 for p in self.processes)]
            )
            self.reporting.here.update(p.rank for p in self.processes if p.rank is not None)

    def _look(self) -> Look:
        ranks = [
            s for p in self.processes if p.worker_of is None and (s := self.statuses.read(p.pid)) is not None
        ]
        return Look(
            time.monotonic(),
            ranks,
            self.output.bytes,
            {rank.pid: cpu_seconds(rank.pid) for rank in ranks},
            self.nodes.works_elsewhere(),
        )

    def _capture_twice(self) -> bool:
        """Take two captures, and return whether the job stood still meanwhile; where it went on they are removed.

        Ranks of a job that runs are not looked at in the same moment, so that one of them would seem to be behind.
        """
        before, own = mark_of(self._look()), []
        for number in range(2):
            if number and not self.hurried:
                time.sleep(GAP)
            self.searched = -_SEARCH
            self._search()
            if self.hurried or self.command.ended is not None:
                return True
            taken = self._capture(self.processes)
            if taken is not None:
                self.answered = taken.number
                self.reporting.missing = taken.missing
                own += [taken.folder] if taken.own else []
        if mark_of(self._look()) == before and self.patience.stands_still(time.monotonic()):
            return True
        for folder in own:  # what another node asked for is that node's evidence
            shutil.rmtree(folder, ignore_errors=True)
        return False

    def _capture(
        self, processes: Sequence[Process], *, number: int | None = None, everywhere: bool = False
    ) -> Taken | None:
        """Take one capture; a disk that is full or gone costs the capture, and never the job."""
        try:
            return capture(
                self.folder, processes, number=number, everywhere=everywhere, hurry=lambda: self.hurried
            )
        except OSError as error:
            self.reporting.say(f"no capture: {error.filename}: {error.strerror or error}")
        return None

    def _answer_others(self) -> None:
        """Take part in a capture that another node has asked for."""
        asked = self.folder.captures()
        if asked > self.answered:
            self.answered = asked
            self.searched = -_SEARCH
            self._search()
            self._capture(self.processes, number=asked)
            self.nodes.done()

    def _end_by(self, number: int) -> None:
        """Keep the evidence of a job that somebody ends, then let it end."""
        name = signal.Signals(number).name
        self.reporting.say(f"{name}: looking at the job before it ends (again: at once)")
        still = self._capture_twice()
        self._note(signal=name, received=time.time(), stood_still=still)
        if not still:
            self.reporting.say("it was making progress")
        elif self.command.ended is None and not self.hurried:
            self.reporting.report(_ANALYSIS_BEFORE_END, wait=0.0, hurry=lambda: self.hurried, ended=True)
        if not self.hurried:
            self._pass_on(number)

    def _announce(self, number: int) -> None:
        """Look at a job that stands still before it is told of its end, which may end ranks that do not expect it."""
        if self.patience.still_for(time.monotonic()) >= max(_ANNOUNCED, OWN_TIME * self.patience.longest):
            self._report_freeze()
        self.command.send(number)

    def _freeze(self) -> None:
        """Report a job that has stood still for too long, and do with it what the user asked for."""
        if not self._report_freeze():
            return
        if self.options.on_hang == "kill":
            self.ending = self.reporting.settled = True  # what follows is our own doing
            self.command.send(signal.SIGTERM)
            if self.command.wait(_GRACE) is None:
                self.command.send(signal.SIGKILL, all_of_it=True)
        elif self.options.on_hang == "continue":
            self.reported = None
            self.patience.longest = max(self.patience.longest, self.patience.still_for(time.monotonic()))

    def _report_freeze(self) -> bool:
        """Capture a job that stands still and report it; return whether it did not go on meanwhile."""
        self.reporting.say(
            f"no progress for {self.patience.still_for(time.monotonic()):.0f} s, looking at the job"
        )
        if not self._capture_twice() or self.command.ended is not None:
            self.reporting.say("it went on")
            return False
        self.reported = mark_of(self._look())
        self.nodes.done()
        self.reporting.report(120.0, wait=_OTHER_NODES, hurry=lambda: self.hurried)
        return True

    def _after_failure(self) -> None:
        """Report a job that ended by itself; ranks of other nodes may still wait for it."""
        if self.nodes.others():
            self._capture([], everywhere=True)
        self.nodes.done()
        self.reporting.report(
            120.0, wait=_OTHER_NODES, hurry=lambda: False, ended=self.ending, job_is_over=True
        )

    def _note(self, **statements: Any) -> None:
        """Keep what is known of the run itself, for people."""
        self.known.update(statements)
        path = self.folder.path / "launcher" / f"{self.nodes.name}.run"
        try:
            path.write_text("".join(f"{name}: {value}\n" for name, value in self.known.items()))
        except OSError as error:
            self.reporting.say(f"{path} cannot be written: {error.strerror}")
