"""The rule about sends and receives that do not pair."""

from __future__ import annotations

from hangscope.align.rankset import ranks_phrase
from hangscope.causes.case import Case, Match
from hangscope.causes.mismatch import describe
from hangscope.conclusion import Evidence
from hangscope.explain.finding import Absent, Unpaired
from hangscope.incident import CallKind
from hangscope.knowledge.callsite import user_frame

_POINT_TO_POINT = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv"})


def unpaired(case: Case) -> Match | None:
    """A send without its receive, or the reverse, on a rank that went on to something else."""
    finding = case.finding
    pair = finding.stuck.pair
    facing = _facing(case)
    if facing:
        return _do_not_meet(case, facing)
    if not isinstance(finding, Unpaired):
        return None
    if pair is None:
        return _somewhere(case)
    if pair.send is not None and pair.recv is not None:
        return _left_out(case) if finding.change.skipped else _unequal(case)
    source, destination = pair.key.source, pair.key.destination
    missing, made = ("send", "recv") if pair.send is None else ("receive", "send")
    absent, waiter = (source, destination) if pair.send is None else (destination, source)
    named, more = finding.culprits, finding.more
    culprit = next((rank for rank in (absent, waiter, *named) if rank in named), absent)
    why = f"rank {waiter} waits in {made} number {pair.key.index + 1} of the pair {source} -> {destination}, for which rank {absent} has no {missing}"
    strayed = _strayed(case, culprit)
    if more:
        count = f"{abs(more)} send{'s or receives' if abs(more) > 1 else ' or receive'} {'more' if more > 0 else 'less'}"
        apart = f"made {count} than the ranks at the same place of the other groups of this kind"
        strayed += [case.recorded(rank, f"rank {rank} {apart}") for rank in named[:2]]
        why = f"{ranks_phrase(named)} {apart}: {why}"
    elif culprit not in (absent, waiter):
        why = f"rank {culprit} left its own program, and since then sends and receives do not meet: {why}"
    own = bool(strayed) and culprit != waiter
    there = "another" if case.graph.open_calls.get(absent) else "no"
    return Match(
        "p2p_mismatch",
        named if culprit in named else (culprit,),
        why + ("" if more else _alike(named)),
        # A rank in no call may be busy before its half, and clocks of two hosts do not tell what it went past.
        strength=1 if finding.assumed or more else 2,
        frame=case.frame_of(finding.own.kind if own else finding.stuck.kind),
        frame_rank=culprit if own else waiter,
        evidence=[
            *strayed,
            case.recorded(absent, f"rank {absent} has no {missing} for it, and is in {there} call itself"),
        ],
        advice=_schedules(source, destination),
    )


def _facing(case: Case) -> tuple[int, ...]:
    """Return the ranks that the recorders show in no call, and their stacks in sends and receives: gloo records none of them."""
    named = case.finding.culprits
    stood = [case.statements.whereabouts.get(rank) for rank in named]
    waits = all(where is not None and where.inside and where.op in _POINT_TO_POINT for where in stood)
    return named if waits and len(named) > 1 and isinstance(case.finding, Absent) else ()


def _do_not_meet(case: Case, ranks: tuple[int, ...]) -> Match:
    """Return the answer where ranks on which all waiting ends wait in sends and receives themselves.

    Where all of them receive, or all send, whose halves they lack are those that wait for them: a circle in which nobody is odd.
    """
    stood = [case.statements.whereabouts[rank] for rank in ranks]
    return Match(
        "p2p_mismatch",
        ranks if len({where.op for where in stood}) > 1 else (),
        f"{ranks_phrase(ranks)} wait in sends and receives of which none meets another",
        strength=1,
        category="code",
        frame=user_frame(stood[0].stack),
        evidence=list(map(case.stands, ranks)),
        advice=_schedules(ranks[0], ranks[1] if len(ranks) == 2 else None),
    )  # fmt: skip


