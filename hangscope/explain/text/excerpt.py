"""What may be concluded from a rank's absence in the text: nothing, where only a part of the text was collected.

Half of the logs prove nothing about the other half. Silence is evidence only if one rank alone is missing among all the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hangscope.explain.statements.statements import Statements
from hangscope.model.incident import Incident

_LEAST_SEEN = 3  # ranks, before the only one that was not seen is suspected


def beyond_the_text(
    incident: Incident, statements: Statements, heard: Iterable[int] | None = None
) -> frozenset[int]:
    """Return the ranks whose silence is no evidence: nothing shows that their lines should be in the text.

    They left no dump, stack, file or line (`heard`: who did); one rank alone among several that did is none of them.
    """
    left = {r for r, own in incident.ranks.items() if own.files or own.threads or own.dump_file}
    seen = left.union(statements.of_rank if heard is None else heard)
    unseen = frozenset(incident.ranks) - seen
    return frozenset() if len(unseen) == 1 and len(seen) >= _LEAST_SEEN else unseen


def unproved(incident: Incident, statements: Statements) -> frozenset[int]:
    """Return the ranks whose silence is no evidence, those included whose log is missing although other ranks have one of their own."""
    logs = {r: {*own.files} - {own.dump_file, own.stack_file} for r, own in incident.ranks.items()}
    owners = Counter(file for files in logs.values() for file in files)
    own_logs = sum(any(owners[file] == 1 for file in files) for files in logs.values())
    missing = (r for r, files in logs.items() if not files and not statements.of_rank.get(r))
    return beyond_the_text(incident, statements).union(missing if own_logs > 1 else ())


def not_collected(incident: Incident, statements: Statements) -> frozenset[int]:
    """Return the ranks whose missing dump proves nothing, because nothing else of them was collected either (but for a launcher's lines)."""
    of_rank = statements.of_rank.items()
    heard = {rank for rank, kinds in of_rank if any(not e.by_launcher for own in kinds.values() for e in own)}
    nothing = beyond_the_text(incident, statements, heard)
    if not nothing or any(record.dump_file for record in incident.ranks.values()):
        return nothing
    # A paste that lacks ranks may also lack lines of the ranks that it has.
    owners = Counter(file for record in incident.ranks.values() for file in set(record.files))
    without_stack = [(rank, own) for rank, own in incident.ranks.items() if not own.threads]
    return frozenset(rank for rank, own in without_stack if all(owners[file] > 1 for file in own.files))
