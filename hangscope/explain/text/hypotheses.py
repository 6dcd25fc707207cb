"""The roots as text alone shows them, the strongest evidence first; a group-local number that nothing maps is taken as global (`assumed`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from hangscope.explain.finding import Finding, Source
from hangscope.explain.statements.statements import WAITED, Statements
from hangscope.explain.text import analyzer_reports, output, reports
from hangscope.explain.text.blocked import (
    at_work_alone,
    behind_the_main_process,
    elsewhere,
    held_up,
    idle_device,
)
from hangscope.explain.text.excerpt import unproved
from hangscope.explain.text.fingerprints import fingerprints
from hangscope.explain.text.sites import POINT_TO_POINT, sites
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.ingest.torch_logs.wrapper import GlooTimeout
from hangscope.model.incident import CallKind, Incident

Search = Callable[[Incident, Statements], Finding | reports.Report | None]

#: The searches by the kind of evidence that they rest on, the strongest first.
SEARCHES: dict[Source, tuple[Search, ...]] = {
    Source.OWN_WORDS: (fingerprints,),
    Source.REPORT: (reports.barrier, reports.desync, reports.ras, reports.awaited, held_up),
    Source.HINT: (analyzer_reports.analyzer, reports.horovod),
    Source.SILENCE: (elsewhere, at_work_alone, output.silent, sites, idle_device, behind_the_main_process),
    Source.OUTPUT: (output.progress, output.outlier_output),
}


def findings(incident: Incident, statements: Statements) -> Iterator[tuple[Finding, Source]]:
    """Yield what the text shows, and what kind of evidence that is.

    If a search does not say which ranks wait, all others do, and the first of them is the one that is stuck.
    """
    silent = unproved(incident, statements)
    in_pairs = {e.rank for e in statements.all(WatchdogTimeout) if e.op in POINT_TO_POINT}
    gave_up = statements.ranks(GlooTimeout)
    # NCCL reports that a host does not take its connections, and no rank a timeout.
    refusals = [e for e in statements.all(NcclWarn) if e.fault == "connect" and not e.retrying]
    refused = bool(refusals) and not statements.any_of(*WAITED)
    for source, search in [(source, search) for source, searches in SEARCHES.items() for search in searches]:
        found = search(incident, statements)
        finding = found.finding if isinstance(found, reports.Report) else found
        if finding is None:
            continue
        if source is Source.OUTPUT:
            waited = gave_up.intersection(finding.culprits) and not gave_up >= {*incident.ranks}
            # Who waited until a timeout is not the one that all wait for, and what a stage of a pipeline printed is its own.
            if refused or waited or in_pairs.intersection(finding.culprits):
                continue
            if not output.stuck(statements):
                yield finding, source  # nothing shows that the others wait
                continue
        waiting = finding.waiting or tuple(r for r in sorted(incident.ranks) if r not in finding.culprits)
        call = finding.stuck
        if call.rank is None and waiting:
            call = replace(call, rank=waiting[0])
        timed_out = statements.of(call.rank, WatchdogTimeout) if call.rank is not None else []
        if call.kind is None and timed_out:
            seq, op = timed_out[0].seq, timed_out[0].op
            call = replace(call, seq=seq if call.seq is None else call.seq, kind=CallKind(op) if op else None)
        if source in (Source.SILENCE, Source.OUTPUT):
            waiting = tuple(r for r in waiting if r not in silent)
        yield replace(finding, stuck=call, waiting=waiting, reached=frozenset(waiting)), source