def _somewhere(case: Case) -> Match:
    """Return the answer where every rank waits in a send or receive, and no record tells which half is missing."""
    who = ranks_phrase(case.finding.waiting)
    return Match(
        "p2p_mismatch",
        (),
        f"{who} all wait in sends and receives: one half is missing, or they face each other in a circle",
        strength=1,
        category="code",
        frame=case.frame_of(case.finding.stuck.kind),
        frame_rank=case.finding.stuck.rank,
        evidence=list(map(case.stands, sorted(case.statements.whereabouts)[:8])),
        advice=[
            "Print peer and number of each send and receive per rank: the pair whose counts differ is the one.",
            "Post both halves in one batch_isend_irecv where two ranks exchange.",
        ],
        rivals=[("stuck_rank", "a rank that was slow before its half looks the same once all have timed out")],
    )  # fmt: skip


def _left_out(case: Case) -> Match:
    """Return the answer for sends and receives that all have a counterpart, but not the one that was meant."""
    finding = case.finding
    culprit = finding.culprits[0]
    wanted = _peered(case, culprit, next(kind for kind in finding.change.skipped if kind.is_p2p))
    return Match(
        "p2p_mismatch",
        finding.culprits,
        f"rank {culprit} left out {wanted} that its own program calls for; since then sends and receives meet others than they were meant for, and wait in a circle{_alike(finding.culprits)}",
        strength=1,
        frame=case.frame_of(finding.own.kind),
        frame_rank=culprit,
        evidence=_strayed(case, culprit),
        advice=_schedules(culprit, None),
    )


def _alike(named: tuple[int, ...]) -> str:
    """Return a clause on the same fault in the groups side by side, for a sentence about one of these ranks."""
    return f"; {ranks_phrase(named)} did the same, each in its group" if len(named) > 1 else ""


def _schedules(one: int, other: int | None) -> list[str]:
    who = f"ranks {one} and {other}" if other is not None else f"rank {one} and its neighbours"
    return [
        f"Put the send/receive schedules of {who} side by side: number of microbatches, peers, order.",
        "Post both halves in one batch_isend_irecv where two ranks exchange.",
    ]


def _strayed(case: Case, rank: int) -> list[Evidence]:
    """Return what a rank's own program called for where it made another call, if that was found."""
    finding = case.finding
    if not isinstance(finding, Unpaired) or not finding.change.skipped:
        return []
    wanted = " and ".join(_peered(case, rank, kind) for kind in finding.change.skipped[:2])
    made = _peered(case, rank, finding.own.kind)
    return [case.recorded(rank, f"where its own program calls for {wanted}, rank {rank} made {made}")]


def _peered(case: Case, rank: int, kind: CallKind | None) -> str:
    """Return a call of a rank for a sentence, a send or receive with its global ranks: `send 2 -> 18`."""
    if kind is None or kind.src is None or kind.dst is None:
        return describe(kind)
    for gid, queue in case.incident.ranks[rank].p2p.items():
        ranks = case.incident.groups[gid].ranks
        if max(kind.src, kind.dst) < len(ranks) and kind in {
            case.incident.kinds[k] for k in set(queue.kind.tolist())
        }:
            return f"{kind.op} {ranks[kind.src]} -> {ranks[kind.dst]}"
    return f"{kind.op} {kind.src} -> {kind.dst} (group-local)"


def _unequal(case: Case) -> Match:
    """Return the answer for a send and a receive that meet with different sizes."""
    finding = case.finding
    who = ranks_phrase(finding.culprits) if finding.culprits else "one side"
    return Match(
        "p2p_mismatch",
        finding.culprits,
        f"{describe(finding.own.kind)} meets {describe(finding.stuck.kind)}: a send and its receive of different sizes",
        strength=2,
        frame=case.frame_of(finding.own.kind),
        advice=[
            f"Make {who} use the size that this pair exchanged before, or exchange the sizes first.",
            "Compare the two pipeline schedules: a microbatch of another shape needs both sides to know it.",
        ],
    )
