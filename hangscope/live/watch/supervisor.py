"""`hangscope run` itself: start the command, pass signals on, exit as it does. It does nothing that can fail.

Everything else is done by the watcher (`watcher.py`), a process of its own in the same process group; what it does not answer
in time is done without it. It also is the witness of signals that were sent to the whole group or job, and so have reached the
command already: only what it did not receive is passed on. docs/live-safety.md has the promises.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from hangscope import isolated
from hangscope.live.watch.link import Link, Options

#: Signals that end a job, those that announce an end (Slurm's `--signal`), and those that are only passed on.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
ANNOUNCING = (signal.SIGUSR1, signal.SIGUSR2)
PASSED_ON = (signal.SIGWINCH, signal.SIGCONT, signal.SIGALRM, signal.SIGXCPU)
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)

_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # exit codes
_PREPARATION = 10.0  # s for the watcher to prepare its folder; then the job starts without it
_WITNESS = 0.1  # s in which the watcher receives what was sent to all
_ANSWER = 2.0  # s for which a signal waits until the watcher says whether the job is stalled
_HOLD = 15.0  # s at most for which it waits then, until the watcher has looked at the job
_LAST = 1.0  # s for it to end afterwards
_AFTER_END = 5.0  # s after the command's end for the watcher to say for how long it needs


class CannotStart(Exception):
    """The command cannot be started; `code` is what a shell would exit with."""

    def __init__(self, program: str, reason: str, code: int) -> None:
        super().__init__(f"{program}: {reason}")
        self.code = code


def find(program: str) -> str:
    """Return the path of a program. Raises CannotStart."""
    found = shutil.which(program)
    if found is not None:
        return found
    folders = [""] if os.sep in program else os.get_exec_path()
    if any(os.path.exists(os.path.join(folder, program)) for folder in folders):
        raise CannotStart(program, "cannot be executed", _NOT_EXECUTABLE)
    raise CannotStart(program, "command not found", _NOT_FOUND)


def start(path: str, words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Start a program and return its process id. Raises CannotStart.

    Where no process can be made, this process becomes the command: it runs unwatched, but it runs.
    """
    try:
        return _spawn(path, words, environment)
    except OSError as error:
        if error.errno == errno.ENOEXEC:  # a script without `#!`
            return _spawn("/bin/sh", ["/bin/sh", path, *words[1:]], environment)
        if error.errno in (errno.EAGAIN, errno.ENOMEM):
            for number in _IGNORED_BY_PYTHON:
                signal.signal(number, signal.SIG_DFL)
            os.execve(path, list(words), dict(environment))
        code = _NOT_FOUND if error.errno == errno.ENOENT else _NOT_EXECUTABLE
        raise CannotStart(words[0], error.strerror or str(error), code) from None


def _spawn(path: str, words: Sequence[str], environment: Mapping[str, str]) -> int:
    return os.posix_spawn(path, list(words), dict(environment), setsigdef=_IGNORED_BY_PYTHON)


def exit_like(code: int) -> int:
    """Return the exit code of a command that has ended; if a signal ended it, end this process by the same signal."""
    if code >= 0:
        return code
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it would be a dump of the wrong process
    with suppress(OSError, ValueError):
        signal.signal(-code, signal.SIG_DFL)  # SIGKILL has no other
    os.kill(os.getpid(), -code)
    return 128 - code  # PID 1 of a container ignores the signals that it does not handle


