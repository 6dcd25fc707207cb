"""Where two ranks' programs part: their calls of all groups in enqueue order, compared from a call that they shared.

One group alone cannot tell a rank that skipped a call and went on in another group from one that has not come so far.
Groups are compared by what they are for (description, size), because two ranks of one role are in different groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from hangscope.align.program import Program, Programs
from hangscope.model.dataclass import dataclass

ANCHORS = 48  # shared calls that are tried as a common start
PROVEN_ALIKE = 12  # calls before a parting that must agree


@dataclass(frozen=True, slots=True)
class Parting:
    """Two ranks' first different calls after a shared one: each rank's row in its interleaved calls.

    `broke` and `kept`: who left and who kept its own pattern there, as far as history tells.
    """

    rows: dict[int, int]
    broke: frozenset[int]
    kept: frozenset[int]

    @property
    def odd(self) -> frozenset[int]:
        """Return the rank whose peer alone kept its pattern; none where history does not tell."""
        return frozenset(self.rows) - self.kept if len(self.kept) == 1 else frozenset()


def part(programs: Programs, behind: int, ahead: int, gid: int, seq: int) -> Parting | None:
    """Return where `behind`, which has not made call (gid, seq), and `ahead`, which has, went different ways.

    None where `behind` simply has not come so far, or where the two share no earlier call that both kept.
    """
    mine, theirs = programs.of(behind), programs.of(ahead)
    groups = mine.labels.keys() & theirs.labels.keys()
    for g in mine.labels.keys() ^ theirs.labels.keys():  # of which one of them made no call
        groups |= {g} if {behind, ahead} <= set(programs.incident.groups[g].ranks) else set()
    start = _common_start(mine, theirs, gid, seq, groups)
    both = zip(*_comparable(mine, theirs, start, groups), strict=False) if start is not None else ()
    for (i, a), (j, b) in both:
        if a != b:
            rows = {behind: i, ahead: j}
            keeps = {rank: programs.keeps_pattern(rank, row) for rank, row in rows.items()}
            broke = frozenset(rank for rank, keep in keeps.items() if keep is False)
            return Parting(rows, broke, frozenset(rank for rank, keep in keeps.items() if keep))
    return None


def _common_start(
    mine: Program, theirs: Program, gid: int, seq: int, groups: set[int]
) -> tuple[int, int] | None:
    """Return the rows behind the last shared call before `seq` up to which both programs agree.

    Ranks of different pipeline stages share groups and differ all the time, so they have none. A call that was
    skipped where the rest happens to fit shifts what follows: then an earlier shared call is the last one in step.
    """
    made, others = (
        set(program.seq[(program.gid == gid) & ~program.is_p2p & (program.seq < seq)].tolist())
        for program in (mine, theirs)
    )
    for candidate in sorted(made & others)[::-1][:ANCHORS]:
        i, j = mine.row_of(gid, candidate), theirs.row_of(gid, candidate)
        if i is None or j is None:
            continue
        before = zip(*_comparable(mine, theirs, (i, j), groups, -1), strict=False)
        if all(a == b for (_, a), (_, b) in islice(before, PROVEN_ALIKE)):
            return i + 1, j + 1
    return None


def _comparable(
    mine: Program, theirs: Program, start: tuple[int, int], shared: set[int], step: int = 1
) -> tuple[Iterator[tuple[int, Any]], Iterator[tuple[int, Any]]]:
    """Return the calls (row, token) of two ranks from `start` on (or backwards) of which each makes the like.

    A group that both are in is itself; any other is what it is for, and counts only where the other rank has its like.
    """

    def calls(program: Program, other: Program, first: int) -> Iterator[tuple[int, Any]]:
        alike = {label for gid, label in other.labels.items() if gid not in shared}
        for row in range(first, len(program.sites) if step > 0 else -1, step):
            gid = int(program.gid[row])
            if gid in shared or program.labels[gid] in alike:
                yield row, (gid if gid in shared else program.labels[gid], program.sites[row])

    return calls(mine, theirs, start[0]), calls(theirs, mine, start[1])
