"""`hangscope history` and `diff`: the incidents of earlier analyses, which are of one bug, and which hosts fail most often."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from hangscope.commands.options import shared
from hangscope.commands.terminal import ProgressBar, fail_inside, show
from hangscope.errors import HangscopeError, UsageError
from hangscope.model.rankset import counted
from hangscope.report.words import utc

if TYPE_CHECKING:
    from hangscope.history.entry import Entry
    from hangscope.history.store import Store

#: What `show` calls the fields whose names in JSON do not speak for themselves.
_LABELS = {
    "recorded": "analyzed",
    "differs": "culprit called",
    "duration_s": "duration (s)",
    "waiting_file": "blocked at file",
    "waiting_line": "blocked at line",
    "waiting_function": "blocked in",
}
_TIMES = ("recorded", "happened")
_COLUMNS = ("id", "date", "job", "ranks", "confidence", "incident", "note")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_limit = click.option(
    "--limit",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    metavar="N",
    help="List at most N; 0 lists all.",
)


@click.group(
    short_help="Query earlier incidents, similar ones, and hosts at fault.",
    epilog="""\b
Examples:
  hangscope analyze ./dumps --store incidents.db   store this incident
  hangscope history list --store incidents.db
  hangscope history similar report.json            with HANGSCOPE_STORE set
  hangscope history note 3f2a "fixed by restarting the data server"
""",
)
def history() -> None:
    """Query the incidents in the store (docs/history.md)."""


@history.command("list")
@shared("store")
@_limit
@click.option("--cause", metavar="CAUSE", help="Only incidents of this cause.")
@_json
def list_(store: str | None, limit: int, cause: str | None, as_json: bool) -> None:
    """List the incidents, newest first."""
    with _opened(store) as opened:
        entries = [entry for entry in opened.entries() if cause in (None, entry.cause)]
    shown = entries[: limit or None]
    _print(as_json, map(asdict, shown), _COLUMNS, map(_row, shown))
    if not entries and not as_json:
        click.echo(f"The store holds no incident{f' of the cause {cause}' if cause else ''}.", err=True)
    if len(shown) < len(entries) and not as_json:
        click.echo(f"{counted(len(entries) - len(shown), 'more incident')}; --limit 0 shows all", err=True)


@history.command("show", short_help="Show one incident.")
@click.argument("incident", metavar="ID")
@shared("store")
@_json
def show_(incident: str, store: str | None, as_json: bool) -> None:
    """Show everything about one incident; the first characters of its ID are enough."""
    with _opened(store) as opened:
        entry = opened.entry(incident)
        uses = opened.uses(entry.id)
    rows = [
        (_LABELS.get(name, name.replace("_", " ")), utc(int(value * 1e9)) if name in _TIMES else value)
        for name, value in asdict(entry).items()
        if value not in ("", 0, 0.0)
    ]
    for use in uses:
        gpus, nics = use.gpus and f"GPUs {use.gpus}", use.nics and f"NICs with errors: {use.nics}"
        words = (use.host, gpus, nics, "at fault" if use.fault else "")
        rows.append(("host", ", ".join(filter(None, words))))
    if as_json:
        _print(True, [{**asdict(entry), "uses": [asdict(use) for use in uses]}])
    else:
        show("".join(f"{label:17} {value}\n" for label, value in rows))


@history.command(short_help="List earlier incidents of the same bug.")
@click.argument("report", metavar="REPORT")
@shared("store")
@_limit
@_json
def similar(report: str, store: str | None, limit: int, as_json: bool) -> None:
    """List earlier incidents of the same bug as REPORT: a report (JSON or HTML), a folder, or the ID of an incident."""
    from hangscope.diff import load
    from hangscope.history.entry import entry_of
    from hangscope.history.similar import seen_before
    from hangscope.history.similar import similar as alike

    with _opened(store) as opened:
        entries = opened.entries()
        is_file = os.path.exists(report)
        entry = entry_of(load(report), [report], 0.0) if is_file else opened.entry(report)
    matches = alike(entry, entries)
    shown = matches[: limit or None]
    data = ({"score": round(match.score, 3), **asdict(match.entry)} for match in shown)
    rows = ((f"{match.score:.0%}", *_row(match.entry)) for match in shown)
    _print(as_json, data, ("similarity", *_COLUMNS), rows)
    if not as_json:
        click.echo(seen_before(matches).text or "Not seen before.")


@history.command(short_help="Rank hosts and GPUs that fail more often than chance.")
@shared("store")
@_limit
@_json
def hosts(store: str | None, limit: int, as_json: bool) -> None:
    """Rank hosts and GPUs by how unlikely it is that they were at fault so often by chance.

    A host is at fault in an incident with a hardware or network cause if it had a culprit rank or, when no rank is named,
    an Xid in its kernel log.
    """
    from hangscope.history.hosts import ranked

    with _opened(store) as opened:
        counts = opened.use_counts()
    found = [record for gpus in (False, True) for record in ranked(counts, gpus=gpus)[: limit or None]]
    head = ("host", "GPU", "at fault", "used", "by chance", "any of them by chance")
    gpu_of = {record: "" if record.gpu is None else record.gpu for record in found}
    rows = ((r.host, gpu_of[r], r.faults, r.used, f"{r.by_chance:.2g}", f"{r.of_any:.2g}") for r in found)
    _print(as_json, map(asdict, found), head, rows)
    if not found and not as_json:
        click.echo("No incident in the store has a host at fault.", err=True)


@history.command(short_help="Attach a note to an incident.")
@click.argument("incident", metavar="ID")
@click.argument("text")
@shared("store")
def note(incident: str, text: str, store: str | None) -> None:
    """Attach a note to an incident, such as what fixed it; later reports of the same bug show it."""
    from hangscope.report.masking.secrets import presentable

    with _opened(store, writing=True) as opened:
        entry = opened.annotate(incident, presentable(text))
    click.echo(f"Attached the note to {entry.id}: {entry.title}", err=True)


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
        fail_inside(error, 4)
    click.echo(result.text(first, second), nl=False)
    context.exit(0 if result.same else 1)


def _opened(store: str | None, *, writing: bool = False) -> AbstractContextManager[Store]:
    from hangscope.history.store import open_store

    place = store or os.environ.get("HANGSCOPE_STORE", "")
    if not place:
        raise UsageError("no store was given", "pass --store PATH or set HANGSCOPE_STORE")
    return open_store(place, writing=writing)


def _row(entry: Entry) -> tuple[object, ...]:
    day = utc(int(entry.when * 1e9))[:10]
    return entry.id, day, entry.job, entry.world_size, entry.confidence, entry.title, entry.note


def _print(
    as_json: bool, data: Iterable[Any], head: Sequence[str] = (), rows: Iterable[Sequence[object]] = ()
) -> None:
    """Print rows as JSON, or as a table; a table without rows is not printed."""
    if as_json:
        show(json.dumps(list(data), indent=2, ensure_ascii=False) + "\n")
    elif cells := [tuple(map(str, row)) for row in rows]:
        widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
        show("".join("  ".join(map(str.ljust, row, widths)).rstrip() + "\n" for row in (head, *cells)))
