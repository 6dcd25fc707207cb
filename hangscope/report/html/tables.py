"""The tables below the pictures: inputs, windows, groups, ranks; and the words that a reader may not know. Nothing is cut without a count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from hangscope.knowledge.catalog import CATALOG
from hangscope.model.rankset import compress, counted
from hangscope.model.tables import tomllib
from hangscope.report.schema.document import Document, FrontierRow, GroupPart, InputPart, RankPart
from hangscope.report.schema.page import Row, Table
from hangscope.report.words import cut, cut_path, first_of, grouped, listed

ROWS = 40
_FILES = 3


def inputs(document: Document) -> Table:
    """Return what became of the inputs: those that were not used one by one, the others by kind and status."""
    dropped = [i for i in document.inputs if i.status != "used"]
    used = [i for i in document.inputs if i.status == "used"]
    is_short = len(used) + min(len(dropped), ROWS) <= ROWS
    rows = [_input(i) for i in (*dropped[:ROWS], *(used if is_short else ()))]
    for kind, items in sorted(grouped((i.kind, i) for i in used).items()) if not is_short else ():
        ranks = compress(i.rank for i in items if i.rank is not None)
        name = f"{sum(i.count or 1 for i in items):,} files, {cut_path(items[0].file, 80)} and others"
        rows.append(Row((name, kind, cut(ranks, 80) if ranks != "none" else "", "used", "")))
    more = max(0, len(dropped) - ROWS)
    left_out = f"{more:,} more files were not used; the JSON report lists them." if more else ""
    title = _titled("Input files", len(rows), len(rows) + more)
    return Table(title, ("File", "Kind", "Rank", "Status", "Reason"), tuple(rows), (0, 2), left_out)


def _titled(title: str, shown: int, total: int) -> str:
    """Return a title with how much of a list the table has: `All ranks, 40 of 1,024`."""
    return f"{title}, {f'{shown:,} of ' if shown < total else ''}{total:,}"


def _input(item: InputPart) -> Row:
    rank = item.ranks or ("" if item.rank is None else str(item.rank))
    mark = "" if item.status == "used" else "dropped"
    return Row((cut_path(item.file, 120), item.kind, rank, item.status, cut(item.reason, 300)), mark)


def windows(document: Document) -> Table:
    """Return which calls were kept."""
    found = document.coverage.windows
    rows = tuple(Row((cut(w.ranks, 80), w.group, str(w.from_seq), str(w.to_seq))) for w in found[:ROWS])
    more = len(found) - len(rows) + (document.coverage.windows_left_out or 0)
    left_out = f"{more:,} more windows; the JSON report lists them." if more else ""
    head = ("Ranks", "Group", "From seq", "To seq")
    title = _titled("Retained collectives", len(rows), len(rows) + more)
    return Table(title, head, rows, (0, 1, 2, 3), left_out)


def groups(document: Document) -> Table:
    """Return the process groups, that of the verdict first; alike ones beyond the table's end are counted by role."""
    verdict = document.verdict
    named = (verdict.group.name, verdict.group.desc) if verdict is not None and verdict.group else None
    ordered = sorted(document.groups, key=lambda group: (group.name, group.desc) != named)
    rest = Counter(group.role or group.desc or "other" for group in ordered[ROWS:])
    roles = ", ".join(f"{count:,} {role}" for role, count in sorted(rest.items()))
    more = counted(sum(rest.values()), "more group")
    left_out = f"{more} ({roles}); the JSON report lists them." if rest else ""
    head = ("Name", "Description", "Role", "Ranks", "Enqueued and completed")
    title = _titled("Process groups", min(ROWS, len(ordered)), len(ordered))
    return Table(title, head, tuple(map(_group, ordered[:ROWS])), (0, 3, 4), left_out)


def _group(group: GroupPart) -> Row:
    ranks = group.ranks if isinstance(group.ranks, str) else compress(group.ranks)
    members = cut(ranks, 80) + ("" if group.members_known else " at least")
    return Row((group.name or "(unnamed)", group.desc, group.role or "", members, _frontier(group.frontier)))


def _frontier(rows: Sequence[FrontierRow]) -> str:
    found = []
    for row in rows:
        completed = "not known" if row.completed is None else f"{'at least ' * row.at_least}{row.completed}"
        counts = f"{row.enqueued}, {completed}" if row.enqueued is not None else "not known"
        found.append(f"{cut(row.ranks, 40)}: {counts}")
    return "; ".join(first_of(found, _FILES, "and {} more"))


def ranks(document: Document) -> Table:
    """Return one row per rank, or per class of ranks of a large job, those of culprits first."""
    found = sorted(document.ranks, key=lambda r: r.state != "culprit")
    rows = tuple(map(_rank, found[:ROWS]))
    more = sum(r.count or 1 for r in found[ROWS:])
    left_out = f"{counted(more, 'more rank')}; the search above shows each of them." if more else ""
    head = ("Rank", "Host", "State", "Dump", "Last call on any group", "Files")
    total = sum(r.count or 1 for r in found)
    return Table(_titled("All ranks", total - more, total), head, rows, (0, 1, 4, 5), left_out)


def _rank(rank: RankPart) -> Row:
    files = listed([cut_path(f, 60) for f in rank.files], _FILES)
    name, last = cut(rank.ranks or str(rank.rank), 80), cut(rank.last_call or "", 140)
    return Row((name, rank.host or "", rank.standing, rank.absence or "used", last, files))


def coverage(document: Document) -> str:
    """Return the counts of files in words."""
    c = document.coverage
    parts = ((c.used, "used"), (c.set_aside, "set aside"), (c.ignored, "ignored"))
    return ", ".join((counted(c.files, "file"), *(f"{number:,} {word}" for number, word in parts)))


_NOT_SHOWN = "The collected files establish neither that the job is stuck nor any of the other causes."


@cache
def words() -> dict[str, str]:
    """Return all words and what they mean."""
    return {**_table()["words"], **_table()["stall"]}


def glossary(document: Document) -> dict[str, str]:
    """Return the words that a page uses; where nothing is stuck, those of a stall are not among them."""
    used = words() if document.status != "no_hang" else _table()["words"]
    return dict(sorted(used.items(), key=lambda item: item[0].lower()))


@cache
def _table() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_name("glossary.toml").read_text("utf-8"))


def causes(document: Document) -> tuple[tuple[str, str], ...]:
    """Return the causes that a page names, each with what it means."""
    named, verdict = [h.cause for h in document.hypotheses], document.verdict
    if verdict is not None:
        named = [verdict.cause, *named, *(a.cause for a in verdict.alternatives)]
    means = {cause: CATALOG[cause].means for cause in dict.fromkeys(named) if cause in CATALOG}
    if "unknown" in means and document.status != "hang":
        means["unknown"] = _NOT_SHOWN
    return tuple(means.items())
