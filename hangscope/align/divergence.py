"""The first call of a group on which its members do not agree, and whose side differs.

Answers three questions about a group: at which seq do members first make calls that cannot match (`mismatch`); which
ranks inserted or dropped calls that happened to fit (`edit_of`); which of several sides is the odd one (`odd_side`).
Works on classes of ranks with equal sequences, so its cost follows the number of distinct behaviours and not the ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from hangscope.align.frontier import GroupFrontier
from hangscope.align.kind_keys import hard_keys, site_keys
from hangscope.align.sequence_diff import Edit, continues, first_edit, left_out
from hangscope.dataclass import dataclass
from hangscope.incident import CallKind

_NONE = np.empty(0, np.int32)
DIFFERENCES = 256  # of two members, that are looked at
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


@dataclass(frozen=True, slots=True)
class Sequences:
    """The kept calls of a group's members as token arrays that all start at seq `first`.

    `tokens[rank]`: kind indexes (int32) from `first` to the rank's last kept call; members without rows are missing.
    """

    first: int
    tokens: dict[int, Any]

    @property
    def last(self) -> int:
        """Return the last seq that every rank here kept."""
        return self.first + min((len(t) for t in self.tokens.values()), default=0) - 1


def sequences(view: GroupFrontier) -> Sequences:
    """Return the calls of every member over the window that they share at its start.

    A member whose window ends before the others' begins is left out; it cannot be compared.
    """
    # What a line states of one call is compared with the others' at that call (`_sides`).
    windows = {
        r: m for r, m in view.members.items() if m.first_row and m.queue is not None and not m.queue.told
    }
    first = max((m.first_row for m in windows.values()), default=1)
    reach = [r for r, m in windows.items() if m.last_row >= first]
    tokens = {}
    shared: dict[tuple[int, int], Any] = {}  # ranks of one role have the same columns
    for rank in reach:
        queue = windows[rank].queue
        assert queue is not None
        columns = id(queue.seq), id(queue.kind)
        if columns in shared:
            tokens[rank] = shared[columns]
            continue
        row = np.searchsorted(queue.seq, first)
        seqs = queue.seq[row:]
        # Gaps (seq counted for calls that a recorder does not keep) end what can be compared by position.
        steps = np.flatnonzero(np.diff(seqs) != 1)
        end = int(steps[0]) + 1 if steps.size else len(seqs)
        tokens[rank] = shared[columns] = queue.kind[row : row + end]
    return Sequences(first, tokens)


def _keys_of(tokens: dict[int, Any], keys: Any) -> dict[int, Any]:
    """Return each rank's tokens as keys; ranks that share their tokens share the result."""
    made = {id(array): keys[array] for array in {id(t): t for t in tokens.values()}.values()}
    return {rank: made[id(array)] for rank, array in tokens.items()}


