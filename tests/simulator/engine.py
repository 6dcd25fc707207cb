"""Runs programs until nothing can go on, with NCCL's rules of completion.

Hosts run ahead of their devices: a call is enqueued at once, and the host waits only where the program says
so or when too many calls are pending. On the device, calls of one group run in order (one stream per group;
one per pair for plain sends and receives), and a call waits for what the compute stream had been made to wait
for when it was enqueued.

- all_reduce, all_gather, reduce_scatter, all_to_all and barriers complete when all members' calls have
  started;
- broadcast and scatter complete on the root at once, elsewhere when the root has started; reduce and gather
  complete on the root when all have started, elsewhere at once;
- a send and its recv are the i-th of their (source, destination) pair; a send of at most 64 KB completes
  alone; a batch completes when all its parts did;
- calls that do not match complete nowhere.

The outcome does not depend on the order in which ranks are run, and no clock is read: times follow from the
programs.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from .calls import BYTES, Batch, Call, Compute, End, Join, Print, Program, Stack, Stall, Sync, Wait

EAGER_BYTES = 65536
_LATENCY = 2e-5


class Made:
    """A call that one rank has enqueued (`Call`), a part of a batch, or a batch's closing entry (`call` is
    None).

    `created`, `started` and `completed` are seconds on the job's own clock, None where it has not happened. A
    part of a batch never gets a state of its own: the recorder leaves it "scheduled" for ever.
    """

    __slots__ = (
        "batch",
        "call",
        "completed",
        "created",
        "followers",
        "gid",
        "is_p2p",
        "op_id",
        "p2p_seq",
        "parts",
        "rank",
        "ready",
        "record_id",
        "seq",
        "stack",
        "started",
        "waits",
    )

    def __init__(self, rank: int, gid: int, call: Call | None, created: float, record_id: int) -> None:
        self.rank, self.gid, self.call, self.created, self.record_id = rank, gid, call, created, record_id
        self.seq = self.p2p_seq = self.op_id = 0
        self.is_p2p = call is None or call.src is not None
        self.stack: Stack = call.stack if call is not None else ()
        self.started: float | None = None
        self.completed: float | None = None
        self.waits = 0
        self.ready = 0.0
        self.followers: list[Made | int] = []
        self.parts = 0  # of a batch's closing entry: parts that are not matched yet
        self.batch: Made | None = None  # of a part: its closing entry


@dataclass(slots=True)
class RankState:
    """Where one rank's host is. `ended` and `stalled` hold the step that stopped it."""

    rank: int
    program: Program
    position: int = 0
    time: float = 0.0
    made: list[Made] = field(default_factory=list)
    unfinished: deque[Made] = field(default_factory=deque)
    stream: dict[object, Made] = field(default_factory=dict)
    compute: list[Made] = field(default_factory=list)
    loose: list[Made] = field(default_factory=list)
    detached: list[Made] = field(default_factory=list)
    ended: End | None = None
    stalled: Stall | None = None
    blocked_at: Stack = ()
    printed: list[tuple[float, str]] = field(default_factory=list)
    collectives: dict[int, int] = field(default_factory=dict)
    p2ps: dict[int, int] = field(default_factory=dict)
    ops: dict[int, int] = field(default_factory=dict)
    pairs: dict[tuple[int, int, int], int] = field(default_factory=dict)

    @property
    def pending(self) -> list[Made]:
        """Return the calls of all its threads that have not completed, oldest first."""
        open_calls = [*self.unfinished, *(made for made in self.detached if made.completed is None)]
        return sorted(open_calls, key=lambda made: made.created)

    def pending_at(self, time: float | None) -> list[Made]:
        """Return the calls that had been made and had not completed at a time, oldest first; None: at the end."""
        if time is None:
            return self.pending
        return [m for m in self.made if m.created <= time and (m.completed is None or m.completed > time)]

    @property
    def done(self) -> bool:
        """Whether the program ran to its end or the process ended."""
        return self.ended is not None or self.position >= len(self.program)


@dataclass(slots=True)
class Devices:
    """Faults below the program: `dead` rank -> the number of its call that never completes there, though it
    takes part in it (nothing later starts); `broken` (gid, seq) of calls whose transport fails; `slow`: ranks
    whose network card makes calls with others last `factor` times as long from the second `since` on; `late`:
    (gid, seq) -> seconds by which a call completes later still.
    """

    dead: dict[int, int] = field(default_factory=dict)
    broken: set[tuple[int, int]] = field(default_factory=set)
    slow: frozenset[int] = frozenset()
    since: float = 0.0
    factor: float = 1.0
    late: dict[tuple[int, int], float] = field(default_factory=dict)

    def delay(self, call: Call, time: float) -> float:
        """Return how many times as long as usual a call lasts that starts at a time."""
        crosses = time >= self.since and not self.slow.isdisjoint(call.group.ranks)
        return self.factor if crosses and not self.slow.issuperset(call.group.ranks) else 1.0


@dataclass(slots=True)
class Outcome:
    """What a run came to. `frozen` is False when every program ran to its end."""

    ranks: list[RankState]
    frozen: bool
    last: float  # seconds: the last thing that happened anywhere


