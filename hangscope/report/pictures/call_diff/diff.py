"""The call diff: the programs of the classes of ranks, aligned like a side-by-side code diff."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from hangscope.align.p2p import PairInstance
from hangscope.model.incident import on_group
from hangscope.model.rankset import compress
from hangscope.report.pictures.call_diff.behaviour import Behaviour, Call, Program
from hangscope.report.pictures.call_diff.columns import align, choose
from hangscope.report.pictures.call_diff.logged_calls import logged_diff, logged_row, logged_state
from hangscope.report.schema.pictures import CallDiff, DiffCell, DiffClass, DiffGroup, DiffRow
from hangscope.report.subject import Subject
from hangscope.report.words import ROLE_WORDS, grouped

ROWS_BEFORE = 60  # alike calls that are listed before the first difference
OTHERS_LISTED = 8
RANKS_COMPARED, SIZES_LISTED = 64, 3  # of one column
Cells = tuple[DiffCell, ...]


def call_diff(subject: Subject, classes: list[Behaviour]) -> CallDiff | None:
    """Return the diff of an incident, or None where no rank's calls are known."""
    chosen = choose(subject, classes)
    if not chosen:
        return logged_diff(subject)
    rows = _numbered(_Diff(subject, chosen).rows())
    if not any(row.differs for row in rows):
        rows += logged_row(subject, chosen)
    first = next((i for i, row in enumerate(rows) if row.differs or row.is_open), len(rows) - 1)
    earlier = max(0, first - ROWS_BEFORE)
    others = _merged(subject, [behaviour for behaviour in classes if behaviour not in chosen])
    records = subject.incident.ranks
    older = (sum(map(len, records[b.ranks[0]].all_queues)) - len(b.program) for b in chosen)
    return CallDiff(
        classes=tuple(_class(subject, behaviour) for behaviour in chosen),
        groups=_groups(subject, chosen, rows),
        rows=tuple(rows[earlier:]),
        earlier=earlier,
        older=max(0, *older),
        differences=max((row.differs or 0 for row in rows), default=0),
        left_out=tuple(others[:OTHERS_LISTED]),
        classes_left_out=max(0, len(others) - OTHERS_LISTED),
        ranks_left_out=sum(other.count for other in others[OTHERS_LISTED:]),
    )


def _merged(subject: Subject, others: list[Behaviour]) -> list[DiffClass]:
    """Return the classes without a column; those that are in the same collectives are one."""
    found = grouped(((c.role, c.standing), (c, b)) for b in others for c in (_class(subject, b),))
    merged = []
    for alike in found.values():
        ranks = sorted(rank for _, behaviour in alike for rank in behaviour.ranks)
        merged.append(replace(alike[0][0], ranks=compress(ranks), count=len(ranks)))
    return sorted(merged, key=lambda c: -c.count)


def _groups(subject: Subject, chosen: list[Behaviour], rows: list[DiffRow]) -> tuple[DiffGroup, ...]:
    """Return the groups of the listed calls; where ranks of a column have groups of their own, by what these are for."""
    first: dict[int, Behaviour] = {}  # the class that is the first to call on a group
    for row in rows:
        for cell, behaviour in zip(row.cells, chosen, strict=True):
            if cell.group is not None:
                first.setdefault(cell.group, behaviour)
    numbers: dict[tuple[str, int], int] = {}
    found = []
    for gid in sorted(first):
        group = subject.incident.groups[gid]
        number = numbers.setdefault((group.desc or group.name, len(group.ranks)), len(numbers))
        short = "" if set(first[gid].ranks) <= set(group.ranks) else group.desc or group.role or ""
        found.append(DiffGroup(gid, group.label, number % 8, short))
    return tuple(found)


class _Column:
    """A class of ranks whose program is compared with the base.

    `lost` are the tokens of the base that it has nowhere, `inserted` those that only it has where it has them.
    """

    def __init__(self, base: Program, behaviour: Behaviour) -> None:
        self.behaviour, self.program = behaviour, behaviour.program
        self.alignment = found = align(base, self.program)
        self.issued = frozenset(self.program.tokens)
        self.lost = {base.tokens[row] for row in range(found.start, len(base)) if row not in found.matched}
        self.inserted = {self.program.tokens[own] for rows in found.inserted.values() for own in rows}


