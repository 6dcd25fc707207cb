"""`hangscope brief`: what somebody needs to check the verdict, in one reading."""

from __future__ import annotations

from typing import Any

import click

from hangscope.commands.exports.reading import print_text, read, reading_options


@click.command(
    short_help="Print what is needed to check the verdict.",
    epilog="""\b
Examples:
  hangscope brief ./dumps ./logs > brief.md
  hangscope brief ./dumps --max-bytes 6000
""",
)
@reading_options
@click.option(
    "--max-bytes",
    "limit",
    type=click.IntRange(1_000),
    default=16_000,
    show_default=True,
    metavar="N",
    help="Print at most N bytes; every section keeps its first lines.",
)
def brief(paths: tuple[str, ...], limit: int, quiet: bool, **options: Any) -> None:
    """Print what a person or a coding agent needs to check the verdict.

    The most decisive facts come first, and the evidence names its source files.
    """
    print_text(read(paths, quiet, options).to_brief(limit))
