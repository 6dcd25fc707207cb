"""The first call of a group on which its members do not agree, and whose side differs.

Answers three questions about a group: at which seq do members first make calls that cannot match (`mismatch`); which
ranks inserted or dropped calls that happened to fit (`edit_of`); which of several sides is the odd one (`odd_side`).
Ranks of one role share their columns, so that its cost follows the number of distinct behaviours and not the ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from hangscope.align.frontier import GroupFrontier
from hangscope.align.matching import hard_keys, site_keys
from hangscope.align.sequence_diff import Edit, continues, first_edit, left_out
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import CallKind, Kinds

_NONE = np.empty(0, np.int32)
DIFFERENCES = 256  # between members, that are looked at
IN_STEP = 3  # calls in common behind a difference after which it was a single one


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Members made calls at one seq that cannot match. `sides`: the ranks of each side, largest first."""

    seq: int
    sides: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class RankEdit:
    """The ranks that inserted or dropped calls relative to the others, where, and which calls (kind indexes).

    `calls` is empty where those calls are older than all that the recorders kept: what is kept is shifted from its start.
    """

    ranks: tuple[int, ...]
    edit: Edit
    seq: int
    calls: tuple[int, ...]


class GroupHistory:
    """The calls of one group over the window that its members' rows share at its start, which is at seq `first`.

    `tokens`: by rank, the indexes of its kinds from `first` to the last kept call without a gap. By kind, `hard` is equal where
    calls match and `site` where they come from one line, too. A member whose window ends before the others' begins cannot be
    compared and is left out.
    """

    def __init__(self, view: GroupFrontier, hard: Any, site: Any) -> None:
        self.view, self.hard, self.site = view, hard, site
        # What a line states of one call is compared with the others' at that call (`_sides`).
        windows = {r: m for r, m in view.members.items() if m.first_row and not m.queue.told}
        self.first = max((m.first_row for m in windows.values()), default=1)
        self.tokens: dict[int, Any] = {}
        shared: dict[tuple[int, int], Any] = {}  # ranks of one role have the same columns
        for rank, member in windows.items():
            if member.last_row < self.first:
                continue
            queue = member.queue
            columns = id(queue.seq), id(queue.kind)
            if columns not in shared:
                row = np.searchsorted(queue.seq, self.first)
                # Gaps (seq counted for calls that a recorder does not keep) end what can be compared by position.
                gaps = np.flatnonzero(np.diff(queue.seq[row:]) != 1)
                shared[columns] = queue.kind[row:][: gaps[0] + 1 if gaps.size else None]
            self.tokens[rank] = shared[columns]

    def mismatch(self) -> Mismatch | None:
        """Return the first seq at which kept calls of two members cannot match, or None.

        One that all sides completed, and behind which they are in step again, froze nothing: NCCL completes calls of
        different types or sizes, with wrong results.
        """
        distinct = {id(tokens): tokens for tokens in self.tokens.values()}.values()
        least, most = np.full((2, max(map(len, distinct), default=0)), [[len(self.hard)], [-1]])
        for tokens in distinct:
            place, keys = slice(len(tokens)), self.hard[tokens]
            least[place], most[place] = np.minimum(least[place], keys), np.maximum(most[place], keys)
        differing = set(np.flatnonzero(least < most)[:DIFFERENCES].tolist())
        told = {seq for m in self.view.members.values() if m.queue.told for seq in m.queue.seq.tolist()}
        for seq in sorted({self.first + i for i in differing} | told):
            sides = self._sides(seq)
            if len(sides) > 1 and (seq in told or not self._was_survived(seq - self.first, differing)):
                return Mismatch(seq, sides)
        return None

    def _sides(self, seq: int) -> tuple[tuple[int, ...], ...]:
        """Return the members by what they called at a seq, those of equal calls together, largest side first."""
        sides: dict[int, list[int]] = defaultdict(list)
        for rank in sorted(self.view.members):
            if (index := self.view.kind_index(rank, seq)) is not None:
                sides[int(self.hard[index])].append(rank)
        return tuple(sorted(map(tuple, sides.values()), key=lambda ranks: (-len(ranks), ranks)))

    def _was_survived(self, index: int, differing: set[int]) -> bool:
        """Return whether every member completed its call at `index`, and all made the same calls behind it."""
        if any(index + step in differing for step in range(1, IN_STEP + 1)):
            return False
        return all(
            len(calls) > index + IN_STEP and (self.view.members[rank].completed or 0) >= self.first + index
            for rank, calls in self.tokens.items()
        )

    def edit_of(self, culprits: Collection[int]) -> RankEdit | None:
        """Return what culprits inserted or left out against the largest class of the others, call sites included, or None."""
        shortest, alike = min(map(len, self.tokens.values()), default=0), defaultdict[bytes, list[int]](list)
        for rank, tokens in sorted(self.tokens.items()):
            alike[self.site[tokens[:shortest]].tobytes()].append(rank)
        classes = sorted(map(tuple, alike.values()), key=lambda ranks: (-len(ranks), ranks))
        own = next((ranks for ranks in classes if not set(culprits).isdisjoint(ranks)), None)
        base = next((ranks for ranks in classes if set(culprits).isdisjoint(ranks)), None)
        if own is None or base is None:
            return None
        mine, theirs = (max(ranks, key=lambda r: (len(self.tokens[r]), -r)) for ranks in (own, base))
        edit = first_edit(*(self._sites(rank) for rank in (mine, theirs)))
        if edit is None or self.odd_side(self.first + edit.index, (own, base)) == base:
            return None  # there is none, or by their history the others made it
        made = self.tokens[mine if edit.kind == "extra" else theirs]
        # Of windows that differ from their start on, the calls in question are older than all that was kept.
        calls = made[edit.index : edit.index + edit.length] if edit.index or self.first == 1 else ()
        return RankEdit(own, edit, self.first + edit.index, tuple(map(int, calls)))

    def _sites(self, rank: int) -> list[int]:
        """Return the number of each of a rank's calls, site included; empty where it cannot be compared."""
        sites: list[int] = self.site[self.tokens.get(rank, _NONE)].tolist()
        return sites

    def goes_on(self, rank: int, seq: int) -> bool | None:
        """Return whether a rank's call at `seq` continues the pattern that the rank repeated before; None: cannot tell."""
        sites, index = self._sites(rank), seq - self.first
        return continues(sites[:index], sites[index]) if 0 <= index < len(sites) else None

    def odd_side(self, seq: int, sides: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
        """Return the side that breaks the pattern repeated so far at `seq`, or None where history does not tell."""
        continuing = [self.goes_on(next((r for r in ranks if r in self.tokens), -1), seq) for ranks in sides]
        broken = [ranks for ranks, goes_on in zip(sides, continuing, strict=True) if goes_on is False]
        return broken[0] if len(broken) == 1 and any(continuing) else None

    def skipped(self, rank: int, peer: int, seq: int) -> list[CallKind]:
        """Return the calls that a rank left out before its call at `seq`, where its peer made the first of them, by its pattern."""
        index = seq - self.first
        own, others = self._sites(rank), self._sites(peer)
        if not 0 < index < min(len(own), len(others)):
            return []
        places = left_out(own[:index], own[index], others[index])
        return [self.view.kinds[int(self.tokens[rank][place])] for place in places]

    def stacks_before(self, rank: int, seq: int) -> list[CallKind]:
        """Return what a rank called before `seq`, oldest first (at most the last 512 calls)."""
        tokens = self.tokens.get(rank, _NONE)[: max(0, seq - self.first)]
        return [self.view.kinds[int(token)] for token in tokens[-512:]]


def histories(views: Sequence[GroupFrontier], kinds: Kinds) -> dict[int, GroupHistory]:
    """Return the history of every group that kept rows, by gid."""
    hard, site = hard_keys(kinds), site_keys(kinds)
    kept = [view for view in views if any(len(member.queue) for member in view.members.values())]
    return {view.group.gid: GroupHistory(view, hard, site) for view in kept}
