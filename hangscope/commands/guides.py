"""`hangscope env`, `hook`, `explain`, `doctor` and `demo`: what to set, to install, to know, to collect and to try."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

import click

from hangscope import hooks
from hangscope.commands.options import force_option, shared
from hangscope.commands.terminal import EXIT_ERROR, wants_color, written
from hangscope.errors import UsageError
from hangscope.live.doctor import examine
from hangscope.live.settings import parsed, settings, torch_version
from hangscope.model.tables import entries


@click.command(short_help="Print the environment variables to set before a run.")
@click.option("--shell", "form", flag_value="shell", default="shell", help="Print export lines (default).")
@click.option("--slurm", "form", flag_value="slurm", help="Print export lines for a batch script.")
@click.option("--k8s", "form", flag_value="k8s", help="Print the env of a container.")
@click.option("--ray", "form", flag_value="ray", help="Print a runtime_env.")
@click.option("--torch", "version", metavar="2.15", help="Version of torch (default: the installed one).")
def env(form: str, version: str | None) -> None:
    """Print the environment variables that make a job easier to diagnose, with the benefit and cost of each.

    `hangscope run` sets them automatically.
    """
    wanted = torch_version(sys.executable) if version is None else parsed(version)
    if version is not None and wanted is None:
        raise UsageError(f"{version!r} is no version of torch", "give it like --torch 2.15")
    name = "torch of any version" if wanted is None else f"torch {wanted[0]}.{wanted[1]}"
    chosen = next(one for one in entries("environment/settings.toml", "form") if one["name"] == form)
    click.echo(chosen["head"].format(torch=name))
    for row in settings(chosen["folder"], wanted):
        click.echo(chosen["line"].format(**row, quoted=json.dumps(row["value"])))
    click.echo(chosen["tail"], nl=False)


@click.command(short_help="Print a hook for a launcher or framework.")
@click.argument("kind", type=click.Choice(list(hooks.HOOKS)), required=False, metavar="[KIND]")
def hook(kind: str | None) -> None:
    """Print a hook for a launcher or framework (docs/hooks.md). Without KIND, list the hooks."""
    if kind is None:
        for name, (_, what) in hooks.HOOKS.items():
            click.echo(f"{name:11} {what}")
        return
    click.echo(hooks.text(kind), nl=False)


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
    if cause not in CATALOG:
        import difflib

        near = difflib.get_close_matches(cause, CATALOG, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else "`hangscope explain` lists all causes"
        raise UsageError(f"there are no notes on {cause!r}", hint)
    click.echo(CATALOG[cause].explained())


@click.command(short_help="Check what data is missing and how to collect it.")
@shared("paths", "store")
def doctor(paths: tuple[str, ...], store: str | None) -> None:
    """Check what data is missing from PATH and how to collect it next time."""
    from hangscope import analyze

    for finding in examine(analyze(list(paths), store=store).document):
        click.echo(f"{'MISSING' if finding.advice else 'ok     '} {finding.subject}: {finding.there}")
        if finding.advice:
            first, further = "          next time: ", "            "
            click.echo(textwrap.fill(finding.advice, 100, initial_indent=first, subsequent_indent=further))


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
