"""What the ranks' own programs printed, aligned over the ranks: who ends earlier, lacks a line, or prints another one.

Numbers and the rank are masked, and only one odd rank among others that all agree is told of. The weakest evidence: that the
job stood still must be told by something else.
"""

from __future__ import annotations

from collections import Counter, defaultdict
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
        odd = _at_the_end(lines) or _in_between(lines)
        if odd is None:
            continue
        rank, kind = odd
        peer = next(tail for other, tail in sorted(by_rank.items()) if other != rank)
        return replace(by_output(kind, (rank,), incident), events=(by_rank[rank], peer))
    return None


def _at_the_end(lines: Mapping[int, Lines]) -> tuple[int, type[Finding]] | None:
    """Return (rank, kind of finding) of the one rank that ends earlier than all others, or with a line of its own."""
    end, times = Counter(own[-1] for own in lines.values()).most_common(1)[0]
    odd = [rank for rank, own in lines.items() if own[-1] != end]
    if len(odd) != 1 or times != len(lines) - 1:
        return None
    last = lines[odd[0]][-1]
    others = [own for rank, own in lines.items() if rank != odd[0]]
    if all(last in own for own in others):
        return odd[0], Absent
    alone = not any(last in own for own in others)
    return (odd[0], Different) if alone and odd[0] != 0 else None


def _in_between(lines: Mapping[int, Lines]) -> tuple[int, type[Finding]] | None:
    """Return (rank, kind of finding) of the one rank that lacks a line of all others before the common end, or has one in its place.

    Compared from the end back: what a window no longer holds of one rank cannot be missed in another.
    """
    found: list[tuple[int, type[Finding]]] = []
    for rank, own in lines.items():
        others = [other for peer, other in lines.items() if peer != rank]
        length = min(len(other) for other in others)
        peers = {tuple(other[-length:]) for other in others}
        if len(peers) != 1 or length < _LEAST:
            continue
        told = peers.pop()
        same = _common_end(own, told)
        if same == 0 or same >= min(len(own), len(told)):
            continue
        if _lacks_one(own[: len(own) - same], told[: len(told) - same]) or (
            rank != 0 and own[-same - 1] not in told
        ):
            found.append((rank, Different))
    return found[0] if len(found) == 1 else None


def _lacks_one(own: Lines, told: Lines) -> bool:
    """Return whether the last of the lines that others printed here is missing or another one, and not merely preceded by one more."""
    missing, more = _common_end(own, told[:-1]), _common_end(own[:-1], told)
    return max(missing, _common_end(own[:-1], told[:-1])) > more


def _common_end(one: Lines, other: Lines) -> int:
    """Return how many lines at the end are the same."""
    same = 0
    for a, b in zip(reversed(one), reversed(other), strict=False):
        if a != b:
            break
        same += 1
    return same
