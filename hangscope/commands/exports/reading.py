"""What the commands have in common that analyze paths and write something other than the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from hangscope.commands.endings import end_in_order, writable
from hangscope.commands.options import (
    attempt_option,
    given,
    jobs_option,
    max_unpacked_option,
    paths_argument,
    quiet_option,
    store_option,
    world_size_option,
)
from hangscope.commands.terminal import ProgressBar, show, tell
from hangscope.model.rankset import counted

if TYPE_CHECKING:
    from hangscope.report.report import Report

_F = TypeVar("_F", bound=Callable[..., Any])
_OPTIONS = (
    paths_argument,
    world_size_option,
    attempt_option,
    jobs_option,
    max_unpacked_option,
    store_option,
    quiet_option,
)


def reading_options(command: _F) -> _F:
    """Give a command the paths and the options of reading them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def read(paths: tuple[str, ...], quiet: bool, options: dict[str, Any]) -> Report:
    """Analyze the paths, with a progress bar on a terminal."""
    from hangscope import api, isolated

    end_in_order()
    isolated.use_one_thread()
    with ProgressBar(quiet=quiet) as bar:
        return api.analyze(list(paths), progress=bar.advance, **given(options))


def write_rows(
    output: str,
    write: Callable[[BinaryIO], int],
    is_ours: Callable[[Path], bool],
    kind: str,
    row: str,
    *,
    force: bool,
    quiet: bool,
) -> int:
    """Let `write` write a file of a `kind`, report how many rows it has, and return that number. Raises UsageError."""
    from hangscope.export.output import write_file

    numbers: list[int] = []
    with writable(output):
        write_file(Path(output), lambda out: numbers.append(write(out)), is_ours, kind, force=force)
    if not quiet:
        tell(f"Wrote {output}: {counted(numbers[0], row)}")
    return numbers[0]


def print_text(text: str) -> None:
    """Print on stdout; say on stderr why that was not possible."""
    if trouble := show(text):
        tell(f"hangscope: {trouble}")
