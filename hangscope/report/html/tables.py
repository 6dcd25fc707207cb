"""What the page lists: the tables below the pictures, the words, and row by row the call diff, the merged stacks and the folded rank map.

Nothing is cut without a count; runs of alike rows are one line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path

from hangscope.knowledge.callsite import is_user
from hangscope.knowledge.catalog import CATALOG
from hangscope.model.dataclass import dataclass
from hangscope.model.frames import Frame
from hangscope.model.rankset import compress, counted, spans
from hangscope.model.tables import tomllib
from hangscope.report.schema.document import BranchPart, Document, FrontierRow
from hangscope.report.schema.page import Row, Table
from hangscope.report.schema.pictures import CallDiff, DiffGroup, DiffRow, FoldRow, StateRow
from hangscope.report.words import ROLE_WORDS, ROLES, cut, cut_path, duration, first_of, grouped, listed

ROWS = 40
_FILES = 3


def _shortened(
    title: str,
    head: tuple[str, ...],
    rows: Sequence[Row],
    mono: tuple[int, ...],
    more: int,
    left_out: str,
    total: int | None = None,
) -> Table:
    """Return a table whose title says how much of a list it has: `All ranks, 40 of 1,024`. `more` of the `total` are not in it."""
    of = len(rows) + more if total is None else total
    counts = f"{of - more:,} of {of:,}" if more else f"{of:,}"
    return Table(f"{title}, {counts}", head, tuple(rows), mono, left_out if more else "")


def inputs(document: Document) -> Table:
    """Return what became of the inputs: those that were not used one by one, the others by kind and status."""
    dropped = [i for i in document.inputs if i.status != "used"]
    used = [i for i in document.inputs if i.status == "used"]
    is_short = len(used) + min(len(dropped), ROWS) <= ROWS
    rows = []
    for i in (*dropped[:ROWS], *(used if is_short else ())):
        rank, mark = (
            i.ranks or ("" if i.rank is None else str(i.rank)),
            "" if i.status == "used" else "dropped",
        )
        rows.append(Row((cut_path(i.file, 120), i.kind, rank, i.status, cut(i.reason, 300)), mark))
    for kind, items in sorted(grouped((i.kind, i) for i in used).items()) if not is_short else ():
        ranks = compress(i.rank for i in items if i.rank is not None)
        name = f"{sum(i.count or 1 for i in items):,} files, {cut_path(items[0].file, 80)} and others"
        rows.append(Row((name, kind, cut(ranks, 80) if ranks != "none" else "", "used", "")))
    more, head = max(0, len(dropped) - ROWS), ("File", "Kind", "Rank", "Status", "Reason")
    left_out = f"{more:,} more files were not used; the JSON report lists them."
    return _shortened("Input files", head, rows, (0, 2), more, left_out)


def windows(document: Document) -> Table:
    """Return which calls were kept."""
    found, head = document.coverage.windows, ("Ranks", "Group", "From seq", "To seq")
    rows = [Row((cut(w.ranks, 80), w.group, str(w.from_seq), str(w.to_seq))) for w in found[:ROWS]]
    more = len(found) - len(rows) + (document.coverage.windows_left_out or 0)
    left_out = f"{more:,} more windows; the JSON report lists them."
    return _shortened("Retained collectives", head, rows, (0, 1, 2, 3), more, left_out)


def groups(document: Document) -> Table:
    """Return the process groups, that of the verdict first; alike ones beyond the table's end are counted by role."""
    named = document.found.group
    own = (named.name, named.desc) if named is not None else None
    ordered = sorted(document.groups, key=lambda group: (group.name, group.desc) != own)
    rows = []
    for group in ordered[:ROWS]:
        ranks = group.ranks if isinstance(group.ranks, str) else compress(group.ranks)
        members = cut(ranks, 80) + ("" if group.members_known else " at least")
        name, role = group.name or "(unnamed)", group.role or ""
        rows.append(Row((name, group.desc, role, members, _frontier(group.frontier))))
    rest = Counter(group.role or group.desc or "other" for group in ordered[ROWS:])
    more, roles = sum(rest.values()), ", ".join(f"{count:,} {role}" for role, count in sorted(rest.items()))
    left_out = f"{counted(more, 'more group')} ({roles}); the JSON report lists them."
    head = ("Name", "Description", "Role", "Ranks", "Enqueued and completed")
    return _shortened("Process groups", head, rows, (0, 3, 4), more, left_out)


