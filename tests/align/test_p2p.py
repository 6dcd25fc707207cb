"""Sends and receives paired as columns, beside the same pairing done one call at a time."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hangscope.align.p2p import pairs
from hangscope.model.incident import CallKind, Group, Incident, Queue, RankRecord, State
from hangscope.model.kinds import Kinds

RANKS = 3
KINDS = [
    CallKind(op, src=source, dst=destination)
    for op in ("send", "recv")
    for source in range(RANKS)
    for destination in (*range(RANKS), -1)
    if source != destination
]
#: (kind, state) of each call of one rank, and whether its log tells completion
Calls = tuple[list[tuple[int, State]], bool]
QUEUES = st.tuples(
    st.lists(
        st.tuples(st.integers(0, len(KINDS) - 1), st.sampled_from(list(State))), min_size=1, max_size=12
    ),
    st.booleans(),
)
WAITS = (State.PENDING, State.STARTED)


def incident(drawn: list[Calls], first: tuple[int, ...] = (1,) * RANKS) -> Incident:
    """Return an incident of one group with these queues; the rows of rank n begin with number `first[n]`."""
    ranks = {}
    for rank, (calls, tells) in enumerate(drawn):
        count = np.arange(len(calls))
        queue = Queue(
            rank,
            0,
            seq=count + first[rank],
            kind=np.array([kind for kind, _ in calls], np.int32),
            state=np.array([state for _, state in calls], np.int8),
            created=count * 10,
            order=count,
            tells_completion=tells,
        )
        ranks[rank] = RankRecord(rank, p2p={0: queue})
    kinds = Kinds(KINDS, np.arange(len(KINDS)))
    return Incident(len(drawn), ranks, [Group(0, "pipe", "", tuple(range(len(drawn))))], kinds)


def shown(found: Incident) -> list[tuple[object, ...]]:
    """Return the open pairs: source, destination, index, and (seq, state) of both halves."""
    return [
        (
            pair.key.source,
            pair.key.destination,
            pair.key.index,
            *((half.seq, half.state) if half else None for half in (pair.send, pair.recv)),
        )
        for pair in pairs(found)
    ]


@given(st.lists(QUEUES, min_size=RANKS, max_size=RANKS))
def test_the_nth_send_meets_the_nth_receive(drawn: list[Calls]) -> None:
    made = defaultdict(list)
    for rank, (calls, tells) in enumerate(drawn):
        for number, (index, state) in enumerate(calls, 1):
            kind = KINDS[index]
            if rank == (
                kind.src if kind.op == "send" else kind.dst
            ):  # what it says of others' calls counts for nothing
                made[kind.op, kind.src, kind.dst].append((number, state, tells))
    expected = []
    for source, destination in sorted({(src, dst) for _, src, dst in made if dst != -1}):
        sides = made["send", source, destination], made["recv", source, destination]
        for index in range(max(map(len, sides))):
            halves = [side[index] if index < len(side) else None for side in sides]
            if None in halves:  # what tells no completion waits where its peer made no call
                halves = [half and (half[0], half[1] if half[2] else State.PENDING, True) for half in halves]
            if any(half and half[1] in WAITS for half in halves):
                expected.append((source, destination, index, *(half and half[:2] for half in halves)))
    assert shown(incident(drawn)) == expected


def kind(op: str, source: int, destination: int) -> int:
    """Return the index of a kind."""
    return KINDS.index(CallKind(op, src=source, dst=destination))


def test_two_ranks_that_lost_their_beginnings_meet_by_number() -> None:
    sends = [(kind("send", 0, 1), State.DONE)] * 3 + [(kind("send", 0, 1), State.PENDING)]
    recvs = [(kind("recv", 0, 1), State.DONE)] * 2
    # rank 0 kept its numbers 5 to 8, rank 1 its 6 and 7: the send of number 8 has no receive
    assert shown(incident([(sends, True), (recvs, True)], first=(5, 6))) == [
        (0, 1, 3, (8, State.PENDING), None),
    ]


def test_where_numbers_are_of_other_peers_too_sides_meet_at_their_last_complete_call() -> None:
    sends = [(kind("send", 0, 1), State.DONE)] * 3 + [(kind("send", 0, 1), State.STARTED)]
    recvs = [(kind("recv", 0, 1), State.DONE), (kind("recv", 0, 1), State.PENDING)]
    third = [(kind("send", 2, 0), State.DONE)]
    # without a record of the sender, the receiver's count is the number
    assert shown(incident([(third, True), (recvs, True)], first=(1, 6))) == [
        (0, 1, 1, None, (7, State.PENDING)),
    ]
    assert shown(incident([(sends, True), (recvs, True), (third, True)], first=(40, 6, 1))) == [
        (0, 1, 3, (43, State.STARTED), (7, State.PENDING)),
    ]
