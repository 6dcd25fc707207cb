"""How a command ends: its exit codes, one message, a report as a file, and in order when it is asked to."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from hangscope.commands.terminal import tell
from hangscope.errors import UsageError
from hangscope.export.output import write_report

EXIT_ERROR, EXIT_HANG, EXIT_INCONCLUSIVE = 1, 10, 11  # others: `HangscopeError.exit_code`


def end_in_order() -> None:
    """Let SIGTERM and SIGHUP end the command as Ctrl-C does, so that temporary files and readers go with it."""

    def end(number: int, frame: object) -> None:
        sys.exit(128 + number)

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            with suppress(ValueError):  # not in the main thread
                signal.signal(number, end)


def fail(message: str, hint: str, code: int) -> NoReturn:
    """Say what went wrong and what to do, and exit."""
    tell(f"hangscope: {message}" + (f"\n  hint: {hint}" if hint else ""))
    sys.exit(code)


@contextmanager
def writable(path: str | Path, option: str = "-o") -> Iterator[None]:
    """Turn an OSError from writing to `path` into a UsageError that names the option for another place."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror or error}", f"choose another place with {option}"
        ) from None


def written(path: Path, render: Callable[[], str], force: bool, quiet: bool) -> bool:
    """Write one report file and return whether that worked; a failure is reported and changes no verdict that was printed."""
    try:
        with writable(path):
            write_report(path, render(), force=force)
    except UsageError as error:
        tell(f"hangscope: {error.message}\n  hint: {error.hint}")
        return False
    if not quiet:
        tell(f"Wrote {path}")
    return True
