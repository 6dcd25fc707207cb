"""What may be concluded from a rank's absence in the text: nothing, where only a part of the text was collected.

One rank's log of 256 proves nothing about the other 255, and half of the logs prove nothing about the other half, which are on
another node. Silence is evidence only if one rank alone is missing among all the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hangscope.explain.statements.statements import Statements
from hangscope.model.incident import Incident

_LEAST_SEEN = 3  # ranks, before the only one that was not seen is suspected


def beyond_the_text(incident: Incident, statements: Statements) -> frozenset[int]:
    """Return the ranks whose silence is no evidence: nothing shows that their lines should be in the text."""
    return _unseen(incident, statements.of_rank)


def _unseen(incident: Incident, heard: Iterable[int]) -> frozenset[int]:
    """Return the ranks without a dump, a stack, a file or a line, or none where one alone is without and several are not."""
    left = {r for r, own in incident.ranks.items() if own.files or own.threads or own.dump_file}
    seen = left.union(heard)
    unseen = frozenset(incident.ranks) - seen
    return frozenset() if len(unseen) == 1 and len(seen) >= _LEAST_SEEN else unseen


def unproved(incident: Incident, statements: Statements) -> frozenset[int]:
    """Return the ranks whose silence is no evidence, those included whose own log is missing."""
    return beyond_the_text(incident, statements) | without_a_log(incident, statements)


def without_a_log(incident: Incident, statements: Statements) -> frozenset[int]:
    """Return the ranks whose log is missing although other ranks have a log of their own: they may have printed anything."""
    logs = {
        rank: {file for file in record.files if file not in (record.dump_file, record.stack_file)}
        for rank, record in incident.ranks.items()
    }
    owners = Counter(file for files in logs.values() for file in files)
    if sum(any(owners[file] == 1 for file in files) for files in logs.values()) < 2:
        return frozenset()
    return frozenset(rank for rank, files in logs.items() if not files and not statements.of_rank.get(rank))


def not_collected(incident: Incident, statements: Statements) -> frozenset[int]:
    """Return the ranks whose missing dump proves nothing, because nothing else of them was collected either.

    A launcher's line about a rank's end is not counted as the rank's own.
    """
    heard = {
        rank
        for rank, kinds in statements.of_rank.items()
        if any(not event.by_launcher for events in kinds.values() for event in events)
    }
    nothing = _unseen(incident, heard)
    if not nothing or any(record.dump_file for record in incident.ranks.values()):
        return nothing
    # A paste that lacks ranks may also lack lines of the ranks that it has.
    owners = Counter(file for record in incident.ranks.values() for file in set(record.files))
    return frozenset(
        rank
        for rank, record in incident.ranks.items()
        if not record.threads and all(owners[file] > 1 for file in record.files)
    )
