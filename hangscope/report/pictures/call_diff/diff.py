"""The call diff: the programs of the classes of ranks, aligned like a side-by-side code diff."""

from __future__ import annotations

from dataclasses import replace

from hangscope.align.p2p import PairInstance
from hangscope.model.incident import State
from hangscope.model.rankset import compress
from hangscope.report.pictures.call_diff.alignment import Alignment, align
from hangscope.report.pictures.call_diff.behaviour import Behaviour, Program
from hangscope.report.pictures.call_diff.columns import choose
from hangscope.report.pictures.call_diff.logged_calls import logged_diff, logged_row, logged_state
from hangscope.report.schema.pictures import CallDiff, DiffCell, DiffClass, DiffGroup, DiffRow
from hangscope.report.subject import Subject, site_of, sizes_of, state_word
from hangscope.report.words import ROLE_WORDS

ROWS_BEFORE = 60  # alike calls that are listed before the first difference
OTHERS_LISTED = 8


def call_diff(subject: Subject, classes: list[Behaviour]) -> CallDiff | None:
    """Return the diff of an incident, or None where no rank's calls are known."""
    chosen = choose(subject, classes)
    if not chosen:
        return logged_diff(subject)
    base = chosen[0].program
    alignments = [align(base, behaviour.program) for behaviour in chosen[1:]]
    rows = _rows(subject, base, chosen, alignments)
    if not any(row.differs for row in rows):
        rows += logged_row(subject, chosen)
    first = next((i for i, row in enumerate(rows) if row.differs or _is_open(row)), len(rows) - 1)
    earlier = max(0, first - ROWS_BEFORE)
    others = [behaviour for behaviour in classes if behaviour not in chosen]
    return CallDiff(
        classes=tuple(_class(subject, behaviour) for behaviour in chosen),
        groups=_groups(subject, chosen, rows),
        rows=tuple(rows[earlier:]),
        earlier=earlier,
        differences=max((row.differs or 0 for row in rows), default=0),
        left_out=tuple(_class(subject, behaviour) for behaviour in others[:OTHERS_LISTED]),
        classes_left_out=max(0, len(others) - OTHERS_LISTED),
        ranks_left_out=sum(len(b.ranks) for b in others[OTHERS_LISTED:]),
    )


def _groups(subject: Subject, chosen: list[Behaviour], rows: list[DiffRow]) -> tuple[DiffGroup, ...]:
    """Return the groups of the listed calls; where ranks of a column have groups of their own, by what these are for."""
    shared: dict[int, bool] = {}
    for row in rows:
        for cell, behaviour in zip(row.cells, chosen, strict=True):
            if cell.group is not None and cell.group not in shared:
                members = set(subject.incident.groups[cell.group].ranks)
                shared[cell.group] = members.issuperset(behaviour.ranks)
    numbers: dict[tuple[str, int], int] = {}
    found = []
    for gid, whole in sorted(shared.items()):
        group = subject.incident.groups[gid]
        number = numbers.setdefault((group.desc or group.name, len(group.ranks)), len(numbers))
        short = "" if whole else group.desc or group.role or ""
        found.append(DiffGroup(gid, group.label, number % 8, short))
    return tuple(found)


def _rows(
    subject: Subject, base: Program, chosen: list[Behaviour], alignments: list[Alignment]
) -> list[DiffRow]:
    start = max((a.start for a in alignments if a.last >= 0), default=0)
    made = [frozenset(behaviour.program.tokens) for behaviour in chosen]
    rows: list[tuple[DiffCell, ...]] = _before(subject, chosen, alignments)
    for row in range(start, len(base) + 1):
        rows += _insertions(subject, base, chosen, alignments, row, made)
        if row < len(base):
            cells = [_cell(subject, base, row, "same")]
            for column, alignment in enumerate(alignments, 1):
                cells.append(_against(subject, base, row, chosen[column], alignment, made))
            if any(cell.mark == "swapped" for cell in cells):
                cells[0] = replace(cells[0], mark="swapped")
            rows.append(tuple(cells))
    number, inside = 0, False
    numbered = []
    for cells_of in rows:
        differs = any(cell.mark not in ("same", "unseen", "no_part") for cell in cells_of)
        number += differs and not inside
        inside = differs
        numbered.append(DiffRow(cells_of, number if differs else None))
    return numbered


