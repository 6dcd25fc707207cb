"""Which root the dumps show: from the wait-for graph and the groups' histories to one finding.

Order of suspicion at a root: calls that cannot match; a seen member that is absent; an inserted or dropped call that
only shifted what followed; a device that lags behind its peers' completions; a member that left no dump; a circular
wait; a call that all joined and none completes. What was not chosen is kept as a candidate with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from hangscope.align.frontier import GroupFrontier
from hangscope.align.matching import proves_participation
from hangscope.align.nodes import Called, Instance, Node, PairInstance
from hangscope.align.rankset import ranks_phrase
from hangscope.align.waitgraph import Root
from hangscope.explain.astray import Astray
from hangscope.explain.finding import Candidate, Finding
from hangscope.explain.mismatches import Mismatches
from hangscope.explain.pair_faults import PairFaults
from hangscope.explain.predict import Replay
from hangscope.explain.scene import Scene

MOST_CLASSES = 64  # of ranks in a circle, each of which is imagined to have behaved


class Finder:
    """Looks for the root of one incident."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.pairs = PairFaults(scene)
        self.astray = Astray(scene)
        self.lagging: frozenset[int] = frozenset()

    def find(self) -> Finding:
        """Return the best finding; form `none` where nothing is open and nothing differs."""
        steps: tuple[Callable[[], Finding | None], ...] = (
            Mismatches(self.scene).find,
            self.pairs.unequal,
            self._absent,
            self._half,
            self._unseen,
            self._cycle,
            self._stalled,
        )
        found = [f for step in steps if (f := step()) is not None]
        if not found:
            return self._apart() or Finding("none", candidates=self.scene.candidates)
        every = found
        absent = [f for f in found if f.form == "absent"]
        if absent and any(f.form == "half" and self._a_moment_old(f) for f in found):
            found = absent
        unseen = [f for f in found if f.form == "unseen"]
        if unseen and (self.scene.ended or any(f.form == "half" and len(f.culprits) != 1 for f in found)):
            # The peers of a rank that died abort their communicators, which completes calls of some and not of others.
            found = [f for f in found if f.form != "half"]
        found = [
            f
            for f in found
            if f.form != "stalled"
            or not any(o is not f and (o.view, o.seq) == (f.view, f.seq) for o in found)
        ]
        # A dump that is older than its peers' shows a lag of its own making: who merely lags is nobody's victim.
        lagging = {r for f in found if f.form == "half" for r in self.lagging}
        shares = [len(f.reached - lagging) / max(1, len(set(f.waiting) - lagging)) for f in found]
        # A root of a more certain kind is not given up for one that merely explains a few ranks more.
        chosen = next(f for f, share in zip(found, shares, strict=True) if share >= 0.9 * max(shares))
        for finding in found:
            if finding is not chosen and finding.culprits and set(finding.culprits) - set(chosen.culprits):
                self.scene.candidates.append(
                    Candidate(
                        finding.culprits,
                        finding.form,
                        f"explains {finding.explained} waiting ranks; {chosen.form} explains {chosen.explained}",
                    )
                )
        chosen.candidates = self.scene.candidates
        chosen.rivals = [f for f in every if f is not chosen and self._has_a_fault_of_its_own(f)]
        return chosen

    def _has_a_fault_of_its_own(self, finding: Finding) -> bool:
        """Return whether ranks stopped, ended or lag by what was seen of themselves, and not by what others wait for."""
        if finding.form == "unseen":
            return set(finding.culprits) <= self.scene.ended
        return finding.form in ("absent", "half")

    def _absent(self) -> Finding | None:
        roots = [r for r in self.scene.graph.roots if r.kind == "host" and r.explains]
        if not roots:
            return None
        hosts = tuple(sorted({rank for root in roots for rank in root.ranks}))
        explains = frozenset[int]().union(*(r.explains for r in roots))
        node = self.scene.first_instance(lambda absent: bool(absent & set(hosts)))
        if node is None:
            return None
        finding = self.scene.at(node, "absent", hosts)
        finding.root = roots[0]
        finding.own_kind, finding.own_seq = self.scene.last_call(hosts[0], finding.view)
        parted = self.astray.find({r.nodes[0] for r in roots} | set(self._lacking(set(hosts))), hosts)
        if parted is not None and set(parted.culprits) <= set(hosts):
            return self.scene.with_waiting(parted, set(explains))
        self._who_is_odd(finding)
        return self.scene.with_waiting(finding, set(explains))

    def _lacking(self, hosts: set[int]) -> list[Node]:
        """Return the open instances that wait for one of these hosts."""
        return [
            n for n in self.scene.graph.nodes if isinstance(n, Instance) and self.scene.awaited(n) & hosts
        ]

    def _who_is_odd(self, finding: Finding) -> None:
        """Ask whether those who wait made a call too many, rather than those who are absent one too few."""
        view, seq = finding.view, finding.seq
        if view is None or seq is None or finding.history is None or finding.pair is not None:
            return
        absent = tuple(r for r in finding.culprits if r in view.members)
        joined = tuple(r for r in view.seen if (view.members[r].enqueued or 0) >= seq)
        for edit in finding.history.edits():
            extra = edit.edit.kind == "extra"
            if set(edit.ranks) <= set(joined if extra else absent):
                self.scene.candidates.append(
                    Candidate(
                        absent,
                        "absent",
                        f"{ranks_phrase(edit.ranks)} {'made' if extra else 'left out'} a call at seq {edit.seq} that shifted everything after it",
                    )
                )
                finding.form, finding.edit, finding.culprits = "shifted", edit, edit.ranks
                # The calls around the edit were made by both sides, though not together.
                finding.own_kind, finding.own_seq = (
                    view.kinds[edit.calls[0]] if extra and edit.calls else finding.own_kind,
                    edit.seq,
                )
                return
        # Ranks that go on without a call wait in their next one; those that wait nowhere are busy, and may come to it yet.
        idle = not any(self.scene.graph.open_calls.get(rank) for rank in absent)
        if joined and len(joined) <= len(absent):
            goes_on = finding.history.continues_pattern(joined[0], seq)
            if goes_on is False or (goes_on is None and len(joined) < len(absent)):
                self.scene.candidates.append(
                    Candidate(
                        absent,
                        "absent",
                        "they are the majority, and the call that the others wait in breaks the pattern of this group",
                    )
                )
                finding.form, finding.culprits = "extra", joined
                finding.own_kind, finding.own_seq = view.kind_of(joined[0], seq), seq
                finding.tie = goes_on is None or idle
            elif goes_on is None and len(joined) == len(absent):
                finding.tie = True

    def _half(self) -> Finding | None:
        lagging: set[int] = set()
        stalled: set[int] = set()  # those that lag by more than one call, and so by more than a moment
        explains: set[int] = set()
        few = True
        # A dump older than its peers' shows calls open that were finished after it was taken.
        early = {rank for view in self.scene.views.values() for rank in view.early}
        first: tuple[int, Instance] | None = None
        for root in self.scene.graph.roots:
            node = root.nodes[0]
            if root.kind != "call" or not isinstance(node, Instance):
                continue
            view = self.scene.views[node.gid]
            behind = [r for r in root.ranks if r not in early and self._lags(view, r, node.seq)]
            if behind and len(behind) < len(view.members):
                lagging.update(behind)
                long = {r for r in behind if sum(s <= view.proven for s in view.members[r].pending) > 1}
                proven = len(long) == len(behind)
                stalled |= long
                few = few and (proven or 2 * len(behind) < len(view.members))
                explains |= root.explains | set(behind)
                created = min((view.created(r, node.seq) for r in behind), default=0)
                first = min(first or (created, node), (created, node), key=lambda c: (c[0], str(c[1])))
        if first is None:
            return None
        lag = tuple(sorted(lagging))
        self.lagging = frozenset(lag)
        if not explains - self.lagging:
            return None  # nobody waits for them: their dumps are a moment older than their peers'
        finding = self.scene.at(first[1], "half", lag)
        culprit = next((r for r in lag if finding.view and r in finding.view.members), lag[0])
        behind_it = self.scene.first_instance(lambda absent: bool(absent & lagging))
        if (
            behind_it is not None
        ):  # what the others are stuck in lies behind what the lagging device did not finish
            own_view, own_seq = finding.view, finding.seq
            finding = self.scene.at(behind_it, "half", lag)
            finding.own_kind, finding.own_seq = (
                (own_view.kind_of(culprit, own_seq) if own_view and own_seq else None),
                own_seq,
            )
        else:
            finding.own_kind, finding.own_seq = finding.waiting_kind, finding.seq
        finding.tie = not few
        if (len(lag) > 1 and not few) or 2 * len(lag) > len(self.scene.incident.ranks):
            finding.culprits = ()  # where most did not finish, the few that did are no measure
        elif len(lag) > 1:
            finding.culprits = tuple(sorted(stalled))
        return self.scene.with_waiting(finding, explains)

    def _a_moment_old(self, finding: Finding) -> bool:
        """Return whether those who lag do so by one call only: their dumps may be a moment older than their peers'."""
        for rank in finding.culprits:
            for view in self.scene.views.values():
                member = view.members.get(rank)
                if member is not None and any(s < view.proven for s in member.pending):
                    return False
        return True

    def _lags(self, view: GroupFrontier, rank: int, seq: int) -> bool:
        """Return whether peers' completions prove that a call is over which this rank's device has not finished."""
        kind = view.kind_of(rank, seq)
        if kind is not None and kind.op.startswith("all_to_all"):
            # One completion proves nothing of another member here; that most have finished what all began does.
            members = view.members.values()
            done = sum((member.completed or 0) >= seq for member in members)
            return 2 * done > len(members) and all((member.enqueued or 0) >= seq for member in members)
        if view.proven < seq:
            return False
        return kind is None or proves_participation(kind) or view.proven > seq

    def _unseen(self) -> Finding | None:
        early = {rank for view in self.scene.views.values() for rank in view.early}
        excused = self.scene.uncollected | early
        roots = [
            r
            for r in self.scene.graph.roots
            if r.kind == "unseen" and r.explains and not set(r.ranks) <= excused
        ]
        if not roots:
            return None
        ranks = tuple(sorted({rank for root in roots for rank in root.ranks}))
        explains = frozenset[int]().union(*(r.explains for r in roots))
        # A rank that lost a peer or timed out itself was waiting, although no dump of it shows where.
        roots = [r for r in roots if not set(r.ranks) <= self.scene.witnesses] or roots
        # Where several ranks are unseen, those that more waiting ranks lead to come first.
        most = max(len(r.explains) for r in roots)
        named = tuple(sorted({rank for r in roots if len(r.explains) == most for rank in r.ranks}))
        node = self.scene.first_instance(lambda absent: bool(absent & set(named)))
        if node is None:
            return None
        finding = self.scene.at(node, "unseen", named)
        finding.root = roots[0]
        for rank in sorted(set(ranks).difference(named)):
            why = (
                "its own log shows it waiting"
                if rank in self.scene.witnesses
                else "fewer waiting ranks lead to it"
            )
            self.scene.candidates.append(Candidate((rank,), "unseen", why))
        finding = self.scene.with_waiting(finding, set(explains))
        waited = self.scene.witnesses.intersection(ranks).difference(named)
        finding.waiting = tuple(sorted({*finding.waiting, *waited}))
        finding.explained += len(waited)
        return finding

    def _cycle(self) -> Finding | None:
        root = next((r for r in self.scene.graph.roots if r.kind == "cycle" and r.explains), None)
        if root is None:
            return None
        calls = [n for n in root.nodes if isinstance(n, Called)]
        parted = self.astray.find(set(root.nodes))
        if parted is not None:
            parted.root = root
            return self.scene.with_waiting(parted, set(root.explains) | set(root.ranks))
        ranks = root.ranks or tuple(
            sorted({r for r, cs in self.scene.graph.open_calls.items() if any(c.node in calls for c in cs)})
        )
        finding = self.scene.at(min(calls, key=self.scene.when), "cycle", ranks)
        finding.root, finding.assumed = root, not root.certain
        unpaired = sorted(
            (n for n in calls if isinstance(n, PairInstance) and self.pairs.missing_half(n) is not None),
            key=self.scene.when,
        )
        guilty = self.pairs.guilty_half(calls, unpaired)
        if guilty is not None:
            node, culprit, stray = guilty
            finding = self.scene.at(node, "unpaired", (culprit,))
            finding.root, finding.assumed = root, stray is None
            if stray is not None:
                finding.own_kind, finding.own_seq = stray.kind, stray.seq
                finding.skipped = stray.wanted
                if not stray.is_p2p:
                    finding.form, finding.pair, finding.last_word = "different", None, stray.last
                    if stray.foreign:
                        finding.skipped, finding.added = (), (stray.kind,)
        if len(finding.culprits) > 1:
            self._set_apart(finding, root)
        return self.scene.with_waiting(finding, set(root.explains))

    def _set_apart(self, finding: Finding, root: Root) -> None:
        """Put in place of a circle the few ranks whose other behaviour alone would let all the rest run on."""
        inside = {r for n in root.nodes if isinstance(n, Instance) for r, _ in self.scene.calls_of(n)}
        apart = self._few_apart(sorted(inside | set(root.ranks)), set(root.explains))
        if apart is not None and apart.culprits:
            finding.form, finding.culprits, finding.assumed = "different", apart.culprits, True
            finding.view, finding.history, finding.seq = apart.view, apart.history, apart.seq
            finding.waiting_rank, finding.waiting_kind, finding.pair = (
                apart.waiting_rank,
                apart.waiting_kind,
                apart.pair,
            )
            finding.own_kind, finding.own_seq, finding.last_word = apart.own_kind, apart.own_seq, True
            finding.elsewhere = apart.elsewhere

    def _apart(self) -> Finding | None:
        """Return the finding of the few that wait apart from all the rest, where text leaves open for whom they wait."""
        waiting = self.scene.waiting
        finding = self._few_apart(waiting, set(waiting))
        return None if finding is None else self.scene.with_waiting(finding, set(waiting))

    def _few_apart(self, ranks: Sequence[int], explains: set[int]) -> Finding | None:
        """Return the finding of the smallest class of ranks that would free all others, if it is the only one of its size."""
        replay = Replay(self.scene.graph)
        classes: dict[tuple[Node, ...], list[int]] = {}
        for rank in ranks:
            calls = self.scene.graph.open_calls.get(rank, [])
            classes.setdefault(tuple(c.node for c in calls[:4]), []).append(rank)
        if not 1 < len(classes) <= MOST_CLASSES:
            return None
        solving = sorted(
            (len(own), own, nodes)
            for nodes, own in classes.items()
            if 2 * len(own) < len(ranks) and not (replay.stuck(own) & explains)
        )
        if not solving or (len(solving) > 1 and solving[0][0] == solving[1][0]):
            return None
        _, own, nodes = solving[0]
        others = [r for r in self.scene.waiting if r not in own]
        stuck_in = Counter(self.scene.graph.open_calls[r][0].node for r in others)
        node = max(stuck_in, key=lambda n: (stuck_in[n], str(n)), default=None)
        made = nodes[0] if nodes else None
        if not isinstance(node, Instance) or not isinstance(made, Instance):
            return None
        view = self.scene.views[made.gid]
        if len(view.members) > 1 and set(view.members) <= set(own):
            # All members of their group are in their call: it stands still itself, and nobody is apart.
            return replace(self.scene.at(made, "stalled", ()), assumed=True)
        finding = self.scene.at(node, "different", tuple(own))
        finding.elsewhere = made.gid != node.gid
        finding.own_seq = made.seq
        finding.own_kind = view.kind_of(own[0], finding.own_seq)
        finding.last_word = finding.assumed = True
        return finding

    def _stalled(self) -> Finding | None:
        roots = [r for r in self.scene.graph.roots if r.kind == "call" and r.explains]
        if not roots:
            return None
        root = min(roots, key=lambda r: (-len(r.explains), self.scene.when(r.nodes[0])))
        (node, *_) = (n for n in root.nodes if isinstance(n, Called))
        finding = self.scene.at(node, "stalled", ())
        finding.root = root
        return self.scene.with_waiting(finding, set(root.explains) | set(root.ranks))
