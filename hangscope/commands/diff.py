"""`hangscope diff`: whether two reports describe the same bug."""

from __future__ import annotations

import os

import click

from hangscope.commands.options import shared
from hangscope.commands.terminal import ProgressBar, fail
from hangscope.errors import HangscopeError


@click.command(short_help="Compare two incidents: are they the same bug?")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@shared("quiet")
@click.pass_context
def diff(context: click.Context, first: str, second: str, quiet: bool) -> None:
    """Report whether two incidents have the same bug, and how they differ.

    A and B are reports of hangscope (JSON or HTML), or folders and archives, which are analyzed first. The exit code is
    0 for the same bug, 1 for a different one, 2 for wrong usage, 3 without usable input, 4 for an internal error.
    """
    from hangscope.diff import compare, load

    try:
        with ProgressBar(quiet=quiet) as bar:
            one, other = (load(path, progress=bar.advance) for path in (first, second))
            result = compare(one, other)
    except HangscopeError:
        raise
    except Exception as error:
        if os.environ.get("HANGSCOPE_DEBUG"):
            raise
        fail(f"internal error: {type(error).__name__}: {error}", "set HANGSCOPE_DEBUG=1 for the traceback", 4)
    click.echo(result.text(first, second), nl=False)
    context.exit(0 if result.same else 1)
