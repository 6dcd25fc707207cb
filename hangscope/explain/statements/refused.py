"""Calls that DETAIL let nobody make: what the ranks' own fingerprints say of them is put into their queues."""

from __future__ import annotations

from dataclasses import replace

from hangscope.explain.statements.statements import Statements
from hangscope.incident import CallKind, Incident
from hangscope.ingest.torch_logs.wrapper import CallFingerprint


def with_refused(incident: Incident, statements: Statements) -> Incident:
    """Return the incident with the calls of which dumps hold the line alone, where every rank that came to one says what it was.

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
