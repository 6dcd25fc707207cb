"""Ranks that left their peers' program: a call skipped, added or made in another order, across all groups."""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.align.nodes import Host, Instance, Node, PairInstance
from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import Change, Different, Finding, OwnCall, StuckCall, Unpaired
from hangscope.explain.generate.interleaving import Parting
from hangscope.explain.generate.pair_faults import PairFaults

PEERS = 2  # that a rank's program is compared with: of those looked at, the most like it
NEAR = 6  # of the nearest numbers are looked at


class ProgramDivergence:
    """Compares the programs of those who made a call with those who did not."""

    def __init__(self, aligned: Aligned) -> None:
        self.aligned = aligned
        self.pairs = PairFaults(aligned)

    def find(self, nodes: set[Node]) -> Finding | None:
        """Return a finding where ranks left their peers' program, by comparing those who made a call with those who did not."""
        partings: list[Parting] = []
        for node in sorted((n for n in nodes if isinstance(n, Instance)), key=self.aligned.when)[:64]:
            gid, seq = node.gid, node.seq
            view = self.aligned.views[gid]
            joined = [
                r
                for r in view.seen
                if view.members[r].row_of(seq) is not None and self.aligned.programs.holds(r, gid, seq)
            ]
            absent = [
                r for r in view.seen if r not in self.aligned.early and (view.members[r].enqueued or 0) < seq
            ]
            for behind in absent[:32]:
                partings += self._partings(behind, joined, gid, seq)
        told = [p for p in partings if p.odd is not None]
        alone = self._alone(partings)
        if alone is not None:
            guilty = {alone}
            told = [self.aligned.interleaving.blame(p, alone) for p in partings]
        elif not told:
            return None
        else:  # a rank that kept its own pattern was only misled by the others
            waiting = {n.rank for n in nodes if isinstance(n, Host)}
            broke = {
                r
                for r in waiting
                if (cs := self.aligned.graph.open_calls.get(r))
                and self.aligned.programs.breaks_pattern(r, cs[0].order)
            }
            guilty = {r for p in partings for r in p.broke} | broke
            guilty = guilty - {r for p in partings for r in p.kept} or {
                p.odd for p in told if p.odd is not None
            }
        culprits = tuple(sorted(guilty))
        first = min((p for p in told if set(p.ranks) & guilty), key=lambda p: self._time(p))
        return self._finding(first, culprits)

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
        change = Change(
            skipped=parting.skipped,
            swapped=parting.swapped,
            edit=history.edit_of(culprits) if history is not None else None,
            last_word=rows[odd] == len(self.aligned.programs.of(odd).tokens) - 1,
            elsewhere=own_gid != gid,
            before=tuple(self.aligned.programs.before(peer, rows[peer])),
        )
        return Different(culprits, StuckCall(self.aligned.views[gid], seq, peer, kind, history), own, change)
