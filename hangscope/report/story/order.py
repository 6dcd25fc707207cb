"""Calls on two groups in different orders: the last calls of two sides, whose lines cross."""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.model.rankset import ranks_phrase
from hangscope.report.pictures.call_diff.behaviour import Behaviour, Program
from hangscope.report.schema.stories import OrderedCall, OrderStory
from hangscope.report.subject import Subject, site_of, state_word

_CALLS = 5


def order(subject: Subject, classes: Sequence[Behaviour]) -> OrderStory | None:
    """Return the last collectives of the side with the different order and of a side that it waits for, or None."""
    stuck = [b for b in classes if len(b.program) and b.role in ("culprit", "waiting")]
    named = next((b for b in stuck if b.role == "culprit"), None) or (stuck[0] if stuck else None)
    if named is None:
        return None
    own = _open_keys(named.program)
    mine = set(named.program.tokens)
    others = [
        b
        for b in stuck
        if b is not named
        and _open_keys(b.program)
        and _open_keys(b.program)[0][0] not in {k for k, _ in own[:1]}
    ]
    others.sort(key=lambda b: (-len(mine & set(b.program.tokens)), -len(b.ranks), b.ranks[0]))
    if not own or not others:
        return None
    peer = others[0]
    return OrderStory(
        ranks_phrase(peer.ranks).capitalize(),
        ranks_phrase(named.ranks).capitalize(),
        _last(subject, peer.program, named.program),
        _last(subject, named.program, peer.program),
    )


def _open_keys(program: Program) -> list[tuple[int, int]]:
    return [
        (int(program.gid[i]), int(program.seq[i]))
        for i in range(len(program))
        if state_word(int(program.state[i])) != "done"
    ]


def _purpose(subject: Subject, gid: int) -> str:
    """Return what a group is for: both sides may be in groups of their own with the same purpose."""
    group = subject.incident.groups[gid]
    return group.role or group.desc or group.name


def _last(subject: Subject, program: Program, other: Program) -> tuple[OrderedCall, ...]:
    """Return the last calls of one side, and the one that it would make next if the other's habit is its own."""
    calls = []
    made = set()
    shared = {*program.gid.tolist()} & {*other.gid.tolist()}
    for row in range(max(0, len(program) - _CALLS), len(program)):
        gid, seq = int(program.gid[row]), int(program.seq[row])
        kind = subject.incident.kinds[int(program.kind[row])]
        made.add((gid, seq))
        calls.append(
            OrderedCall(
                f"{gid if gid in shared else _purpose(subject, gid)} {seq}",
                f"{kind.op} seq {seq} on group {subject.label(gid)}",
                site_of(kind),
                state_word(int(program.state[row])),
            )
        )
    members = set(program.gid.tolist())
    for gid, seq in _open_keys(other):
        if (gid, seq) not in made and gid in members:
            calls.append(
                OrderedCall(f"{gid} {seq}", f"seq {seq} on group {subject.label(gid)}", "", "not issued yet")
            )
    return tuple(calls)
