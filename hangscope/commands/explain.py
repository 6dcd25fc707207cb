"""`hangscope explain`: what a cause means."""

from __future__ import annotations

import click

from hangscope.errors import UsageError


@click.command(short_help="Explain a cause.")
@click.argument("cause", required=False)
def explain(cause: str | None) -> None:
    """Explain CAUSE: what a verdict establishes, what it does not, and how to fix it.

    Without CAUSE, list all causes.
    """
    from hangscope.knowledge.catalog import CATALOG

    if cause is None:
        for entry in CATALOG.values():
            click.echo(f"{entry.cause:30} {entry.title}")
        return
    found = CATALOG.get(cause)
    if found is None:
        import difflib

        near = difflib.get_close_matches(cause, CATALOG, n=1, cutoff=0.4)
        raise UsageError(
            f"there are no notes on {cause!r}",
            f"did you mean {near[0]}?" if near else "`hangscope explain` lists all causes",
        )
    click.echo(found.explained())
