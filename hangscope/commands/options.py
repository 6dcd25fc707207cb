"""The arguments and options that several commands take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])
DEFAULT_REPORT = "hangscope-report.html"

paths_argument = click.argument("paths", metavar="PATH...", nargs=-1, required=True)
report_option = click.option(
    "-o",
    "--output",
    metavar="REPORT.html",
    default=DEFAULT_REPORT,
    show_default=True,
    help="Path of the HTML report.",
)
world_size_option = click.option(
    "--world-size",
    type=click.IntRange(1),
    metavar="N",
    help="Number of ranks of the job. Overrides what the inputs say.",
)
attempt_option = click.option(
    "--attempt", metavar="N|all", help="Which restart attempt to analyze (default: the last)."
)
jobs_option = click.option(
    "--jobs",
    type=click.IntRange(1),
    metavar="N",
    help="Number of reader processes (default: one per processor).",
)
max_bytes_option = click.option(
    "--max-bytes", type=click.IntRange(1), metavar="N", help="Largest dump to load (default: 2 GiB)."
)
max_unpacked_option = click.option(
    "--max-unpacked",
    type=click.IntRange(1),
    metavar="N",
    help="How many bytes archives may unpack to (default: 64 GiB in total; each archive 1 GiB or 250 times its size).",
)
store_option = click.option(
    "--store",
    metavar="PATH|URL",
    help="Store of incidents: a SQLite file or a PostgreSQL URL (default: HANGSCOPE_STORE).",
)
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr.")


def force_option(kind: str = "a hangscope report") -> Callable[[_F], _F]:
    """Return the option to overwrite a file that is not of a kind."""
    return click.option("--force", is_flag=True, help=f"Overwrite a file that is not {kind}.")


def given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that have a value; the library has the defaults of the others."""
    return {name: value for name, value in options.items() if value is not None}
