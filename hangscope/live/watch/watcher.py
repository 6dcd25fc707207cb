"""The watcher of `hangscope run`: a process of its own, which looks at the job and reports. The job never waits for it.

It tells the supervisor what the environment of the command gets, then looks at the ranks twice a second, until the
supervisor says that the command has ended. Whatever fails here is a line on stderr; the job goes on.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hangscope.live.folder import RunFolder, make_anywhere
from hangscope.live.look.meeting import diagnosis
from hangscope.live.settings import additions, torch_version
from hangscope.live.watch.captures import Captures
from hangscope.live.watch.ending import Ending
from hangscope.live.watch.job import Job
from hangscope.live.watch.link import Link, Options
from hangscope.live.watch.nodes import Nodes
from hangscope.live.watch.progress import OWN_TIME, Mark, Patience, mark_of
from hangscope.live.watch.reporting import Reporting
from hangscope.live.watch.supervisor import ANNOUNCING, ENDING, PASSED_ON

_LOOK = 0.5  # s between two looks at the job
_ANALYSIS_BEFORE_END = 15.0  # s for it while a scheduler waits for the end: Slurm and Kubernetes give 30
_TO_END = 2.0  # s that a command gets to end by a signal before the report is made
_ANNOUNCED = 10.0  # s without progress after which an announced end is a reason to capture the job
_OTHER_NODES = 20.0  # s for what other nodes still write
_ANALYSIS = 120.0  # s

#: The analysis reads it (ExternalEnd).
_WAS = {True: "was stalled", False: "was making progress", None: "had shown no progress yet"}
_AGENT = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "agent")

_received: set[int] = set()  # signals that were sent to all processes of the job


class Watcher:
    """The watcher of one run on one node."""

    def __init__(self, link: Link, options: Options, folder: RunFolder, run: int) -> None:
        self.link, self.options, self.folder = link, options, folder
        self.nodes = Nodes(folder.path, run)
        self.reporting = Reporting(folder, self.nodes, options)
        self.patience = Patience(options.hang_timeout or float("inf"), options.init_timeout)
        self.job = Job(folder, self.nodes, self.reporting, run)
        self.captures = Captures(self)
        self.ending = Ending(self)
        self.known: dict[str, Any] = {}
        self.ended: int | None = None
        self.hurried = False
        self.reported: Mark | None = None  # how far the job had come when it was reported as hung

    def environment(self, program: str) -> dict[str, str]:
        """Return what the environment of the command gets."""
        version = torch_version(program)
        self.reporting.torch = ".".join(map(str, version or ()))
        folder = str(self.folder.path)
        added = additions(folder, version, os.environ)
        self.known |= {"program": os.path.basename(program), **added}
        return {
            **added,
            "HANGSCOPE_DIR": folder,
            "PYTHON_HANGSCOPE_DIR": folder,  # some launchers take only PYTHON* to other nodes
            "HANGSCOPE_RUN": self.nodes.name,
            "PYTHONPATH": os.pathsep.join(filter(None, (_AGENT, os.environ.get("PYTHONPATH", "")))),
        }

    def run(self) -> None:
        """Watch the command to its end."""
        steps = (self.job.search, self.captures.answer_others, self._watch, lambda: self.nodes.show("here"))
        while self.ended is None and not self.link.closed:
            self.hear(_LOOK)
            for step in steps:
                self._guarded(step)
        if self.ended is not None:
            self._guarded(self._after_end)
            self.link.send(done=True)

    def _guarded(self, step: Callable[[], object]) -> None:
        """Do one thing; what goes wrong is reported once."""
        try:
            step()
        except Exception as error:
            self.reporting.problem(f"not everything could be watched: {type(error).__name__}: {error}")

    def hear(self, timeout: float) -> None:
        """Wait for the supervisor's next message, and act on it."""
        message = self.link.receive(timeout)
        self.ended = message.get("ended", self.ended)
        if "started" in message:
            self.job.pid = message["started"]
            self._guarded(lambda: self._note(started=time.time()))
        if "signal" in message:
            self._guarded(lambda: self._heed(message["signal"], message["reached"], message["again"]))
            self.link.send(go=True)

    def is_hurried(self) -> bool:
        """Whether somebody asked for the end twice, or nobody waits any more; takes what the supervisor says meanwhile."""
        message = self.link.receive()
        self.ended = message.get("ended", self.ended)
        if "signal" in message:
            self.ending.begun |= message["signal"] in ENDING
            self.hurried |= message["again"]
            self.link.send(go=True)
        return self.hurried or self.link.closed

    @property
    def is_over(self) -> bool:
        """Whether the command has ended, or nobody can say so any more."""
        return self.ended is not None or self.link.closed

    def _heed(self, number: int, reached: bool, again: bool) -> None:
        """Capture a job that somebody ends or announces the end of; it gets the signal afterwards, or has it already."""
        name = signal.Signals(number).name
        if number in ENDING:
            self.ending.begun = True
            self.ending.unheard = None if reached else number
        now = time.monotonic()
        still = self.patience.stands_still(now)
        was = _WAS[self.patience.standstill(now)]
        self._note(received=time.time(), hangscope=f"{name}: the job {was}")
        if again or not still or reached or any(rank.saves for rank in self.job.look().ranks):
            self.reporting.say(f"{name}: the job {was}")
        elif number in ENDING:
            self._end_by(name)
        elif self.patience.still_for(now) >= max(_ANNOUNCED, OWN_TIME * self.patience.longest):
            self.link.send(looking=True)
            self._report_freeze()

    def _end_by(self, name: str) -> None:
        """Keep the evidence of a stalled job that somebody ends, let it end, and report it meanwhile."""
        skip = "send the signal again to skip that"
        self.reporting.say(f"{name}: the job is stalled, capturing it first ({skip})")
        self.link.send(looking=True)
        still = self.captures.twice()
        self.link.send(go=True)
        self._note(hangscope=f"{name}: the job {_WAS[still]}")
        self.hear_for(_TO_END)
        self.ending.pass_on()  # to ranks that a launcher has left, before the report is made
        if still and not self.hurried:
            self._report(_ANALYSIS_BEFORE_END, wait=0.0, ended=True)

    def hear_for(self, patience: float) -> None:
        """Give the command so many seconds to end by a signal, and act on what the supervisor says meanwhile."""
        deadline = time.monotonic() + patience
        while not self.is_over and time.monotonic() < deadline:
            self.hear(0.1)

    def _report(self, deadline: float, *, wait: float, **how: bool) -> None:
        """Write a report. Signals that come meanwhile are not held, and the supervisor waits for as long as it may take."""
        self.link.send(hold=False, wait=deadline + wait + 30)
        try:
            self.reporting.report(deadline, wait=wait, hurry=self.is_hurried, **how)
        finally:
            self.link.send(hold=True, wait=5)

    def _watch(self) -> None:
        """Look once whether the job makes progress, and act if it does not, or does again."""
        look = self.job.look()
        if not self.ending.begun and not _received.isdisjoint(ENDING):
            return  # ranks that end by it are no progress; the supervisor is about to ask whether there was any
        frozen = self.patience.frozen(look)
        if self.patience.active:
            self.nodes.show("works")
        still = self.patience.still_for(look.time)
        self.captures.stalls.look(look, still, report=self.reported is not None)
        went_on = self.reported is not None and self.patience.is_beyond(look, self.reported)
        if went_on and not self.ending.begun:
            self.reported, self.reporting.settled = None, False
            self.reporting.say("the job makes progress again: the reported stall was a pause")
        if not frozen or self.reported is not None or not self._report_freeze():
            return
        if self.options.on_hang == "kill":
            self.ending.of_hung_job()
        elif self.options.on_hang == "continue":
            self.reported = None
            self.patience.longest = max(self.patience.longest, self.patience.still_for(time.monotonic()))

    def _report_freeze(self) -> bool:
        """Capture a job that makes no progress and report it; return whether it did not go on meanwhile."""
        started, now = self.patience.started, time.monotonic()
        since = f"no first progress {self.patience.starting_for(now):.0f} s after the start"
        since = f"no progress for {self.patience.still_for(now):.0f} s" if started else since
        self.reporting.say(f"{since}, capturing the job")
        if not self.captures.twice() or self.ended is not None:
            self.reporting.say("the job made progress meanwhile: no report")
            return False
        self.reported = mark_of(self.job.look())
        if not started:
            for text in diagnosis(self.job.processes):
                self.reporting.problem(text)
        self.nodes.show("done")
        self._keep_streams()
        self._report(_ANALYSIS, wait=_OTHER_NODES)
        return True

    def _after_end(self) -> None:
        """Let the ranks end that a launcher left, and report a command that failed."""
        code = self.ended
        self.ending.begun |= not _received.isdisjoint(ENDING)
        if self.ending.begun:
            self.ending.of_ranks_left()
        self._note(ended=time.time(), exit=code)
        self._keep_streams()
        if code != 0 and self.hurried:
            how = f"`hangscope analyze {self.folder.path}` makes it"
            self.reporting.say(f"no report after a second signal; {how}")
        elif code != 0 and not self.reporting.settled:
            if self.nodes.others():  # their ranks may still wait for ours
                self.link.send(wait=30)
                self.captures.take([], everywhere=True)
            self.nodes.show("done")
            self._report(_ANALYSIS, wait=_OTHER_NODES, ended=self.ending.begun, job_is_over=True)
        self.nodes.show("done")

    def _keep_streams(self) -> None:
        try:
            self.job.streams.keep(self.folder.path / "launcher", self.nodes.name.rpartition(".")[0])
        except OSError as error:
            self.reporting.problem(f"the command's output was not copied: {error.strerror or error}")

    def _note(self, **statements: Any) -> None:
        """Keep what is known of the run itself, for people."""
        self.known.update(statements)
        path = self.folder.path / "launcher" / f"{self.nodes.name}.run"
        with suppress(OSError):
            path.write_text("".join(f"{name}: {value}\n" for name, value in self.known.items()))


def main() -> None:
    """Watch the command of the supervisor that started this process."""
    told = json.loads(sys.argv[-1])
    link = Link(socket.socket(fileno=told.pop("link")))
    signal.set_wakeup_fd(link.fileno(), warn_on_full_buffer=False)
    for number in (*PASSED_ON, *ANNOUNCING, *ENDING):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: _received.add(number))
    program, run = told.pop("program"), told.pop("run")
    options = Options(**told)
    problems: list[str] = []
    try:
        folder = make_anywhere(options.directory, problems)
        watcher = Watcher(link, options, folder, run)
        environment = watcher.environment(program)
        for text in problems:
            watcher.reporting.problem(f"{text}; everything goes to {folder.path}")
    except Exception as error:
        return options.say(f"the job is not watched: {error}")
    link.send(environment=environment)
    watcher.run()
