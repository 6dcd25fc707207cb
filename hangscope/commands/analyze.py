"""`hangscope analyze`: from the files of a frozen job to the reports."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

import click

from hangscope.commands.exports import read
from hangscope.commands.options import force_option, shared
from hangscope.commands.terminal import EXIT_CODES, EXIT_ERROR, show, tell, wants_color, written
from hangscope.errors import UsageError


@click.command(
    short_help="Diagnose a hung job from its dumps, logs and stacks.",
    epilog="""\b
Examples:
  hangscope analyze ./dumps
  hangscope analyze ./dumps --format markdown | gh issue comment 12 --body-file -
  hangscope analyze s3://bucket/job-17/ -o hang.html --json hang.json
""",
)
@shared("paths", "report")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown", "gitlab", "jira", "slack"]),
    default="text",
    show_default=True,
    help="What to print on stdout.",
)
@click.option("--json", "json_file", metavar="FILE", help="Also write the JSON report to FILE.")
@click.option(
    "--max-output-bytes",
    type=click.IntRange(200),
    metavar="N",
    help="Print at most N bytes on stdout, cut after a complete line (not for JSON).",
)
@click.option(
    "--source",
    type=click.Path(exists=True, file_okay=False),
    metavar="DIR",
    help="Folder of the job's source code, for quotes on the page. Without it no source is read.",
)
@shared("world_size", "jobs")
@click.option("--exit-code", is_flag=True, help="Exit 10 for a hang, 11 for inconclusive, 0 for no hang.")
@click.option("--redact", metavar="hosts,paths,users", default="", help="Remove these from every output.")
@click.option(
    "--rules",
    multiple=True,
    metavar="FILE",
    help="Your own rules (TOML), in addition to HANGSCOPE_RULES. Repeatable.",
)
@shared("attempt", "store", "max_bytes", "max_unpacked")
@force_option()
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Color of the text report.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show all evidence and all warnings.")
@shared("quiet")
def analyze(
    paths: tuple[str, ...],
    output: str,
    form: str,
    json_file: str | None,
    max_output_bytes: int | None,
    exit_code: bool,
    redact: str,
    force: bool,
    color: str,
    verbose: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Diagnose a hung job from its dumps, logs and stacks.

    PATH is a file, a folder (searched recursively), an archive (.tar, .tar.gz, .tar.zst, .zip), an fsspec URL, or - for
    standard input (`pbpaste | hangscope analyze -`). Files are recognized by their content. The text report goes to
    stdout, the HTML report to hangscope-report.html, and progress and warnings go to stderr.
    """
    gc.disable()  # this process ends with its report; the collector would look through all calls again and again
    from hangscope.report.markdown import cut_to

    if verbose and quiet:
        raise UsageError("-v and -q contradict each other")
    if form == "json" and max_output_bytes is not None:
        hint = "use --format text or markdown, or --json FILE"
        raise UsageError("--max-output-bytes would cut JSON in two", hint)
    if "-" in (output, json_file):
        hint = "--format json prints the JSON report on stdout"
        raise UsageError("-o and --json write files, and - is none", hint)
    if "-" in paths and sys.stdin is not None and sys.stdin.isatty() and not quiet:
        click.echo("hangscope: paste the text, then end it with Ctrl-D", err=True)
    hidden = [word.strip() for word in redact.split(",") if word.strip()]
    report = read(paths, quiet, {**options, "redact": hidden, "report_path": output})
    if form == "text":
        shown = report.to_text(color=wants_color(color), verbose=verbose)
    else:
        shown = report.to_json() if form == "json" else report.to_markdown(form)
    trouble = show(cut_to(shown, max_output_bytes))
    if trouble:
        tell(f"hangscope: {trouble}")
    all_written = written(Path(output), report.to_html, force, quiet)
    if json_file is not None:
        all_written = written(Path(json_file), report.to_json, force, quiet) and all_written
    gc.freeze()  # nor does the end of the process look through them
    if trouble or not all_written:
        sys.exit(EXIT_ERROR)
    if exit_code:
        sys.exit(EXIT_CODES[report.status])
