"""What one rank's program called: its calls of all groups in enqueue order, and the pattern that they repeat.

Calls are numbered twice: by their site (what matches, and from which line), and by a token that adds what the group is
for, so that ranks of one role can be compared although they are in different groups.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from hangscope.align.matching import hard_keys, site_keys
from hangscope.align.sequence_diff import continues, left_out
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import CallKind, Incident

HISTORY = 768  # calls before one that a rank's own pattern is taken from


@dataclass(slots=True)
class Program:
    """One rank's calls of all groups in enqueue order, as parallel columns: those of the thread that makes most of them."""

    gid: Any
    seq: Any
    kind: Any
    created: Any
    order: Any
    is_p2p: Any
    sites: list[int]
    tokens: list[int]
    made: frozenset[int]  # the tokens, each once
    labels: dict[int, Any]

    def row_of(self, gid: int, seq: int) -> int | None:
        """Return the row of a collective, or None where it was not kept."""
        found = np.flatnonzero((self.gid == gid) & (self.seq == seq) & ~self.is_p2p)
        return int(found[0]) if len(found) else None


class Programs:
    """The programs of an incident's ranks, built when they are asked for."""

    def __init__(self, incident: Incident) -> None:
        self.incident = incident
        self._programs: dict[int, Program] = {}
        self._tokens: dict[Any, int] = {}
        self._sites: dict[tuple[int, int | None], int] = {}
        self._keeping: dict[tuple[int, int], bool | None] = {}
        kinds = incident.kinds
        self._site, self._hard = site_keys(kinds), hard_keys(kinds)
        self._of_a_thread = np.array([kind.of_a_thread for kind in kinds.alone], bool)[kinds.plain]

    def of(self, rank: int) -> Program:
        """Return one rank's program."""
        if rank not in self._programs:
            self._programs[rank] = self._build(rank)
        return self._programs[rank]

    def _build(self, rank: int) -> Program:
        record = self.incident.ranks[rank]
        both = ((record.queues, 0), (record.p2p, 1))
        queues = [(q, p2p) for of_gid, p2p in both for _, q in sorted(of_gid.items()) if len(q)]
        columns = np.empty((6, 0), np.int64)
        for q, p2p in queues:
            own = (np.full(len(q), q.gid), q.seq, q.kind, q.created, q.order, np.full(len(q), p2p))
            columns = np.concatenate([columns, own], axis=1)
        columns = columns[:, np.argsort(columns[4], kind="stable")]
        # Threads go their ways without any order: those calls count that are of the thread that makes most of them.
        other = self._of_a_thread[columns[2]]
        columns = columns[:, other == (2 * int(other.sum()) > len(other))]
        if columns[3].any():  # what a line states behind a dump has no place among the calls of other groups
            columns = columns[:, columns[3] > 0]
        gid, seq, kind, created, order, is_p2p = columns
        labels = self._labels(rank)
        sites, tokens = self._numbers(gid, kind, labels)
        return Program(gid, seq, kind, created, order, is_p2p > 0, sites, tokens, frozenset(tokens), labels)

    def _numbers(self, gid: Any, kind: Any, labels: dict[int, Any]) -> tuple[list[int], list[int]]:
        """Return the numbers of each call's site and of its token (site and what its group is for), equal for equal ones."""
        kinds = self.incident.kinds
        calls, places = np.unique(gid * len(kinds.alone) + kinds.plain[kind], return_inverse=True)
        sites, tokens = [], []
        for g, k in (divmod(call, len(kinds.alone)) for call in calls.tolist()):
            site = self._sites.setdefault((int(self._site[k]), self._offset(g, k)), len(self._sites))
            sites.append(site)
            tokens.append(self._tokens.setdefault((labels[g], site), len(self._tokens)))
        return np.array(sites, np.int64)[places].tolist(), np.array(tokens, np.int64)[places].tolist()

    def _offset(self, gid: int, kind: int) -> int | None:
        """Return how many places of the group a send or receive goes on by, None for a collective.

        A rank that turns to another peer leaves its pattern; in a ring all members go on by equally many.
        """
        call = self.incident.kinds[kind]
        if call.src is None or call.dst is None:
            return None
        return (call.dst - call.src) % max(1, len(self.incident.groups[gid].ranks))

    def _labels(self, rank: int) -> dict[int, Any]:
        """Return what each of a rank's groups is for: its description and size, and its place among the rank's groups of these."""
        record = self.incident.ranks[rank]
        labels: dict[int, Any] = {}
        counts: Counter[tuple[str, int]] = Counter()
        for gid in sorted({*record.queues, *record.p2p}):
            group = self.incident.groups[gid]
            base = (group.desc, len(group.ranks))
            counts[base] += 1
            labels[gid] = (*base, counts[base])
        return labels

    def likeness(self, one: int, other: int) -> float:
        """Return how much two ranks' programs are made of the same calls, 0 to 1."""
        mine, theirs = self.of(one).made, self.of(other).made
        return len(mine & theirs) / max(1, len(mine | theirs))

    def keeps_pattern(self, rank: int, row: int) -> bool | None:
        """Return whether a rank's row continues the pattern that the rank repeated before; None: too little history."""
        if (rank, row) not in self._keeping:
            tokens = self.of(rank).tokens
            self._keeping[rank, row] = continues(tokens[max(0, row - HISTORY) : row], tokens[row])
        return self._keeping[rank, row]

    def left_out(self, rank: int, row: int) -> list[int]:
        """Return the rows of the calls that a rank's pattern calls for before that of `row`; empty where it is next, or foreign.

        A call from a new line that is otherwise like one of the pattern's (the other branch of a condition) has that one's place.
        """
        program, start = self.of(rank), max(0, row - HISTORY)
        calls = slice(start, row + 1)
        tokens = program.tokens[calls]
        if tokens[-1] not in tokens[:-1]:
            both = zip(program.gid[calls].tolist(), self._hard[program.kind[calls]].tolist(), strict=True)
            number: dict[tuple[int, int], int] = {}
            tokens = [number.setdefault(call, len(number)) for call in both]
        return [start + place for place in left_out(tokens[:-1], tokens[-1])]

    def row_of(self, rank: int, order: int) -> int | None:
        """Return the row of a rank's call with this enqueue number."""
        rows = np.flatnonzero(self.of(rank).order == order)
        return int(rows[0]) if len(rows) else None

    def breaks_pattern(self, rank: int, order: int) -> bool:
        """Return whether a rank's call with this enqueue number leaves the pattern that the rank repeated before."""
        row = self.row_of(rank, order)
        return row is not None and self.keeps_pattern(rank, row) is False

    def before(self, rank: int, row: int) -> list[CallKind]:
        """Return what a rank called before a row, oldest first."""
        return [self.incident.kinds[int(k)] for k in self.of(rank).kind[max(0, row - HISTORY) : row]]

    def call(self, rank: int, row: int) -> tuple[int, int, CallKind, int]:
        """Return (gid, seq, kind, enqueue time in ns) of a rank's row."""
        p = self.of(rank)
        gid, seq, kind, created = (int(column[row]) for column in (p.gid, p.seq, p.kind, p.created))
        return gid, seq, self.incident.kinds[kind], created