def _before(
    subject: Subject, chosen: list[Behaviour], alignments: list[Alignment]
) -> list[tuple[DiffCell, ...]]:
    """Return the open calls of classes from before the window that all kept: of the others they are not known."""
    result: list[tuple[DiffCell, ...]] = []
    for column, alignment in enumerate(alignments, 1):
        program = chosen[column].program
        for own in range(alignment.own_start):
            if int(program.state[own]) != State.DONE:
                cells = [DiffCell("unseen", note="not kept") for _ in chosen]
                cells[column] = _cell(subject, program, own, "state")
                result.append(tuple(cells))
    return result


def _against(
    subject: Subject,
    base: Program,
    row: int,
    behaviour: Behaviour,
    alignment: Alignment,
    made: list[frozenset[int]],
) -> DiffCell:
    """Return what a class has at a row of the base."""
    program = behaviour.program
    if not _has_part(subject, behaviour, base, row):
        return DiffCell("no_part", note="not in this group")
    if not len(program):
        return DiffCell("unseen", note="none of its collectives is known")
    if row in alignment.matched:
        own = alignment.matched[row]
        if (
            _fits_not(subject, base, row)
            and (why := _difference(subject, base, row, program, own)) == "other sizes"
        ):
            return replace(_cell(subject, program, own, "differs"), note=why)
        same = int(program.state[own]) == int(base.state[row])
        return _cell(subject, program, own, "same" if same else "state")
    if row in alignment.paired:
        own = alignment.paired[row]
        return replace(
            _cell(subject, program, own, "differs"), note=_difference(subject, base, row, program, own)
        )
    inserted = {program.tokens[own] for rows in alignment.inserted.values() for own in rows}
    if base.tokens[row] in inserted or (
        row > alignment.last and inserted & made[0] and base.tokens[row] in made_by(program)
    ):
        return DiffCell("swapped", note="in another order")
    if row > alignment.last:
        return DiffCell("not_reached", note="not reached")
    return DiffCell("left_out", note="skipped")


def _has_part(subject: Subject, behaviour: Behaviour, base: Program, row: int) -> bool:
    """Return whether a class has a group with the purpose of a base row's group."""
    if int(base.purpose[row]) in behaviour.purposes:
        return True
    group = subject.incident.groups[int(base.gid[row])]
    if behaviour.role != "culprit" and len(behaviour.program):
        return behaviour.ranks[0] in group.ranks
    return not group.members_known or any(
        behaviour.ranks[0] in other.ranks
        for other in subject.incident.groups
        if (other.desc, len(other.ranks)) == (group.desc, len(group.ranks))
    )


def made_by(program: Program) -> frozenset[int]:
    """Return the tokens of a program."""
    return frozenset(program.tokens)


def _insertions(
    subject: Subject,
    base: Program,
    chosen: list[Behaviour],
    alignments: list[Alignment],
    row: int,
    made: list[frozenset[int]],
) -> list[tuple[DiffCell, ...]]:
    """Return the rows of collectives that come before a row of the base and that the base does not have."""
    result: list[tuple[DiffCell, ...]] = []
    for column, alignment in enumerate(alignments, 1):
        program = chosen[column].program
        lost = {base.tokens[r] for r in range(alignment.start, len(base)) if r not in alignment.matched}
        for own in alignment.inserted.get(row, ()):
            token = program.tokens[own]
            swapped = token in lost or (
                token in made[0] and bool(lost & made[column]) and row > alignment.last
            )
            cells = [DiffCell("same") for _ in chosen]
            cells[column] = replace(
                _cell(subject, program, own, "swapped" if swapped else "extra"),
                note="in another order" if swapped else "only here",
            )
            result.append(tuple(cells))
    return result


