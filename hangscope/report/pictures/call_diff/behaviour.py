"""Ranks folded by behaviour: what each called last on all its groups, in its own order, and how far those calls came.

Ranks are of one class where their last `LAST` calls agree in op, sizes, types, call site, group by purpose, seq and state.
A group's purpose is its description, its size and its place among the rank's groups of that kind, so that ranks that play
one role in different groups fold together. Costs a few array operations per rank.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from hangscope.align.matching import match_keys
from hangscope.knowledge.callsite import user_frame
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import CallKind, Kinds, Queue, RankRecord, State
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
        """Return what the groups are for that its ranks called on."""
        return frozenset(self.program.purpose.tolist())


class Folding:
    """The programs of an incident's ranks, and their classes."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._purpose: dict[tuple[str, int, int], int] = {}
        kinds = subject.incident.kinds.alone
        self._plain = subject.incident.kinds.plain
        numbers: dict[object, int] = {}
        self._token = np.array(
            [
                numbers.setdefault(
                    (key, kind.op if kind.is_p2p else "", user_frame(kind.stack)), len(numbers)
                )
                for kind, key in zip(kinds, match_keys(kinds), strict=True)
            ],
            np.int64,
        )
        self._source = np.array([-1 if k.src is None else k.src for k in kinds], np.int64)
        self._target = np.array([-1 if k.dst is None else k.dst for k in kinds], np.int64)

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
        queues = [
            (q, p2p) for found, p2p in ((record.queues, False), (record.p2p, True)) for q in found.values()
        ]
        last = max((int(q.order[-1]) for q, _ in queues if len(q)), default=0)
        result: list[Any] = []
        for queue, is_p2p in queues:
            still_open = self.subject.open_seqs.get((record.rank, queue.gid, is_p2p), frozenset())
            kinds = self._plain[queue.kind[-LAST:]]
            columns = (queue.seq, kinds, queue.state, queue.order - last)
            result.append((
                purposes[queue.gid],
                is_p2p,
                *(column[-LAST:].tobytes() for column in columns),
                frozenset(number - last for number in still_open) if is_p2p else still_open,
            ))  # fmt: skip
        return result

    def program(self, record: RankRecord) -> Program:
        """Return the last calls of one rank."""
        purposes = self._purposes(record)
        columns: dict[str, list[Any]] = defaultdict(list)
        for queues, is_p2p in ((record.queues, False), (record.p2p, True)):
            for gid, queue in sorted(queues.items()):
                size = min(LAST, len(queue))
                if not size:
                    continue
                kind = queue.kind[-size:]
                columns["order"].append(queue.order[-size:])
                columns["gid"].append(np.full(size, gid, np.int64))
                columns["purpose"].append(np.full(size, purposes[gid], np.int64))
                columns["seq"].append(queue.seq[-size:])
                columns["kind"].append(kind)
                columns["state"].append(self._states(record.rank, queue, size, is_p2p))
                columns["is_p2p"].append(np.full(size, is_p2p, bool))
                columns["token"].append(self._tokens(kind, purposes[gid], gid, is_p2p))
        if not columns:
            none = np.empty(0, np.int64)
            return Program(self.subject.incident.kinds, none, none, none, none, none, none.astype(bool), ())
        order = np.concatenate(columns.pop("order"))
        last = np.argsort(order, kind="stable")[-LAST:]
        merged = {name: np.concatenate(parts)[last] for name, parts in columns.items()}
        return Program(self.subject.incident.kinds, tokens=tuple(merged.pop("token").tolist()), **merged)

    def _tokens(self, kind: Any, purpose: int, gid: int, is_p2p: bool) -> Any:
        tokens = self._token[self._plain[kind]] * _OFFSETS + purpose * _PURPOSES
        if is_p2p:  # in a ring all members go on by equally many places
            members = max(1, len(self.subject.incident.groups[gid].ranks))
            tokens = tokens + 1 + (self._target - self._source)[self._plain[kind]] % members
        return tokens

    def _states(self, rank: int, queue: Queue, size: int, is_p2p: bool) -> Any:
        """Return the states as the graph judged them: what is not open there is over, whatever a recorder wrote; lines show no ends."""
        state = queue.state[-size:].astype(np.int64)
        rest = np.flatnonzero(state != State.DONE)
        if len(rest):
            still_open = self.subject.open_seqs.get((rank, queue.gid, is_p2p), frozenset())
            names = (queue.order if is_p2p else queue.seq)[-size:][rest].tolist()
            opened = np.array([name in still_open for name in names], bool)
            state[rest[~opened]] = State.DONE if queue.tells_completion else State.UNKNOWN
            # An end that was not recorded is none to the graph: its rank waits there.
            state[rest[opened & (state[rest] == State.UNKNOWN)]] = State.PENDING
        return state

    def _purposes(self, record: RankRecord) -> dict[int, int]:
        """Return a number for what each of a rank's groups is for."""
        result: dict[int, int] = {}
        counts: dict[tuple[str, int], int] = {}
        for gid in sorted(set(record.queues) | set(record.p2p)):
            group = self.subject.incident.groups[gid]
            base = (group.desc, len(group.ranks))
            counts[base] = counts.get(base, 0) + 1
            result[gid] = self._purpose.setdefault((*base, counts[base]), len(self._purpose))
        return result
