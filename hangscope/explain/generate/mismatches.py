"""Calls of one group that cannot match: which is the first, and whose side is the odd one."""

from __future__ import annotations

from hangscope.align.divergence import GroupHistory, Mismatch
from hangscope.align.nodes import Instance
from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import Change, Different, OwnCall, StuckCall
from hangscope.explain.generate.peer_groups import one_fault, outlier_among_peers
from hangscope.incident import CallKind
from hangscope.knowledge.library import off_the_step, own_knowledge

_SEVERAL = 4  # ranks that agree and were seen, against one
_MOST_GROUPS = 64  # whose mismatches are compared
_SPREAD = 2  # ranks from the first of them to the last, for each of them


class Mismatches:
    """Finds the first calls that cannot match."""

    def __init__(self, aligned: Aligned) -> None:
        self.aligned = aligned

    def find(self) -> Different | None:
        """Return the finding of the first mismatch, or None."""
        found: list[tuple[int, int, int, Mismatch]] = []
        for gid, history in sorted(self.aligned.histories.items()):
            mismatch = history.mismatch()
            if mismatch is not None:
                made = [history.view.created(rank, mismatch.seq) for side in mismatch.sides for rank in side]
                found.append((min(filter(None, made), default=0), gid, mismatch.seq, mismatch))
        found.sort(key=lambda f: f[:3])
        findings = [
            self._finding(self.aligned.histories[gid], seq, m) for _, gid, seq, m in found[:_MOST_GROUPS]
        ]
        return one_fault(self.aligned, findings[0], findings[1:]) if findings else None

    def _finding(self, history: GroupHistory, seq: int, mismatch: Mismatch) -> Different:
        view = history.view
        sides = mismatch.sides
        odd: tuple[int, ...] = tuple(r for side in sides[1:] for r in side)
        majority = sides[0]
        # The largest side of those that were seen is not the majority where it is less than half of the group.
        outvoted = (
            bool(view.unseen) and 2 * len(majority) < len(view.members) and not _one_among_many(odd, majority)
        )
        tie = outvoted or len(sides[0]) == len(sides[1])
        if tie:
            even = list(sides) if outvoted else [s for s in sides if len(s) == len(sides[0])]
            broken = history.odd_side(seq, even) or outlier_among_peers(
                self.aligned.views.values(), view, seq, even
            )
            if broken is None and len(even) == 2:
                stacks = [kind.stack if (kind := view.kind_of(s[0], seq)) is not None else () for s in even]
                off = off_the_step(stacks[0], stacks[1], own_knowledge())
                broken = tuple(even[off]) if off is not None else None
            if broken is not None:
                tie = False
                odd, majority = broken, next(s for s in sides if s != broken)
        culprits = () if tie else tuple(sorted(odd))
        # A rank of which text alone tells has no lines: one that a recorder tells of shows where the call was made.
        framed = (r for r in majority if (kind := view.kind_of(r, seq)) is not None and kind.stack)
        odd_rank, waiting_rank = (odd or majority)[0], next(framed, majority[0])
        stuck = StuckCall(view, seq, waiting_rank, view.kind_of(waiting_rank, seq), history)
        change = Change(
            skipped=() if tie else tuple(history.skipped(odd_rank, waiting_rank, seq)),
            edit=history.edit_of(culprits),
            before=self._before(waiting_rank, view.group.gid, seq),
        )
        finding = Different(culprits, stuck, OwnCall(view.kind_of(odd_rank, seq), seq), change, tie=tie)
        members = set(view.group.ranks)
        reach = frozenset(r for r in self.aligned.waiting if r in members)
        for root in self.aligned.graph.roots:
            here = any(isinstance(n, Instance) and n.gid == view.group.gid for n in root.nodes)
            if here or set(root.ranks) & members:
                reach |= root.explains
        return self.aligned.reached_by(finding, reach)

    def _before(self, rank: int, gid: int, seq: int) -> tuple[CallKind, ...]:
        row = self.aligned.programs.of(rank).row_of(gid, seq)
        return () if row is None else tuple(self.aligned.programs.before(rank, row))


def _one_among_many(odd: tuple[int, ...], majority: tuple[int, ...]) -> bool:
    """Return whether one rank is at odds with several from all over the job, of which few ranks were seen.

    That these several were the odd ones takes more than a chance where they are not of one host.
    """
    spread = max(majority) - min(majority) > _SPREAD * len(majority)
    return len(odd) == 1 and len(majority) >= _SEVERAL and spread
