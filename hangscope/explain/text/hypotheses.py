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
from hangscope.explain.text.blocked import blocked_alone
from hangscope.explain.text.excerpt import beyond_the_text, without_a_log
from hangscope.explain.text.fingerprints import fingerprints, late
from hangscope.explain.text.output import (
    apart_from_its_peers,
    last_words,
    progress,
    silent,
)
from hangscope.explain.text.printed import printed
from hangscope.explain.text.ras import ras
from hangscope.explain.text.reports import analyzer, barrier, desync, forward_order, horovod
from hangscope.explain.text.sites import sites
from hangscope.explain.text.witnesses import (
    came_after,
    heart_stopped,
    held_up,
    holds_the_gil,
    left_first,
    no_answer,
    nothing_under_way,
)
from hangscope.incident import Incident

Search = Callable[[Incident, Statements], Finding | None]

#: Each search with the kind of evidence that it rests on, the strongest first.
SEARCHES: tuple[tuple[Search, Source], ...] = (
    (fingerprints, Source.OWN_WORDS),
    (late, Source.OWN_WORDS),
    (barrier, Source.REPORT),
    (desync, Source.REPORT),
    (analyzer, Source.HINT),
    (forward_order, Source.REPORT),
    (horovod, Source.HINT),
    (ras, Source.REPORT),
    (came_after, Source.HINT),
    (apart_from_its_peers, Source.HINT),
    (left_first, Source.HINT),
    (no_answer, Source.HINT),
    (held_up, Source.REPORT),
    (nothing_under_way, Source.HINT),
    (heart_stopped, Source.REPORT),
    (holds_the_gil, Source.HINT),
    (silent, Source.SILENCE),
    (sites, Source.SILENCE),
    (blocked_alone, Source.SILENCE),
    (progress, Source.OUTPUT),
    (last_words, Source.OUTPUT),
    (printed, Source.OUTPUT),
)


def told(incident: Incident, statements: Statements) -> Iterator[tuple[Finding, Source]]:
    """Yield what the text shows, and what kind of evidence that is."""
    unproved = beyond_the_text(incident, statements) | without_a_log(incident, statements)
    for search, source in SEARCHES:
        finding = search(incident, statements)
        if finding is None:
            continue
        if source in (Source.SILENCE, Source.OUTPUT):
            if unproved & set(finding.culprits):
                continue  # of ranks that the text does not hold, silence proves nothing
            waiting = tuple(r for r in finding.waiting if r not in unproved)
            finding = replace(finding, waiting=waiting, reached=finding.reached.intersection(waiting))
        yield finding, source
