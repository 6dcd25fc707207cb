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
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from hangscope.live.agent.hangscope_agent import proc
from hangscope.live.folder import RunFolder, make_anywhere
from hangscope.live.look.capture import GAP, Taken, capture
from hangscope.live.look.processes import Process, cpu_seconds, job_of, of_run, send
from hangscope.live.look.status import StatusReader
from hangscope.live.settings import additions
from hangscope.live.torch_version import torch_version
from hangscope.live.watch.link import Link
from hangscope.live.watch.nodes import Nodes
from hangscope.live.watch.options import Options
from hangscope.live.watch.progress import OWN_TIME, Look, Mark, Patience, busy, mark_of, written
from hangscope.live.watch.reporting import Reporting
from hangscope.live.watch.stalls import Stalls
from hangscope.live.watch.startup import diagnosis
from hangscope.live.watch.streams import Streams
from hangscope.live.watch.supervisor import ANNOUNCING, ENDING, PASSED_ON
from hangscope.rankset import ranks_phrase

_LOOK = 0.5  # s between two looks at the job
_SEARCH = 5.0  # s between two searches for its processes, once it has started
_START = 30.0  # s in which it is searched for more often
_GRACE = 60.0  # s that a frozen job has to end after SIGTERM; torchrun gives its ranks 30
_ANALYSIS_BEFORE_END = (
    15.0  # s for the analysis while a scheduler waits for the end: Slurm and Kubernetes give 30
)
_ANNOUNCED = 10.0  # s of standstill after which an announced end is a reason to look
_OTHER_NODES = 20.0  # s for what other nodes still write
_ANALYSIS = 120.0  # s
_AGENTS = 15.0  # s after which a Python rank without an agent has none

_WAS = {True: "stalled", False: "making progress"}  # the analysis reads it (ExternalEnd)
_AGENT = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "agent")

_received: set[int] = set()  # signals that were sent to all processes of the job


