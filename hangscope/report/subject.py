"""An analysis as the pictures see it: only here do they access the graph, the frontiers and the statements of logs.

Ranks are global. A *node* is one of the wait-for graph's: a host, a collective of a group, or a pair of a send and its
receive.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace
from functools import cached_property

from hangscope.align.frontier import GroupFrontier
from hangscope.align.matching import match_key
from hangscope.align.p2p import PairInstance
from hangscope.align.waitgraph import Instance, Node, OpenCall, WaitGraph
from hangscope.analysis import Analysis
from hangscope.explain.text.group_size import stated_size
from hangscope.knowledge.callsite import user_frame
from hangscope.model.conclusion import Verdict
from hangscope.model.incident import Absence, CallKind, Group, Incident, RankRecord, Stack, State, on_group
from hangscope.report.words import HEARD, NOT_NAMED, ROLE_WORDS, sizes_words


class Subject:
    """One analysis with what the pictures ask of it, looked up once."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self.incident: Incident = analysis.incident
        #: without a verdict, one whose cause is empty
        self.verdict = analysis.judgement.verdict or Verdict("", "", (), "", "")
        self.graph: WaitGraph = analysis.case.graph.of_known_calls()
        self.culprits = frozenset(self.verdict.culprit_ranks)
        self.waiting = frozenset(self.verdict.waiting_ranks)

    @property
    def over(self) -> bool:
        """Return whether nothing is stuck any more."""
        return self.analysis.judgement.status == "no_hang"

    @cached_property
    def views(self) -> dict[int, GroupFrontier]:
        """Return the frontiers of each group, by gid."""
        return {view.group.gid: view for view in self.analysis.views}

    @cached_property
    def gid(self) -> int | None:
        """Return the gid of the verdict's group, None where it has none."""
        group = self.verdict.group
        return group.gid if group is not None and 0 <= group.gid < len(self.incident.groups) else None

    @property
    def view(self) -> GroupFrontier | None:
        """Return the frontiers of the verdict's group."""
        return None if self.gid is None else self.views.get(self.gid)

    def issued_another(self, node: Node, rank: int) -> bool:
        """Return whether a culprit issued something else than the other ranks under the number of a collective."""
        if not isinstance(node, Instance) or rank not in self.culprits:
            return False
        called = {r: self.kind_of(node, r) for r, _ in self.graph.calls_of(node)}
        keys = {r: match_key(kind) for r, kind in called.items() if kind is not None}
        others = {key for r, key in keys.items() if r not in self.culprits}
        return rank in keys and bool(others) and keys[rank] not in others

    @cached_property
    def node(self) -> Node | None:
        """Return the call that the verdict names, where it is in the graph."""
        verdict = self.verdict
        if self.gid is None or verdict.seq is None:
            return None
        if not verdict.is_p2p:
            named = Instance(self.gid, verdict.seq)
            return named if named in self.graph.edges else None
        ranks = {*verdict.in_call, *verdict.culprit_ranks}
        for key, pair in self.graph.pairs.items():
            posted = [(half.rank, half.seq) for half in (pair.send, pair.recv) if half is not None]
            if key.gid == self.gid and any(rank in ranks and seq == verdict.seq for rank, seq in posted):
                return key if key in self.graph.edges else None
        return None

    def role(self, rank: int) -> str:
        """Return what a rank is: one of `words.ROLES`."""
        if rank in self.culprits:
            return "culprit"
        if rank in self.waiting or self.graph.open_calls.get(rank):
            return "waiting"
        record = self.incident.ranks.get(rank)
        return "idle" if record is not None and record.seen and record.calls_file else "unseen"

    def standing(self, rank: int) -> str:
        """Return the state of a rank in words: `timed out`, `no dump; log or stack only`."""
        role = self.role(rank)
        if role == "unseen" and rank in self.heard:
            return HEARD
        own = {"waiting": self.waiting_words([rank]), "idle": self.idle_words}
        return own.get(role, ROLE_WORDS[role])

    @cached_property
    def heard(self) -> frozenset[int]:
        """Return the ranks of which some text or stack was read."""
        of_rank = self.analysis.case.statements.of_rank.items()
        own = {r for r, kinds in of_rank if not all(e.by_launcher for es in kinds.values() for e in es)}
        records = self.incident.ranks.items()
        return frozenset(own).union(r for r, record in records if record.events or record.threads)

    def files_of(self, rank: int) -> tuple[str, ...]:
        """Return the files of a rank, or those that hold lines of it among those of others."""
        record = self.incident.ranks[rank]
        kinds = self.analysis.case.statements.of_rank.get(rank, {})
        own = (e.file for events in kinds.values() for e in events if e.file)
        return tuple(record.files) or tuple(sorted(dict.fromkeys(own)))

    @cached_property
    def idle_words(self) -> str:
        """Return what is known of the ranks that no file shows to wait: where no end of a collective is recorded, it may be pending."""
        records = [r for rank, r in self.incident.ranks.items() if self.role(rank) == "idle"]
        queues = [queue for record in records for queue in record.all_queues]
        ends = any(queue.tells_completion or State.DONE in queue.state[-1:] for queue in queues) or not queues
        return ROLE_WORDS["idle"] if ends else "no end of a collective is recorded"

    @property
    def waits_ended(self) -> bool:
        """Return whether no rank waits any more: the job is over, or all waits ended by a timeout or an error."""
        states = self.verdict.wait_ends.state(self.waiting)
        return self.over or (bool(states) and "blocked" not in states)

    def waiting_words(self, ranks: Collection[int]) -> str:
        """Return the state of ranks that are in a collective: `blocked`, or how their waits ended."""
        if self.over or not self.verdict.cause:
            return "waited"
        return self.verdict.wait_ends.state(ranks) or ROLE_WORDS["waiting"]

    def stack(self, rank: int) -> Stack:
        """Return the stack of a rank's first thread, innermost frame first; empty where none was taken."""
        record = self.incident.ranks.get(rank)
        return record.threads[0][1] if record is not None and record.threads else ()

    def call_stack(self, rank: int) -> Stack:
        """Return where a rank enqueued the call that it is stuck in; empty where its dump has no frames of it."""
        call = self.first_open(rank)
        kind = self.kind_of(call.node, rank) if call is not None else None
        return kind.stack if kind is not None else ()

    def first_open(self, rank: int) -> OpenCall | None:
        """Return the call that a rank is stuck in, None where it has no open one."""
        calls = self.graph.open_calls.get(rank)
        return calls[0] if calls else None

    @cached_property
    def open_seqs(self) -> dict[tuple[int, int, bool], frozenset[int]]:
        """Return the pending collectives of each (rank, gid, point-to-point): their seqs, or the enqueue numbers of sends and recvs."""
        found: dict[tuple[int, int, bool], set[int]] = defaultdict(set)
        for rank, calls in self.graph.open_calls.items():
            for call in calls:
                if isinstance(call.node, PairInstance):
                    found[rank, call.gid, True].add(call.order)
                elif isinstance(call.node, Instance):
                    found[rank, call.gid, False].add(call.node.seq)
        return {key: frozenset(seqs) for key, seqs in found.items()}

    def label(self, gid: int) -> str:
        """Return a group for a person: `0 (default_pg)`."""
        return self.incident.groups[gid].label

    def on_group(self, gid: int) -> str:
        """Return ` on group 0 (default_pg)`; empty where the group is not known."""
        return f" {on_group(self.label(gid))}" if 0 <= gid < len(self.incident.groups) else ""

    def kind_of(self, node: Node, rank: int) -> CallKind | None:
        """Return what a rank called in an instance."""
        if isinstance(node, PairInstance):
            pair = self.graph.pairs[node]
            half = pair.recv if pair.recv is not None and pair.recv.rank == rank else pair.send or pair.recv
            return self.incident.kinds[half.kind] if half is not None else None
        return self.views[node.gid].kind_of(rank, node.seq) if isinstance(node, Instance) else None

    def call_name(self, node: Node, rank: int | None = None, peers: bool = True) -> str:
        """Return an instance as `rank` called it, or with every op that its members made of it; without `peers`, a pair as any alike."""
        if isinstance(node, PairInstance):
            pair = self.graph.pairs[node]
            posted = [(verb, half) for verb, half in (("send", pair.send), ("recv", pair.recv)) if half]
            own = [(verb, half) for verb, half in posted if half.rank == rank] or posted
            seqs = dict.fromkeys(str(half.seq) for _, half in own)
            ends = f" {node.source} -> {node.destination}" if peers else ""
            return f"{'/'.join(verb for verb, _ in own)}{ends} seq {'/'.join(seqs)}"
        if not isinstance(node, Instance):
            return NOT_NAMED
        view, seq = self.views[node.gid], node.seq
        members = view.members if rank is None or view.kind_index(rank, seq) is None else [rank]
        called = {r: index for r in members if (index := view.kind_index(r, seq)) is not None}
        kinds = {index for r, index in called.items() if r not in self.culprits} or set(called.values())
        ops = sorted({view.kinds.without_sizes(index).op for index in kinds})
        return f"{' / '.join(ops) or 'collective'} seq {seq}"


