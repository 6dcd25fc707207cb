"""One rank's program: its collectives and P2P ops of all groups in the order in which the rank issued them.

Programs are compared call by call, from a call's exact line and sizes to its operation alone, and each with the pattern that it
has repeated so far.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from hangscope.align.matching import match_keys, numbers
from hangscope.align.roles import group_kinds
from hangscope.knowledge.callsite import user_frame
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import CallKind, Incident

HISTORY = 768  # calls before one that a rank's own pattern is taken from
MAX_CONTEXT = 96  # the longest history that a prediction is based on
#: The levels: exact sizes and line; exact sizes; operation and group alone.
LEVELS = EXACT, SIZES, BARE = range(3)


class Tokens:
    """Numbers the calls of an incident at each level: equal numbers are equal calls on groups of one kind."""

    def __init__(self, incident: Incident) -> None:
        kinds = incident.kinds
        # Each group of a kind has its own root.
        keys = match_keys([replace(kind, root=None) for kind in kinds.alone])
        # What torch pickles (`all_gather_object`) is of another length each time.
        pickled = ({*kind.input_dtypes} == {"Byte"} for kind in kinds.alone)
        keys = [() if is_pickled else key for is_pickled, key in zip(pickled, keys, strict=True)]
        self.group_kinds = group_kinds(incident.groups)
        self._of_group = numbers(self.group_kinds)
        self._kinds = len(set(self.group_kinds))
        self.of_a_thread = np.array([kind.of_a_thread for kind in kinds.alone], bool)[kinds.plain]
        named = [(kind.op, kind.src, kind.dst) for kind in kinds.alone]
        frames = (user_frame(kind.stack) for kind in kinds.alone)
        sized = [*zip(named, keys, strict=True)]
        levels: list[Iterable[Hashable]] = [zip(sized, frames, strict=True), sized, named]
        self._by_level = [numbers(level)[kinds.plain] for level in levels]

    def of(self, gids: np.ndarray, kinds: np.ndarray, level: int) -> np.ndarray:
        """Return the token of each call, given by its group and its kind."""
        return np.asarray(self._by_level[level][kinds] * self._kinds + self._of_group[gids])


@dataclass(slots=True)
class Program:
    """One rank's program as parallel columns, of the thread that issues most of its calls; `tokens` are exact."""

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

    def keeps_pattern_at(self, rank: int, gid: int, seq: int) -> bool | None:
        """Return whether a rank's collective, by group and seq, continues the pattern that the rank repeated before."""
        return self.keeps_pattern(rank, self.row_at(rank, gid, seq))

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

    def kinds(self, rank: int, rows: Iterable[int]) -> tuple[CallKind, ...]:
        """Return what a rank issued at some rows."""
        return tuple(self.call(rank, row)[2] for row in rows)

    def call(self, rank: int, row: int) -> tuple[int, int, CallKind, int]:
        """Return (gid, seq, kind, enqueue time in ns) of a rank's row."""
        p = self.of(rank)
        gid, seq, kind, created = (int(column[row]) for column in (p.gid, p.seq, p.kind, p.created))
        return gid, seq, self.incident.kinds[kind], created


def occurrences(history: Sequence[int]) -> list[tuple[int, int]]:
    """Return where the end of `history` occurred before: (how long a context, the place behind it), longest first (Z function, linear)."""
    n, backwards = len(history), history[::-1]
    alike = [0] * n  # how many tokens from there on equal the beginning
    left = right = 0
    for i in range(1, n):
        alike[i] = min(right - i, alike[i - left]) if i < right else 0
        while i + alike[i] < n and backwards[alike[i]] == backwards[i + alike[i]]:
            alike[i] += 1
        if i + alike[i] > right:
            left, right = i, i + alike[i]
    return sorted(((min(alike[k], MAX_CONTEXT), n - k) for k in range(1, n) if alike[k]), reverse=True)


def continues(history: Sequence[int], token: int) -> bool | None:
    """Return whether `token` continues the pattern that `history` has repeated so far; None: too little history.

    True where the token followed a context at least half as long as the longest repeated one: at the end of a loop both
    one more round and the leaving of it have happened before, and both continue the pattern.
    """
    found = occurrences(history)
    longest = found[0][0] if found else 0
    own = next((context for context, place in found if history[place] == token), 0)
    return None if own == 0 and longest < 2 else own * 2 >= longest


def expected(history: Sequence[int], length: int) -> list[int]:
    """Return where in `history` the next tokens stand that its pattern calls for; empty where it has none."""
    places = [place for _, place in occurrences(history)[:1]]
    return [place + k % (len(history) - place) for place in places for k in range(length)]


def left_out(history: Sequence[int], token: int, due: int | None = None) -> list[int]:
    """Return where in `history` the tokens stand that its pattern calls for before `token`; empty where it is next, or not in reach.

    `due`: the token that is known to have been next, as others made it there.
    """
    ahead = expected(history, MAX_CONTEXT)
    tokens = [history[place] for place in ahead]
    start = 0 if due is None else tokens.index(due) if due in tokens else len(tokens)
    return ahead[start : tokens.index(token, start)] if token in tokens[start:] else []
