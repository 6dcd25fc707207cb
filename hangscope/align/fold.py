"""Fold the ranks of a job by program: which of them deviate from the ranks of the same role, and by which edit.

A rank's program is the list of its calls over all its groups in the order in which it issued them. Ranks of one role run one
program: they are compared call by call, by position (the recorder numbers calls over all groups). A list that only ends earlier
is no difference (victims, dead ranks and early dumps end earlier); only another call is one. The minority leaves the vote at its
first difference. Calls are compared as exactly as they can be while at most a third of the ranks is outvoted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from hangscope.align.edits import Edit, How, edit_between
from hangscope.align.program import BARE, LEVELS, Programs
from hangscope.align.roles import roles
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import Absence, Incident

MOST_CLASSES = 512  # different programs in one role; more of them have nothing in common
MOST_PART = 3  # at most this part of the ranks is outvoted
NONE = -1  # no call at this position


@dataclass(frozen=True, slots=True)
class Deviation:
    """Ranks of one program that differs from the program of their role from `row` on.

    `votes`: how many ranks of the role agree against them; 0 where as many ranks deviate as agree, and only the latter continue
    the pattern that they repeated before. `peer` and `peer_row`: one of those that agree, and its call at that position. `edit`
    says what was added, left out, replaced or swapped, in rows of the two programs.
    """

    ranks: tuple[int, ...]
    row: int
    peer: int
    peer_row: int
    votes: int
    edit: Edit


@dataclass(slots=True)
class _Class:
    """Ranks with the same program: its positions, the token of each call, and that of its operation and group alone."""

    ranks: list[int]
    order: np.ndarray
    tokens: np.ndarray
    bare: np.ndarray


def fold(incident: Incident, programs: Programs) -> list[Deviation]:
    """Return which ranks deviate from the ranks of their role, those with most agreeing peers first; none where more than a third is outvoted."""
    ranks = [r for r, own in sorted(incident.ranks.items()) if own.seen and own.absence is not Absence.TOLD]
    alike = roles(incident, ranks, programs.tokens.group_kinds)
    by_role = [_by_columns(incident, own) for own in alike.values()]
    listed = sum(len(own) for shared in by_role for own in shared)
    complete = listed == len(incident.ranks)  # else the votes of those that are missing may decide
    for level in LEVELS:
        found = [d for d in _deviations(programs, by_role, level) if d.votes or complete]
        # Of a complete job, half of the ranks may deviate from the other half.
        outvoted = sum(len(d.ranks) for d in found if d.votes > len(d.ranks) * complete)
        if outvoted * MOST_PART <= listed:
            return sorted(found, key=lambda d: (-d.votes, d.ranks))
    return []


def _by_columns(incident: Incident, ranks: Sequence[int]) -> list[list[int]]:
    """Return the ranks that have calls, those together whose queues share their columns (and so their program)."""
    found: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for rank in ranks:
        record = incident.ranks[rank]
        queues = [q for of_gid in (record.queues, record.p2p) for _, q in sorted(of_gid.items()) if len(q)]
        key = tuple((id(q.kind), id(q.order)) for q in queues)
        if key:
            found[key].append(rank)
    return list(found.values())


def _deviations(programs: Programs, by_role: Sequence[list[list[int]]], level: int) -> list[Deviation]:
    classes = [_classes(programs, shared, level) for shared in by_role]
    made: Counter[int] = Counter()  # how many ranks issue a call
    for own in classes:
        for one in own:
            made.update(dict.fromkeys(np.unique(one.tokens).tolist(), len(one.ranks)))
    votes = (_Vote(programs, own, made) for own in classes if 1 < len(own) <= MOST_CLASSES)
    return [deviation for vote in votes for deviation in vote.deviations()]


def _classes(programs: Programs, shared: Sequence[list[int]], level: int) -> list[_Class]:
    """Return the different programs of one role."""
    found: dict[tuple[bytes, bytes], _Class] = {}
    for ranks in shared:
        program = programs.of(ranks[0])
        own, bare = (programs.tokens.of(program.gid, program.kind, one) for one in (level, BARE))
        key = program.order.tobytes(), own.tobytes()
        found.setdefault(key, _Class([], program.order, own, bare)).ranks.extend(ranks)
    return list(found.values())


class _Vote:
    """The programs of one role as a table with a row per class and a column per position; the minority leaves column by column."""

    def __init__(self, programs: Programs, classes: list[_Class], made: Counter[int]) -> None:
        self.programs, self.classes, self.made = programs, classes, made
        self.positions = np.unique(np.concatenate([one.order for one in classes]))
        self.table = np.full((len(classes), len(self.positions)), NONE, np.int64)
        for row, one in enumerate(classes):
            self.table[row, np.searchsorted(self.positions, one.order)] = one.tokens
        self.left = np.ones(len(classes), bool)

    def deviations(self) -> list[Deviation]:
        """Return how the programs of those that leave differ from the programs of those that stay."""
        gone: dict[int, tuple[int, bool]] = {}
        start = 0
        while (column := self._first_difference(start)) is not None:
            best, outvoted = self._best(column)
            if best is None:
                break  # from here on nobody knows who is right
            for row in np.flatnonzero(self._voting(column) & (self.table[:, column] != best)).tolist():
                self.left[row], gone[row] = False, (column, outvoted)
            start = column
        # Of those that left, some may have agreed only with others that left behind them.
        known = ((row, how) for row, how in sorted(gone.items()) if self._voting(how[0]).any())
        return [self._deviation(row, *how) for row, how in known]

    def _voting(self, column: int) -> np.ndarray:
        return np.asarray(self.left & (self.table[:, column] != NONE))

    def _first_difference(self, start: int) -> int | None:
        kept = self.table[self.left, start:]
        most, least = kept.max(axis=0), np.where(kept == NONE, 1 << 62, kept).min(axis=0)
        differing = np.flatnonzero((most != NONE) & (least != most))
        return start + int(differing[0]) if differing.size else None

    def _best(self, column: int) -> tuple[int | None, bool]:
        """Return the call at a column that counts as right, and whether the others are outvoted; None where votes are even and patterns do not decide."""
        ballots: Counter[int] = Counter()
        for row in np.flatnonzero(self._voting(column)).tolist():
            ballots[int(self.table[row, column])] += len(self.classes[row].ranks)
        # With equal votes a call that ranks elsewhere issue, too, beats one that nobody else issues.
        weight = {token: (n, self.made[token] > n) for token, n in ballots.items()}
        even = [token for token in weight if weight[token] == max(weight.values())]
        if len(even) == 1:
            return even[0], True
        keeping = [token for token in even if self._keeps_pattern(column, token)]
        return (keeping[0] if len(keeping) == 1 else None), False

    def _keeps_pattern(self, column: int, token: int) -> bool:
        row = int(np.flatnonzero(self.left & (self.table[:, column] == token))[0])
        at = int((self.table[row, :column] != NONE).sum())
        return self.programs.keeps_pattern(self.classes[row].ranks[0], at) is True

    def _deviation(self, row: int, column: int, outvoted: bool) -> Deviation:
        staying = [self.classes[one] for one in np.flatnonzero(self._voting(column)).tolist()]
        own, peers = self.classes[row], max(staying, key=lambda one: len(one.order))
        at, there = (int(np.searchsorted(one.order, self.positions[column])) for one in (own, peers))
        alike = own.bare[at:][: len(peers.bare) - there] == peers.bare[there:][: len(own.bare) - at]
        edit = edit_between(own.tokens, at, peers.tokens, there, bool(alike[0]), bool(alike.all()))
        others = [one for one in self.classes if one is not own]
        if edit.how is How.ADDED and all(own.tokens[at] not in one.tokens for one in others):
            staying = others  # none of them ever issues this call
        votes = sum(len(one.ranks) for one in staying) if outvoted else 0
        return Deviation(tuple(sorted(own.ranks)), at, peers.ranks[0], there, votes, edit)