class _Diff:
    """The programs of the chosen classes, the first of which is the base that the others are aligned with."""

    def __init__(self, subject: Subject, chosen: list[Behaviour]) -> None:
        self.subject, self.first, self.base = subject, chosen[0], chosen[0].program
        self.issued = frozenset(self.base.tokens)
        self.by_order = subject.verdict.cause == "collective_order_mismatch"
        self.columns = [_Column(self.base, behaviour) for behaviour in chosen[1:]]

    def rows(self) -> Iterator[Cells]:
        """Yield the cells of all rows, the first for the base."""
        for place, column in enumerate(self.columns):
            for own in range(column.alignment.own_start):  # before the window that all kept
                if not (call := column.program.call(own)).is_done:
                    cell = self._cell(column.behaviour, call, "state")
                    yield self._alone(place, cell, DiffCell("unseen", note="not kept"))
        starts = (c.alignment.start for c in self.columns if c.alignment.last >= 0)
        for row in range(max(starts, default=0), len(self.base) + 1):
            for place, column in enumerate(self.columns):
                for own in column.alignment.inserted.get(row, ()):
                    yield self._alone(place, self._inserted(column, row, own), DiffCell("same"))
            if row < len(self.base):
                cells = [self._against(column, row) for column in self.columns]
                mark = "swapped" if any(cell.mark == "swapped" for cell in cells) else "same"
                yield (self._cell(self.first, self.base.call(row), mark), *cells)

    def _inserted(self, column: _Column, row: int, own: int) -> DiffCell:
        """Return a collective that comes before a row of the base and that the base does not have there."""
        token, call, is_after = (
            column.program.tokens[own],
            column.program.call(own),
            row > column.alignment.last,
        )
        if self._issued(self.base, call) and (
            token in column.lost or (is_after and token in self.issued and bool(column.lost & column.issued))
        ):
            return self._cell(column.behaviour, call, "swapped", "in another order")
        return self._cell(column.behaviour, call, "extra", "only here")

    def _alone(self, place: int, cell: DiffCell, others: DiffCell) -> Cells:
        cells = [others] * (len(self.columns) + 1)
        cells[place + 1] = cell
        return tuple(cells)

    def _issued(self, program: Program, call: Call) -> bool:
        """Return whether a program has a call, on the same group or one for the same purpose, at any place; or will have it, by the verdict."""
        alike = (program.purpose == call.purpose) & (program.seq == call.seq)
        return self.by_order or bool(alike.any())

    def _against(self, column: _Column, row: int) -> DiffCell:
        """Return what a class has at a row of the base."""
        program, alignment, call = column.program, column.alignment, self.base.call(row)
        if not self._has_part(column.behaviour, call):
            return DiffCell("no_part", note="not in this group")
        if not len(program):
            return DiffCell("unseen")
        if row in alignment.matched:
            own = program.call(alignment.matched[row])
            # By the verdict its sizes do not fit; those of an all_to_all may differ elsewhere.
            is_misfit = (self.subject.verdict.cause, self.subject.gid) == ("shape_mismatch", call.gid)
            if is_misfit and call.seq == self.subject.verdict.seq and _difference(call, own) == "other sizes":
                return self._cell(column.behaviour, own, "differs", "other sizes")
            shifted = f"seq {call.seq} of the others" if own.seq != call.seq and not own.is_done else ""
            return self._cell(column.behaviour, own, "same" if own.state == call.state else "state", shifted)
        if row in alignment.paired:
            own = program.call(alignment.paired[row])
            return self._cell(column.behaviour, own, "differs", _difference(call, own))
        token, is_after = self.base.tokens[row], row > alignment.last
        if self._issued(program, call) and (
            token in column.inserted
            or (is_after and column.inserted & self.issued and token in column.issued)
        ):
            return DiffCell("swapped", note="in another order")
        # A thread has an order of its own: only a later call of a thread shows that it went past this one.
        if call.kind.of_a_thread:
            is_after = not any(
                later > row and self.base.call(later).kind.of_a_thread for later in alignment.matched
            )
        mark, note = ("not_reached", "not issued") if is_after else ("left_out", "skipped")
        return DiffCell(mark, note=note)

    def _has_part(self, behaviour: Behaviour, call: Call) -> bool:
        if call.purpose in behaviour.purposes:
            return True
        groups = self.subject.incident.groups
        group, rank = groups[call.gid], behaviour.ranks[0]
        if behaviour.role != "culprit" and len(behaviour.program):
            return rank in group.ranks
        alike = (g for g in groups if (g.desc, len(g.ranks)) == (group.desc, len(group.ranks)))
        return not group.members_known or any(rank in other.ranks for other in alike)

    def _cell(self, behaviour: Behaviour, call: Call, mark: str, note: str = "") -> DiffCell:
        """Return a call of a class; what its ranks do not share, such as a peer, is that of the first one, which is named."""
        kind, op, sizes = call.kind, call.kind.op, call.sizes
        several = len(behaviour.ranks) > 1
        if kind.src is not None and kind.dst is not None:
            ranks = self.subject.incident.groups[call.gid].ranks
            peer = kind.dst if op == "send" else kind.src
            if 0 <= peer < len(ranks):
                op += f" {'to' if op == 'send' else 'from'} {ranks[peer]}"
                op += f" (rank {behaviour.ranks[0]})" if several else ""
        elif several and not call.is_done:
            sizes = self._sizes(behaviour, call)
        return DiffCell(mark, call.state, op, call.seq, sizes, call.site, call.gid, note)

    def _sizes(self, behaviour: Behaviour, call: Call) -> str:
        """Return the sizes of an open collective, of ranks that pass different ones each with its ranks."""
        kinds, found = self.subject.incident.kinds, dict[str, list[int]]()
        for rank in behaviour.ranks[:RANKS_COMPARED]:
            queue = self.subject.incident.ranks[rank].queues.get(call.gid)
            if queue is not None and len(rows := (queue.seq == call.seq).nonzero()[0]):
                own = replace(call, kind=kinds[int(queue.kind[rows[-1]])])
                found.setdefault(own.sizes, []).append(rank)
        if len(found) < 2:
            return call.sizes
        parts = sorted(found.items(), key=lambda part: -len(part[1]))
        return "; ".join(f"{compress(ranks)}: {sizes}" for sizes, ranks in parts[:SIZES_LISTED])


