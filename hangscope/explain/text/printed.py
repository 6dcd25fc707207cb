"""What the ranks' own programs printed, aligned over the ranks: who ends earlier, lacks a line, or prints another one.

Numbers and the rank are masked, and only one odd rank among others that all agree is told of. The weakest evidence: that the
job stood still must be told by something else.
"""

from __future__ import annotations

from collections import defaultdict

from hangscope.explain.finding import Absent, Different, Finding
from hangscope.explain.statements.statements import Statements
from hangscope.incident import Incident
from hangscope.ingest.job_logs.printed import PrintedTail

_SIDES = 3  # ranks of whose output one may be called the odd one
_LEAST = 3  # lines in which the others must agree


def printed(incident: Incident, statements: Statements) -> Finding | None:
    """Name the one rank whose own output parts from that of all others, who agree.

    Rank 0 prints more than others in a healthy job: its extra lines are no difference.
    """
    tails: dict[str, dict[int, PrintedTail]] = defaultdict(dict)
    for rank in sorted(statements.ranks(PrintedTail)):
        for tail in statements.of(rank, PrintedTail):
            tails[tail.file.rsplit("/", 1)[-1].replace(str(rank), "")][rank] = tail
    for _, by_rank in sorted(tails.items()):
        if len(by_rank) < _SIDES or by_rank.keys() != incident.ranks.keys():
            continue
        found = [part for rank in by_rank if (part := _parting(rank, by_rank)) is not None]
        if len(found) == 1:
            return found[0]
    return None


def _parting(rank: int, tails: dict[int, PrintedTail]) -> Finding | None:
    """Return the finding that a rank lacks a line of all others, who agree, or ends with one of its own.

    Compared from the first line that is kept of it: what a window no longer holds cannot be missed.
    """
    own, (peer, *others) = tails[rank].lines, [tail for r, tail in tails.items() if r != rank]
    length = min(len(tail.lines) for tail in (peer, *others))
    told = peer.lines[-length:]
    if length < _LEAST or any(tail.lines[-length:] != told for tail in others):
        return None
    rest = iter(own)
    lacks = not all(line in rest for line in told[told.index(own[0]) if own[0] in told else 0 :])
    if not lacks and (rank == 0 or own[-1] in told):
        return None
    kind = Absent if own[-1] in told and own[-1] != told[-1] else Different
    return kind((rank,), guess=True, events=(tails[rank], peer))
