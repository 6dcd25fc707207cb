"""One rank's program: its collectives and P2P ops of all groups in the order in which the rank issued them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from hangscope.align.patterns import continues, expected, left_out
from hangscope.align.tokens import EXACT, SIZES, Tokens
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import CallKind, Incident

HISTORY = 768  # calls before one that a rank's own pattern is taken from


@dataclass(slots=True)
class Program:
    """One rank's program as parallel columns, of the thread that issues most of its calls.

    `tokens` are equal for equal calls on groups of one kind (`Tokens`, exact).
    """

    gid: Any
    seq: Any
    kind: Any
    created: Any
    order: Any
    is_p2p: Any
    tokens: list[int]


class Programs:
    """The programs of an incident's ranks, built on demand."""

    def __init__(self, incident: Incident) -> None:
        self.incident = incident
        self._programs: dict[int, Program] = {}
        self._keeping: dict[tuple[int, int], bool | None] = {}

    @cached_property
    def tokens(self) -> Tokens:
        """Return what calls of two programs are compared by."""
        return Tokens(self.incident)

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
        # The threads of a rank have no order among them: the one that issues most calls counts.
        of_a_thread = self.tokens.of_a_thread[columns[2]]
        columns = columns[:, of_a_thread == (2 * int(of_a_thread.sum()) > len(of_a_thread))]
        # A collective that only a log line states has no time, and no place among those of other groups.
        if columns[3].any():
            columns = columns[:, columns[3] > 0]
        gid, seq, kind, created, order, is_p2p = columns
        tokens = self.tokens.of(gid, kind, EXACT)
        return Program(gid, seq, kind, created, order, is_p2p > 0, tokens.tolist())

    def keeps_pattern(self, rank: int, row: int | None) -> bool | None:
        """Return whether a rank's row continues the pattern that the rank repeated before; None: too little history, or no row."""
        if row is None:
            return None
        if (rank, row) not in self._keeping:
            tokens = self.of(rank).tokens
            self._keeping[rank, row] = continues(tokens[max(0, row - HISTORY) : row], tokens[row])
        return self._keeping[rank, row]

    def wanted(self, rank: int, row: int) -> list[int]:
        """Return the rows of the calls that a rank's pattern has before that of `row`, or of the one that it has instead."""
        start = max(0, row - HISTORY)
        tokens = self.of(rank).tokens[start : row + 1]
        skipped = left_out(tokens[:-1], tokens[-1]) or expected(tokens[:-1], 1)
        return [start + place for place in skipped]

    def left_out(self, rank: int, row: int, peer: int, peer_row: int) -> list[int]:
        """Return the rows of the calls that a rank's pattern has before that of `row`, from the one on that its peer issued there.

        Empty where there are none. A call from a new line that is otherwise like one of the pattern's (the other branch of a
        condition) takes its place.
        """
        program, start = self.of(rank), max(0, row - HISTORY)
        calls = slice(start, row + 1)
        level = EXACT if program.tokens[row] in program.tokens[start:row] else SIZES
        tokens = self.tokens.of(program.gid[calls], program.kind[calls], level).tolist()
        peers = self.of(peer)
        due = self.tokens.of(peers.gid[[peer_row]], peers.kind[[peer_row]], level)
        return [start + place for place in left_out(tokens[:-1], tokens[-1], int(due[0]))]

    def row_of(self, rank: int, order: int) -> int | None:
        """Return the row of a rank's call by its number over all groups, None where it is not in the program."""
        rows = np.flatnonzero(self.of(rank).order == order)
        return int(rows[0]) if len(rows) else None

    def row_at(self, rank: int, gid: int, seq: int) -> int | None:
        """Return the row of a rank's collective by group and seq, None where it is not in the program."""
        program = self.of(rank)
        rows = np.flatnonzero((program.gid == gid) & (program.seq == seq) & ~program.is_p2p)
        return int(rows[0]) if len(rows) else None

    def before(self, rank: int, row: int | None) -> tuple[CallKind, ...]:
        """Return what a rank issued before a row, oldest first."""
        kinds = self.of(rank).kind[max(0, row - HISTORY) : row] if row is not None else ()
        return tuple(self.incident.kinds[int(kind)] for kind in kinds)

    def call(self, rank: int, row: int) -> tuple[int, int, CallKind, int]:
        """Return (gid, seq, kind, enqueue time in ns) of a rank's row."""
        p = self.of(rank)
        gid, seq, kind, created = (int(column[row]) for column in (p.gid, p.seq, p.kind, p.created))
        return gid, seq, self.incident.kinds[kind], created
