"""The command that `hangscope run` starts: as a shell would start it, with our streams, terminal and process group."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

NOT_FOUND, NOT_EXECUTABLE = 127, 126
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_SHELL = "/bin/sh"


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
        raise CannotStart(program, "cannot be executed", NOT_EXECUTABLE)
    raise CannotStart(program, "command not found", NOT_FOUND)


def start(path: str, words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Start a program and return its process id. Raises CannotStart.

    Where no process can be made, this process becomes the command: it runs unwatched, but it runs.
    """
    try:
        return _spawn(path, words, environment)
    except OSError as error:
        if error.errno == errno.ENOEXEC:  # a script without `#!`
            return _spawn(_SHELL, [_SHELL, path, *words[1:]], environment)
        if error.errno in (errno.EAGAIN, errno.ENOMEM):
            for number in _IGNORED_BY_PYTHON:
                signal.signal(number, signal.SIG_DFL)
            os.execve(path, list(words), dict(environment))
        code = NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE
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