def _numbered(rows: Iterable[Cells]) -> list[DiffRow]:
    """Return the rows with the number of the difference that each belongs to: adjacent rows that differ are one."""
    number, inside = 0, False
    numbered = []
    for cells in rows:
        differs = any(cell.mark not in ("same", "unseen", "no_part") for cell in cells)
        number += differs and not inside
        inside = differs
        numbered.append(DiffRow(cells, number if differs else None))
    return numbered


def _difference(call: Call, own: Call) -> str:
    one, other = call.kind, own.kind
    if one.op != other.op:
        return "another collective"
    parts = (
        ("another peer", (one.src is None) or (one.dst, one.src) == (other.dst, other.src)),
        ("other sizes", (one.input_sizes, one.output_sizes) == (other.input_sizes, other.output_sizes)),
        ("another type", (one.input_dtypes, one.output_dtypes) == (other.input_dtypes, other.output_dtypes)),
        ("another root", one.root == other.root),
        ("another line", call.site == own.site),
    )
    return ", ".join(word for word, equal in parts if not equal) or "another collective"


def _class(subject: Subject, behaviour: Behaviour) -> DiffClass:
    rank, call = behaviour.ranks[0], subject.first_open(behaviour.ranks[0])
    if call is not None:
        groups = {c.gid for r in behaviour.ranks if (c := subject.first_open(r)) is not None}
        where = subject.on_group(call.gid) if len(groups) == 1 else f" on {len(groups)} groups"
        name = subject.call_name(call.node, rank)
        if isinstance(call.node, PairInstance):
            kind = subject.kind_of(call.node, rank)
            name = kind.op if kind else "a send or receive"
        standing = f"in {name}{where}"
    elif not (standing := logged_state(subject, behaviour)):
        absence = subject.incident.ranks[rank].absence
        unknown = "none of its collectives is known"
        standing = f"{absence.value}; {unknown}" if absence is not None else unknown
        if len(behaviour.program):
            own = behaviour.program.call(-1)
            group = subject.incident.groups[own.gid]
            label = group.label if set(behaviour.ranks) <= set(group.ranks) else group.desc or group.label
            last = f"last enqueued: {own.kind.op} seq {own.seq} {on_group(label)}"
            standing = f"{last}, whose end is not recorded"
            standing = standing if own.state == "unknown" else f"{ROLE_WORDS['idle']}; {last}"
    return DiffClass(compress(behaviour.ranks), len(behaviour.ranks), behaviour.role, standing, rank)