def _frontier(rows: Sequence[FrontierRow]) -> str:
    found = []
    for row in rows:
        completed = "not known" if row.completed is None else f"{'at least ' * row.at_least}{row.completed}"
        counts = f"{row.enqueued}, {completed}" if row.enqueued is not None else "not known"
        found.append(f"{cut(row.ranks, 40)}: {counts}")
    return "; ".join(first_of(found, _FILES, "and {} more"))


def ranks(document: Document) -> Table:
    """Return one row per rank, or per class of ranks of a large job, those of culprits first."""
    found, rows = sorted(document.ranks, key=lambda r: r.state != "culprit"), []
    for rank in found[:ROWS]:
        files = listed([cut_path(f, 60) for f in rank.files], _FILES)
        name, last = cut(rank.ranks or str(rank.rank), 80), cut(rank.last_call or "", 140)
        rows.append(Row((name, rank.host or "", rank.standing, rank.absence or "used", last, files)))
    total, more = (sum(r.count or 1 for r in some) for some in (found, found[ROWS:]))
    left_out = f"{counted(more, 'more rank')}; the search above shows each of them."
    head = ("Rank", "Host", "State", "Dump", "Last call on any group", "Files")
    return _shortened("All ranks", head, rows, (0, 1, 4, 5), more, left_out, total)


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
    named = [document.found.cause, *(h.cause for h in document.hypotheses)]
    named += [other.cause for other in document.found.alternatives]
    means = {cause: CATALOG[cause].means for cause in dict.fromkeys(named) if cause in CATALOG}
    if "unknown" in means and document.status != "hang":
        means["unknown"] = _NOT_SHOWN
    return tuple(means.items())


BRANCHES = 60
DEEPEST = 8  # further indents would leave no room for text


@dataclass(frozen=True, slots=True)
class StackRows:
    """The branches, each with its indent, its role and its lines, which may be user code; `left_out` of them are not listed."""

    rows: tuple[tuple[BranchPart, int, str, tuple[tuple[str, bool], ...]], ...]
    ranks: int
    left_out: int


def stack_rows(document: Document) -> StackRows | None:
    """Return the tree of the ranks' stacks; None where fewer than two ranks left one."""
    branches = document.stacks
    ranks = sum(branch.count for branch in branches if branch.depth == 0)
    if ranks < 2:
        return None
    named = frozenset(document.found.culprit_ranks)
    rows = []
    branches_with = Counter(frame for branch in branches for frame in set(branch.frames))
    depths = [*(branch.depth for branch in branches[1:]), 0]
    for branch, next_depth in zip(branches[:BRANCHES], depths, strict=False):
        is_named = all(rank in named for span in spans(branch.ranks) for rank in span)
        fork = _fork(branch, branches_with)
        lines = tuple(_lines(branch.frames, fork, next_depth <= branch.depth))
        rows.append((branch, min(branch.depth, DEEPEST), "culprit" if is_named else "", lines))
    return StackRows(tuple(rows), ranks, len(branches) - len(rows) + (document.stacks_left_out or 0))


def _fork(branch: BranchPart, branches_with: Counter[Frame]) -> int:
    """Return which frame of a branch is the first that only its ranks have: of a branch at the root, inside of one that others have; -1: none."""
    is_own = [branches_with[frame] == 1 for frame in branch.frames]
    shared = [branch.depth > 0, *(not own for own in is_own)]
    return next((i for i, own in enumerate(is_own) if own and shared[i]), -1)


def _lines(frames: tuple[Frame, ...], fork: int, is_leaf: bool) -> Iterator[tuple[str, bool]]:
    """Yield the frames of user code, the one at which a branch forks, and the innermost of a leaf, where it is."""
    shown = {fork, len(frames) - 1 if is_leaf else -1}
    for (user, alone), run in groupby(enumerate(frames), lambda item: (is_user(item[1]), item[0] in shown)):
        alike = [frame for _, frame in run]
        if user or alone or len(alike) == 1:
            yield from ((str(frame), user) for frame in alike)
        else:
            yield f"… {len(alike)} frames of libraries", False


