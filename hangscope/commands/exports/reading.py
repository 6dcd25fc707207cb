"""What the commands have in common that analyze paths and write something other than the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import click

from hangscope.commands.endings import end_in_order
from hangscope.commands.options import (
    given,
    jobs_option,
    max_unpacked_option,
    paths_argument,
    quiet_option,
    store_option,
)
from hangscope.commands.terminal import ProgressBar, show, tell
from hangscope.errors import UsageError

if TYPE_CHECKING:
    from hangscope.report.report import Report

_F = TypeVar("_F", bound=Callable[..., Any])
_OPTIONS = (
    paths_argument,
    click.option(
        "--world-size",
        type=click.IntRange(1),
        metavar="N",
        help="Number of ranks of the job. Overrides what the inputs say.",
    ),
    click.option("--attempt", metavar="N|all", help="Which restart attempt to analyze (default: the last)."),
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
    bar = ProgressBar(quiet=quiet)
    try:
        return api.analyze(list(paths), progress=bar.advance, **given(options))
    finally:
        bar.close()


def write_binary(
    output: str,
    write: Callable[[BinaryIO], object],
    is_ours: Callable[[Path], bool],
    kind: str,
    *,
    force: bool,
) -> None:
    """Write a file as all of hangscope are written, with one sentence where that cannot be. Raises UsageError."""
    from hangscope.export.output import write_file

    try:
        write_file(Path(output), write, is_ours, kind, force=force)
    except OSError as error:
        raise UsageError(
            f"{output} cannot be written: {error.strerror or error}", "choose another place with -o"
        ) from None


def print_text(text: str) -> None:
    """Print on stdout; say on stderr why that was not possible."""
    if trouble := show(text):
        tell(f"hangscope: {trouble}")
