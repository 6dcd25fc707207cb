"""`hangscope history`: the incidents of earlier analyses, which are similar, and which hosts fail most often."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import click

from hangscope.commands.options import store_option
from hangscope.commands.terminal import show
from hangscope.errors import UsageError
from hangscope.model.rankset import counted

if TYPE_CHECKING:
    from hangscope.history.entry import Entry

#: What `show` calls the fields whose names in JSON do not speak for themselves.
_LABELS = {
    "recorded": "analyzed",
    "differs": "culprit called",
    "duration_s": "duration (s)",
    "waiting_file": "blocked at file",
    "waiting_line": "blocked at line",
    "waiting_function": "blocked in",
}
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
@store_option
@_limit
@click.option("--cause", metavar="CAUSE", help="Only incidents of this cause.")
@_json
def list_(store: str | None, limit: int, cause: str | None, as_json: bool) -> None:
    """List the incidents, newest first."""
    from hangscope.history.store import open_store

    with open_store(_place(store), writing=False) as opened:
        entries = [entry for entry in opened.entries() if cause in (None, entry.cause)]
    shown = entries[: limit or None]
    if as_json:
        _print_json(map(asdict, shown))
        return
    _print_table(
        ("id", "date", "job", "ranks", "confidence", "incident", "note"), (_row(entry) for entry in shown)
    )
    if not entries:
        click.echo(f"The store holds no incident{f' of the cause {cause}' if cause else ''}.", err=True)
    if len(shown) < len(entries):
        click.echo(f"{counted(len(entries) - len(shown), 'more incident')}; --limit 0 shows all", err=True)


@history.command("show", short_help="Show one incident.")
@click.argument("incident", metavar="ID")
@store_option
@_json
def show_(incident: str, store: str | None, as_json: bool) -> None:
    """Show everything about one incident; the first characters of its ID are enough."""
    from hangscope.history.store import open_store

    with open_store(_place(store), writing=False) as opened:
        entry = opened.entry(incident)
        uses = opened.uses(entry.id)
    if as_json:
        _print_json([{**asdict(entry), "uses": [asdict(use) for use in uses]}])
        return
    lines = [
        f"{_LABELS.get(name, name.replace('_', ' ')):17} {_time(value) if name in ('recorded', 'happened') else value}"
        for name, value in asdict(entry).items()
        if value not in ("", 0, 0.0)
    ]
    for use in uses:
        gpus, nics = use.gpus and f"GPUs {use.gpus}", use.nics and f"NICs with errors: {use.nics}"
        shown = (use.host, gpus, nics, "at fault" if use.fault else "")
        lines.append(f"{'host':17} {', '.join(filter(None, shown))}")
    show("\n".join(lines) + "\n")


@history.command(short_help="List earlier incidents of the same bug.")
@click.argument("report", metavar="REPORT")
@store_option
@_limit
@_json
def similar(report: str, store: str | None, limit: int, as_json: bool) -> None:
    """List earlier incidents of the same bug as REPORT: a report (JSON or HTML), a folder, or the ID of an incident."""
    from hangscope.history.similar import seen_before
    from hangscope.history.similar import similar as alike
    from hangscope.history.store import open_store

    place = _place(store)
    with open_store(place, writing=False) as opened:
        entries = opened.entries()
        entry = _entry(report) if os.path.exists(report) else opened.entry(report)
    matches = alike(entry, entries)
    shown = matches[: limit or None]
    if as_json:
        _print_json({"score": round(match.score, 3), **asdict(match.entry)} for match in shown)
        return
    _print_table(
        ("similarity", "id", "date", "job", "ranks", "confidence", "incident", "note"),
        ((f"{match.score:.0%}", *_row(match.entry)) for match in shown),
    )
    click.echo(seen_before(matches).text or "Not seen before.")


@history.command(short_help="Rank hosts and GPUs that fail more often than chance.")
@store_option
@_limit
@_json
def hosts(store: str | None, limit: int, as_json: bool) -> None:
    """Rank hosts and GPUs by how unlikely it is that they were at fault so often by chance.

    A host is at fault in an incident with a hardware or network cause if it had a culprit rank or, when no rank is named,
    an Xid in its kernel log.
    """
    from hangscope.history.hosts import ranked
    from hangscope.history.store import open_store

    with open_store(_place(store), writing=False) as opened:
        counts = opened.use_counts()
    found = [record for gpus in (False, True) for record in ranked(counts, gpus=gpus)[: limit or None]]
    if as_json:
        _print_json(map(asdict, found))
        return
    _print_table(
        ("host", "GPU", "at fault", "used", "by chance", "any of them by chance"),
        (
            (
                r.host,
                "" if r.gpu is None else r.gpu,
                r.faults,
                r.used,
                f"{r.by_chance:.2g}",
                f"{r.of_any:.2g}",
            )
            for r in found
        ),
    )
    if not found:
        click.echo("No incident in the store has a host at fault.", err=True)


@history.command(short_help="Attach a note to an incident.")
@click.argument("incident", metavar="ID")
@click.argument("text")
@store_option
def note(incident: str, text: str, store: str | None) -> None:
    """Attach a note to an incident, such as what fixed it; later reports of the same bug show it."""
    from hangscope.history.store import open_store
    from hangscope.report.masking.secrets import presentable

    with open_store(_place(store)) as opened:
        entry = opened.annotate(incident, presentable(text))
    click.echo(f"Attached the note to {entry.id}: {entry.title}", err=True)


def _place(store: str | None) -> str:
    place = store or os.environ.get("HANGSCOPE_STORE", "")
    if not place:
        raise UsageError("no store was given", "pass --store PATH or set HANGSCOPE_STORE")
    return place


def _entry(report: str) -> Entry:
    from hangscope.diff import load
    from hangscope.history.entry import entry_of

    return entry_of(load(report), [report], 0.0)


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def _row(entry: Entry) -> tuple[object, ...]:
    day = _time(entry.when)[:10]
    return entry.id, day, entry.job, entry.world_size, entry.confidence, entry.title, entry.note


def _print_json(rows: Iterable[Any]) -> None:
    show(json.dumps(list(rows), indent=2, ensure_ascii=False) + "\n")


def _print_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    table = [tuple(head), *(tuple(map(str, row)) for row in rows)]
    if len(table) == 1:  # a head alone says nothing
        return
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    show("".join("  ".join(map(str.ljust, row, widths)).rstrip() + "\n" for row in table))
