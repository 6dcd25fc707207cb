"""`hangscope table`: the collective-sequence table as a file or as text."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import click

from hangscope.commands.exports.reading import read, reading_options, write_rows
from hangscope.commands.options import max_bytes_option
from hangscope.commands.terminal import tell


@click.command(
    short_help="Write every rank's collectives as a table.",
    epilog="""\b
Examples:
  hangscope table ./dumps --around-divergence
  hangscope table ./dumps -o calls.parquet
  hangscope table ./dumps -o calls.csv --rank 3,8-15 --group tp0 --seq 40:60
""",
)
@reading_options
@max_bytes_option
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write a .csv, .jsonl, .parquet or .txt file (default: text on stdout).",
)
@click.option("--rank", metavar="3,8-15", help="Only these global ranks.")
@click.option(
    "--group",
    multiple=True,
    metavar="NAME",
    help="Only this group, by name, description or role. Repeatable.",
)
@click.option("--seq", metavar="40:60", help="Only these sequence numbers, both ends included.")
@click.option("--pending", is_flag=True, help="Only collectives that are not known to be complete.")
@click.option(
    "--around-divergence",
    is_flag=True,
    help="Only the 8 collectives before and after the first pending one of each stalled group.",
)
@click.option("--force", is_flag=True, help="Overwrite a file that is not a hangscope table.")
def table(
    paths: tuple[str, ...],
    output: str | None,
    rank: str | None,
    group: tuple[str, ...],
    seq: str | None,
    pending: bool,
    around_divergence: bool,
    force: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Write one row per rank, group and collective (docs/table.md describes the columns).

    The file's extension chooses the format; Parquet needs pip install 'hangscope[parquet]'.
    """
    from hangscope.export.selection import Selection, parse_ranks, parse_seqs
    from hangscope.export.table import format_of, is_table, write_table

    form = "text" if output is None else format_of(output)
    selection = Selection(
        ranks=parse_ranks(rank) if rank is not None else (),
        groups=group,
        seqs=parse_seqs(seq) if seq is not None else (None, None),
        pending=pending,
        around_divergence=around_divergence,
    )
    write = partial(write_table, read(paths, quiet, options).analysis, selection, form)
    if output is None:
        rows = write(sys.stdout.buffer)
    else:
        rows = write_rows(output, write, is_table, "table of hangscope", "row", force=force, quiet=quiet)
    if not rows and not quiet:
        tell("hangscope: no rows: the files contain no collectives, or none that match the selection")
