"""`hangscope hook`: the tested file that plugs hangscope in somewhere."""

from __future__ import annotations

import click

from hangscope import hooks


@click.command(short_help="Print a hook for a launcher or framework.")
@click.argument("kind", type=click.Choice(list(hooks.HOOKS)), required=False, metavar="[KIND]")
def hook(kind: str | None) -> None:
    """Print a hook for a launcher or framework (docs/hooks.md). Without KIND, list the hooks."""
    if kind is None:
        for name, (_, what) in hooks.HOOKS.items():
            click.echo(f"{name:11} {what}")
        return
    click.echo(hooks.text(kind), nl=False)
