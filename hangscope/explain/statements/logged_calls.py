"""The collectives that log lines state, matched with those that dumps recorded where a line can mean one of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from hangscope.align.matching import numel
from hangscope.explain.statements.statements import Statements
from hangscope.ingest.torch_logs.c10d import AsyncError, WatchdogTimeout
from hangscope.ingest.torch_logs.reports import FailedStack
from hangscope.model.incident import CallKind, Frontier, Incident, Queue, Sizes, State

#: What reports the collective that a rank was in when it gave up.
InCall = WatchdogTimeout | AsyncError
#: Ops whose line counts other tensors than the recorder keeps: only the inputs are compared.
_LISTS = frozenset({"all_gather", "reduce_scatter", "gather", "scatter", "all_to_all"})


def stated_queue(rank: int, gid: int, seqs: list[int], kinds: list[int], frontier: Frontier) -> Queue:
    """Return a rank's queue of collectives that only text or a stack shows: pending, and without times."""
    seq, kind, none = np.array(seqs, np.int64), np.array(kinds, np.int64), np.zeros(len(seqs), np.int64)
    state = none + State.PENDING
    return Queue(rank, gid, seq, kind, state, none, none, frontier, pending_only=True, told=True)


class LoggedCalls:
    """The call kinds of an incident with those that only text reports."""

    def __init__(self, incident: Incident) -> None:
        self.added: list[CallKind] = []
        self._incident = incident
        self._index: dict[CallKind, int] = {}

    def _add(self, kind: CallKind) -> int:
        if kind not in self._index:
            self._index[kind] = len(self._incident.kinds) + len(self.added)
            self.added.append(kind)
        return self._index[kind]

    def call(self, gid: int, seq: int, event: InCall, statements: Statements) -> int:
        """Return the kind of a stated collective: the one that a dump shows there, where the line can mean that one."""
        sizes, outs = (((n,),) if n is not None else () for n in (event.numel_in, event.numel_out))
        shown = statements.of(event.rank, FailedStack) if event.rank is not None else []
        stack = shown[0].frames if shown else ()
        said = CallKind(event.op, "nccl", sizes, outs, stack=stack, told=True)
        incident, kinds = self._incident, self._incident.kinds
        members = incident.groups[gid].ranks if gid < len(incident.groups) else ()
        queues = [q for rank in members if (q := incident.ranks[rank].queues.get(gid)) is not None]
        columns = {id(queue.kind): queue.kind for queue in queues}.values()  # ranks of one role share theirs
        issued = {int(kind) for column in columns for kind in np.unique(column)}
        fitting = [kind for kind in issued if means(said, kinds[kind])]
        if len(fitting) == 1 and not stack:
            return fitting[0]  # the only collective of this group's program that the line can mean
        rows = ((queue, int(np.searchsorted(queue.seq, seq))) for queue in queues)
        shown_at = (int(q.kind[row]) for q, row in rows if row < len(q) and q.seq[row] == seq)
        here = Counter(kind for kind in shown_at if kind in fitting)
        if here:  # of collectives that differ in what no line shows, the one that most ranks issued
            usual = min(here, key=lambda k: (-here[k], k))
            return self._add(replace(kinds[usual], stack=stack, told=True))
        return self._add(said)


def means(said: CallKind, recorded: CallKind) -> bool:
    """Return whether a line can mean a recorded collective: the same op and as many elements, as far as the line counts them.

    A barrier is printed as an ALLREDUCE of one element.
    """
    if recorded.op == "barrier":
        return said.op in ("barrier", "all_reduce") and sum(numel(said.input_sizes)) <= 1

    def equal(one: Sizes, other: Sizes) -> bool:
        return not one or not other or sum(numel(one)) == sum(numel(other))

    outs = said.op in _LISTS or equal(said.output_sizes, recorded.output_sizes)
    return said.op == recorded.op and equal(said.input_sizes, recorded.input_sizes) and outs
