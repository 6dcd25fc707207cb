"""The rule about sends and receives that do not pair."""

from __future__ import annotations

from hangscope.align.nodes import Instance
from hangscope.align.rankset import ranks_phrase
from hangscope.causes.case import Case, Match
from hangscope.causes.mismatch import describe
from hangscope.conclusion import Evidence, Source
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
    if (new := _new_call(case, finding.culprits)) is not None:
        return _kept_by(case, finding.culprits[0], new)
    source, destination, index = pair.key.source, pair.key.destination, pair.key.index
    missing, made = ("send", "recv") if pair.send is None else ("receive", "send")
    absent, waiter = (source, destination) if pair.send is None else (destination, source)
    named, more = finding.culprits, finding.more
    culprit = next((rank for rank in (absent, waiter, *named) if rank in named), absent)
    number = f"{made} number {index + 1} of the pair {source} -> {destination}"
    strayed = _strayed(case, culprit)
    count = f"{abs(more)} send{'s or receives' if abs(more) > 1 else ' or receive'} {'more' if more > 0 else 'less'}"
    apart = [
        Evidence(record.recorder, f"rank {rank} made {count} than the ranks at its place in the other groups of this kind", rank, Source(record.calls_file or ""))
        for rank in named
        if more and (record := case.incident.ranks.get(rank)) is not None
    ]  # fmt: skip
    if more:
        said = f"{ranks_phrase(named)} made {count} than the ranks at the same place of the other groups of this kind: rank {waiter} waits in {number}, for which rank {absent} has no {missing}"
    elif culprit == waiter and not strayed:
        said = f"rank {waiter} waits in {made} {source} -> {destination}, the first of that pair, for which rank {absent} has no {missing}, and its own half of another pair is not there"
    elif culprit == waiter:
        said = f"rank {waiter} waits in {made} {source} -> {destination}, which its own program does not call for there, and rank {absent} never made the {missing}"
    elif finding.tie:
        said = f"rank {waiter} waits in {number}, and what is left of rank {absent} does not tell whether it made the {missing}"
    elif culprit == absent:
        said = f"rank {waiter} waits in {number}, and rank {absent} never made the {missing}"
    else:
        said = f"rank {culprit} left its own program, and since then sends and receives do not meet: rank {waiter} waits in {number}, and rank {absent} is not there"
    own = bool(strayed) and culprit != waiter
    return Match(
        "p2p_mismatch",
        named if culprit in named or finding.tie else (culprit,),
        said + ("" if more else _alike(named)),
        # A rank in no call may be busy before its half, and clocks of two hosts do not tell what it went past.
        strength=0 if finding.tie else 1 if finding.assumed or more or isinstance(finding, Absent) else 2,
        frame=case.frame_of(finding.own.kind if own else finding.stuck.kind),
        frame_rank=culprit if own else waiter,
        evidence=[
            *strayed,
            *apart[:2],
            Evidence(
                case.incident.ranks[absent].recorder,
                f"rank {absent} has no {missing} for it, and is in {'another' if case.graph.open_calls.get(absent) else 'no'} call itself",
                absent,
                Source(case.incident.ranks[absent].calls_file or ""),
            ),
        ],
        advice=_schedules(source, destination),
    )


def _new_call(case: Case, culprits: tuple[int, ...]) -> CallKind | None:
    """Return the collective in which the one culprit waits alone and which it never made before, though others on that group."""
    if len(culprits) != 1:
        return None
    rank = culprits[0]
    node = next((call.node for call in case.graph.open_calls.get(rank, [])), None)
    if not isinstance(node, Instance) or len(case.graph.calls_of(node)) > 1:
        return None
    queue = case.incident.ranks[rank].queues.get(node.gid)
    if queue is None or len(queue) < 2:
        return None
    made = queue.kind.tolist()
    own = next((kind for kind, seq in zip(made, queue.seq.tolist(), strict=True) if seq == node.seq), None)
    return case.incident.kinds[own] if own is not None and made.count(own) == 1 else None


def _kept_by(case: Case, rank: int, call: CallKind) -> Match:
    """Return the answer where a call of its own keeps a rank from its sends and receives."""
    record = case.incident.ranks[rank]
    what = f"rank {rank} waits alone in {describe(call)}, which it never made before"
    return Match(
        "rank_conditional_collective",
        (rank,),
        f"{what}, and behind it come the sends and receives that its neighbours wait for",
        frame=case.frame_of(call),
        frame_rank=rank,
        evidence=[Evidence(record.recorder, what, rank, Source(record.calls_file or ""))],
        advice=[f"Call {call.op} on every rank of its group and gate only the side effect around it, not the collective."],
        rivals=[("p2p_mismatch", "a rank that left out its half and went on to a call for the first time looks the same")],
    )  # fmt: skip


def _facing(case: Case) -> tuple[int, ...]:
    """Return the ranks that the recorders show in no call, and their stacks in sends and receives: gloo records none of them."""
    named = case.finding.culprits
    stood = [case.statements.whereabouts.get(rank) for rank in named]
    waits = all(where is not None and where.inside and where.op in _POINT_TO_POINT for where in stood)
    return named if waits and len(named) > 1 and isinstance(case.finding, Absent) else ()


def _do_not_meet(case: Case, ranks: tuple[int, ...]) -> Match:
    """Return the answer where ranks on which all waiting ends wait in sends and receives themselves."""
    stood = [case.statements.whereabouts[rank] for rank in ranks]
    return Match(
        "p2p_mismatch",
        ranks,
        f"{ranks_phrase(ranks)} wait in sends and receives of which none meets another",
        strength=1,
        category="code",
        frame=user_frame(stood[0].stack),
        evidence=[
            Evidence(where.kind, f"rank {rank} waits in {where.op} at {user_frame(where.stack)}", rank, Source(where.source))
            for rank, where in zip(ranks, stood, strict=True)
        ],
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
        evidence=[
            Evidence("stack", f"rank {rank} waits in {where.op} at {user_frame(where.stack)}", rank, Source(where.source))
            for rank, where in sorted(case.statements.whereabouts.items())[:8]
        ],
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
    record = case.incident.ranks[rank]
    text = (
        f"where its own program calls for {wanted}, rank {rank} made {_peered(case, rank, finding.own.kind)}"
    )
    return [Evidence(record.recorder, text, rank, Source(record.calls_file or ""))]


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
