"""What the pictures and tables of a report show agrees with the verdict and is complete."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from hangscope.model.incident import ROOTED_OPS
from hangscope.report.html.drawings import text_width
from hangscope.report.html.page import Page
from hangscope.report.pictures.wait_edges import steps_to
from hangscope.report.schema.document import Document
from hangscope.report.schema.pictures import WaitPicture
from hangscope.report.words import ROLES
from tests.report.rules import DIFFERING, ranks_of


def reaching(picture: WaitPicture, roots: set[str]) -> set[str]:
    return roots | set(steps_to(roots, [(edge.source, edge.target) for edge in picture.edges]))


def root_is_the_culprit(document: Document) -> Iterator[str]:
    """The root in the wait-for graph is the culprit of the headline, as a node of its own."""
    verdict, picture = document.verdict, document.page.waitfor if document.page else None
    if verdict is None or picture is None:
        return
    roots = [n for n in picture.nodes if n.root]
    named = set(verdict.culprit_ranks)
    if named and not roots:  # of ranks that were not seen none is known to be one
        yield "the wait-for graph has no root"
    hosts = set().union(*(ranks_of(n.ranks) for n in roots if n.kind == "host")) if roots else set()
    if named and hosts != named:
        yield f"the graph's root is {sorted(hosts)}, the headline's {sorted(named)}"
    for node in picture.nodes:
        if node.kind == "host" and ranks_of(node.ranks) & named and ranks_of(node.ranks) - named:
            yield f"{node.label} mixes culprits and others"
    if not named and any(n.culprit for n in picture.nodes):
        yield "a node is a culprit, and nobody is named"


def chains_end_at_the_root(document: Document) -> Iterator[str]:
    """Every chain of waiting ends at the root or at a rank that was not seen, whose own waiting nobody draws, or "explains" is smaller."""
    verdict, picture = document.verdict, document.page.waitfor if document.page else None
    if verdict is None or picture is None or not verdict.culprit_ranks or picture.left_out:
        return
    reached = reaching(picture, {n.id for n in picture.nodes if n.root})
    waiting = set(verdict.waiting_ranks)
    led: set[int] = set()
    for node in picture.nodes:
        if node.kind == "host" and node.id in reached:
            led |= ranks_of(node.ranks) & waiting
    unseen = {row.rank for row in document.ranks if row.state == "unseen"}
    beyond = reaching(
        picture, {n.id for n in picture.nodes if n.kind == "host" and ranks_of(n.ranks) & unseen}
    )
    behind = [ranks_of(n.ranks) & waiting for n in picture.nodes if n.kind == "host" and n.id in beyond]
    if len(led.union(*behind)) < verdict.explains.ranks:
        yield f"{len(led)} waiting ranks lead to the root, {verdict.explains.ranks} are said to be explained"
    if verdict.explains.ranks == verdict.explains.of and led != waiting:
        yield f"ranks {sorted(waiting - led)} do not lead to the root that explains all"


def rows_differ_where_they_part(document: Document) -> Iterator[str]:
    """The rows of the call diff differ where it says that they part, and part where the headline says so."""
    diff = document.page.calls if document.page else None
    if diff is None:
        return
    for row in diff.rows:
        marks = {cell.mark for cell in row.cells} - {"same", "unseen", "no_part"}
        if bool(marks) != bool(row.differs):
            yield f"row {[c.mark for c in row.cells]} is {'' if row.differs else 'not '}called a difference"
        shown = {(c.op, c.seq, c.sizes, c.site, c.state) for c in row.cells}
        if row.differs and len(shown) < 2 and not any(c.note for c in row.cells):
            yield f"two equal cells under a difference: {row.cells}"
    verdict = document.verdict
    if verdict is None or verdict.cause not in DIFFERING:
        return
    if verdict.waiting_call is not None and not verdict.waiting_call.op:
        return  # that the others are in a call shows no op
    if verdict.cause == "collective_mismatch" and verdict.op in ROOTED_OPS:
        return  # no recorder keeps the root
    named = [
        c for c in diff.classes if c.role == "culprit" and set(ranks_of(c.ranks)) & set(verdict.culprit_ranks)
    ]
    others = [c for c in diff.classes if c.role != "culprit"]
    known = any(row.cells[i].op for row in diff.rows for i, c in enumerate(diff.classes) if c in named)
    if verdict.culprit_ranks and named and others and known and not diff.differences:
        yield f"{verdict.cause}: the columns of the call diff are equal"


def culprit_has_a_column(document: Document) -> Iterator[str]:
    """A named rank is in the call diff, with or without calls."""
    diff, verdict = (document.page.calls if document.page else None), document.verdict
    if diff is None or verdict is None or not verdict.culprit_ranks:
        return
    shown = set().union(*(ranks_of(c.ranks) for c in diff.classes))
    if not shown & set(verdict.culprit_ranks):
        yield f"ranks {verdict.culprit_ranks} have no column"


def nothing_overflows(document: Document) -> Iterator[str]:
    """No text is wider than its box."""
    page = Page(document)
    for node in page.waitfor.nodes if page.waitfor else ():
        for text, size, look in ((node.label, 12.5, {"bold": True}), (node.sub, 11.0, {"mono": True})):
            if text_width(text, size, **look) > node.width - 12:
                yield f"{text!r} overflows its node"
    for _, _, name, site, _ in page.order.boxes if page.order else ():
        for text, size, look in ((name, 12.5, {"bold": True}), (site, 11.0, {"mono": True})):
            if page.order and text_width(text, size, **look) > page.order.box_width - 12:
                yield f"{text!r} overflows its box"
    for cell in page.rankmap.cells if page.rankmap else ():
        if page.rankmap and text_width(cell.place, 9.5, mono=True) > page.rankmap.cell_width - 6:
            yield f"{cell.place!r} overflows its cell"


def nothing_is_cut_without_a_count(document: Document) -> Iterator[str]:
    """What a table or a picture does not list is counted."""
    page = Page(document)
    diff, picture = (document.page.calls, document.page.waitfor) if document.page else (None, None)
    if diff is not None and document.world_size:
        columns = (
            sum(c.count for c in diff.classes) + sum(c.count for c in diff.left_out) + diff.ranks_left_out
        )
        seen = {rank for c in (*diff.classes, *diff.left_out) for rank in ranks_of(c.ranks)}
        if columns > document.world_size or len(seen) + diff.ranks_left_out > document.world_size:
            yield f"{columns} ranks have or lack a column, of {document.world_size}"
        behaviours = any(c.first in ranks_of(c.ranks) for c in diff.classes)
        told = any(cell.note == "from the logs" for row in diff.rows for cell in row.cells)
        if behaviours and not told and columns < document.world_size:
            yield f"{document.world_size - columns} ranks are in no column and not counted"
    if picture is not None and picture.left_out == 0:
        drawn = {n.id for n in picture.nodes}
        if any(e.source not in drawn or e.target not in drawn for e in picture.edges):
            yield "an arrow leads to a node that is not drawn"
    for table, whole in (
        (page.ranks, sum(r.count or 1 for r in document.ranks)),
        *((t, len(document.groups)) for t in page.lists if t.title == "Process groups"),
    ):
        listed = len(table.rows) if table is not page.ranks else _ranks_listed(document, len(table.rows))
        if listed < whole and f"{whole - listed:,} more" not in table.left_out:
            yield f"{table.title}: {whole - listed} are neither listed nor counted"
    if page.rankmap is not None and sum(s.count for s in page.rankmap.data.legend) != document.world_size:
        yield "the rank map's states do not add up to the job"
    for fold in page.data.rankmap.folds if page.data.rankmap else ():
        if sum(row.count for row in fold.rows) != document.world_size:
            yield f"the map folded by {fold.by} does not add up to the job"
    if page.stacks is not None and len(page.stacks.rows) + page.stacks.left_out != len(document.stacks) + (
        document.stacks_left_out or 0
    ):
        yield "branches of the stacks are neither listed nor counted"


def _ranks_listed(document: Document, rows: int) -> int:
    found = sorted(document.ranks, key=lambda r: r.state != "culprit")
    return sum(r.count or 1 for r in found[:rows])


def states_agree(document: Document) -> Iterator[str]:
    """A rank is the same everywhere: in the map, in its panel, in the columns and in the sentence of the verdict."""
    page, verdict = document.page, document.verdict
    if page is None or page.rankmap is None:
        return
    roles = [ROLES[state] for state, count in page.rankmap.states for _ in range(count)]
    named = set(verdict.culprit_ranks) if verdict is not None else set()
    if {rank for rank, role in enumerate(roles) if role == "culprit"} != {r for r in named if r < len(roles)}:
        yield "the map's culprits are others than the verdict's"
    for row in page.detail.ranks:
        wrong = [rank for rank in ranks_of(row.ranks) if rank < len(roles) and roles[rank] != row.state]
        if wrong:
            yield f"rank {wrong[0]} is {row.state} in its panel and {roles[wrong[0]]} on the map"
    for column in page.calls.classes if page.calls else ():
        wrong = [rank for rank in ranks_of(column.ranks) if rank < len(roles) and roles[rank] != column.role]
        if wrong:
            yield f"rank {wrong[0]} is {column.role} in its column and {roles[wrong[0]]} on the map"


def the_timeline_runs_forward(document: Document) -> Iterator[str]:
    """Moments are in order, to within the second that a log counts, and quote messages and not the prefixes of lines."""
    strip = document.page.strip if document.page else None
    for earlier, later in pairwise(strip.moments if strip else ()):
        if int(earlier.at) // 10**9 > int(later.at) // 10**9:
            yield f"{later.kind} after {earlier.kind}, and earlier by the clock"
    for moment in strip.moments if strip else ():
        if re.match(r"(?:rank \d+: )?\[rank\d+\]:\[", moment.text):
            yield f"the timeline quotes a prefix: {moment.text!r}"


RULES = (
    root_is_the_culprit,
    chains_end_at_the_root,
    rows_differ_where_they_part,
    culprit_has_a_column,
    nothing_overflows,
    nothing_is_cut_without_a_count,
    states_agree,
    the_timeline_runs_forward,
)
