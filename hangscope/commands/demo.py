"""`hangscope demo`: a tiny real job, frozen on purpose and diagnosed."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hangscope.commands.options import force_option, shared
from hangscope.commands.terminal import EXIT_ERROR, wants_color, written
from hangscope.errors import UsageError


@click.command(short_help="Hang a tiny real job on the CPU and diagnose it.")
@click.argument("scenario", required=False, default="rank_conditional")
@shared("report")
@click.option("--keep", metavar="DIR", help="Keep the files of the job in DIR.")
@click.option("--list", "list_only", is_flag=True, help="List the scenarios.")
@force_option()
def demo(scenario: str, output: str, keep: str | None, list_only: bool, force: bool) -> None:
    """Hang a tiny real job on this machine's CPU and diagnose it (needs torch)."""
    import tempfile

    from hangscope import api
    from hangscope import demo as demos

    if list_only:
        for item in demos.scenarios().values():
            click.echo(f"{item.name:20} {item.description}")
        return
    if scenario not in demos.scenarios():
        hint = f"choose one of {', '.join(demos.scenarios())}"
        raise UsageError(f"no scenario is called {scenario!r}", hint)
    with tempfile.TemporaryDirectory(prefix="hangscope-demo-") as folder:
        target = Path(keep) if keep else Path(folder) / "incident"
        what = f"a real {scenario} job with gloo on the CPU (ten seconds, more on a busy machine)"
        click.echo(f"Freezing {what} ...", err=True)
        frozen = demos.freeze(scenario, target)
        report = api.analyze(frozen / "dumps", store="")
        click.echo(report.to_text(color=wants_color("auto")), nl=False, color=True)
        truth = demos.scenarios()[scenario]
        ranks = ", ".join(map(str, truth.culprits))
        click.echo(f"What really happened: rank {ranks}, {truth.cause}.", err=True)
        if not written(Path(output), report.to_html, force, False):
            sys.exit(EXIT_ERROR)
