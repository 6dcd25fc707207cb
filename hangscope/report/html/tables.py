"""The tables below the pictures: inputs, windows, groups, ranks. Nothing is cut without a count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hangscope.model.rankset import compress, counted
from hangscope.report.schema.document import Document, FrontierRow, GroupPart, InputPart, RankPart
from hangscope.report.schema.stories import Row, Table
from hangscope.report.words import cut, cut_path, grouped

ROWS = 40
_FILES = 3


def inputs(document: Document) -> Table:
    """Return what became of the inputs: those that were not used one by one, the others by kind and status."""
    dropped = [i for i in document.inputs if i.status != "used"]
    rows = [_input(i) for i in dropped[:ROWS]]
    more = len(dropped) - len(rows)
    used = [i for i in document.inputs if i.status == "used"]
    if len(used) <= ROWS - len(rows):
        rows += [_input(i) for i in used]
    else:
        for kind, items in sorted(grouped((item.kind, item) for item in used).items()):
            ranks = compress(i.rank for i in items if i.rank is not None)
            files = sum(i.count or 1 for i in items)
            name = f"{files:,} files, {cut_path(items[0].file, 80)} and others"
            rows.append(Row((name, kind, cut(ranks, 80) if ranks != "none" else "", "used", "")))
    left_out = f"{more:,} more files were not used; the JSON report lists them." if more > 0 else ""
    return Table("Input files", ("File", "Kind", "Rank", "Status", "Reason"), tuple(rows), (0, 2), left_out)


def _input(item: InputPart) -> Row:
    rank = item.ranks or ("" if item.rank is None else str(item.rank))
    mark = "" if item.status == "used" else "dropped"
    return Row((cut_path(item.file, 120), item.kind, rank, item.status, cut(item.reason, 300)), mark)


def windows(document: Document) -> Table:
    """Return which calls were kept."""
    found = document.coverage.windows
    rows = tuple(Row((cut(w.ranks, 80), w.group, str(w.from_seq), str(w.to_seq))) for w in found[:ROWS])
    more = len(found) - len(rows) + (document.coverage.windows_left_out or 0)
    left_out = f"{more:,} more windows; the JSON report lists them." if more > 0 else ""
    return Table(
        "Retained collectives", ("Ranks", "Group", "From seq", "To seq"), rows, (0, 1, 2, 3), left_out
    )


def groups(document: Document) -> Table:
    """Return the process groups, that of the verdict first; alike ones beyond the table's end are counted by role."""
    named = document.verdict.group if document.verdict is not None else None
    ordered = sorted(
        document.groups, key=lambda g: not (named and (g.name, g.desc) == (named.name, named.desc))
    )
    rows = tuple(_group(g) for g in ordered[:ROWS])
    rest = Counter(g.role or g.desc or "other" for g in ordered[ROWS:])
    states = ", ".join(f"{count:,} {role}" for role, count in sorted(rest.items()))
    left_out = (
        f"{counted(sum(rest.values()), 'more group')} ({states}); the JSON report lists them." if rest else ""
    )
    head = ("Name", "Description", "Role", "Ranks", "Enqueued and completed")
    return Table("Process groups", head, rows, (0, 3, 4), left_out)


def _group(group: GroupPart) -> Row:
    ranks = group.ranks if isinstance(group.ranks, str) else compress(group.ranks)
    known = "" if group.members_known else " at least"
    members = cut(ranks, 80) + known
    return Row((group.name or "(unnamed)", group.desc, group.role or "", members, _frontier(group.frontier)))


def _frontier(rows: Sequence[FrontierRow]) -> str:
    found = []
    for row in rows[:_FILES]:
        completed = "not known" if row.completed is None else row.completed
        counts = f"{row.enqueued}, {completed}" if row.enqueued is not None else "not seen"
        found.append(f"{cut(row.ranks, 40)}: {counts}")
    return "; ".join(found) + (f"; and {len(rows) - _FILES} more" if len(rows) > _FILES else "")


def ranks(document: Document) -> Table:
    """Return one row per rank, or per class of ranks of a large job, those of culprits first."""
    found = sorted(document.ranks, key=lambda r: r.state != "culprit")
    rows = tuple(_rank(r) for r in found[:ROWS])
    more = sum(r.count or 1 for r in found[ROWS:])
    left_out = f"{counted(more, 'more rank')}; the search above shows each of them." if more else ""
    head = ("Rank", "Host", "State", "Not seen because", "Last call on any group", "Files")
    return Table("All ranks", head, rows, (0, 1, 4, 5), left_out)


def _rank(rank: RankPart) -> Row:
    files = ", ".join(cut_path(f, 60) for f in rank.files[:_FILES])
    if len(rank.files) > _FILES:
        files += f" and {len(rank.files) - _FILES} more"
    name, last = cut(rank.ranks or str(rank.rank), 80), cut(rank.last_call or "", 140)
    return Row((name, rank.host or "", rank.state, rank.absence or "", last, files))


def coverage(document: Document) -> str:
    """Return the counts of files in words."""
    c = document.coverage
    parts = ((c.used, "used"), (c.set_aside, "set aside"), (c.ignored, "ignored"))
    return ", ".join((counted(c.files, "file"), *(f"{number:,} {word}" for number, word in parts)))
