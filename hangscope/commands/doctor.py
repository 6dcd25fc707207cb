"""`hangscope doctor`: what is missing from an incident, and how to collect it next time."""

from __future__ import annotations

import textwrap

import click

from hangscope.commands.options import paths_argument, store_option
from hangscope.live.doctor import examine


@click.command(short_help="Check what data is missing and how to collect it.")
@paths_argument
@store_option
def doctor(paths: tuple[str, ...], store: str | None) -> None:
    """Check what data is missing from PATH and how to collect it next time."""
    from hangscope import analyze

    for finding in examine(analyze(list(paths), store=store).document):
        click.echo(f"{'ok     ' if finding.enough else 'MISSING'} {finding.subject}: {finding.there}")
        if finding.advice:
            first, further = "          next time: ", "            "
            click.echo(textwrap.fill(finding.advice, 100, initial_indent=first, subsequent_indent=further))
