"""The roots as text alone shows them, the strongest evidence first.

What counts: calls that ranks themselves say they were in (DETAIL fingerprints); members that a monitored barrier, the desync
report or RAS show absent; the lines at which ranks were blocked; who printed what last. All ranks are global here; a
group-local number that nothing maps is taken as global and the finding says so by `assumed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from hangscope.explain.finding import Finding, Source
from hangscope.explain.statements.statements import Statements
from hangscope.explain.text import output, reports
from hangscope.explain.text.blocked import blocked_alone, heart_stopped, held_up
from hangscope.explain.text.excerpt import beyond_the_text, without_a_log
from hangscope.explain.text.fingerprints import fingerprints
from hangscope.explain.text.ras import ras
from hangscope.explain.text.sites import sites
from hangscope.model.incident import Incident

Search = Callable[[Incident, Statements], Finding | None]

#: The searches by the kind of evidence that they rest on, the strongest first.
SEARCHES: dict[Source, tuple[Search, ...]] = {
    Source.OWN_WORDS: (fingerprints,),
    Source.REPORT: (reports.barrier, reports.desync, ras, held_up, heart_stopped),
    Source.HINT: (
        reports.analyzer, reports.horovod, output.apart_from_its_peers,
    ),
    Source.SILENCE: (output.silent, sites, blocked_alone),
    Source.OUTPUT: (output.progress, output.odd_output),
}  # fmt: skip


def told(incident: Incident, statements: Statements) -> Iterator[tuple[Finding, Source]]:
    """Yield what the text shows, and what kind of evidence that is.

    Where a search does not say who waits, all others do; and of them the first stands for who is stuck.
    """
    unproved = beyond_the_text(incident, statements) | without_a_log(incident, statements)
    for source, search in [(source, search) for source, searches in SEARCHES.items() for search in searches]:
        if source is Source.OUTPUT and not output.stuck(statements):
            break
        finding = search(incident, statements)
        if finding is None:
            continue
        waiting = finding.waiting or tuple(r for r in sorted(incident.ranks) if r not in finding.culprits)
        call = finding.stuck
        if call.rank is None and waiting:
            call = replace(call, rank=waiting[0])
        if source in (Source.SILENCE, Source.OUTPUT):
            if unproved & set(finding.culprits):
                continue  # of ranks that the text does not hold, silence proves nothing
            waiting = tuple(r for r in waiting if r not in unproved)
        yield replace(finding, stuck=call, waiting=waiting, reached=frozenset(waiting)), source
