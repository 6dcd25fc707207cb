"""Ranks folded by behaviour: what each called last on all its groups, in its own order, and how far those calls came.

Ranks are of one class where their last `LAST` calls agree in op, sizes, types, call site, group by purpose, seq and state.
A group's purpose is its description, its size and its place among the rank's groups of that kind, so that ranks that play
one role in different groups fold together. Costs a few array operations per rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from hangscope.align.matching import match_keys
from hangscope.knowledge.callsite import user_frame
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import CallKind, Queue, RankRecord, State
from hangscope.model.kinds import Kinds
from hangscope.report.subject import Subject, site_of, sizes_of

LAST = 200
_OFFSETS = 1 << 20  # more members than any group has
_PURPOSES = 1 << 42


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a program: what it is, its group, which `purpose` numbers by what it is for, and the word of its state."""

    kind: CallKind
    gid: int
    purpose: int
    seq: int
    state: str

    @property
    def is_done(self) -> bool:
        """Return whether the call is over."""
        return self.state == "done"

    @property
    def sizes(self) -> str:
        """Return its sizes and type for a person."""
        return sizes_of(self.kind)

    @property
    def site(self) -> str:
        """Return which line of the user's code issued it; empty where no frame was kept."""
        return site_of(self.kind)


@dataclass(frozen=True, slots=True)
class Program:
    """One rank's last calls in the order of their enqueue, as parallel columns."""

    kinds: Kinds
    gid: Any
    purpose: Any
    seq: Any
    kind: Any
    state: Any
    is_p2p: Any
    tokens: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.tokens)

    def call(self, row: int) -> Call:
        """Return one call; rows below 0 count from the last."""
        state = State(int(self.state[row])).name.lower()
        kind = self.kinds[int(self.kind[row])]
        return Call(kind, int(self.gid[row]), int(self.purpose[row]), int(self.seq[row]), state)

    def place(self, row: int) -> tuple[int, int, bool]:
        """Return what a call has in common with a different one at its place: the purpose, the seq, and the kind of seq."""
        return int(self.purpose[row]), int(self.seq[row]), bool(self.is_p2p[row])

    def last(self, most: int) -> list[Call]:
        """Return the last calls, at most so many."""
        return [self.call(row) for row in range(max(0, len(self) - most), len(self))]


@dataclass(slots=True)
class Behaviour:
    """Ranks that behave alike, ascending, with the program of the first of them."""

    ranks: list[int]
    role: str
    program: Program

    @property
    def purposes(self) -> frozenset[int]:
        """Return the purposes of the groups that its ranks issued collectives on."""
        return frozenset(self.program.purpose.tolist())


