"""What the ranks' own programs printed, aligned over the ranks: who ends earlier, lacks a line, or prints another one.

Numbers and the rank are masked, and only one odd rank among others that all agree is told of. The weakest evidence: that the
job stood still must be told by something else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hangscope.explain.finding import Absent, Different, Finding
from hangscope.explain.statements.statements import Statements
from hangscope.explain.text.output import by_output, stuck
from hangscope.incident import Incident
from hangscope.ingest.job_logs.printed import PrintedTail

_SIDES = 3  # ranks of whose output one may be called the odd one
_LEAST = 3  # lines in which the others must agree

Lines = Sequence[str]


def printed(incident: Incident, statements: Statements) -> Finding | None:
    """Name the one rank whose own output parts from that of all others, who agree.

    Rank 0 prints more than others in a healthy job: its extra lines are no difference.
    """
    if not stuck(statements):
        return None
    tails: dict[str, dict[int, PrintedTail]] = defaultdict(dict)
    for tail in statements.all(PrintedTail):
        if tail.rank is not None:
            tails[tail.file.rsplit("/", 1)[-1].replace(str(tail.rank), "")][tail.rank] = tail
    for _, by_rank in sorted(tails.items()):
        if len(by_rank) < _SIDES or set(by_rank) != set(incident.ranks):
            continue
        lines = {rank: tail.lines for rank, tail in sorted(by_rank.items())}
        odd = _odd_one(lines)
        if odd is None:
            continue
        rank, kind = odd
        peer = next(tail for other, tail in sorted(by_rank.items()) if other != rank)
        return replace(by_output(kind, (rank,), incident), events=(by_rank[rank], peer))
    return None


def _odd_one(lines: Mapping[int, Lines]) -> tuple[int, type[Finding]] | None:
    """Return (rank, kind of finding) of the one rank that lacks a line of all others, who agree, or ends with one of its own.

    Compared from the first line that is kept of it: what a window no longer holds cannot be missed.
    """
    found: list[tuple[int, type[Finding]]] = []
    for rank, own in lines.items():
        others = [other for peer, other in lines.items() if peer != rank]
        length = min(len(other) for other in others)
        agreed = {tuple(other[-length:]) for other in others}
        if len(agreed) != 1 or length < _LEAST:
            continue
        told = agreed.pop()
        rest = iter(own)
        lacks = not all(line in rest for line in told[told.index(own[0]) if own[0] in told else 0 :])
        if lacks or (rank != 0 and own[-1] not in told):
            found.append((rank, Absent if own[-1] in told and own[-1] != told[-1] else Different))
    return found[0] if len(found) == 1 else None
