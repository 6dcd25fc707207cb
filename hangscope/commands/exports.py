"""`hangscope table`, `trace`, `brief` and `mcp`: an analysis as something other than its report."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from hangscope.commands.options import force_option, given, shared
from hangscope.commands.terminal import ProgressBar, end_in_order, show, tell, writable
from hangscope.model.rankset import counted

if TYPE_CHECKING:
    from hangscope.report.report import Report


#: The paths of a command that writes an analysis, and the options of reading them.
READING = ("paths", "world_size", "attempt", "jobs", "max_unpacked", "store", "quiet")


def read(paths: tuple[str, ...], quiet: bool, options: dict[str, Any]) -> Report:
    """Analyze the paths, with a progress bar on a terminal."""
    from hangscope import api, isolated

    end_in_order()
    isolated.use_one_thread()
    with ProgressBar(quiet=quiet) as bar:
        return api.analyze(list(paths), progress=bar.advance, **given(options))


def write_rows(output: str, write: Callable[[BinaryIO], int], kind: str, row: str, **how: Any) -> int:
    """Let `write` write a file of hangscope, report how many rows it has, and return that number. Raises UsageError."""
    from hangscope.export.output import write_file

    numbers: list[int] = []
    of_kind = (how["is_ours"], f"{kind} of hangscope")
    with writable(output):
        write_file(Path(output), lambda out: numbers.append(write(out)), *of_kind, force=how["force"])
    if not how["quiet"]:
        tell(f"Wrote {output}: {counted(numbers[0], row)}")
    return numbers[0]


@click.command(
    short_help="Write every rank's collectives as a table.",
    epilog="""\b
Examples:
  hangscope table ./dumps --around-divergence
  hangscope table ./dumps -o calls.parquet
  hangscope table ./dumps -o calls.csv --rank 3,8-15 --group tp0 --seq 40:60
""",
)
@shared(*READING, "max_bytes")
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
@force_option("a hangscope table")
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
    from hangscope.export.table import Selection, format_of, is_table, write_table

    form = "text" if output is None else format_of(output)
    selection = Selection.of(rank, group, seq, pending=pending, around_divergence=around_divergence)
    analysis = read(paths, quiet, options).analysis
    assert analysis is not None
    write = partial(write_table, analysis, selection, form)
    if output is None:
        rows = write(sys.stdout.buffer)
    else:
        rows = write_rows(output, write, "table", "row", is_ours=is_table, force=force, quiet=quiet)
    if not rows and not quiet:
        tell("hangscope: no rows: the files contain no collectives, or none that match the selection")


@click.command(
    short_help="Write every rank's collectives as a trace for Perfetto.",
    epilog="""\b
Examples:
  hangscope trace ./dumps -o trace.json            open it at ui.perfetto.dev or chrome://tracing
  hangscope trace ./dumps -o trace.json --all-ranks
""",
)
@shared(*READING, "max_bytes")
@click.option("-o", "--output", metavar="FILE", required=True, help="Path of the trace, e.g. trace.json.")
@click.option("--all-ranks", is_flag=True, help="One process per rank, even above 64 ranks.")
@force_option("a hangscope trace")
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
    write_rows(output, write, "trace", "event", is_ours=is_trace, force=force, quiet=quiet)


@click.command(
    short_help="Print what is needed to check the verdict.",
    epilog="""\b
Examples:
  hangscope brief ./dumps ./logs > brief.md
  hangscope brief ./dumps --max-bytes 6000
""",
)
@shared(*READING)
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
    if trouble := show(read(paths, quiet, options).to_brief(limit)):
        tell(f"hangscope: {trouble}")


@click.command(
    short_help="Serve read-only tools to a coding agent (MCP).",
    epilog="""\b
Example, in an agent's configuration:
  {"mcpServers": {"hangscope": {"command": "hangscope", "args": ["mcp", "/shared/jobs"]}}}
""",
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
def mcp(paths: tuple[str, ...]) -> None:
    """Serve analyze, brief, table, explain and diff over standard input and output.

    The tools only read files below PATH. Needs pip install 'hangscope[mcp]'.
    """
    from hangscope.agents.mcp import serve

    serve(paths)


@click.command(short_help="Reduce one node's dumps and logs to one small file.")
@shared("paths")
@click.option("-o", "--output", metavar="FILE", required=True, help="Path of the pack, e.g. node17.hangpack.")
@shared("jobs", "max_bytes", "max_unpacked")
@force_option("a pack")
@shared("quiet")
def pack(paths: tuple[str, ...], output: str, force: bool, quiet: bool, **options: Any) -> None:
    """Reduce dumps and logs to one small file that can be analyzed in their place.

    Use it if the dumps are on each node's local disk: pack on every node, copy the packs to one folder, and analyze that.
    """
    from hangscope.export import pack as packing
    from hangscope.ingest.files.archives import is_named_so

    end_in_order()
    with writable(output), ProgressBar(quiet=quiet) as bar:
        packed = packing.pack(paths, output, force=force, progress=bar.advance, **given(options))
    if quiet:
        return
    for note in packed.notes:
        tell(f"hangscope: {note}")
    sizes = f"{packed.bytes_before / 1e6:,.1f} MB in {packed.bytes_after / 1e6:,.1f} MB"
    click.echo(f"Wrote {output}: {packed.files:,} files, {sizes}", err=True)
    if is_named_so(output):
        tell(f"hangscope: {output} is a pack and no archive, whatever its name: only hangscope reads it")
