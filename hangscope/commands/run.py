"""`hangscope run`: a command under watch."""

from __future__ import annotations

import sys

import click

from hangscope.commands.options import shared
from hangscope.errors import UsageError

_START = 900.0  # s


@click.command(
    short_help="Run a command under watch; report if it hangs.",
    context_settings={"allow_interspersed_args": False},
)
@click.option("--dir", "directory", metavar="DIR", help="Folder for all files (default: hangscope-<job>).")
@click.option(
    "--hang-timeout",
    type=click.FloatRange(1.0),
    metavar="S",
    help="Capture the job when it makes no progress for S seconds (default: off).",
)
@click.option(
    "--init-timeout",
    type=click.FloatRange(1.0),
    metavar="S",
    help=f"Capture the job when no rank has made progress S seconds after the start (default: {_START:g}).",
)
@click.option(
    "--on-hang",
    type=click.Choice(["report", "kill", "continue"]),
    default="report",
    show_default=True,
    help="After a capture: write a report and leave the job alone, terminate it, or keep watching.",
)
@click.option(
    "--summary",
    metavar="FILE",
    help="Also write the first 4 KB of the Markdown report to FILE, e.g. a termination message.",
)
@shared("store")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing on stderr except the command's own output.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    directory: str | None,
    hang_timeout: float | None,
    init_timeout: float | None,
    on_hang: str,
    summary: str | None,
    store: str | None,
    quiet: bool,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND, and write a report when it fails, is terminated or stalls.

    The command keeps the terminal, stdin, stdout and stderr, and receives every signal. The exit code is the command's.
    If hangscope fails, the command keeps running. The ranks get a small agent and the recorder's environment variables,
    except those that you have set. On several nodes, use the same --dir on a shared disk.
    """
    if on_hang != "report" and hang_timeout is None and init_timeout is None:
        what = f"--on-hang {on_hang} does nothing without --hang-timeout or --init-timeout"
        raise UsageError(what, "--hang-timeout 900")
    from hangscope.live.watch.link import Options
    from hangscope.live.watch.supervisor import CannotStart, Supervisor, exit_like

    options = Options(directory, hang_timeout, init_timeout or _START, on_hang, summary, quiet, store)
    try:
        code = Supervisor(command, options).run()
    except CannotStart as error:
        click.echo(f"hangscope: {error}", err=True)
        sys.exit(error.code)
    sys.exit(exit_like(code))