class Watcher:
    """The watcher of one run on one node."""

    def __init__(self, link: Link, options: Options, folder: RunFolder, run: int) -> None:
        self.link, self.options, self.folder, self.run_pid = link, options, folder, run
        self.nodes = Nodes(folder.path, run)
        self.reporting = Reporting(folder, self.nodes, options.summary, options.quiet)
        self.stalls = Stalls(folder.path)
        self.known: dict[str, Any] = {}
        self.streams = Streams(run)
        self.statuses = StatusReader()
        self.patience = Patience(options.hang_timeout or float("inf"), options.init_timeout)
        self.processes: list[Process] = []
        self.searched = -_SEARCH
        self.pid = 0
        self.since = time.monotonic()
        self.ended: int | None = None
        self.ending = self.hurried = False
        self.unheard: int | None = None  # a signal that only the launcher got
        self.busy: set[int] = set()  # processes of ranks that computed between the last two captures
        self.answered = folder.captures()
        self.reported: Mark | None = None  # how far the job had come when it was reported as frozen
        self.failures: set[str] = set()
        self.agentless: set[int] = (
            set()
        )  # processes of ranks that had no agent when they were last searched for

    def environment(self, program: str) -> dict[str, str]:
        """Return what the environment of the command gets."""
        added = additions(str(self.folder.path), torch_version([program]), os.environ)
        self.known |= {"program": os.path.basename(program), **added}
        python_path = os.pathsep.join(path for path in (_AGENT, os.environ.get("PYTHONPATH", "")) if path)
        folder = str(self.folder.path)
        return {
            **added,
            "HANGSCOPE_DIR": folder,
            "PYTHON_HANGSCOPE_DIR": folder,  # some launchers take only PYTHON* to other nodes
            "HANGSCOPE_RUN": self.nodes.name,
            "PYTHONPATH": python_path,
        }

    def run(self) -> None:
        """Watch the command to its end."""
        while self.ended is None and not self.link.closed:
            self._hear(_LOOK)
            for step in (self._search, self._answer_others, self._watch, self.nodes.alive):
                self._guarded(step)
        if self.ended is not None:
            self._guarded(self._after_end)
            self.link.send(done=True)

    def _guarded(self, step: Callable[[], object]) -> None:
        """Do one thing; what goes wrong is said once."""
        try:
            step()
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            if text not in self.failures:
                self.failures.add(text)
                self.reporting.problem(f"not everything could be watched: {text}")

    def _hear(self, timeout: float) -> None:
        message = self.link.receive(timeout) or {}
        if "started" in message:
            self.pid = message["started"]
            self._guarded(lambda: self._note(started=time.time()))
        if "ended" in message:
            self.ended = message["ended"]
        if "signal" in message:
            self._guarded(lambda: self._heed(message["signal"], message["reached"], message["again"]))
            self.link.send(go=True)

    def _heed(self, number: int, reached: bool, again: bool) -> None:
        """Look at a job that somebody ends or announces the end of; it gets the signal afterwards, or has it already."""
        name = signal.Signals(number).name
        if number in ENDING:
            self.ending = True
            self.unheard = None if reached else number
        now = time.monotonic()
        still = self.patience.stands_still(now)
        self._note(received=time.time(), hangscope=f"{name}: the job was {_WAS[still]}")
        if again or not still or reached or any(rank.saves for rank in self._look().ranks):
            self.reporting.say(f"{name}: the job was {_WAS[still]}")
        elif number in ENDING:
            self._end_by(name)
        elif self.patience.still_for(now) >= max(_ANNOUNCED, OWN_TIME * self.patience.longest):
            self.link.send(looking=True)
            self._report_freeze()

    def _end_by(self, name: str) -> None:
        """Keep the evidence of a stalled job that somebody ends, let it end, and report it meanwhile."""
        self.reporting.say(f"{name}: the job is stalled, looking at it first (again: at once)")
        self.link.send(looking=True)
        still = self._capture_twice()
        self.link.send(go=True)
        self._note(hangscope=f"{name}: the job was {_WAS[still]}")
        if still and not self.hurried:
            self._report(_ANALYSIS_BEFORE_END, wait=0.0, ended=True)

    def _report(
        self, deadline: float, *, wait: float, ended: bool = False, job_is_over: bool = False
    ) -> None:
        """Write a report. Signals that come meanwhile are not held, and the supervisor waits for as long as it may take."""
        self.link.send(hold=False, wait=deadline + wait + 30)
        try:
            self.reporting.report(
                deadline, wait=wait, hurry=self._is_hurried, ended=ended, job_is_over=job_is_over
            )
        finally:
            self.link.send(hold=True, wait=5)

    def _is_hurried(self) -> bool:
        """Whether somebody asked for the end twice, or nobody waits any more; takes what the supervisor says meanwhile."""
        message = self.link.receive() or {}
        if "signal" in message:
            self.ending |= message["signal"] in ENDING
            self.hurried |= message["again"]
            self.link.send(go=True)
        if "ended" in message:
            self.ended = message["ended"]
        return self.hurried or self.link.closed

    def _watch(self) -> None:
        """Look once whether the job makes progress, and act if it does not, or does again."""
        look = self._look()
        frozen = self.patience.frozen(look)
        if self.patience.active:
            self.nodes.work()
        self.stalls.look(look, self.patience.still_for(look.time), report=self.reported is not None)
        if self.reported is not None and mark_of(look).is_beyond(self.reported) and not self.ending:
            self.reported, self.reporting.settled = None, False
            self.reporting.say("it goes on; what the report tells of was a pause")
        if frozen and self.reported is None:
            self._freeze()

    def _search(self) -> None:
        gap = _SEARCH if time.monotonic() - self.since >= _START else 1.0
        if self.pid and time.monotonic() - self.searched >= gap:
            self.searched = time.monotonic()
            self.processes = job_of([self.pid])
            self.reporting.saw(self.processes)
            self._check_agents()

    def _check_agents(self) -> None:
        """Say it if ranks have no agent: Python was told to ignore the environment, or the launcher dropped it."""
        without = {
            p.pid: p.rank
            for p in self.processes
            if p.rank is not None
            and p.is_rank
            and "python" in os.path.basename(p.command[0])
            and not proc.anonymous(p.pid, proc.STATUS_NAME)
        }
        before, self.agentless = self.agentless, set(without)
        started = time.monotonic() - self.since >= _AGENTS
        if ranks := sorted({rank for pid, rank in without.items() if pid in before and started}):
            self.reporting.problem(
                f"no agent in {ranks_phrase(ranks)} (python -I or -E, or a launcher that drops PYTHONPATH):"
                " watched by what is written; stacks need py-spy"
            )

    def _look(self) -> Look:
        found = [(p, self.statuses.read(p.pid)) for p in self.processes if p.worker_of is None]
        ranks = [status for _, status in found if status is not None]
        silent = [p for p, status in found if status is None and p.is_rank]
        return Look(
            time.monotonic(),
            ranks,
            self.streams.bytes,
            {pid: cpu_seconds(pid) for pid in (*(r.pid for r in ranks), *(p.pid for p in silent))},
            self.nodes.works_elsewhere(),
            {p.pid: written(p.pid) for p in silent},
            bool(found) and any(p.is_rank or p.is_launcher for p in self.processes),
        )

    def _capture_twice(self) -> bool:
        """Take two captures, and return whether the job made no progress meanwhile.

        Captures of a job that runs are removed: its ranks are not looked at in the same moment, so that one of them would
        seem to be behind. What the stall was is in `stalls.txt`.
        """
        before, own = self._look(), []
        for number in range(2):
            if number and not self.hurried:
                time.sleep(GAP)
            self.searched = -_SEARCH
            self._search()
            if self._is_hurried() or self.ended is not None:
                return True
            taken = self._capture(self.processes)
            if taken is not None:
                self.answered = taken.number
                self.reporting.missing = taken.missing
                own += [taken.folder] if taken.own else []
        after = self._look()
        if {rank.pid for rank in before.ranks} - {rank.pid for rank in after.ranks} and self.ending:
            return True  # it took longer than a signal waits: the job is ending
        if mark_of(after) == mark_of(before) and self.patience.stands_still(time.monotonic()):
            self.busy = busy(before, after)
            return True
        self.stalls.ended_by_look(before, own)
        return False

    def _capture(
        self, processes: Sequence[Process], *, number: int | None = None, everywhere: bool = False
    ) -> Taken | None:
        """Take one capture; a disk that is full or gone costs the capture, and never the job."""
        try:
            return capture(
                self.folder, processes, number=number, everywhere=everywhere, hurry=self._is_hurried
            )
        except OSError as error:
            self.reporting.problem(f"no capture: {error.filename}: {error.strerror or error}")
        return None

    def _answer_others(self) -> None:
        """Take part in a capture that another node has asked for."""
        asked = self.folder.captures(self.answered)
        if asked > self.answered:
            self.answered = asked
            self.searched = -_SEARCH
            self._search()
            self._capture(self.processes, number=asked)
            self.nodes.done()

    def _freeze(self) -> None:
        """Report a job that has made no progress for too long, and do with it what the user asked for."""
        if not self._report_freeze():
            return
        if self.options.on_hang == "kill":
            self.end_frozen()
        elif self.options.on_hang == "continue":
            self.reported = None
            self.patience.longest = max(self.patience.longest, self.patience.still_for(time.monotonic()))

    def end_frozen(self) -> None:
        """End the job, if the report says that it hangs and no rank computes."""
        if self.busy:
            ranks = sorted({p.rank for p in self.processes if p.pid in self.busy and p.rank is not None})
            self.reporting.say(f"not ended: {ranks_phrase(ranks)} may yet make progress (computing)")
            return
        if self.reporting.status != "hang":
            self.reporting.say(f"not ended: the report says {self.reporting.status}")
            return
        self.ending = self.reporting.settled = True  # what follows is our own doing
        self.link.send(send=signal.SIGTERM)
        self._wait_for_end(_GRACE)
        if self.ended is None and not self.link.closed:
            self.link.send(send=signal.SIGKILL)
            self._wait_for_end(5.0)
        for process in self._left():
            send(process, signal.SIGKILL)

    def _wait_for_end(self, patience: float) -> None:
        deadline = time.monotonic() + patience
        while self.ended is None and not self.link.closed and time.monotonic() < deadline:
            self._hear(_LOOK)

    def _report_freeze(self) -> bool:
        """Capture a job that makes no progress and report it; return whether it did not go on meanwhile."""
        started = self.patience.started
        since = (
            f"no progress for {self.patience.still_for(time.monotonic()):.0f} s"
            if started
            else f"no first progress {time.monotonic() - self.since:.0f} s after the start"
        )
        self.reporting.say(f"{since}, looking at the job")
        if not self._capture_twice() or self.ended is not None:
            self.reporting.say("it went on")
            return False
        self.reported = mark_of(self._look())
        if not started:
            for text in diagnosis(self.processes):
                self.reporting.problem(text)
        self.nodes.done()
        self._keep_streams()
        self._report(_ANALYSIS, wait=_OTHER_NODES)
        return True

    def _after_end(self) -> None:
        """Let the ranks end that a launcher left, and report a command that failed."""
        code = self.ended
        self.ending |= not _received.isdisjoint(ENDING)
        if self.ending:
            self._let_ranks_end()
        self._note(ended=time.time(), exit=code)
        self._keep_streams()
        if code != 0 and not self.reporting.settled:
            if self.nodes.others():  # their ranks may still wait for ours
                self.link.send(wait=30)
                self._capture([], everywhere=True)
            self.nodes.done()
            self._report(_ANALYSIS, wait=_OTHER_NODES, ended=self.ending, job_is_over=True)
        self.nodes.done()

    def _let_ranks_end(self) -> None:
        """Wait until the ranks have ended whose launcher was ended first, as long as they need: they may be saving.

        The scheduler decides how long that is, or the user, with a second signal. A launcher that a signal killed, such as a
        shell, cannot have passed it on; then the ranks get it from here.
        """
        left = self._left()
        if self.unheard is not None and self.ended == -self.unheard:
            for process in left:
                send(process, self.unheard)
        if left:
            who = ranks_phrase(sorted({p.rank for p in left if p.rank is not None}))
            self.reporting.say(f"the launcher has ended; waiting for {who} (again: at once)")
        while self._left() and not self._is_hurried():
            self.link.send(wait=10)
            time.sleep(0.2)

    def _left(self) -> list[Process]:
        return [p for p in of_run(str(self.folder.path), self.nodes.name) if p.is_rank]

    def _keep_streams(self) -> None:
        try:
            self.streams.keep(self.folder.path / "launcher", self.nodes.name.rpartition(".")[0])
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
        if folder is None:
            raise OSError("; ".join(problems))
        watcher = Watcher(link, options, folder, run)
        environment = watcher.environment(program)
        for text in problems:
            watcher.reporting.problem(f"{text}; everything goes to {folder.path}")
    except Exception as error:
        if not options.quiet:
            with suppress(OSError, ValueError):
                print(f"hangscope: the job is not watched: {error}", file=sys.stderr, flush=True)
        return
    link.send(environment=environment)
    watcher.run()
