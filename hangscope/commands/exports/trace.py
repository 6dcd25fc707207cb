"""`hangscope trace`: all ranks' collectives as a trace for Perfetto."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from hangscope.commands.exports.reading import read, reading_options, write_rows
from hangscope.commands.options import max_bytes_option


@click.command(
    short_help="Write every rank's collectives as a trace for Perfetto.",
    epilog="""\b
Examples:
  hangscope trace ./dumps -o trace.json            open it at ui.perfetto.dev or chrome://tracing
  hangscope trace ./dumps -o trace.json --all-ranks
""",
)
@reading_options
@max_bytes_option
@click.option("-o", "--output", metavar="FILE", required=True, help="Path of the trace, e.g. trace.json.")
@click.option("--all-ranks", is_flag=True, help="One process per rank, even above 64 ranks.")
@click.option("--force", is_flag=True, help="Overwrite a file that is not a hangscope trace.")
def trace(
    paths: tuple[str, ...], output: str, all_ranks: bool, force: bool, quiet: bool, **options: Any
) -> None:
    """Write a trace with a process per rank, a track per group, a slice per collective, and arrows to the root cause.

    Above 64 ranks, ranks that behave alike share a process.
    """
    from hangscope.export.trace import is_trace, write_trace

    analysis = read(paths, quiet, {**options, "completions": True}).analysis
    assert analysis is not None
    write = partial(write_trace, analysis, all_ranks=all_ranks)
    write_rows(output, write, is_trace, "trace of hangscope", "event", force=force, quiet=quiet)
