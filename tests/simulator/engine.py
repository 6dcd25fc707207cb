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

from .calls import BYTES, Batch, Call, Compute, Join, Print, Program, Stack, Stall, Sync, Wait
from .state import Devices, Made, Outcome, RankState

EAGER_BYTES = 65536
_LATENCY = 2e-5


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
