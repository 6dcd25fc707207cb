"""The calls that lines of text state, put beside those that dumps recorded where a line can mean one of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from hangscope.align.matching import numel
from hangscope.explain.statements.statements import Statements
from hangscope.ingest.torch_logs.c10d import AsyncError, WatchdogTimeout
from hangscope.ingest.torch_logs.desync import FailedStack
from hangscope.ingest.torch_logs.wrapper import CallFingerprint
from hangscope.model.incident import CallKind, Incident, Queue

#: What tells of the call that a rank was in when it gave up.
InCall = WatchdogTimeout | AsyncError
#: Ops whose line counts other tensors than the recorder keeps: only what goes in is compared.
_LISTS = frozenset({"all_gather", "reduce_scatter", "gather", "scatter", "all_to_all"})


class LoggedCalls:
    """The call kinds of an incident with those that only text tells."""

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
        """Return the kind of a stated call: the one that a dump shows there, where the line can mean that one."""
        sizes, outs = (((n,),) if n is not None else () for n in (event.numel_in, event.numel_out))
        shown = statements.of(event.rank, FailedStack) if event.rank is not None else []
        stack = shown[0].frames if shown else ()
        said = CallKind(event.op, "nccl", sizes, outs, stack=stack, told=True)
        kinds, queues = self._incident.kinds, self._queues(gid)
        columns = {id(queue.kind): queue.kind for queue in queues}.values()  # ranks of one role share theirs
        made = {int(k) for column in columns for k in np.unique(column)}
        fitting = [k for k in made if means(said, kinds[k])]
        if len(fitting) == 1 and not stack:
            return fitting[0]  # the only call of this group's program that the line can mean
        rows = ((queue, int(np.searchsorted(queue.seq, seq))) for queue in queues)
        shown_at = (int(q.kind[row]) for q, row in rows if row < len(q) and q.seq[row] == seq)
        here = Counter(k for k in shown_at if k in fitting)
        if here:  # of calls that differ in what no line tells, it is taken for the one that most made
            usual = min(here, key=lambda k: (-here[k], k))
            return self._add(replace(kinds[usual], stack=stack, told=True))
        return self._add(said)

    def _queues(self, gid: int) -> list[Queue]:
        """Return what dumps show of a group, by rank."""
        incident = self._incident
        records = (
            [incident.ranks[rank] for rank in incident.groups[gid].ranks]
            if gid < len(incident.groups)
            else []
        )
        return [record.queues[gid] for record in records if gid in record.queues]


def means(said: CallKind, recorded: CallKind) -> bool:
    """Return whether a line can mean a recorded call: the same op and as many elements, as far as the line counts them.

    A barrier is printed as an ALLREDUCE of one element.
    """
    if recorded.op == "barrier":
        return said.op in ("barrier", "all_reduce") and sum(numel(said.input_sizes)) <= 1
    ins, outs = (
        not told or not kept or sum(numel(told)) == sum(numel(kept))
        for told, kept in (
            (said.input_sizes, recorded.input_sizes),
            (said.output_sizes, recorded.output_sizes),
        )
    )
    return said.op == recorded.op and ins and (outs or said.op in _LISTS)


def with_refused(incident: Incident, statements: Statements) -> Incident:
    """Return the incident with the calls of which dumps hold the line alone, where every rank that came to one says what it was.

    DETAIL lets nobody make a call that does not fit its peers': what it was the ranks' own fingerprints say.
    Where one of them does not say it, none is filled in: what is told and what is not would look like two calls.
    """
    at: dict[tuple[int, int], list[int]] = {}
    for rank, record in incident.ranks.items():
        for gid, queue in record.queues.items():
            if len(queue) and not incident.kinds.without_sizes(int(queue.kind[-1])).op:
                at.setdefault((gid, int(queue.seq[-1])), []).append(rank)
    added: list[CallKind] = []
    ranks = dict(incident.ranks)
    for (gid, seq), came in sorted(at.items()):
        told = {r: next((e for e in statements.of(r, CallFingerprint) if e.seq == seq), None) for r in came}
        for rank, event in told.items() if None not in told.values() else ():
            assert event is not None
            queue = ranks[rank].queues[gid]
            sizes = (event.shape,) if event.shape is not None else ()
            types = (event.dtype,) if event.dtype else ()
            kind = incident.kinds[int(queue.kind[-1])]
            kind = replace(kind, op=event.op, input_sizes=sizes, input_dtypes=types)
            in_place = event.op == "all_reduce"  # of other calls a fingerprint does not tell what comes out
            added.append(replace(kind, output_sizes=sizes, output_dtypes=types) if in_place else kind)
            kinds = queue.kind.copy()
            kinds[-1] = len(incident.kinds) + len(added) - 1
            queues = {**ranks[rank].queues, gid: replace(queue, kind=kinds)}
            ranks[rank] = replace(ranks[rank], queues=queues)
    return replace(incident, ranks=ranks, kinds=incident.kinds.and_also(added)) if added else incident
