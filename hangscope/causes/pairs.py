"""The rule about sends and receives that do not pair."""

from __future__ import annotations

from hangscope.causes.case import Case, Match, answer, of_odd_line, who
from hangscope.causes.mismatch import describe
from hangscope.explain.finding import Unpaired
from hangscope.model.conclusion import Evidence
from hangscope.model.incident import CallKind
from hangscope.model.rankset import agree

_TOGETHER = "Where two ranks exchange data, post the send and the recv in one batch_isend_irecv."


def unpaired(case: Case) -> Match | None:
    """A send without its receive, or the reverse, on a rank that went on to something else."""
    finding = case.finding
    pair = finding.stuck.pair
    if not isinstance(finding, Unpaired):
        return None
    if finding.change.votes > 1 and finding.change.skipped:
        return _left_out(case)
    if pair is None:
        return _somewhere(case)
    if pair.send is not None and pair.recv is not None:
        return _both_made(case)
    source, destination = pair.key.source, pair.key.destination
    missing, made, absent, waiter = "recv", "send", destination, source
    if pair.send is None:
        missing, made, absent, waiter = "send", "recv", source, destination
    named, more = finding.culprits, finding.change.shift
    culprit = next((rank for rank in (absent, waiter, *named) if rank in named), absent)
    number = f"number {pair.key.index + 1} of the pair {source} -> {destination}"
    why = f"rank {absent} never issued the {missing} for {made} {number}; rank {waiter} is blocked in it"
    if culprit != absent:
        why = (
            f"rank {waiter} is blocked in {made} {number}; rank {absent} never issued the matching {missing}"
        )
    strayed = _strayed(case, culprit)
    if more:
        calls = "sends or receives" if abs(more) > 1 else "send or receive"
        apart = f"issued {abs(more)} {calls} {'more' if more > 0 else 'fewer'} than {'their' if len(named) > 1 else 'its'} counterparts in the other groups of this kind"
        strayed += [case.recorded(rank, f"rank {rank} {apart}") for rank in named[:2]]
        why = f"{who(named)} {apart}: {why}"
    own = bool(strayed) and culprit != waiter
    there = "another" if case.graph.open_calls.get(absent) else "no"
    unmatched = case.recorded(
        absent, f"rank {absent} issued no {missing} for it, and has {there} P2P op or collective pending"
    )
    return answer(
        "p2p_mismatch",
        named if culprit in named or finding.tie else (culprit,),
        why + ("" if more else _alike(named)),
        *_schedules(source, destination),
        # A rank in no call may be busy before its half, and clocks of two hosts do not tell what it went past.
        strength=0 if finding.tie else 1 if finding.assumed or more else 2,
        frame=case.frame_of(finding.own.kind if own else finding.stuck.kind),
        frame_rank=culprit if own else waiter,
        evidence=[*strayed, unmatched],
    )


def _left_out(case: Case) -> Match:
    """Return the answer for ranks that skipped a send or receive which the ranks of their role issued at that place."""
    finding, change = case.finding, case.finding.change
    rank, call = finding.culprits[0], change.skipped[0]
    wanted = _peered(case, rank, call)
    peers = f"{agree(finding.culprits, 'its', 'their')} {change.votes} counterparts"
    return answer(
        "p2p_mismatch",
        finding.culprits,
        f"{who(finding.culprits)} skipped {wanted}; {peers} issued theirs at that point",
        *_schedules(rank),
        strength=2 if change.proven else 1,
        frame=case.frame_of(call),
        frame_rank=rank,
        evidence=[
            case.recorded(
                rank,
                f"{change.votes} counterparts of rank {rank} issued their {call.op} before {describe(finding.own.kind)}; rank {rank} issued none",
            )
        ],
    )


def _somewhere(case: Case) -> Match:
    """Return the answer where every rank waits in a send or receive, and no record shows which one is missing."""
    finding = case.finding
    named, blocked = finding.culprits, sorted({*finding.waiting, *finding.culprits})
    told = [of_odd_line(odd) for odd in case.statements.outlier_lines if odd.telling and odd.ranks == named]
    return answer(
        "p2p_mismatch",
        named,
        f"{who(blocked)} are blocked in sends and receives: a matching send or recv is missing, or they wait for each other in a cycle",
        "Print peer and number of each send and receive per rank, and look for the pair whose counts differ.",
        _TOGETHER,
        frame=case.frame_of(finding.own.kind if named else finding.stuck.kind),
        frame_rank=named[0] if named else finding.stuck.rank,
        evidence=[*told, *map(case.stands, sorted(case.statements.whereabouts)[:8])],
        rivals=[
            ("stuck_rank", "a rank that was slow before its send or recv looks the same once all timed out")
        ],
    )


def _both_made(case: Case) -> Match:
    """Return the answer for a send and a receive that were both made: not for each other, or with different sizes."""
    finding, culprits = case.finding, case.finding.culprits
    if not finding.change.skipped:
        return answer(
            "p2p_mismatch",
            culprits,
            f"{describe(finding.own.kind)} and {describe(finding.stuck.kind)}: a send and its matching recv have different sizes",
            f"Make {who(culprits)} use the size that this pair exchanged before, or exchange the sizes first.",
            "Compare the two pipeline schedules: a microbatch of another shape needs both sides to know it.",
            strength=2,
        )
    wanted = _peered(case, culprits[0], next(kind for kind in finding.change.skipped if kind.is_p2p))
    why = f"rank {culprits[0]} skipped {wanted} of its own schedule; since then sends and receives are matched with the wrong ones{_alike(culprits)}"
    evidence = _strayed(case, culprits[0])
    return answer("p2p_mismatch", culprits, why, *_schedules(culprits[0]), evidence=evidence)


def _alike(named: tuple[int, ...]) -> str:
    """Return a clause on the same fault in the groups side by side, for a sentence about one of these ranks."""
    return (
        f"; {who(named[1:])} did the same in {agree(named[1:], 'its own group', 'their own groups')}"
        if len(named) > 1
        else ""
    )


def _schedules(one: int, other: int | None = None) -> tuple[str, str]:
    whose = f"rank {one} and its neighbours" if other is None else f"ranks {one} and {other}"
    side = f"Put the send/receive schedules of {whose} side by side: number of microbatches, peers, order."
    return side, _TOGETHER


def _strayed(case: Case, rank: int) -> list[Evidence]:
    """Return what a rank's own program called for where it made another call, if that was found."""
    finding = case.finding
    if not finding.change.skipped:
        return []
    wanted = " and ".join(_peered(case, rank, kind) for kind in finding.change.skipped[:2])
    made = _peered(case, rank, finding.own.kind)
    return [case.recorded(rank, f"where its own schedule has {wanted}, rank {rank} issued {made}")]


def _peered(case: Case, rank: int, kind: CallKind | None) -> str:
    """Return a call of a rank for a sentence, a send or receive with its global ranks: `send 2 -> 18`."""
    if kind is None or kind.src is None or kind.dst is None:
        return describe(kind)
    for gid, queue in case.incident.ranks[rank].p2p.items():
        ranks, made = case.incident.groups[gid].ranks, set(queue.kind.tolist())
        if max(kind.src, kind.dst) < len(ranks) and kind in {case.incident.kinds[k] for k in made}:
            return f"{kind.op} {ranks[kind.src]} -> {ranks[kind.dst]}"
    return f"{kind.op} {kind.src} -> {kind.dst} (group-local)"