_WIDTH = 160


def bar(row: FoldRow) -> list[tuple[str, float, float]]:
    """Return the parts of the bar: the role, where it begins and its width in pixels."""
    parts, x = [], 0.0
    for role, number in zip(ROLES, row.states, strict=False):
        if number:
            width = round(_WIDTH * number / max(1, row.count), 1)
            parts.append((role, round(x, 1), width))
            x += width
    return parts


def states_of(row: FoldRow, legend: Sequence[StateRow]) -> str:
    """Return how many ranks are in each state, in the words of the map's legend."""
    words = {**ROLE_WORDS, **{state.role: state.label for state in legend}}
    return ", ".join(f"{n:,} {words[role]}" for role, n in zip(ROLES, row.states, strict=False) if n)


def stalled(row: FoldRow) -> str:
    """Return when the ranks of a row stalled, after the first rank of the job; empty where that is not known."""
    ends = [ms for ms in (row.first_ms, row.last_ms) if ms is not None]
    return " to ".join(dict.fromkeys("first" if ms <= 0 else f"+{duration(ms / 1e3)}" for ms in ends))


CONTEXT = 2
FEW = 3  # differences with rows around them even where all calls are over: of many, the last ones tell most
AHEAD = 3  # of a long run that only one side made, so many at its ends are shown
MIN_FOLD = 4
MANY, FEW_ROWS = 12, 60  # sides that part so often play different parts: where they stand now is at the end
DIFF_ROWS = 400  # a diff with more differing rows than a page can hold is cut, and says so


@dataclass(frozen=True, slots=True)
class DiffList:
    """A call diff with its rows in runs, each with what its rows are called where they are folded into one line.

    `cut` rows before them, with `cut_differences`, are not listed. So many columns are `silent`: none of their collectives is known.
    """

    diff: CallDiff
    runs: tuple[tuple[tuple[DiffRow, ...], str], ...]
    labels: dict[int, DiffGroup]
    cut: int
    cut_differences: int
    silent: int


def diff_list(diff: CallDiff) -> DiffList:
    """Return the diff with identical rows folded, except some around each difference."""
    rows = diff.rows[-(DIFF_ROWS if diff.differences <= MANY else FEW_ROWS) :]
    matters = [i for i, row in enumerate(rows) if row.differs or row.is_open]
    shown: set[int] = set() if matters else {*range(max(0, len(rows) - MIN_FOLD), len(rows))}
    for i in matters:
        reach = CONTEXT if rows[i].is_open or diff.differences <= FEW else 0
        shown.update(range(i - reach, i + reach + 1))
    for start, end in _ahead(rows):
        shown.difference_update(range(start + AHEAD, end - AHEAD))
    runs = []
    for is_shown, run in groupby(range(len(rows)), key=shown.__contains__):
        alike = tuple(rows[i] for i in run)
        words = ""
        if not is_shown and len(alike) >= MIN_FOLD:
            are_alone = any(row.differs for row in alike)
            alike_in = "identical" if len(diff.classes) > 1 else "earlier"
            words = "collectives that were not reached" if are_alone else f"{alike_in} collectives"
        runs.append((alike, words))
    labels = {group.gid: group for group in diff.groups}
    numbers = {row.differs for row in diff.rows if row.differs} - {row.differs for row in rows}
    columns = zip(*(row.cells for row in diff.rows), strict=True)
    silent = sum(all(cell.mark in ("unseen", "no_part") for cell in column) for column in columns)
    return DiffList(diff, tuple(runs), labels, len(diff.rows) - len(rows), len(numbers), silent)


def _ahead(rows: Sequence[DiffRow]) -> Iterator[tuple[int, int]]:
    """Yield the runs of completed collectives that only the first column issued: how far it continued alone."""

    def is_alone(row: DiffRow) -> bool:
        absent = all(cell.mark in ("not_reached", "unseen", "no_part") for cell in row.cells[1:])
        return row.differs is not None and row.cells[0].state == "done" and absent

    end = 0
    for alone, run in groupby(rows, is_alone):
        start, end = end, end + len(list(run))
        if alone and end - start > 2 * AHEAD + MIN_FOLD:
            yield start, end
