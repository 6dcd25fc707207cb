"""The command line: options -> library -> reporter -> exit code."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from hangscope._version import __version__
from hangscope.commands.capture import capture
from hangscope.commands.doctor import doctor
from hangscope.commands.env import env
from hangscope.commands.hook import hook
from hangscope.commands.run import run
from hangscope.errors import HangscopeError, UsageError
from hangscope.terminal import ProgressBar, show, tell, wants_color

DEFAULT_REPORT = "hangscope-report.html"
EXIT_ERROR, EXIT_HANG, EXIT_INCONCLUSIVE = 1, 10, 11  # others: `HangscopeError.exit_code`

_EXAMPLES = """\b
Examples:
  hangscope analyze ./dumps                        diagnose, write hangscope-report.html
  hangscope analyze logs/ dumps/ -o hang.html      several folders, another name
  pbpaste | hangscope analyze -                    what you copied from a terminal or a thread
  hangscope analyze dumps.tar.gz --format json     for a script
  hangscope explain uneven_loader                  what a cause means
  hangscope demo                                   freeze a tiny real job and diagnose it
"""


# What several commands take.
_paths_argument = click.argument("paths", metavar="PATH...", nargs=-1, required=True)
_report_option = click.option(
    "-o",
    "--output",
    metavar="REPORT.html",
    default=DEFAULT_REPORT,
    show_default=True,
    help="Where the HTML report goes.",
)
_jobs_option = click.option(
    "--jobs", type=click.IntRange(1), metavar="N", help="Reading processes (default: one per processor)."
)
_max_bytes_option = click.option(
    "--max-bytes", type=click.IntRange(1), metavar="N", help="Largest dump that is loaded (default: 2 GiB)."
)
_max_unpacked_option = click.option(
    "--max-unpacked",
    type=click.IntRange(1),
    metavar="N",
    help="Bytes that archives may unpack to (default: 64 GiB in all, each 1 GiB or 250 times its size).",
)
_force_option = click.option(
    "--force", is_flag=True, help="Overwrite a file that is not a report of hangscope."
)
_quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print nothing on stderr but errors.")


class _Group(click.Group):
    """Turns errors into one message and an exit code; never a traceback."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command."""
        try:
            return super().main(*args, **kwargs)
        except HangscopeError as error:
            _fail(error.message, error.hint, error.exit_code)
        except KeyboardInterrupt:
            _fail("interrupted", "", EXIT_ERROR)
        except BrokenPipeError:
            os._exit(0)
        except MemoryError:
            _fail("out of memory", "analyse fewer files, or a machine with more memory", EXIT_ERROR)
        except Exception as error:  # a bug of ours: one line for the user, the details on request
            if os.environ.get("HANGSCOPE_DEBUG"):
                raise
            _fail(
                f"internal error: {type(error).__name__}: {error}",
                "set HANGSCOPE_DEBUG=1 for the traceback, and please report it",
                EXIT_ERROR,
            )
        return None


def _end_in_order() -> None:
    """Let SIGTERM and SIGHUP end the command as Ctrl-C does, so that temporary files and readers go with it."""

    def end(number: int, frame: object) -> None:
        sys.exit(128 + number)

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            with suppress(ValueError):  # not in the main thread
                signal.signal(number, end)


def _fail(message: str, hint: str, code: int) -> None:
    tell(f"hangscope: {message}" + (f"\n  hint: {hint}" if hint else ""))
    sys.exit(code)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXAMPLES)
@click.version_option(__version__, "-V", "--version", prog_name="hangscope")
def main() -> None:
    """Find the rank, the call, the line and the cause behind a frozen distributed PyTorch job."""


