"""The command that `hangscope run` starts: in a session of its own, so that a Ctrl-C reaches us first."""

from __future__ import annotations

import os
import resource
import select
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

from hangscope.errors import UsageError

#: Signals that are passed on at once, those that may announce an end (Slurm's `--signal`), and those that end a job.
PASSED_ON = (signal.SIGWINCH, signal.SIGCONT)
ANNOUNCING = (signal.SIGUSR1, signal.SIGUSR2)
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def check(program: str) -> None:
    """Raise UsageError where a program is not there or may not be run."""
    if shutil.which(program) is None:
        reason = "may not be run" if os.path.exists(program) else "was not found"
        raise UsageError(f"{program} cannot be started: it {reason}", "the command goes behind `--`")


class Command:
    """One running command; `ended` is its return code as subprocess has it."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        try:
            self._process = subprocess.Popen(
                list(words),
                env=dict(environment),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise UsageError(
                f"{words[0]} cannot be started: {error.strerror or error}", "the command goes behind `--`"
            ) from None
        self.pid = self._process.pid
        self._end = select.poll()
        self._is_told = False
        with suppress(AttributeError, OSError):  # Linux before 5.3 has none, nor has every sandbox
            self._end.register(os.pidfd_open(self.pid), select.POLLIN)
            self._is_told = True

    @property
    def streams(self) -> tuple[IO[bytes], IO[bytes]]:
        """Return stdout and stderr."""
        assert self._process.stdout is not None and self._process.stderr is not None
        return self._process.stdout, self._process.stderr

    @property
    def ended(self) -> int | None:
        """Return the return code, None while it runs."""
        return self._process.poll()

    def wait(self, timeout: float) -> int | None:
        """Wait up to `timeout` seconds for the end, and return the return code or None."""
        if self._is_told:  # subprocess itself would look twenty times a second
            self._end.poll(1000 * timeout)
            return self._process.poll()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)
        return self._process.returncode

    def send(self, number: int, *, all_of_it: bool = False) -> None:
        """Send a signal to the command, or to all of its group as a terminal's Ctrl-C does."""
        with suppress(OSError):
            if all_of_it:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)


def exit_like(code: int) -> int:
    """Return the exit code of a command that has ended; where a signal ended it, end this process by the same."""
    if code >= 0:
        return code
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it would be a dump of the wrong process
    with suppress(OSError, ValueError):
        signal.signal(-code, signal.SIG_DFL)  # SIGKILL has no other
    os.kill(os.getpid(), -code)
    return 128 - code
