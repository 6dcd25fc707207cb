"""What one rank's program called: its calls of all groups in enqueue order, and the pattern that they repeat.

Calls are numbered twice: by their site (what matches, and from which line), and by a token that adds what the group is
for, so that ranks of one role can be compared although they are in different groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hangscope.align.kind_keys import hard_keys, site_keys
from hangscope.align.sequence_diff import continues, left_out
from hangscope.dataclass import dataclass
from hangscope.incident import CallKind, Incident, Queue

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
        self._site: Any = None
        self._hard: Any = None
        self._threads: Any = None
        self._sites: dict[tuple[int, int | None], int] = {}
        self._keeping: dict[tuple[int, int], bool | None] = {}

    def of(self, rank: int) -> Program:
        """Return one rank's program."""
        found = self._programs.get(rank)
        if found is None:
            found = self._programs[rank] = self._build(rank)
        return found

    def _build(self, rank: int) -> Program:
        if self._site is None:
            self._site = site_keys(self.incident.kinds)
        record = self.incident.ranks[rank]
        queues = [
            (q, p2p)
            for queues, p2p in ((record.queues, False), (record.p2p, True))
            for _, q in sorted(queues.items())
            if len(q)
        ]
        if not queues:
            empty = np.empty(0, np.int64)
            return Program(empty, empty, empty, empty, empty, empty.astype(bool), [], [], frozenset(), {})
        order = np.concatenate([q.order for q, _ in queues])
        created = np.concatenate([q.created for q, _ in queues])
        by_order = self._of_one_thread(queues, np.argsort(order, kind="stable"))
        if created.any():  # what a line states behind a dump has no place among the calls of other groups
            by_order = by_order[created[by_order] > 0]
        labels = self._labels(rank)
        gid = np.concatenate([np.full(len(q), q.gid, np.int64) for q, _ in queues])[by_order]
        kind = np.concatenate([q.kind for q, _ in queues])[by_order]
        site, tokens = self._numbers(gid, kind, labels)
        return Program(
            gid=gid,
            seq=np.concatenate([q.seq for q, _ in queues])[by_order],
            kind=kind,
            created=created[by_order],
            order=order[by_order],
            is_p2p=np.concatenate([np.full(len(q), p2p, bool) for q, p2p in queues])[by_order],
            sites=site.tolist(),
            tokens=tokens.tolist(),
            made=frozenset(sorted(set(tokens.tolist()))),
            labels=labels,
        )

    def _of_threads(self) -> Any:
        """Return of each kind of call whether a thread made it."""
        if self._threads is None:
            self._threads = np.array([kind.of_a_thread for kind in self.incident.kinds.alone], bool)
        return self._threads

    def _of_one_thread(self, queues: Sequence[tuple[Queue, bool]], by_order: Any) -> Any:
        """Return the places of the calls of the thread that makes most of them: threads go their ways without any order."""
        kinds, threads = self.incident.kinds, self._of_threads()
        if not threads.any():
            return by_order
        other = threads[kinds.plain[np.concatenate([q.kind for q, _ in queues])]][by_order]
        return by_order[other == (2 * int(other.sum()) > len(other))]

    def _numbers(self, gid: Any, kind: Any, labels: dict[int, Any]) -> tuple[Any, Any]:
        """Return the numbers of each call's site and of its token (site and what its group is for), equal for equal ones."""
        kinds = self.incident.kinds
        both, kind = gid * len(kinds.alone) + kinds.plain[kind], kinds.plain[kind]
        _, first, places = np.unique(both, return_index=True, return_inverse=True)
        sites, tokens = [], []
        for g, k in zip(gid[first].tolist(), kind[first].tolist(), strict=True):
            site = self._sites.setdefault((int(self._site[k]), self._offset(g, k)), len(self._sites))
            sites.append(site)
            tokens.append(self._tokens.setdefault((labels[g], site), len(self._tokens)))
        return np.array(sites, np.int64)[places], np.array(tokens, np.int64)[places]

    def _offset(self, gid: int, kind: int) -> int | None:
        """Return how many places of the group a send or receive goes on by, None for a collective.

        A rank that turns to another peer leaves its pattern; in a ring all members go on by equally many.
        """
        call = self.incident.kinds[kind]
        if call.src is None or call.dst is None:
            return None
        return (call.dst - call.src) % max(1, len(self.incident.groups[gid].ranks))

    def _labels(self, rank: int) -> dict[int, Any]:
        """Return what each of a rank's groups is for: its description and size, or its place among the rank's groups."""
        record = self.incident.ranks[rank]
        labels: dict[int, Any] = {}
        counts: dict[Any, int] = {}
        for gid in sorted(set(record.queues) | set(record.p2p)):
            group = self.incident.groups[gid]
            base = (group.desc, len(group.ranks))
            counts[base] = counts.get(base, 0) + 1
            labels[gid] = (*base, counts[base])
        return labels

    def likeness(self, one: int, other: int) -> float:
        """Return how much two ranks' programs are made of the same calls, 0 to 1."""
        mine, theirs = self.of(one).made, self.of(other).made
        return len(mine & theirs) / max(1, len(mine | theirs))

    def keeps_pattern(self, rank: int, row: int) -> bool | None:
        """Return whether a rank's row continues the pattern that the rank repeated before; None: too little history."""
        key = (rank, row)
        if key not in self._keeping:
            tokens = self.of(rank).tokens
            self._keeping[key] = continues(tokens[max(0, row - HISTORY) : row], tokens[row])
        return self._keeping[key]

    def keeps_groups(self, rank: int, row: int) -> bool | None:
        """Return whether a rank entered the groups in the order that it repeated before, whatever it called there; None: unknown."""
        groups = self.of(rank).gid[max(0, row - HISTORY) : row + 1].tolist()
        return continues(groups[:-1], groups[-1])

    def left_out(self, rank: int, row: int) -> list[int]:
        """Return the rows of the calls that a rank's pattern calls for before that of `row`; empty where it is next, or foreign.

        A call from a new line that is otherwise like one of the pattern's (the other branch of a condition) has that one's place.
        """
        program, start = self.of(rank), max(0, row - HISTORY)
        tokens = program.tokens[start : row + 1]
        if tokens[-1] not in tokens[:-1]:
            if self._hard is None:
                self._hard = hard_keys(self.incident.kinds)
            calls = slice(start, row + 1)
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
        program = self.of(rank)
        return [self.incident.kinds[int(k)] for k in program.kind[max(0, row - HISTORY) : row]]

    def call(self, rank: int, row: int) -> tuple[int, int, CallKind, int]:
        """Return (gid, seq, kind, enqueue time in ns) of a rank's row."""
        program = self.of(rank)
        return (
            int(program.gid[row]),
            int(program.seq[row]),
            self.incident.kinds[int(program.kind[row])],
            int(program.created[row]),
        )