def _cell(subject: Subject, program: Program, row: int, mark: str) -> DiffCell:
    kind = subject.incident.kinds[int(program.kind[row])]
    op = kind.op
    if kind.src is not None and kind.dst is not None:
        ranks = subject.incident.groups[int(program.gid[row])].ranks
        peer = kind.dst if op == "send" else kind.src
        if 0 <= peer < len(ranks):
            op += f" {'to' if op == 'send' else 'from'} {ranks[peer]}"
    return DiffCell(
        mark=mark,
        state=state_word(int(program.state[row])),
        op=op,
        seq=int(program.seq[row]),
        sizes=sizes_of(kind),
        site=site_of(kind),
        group=int(program.gid[row]),
    )


def _fits_not(subject: Subject, base: Program, row: int) -> bool:
    """Return whether a row is the call whose sizes the verdict says do not fit: those of an all_to_all may differ elsewhere."""
    verdict = subject.verdict
    shape = verdict is not None and verdict.cause == "shape_mismatch" and subject.gid is not None
    return shape and (int(base.gid[row]), int(base.seq[row])) == (
        subject.gid,
        verdict.seq if verdict else None,
    )


def _difference(subject: Subject, base: Program, row: int, program: Program, own: int) -> str:
    kinds = subject.incident.kinds
    one, other = kinds[int(base.kind[row])], kinds[int(program.kind[own])]
    parts = (
        ("another call", one.op == other.op),
        ("another peer", (one.src is None) or (one.dst, one.src) == (other.dst, other.src)),
        ("other sizes", (one.input_sizes, one.output_sizes) == (other.input_sizes, other.output_sizes)),
        ("another type", (one.input_dtypes, one.output_dtypes) == (other.input_dtypes, other.output_dtypes)),
        ("another root", one.root == other.root),
        ("another line", site_of(one) == site_of(other)),
    )
    words = [word for word, equal in parts if not equal]
    return words[0] if words[:1] == ["another call"] else ", ".join(words) or "another call"


def _is_open(row: DiffRow) -> bool:
    return any(cell.state and cell.state != state_word(State.DONE) for cell in row.cells)


def _made_last(subject: Subject, behaviour: Behaviour) -> str:
    """Return the last collective that the ranks of a class issued, on any group."""
    program = behaviour.program
    kind, gid = subject.incident.kinds[int(program.kind[-1])], int(program.gid[-1])
    group = subject.incident.groups[gid]
    label = group.label if set(behaviour.ranks) <= set(group.ranks) else group.desc or group.label
    return f"last enqueued: {kind.op} seq {int(program.seq[-1])} on group {label}"


def _class(subject: Subject, behaviour: Behaviour) -> DiffClass:
    rank = behaviour.ranks[0]
    call = subject.first_open(rank)
    if call is not None:
        groups = {c.gid for r in behaviour.ranks[:64] if (c := subject.first_open(r)) is not None}
        where = subject.on_group(call.gid) if len(groups) == 1 else f" on {len(groups)} groups"
        standing = f"in {subject.call_name(call.node, rank)}{where}"
        if isinstance(call.node, PairInstance):
            kind = subject.kind_of(call.node, rank)
            standing = f"in {kind.op if kind else 'a send or receive'}{where}"
    elif not len(behaviour.program):
        record = subject.incident.ranks[rank]
        standing = record.absence.value if record.absence is not None else "none of its collectives is known"
        standing = logged_state(subject, behaviour) or standing
    else:
        standing = (
            logged_state(subject, behaviour) or f"{ROLE_WORDS['idle']}; {_made_last(subject, behaviour)}"
        )
    return DiffClass(compress(behaviour.ranks), len(behaviour.ranks), behaviour.role, standing, rank)
