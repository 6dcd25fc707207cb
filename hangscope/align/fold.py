"""Fold the ranks of a job by program: which of them deviate from the ranks of the same role, and by which edit.

A rank's program is the list of its calls over all its groups in the order of their enqueue. Ranks of one role run one program:
they are compared call by call, by their position (the recorder numbers calls over all groups). A list that only ends earlier is
no difference (victims, dead ranks and early dumps end earlier); only another call is one. The minority leaves the vote at its
first difference. Calls are compared as exactly as they can be while at most a third of the ranks deviates.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from hangscope.align.edits import Edit, How, edit_between
from hangscope.align.program import Programs
from hangscope.align.roles import roles
from hangscope.align.tokens import LEVELS, Tokens
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import Absence, Incident

MOST_CLASSES = 512  # different programs in one role; more of them have nothing in common
MOST_PART = 3  # at most this part of the ranks deviates
NONE = -1  # no call at this position


@dataclass(frozen=True, slots=True)
class Deviation:
    """Ranks of one program that parts from what `votes` ranks of their role agree on, at `row` of it.

    `peer` and `peer_row`: one of those that agree, and its call at that position. `edit` says what was added, left out, exchanged
    or swapped, in rows of the two programs.
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
    """Return who deviates from the ranks of its role, those with most agreeing peers first; nobody where more than a third does.

    Lines that state single calls of a rank give no program of it.
    """
    ranks = [r for r, own in sorted(incident.ranks.items()) if own.seen and own.absence is not Absence.TOLD]
    by_role = [_by_columns(incident, own) for own in roles(incident, ranks).values()]
    listed = sum(len(own) for shared in by_role for own in shared)
    tokens = Tokens(incident)
    for level in range(LEVELS):
        found = _deviations(programs, tokens, by_role, level)
        if sum(len(deviation.ranks) for deviation in found) * MOST_PART <= listed:
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


def _deviations(
    programs: Programs, tokens: Tokens, by_role: Sequence[list[list[int]]], level: int
) -> list[Deviation]:
    classes = [_classes(programs, tokens, shared, level) for shared in by_role]
    made: Counter[int] = Counter()  # how many ranks make a call
    for own in classes:
        for one in own:
            made.update(dict.fromkeys(np.unique(one.tokens).tolist(), len(one.ranks)))
    return [deviation for own in classes for deviation in _vote(own, made)]


def _classes(programs: Programs, tokens: Tokens, shared: Sequence[list[int]], level: int) -> list[_Class]:
    """Return the different programs of one role."""
    found: dict[tuple[bytes, bytes], _Class] = {}
    for ranks in shared:
        program = programs.of(ranks[0])
        own, bare = tokens.of(program, level), tokens.of(program, LEVELS - 1)
        key = program.order.tobytes(), own.tobytes()
        found.setdefault(key, _Class([], program.order, own, bare)).ranks.extend(ranks)
    return list(found.values())


def _vote(classes: list[_Class], made: Counter[int]) -> list[Deviation]:
    """Walk the programs of one role by position and let the minority leave at its first difference."""
    if not 1 < len(classes) <= MOST_CLASSES:
        return []
    positions = np.unique(np.concatenate([one.order for one in classes]))
    table = np.full((len(classes), len(positions)), NONE, np.int64)
    for row, one in enumerate(classes):
        table[row, np.searchsorted(positions, one.order)] = one.tokens
    left, gone = np.ones(len(classes), bool), dict[int, int]()
    while True:
        kept = table[left]
        most, least = kept.max(axis=0), np.where(kept == NONE, 1 << 62, kept).min(axis=0)
        differing = np.flatnonzero((most != NONE) & (least != most))
        if not differing.size:
            break
        column = int(differing[0])
        ballots: Counter[int] = Counter()
        for row in np.flatnonzero(left & (table[:, column] != NONE)).tolist():
            ballots[int(table[row, column])] += len(classes[row].ranks)
        # With equal votes a call that ranks elsewhere make, too, beats one that nobody else makes.
        weight = {token: (n, made[token] > n) for token, n in ballots.items()}
        best = max(weight, key=lambda token: weight[token])
        if list(weight.values()).count(weight[best]) > 1:
            table = table[:, :column]  # from here on nobody knows who is right
            continue
        for row in np.flatnonzero(left & (table[:, column] != NONE) & (table[:, column] != best)).tolist():
            left[row], gone[row] = False, column
    return [
        _deviation(classes, left & (table[:, column] != NONE), row, int(positions[column]))
        for row, column in sorted(gone.items())
    ]


def _deviation(classes: list[_Class], agreeing: np.ndarray, row: int, position: int) -> Deviation:
    """Return how a program parts at a position from those of the classes that agree there."""
    staying = np.flatnonzero(agreeing).tolist()
    own, peers = classes[row], max((classes[one] for one in staying), key=lambda one: len(one.order))
    at, there = (int(np.searchsorted(one.order, position)) for one in (own, peers))
    edit = edit_between(own.tokens, at, peers.tokens, there, own.bare[at] == peers.bare[there])
    votes = sum(len(classes[one].ranks) for one in staying)
    if edit.how is How.ADDED and all(own.tokens[at] not in one.tokens for one in classes if one is not own):
        votes = sum(len(one.ranks) for one in classes) - len(own.ranks)  # none of them ever makes this call
    return Deviation(tuple(sorted(own.ranks)), at, peers.ranks[0], there, votes, edit)