class Supervisor:
    """One command and its watcher."""

    def __init__(self, words: Sequence[str], options: Options) -> None:
        self._words, self._options = list(words), options
        self._path = find(words[0])
        self._seen: dict[int, float] = {}  # when the watcher received a signal
        self._told: dict[int, float] = {}  # when the watcher was told of one
        self._held: list[int] = []
        self._held_until = 0.0
        self._wait_until = 0.0
        self._ending = self._settled = False
        self._may_hold = True
        self._ended: int | None = None
        self._pid = self._watcher = 0

    def run(self) -> int:
        """Run the command and return how it ended, as subprocess does: the exit code, or minus the signal."""
        self._listen()
        self._link = self._start_watcher()
        environment = self._prepared()
        self._pid = start(self._path, self._words, environment)
        self._link.send(started=self._pid)
        while self._ended is None:
            self._wait(max(0.0, self._held_until - time.monotonic()) if self._held else None)
            if self._held and (self._link.closed or time.monotonic() >= self._held_until):
                self._release()
        self._wait_for_report()
        return self._ended

    def _listen(self) -> None:
        """Have each signal write its number into a socket. Those that are ignored (nohup) stay ignored."""
        self._signals, self._writer = socket.socketpair()
        self._signals.setblocking(False)
        self._writer.setblocking(False)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in (*ENDING, *ANNOUNCING, *PASSED_ON, signal.SIGCHLD):
            if number == signal.SIGCHLD or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda *_: None)

    def _start_watcher(self) -> Link:
        ours, theirs = Link.pair()
        told = {**asdict(self._options), "program": self._path, "run": os.getpid(), "link": theirs.fileno()}
        try:
            how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": None}
            how |= {"pass_fds": [theirs.fileno()]}
            self._watcher = isolated.start("hangscope.live.watch.watcher", json.dumps(told), **how).pid
        except Exception as error:  # nothing of ours is worth a job
            self._options.say(f"the job is not watched: {error}")
            ours.close()
        theirs.close()
        return ours

    def _prepared(self) -> dict[str, str]:
        """Return the environment of the command, with what the watcher adds to it."""
        deadline = time.monotonic() + _PREPARATION
        while not self._link.closed and time.monotonic() < deadline:
            message = self._link.receive(deadline - time.monotonic())
            if "environment" in message:
                return {**os.environ, **message["environment"]}
        if not self._link.closed:
            self._options.say(
                f"the job is not watched: its folder could not be prepared within {_PREPARATION:g} s"
            )
            self._link.close()
        return dict(os.environ)

    def _wait(self, timeout: float | None) -> None:
        """Wait until something happens, and take note of it."""
        sources: list[Any] = [self._signals] if self._link.closed else [self._signals, self._link]
        ready = select.select(sources, [], [], timeout)[0]
        if self._link in ready:
            self._hear()
        if self._signals in ready:
            with suppress(BlockingIOError):
                for number in self._signals.recv(64):
                    self._receive(number)

    def _hear(self) -> None:
        """Take what the watcher says."""
        message = self._link.receive()
        if "received" in message:
            self._seen[message["received"]] = time.monotonic()
        if "go" in message:
            self._release()
        if "send" in message:
            self._send(message["send"])
        if "looking" in message and self._held_until:
            self._held_until = time.monotonic() + _HOLD
        if "hold" in message:
            self._may_hold = message["hold"]
        if "wait" in message:
            self._wait_until = time.monotonic() + message["wait"]
        if "done" in message:
            self._settled = True

    def _receive(self, number: int) -> None:
        if number == signal.SIGCHLD:
            self._reap()
            return
        reached, now = self._reached_all(number), time.monotonic()
        if number in PASSED_ON:
            if not reached:
                self._send(number)
        elif not reached or now - self._told.get(number, -9.0) >= 2 * _WITNESS:
            self._told[number] = now
            self._tell(number, reached)

    def _tell(self, number: int, reached: bool) -> None:
        """Tell the watcher of a signal, and hold it meanwhile unless it has `reached` the command."""
        again = self._ending and number in ENDING
        self._ending |= number in ENDING
        self._settled |= again and self._ended is not None
        self._link.send(signal=number, reached=reached, again=again)
        if not reached:
            self._held.append(number)
            at_once = again or not self._may_hold
            self._held_until = 0.0 if at_once else self._held_until or time.monotonic() + _ANSWER

    def _reached_all(self, number: int) -> bool:
        """Whether the watcher received the signal as well: then all of the process group, or of the job, has it.

        `timeout` sends it twice, to us and to the group: what comes shortly after such a signal is the same one, and is told once.
        """
        deadline = time.monotonic() + _WITNESS
        while True:
            if time.monotonic() - self._seen.get(number, -9.0) < 2 * _WITNESS:
                return True
            left = deadline - time.monotonic()
            if left <= 0 or self._link.closed or not select.select([self._link], [], [], left)[0]:
                return False
            self._hear()

    def _release(self) -> None:
        """Pass on the signals that were held."""
        held, self._held, self._held_until = self._held, [], 0.0
        for number in held:
            self._send(number)

    def _send(self, number: int) -> None:
        """Send a signal to the command; it has not been waited for, so its process id is still its own."""
        if self._ended is None and self._pid:
            with suppress(OSError):
                os.kill(self._pid, number)

    def _reap(self) -> None:
        """Take note of the command's end, and leave no zombie: as PID 1 of a container we get everybody's orphans."""
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._watcher:
                    self._watcher = 0
                if pid == self._pid:
                    self._ended = os.waitstatus_to_exitcode(status)

    def _wait_for_report(self) -> None:
        """Wait for as long as the watcher needs: it says for how long, again and again. A second signal ends the wait."""
        self._link.send(ended=self._ended)
        self._wait_until = max(self._wait_until, time.monotonic() + _AFTER_END)
        while not (self._settled or self._link.closed):
            left = self._wait_until - time.monotonic()
            if left <= 0:
                self._options.say("the watcher does not answer: no report")
                break
            self._wait(left)
        self._link.close()
        deadline = time.monotonic() + _LAST
        while self._watcher and time.monotonic() < deadline:
            self._wait(max(0.0, deadline - time.monotonic()))
