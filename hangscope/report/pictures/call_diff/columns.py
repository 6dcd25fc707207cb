"""The columns of the call diff: which classes of ranks get one, and how two programs align, as a code diff lays two texts side by side."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field
from difflib import SequenceMatcher

import numpy as np

from hangscope.model.dataclass import dataclass
from hangscope.model.incident import State
from hangscope.report.pictures.call_diff.behaviour import Behaviour, Program
from hangscope.report.subject import Subject

COLUMNS = 4
COMPARED = 16  # classes whose order of calls is compared with the culprit's
LIKE = 0.5  # classes less alike play different parts, and a comparison of their calls says nothing
_LEADING = 16


def choose(subject: Subject, classes: list[Behaviour]) -> list[Behaviour]:
    """Return the classes that get a column: what the culprits are compared with, the culprits, who else waits in the call."""
    verdict, view = subject.verdict, subject.view
    inside = frozenset(verdict.in_call)
    culprits = [b for b in classes if b.role == "culprit"]
    others = [b for b in classes if b.role != "culprit" and len(b.program)]
    # In an order all call the same, and the side that is waited for tells more than the one that is most alike.
    ordered = verdict.cause == "collective_order_mismatch"
    known = next((b for b in culprits if len(b.program)), None)
    calls = {b.ranks[0]: subject.first_open(b.ranks[0]) for b in (*culprits, *others)}
    nodes = {rank: call.node for rank, call in calls.items() if call is not None}
    pending = calls[known.ranks[0]] if known is not None else None
    peers = frozenset(subject.incident.groups[pending.gid].ranks if pending is not None else ())
    own = nodes.get(known.ranks[0]) if known is not None and ordered else None
    others.sort(
        key=lambda b: (
            -round(8 * likeness(b, known)) if known is not None and not ordered else 0,
            own is not None and nodes.get(b.ranks[0]) == own,  # this shows nothing about an order
            peers.isdisjoint(b.ranks),
            not inside.intersection(b.ranks),
            known is not None and b.purposes != known.purposes,
            -len(b.ranks),
            b.ranks[0],
        )
    )
    if not others:
        return [b for b in culprits if len(b.program)][:COLUMNS]
    room = COLUMNS - 1
    if known is not None and not ordered:
        others[:COMPARED] = sorted(others[:COMPARED], key=lambda b: -round(8 * in_order(b, known)))
    if culprits:
        peer = others[0]
        # Culprits of another part (a stage of its own, say) are beside their peers, and not beside these.
        near = in_order(known, peer) if known is not None else 0.0
        shown = [b for b in culprits if b is known or not len(b.program) or 2 * in_order(b, peer) >= near]
        return [peer, *shown[:room]]
    # Where nobody is named, who left the call tells as much as who is still in it.
    members = inside.union(
        view.members if view is not None else (), () if verdict.cause else subject.incident.ranks
    )
    suspects = frozenset(verdict.suspect_ranks if len(verdict.suspect_ranks) <= COLUMNS else ())
    if verdict.is_p2p:
        members, suspects = frozenset(), frozenset()  # the two ends of a pair play different parts
    first, *rest = sorted(others, key=lambda b: not suspects.issuperset(b.ranks))
    beside = [
        b
        for b in rest
        if suspects.issuperset(b.ranks)
        or (members.intersection(b.ranks) and likeness(b, first) >= LIKE and meet(b, first))
    ]
    return [first, *beside[:room]]


def in_order(one: Behaviour, other: Behaviour) -> float:
    """Return which part of the longer program is in the same order in both, 0 to 1: pipeline stages issue the same collectives in turns."""
    return len(align(one.program, other.program).matched) / max(1, len(one.program), len(other.program))


def meet(one: Behaviour, other: Behaviour) -> bool:
    """Return whether the retained windows of two classes share a collective: dumps of different moments may not."""
    mine, theirs = (set(zip(b.program.purpose, b.program.seq, strict=True)) for b in (one, other))
    return bool(mine & theirs)


def likeness(one: Behaviour, other: Behaviour) -> float:
    """Return how similar the collectives of two classes are, 0 to 1: replicas are similar, pipeline stages are not."""
    mine, theirs = set(one.program.tokens), set(other.program.tokens)
    return len(mine & theirs) / max(1, len(mine | theirs))


@dataclass(slots=True)
class Alignment:
    """How one program aligns with a base.

    `start` and `own_start`: the first rows of the base and of the other that can be compared. `matched` and `paired` give the other's row of a
    base row: the same call, or a different call at the same place. `inserted[i]`: the other's rows before base row i.
    """

    start: int
    own_start: int = 0
    matched: dict[int, int] = field(default_factory=dict)
    paired: dict[int, int] = field(default_factory=dict)
    inserted: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    @property
    def last(self) -> int:
        """Return the last base row that the other reached, -1 where it reached none."""
        return max((*self.matched, *self.paired), default=-1)


def align(base: Program, other: Program) -> Alignment:
    """Return how `other` aligns with `base`: their common beginning first, then the longest runs in common."""
    begin, own_begin = _common_window(base, other)
    a, b = base.tokens[begin:], other.tokens[own_begin:]
    result = Alignment(begin, own_begin)
    common = 0
    while common < min(len(a), len(b)) and a[common] == b[common]:
        result.matched[begin + common] = own_begin + common
        common += 1
    if not common:
        lost, own_lost = _before_both(base, other, begin, own_begin)
        result.start, result.own_start = begin, own_begin = begin + lost, own_begin + own_lost
        a, b = a[lost:], b[own_lost:]
    matcher = SequenceMatcher(None, a[common:], b[common:], autojunk=False)
    begin, own_begin = begin + common, own_begin + common
    for word, i1, i2, j1, j2 in matcher.get_opcodes():
        rows, own_rows = range(begin + i1, begin + i2), range(own_begin + j1, own_begin + j2)
        if word == "equal":
            result.matched.update(zip(rows, own_rows, strict=True))
        else:
            _pair(result, base, other, rows, own_rows)
    return result


def _common_window(base: Program, other: Program) -> tuple[int, int]:
    """Return from which rows on both programs kept the calls of all groups that they share."""
    begin = own_begin = 0
    for purpose in set(base.purpose.tolist()) & set(other.purpose.tolist()):
        rows, own_rows = (np.flatnonzero((p.purpose == purpose) & ~p.is_p2p) for p in (base, other))
        if len(rows) and len(own_rows):
            first = max(int(base.seq[rows[0]]), int(other.seq[own_rows[0]]))
            lost, own_lost = rows[base.seq[rows] < first], own_rows[other.seq[own_rows] < first]
            # Where one lies wholly before the other, they have no window in common and are compared as they are.
            if len(lost) < len(rows) and len(own_lost) < len(own_rows):
                begin = max(begin, int(lost[-1]) + 1 if len(lost) else 0)
                own_begin = max(own_begin, int(own_lost[-1]) + 1 if len(own_lost) else 0)
    return begin, own_begin


def _before_both(base: Program, other: Program, begin: int, own_begin: int) -> tuple[int, int]:
    """Return how many sends and receives at the start of both windows only one ring still held.

    Pairs are numbered by each rank alone, so that their windows cannot be compared; what lies before the first common call is
    no difference where it is behind the first of its rank.
    """
    rows, own_rows = _leading(base, begin), _leading(other, own_begin)
    for row in range(rows + 1):
        for own in range(own_rows + 1):
            here, there = base.tokens[begin + row : begin + row + 1], other.tokens[own_begin + own :][:1]
            if here and here == there:
                return row, own
    return 0, 0


def _leading(program: Program, start: int) -> int:
    """Return how many completed calls of pairs, none of them its rank's first, a window begins with."""
    count = 0
    for row in range(start, min(len(program), start + _LEADING)):
        if not program.is_p2p[row] or program.seq[row] <= 1 or program.state[row] != State.DONE:
            break
        count += 1
    return count


def _pair(result: Alignment, base: Program, other: Program, rows: range, own_rows: range) -> None:
    """Pair different collectives at the same place of the same group; the others are inserted or skipped."""
    rest = list(own_rows)
    for row in rows:
        place = next((i for i, own in enumerate(rest) if base.place(row) == other.place(own)), None)
        if place is not None:
            result.inserted[row] += rest[:place]
            result.paired[row] = rest[place]
            rest = rest[place + 1 :]
    result.inserted[rows.stop] += rest