def site_of(kind: CallKind) -> str:
    """Return which line of the user's code issued a call: `train.py:87 in log_metrics`; empty where no frame was kept."""
    return str(user_frame(kind.stack) or "")


def sizes_of(kind: CallKind) -> str:
    """Return a call's sizes and type for a person."""
    return sizes_words(kind.input_sizes or kind.output_sizes, kind.input_dtypes or kind.output_dtypes)


_MOST = 1 << 15  # ranks of which nothing was seen that are listed: a number in a short text costs no more


def of_stated_size(analysis: Analysis) -> Analysis:
    """Return an analysis with a record of every rank that the job has by what an input states."""
    incident = analysis.incident
    size = stated_size(incident, analysis.case.statements)
    if size is None or size > _MOST or incident.size_stated:
        return analysis
    ranks = {rank: RankRecord(rank, absence=Absence.NO_DUMP) for rank in range(size)}
    ranks.update(incident.ranks)
    return replace(analysis, incident=replace(incident, world_size=size, ranks=ranks, size_stated=True))


def with_members(group: Group, incident: Incident) -> Group:
    """Return a group as far as its members are known: of the default group they are all ranks of a job of known size."""
    if not (group.desc == "default_pg" or (group.name in ("", "0") and not group.desc)):
        return group
    if not incident.size_stated:
        return replace(group, members_known=False)
    is_short = 0 < len(group.ranks) < incident.world_size
    return replace(group, ranks=tuple(range(incident.world_size))) if is_short else group