class GroupHistory:
    """One group's sequences with their hard keys (what must match) and site keys (what was called from where)."""

    def __init__(self, view: GroupFrontier, hard: Any, site: Any) -> None:
        self.view = view
        self._keys = hard
        self.sequences = sequences(view)
        self.hard = _keys_of(self.sequences.tokens, hard)
        self.site = _keys_of(self.sequences.tokens, site)

    def classes(self, keys: dict[int, Any], length: int) -> list[list[int]]:
        """Return the ranks grouped by equal first `length` keys, largest class first."""
        content = {id(array): array[:length].tobytes() for array in keys.values()}
        by_bytes: dict[bytes, list[int]] = defaultdict(list)
        for rank in sorted(keys):
            by_bytes[content[id(keys[rank])]].append(rank)
        return sorted(by_bytes.values(), key=lambda ranks: (-len(ranks), ranks))

    def mismatch(self) -> Mismatch | None:
        """Return the first seq at which kept calls of two members cannot match, or None.

        One that all sides completed, and behind which they are in step again, froze nothing: NCCL completes calls of
        different types or sizes, with wrong results.
        """
        lengths = {len(h) for h in self.hard.values()}
        classes = [ranks[0] for ranks in self.classes(self.hard, max(lengths, default=0))]
        # Two short sequences may differ where the largest class has no call, so neighbours are compared as well.
        pairs = [(classes[0], rank) for rank in classes[1:]]
        pairs += [(a, b) for i, a in enumerate(classes[1:], 1) for b in classes[i + 1 : i + 9]]
        differing: set[int] = set()
        for one, other in pairs:
            a, b = self.hard[one], self.hard[other]
            n = min(len(a), len(b))
            differing.update(map(int, np.flatnonzero(a[:n] != b[:n])[:DIFFERENCES]))
        first_bad = next((i for i in sorted(differing) if not self._was_survived(i, differing)), None)
        found = [] if first_bad is None else [self.sequences.first + first_bad]
        found += [seq for seq in self._stated() if len(self._sides(seq)) > 1][:1]
        return Mismatch(min(found), self._sides(min(found))) if found else None

    def _stated(self) -> list[int]:
        """Return the seqs of calls that only a line of text states of a member, ascending."""
        rows: set[int] = set()
        for member in self.view.members.values():
            if member.queue is not None and member.queue.told:
                rows.update(member.queue.seq.tolist())
        return sorted(rows)

    def _sides(self, seq: int) -> tuple[tuple[int, ...], ...]:
        """Return the members by what they called at a seq, those of equal calls together, largest side first."""
        sides: dict[int, list[int]] = defaultdict(list)
        index = seq - self.sequences.first
        for rank, member in self.view.members.items():
            keys = self.hard.get(rank)
            if keys is not None and 0 <= index < len(keys):
                sides[int(keys[index])].append(rank)
            elif member.queue is not None and member.queue.told and (row := member.row_of(seq)) is not None:
                sides[int(self._keys[member.queue.kind[row]])].append(rank)
        return tuple(sorted((tuple(sorted(r)) for r in sides.values()), key=lambda r: (-len(r), r)))

    def _was_survived(self, index: int, differing: set[int]) -> bool:
        """Return whether every member completed its call at `index`, and all made the same calls behind it."""
        if any(index + step in differing for step in range(1, IN_STEP + 1)):
            return False
        seq = self.sequences.first + index
        return all(
            len(keys) > index + IN_STEP and (self.view.members[rank].completed or 0) >= seq
            for rank, keys in self.hard.items()
        )

    def edit_of(self, culprits: Collection[int]) -> RankEdit | None:
        """Return what culprits inserted or left out against the largest class of the others, call sites included, or None."""
        classes = self.classes(self.site, self.sequences.last - self.sequences.first + 1)
        own = next((ranks for ranks in classes if not set(culprits).isdisjoint(ranks)), None)
        base = next((ranks for ranks in classes if set(culprits).isdisjoint(ranks)), None)
        if own is None or base is None:
            return None
        mine, theirs = (max(ranks, key=lambda r: (len(self.site[r]), -r)) for ranks in (own, base))
        edit = first_edit(self.site[mine].tolist(), self.site[theirs].tolist())
        if edit is None or self.odd_side(
            self.sequences.first + edit.index, (tuple(own), tuple(base))
        ) == tuple(base):
            return None  # there is none, or by their history the others made it
        made = self.sequences.tokens[mine if edit.kind == "extra" else theirs]
        # Of windows that differ from their start on, the calls in question are older than all that was kept.
        calls = made[edit.index : edit.index + edit.length] if edit.index or self.sequences.first == 1 else ()
        return RankEdit(tuple(own), edit, self.sequences.first + edit.index, tuple(map(int, calls)))

    def goes_on(self, rank: int, seq: int) -> bool | None:
        """Return whether a rank's call at `seq` continues the pattern that the rank repeated before; None: cannot tell."""
        keys, index = self.site.get(rank, _NONE), seq - self.sequences.first
        return continues(keys[:index].tolist(), int(keys[index])) if 0 <= index < len(keys) else None

    def odd_side(self, seq: int, sides: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
        """Return the side that breaks the pattern repeated so far at `seq`, or None where history does not tell."""
        continuing = [self.goes_on(next((r for r in ranks if r in self.site), -1), seq) for ranks in sides]
        broken = [ranks for ranks, goes_on in zip(sides, continuing, strict=True) if goes_on is False]
        return broken[0] if len(broken) == 1 and any(continuing) else None

    def skipped(self, rank: int, peer: int, seq: int) -> list[CallKind]:
        """Return the calls that a rank left out before its call at `seq`, where its peer made the first of them, by its pattern."""
        index = seq - self.sequences.first
        keys, others = (self.site.get(r, _NONE).tolist() for r in (rank, peer))
        if not 0 < index < min(len(keys), len(others)):
            return []
        places = left_out(keys[:index], keys[index], others[index])
        return [self.view.kinds[int(self.sequences.tokens[rank][place])] for place in places]

    def stacks_before(self, rank: int, seq: int) -> list[CallKind]:
        """Return what a rank called before `seq`, oldest first (at most the last 512 calls)."""
        tokens = self.sequences.tokens.get(rank)
        if tokens is None:
            return []
        index = max(0, seq - self.sequences.first)
        return [self.view.kinds[int(t)] for t in tokens[max(0, index - 512) : index]]


def histories(views: Sequence[GroupFrontier]) -> dict[int, GroupHistory]:
    """Return the history of every group that kept rows, by gid."""
    if not views:
        return {}
    kinds = views[0].kinds
    hard, site = hard_keys(kinds), site_keys(kinds)
    return {v.group.gid: GroupHistory(v, hard, site) for v in views if v.has_rows}