class Folding:
    """The programs of an incident's ranks, and their classes."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._purpose: dict[tuple[str, int, int], int] = {}
        kinds = subject.incident.kinds.alone
        self._plain = subject.incident.kinds.plain
        numbers: dict[object, int] = {}
        called = ((k.op if k.is_p2p else "", user_frame(k.stack)) for k in kinds)
        keys = zip(match_keys(kinds), called, strict=True)
        self._token = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
        apart = [0 if k.src is None or k.dst is None else k.dst - k.src for k in kinds]
        self._apart = np.array(apart, np.int64)  # from source to target

    def classes(self) -> list[Behaviour]:
        """Return the classes of all ranks, those of culprits first, then by size."""
        found: dict[Any, Behaviour] = {}
        alike: dict[Any, Behaviour] = {}
        for rank, record in sorted(self.subject.incident.ranks.items()):
            role = self.subject.role(rank)
            recorded = (role, record.seen, *self._recorded(record))
            if recorded in alike:  # most ranks' records are equal to another's, and need no merging
                alike[recorded].ranks.append(rank)
                continue
            program = self.program(record)
            key = (role, record.seen, program.tokens, program.seq.tobytes(), program.state.tobytes())
            alike[recorded] = found.setdefault(key, Behaviour([], role, program))
            alike[recorded].ranks.append(rank)
        return sorted(found.values(), key=lambda b: (b.role != "culprit", -len(b.ranks), b.ranks[0]))

    def own_groups(self, behaviour: Behaviour, ranks: Sequence[int]) -> tuple[str, ...]:
        """Return, for each purpose of a class in ascending order, the group that these ranks of it are in; where they differ, its purpose."""
        labels: dict[int, set[str]] = {purpose: set() for purpose in sorted(behaviour.purposes)}
        descriptions = {number: desc for (desc, _, _), number in self._purpose.items()}
        for rank in ranks:
            for gid, purpose in self._purposes(self.subject.incident.ranks[rank]).items():
                if purpose in labels:
                    labels[purpose].add(self.subject.label(gid))
        return tuple(
            found.pop() if len(found) == 1 else f"{descriptions[purpose] or 'group'}, one per rank"
            for purpose, found in labels.items()
        )

    def _recorded(self, record: RankRecord) -> list[Any]:
        """Return a rank's last calls as they were recorded, group by group; enqueue numbers relative to its last."""
        purposes = self._purposes(record)
        last = max((int(queue.order[-1]) for queue in record.all_queues if len(queue)), default=0)
        result: list[Any] = []
        for queue in record.all_queues:
            is_p2p, still_open = self._open(record, queue)
            kinds = self._plain[queue.kind[-LAST:]]
            columns = (queue.seq, kinds, queue.state, queue.order - last)
            opened = frozenset(number - last for number in still_open) if is_p2p else still_open
            result.append((purposes[queue.gid], is_p2p, *(c[-LAST:].tobytes() for c in columns), opened))
        return result

    def _open(self, record: RankRecord, queue: Queue) -> tuple[bool, frozenset[int]]:
        is_p2p = record.p2p.get(queue.gid) is queue
        return is_p2p, self.subject.open_seqs.get((record.rank, queue.gid, is_p2p), frozenset())

    def program(self, record: RankRecord) -> Program:
        """Return the last calls of one rank."""
        purposes = self._purposes(record)
        parts = []
        for queue in filter(len, record.all_queues):
            (is_p2p, still_open), what = self._open(record, queue), purposes[queue.gid]
            called, same = queue.kind[-LAST:], partial(np.full, min(LAST, len(queue)))
            states = self._states(queue, is_p2p, still_open)
            tokens = self._tokens(called, what, queue.gid, is_p2p)
            own = queue.order[-LAST:], same(queue.gid), same(what), queue.seq[-LAST:], called
            parts.append((*own, states, same(is_p2p), tokens))
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order, *known, token = columns or [np.empty(0, bool)] * 8
        last = np.argsort(order, kind="stable")[-LAST:]
        gid, purpose, seq, kind, state, p2p = (column[last] for column in known)
        last_tokens = tuple(token[last].tolist())
        return Program(self.subject.incident.kinds, gid, purpose, seq, kind, state, p2p, last_tokens)

    def _tokens(self, kind: Any, purpose: int, gid: int, is_p2p: bool) -> Any:
        tokens = self._token[self._plain[kind]] * _OFFSETS + purpose * _PURPOSES
        if is_p2p:  # in a ring all members go on by equally many places
            members = max(1, len(self.subject.incident.groups[gid].ranks))
            tokens = tokens + 1 + self._apart[self._plain[kind]] % members
        return tokens

    @staticmethod
    def _states(queue: Queue, is_p2p: bool, still_open: frozenset[int]) -> Any:
        """Return the states as the graph judged them: what is not open there is over, whatever a recorder wrote; lines show no ends."""
        state = queue.state[-LAST:].astype(np.int64)
        rest = np.flatnonzero(state != State.DONE)
        if len(rest):
            names = (queue.order if is_p2p else queue.seq)[-LAST:][rest].tolist()
            opened = np.array([name in still_open for name in names], bool)
            state[rest[~opened]] = State.DONE if queue.tells_completion else State.UNKNOWN
            # An end that was not recorded is none to the graph: its rank waits there.
            state[rest[opened & (state[rest] == State.UNKNOWN)]] = State.PENDING
        return state

    def _purposes(self, record: RankRecord) -> dict[int, int]:
        result: dict[int, int] = {}
        counts: dict[tuple[str, int], int] = {}
        for gid in sorted(set(record.queues) | set(record.p2p)):
            group = self.subject.incident.groups[gid]
            base = (group.desc, len(group.ranks))
            counts[base] = counts.get(base, 0) + 1
            result[gid] = self._purpose.setdefault((*base, counts[base]), len(self._purpose))
        return result
