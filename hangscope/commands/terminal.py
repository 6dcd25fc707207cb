"""How a command prints and ends: the report, messages, colour, a progress bar, exit codes. Writing to stdout and stderr never ends the program, even if they are closed, full, or a pipe without a reader."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import click

from hangscope.errors import UsageError
from hangscope.export.output import write_report
from hangscope.report.masking.secrets import presentable

EXIT_ERROR = 1  # others: `HangscopeError.exit_code`
EXIT_CODES = {"hang": 10, "inconclusive": 11, "no_hang": 0}  # of what was found, if they are asked for


def wants_color(choice: str) -> bool:
    """Return whether stdout gets colour, by `always`, `never` or `auto`: NO_COLOR, FORCE_COLOR, then whether it is a terminal."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (sys.stdout is not None and sys.stdout.isatty())


def show(text: str) -> str:
    """Print a report on stdout; return in words why that was not possible, or nothing.

    A reader that has gone, or a closed stdout, wants no more of it, and is no fault.
    """
    stream = sys.stdout
    try:
        if stream is not None:
            if isinstance(stream, io.TextIOWrapper):
                with suppress(ValueError):
                    stream.reconfigure(errors="replace")
            click.echo(text, nl=False, color=True)
            stream.flush()
    except (BrokenPipeError, ValueError):
        _silence(1)
    except OSError as error:
        _silence(1)
        if error.errno != errno.EBADF:
            return f"stdout cannot be written: {error.strerror or error}"
    return ""


def tell(text: str) -> None:
    """Print a message on stderr, without what could act on a terminal; where it cannot be, it is lost."""
    try:
        click.echo(presentable(text), err=True)
        if sys.stderr is not None:
            sys.stderr.flush()
    except (OSError, ValueError):
        _silence(2)


def _silence(number: int) -> None:
    """Turn stdout (1) or stderr (2) into nothing, so that no flush at the end fails again."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)


class ProgressBar:
    """A bar on stderr, where that is a terminal and once the work has lasted longer than a second."""

    AFTER = 1.0  # seconds

    def __init__(self, *, quiet: bool) -> None:
        self.enabled = not quiet and sys.stderr is not None and sys.stderr.isatty()
        self.start = time.monotonic()
        self.bar: Any = None

    def advance(self, files: int, of_files: int, size: int, of_size: int) -> None:
        """Draw how many files and bytes are done, of how many."""
        if not self.enabled or time.monotonic() - self.start < self.AFTER:
            return
        bar = self.bar = self.bar or click.progressbar(
            length=max(1, of_size), item_show_func=str, file=sys.stderr
        )
        bar.update(size - bar.pos, f"{files:,}/{of_files:,} files")

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.render_finish()


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
    _say(message, hint)
    sys.exit(code)


def _say(message: str, hint: str) -> None:
    tell(f"hangscope: {message}" + (f"\n  hint: {hint}" if hint else ""))


def fail_inside(error: Exception, code: int) -> NoReturn:
    """Say in one line that there is a bug, and exit; on request raise it again. Call it where `error` is handled."""
    if os.environ.get("HANGSCOPE_DEBUG"):
        raise error
    hint = "set HANGSCOPE_DEBUG=1 for the traceback, and please report it"
    fail(f"internal error: {type(error).__name__}: {error}", hint, code)


@contextmanager
def writable(path: str | Path, option: str = "-o") -> Iterator[None]:
    """Turn an OSError from writing to `path` into a UsageError that names the option for another place."""
    try:
        yield
    except OSError as error:
        hint = f"choose another place with {option}"
        raise UsageError(f"{path} cannot be written: {error.strerror or error}", hint) from None


def written(path: Path, render: Callable[[], str], force: bool, quiet: bool) -> bool:
    """Write one report file and return whether that worked; a failure is reported and changes no verdict that was printed."""
    try:
        with writable(path):
            write_report(path, render(), force=force)
    except UsageError as error:
        _say(error.message, error.hint)
        return False
    if not quiet:
        tell(f"Wrote {path}")
    return True
