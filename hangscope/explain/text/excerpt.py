"""What may be concluded from a rank's absence in the text: nothing, where only a part of the text was collected.

One rank's log of 256 proves nothing about the other 255, and half of the logs nothing about the other half: they lie on
another node. Silence speaks where one rank alone is missing among all the others.
"""

from __future__ import annotations

from collections import Counter

from hangscope.explain.statements.statements import Statements
from hangscope.model.incident import Incident

_SEEN_BESIDE_ONE = 3  # so many ranks must have been seen before the only one that was not is suspected


def traced(incident: Incident, statements: Statements) -> frozenset[int]:
    """Return the ranks of which anything at all was seen: a dump, a stack, a file or a line."""
    return _left_something(incident) | frozenset(statements.of_rank)


def beyond_the_text(incident: Incident, statements: Statements) -> frozenset[int]:
    """Return the ranks that may not be suspected for their silence: nothing shows that their lines should be here."""
    return _unseen(incident, traced(incident, statements))


def _left_something(incident: Incident) -> frozenset[int]:
    return frozenset(r for r, own in incident.ranks.items() if own.files or own.threads or own.dump_file)


def _unseen(incident: Incident, seen: frozenset[int]) -> frozenset[int]:
    """Return the ranks that were not seen, but for one alone beside several that were."""
    unseen = frozenset(incident.ranks) - seen
    return frozenset() if len(unseen) == 1 and len(seen) >= _SEEN_BESIDE_ONE else unseen


def without_a_log(incident: Incident, statements: Statements) -> frozenset[int]:
    """Return the ranks whose log is not here although others' own logs are: that they printed nothing is not known."""
    logs = {
        rank: {file for file in record.files if file not in (record.dump_file, record.stack_file)}
        for rank, record in incident.ranks.items()
    }
    owners = Counter(file for files in logs.values() for file in files)
    if sum(any(owners[file] == 1 for file in files) for files in logs.values()) < 2:
        return frozenset()
    return frozenset(rank for rank, files in logs.items() if not files and not statements.of_rank.get(rank))


def not_collected(incident: Incident, statements: Statements) -> frozenset[int]:
    """Return the ranks whose missing dump proves nothing, because nothing else of them is here either.

    What a launcher says of a rank's end is no trace of its own.
    """
    heard = {
        rank
        for rank, kinds in statements.of_rank.items()
        if any(not event.by_launcher for events in kinds.values() for event in events)
    }
    nothing = _unseen(incident, _left_something(incident) | heard)
    if not nothing or any(record.dump_file for record in incident.ranks.values()):
        return nothing
    # Of a paste that lacks ranks, the lines of those that it has need not all be here.
    owners = Counter(file for record in incident.ranks.values() for file in set(record.files))
    return frozenset(
        rank
        for rank, record in incident.ranks.items()
        if not record.threads and all(owners[file] > 1 for file in record.files)
    )