class Engine:
    """One run. `ahead`: how many unfinished calls a host may have; `jitter`: the spread of compute times."""

    def __init__(
        self,
        programs: list[Program],
        rng: random.Random,
        *,
        ahead: int,
        jitter: float,
        devices: Devices | None = None,
    ) -> None:
        self._ranks = [RankState(rank, program) for rank, program in enumerate(programs)]
        self._rng, self._ahead, self._jitter = rng, ahead, jitter
        self._devices = devices or Devices()
        self._joined: dict[tuple[int, int], list[Made]] = {}
        self._halves: dict[tuple[int, int, int, int], dict[str, Made]] = {}
        self._arrivals: deque[Made] = deque()
        self._hosts: deque[int] = deque(range(len(programs)))
        for state in self._ranks:
            state.time = rng.uniform(0, 0.05)

    def run(self) -> Outcome:
        """Run until nothing can go on."""
        while self._hosts or self._arrivals:
            while self._arrivals:
                self._arrive(self._arrivals.popleft())
            if self._hosts:
                self._advance(self._ranks[self._hosts.popleft()])
        for state in self._ranks:
            _settle(state)
        frozen = any(state.unfinished or not state.done for state in self._ranks)
        return Outcome(self._ranks, frozen, max(map(_last_event, self._ranks)))

    # -- the host

    def _advance(self, state: RankState) -> None:
        program, size = state.program, len(state.program)
        state.blocked_at = ()
        while state.position < size:
            step = program[state.position]
            if isinstance(step, Call):
                if self._full(state, step.stack):
                    return
                self._enqueue(state, step)
            elif isinstance(step, Compute):
                state.time += step.seconds * (1 + self._jitter * self._rng.random())
            elif isinstance(step, Batch):
                if self._full(state, step.stack):
                    return
                self._enqueue_batch(state, step)
            elif isinstance(step, Sync):
                for made in state.compute:
                    if made.completed is None:
                        made.followers.append(state.rank)
                        state.blocked_at = step.stack
                        return
                    state.time = max(state.time, made.completed)
            elif isinstance(step, Join):
                for made in state.detached:
                    if made.completed is None:
                        made.followers.append(state.rank)
                        state.blocked_at = step.stack
                        return
            elif isinstance(step, Wait):
                state.compute = state.compute + state.loose
                state.loose = []
            elif isinstance(step, Print):
                state.printed.append((state.time, step.text))
            elif isinstance(step, Stall):
                state.stalled = step
                return
            else:
                state.ended = step
                return
            state.position += 1

    def _full(self, state: RankState, stack: Stack) -> bool:
        """Return whether the host has to wait for the oldest of too many pending calls."""
        _settle(state)
        if len(state.unfinished) < self._ahead:
            return False
        state.unfinished[0].followers.append(state.rank)
        state.blocked_at = stack
        return True

    def _record(self, state: RankState, call: Call | None, gid: int) -> Made:
        state.time += _LATENCY * (1 + self._rng.random())
        made = Made(state.rank, gid, call, state.time, len(state.made))
        state.made.append(made)
        return made

    def _enqueue(self, state: RankState, call: Call) -> None:
        gid = call.group.gid
        made = self._record(state, call, gid)
        made.op_id = state.ops[gid] = state.ops.get(gid, 0) + 1
        key: object = gid
        if made.is_p2p:
            made.p2p_seq = state.p2ps[gid] = state.p2ps.get(gid, 0) + 1
            made.seq = state.collectives.get(gid, 0)
            key = (gid, min(call.src, call.dst), max(call.src, call.dst))  # type: ignore[type-var]
        else:
            made.seq = state.collectives[gid] = state.collectives.get(gid, 0) + 1
            made.p2p_seq = state.p2ps.get(gid, 0)
        if call.detached:
            self._launch_detached(state, made, key)
        else:
            self._launch(state, made, key, call.asynchronous)

    def _enqueue_batch(self, state: RankState, batch: Batch) -> None:
        gid = batch.group.gid
        p2p_seq = state.p2ps[gid] = state.p2ps.get(gid, 0) + 1
        parts = []
        for call in batch.calls:
            part = self._record(state, call, gid)
            part.op_id = state.ops[gid] = state.ops.get(gid, 0) + 1
            parts.append(part)
        end = self._record(state, None, gid)
        end.op_id, end.stack, end.parts = state.ops[gid], batch.stack, len(parts)
        for made in (*parts, end):
            made.p2p_seq, made.seq = p2p_seq, state.collectives.get(gid, 0)
        for part in parts:
            part.batch = end
        self._launch(state, end, gid, asynchronous=False)

    def _launch(self, state: RankState, made: Made, key: object, asynchronous: bool) -> None:
        before = state.stream.get(key)
        for dependency in [*state.compute, *([before] if before is not None else [])]:
            if dependency.completed is None:
                made.waits += 1
                dependency.followers.append(made)
            else:
                made.ready = max(made.ready, dependency.completed)
        state.stream[key] = made
        state.unfinished.append(made)
        if asynchronous:
            state.loose.append(made)
        else:
            state.compute = [made]
        if made.waits == 0:
            self._arrivals.append(made)

    def _launch_detached(self, state: RankState, made: Made, key: object) -> None:
        """Launch another thread's call: it waits for nothing but the call before it on its own group."""
        before = state.stream.get(key)
        if before is not None and before.completed is None:
            made.waits += 1
            before.followers.append(made)
        state.stream[key] = made
        state.detached.append(made)
        if made.waits == 0:
            self._arrivals.append(made)

    # -- the device

    def _arrive(self, made: Made) -> None:
        last = self._devices.dead.get(made.rank)
        if last is not None and made.record_id > last:
            return
        made.started = max(made.created, made.ready) + _LATENCY
        if made.call is None:
            state = self._ranks[made.rank]
            first = made.record_id - made.parts
            for part in state.made[first : made.record_id]:
                part.started = made.started
                self._meet(part)
        elif made.is_p2p:
            self._meet(made)
        else:
            self._join(made)

    def _join(self, made: Made) -> None:
        call = made.call
        assert call is not None
        key = (made.gid, made.seq)
        joined = self._joined.setdefault(key, [])
        joined.append(made)
        if key in self._devices.broken or not all(compatible(call, other.call) for other in joined[:-1]):
            self._devices.broken.add(key)
            return
        whole = len(joined) == len(call.group.ranks)
        root = call.group.ranks[call.root]
        if call.op in ("broadcast", "scatter"):
            if made.rank == root or any(m.rank == root for m in joined):
                self._complete_all([m for m in joined if m.completed is None])
        elif call.op in ("reduce", "gather"):
            self._complete_all(joined if whole else [made] if made.rank != root else [])
        elif call.op == "all_to_all" and any(m.call is not None and m.call.peers for m in joined):
            here = {m.rank for m in joined}
            served = [
                m for m in joined if m.call is not None and here.issuperset(m.call.peers or call.group.ranks)
            ]
            self._complete_all([m for m in served if m.completed is None])
        elif whole:
            self._complete_all(joined)

    def _meet(self, made: Made) -> None:
        call = made.call
        assert call is not None and call.src is not None and call.dst is not None
        state = self._ranks[made.rank]
        pair = (made.gid, call.src, call.dst)
        number = state.pairs[pair] = state.pairs.get(pair, -1) + 1
        halves = self._halves.setdefault((*pair, number), {})
        halves[call.op] = made
        if call.op == "send" and call.numel[0] * BYTES[call.dtype] <= EAGER_BYTES:
            self._matched(made, made.started or 0.0)
        if len(halves) == 2 and compatible_halves(halves["send"], halves["recv"]):
            end = max(half.started or 0.0 for half in halves.values()) + _duration(call)
            for half in halves.values():
                self._matched(half, end)

    def _matched(self, made: Made, time: float) -> None:
        if made.batch is None:
            if made.completed is None:
                self._complete(made, time)
            return
        end = made.batch
        end.ready = max(end.ready, time)
        end.parts -= 1
        if end.parts == 0:
            self._complete(end, end.ready)

    def _complete_all(self, joined: list[Made]) -> None:
        call = joined[0].call if joined else None
        if call is not None:
            begin = max(made.started or 0.0 for made in joined)
            end = begin + _duration(call) * self._devices.delay(call, begin)
            end += self._devices.late.get((joined[0].gid, joined[0].seq), 0.0)
            for made in joined:
                if made.completed is None:
                    self._complete(made, end)

    def _complete(self, made: Made, time: float) -> None:
        if self._devices.dead.get(made.rank) == made.record_id:
            return
        made.completed = time
        for follower in made.followers:
            if isinstance(follower, int):
                state = self._ranks[follower]
                state.time = max(state.time, time)
                self._hosts.append(follower)
            else:
                follower.ready = max(follower.ready, time)
                follower.waits -= 1
                if follower.waits == 0:
                    self._arrivals.append(follower)
        made.followers = []


def compatible(one: Call, other: Call | None) -> bool:
    """Return whether two members' calls of one seq can complete together."""
    if other is None or one.op != other.op:
        return False
    if one.op in ("all_to_all", "gather", "scatter"):
        return True
    if one.dtype != other.dtype:
        return False
    if one.op in ("broadcast", "reduce"):
        return one.numel == other.numel and one.root == other.root
    return (one.inputs == other.inputs and one.outputs == other.outputs) or one.numel == other.numel


def compatible_halves(send: Made, recv: Made) -> bool:
    """Return whether a send and a recv carry the same number of bytes."""
    a, b = send.call, recv.call
    return a is not None and b is not None and a.numel == b.numel and a.dtype == b.dtype


def _duration(call: Call) -> float:
    return 3e-5 + call.numel[1] * BYTES[call.dtype] / 8e10


def _settle(state: RankState) -> RankState:
    """Forget the oldest calls that have completed."""
    pending = state.unfinished
    while pending and pending[0].completed is not None:
        pending.popleft()
    return state


def _last_event(state: RankState) -> float:
    recent = (max(made.created, made.completed or 0.0) for made in state.made[-256:])
    return max(recent, default=state.time)