@main.command(
    epilog="""\b
Examples:
  hangscope analyze ./dumps
  hangscope analyze ./dumps --format markdown | gh issue comment 12 --body-file -
  hangscope analyze s3://bucket/job-17/ -o hang.html --json hang.json
"""
)
@_paths_argument
@_report_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown", "jira", "slack"]),
    default="text",
    show_default=True,
    help="What is printed on stdout.",
)
@click.option("--json", "json_file", metavar="FILE", help="Also write the JSON report to FILE.")
@click.option(
    "--max-output-bytes",
    type=click.IntRange(200),
    metavar="N",
    help="Cut what is printed on stdout behind a whole line, at most N bytes (text, markdown, jira, slack).",
)
@click.option(
    "--source",
    type=click.Path(exists=True, file_okay=False),
    metavar="DIR",
    help="The job's source code, from which the page quotes the lines that matter; nothing is read unasked.",
)
@click.option(
    "--world-size",
    type=click.IntRange(1),
    metavar="N",
    help="How many ranks the job had; overrides what the inputs say.",
)
@_jobs_option
@click.option("--exit-code", is_flag=True, help="Exit 10 for a hang, 11 for inconclusive, 0 for no hang.")
@click.option("--redact", metavar="hosts,paths,users", default="", help="Remove these from every output.")
@click.option(
    "--rules",
    multiple=True,
    metavar="FILE",
    help="A site's own rules (TOML), besides HANGSCOPE_RULES; may be given again.",
)
@click.option("--attempt", metavar="N|all", help="Which restart attempt to analyse (default: the last).")
@click.option(
    "--full-table", is_flag=True, help="Keep every call in the library's table, however large the job."
)
@_max_bytes_option
@_max_unpacked_option
@_force_option
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Colour of the text report.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show all evidence and all warnings.")
@_quiet_option
def analyze(
    paths: tuple[str, ...],
    output: str,
    form: str,
    json_file: str | None,
    max_output_bytes: int | None,
    source: str | None,
    world_size: int | None,
    jobs: int | None,
    exit_code: bool,
    redact: str,
    rules: tuple[str, ...],
    attempt: str | None,
    full_table: bool,
    max_bytes: int | None,
    max_unpacked: int | None,
    force: bool,
    color: str,
    verbose: bool,
    quiet: bool,
) -> None:
    """Diagnose what a frozen job left behind.

    PATH is a file, a folder (searched recursively), an archive (.tar, .tar.gz, .tar.zst, .zip), an fsspec URL, or - for
    standard input (`pbpaste | hangscope analyze -`). Flight
    Recorder dumps, logs and stacks are recognised by their content. The text report goes to stdout, the HTML report to
    hangscope-report.html, everything else to stderr.
    """
    from hangscope import api, isolated
    from hangscope.ingest.workers.reader import DEFAULT_MAX_BYTES
    from hangscope.report.markdown import cut_to

    if verbose and quiet:
        raise UsageError("-v and -q contradict each other")
    if form == "json" and max_output_bytes is not None:
        raise UsageError(
            "--max-output-bytes would cut JSON in two", "use --format text or markdown, or --json FILE"
        )
    if "-" in paths and sys.stdin is not None and sys.stdin.isatty() and not quiet:
        click.echo("hangscope: paste the text, then end it with Ctrl-D", err=True)
    _end_in_order()
    isolated.use_one_thread()
    bar = ProgressBar(quiet=quiet)
    try:
        report = api.analyze(
            list(paths),
            world_size=world_size,
            jobs=jobs,
            attempt=attempt,
            full_table=full_table,
            redact=[w.strip() for w in redact.split(",") if w.strip()],
            rules=rules,
            progress=bar.advance,
            max_bytes=max_bytes or DEFAULT_MAX_BYTES,
            max_unpacked=max_unpacked,
            source=source,
        )
    finally:
        bar.close()
    if form == "text":
        shown = report.to_text(color=wants_color(color), verbose=verbose)
    else:
        shown = report.to_json() if form == "json" else report.to_markdown(form)
    trouble = show(cut_to(shown, max_output_bytes))
    if trouble:
        tell(f"hangscope: {trouble}")
    written = _write(Path(output), report.to_html, force, quiet)
    if json_file is not None:
        written = _write(Path(json_file), report.to_json, force, quiet) and written
    if trouble or not written:
        sys.exit(EXIT_ERROR)
    if exit_code:
        sys.exit({"hang": EXIT_HANG, "inconclusive": EXIT_INCONCLUSIVE}.get(report.status, 0))


def _write(path: Path, render: Any, force: bool, quiet: bool) -> bool:
    """Write one report file; a failure is told and does not take back the verdict that was printed."""
    from hangscope.output import write_report

    try:
        write_report(path, render(), force=force)
    except (OSError, UsageError) as error:
        reason = (
            error.message
            if isinstance(error, UsageError)
            else f"{path} cannot be written: {error.strerror or error}"
        )
        hint = error.hint if isinstance(error, UsageError) else "choose another place with -o"
        tell(f"hangscope: {reason}\n  hint: {hint}")
        return False
    if not quiet:
        tell(f"Wrote {path}")
    return True


