"""Which root the dumps show: from the wait-for graph and the groups' histories to one finding.

Order of suspicion at a root: calls that cannot match; a seen member that is absent; an inserted or dropped call that
only shifted what followed; a device that lags behind its peers' completions; a member that left no dump; a circular
wait; a call that all joined and none completes. What was not chosen is kept as a candidate with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from hangscope.align.divergence import GroupHistory, Mismatch, RankEdit
from hangscope.align.frontier import GroupFrontier
from hangscope.align.interleaving import Interleaving, Parting
from hangscope.align.matching import numel, proves_participation
from hangscope.align.p2p import Pair
from hangscope.align.rankset import ranks_phrase
from hangscope.align.sisters import odd_among_sisters
from hangscope.align.waitgraph import Node, OpenCall, Root, WaitGraph
from hangscope.incident import CallKind, Event, Incident, State


@dataclass(frozen=True, slots=True)
class Candidate:
    """Ranks that looked guilty and were set aside, with the reason."""

    ranks: tuple[int, ...]
    what: str
    why_set_aside: str


@dataclass(slots=True)
class Finding:
    """The root as the dumps show it, before any cause is named.

    `form`: different, absent, shifted, extra, half, unseen, cycle, unpaired, stalled or none. `culprits`: global ranks
    (empty: nobody can be named). `seq` is what the waiting ranks are stuck in; `waiting` are all ranks with an open
    call but the culprits, `explained` how many of them reach this root. `skipped`, `added`: calls that the culprit left
    out or made in addition; `swapped`: it made them, in another order; `last_word`: nothing behind its odd call is seen; `before`: what a waiting rank called until then. `tie`: the sides are even and history is silent. `guess`: it
    rests on what ranks printed last, or on counts of one moment. `events` are the lines that a finding from text rests on.
    """

    form: str
    culprits: tuple[int, ...] = ()
    view: GroupFrontier | None = None
    history: GroupHistory | None = None
    seq: int | None = None
    waiting: tuple[int, ...] = ()
    explained: int = 0
    waiting_rank: int | None = None
    waiting_kind: CallKind | None = None
    own_kind: CallKind | None = None
    own_seq: int | None = None
    sides: tuple[tuple[int, ...], ...] = ()
    edit: RankEdit | None = None
    skipped: tuple[CallKind, ...] = ()
    added: tuple[CallKind, ...] = ()
    swapped: bool = False
    last_word: bool = False
    before: list[CallKind] = field(default_factory=list)
    pair: Pair | None = None
    root: Root | None = None
    tie: bool = False
    assumed: bool = False
    guess: bool = False
    events: list[Event] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)


class Finder:
    """Looks for the root of one incident."""

    def __init__(self, incident: Incident, views: Sequence[GroupFrontier], histories: dict[int, GroupHistory], graph: WaitGraph) -> None:
        self.incident, self.graph, self.histories = incident, graph, histories
        self.views = {v.group.gid: v for v in views}
        self.waiting = graph.waiting
        self.candidates: list[Candidate] = []
        self.interleaving = Interleaving(incident)

    def find(self) -> Finding:
        """Return the best finding; form `none` where nothing is open and nothing differs."""
        steps: tuple[Callable[[], Finding | None], ...] = (
            self._different, self._unequal_pair, self._absent, self._half, self._unseen, self._cycle, self._stalled,
        )
        found = [f for step in steps if (f := step()) is not None]
        if not found:
            return Finding("none", candidates=self.candidates)
        absent = [f for f in found if f.form == "absent"]
        if absent and any(f.form == "half" and self._a_moment_old(f) for f in found):
            found = absent
        found = [f for f in found if f.form != "stalled" or not any(o is not f and (o.view, o.seq) == (f.view, f.seq) for o in found)]
        shares = [f.explained / max(1, len(f.waiting)) for f in found]
        # A root of a more certain kind is not given up for one that merely explains a few ranks more.
        chosen = next(f for f, share in zip(found, shares, strict=True) if share >= 0.9 * max(shares))
        for finding in found:
            if finding is not chosen and finding.culprits and set(finding.culprits) - set(chosen.culprits):
                self.candidates.append(Candidate(finding.culprits, finding.form, f"explains {finding.explained} waiting ranks; {chosen.form} explains {chosen.explained}"))
        chosen.candidates = self.candidates
        return chosen

    # -- calls that cannot match ------------------------------------------------------------------------------------

    def _different(self) -> Finding | None:
        found: list[tuple[int, int, int, Mismatch]] = []
        for gid, history in sorted(self.histories.items()):
            mismatch = history.mismatch()
            if mismatch is not None and not self._legal_offset(history, mismatch):
                when = min((history.view.created(r, mismatch.seq) for side in mismatch.sides for r in side if history.view.created(r, mismatch.seq)), default=0)
                found.append((when, gid, mismatch.seq, mismatch))
        for _, gid, seq, mismatch in sorted(found, key=lambda f: f[:3]):
            finding = self._mismatch_finding(self.histories[gid], seq, mismatch)
            if finding is not None:
                return finding
        return None

    def _legal_offset(self, history: GroupHistory, mismatch: Mismatch) -> bool:
        """Return whether seqs merely count differently: everything matches again under one constant shift.

        Recorders that number point-to-point batches with the collectives burn seqs on the participants only.
        """
        if not history.view.calls_in_p2p_numbers:
            return False
        odd, peer = mismatch.sides[-1][0], mismatch.sides[0][0]
        a, b = list(map(int, history.hard[odd])), list(map(int, history.hard[peer]))
        return any(
            len(a) - s > 8 and (a[s:] == b[: len(a) - s] or a[: len(b) - s] == b[s:]) for s in range(1, min(33, len(a), len(b)))
        )

    def _mismatch_finding(self, history: GroupHistory, seq: int, mismatch: Mismatch) -> Finding | None:
        view = history.view
        sides = mismatch.sides
        odd: tuple[int, ...] = tuple(r for side in sides[1:] for r in side)
        majority = sides[0]
        tie = len(sides[0]) == len(sides[1])
        if tie:
            even = [s for s in sides if len(s) == len(sides[0])]
            broken = history.odd_side(seq - history.sequences.first, even) or odd_among_sisters(self.views.values(), view, seq, even)
            if broken is not None:
                tie = False
                odd, majority = broken, next(s for s in sides if s != broken)
        culprits = () if tie else tuple(sorted(odd))
        odd_rank, waiting_rank = (odd or majority)[0], majority[0]
        skipped = None if tie else history.skipped(odd_rank, waiting_rank, seq)
        finding = Finding(
            "different", culprits, view, history, seq,
            waiting_rank=waiting_rank, waiting_kind=view.kind_of(waiting_rank, seq),
            own_kind=view.kind_of(odd_rank, seq), own_seq=seq, sides=sides, tie=tie,
            skipped=tuple(self._kind_of_site(history, waiting_rank, t) for t in skipped or ()),
            edit=next((e for e in history.edits() if set(e.ranks) & set(culprits)), None),
        )
        members = set(view.group.ranks)
        stuck_here = {r for r in self.waiting if r in members}
        reach = set(stuck_here)
        for root in self.graph.roots:
            if any(n[0] == "I" and n[1] == view.group.gid for n in root.nodes) or set(root.ranks) & members:
                reach |= root.explains
        return self._with_waiting(finding, reach)

    def _kind_of_site(self, history: GroupHistory, rank: int, site: int) -> CallKind:
        tokens = history.sequences.tokens[rank]
        position = next(i for i, s in enumerate(history.site[rank]) if int(s) == site)
        return history.view.kinds[int(tokens[position])]

    def _unequal_pair(self) -> Finding | None:
        """A send and its receive that meet with different sizes; the odd one differs from what the pair exchanged before."""
        for root in self.graph.roots:
            for node in root.nodes if root.kind == "call" else ():
                finding = self._unequal(node, root) if node[0] == "P" else None
                if finding is not None:
                    return finding
        return None

    def _unequal(self, node: Node, root: Root) -> Finding | None:
        pair = self.graph.pairs[node[1:]]  # type: ignore[index]
        if pair.send is None or pair.recv is None:
            return None
        kinds = self.incident.kinds
        sent, received = kinds[pair.send.kind], kinds[pair.recv.kind]
        if numel(sent.input_sizes) == numel(received.input_sizes) and sent.input_dtypes == received.input_dtypes:
            return None
        odd = [
            h for h in (pair.send, pair.recv)
            if (usual := self._usual(pair, h.rank)) is not None and numel(kinds[h.kind].input_sizes) != usual
        ]
        finding = self._at(node, "unpaired", (odd[0].rank,) if len(odd) == 1 else ())
        finding.root, finding.tie = root, len(odd) != 1
        own = odd[0] if len(odd) == 1 else pair.send
        other = pair.recv if own is pair.send else pair.send
        finding.own_kind, finding.own_seq = kinds[own.kind], own.seq
        finding.waiting_kind, finding.waiting_rank = kinds[other.kind], other.rank
        return self._with_waiting(finding, set(root.explains))

    def _usual(self, pair: Pair, rank: int) -> tuple[int, ...] | None:
        """Return the size that a rank exchanged most often with this peer before, in elements."""
        queue = self.incident.ranks[rank].p2p[pair.key[0]]
        this = pair.send.kind if pair.send is not None and pair.send.rank == rank else pair.recv.kind if pair.recv is not None else -1
        wanted = self.incident.kinds[this]
        sizes = Counter(
            numel(kind.input_sizes) for k, s in zip(queue.kind, queue.state, strict=True)
            if (kind := self.incident.kinds[int(k)]).op == wanted.op and (kind.src, kind.dst) == (wanted.src, wanted.dst) and int(s) == State.DONE
        )
        return sizes.most_common(1)[0][0] if sizes else None

    # -- seen and absent --------------------------------------------------------------------------------------------

    def _absent(self) -> Finding | None:
        roots = [r for r in self.graph.roots if r.kind == "host" and r.explains]
        if not roots:
            return None
        hosts = tuple(sorted({rank for root in roots for rank in root.ranks}))
        explains = frozenset[int]().union(*(r.explains for r in roots))
        node = self._first_instance(lambda absent: bool(absent & set(hosts)))
        if node is None:
            return None
        finding = self._at(node, "absent", hosts)
        finding.root = roots[0]
        finding.own_kind, finding.own_seq = self._last_call(hosts[0], finding.view)
        parted = self._parted({r.nodes[0] for r in roots} | set(self._lacking(set(hosts))), hosts)
        if parted is not None and set(parted.culprits) <= set(hosts):
            return self._with_waiting(parted, set(explains))
        self._who_is_odd(finding)
        return self._with_waiting(finding, set(explains))

    def _lacking(self, hosts: set[int]) -> list[Node]:
        """Return the open instances that wait for one of these hosts."""
        return [
            n for n in self.graph.nodes
            if n[0] == "I" and any(t[0] == "H" and int(t[1]) in hosts for t, _ in self.graph.targets(n))  # type: ignore[call-overload]
        ]

    def _parted(self, nodes: set[Node], hosts: Sequence[int] | None = None) -> Finding | None:
        """Return a finding where ranks left their peers' program, by comparing those who made a call with those who did not."""
        partings: list[Parting] = []
        decided: list[Parting] = []
        for node in sorted((n for n in nodes if n[0] == "I"), key=self._when)[:64]:
            gid, seq = int(node[1]), int(node[2])  # type: ignore[call-overload]
            view = self.views[gid]
            joined = [r for r in view.seen if view.members[r].row_of(seq) is not None]
            absent = [r for r in view.seen if (view.members[r].enqueued or 0) < seq and (hosts is None or r in hosts)]
            for behind in absent[:32]:
                for ahead in joined[:2]:
                    parting = self.interleaving.part(behind, ahead, gid, seq)
                    if parting is not None:
                        partings.append(parting)
                        decided += self._by_majority(parting)
        told = decided or [p for p in partings if p.odd is not None]
        odd = {p.odd for p in told if p.odd is not None}
        if not told:
            common = set.intersection(*(set(p.ranks) for p in partings)) if partings else set()
            if len(common) != 1 or len({r for p in partings for r in p.ranks}) < 4:
                return None  # fewer than three peers that agree are no majority
            odd, told = common, partings
        if decided or not any(p.odd is not None for p in told):
            guilty = odd
        else:  # a rank that kept its own pattern was only misled by the others
            waiting = {int(n[1]) for n in nodes if n[0] == "H"}  # type: ignore[call-overload]
            broke = {r for r in waiting if (cs := self.graph.open_calls.get(r)) and self.interleaving.breaks_pattern(r, cs[0].order)}
            guilty = {r for p in partings for r in p.broke} | broke
            guilty = guilty - {r for p in partings for r in p.kept} or odd
        culprits = tuple(sorted(guilty))
        if decided and len(culprits) * 2 > len(self.incident.ranks):
            return None
        first = min((p for p in told if set(p.ranks) & guilty), key=lambda p: self._parting_time(p))
        return self._parting_finding(first, culprits)

    def _by_majority(self, parting: Parting) -> list[Parting]:
        """Let the members decide where they can: the side whose call most of its group made is not the odd one."""
        made: list[bool] = []
        for (rank, row), other in zip(zip(parting.ranks, parting.rows, strict=True), reversed(parting.ranks), strict=True):
            gid, seq, kind, _ = self.interleaving.call(rank, row)
            view = self.views[gid]
            most = not kind.is_p2p and len(view.members) > 2 and sum((m.enqueued or 0) >= seq for m in view.members.values()) * 2 > len(view.members)
            made.append(most and other in view.members and (view.members[other].enqueued or 0) < seq)
        if made == [True, False]:
            return [self.interleaving.blame(parting, parting.ranks[1])]
        if made == [False, True]:
            return [self.interleaving.blame(parting, parting.ranks[0])]
        return []

    def _parting_time(self, parting: Parting) -> tuple[int, tuple[int, int]]:
        return (min(self.interleaving.call(r, row)[3] for r, row in zip(parting.ranks, parting.rows, strict=True)), parting.ranks)

    def _parting_finding(self, parting: Parting, culprits: tuple[int, ...]) -> Finding:
        odd = next(r for r in parting.ranks if r in culprits)
        peer = next(r for r in parting.ranks if r != odd)
        rows = dict(zip(parting.ranks, parting.rows, strict=True))
        gid, seq, kind, _ = self.interleaving.call(peer, rows[peer])
        _, own_seq, own_kind, _ = self.interleaving.call(odd, rows[odd])
        if parting.skipped and all(k.is_p2p for k in parting.skipped):
            halves = [n for n in self.graph.nodes if n[0] == "P" and self._missing_half(n) in culprits]
            if halves:
                finding = self._at(min(halves, key=self._when), "unpaired", culprits)
                finding.own_kind, finding.own_seq = own_kind, own_seq
                return finding
        history = self.histories.get(gid)
        edit = next((e for e in history.edits() if set(e.ranks) & set(culprits)), None) if history is not None else None
        return Finding(
            "different", culprits, self.views[gid], history, seq, edit=edit, waiting_rank=peer, waiting_kind=kind, own_kind=own_kind, own_seq=own_seq,
            skipped=parting.skipped, added=(parting.added,) if parting.added is not None else (), swapped=parting.swapped,
            last_word=rows[odd] == len(self.interleaving.program(odd).tokens) - 1,
            before=self.interleaving.before(peer, rows[peer]),
        )

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
                self.candidates.append(Candidate(absent, "absent", f"{ranks_phrase(edit.ranks)} {'made' if extra else 'left out'} a call at seq {edit.seq} that shifted everything after it"))
                finding.form, finding.edit, finding.culprits = "shifted", edit, edit.ranks
                # The calls around the edit were made by both sides, though not together.
                finding.own_kind, finding.own_seq = view.kinds[edit.calls[0]] if extra and edit.calls else finding.own_kind, edit.seq
                return
        if joined and len(joined) <= len(absent):
            goes_on = finding.history.continues_pattern(joined[0], seq)
            if goes_on is False or (goes_on is None and len(joined) < len(absent)):
                self.candidates.append(Candidate(absent, "absent", "they are the majority, and the call that the others wait in breaks the pattern of this group"))
                finding.form, finding.culprits = "extra", joined
                finding.own_kind, finding.own_seq = view.kind_of(joined[0], seq), seq
                finding.tie = goes_on is None
            elif goes_on is None and len(joined) == len(absent):
                finding.tie = True

    # -- a device that lags -----------------------------------------------------------------------------------------

    def _half(self) -> Finding | None:
        lagging: set[int] = set()
        explains: set[int] = set()
        # A dump older than its peers' shows calls open that were finished after it was taken.
        early = {rank for view in self.views.values() for rank in view.early}
        first: tuple[int, Node] | None = None
        for root in self.graph.roots:
            if root.kind != "call" or root.nodes[0][0] != "I":
                continue
            _, gid, seq = root.nodes[0]
            view = self.views[int(gid)]  # type: ignore[call-overload]
            behind = [r for r in root.ranks if r not in early and self._lags(view, r, int(seq))]  # type: ignore[call-overload]
            if behind and len(behind) < len(view.members):
                lagging.update(behind)
                explains |= root.explains | set(behind)
                created = min((view.created(r, int(seq)) for r in behind), default=0)  # type: ignore[call-overload]
                first = min(first or (created, root.nodes[0]), (created, root.nodes[0]), key=lambda c: (c[0], str(c[1])))
        if first is None:
            return None
        finding = self._at(first[1], "half", tuple(sorted(lagging)))
        culprit = next((r for r in finding.culprits if finding.view and r in finding.view.members), finding.culprits[0])
        node = self._first_instance(lambda absent: bool(absent & lagging))
        if node is not None:  # what the others are stuck in lies behind what the lagging device did not finish
            own_view, own_seq = finding.view, finding.seq
            finding = self._at(node, "half", finding.culprits)
            finding.own_kind, finding.own_seq = (own_view.kind_of(culprit, own_seq) if own_view and own_seq else None), own_seq
        else:
            finding.own_kind, finding.own_seq = finding.waiting_kind, finding.seq
        return self._with_waiting(finding, explains)

    def _a_moment_old(self, finding: Finding) -> bool:
        """Return whether those who lag do so by one call only: their dumps may be a moment older than their peers'."""
        for rank in finding.culprits:
            for view in self.views.values():
                member = view.members.get(rank)
                if member is not None and any(s < view.proven for s in member.pending):
                    return False
        return True

    def _lags(self, view: GroupFrontier, rank: int, seq: int) -> bool:
        """Return whether peers' completions prove that a call is over which this rank's device has not finished."""
        if view.proven < seq:
            return False
        kind = view.kind_of(rank, seq)
        return kind is None or proves_participation(kind) or view.proven > seq

    # -- no dump ----------------------------------------------------------------------------------------------------

    def _unseen(self) -> Finding | None:
        roots = [r for r in self.graph.roots if r.kind == "unseen" and r.explains]
        if not roots:
            return None
        ranks = tuple(sorted({rank for root in roots for rank in root.ranks}))
        explains = frozenset[int]().union(*(r.explains for r in roots))
        # Where several ranks are unseen, those that more waiting ranks lead to come first.
        most = max(len(r.explains) for r in roots)
        named = tuple(sorted({rank for r in roots if len(r.explains) == most for rank in r.ranks}))
        node = self._first_instance(lambda absent: bool(absent & set(named)))
        if node is None:
            return None
        finding = self._at(node, "unseen", named)
        finding.root = roots[0]
        for rank in ranks:
            if rank not in named:
                self.candidates.append(Candidate((rank,), "unseen", "fewer waiting ranks lead to it"))
        return self._with_waiting(finding, set(explains))

    # -- circular waits and stalls ----------------------------------------------------------------------------------

    def _cycle(self) -> Finding | None:
        root = next((r for r in self.graph.roots if r.kind == "cycle" and r.explains), None)
        if root is None:
            return None
        calls = [n for n in root.nodes if n[0] != "H"]
        parted = self._parted(set(root.nodes))
        if parted is not None:
            parted.root = root
            return self._with_waiting(parted, set(root.explains) | set(root.ranks))
        ranks = root.ranks or tuple(sorted({r for r, cs in self.graph.open_calls.items() if any(c.node in calls for c in cs)}))
        finding = self._at(min(calls, key=self._when), "cycle", ranks)
        finding.root, finding.assumed = root, not root.certain
        unpaired = sorted((n for n in calls if n[0] == "P" and self._missing_half(n) is not None), key=self._when)
        if unpaired:
            node, culprit = self._guilty_half(unpaired)
            finding = self._at(node, "unpaired", (culprit,))
            finding.root, finding.assumed = root, False
        return self._with_waiting(finding, set(root.explains))

    def _missing_half(self, node: Node) -> int | None:
        """Return the rank that has not made its half of a pair, or None where both are there."""
        pair = self.graph.pairs[node[1:]]  # type: ignore[index]
        return pair.key[1] if pair.send is None else pair.key[2] if pair.recv is None else None

    def _guilty_half(self, unpaired: list[Node]) -> tuple[Node, int]:
        """Return the unpaired call that started it, and whose fault it is.

        A rank that starves in an unpaired call itself is a link of the chain, and one whose own half breaks the pattern
        of its program waits for the wrong peer.
        """
        for node in unpaired:
            pair = self.graph.pairs[node[1:]]  # type: ignore[index]
            half = pair.send or pair.recv
            if half is not None and self.interleaving.breaks_pattern(half.rank, half.order):
                return node, half.rank
        starving = {calls[0].node for calls in self.graph.open_calls.values() if calls}
        for node in unpaired:
            rank = self._missing_half(node)
            calls = self.graph.open_calls.get(rank, []) if rank is not None else []
            if rank is not None and not (calls and calls[0].node in starving and calls[0].node in unpaired):
                return node, rank
        rank = self._missing_half(unpaired[0])
        assert rank is not None
        return unpaired[0], rank

    def _stalled(self) -> Finding | None:
        roots = [r for r in self.graph.roots if r.kind == "call" and r.explains]
        if not roots:
            return None
        root = min(roots, key=lambda r: (-len(r.explains), self._when(r.nodes[0])))
        finding = self._at(root.nodes[0], "stalled", ())
        finding.root = root
        return self._with_waiting(finding, set(root.explains) | set(root.ranks))

    # -- shared -----------------------------------------------------------------------------------------------------

    def _calls_of(self, node: Node) -> list[tuple[int, OpenCall]]:
        return self.graph.calls_of(node)

    def _when(self, node: Node) -> tuple[int, str]:
        return (min((c.created for _, c in self._calls_of(node) if c.created), default=1 << 62), str(node))

    def _first_instance(self, wanted: Callable[[set[int]], bool]) -> Node | None:
        """Return the open instance that most ranks are stuck in whose absent members satisfy `wanted`, the earliest of equals."""
        stuck: Counter[Node] = Counter(calls[0].node for calls in self.graph.open_calls.values() if calls)
        times: dict[Node, int] = {}
        for calls in self.graph.open_calls.values():
            for call in calls:
                times[call.node] = min(times.get(call.node, 1 << 62), call.created or 1 << 61)
        fitting = [n for n in times if wanted({int(t[1]) for t, _ in self.graph.targets(n) if t[0] == "H"})]  # type: ignore[call-overload]
        return min(fitting, key=lambda n: (-stuck[n], times[n], str(n)), default=None)

    def _at(self, node: Node, form: str, culprits: tuple[int, ...]) -> Finding:
        """Return a finding at one instance, with what those inside it called."""
        inside = [r for r, _ in self._calls_of(node)]
        rank = next((r for r in inside if r not in culprits), inside[0] if inside else None)
        if node[0] == "P":
            pair = self.graph.pairs[node[1:]]  # type: ignore[index]
            view = self.views[pair.key[0]]
            half = pair.send or pair.recv
            kind = self.incident.kinds[half.kind] if half is not None else None
            return Finding(form, culprits, view, self.histories.get(pair.key[0]), half.seq if half else None, waiting_rank=half.rank if half else rank, waiting_kind=kind, pair=pair)
        view, seq = self.views[int(node[1])], int(node[2])  # type: ignore[call-overload]
        return Finding(form, culprits, view, self.histories.get(view.group.gid), seq, waiting_rank=rank, waiting_kind=view.kind_of(rank, seq) if rank is not None else None)

    def _last_call(self, rank: int, view: GroupFrontier | None) -> tuple[CallKind | None, int | None]:
        """Return the last call that a rank enqueued on a group, and its seq."""
        if view is None or rank not in view.members:
            return None, None
        member = view.members[rank]
        return (view.kind_of(rank, member.last_row), member.last_row) if member.last_row else (None, member.enqueued)

    def _with_waiting(self, finding: Finding, explains: set[int]) -> Finding:
        waiting = tuple(r for r in self.waiting if r not in finding.culprits)
        return replace(finding, waiting=waiting, explained=len(explains & set(waiting)))
