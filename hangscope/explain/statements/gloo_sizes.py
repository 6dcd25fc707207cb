"""What the two sizes of an aborted gloo receive say: which two ranks met, and in which of the job's collectives each was.

    [enforce fail at .../pair.cc:456] op.preamble.length <= op.nbytes. 868 vs 4

The first size is the sender's part of its tensor, the second that of the aborting rank. Rings receive from a fixed neighbour. Formulas
and directions were measured with torch 2.13 on CPU, 2 to 4 ranks; they show who met, and not which of the two is wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import ceil, gcd

from hangscope.align.matching import numel
from hangscope.explain.statements.statements import Statements
from hangscope.ingest.job_logs.endings import Exit
from hangscope.ingest.job_logs.last_lines import Printed
from hangscope.ingest.torch_logs.wrapper import GlooSizeMismatch
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import CallKind, Incident
from hangscope.model.regex import regex

_SIGABRT = -6  # how gloo ends the process that gets too much
_MOST = 1 << 20  # bytes of a part
_PARTS = 4  # the least number of equal parts of a message for a printed number of them to be no coincidence
_NUMBER = regex(r"\d+(?:\.\d+)?")
#: what counts steps or is part of a time is no number of rows
_COUNTS = regex(r"(?i)(?:\b(?:step|epoch|iter(?:ation)?|it|idx|index|day|rank)s?[ =:#]{0,3}|\d[:./-])$")
_ELEMENTS = {8: "Double Long", 4: "Float Int", 2: "Half BFloat16 Short", 1: "Byte Char Bool"}
BYTES = {name: size for size, names in _ELEMENTS.items() for name in names.split()}
#: by op: which neighbour in the ring sends to a rank, 0 where any may
_FROM = {
    "all_reduce": 1, "reduce_scatter_tensor": 1, "reduce": 1, "all_gather": -1, "all_gather_into_tensor": -1,
    "broadcast": 0, "gather": 0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class AbortedPair:
    """A rank that gloo aborted, the ranks of which one sent it too much, and the recorded calls of either size (all global ranks)."""

    receiver: int
    senders: tuple[int, ...]
    sent: tuple[CallKind, ...]
    wanted: tuple[CallKind, ...]
    event: GlooSizeMismatch

    @property
    def ranks(self) -> tuple[int, ...]:
        """Return the ranks of which one is wrong: all that may have met."""
        return tuple(sorted({self.receiver, *self.senders}))


def part_of(kind: CallKind, members: int) -> int | None:
    """Return how many bytes gloo sends at once of a call in a group of so many members, None where that is not known."""
    size = BYTES.get((*kind.input_dtypes, "")[0])
    if kind.op not in _FROM or size is None or not kind.input_sizes or members < 2:
        return None
    total = sum(numel(kind.input_sizes)) * size
    if _FROM[kind.op] == -1:
        return total // 2
    if kind.op in ("broadcast", "gather"):
        return total
    part = ceil(total / (members * max(2, ceil(total / members / _MOST))))
    return ceil(part / size) * size


def aborted_pairs(incident: Incident, statements: Statements) -> list[AbortedPair]:
    """Return who met whom in each aborted receive of a known rank, or of the only one that ended by SIGABRT or printed no error after the abort."""
    found, events = [], statements.all(GlooSizeMismatch)
    aborted = {e.rank for e in statements.all(Exit) if e.code == _SIGABRT and e.rank is not None}
    quiet = set(incident.ranks) - statements.symptoms if len(statements.symptoms) > 1 else set()
    only = [*(aborted or quiet)] if len(events) == 1 else []
    for event in events:
        receiver = only[0] if event.rank is None and len(only) == 1 else event.rank
        groups = [g.ranks for g in incident.groups if receiver in g.ranks and len(g.ranks) > 1]
        ring = max(groups, key=len, default=tuple(sorted(incident.ranks)))
        if receiver is None or receiver not in ring or len(ring) < 2:
            continue
        parts = [(kind, part_of(kind, len(ring))) for kind in incident.kinds.alone]
        sent = tuple(kind for kind, part in parts if part == event.received)
        wanted = tuple(kind for kind, part in parts if part == event.expected)
        # Calls of two families never abort each other: everyone times out.
        met = {_FROM[kind.op] for kind in sent}
        wanted = tuple(kind for kind in wanted if not met or _FROM[kind.op] in met)
        ways, at = met or {1, -1}, ring.index(receiver)
        senders = set(ring) if 0 in ways else {ring[(at + way) % len(ring)] for way in ways}
        found.append(AbortedPair(receiver, tuple(sorted(senders - {receiver})), sent, wanted, event))
    return found


def has_fewer_rows(pair: AbortedPair, printed: Sequence[Printed]) -> bool:
    """Return whether the ranks' own output shows that the sender's size is the usual one: a batch of 8 rows against one of 5.

    All others printed the same number of rows, which divides what was sent into whole rows; the receiver's buffer holds fewer.
    """
    part = gcd(pair.event.received, pair.event.expected)
    sent, wanted = pair.event.received // max(1, part), pair.event.expected // max(1, part)
    lines: dict[str, dict[int, list[str]]] = defaultdict(dict)
    for event in printed if wanted > 1 and sent >= _PARTS else ():
        for template, text in zip(event.templates, event.texts, strict=True):
            if event.rank is not None:
                numbers = (m for m in _NUMBER.finditer(text) if not _COUNTS.search(text[: m.start()]))
                lines[template][event.rank] = [m[0] for m in numbers]
    for by_rank in lines.values():
        own = by_rank.pop(pair.receiver, [])
        for mine, *others in zip(own, *by_rank.values(), strict=False) if len(by_rank) > 1 else ():
            rows = int(others[0]) if others[0].isdecimal() and len(set(others)) == 1 else 0
            if rows and rows % sent == 0 and mine in (others[0], str(rows // sent * wanted)):
                return True
    return False