@main.command()
@_paths_argument
@click.option(
    "-o", "--output", metavar="FILE", required=True, help="Where the pack goes, e.g. node17.hangpack."
)
@_jobs_option
@_max_bytes_option
@_max_unpacked_option
@click.option("--force", is_flag=True, help="Overwrite a file that is no pack.")
@_quiet_option
def pack(
    paths: tuple[str, ...],
    output: str,
    jobs: int | None,
    max_bytes: int | None,
    max_unpacked: int | None,
    force: bool,
    quiet: bool,
) -> None:
    """Reduce dumps and logs to one small file that is analysed in their place.

    For jobs whose dumps lie on each node's own disk: pack on every node, copy the packs together, analyse them. Needs
    the `parquet` extra.
    """
    from hangscope import pack as packing
    from hangscope.ingest.workers.reader import DEFAULT_MAX_BYTES

    _end_in_order()
    bar = ProgressBar(quiet=quiet)
    try:
        packed = packing.pack(
            paths,
            output,
            jobs=jobs,
            max_bytes=max_bytes or DEFAULT_MAX_BYTES,
            max_unpacked=max_unpacked,
            force=force,
            progress=bar.advance,
        )
    except OSError as error:
        raise UsageError(
            f"{output} cannot be written: {error.strerror or error}", "choose another place with -o"
        ) from None
    finally:
        bar.close()
    if not quiet:
        for note in packed.notes:
            tell(f"hangscope: {note}")
        click.echo(
            f"Wrote {output}: {packed.files:,} files, {packed.bytes_before / 1e6:,.1f} MB in {packed.bytes_after / 1e6:,.1f} MB",
            err=True,
        )


@main.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@_quiet_option
@click.pass_context
def diff(context: click.Context, first: str, second: str, quiet: bool) -> None:
    """Say whether two reports tell of the same bug, and in what they differ.

    A and B are reports of hangscope (JSON or HTML), or folders and archives that are analysed first. Exits with 0 for the
    same bug, 1 for another, 3 without usable input, 4 for an internal error.
    """
    from hangscope.diff import compare, load

    bar = ProgressBar(quiet=quiet)
    try:
        one, other = (load(path, progress=bar.advance) for path in (first, second))
        result = compare(one, other)
    except HangscopeError:
        raise
    except Exception as error:
        if os.environ.get("HANGSCOPE_DEBUG"):
            raise
        _fail(
            f"internal error: {type(error).__name__}: {error}", "set HANGSCOPE_DEBUG=1 for the traceback", 4
        )
    finally:
        bar.close()
    click.echo(result.text(first, second), nl=False)
    context.exit(0 if result.same else 1)


@main.command()
@click.argument("cause", required=False)
def explain(cause: str | None) -> None:
    """Print what CAUSE means, what a verdict of it establishes and what it does not, and how to fix it.

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


@main.command()
@click.argument("scenario", required=False, default="rank_conditional")
@_report_option
@click.option("--keep", metavar="DIR", help="Keep what the frozen job left in DIR.")
@click.option("--list", "list_only", is_flag=True, help="List the scenarios.")
@_force_option
def demo(scenario: str, output: str, keep: str | None, list_only: bool, force: bool) -> None:
    """Freeze a tiny real job on this machine's CPU and diagnose it (needs torch)."""
    import tempfile

    from hangscope import api
    from hangscope import demo as demos

    if list_only:
        for item in demos.scenarios().values():
            click.echo(f"{item.name:20} {item.description}")
        return
    if scenario not in demos.scenarios():
        raise UsageError(
            f"no scenario is called {scenario!r}", f"choose one of {', '.join(demos.scenarios())}"
        )
    with tempfile.TemporaryDirectory(prefix="hangscope-demo-") as folder:
        target = Path(keep) if keep else Path(folder) / "incident"
        click.echo(f"Freezing a real {scenario} job with gloo on the CPU (about ten seconds) ...", err=True)
        frozen = demos.freeze(scenario, target)
        report = api.analyze(frozen / "dumps")
        click.echo(report.to_text(color=wants_color("auto")), nl=False, color=True)
        truth = demos.scenarios()[scenario]
        click.echo(
            f"What really happened: rank {', '.join(map(str, truth.culprits))}, {truth.cause}.", err=True
        )
        if not _write(Path(output), report.to_html, force, False):
            sys.exit(EXIT_ERROR)


for command in (run, capture, env, doctor, hook):
    main.add_command(command)


if __name__ == "__main__":
    main()
