"""`hangscope trace`: all ranks' collectives as a trace for Perfetto."""

from __future__ import annotations

from typing import Any

import click

from hangscope.commands.exports.reading import read, reading_options, write_binary
from hangscope.commands.options import max_bytes_option
from hangscope.commands.terminal import tell
from hangscope.model.rankset import counted


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

    report = read(paths, quiet, {**options, "completions": True})
    analysis = report.analysis
    assert analysis is not None
    events = 0

    def write(out: Any) -> None:
        nonlocal events
        events = write_trace(analysis, out, all_ranks=all_ranks)

    write_binary(output, write, is_trace, "trace of hangscope", force=force)
    if not quiet:
        tell(f"Wrote {output}: {counted(events, 'event')}")
