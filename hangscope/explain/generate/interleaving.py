"""Where two ranks' programs part: their calls of all groups in enqueue order, compared from a call that they shared.

One group alone cannot tell a rank that skipped a call and went on in another group from one that has not come so far.
Groups are compared by what they are for (description, size), because two ranks of one role are in different groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from hangscope.align.program import Program, Programs
from hangscope.dataclass import dataclass
from hangscope.incident import CallKind

ANCHORS = 48  # shared calls that are tried as a common start
PROVEN_ALIKE = 12  # calls before a parting that must agree


@dataclass(frozen=True, slots=True)
class Parting:
    """Two ranks' first different calls after a shared one; rows are positions in each rank's interleaved calls.

    `odd` is the rank that left its own pattern there (None: history does not tell). `skipped` are calls that the odd rank's
    pattern calls for before the one it made; `swapped` says that it made them later. `broke` and `kept`: who left and who kept its own pattern.
    """

    ranks: tuple[int, int]
    rows: tuple[int, int]
    odd: int | None
    skipped: tuple[CallKind, ...] = ()
    swapped: bool = False
    broke: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()


class Interleaving:
    """Compares the programs of two ranks."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        self.incident = programs.incident
        self._members: dict[int, frozenset[int]] = {}

    def part(self, behind: int, ahead: int, gid: int, seq: int) -> Parting | None:
        """Return where `behind`, which has not made call (gid, seq), and `ahead`, which has, went different ways.

        None where `behind` simply has not come so far, or where the two share no earlier call that both kept.
        """
        mine, theirs = self.programs.of(behind), self.programs.of(ahead)
        groups = {g for g in {*mine.labels, *theirs.labels} if self._has(g, behind) and self._has(g, ahead)}
        start = self._common_start(mine, theirs, gid, seq, groups)
        if start is None:
            return None
        for (i, a), (j, b) in zip(
            _comparable(mine, theirs, start[0], groups),
            _comparable(theirs, mine, start[1], groups),
            strict=False,
        ):
            if a != b:
                return self._judge(behind, ahead, i, j)
        return None

    def _common_start(
        self, mine: Program, theirs: Program, gid: int, seq: int, groups: set[int]
    ) -> tuple[int, int] | None:
        """Return the rows behind the last shared call before `seq` up to which both programs agree.

        Ranks of different pipeline stages share groups and differ all the time, so they have none. A call that was
        skipped where the rest happens to fit shifts what follows: then an earlier shared call is the last one in step.
        """
        both = (
            program.seq[(program.gid == gid) & ~program.is_p2p & (program.seq < seq)].tolist()
            for program in (mine, theirs)
        )
        shared = sorted(set(next(both)).intersection(next(both)))
        for candidate in shared[::-1][:ANCHORS]:
            i, j = mine.row_of(gid, candidate), theirs.row_of(gid, candidate)
            if i is None or j is None:
                continue
            before = zip(
                _comparable(mine, theirs, i, groups, -1),
                _comparable(theirs, mine, j, groups, -1),
                strict=False,
            )
            if all(a == b for (_, a), (_, b) in islice(before, PROVEN_ALIKE)):
                return i + 1, j + 1
        return None

    def _has(self, gid: int, rank: int) -> bool:
        members = self._members.get(gid)
        if members is None:
            members = self._members[gid] = frozenset(self.incident.groups[gid].ranks)
        return rank in members

    def _judge(self, behind: int, ahead: int, i: int, j: int) -> Parting:
        keeps = {rank: self.programs.keeps_pattern(rank, row) for rank, row in ((behind, i), (ahead, j))}
        odd = None
        if keeps[behind] is not True and keeps[ahead] is True:
            odd = behind
        elif keeps[ahead] is not True and keeps[behind] is True:
            odd = ahead
        broke = tuple(r for r, keep in keeps.items() if keep is False)
        kept = tuple(r for r, keep in keeps.items() if keep)
        parting = Parting((behind, ahead), (i, j), None, broke=broke, kept=kept)
        return parting if odd is None else self.blame(parting, odd)

    def blame(self, parting: Parting, odd: int) -> Parting:
        """Return the parting with `odd` as the rank that went off its pattern, and what it left out."""
        row = dict(zip(parting.ranks, parting.rows, strict=True))[odd]
        program, kinds = self.programs.of(odd), self.incident.kinds
        rows = self.programs.left_out(odd, row)
        later = program.tokens[row + 1 : row + 1 + len(rows)]
        return replace(
            parting,
            odd=odd,
            skipped=tuple(kinds[int(program.kind[r])] for r in rows),
            swapped=bool(rows) and later == [program.tokens[r] for r in rows],
        )


def _comparable(
    program: Program, other: Program, start: int, shared: set[int], step: int = 1
) -> Iterator[tuple[int, tuple[Any, int]]]:
    """Yield (row, token) of the calls from `start` on (or backwards) that the other rank makes as well.

    A group that both are in is itself; any other is what it is for, and counts only where the other rank has its like.
    """
    alike = {label for gid, label in other.labels.items() if gid not in shared}
    for row in range(start, len(program.sites) if step > 0 else -1, step):
        gid = int(program.gid[row])
        if gid in shared:
            yield row, (gid, program.sites[row])
        elif program.labels[gid] in alike:
            yield row, (program.labels[gid], program.sites[row])
