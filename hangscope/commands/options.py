"""The arguments and options that several commands take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])


def _number(name: str, help_text: str) -> Callable[[Any], Any]:
    return click.option(name, type=click.IntRange(1), metavar="N", help=help_text)


_SHARED: dict[str, Callable[[Any], Any]] = {
    "paths": click.argument("paths", metavar="PATH...", nargs=-1, required=True),
    "report": click.option(
        "-o",
        "--output",
        metavar="REPORT.html",
        default="hangscope-report.html",
        show_default=True,
        help="Path of the HTML report.",
    ),
    "world_size": _number("--world-size", "Number of ranks of the job. Overrides what the inputs say."),
    "attempt": click.option(
        "--attempt",
        metavar="N|all",
        help="Which restart attempt to analyze (default: the last that came to a step).",
    ),
    "jobs": _number("--jobs", "Number of reader processes (default: one per processor)."),
    "max_bytes": _number("--max-bytes", "Largest dump to load (default: 2 GiB)."),
    "max_unpacked": _number(
        "--max-unpacked",
        "How many bytes archives may unpack to (default: 64 GiB in total; each archive 1 GiB or 250 times its size).",
    ),
    "store": click.option(
        "--store",
        metavar="PATH|URL",
        help="Store of incidents: a SQLite file or a PostgreSQL URL (default: HANGSCOPE_STORE).",
    ),
    "quiet": click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr."),
}


def shared(*names: str) -> Callable[[_F], _F]:
    """Return what gives a command some of the shared arguments and options, in this order."""

    def give(command: _F) -> _F:
        for name in reversed(names):
            command = _SHARED[name](command)
        return command

    return give


def force_option(kind: str = "a hangscope report") -> Callable[[_F], _F]:
    """Return the option to overwrite a file that is not of a kind."""
    return click.option("--force", is_flag=True, help=f"Overwrite a file that is not {kind}.")


def given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that have a value; the library has the defaults of the others."""
    return {name: value for name, value in options.items() if value is not None}
