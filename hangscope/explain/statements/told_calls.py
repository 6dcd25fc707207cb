"""The calls that lines of text state, put beside those that dumps recorded where a line can mean one of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from hangscope.align.matching import numel
from hangscope.explain.statements.statements import Statements
from hangscope.incident import CallKind, Incident
from hangscope.ingest.torch_logs.c10d import AsyncError, WatchdogTimeout
from hangscope.ingest.torch_logs.desync import FailedStack

#: What tells of the call that a rank was in when it gave up.
InCall = WatchdogTimeout | AsyncError
#: Ops whose line counts other tensors than the recorder keeps: only what goes in is compared.
_LISTS = frozenset({"all_gather", "reduce_scatter", "gather", "scatter", "all_to_all"})


class ToldCalls:
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
        sizes = tuple((n,) for n in (event.numel_in,) if isinstance(n, int))
        outs = tuple((n,) for n in (event.numel_out,) if isinstance(n, int))
        stack = (
            next((e.frames for e in statements.of(event.rank, FailedStack)), ())
            if event.rank is not None
            else ()
        )
        said = CallKind(event.op, "nccl", sizes, outs, stack=stack, told=True)
        kinds = self._incident.kinds
        fitting = [k for k in self._recorded(gid) if means(said, kinds[k])]
        if len(fitting) == 1 and not stack:
            return fitting[0]  # the only call of this group's program that the line can mean
        here = Counter({k: n for k, n in self._recorded(gid, seq).items() if means(said, kinds[k])})
        if here:  # of calls that differ in what no line tells, it is taken for the one that most made
            return self._add(replace(kinds[here.most_common(1)[0][0]], stack=stack, told=True))
        return self._add(said)

    def _recorded(self, gid: int, seq: int | None = None) -> Counter[int]:
        """Return the kinds of call that dumps show on a group, or at one seq of it, each with how many ranks made it."""
        found: Counter[int] = Counter()
        seen: set[int] = set()
        incident = self._incident
        for rank in incident.groups[gid].ranks if gid < len(incident.groups) else ():
            queue = incident.ranks[rank].queues.get(gid) if rank in incident.ranks else None
            if queue is None or not len(queue):
                continue
            if seq is None:
                if id(queue.kind) not in seen:  # ranks of one role share their columns
                    seen.add(id(queue.kind))
                    found.update(sorted(set(queue.kind.tolist())))
                continue
            row = int(np.searchsorted(queue.seq, seq))
            if row < len(queue) and int(queue.seq[row]) == seq:
                found[int(queue.kind[row])] += 1
        return Counter(dict(sorted(found.items())))


def means(said: CallKind, recorded: CallKind) -> bool:
    """Return whether a line can mean a recorded call: the same op and as many elements, as far as the line counts them.

    A barrier is printed as an ALLREDUCE of one element.
    """
    if recorded.op == "barrier":
        return said.op in ("barrier", "all_reduce") and sum(numel(said.input_sizes)) <= 1
    if said.op != recorded.op:
        return False
    if not said.input_sizes or not recorded.input_sizes:
        return True
    same_in = sum(numel(said.input_sizes)) == sum(numel(recorded.input_sizes))
    same_out = not said.output_sizes or sum(numel(said.output_sizes)) == sum(numel(recorded.output_sizes))
    return same_in and (same_out or said.op in _LISTS)
