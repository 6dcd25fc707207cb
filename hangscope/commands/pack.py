"""`hangscope pack`: the dumps and logs of one node -> one small file."""

from __future__ import annotations

from typing import Any

import click

from hangscope.commands.endings import end_in_order, writable
from hangscope.commands.options import (
    given,
    jobs_option,
    max_bytes_option,
    max_unpacked_option,
    paths_argument,
    quiet_option,
)
from hangscope.commands.terminal import ProgressBar, tell


@click.command(short_help="Reduce one node's dumps and logs to one small file.")
@paths_argument
@click.option("-o", "--output", metavar="FILE", required=True, help="Path of the pack, e.g. node17.hangpack.")
@jobs_option
@max_bytes_option
@max_unpacked_option
@click.option("--force", is_flag=True, help="Overwrite a file that is not a pack.")
@quiet_option
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
