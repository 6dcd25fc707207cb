"""Ranks that left their peers' program: a call skipped, added or made in another order, across all groups."""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.align.frontier import GroupFrontier
from hangscope.align.nodes import Host, Instance, Node, PairInstance
from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import Change, Different, Finding, OwnCall, StuckCall, Unpaired
from hangscope.explain.generate.interleaving import PROVEN_ALIKE, Parting
from hangscope.explain.generate.pair_faults import PairFaults
from hangscope.incident import CallKind

PEERS = 2  # that a rank's program is compared with: of those looked at, the most like it
NEAR = 6  # of the nearest numbers are looked at


class ProgramDivergence:
    """Compares the programs of those who made a call with those who did not."""

    def __init__(self, aligned: Aligned) -> None:
        self.aligned = aligned
        self.pairs = PairFaults(aligned)

    def find(self, nodes: set[Node], hosts: Sequence[int] | None = None) -> Finding | None:
        """Return a finding where ranks left their peers' program, by comparing those who made a call with those who did not."""
        partings: list[Parting] = []
        decided: list[Parting] = []
        for node in sorted((n for n in nodes if isinstance(n, Instance)), key=self.aligned.when)[:64]:
            gid, seq = node.gid, node.seq
            view = self.aligned.views[gid]
            joined = [
                r
                for r in view.seen
                if view.members[r].row_of(seq) is not None and self.aligned.programs.holds(r, gid, seq)
            ]
            absent = [
                r
                for r in view.seen
                if r not in self.aligned.early
                and (view.members[r].enqueued or 0) < seq
                and (hosts is None or r in hosts)
            ]
            for behind in absent[:32]:
                found = self._partings(behind, joined, gid, seq)
                partings += found
                decided += [told for parting in found for told in self._by_majority(parting)]
        told = decided or [p for p in partings if p.odd is not None]
        odd = {p.odd for p in told if p.odd is not None}
        alone = self._alone(partings)
        if alone is not None:
            guilty = {alone}
            told = [self.aligned.interleaving.blame(p, alone) for p in partings]
        elif not told:
            return None
        elif decided:
            guilty = odd
        else:  # a rank that kept its own pattern was only misled by the others
            waiting = {n.rank for n in nodes if isinstance(n, Host)}
            broke = {
                r
                for r in waiting
                if (cs := self.aligned.graph.open_calls.get(r))
                and self.aligned.programs.breaks_pattern(r, cs[0].order)
                and self._has_history(r, cs[0].order)
            }
            guilty = {r for p in partings for r in p.broke} | broke
            guilty = guilty - {r for p in partings for r in p.kept} or odd
        culprits = tuple(sorted(guilty | self._company(told, guilty)))
        first = min((p for p in told if set(p.ranks) & guilty), key=lambda p: self._time(p))
        return self._finding(first, culprits)

    def _has_history(self, rank: int, order: int) -> bool:
        """Return whether a rank's own history can tell of a call: the first of its kind in a ring that lost the beginning may be routine."""
        row, program = self.aligned.programs.row_of(rank, order), self.aligned.programs.of(rank)
        return row is not None and (program.whole or program.tokens[row] in program.tokens[PROVEN_ALIKE:row])

    def _company(self, told: Sequence[Parting], guilty: set[int]) -> set[int]:
        """Return who made the very call by which the guilty parted, where nobody in sight had made its like: they went the same way."""
        found: set[int] = set()
        for parting in told:
            if parting.odd not in guilty or parting.skipped:
                continue
            row = dict(zip(parting.ranks, parting.rows, strict=True))[parting.odd]
            gid, seq, kind, _ = self.aligned.programs.call(parting.odd, row)
            token, view = self.aligned.programs.of(parting.odd).tokens[row], self.aligned.views[gid]
            if kind.is_p2p or any(
                token in self.aligned.programs.of(r).tokens[:at]
                for r, at in zip(parting.ranks, parting.rows, strict=True)
            ):
                continue
            made = {
                r for r in view.seen if (own := view.kind_of(r, seq)) is not None and own.stack == kind.stack
            }
            found |= made if 2 * len(made) < len(view.members) else set()
        return found

    def _alone(self, partings: Sequence[Parting]) -> int | None:
        """Return the one rank that parted from each of at least three others, if there is one."""
        common = set.intersection(*(set(p.ranks) for p in partings)) if partings else set()
        return common.pop() if len(common) == 1 and len({r for p in partings for r in p.ranks}) >= 4 else None

    def _partings(self, behind: int, joined: Sequence[int], gid: int, seq: int) -> list[Parting]:
        """Return where a rank parted from those who made the call and whose programs are most like its own.

        Ranks of another pipeline stage run another program and cannot be compared. Ranks of one stage mostly have near
        numbers, so the nearest are looked at along with the first.
        """
        near = sorted(joined, key=lambda rank: abs(rank - behind))[:NEAR]
        peers = sorted(
            dict.fromkeys([*joined[:PEERS], *near]),
            key=lambda rank: -self.aligned.programs.likeness(behind, rank),
        )
        found = [self.aligned.interleaving.part(behind, ahead, gid, seq) for ahead in peers[:PEERS]]
        return [parting for parting in found if parting is not None]

    def _by_majority(self, parting: Parting) -> list[Parting]:
        """Let the members decide where they can: the side whose call most of its group made is not the odd one."""
        made: list[bool] = []
        for (rank, row), other in zip(
            zip(parting.ranks, parting.rows, strict=True), reversed(parting.ranks), strict=True
        ):
            gid, seq, kind, _ = self.aligned.programs.call(rank, row)
            view = self.aligned.views[gid]
            most = (
                not kind.is_p2p
                and len(view.members) > 2
                and sum(self._made(view, r, seq, kind) for r in view.members) * 2 > len(view.members)
            )
            made.append(most and other in view.members and (view.members[other].enqueued or 0) < seq)
        if made not in ([True, False], [False, True]):
            return []
        blamed, other = parting.ranks[made.index(False)], parting.ranks[made.index(True)]
        if blamed in parting.kept and other in parting.broke:
            return []  # it waits in its turn, and the other one broke the order that both kept
        return [self.aligned.interleaving.blame(parting, blamed)]

    def _made(self, view: GroupFrontier, rank: int, seq: int, kind: CallKind) -> bool:
        """Return whether a member made a call at `seq`, from the same line as far as its row was kept."""
        own = view.kind_of(rank, seq)
        return (view.members[rank].enqueued or 0) >= seq and (own is None or own.stack == kind.stack)

    def _time(self, parting: Parting) -> tuple[int, tuple[int, int]]:
        return (
            min(
                self.aligned.programs.call(r, row)[3]
                for r, row in zip(parting.ranks, parting.rows, strict=True)
            ),
            parting.ranks,
        )

    def _finding(self, parting: Parting, culprits: tuple[int, ...]) -> Finding:
        odd = next(r for r in parting.ranks if r in culprits)
        peer = next(r for r in parting.ranks if r != odd)
        rows = dict(zip(parting.ranks, parting.rows, strict=True))
        gid, seq, kind, _ = self.aligned.programs.call(peer, rows[peer])
        own_gid, own_seq, own_kind, _ = self.aligned.programs.call(odd, rows[odd])
        own = OwnCall(own_kind, own_seq, own_gid if own_gid != gid else None)
        if parting.skipped and all(k.is_p2p for k in parting.skipped):
            halves = [
                n
                for n in self.aligned.graph.nodes
                if isinstance(n, PairInstance) and self.pairs.missing_half(n) in culprits
            ]
            if halves:
                stuck = self.aligned.stuck_in(min(halves, key=self.aligned.when), culprits)
                skipped = parting.skipped if len(culprits) == 1 else ()
                return Unpaired(culprits, stuck, own, Change(skipped=skipped))
        history = self.aligned.histories.get(gid)
        edits = history.edits() if history is not None else []
        change = Change(
            skipped=parting.skipped,
            added=(parting.added,) if parting.added is not None else (),
            swapped=parting.swapped,
            edit=next((e for e in edits if set(e.ranks) & set(culprits)), None),
            last_word=rows[odd] == len(self.aligned.programs.of(odd).tokens) - 1,
            elsewhere=own_gid != gid,
            before=tuple(self.aligned.programs.before(peer, rows[peer])),
        )
        return Different(culprits, StuckCall(self.aligned.views[gid], seq, peer, kind, history), own, change)
