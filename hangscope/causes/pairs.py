"""Rules about sends and receives that do not pair."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from hangscope.align.matching import numel
from hangscope.causes.case import Case, Match, answer, at, of_outlier, who
from hangscope.causes.mismatch import describe
from hangscope.explain.finding import Miscounted
from hangscope.explain.text.group_size import stated_size
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.ingest.torch_logs.wrapper import GlooTimeout
from hangscope.knowledge.callsite import user_frame
from hangscope.model.conclusion import Evidence
from hangscope.model.incident import Absence, CallKind, Group
from hangscope.model.rankset import agree

_SLOW = ("stuck_rank", "a rank that was slow before its send or recv looks the same once all timed out")
_PRINT = "Print peer, tag and number of each send and receive per rank, and look for the pair that differs."
_PAIRED = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv"})


def unpaired(case: Case) -> Match | None:
    """A send without its receive, or the reverse, on a rank that went on to something else."""
    finding = case.finding
    pair = finding.stuck.pair
    if finding.change.votes > 1 and finding.change.skipped:
        return _skipped(case)
    if pair is None:
        return _somewhere(case)
    if pair.send is not None and pair.recv is not None:
        sent, received = (case.incident.kinds[half.kind] for half in (pair.send, pair.recv))
        of_types = numel(sent.input_sizes) == numel(received.input_sizes)
        what = "element types" if of_types else "sizes"
        why = f"rank {pair.send.rank} issued {describe(sent)}, rank {pair.recv.rank} the matching {describe(received)}: their {what} differ"
        fix = f"Make {who(finding.culprits, 'both ranks')} use the size that this pair exchanged before, or exchange the sizes first: a microbatch of another shape needs both ranks to know it."
        if of_types:
            fix = "Give both ranks the same element type: compare their configuration (fp16, bf16) and autocast."
        if of_types and sent.input_dtypes == received.input_dtypes:  # named for what its own program shows
            why = f"{who(finding.culprits)} issued other sends and receives than in its earlier steps"
            fix = _PRINT
        return answer("p2p_mismatch", finding.culprits, why, fix, strength=2)
    source, destination = pair.key.source, pair.key.destination
    missing, issued, absent, waiter = "recv", "send", destination, source
    if pair.send is None:
        missing, issued, absent, waiter = "send", "recv", source, destination
    named, more = finding.culprits, finding.change.shift
    culprit = next((rank for rank in (absent, waiter, *named) if rank in named), absent)
    call = f"{issued} number {pair.key.index + 1} of the pair {source} -> {destination}"
    why = f"rank {absent} never issued the {missing} for {call}; rank {waiter} is blocked in it"
    if culprit != absent:
        why = f"rank {waiter} is blocked in {call}; rank {absent} never issued the matching {missing}"
    recorded = case.incident.ranks[absent].absence in (None, Absence.PENDING_ONLY)
    if not recorded:
        why = f"rank {waiter} is blocked in {call}; no dump shows whether rank {absent} issued the matching {missing}"
    evidence = _instead(case, culprit)
    if more:
        calls = "sends or receives" if abs(more) > 1 else "send or receive"
        apart = f"issued {abs(more)} {calls} {'more' if more > 0 else 'fewer'} than {agree(named, 'its', 'their')} counterparts in the other groups of this kind"
        evidence += [case.recorded(rank, f"rank {rank} {apart}") for rank in named[:2]]
        why = f"{who(named)} {apart}: {why}"
    own = bool(evidence) and culprit != waiter
    other = "another" if case.graph.open_calls.get(absent) else "no"
    unmatched = f"rank {absent} issued no {missing} for it, and has {other} P2P op or collective pending"
    return answer(
        "p2p_mismatch",
        named if culprit in named or finding.tie else (culprit,),
        why,
        # A rank that has nothing pending may be busy before its own, and clocks of two hosts do not show what it went past.
        strength=0 if finding.tie or not recorded else 1 if finding.assumed or more else 2,
        frame=case.frame_of(finding.own.kind if own else finding.stuck.kind),
        frame_rank=culprit if own else waiter,
        evidence=[*evidence, *([case.recorded(absent, unmatched)] if recorded else [])],
        suspects=() if recorded else (absent, waiter),
    )


def miscounted(case: Case) -> Match | None:
    """A rank issued another number of sends and receives before a collective than each time before: its recorder counts them and keeps none."""
    finding = case.finding
    assert isinstance(finding, Miscounted)
    named, more = finding.culprits, finding.count - finding.usual
    calls = "sends or receives" if abs(more) > 1 else "send or receive"
    call = f"{describe(finding.own.kind)} seq {finding.own.seq}"
    if more < 0:
        done = f"left out {-more} {calls} before {call} that {agree(named, 'it', 'they')} issued each time before"
    else:
        done = f"issued {more} more {calls} before {call} than each time before"
    why = f"{who(named)} {done} ({finding.count} operations, not {finding.usual})"
    frame = user_frame(finding.own.kind.stack) if finding.own.kind is not None else None
    paired = [r for r, where in case.stacks.items() if where.op in _PAIRED and r not in named]
    return answer(
        "p2p_mismatch",
        named,
        why,
        _PRINT,
        strength=2 if paired else 1,
        frame=frame,
        frame_rank=named[0],
        evidence=[
            case.recorded(
                named[0], f"{why}; gloo's recorder counts sends and receives in op_id and keeps none"
            ),
            *map(case.seen_at, paired[:2]),
        ],
        rivals=() if paired else [("p2p_mismatch", "its peers may have issued another number")],
    )


def unanswered(case: Case) -> Match | None:
    """A rank waits in a send or receive that its recorder does not keep, as gloo's, and no other rank is in one."""
    finding, placed = case.finding, case.statements.whereabouts
    named, peers = finding.culprits, sorted(placed.keys() - set(finding.culprits))
    inside = {rank for rank, where in placed.items() if where.inside and where.op in _PAIRED}
    known = placed.keys() | case.graph.waiting
    if not named or inside != set(named) or not known >= case.incident.ranks.keys():
        return None
    frame = user_frame(placed[named[0]].stack)
    lines = [o for o in case.statements.outlier_lines if o.ranks == named and o.telling]
    why = f"{who(named)} {agree(named, 'is', 'are')} in a send or receive{at(frame)}, and no other rank is in one that could match it"
    return answer(
        "p2p_mismatch",
        named,
        why,
        _PRINT,
        strength=2 if lines else 0,
        evidence=[*map(case.seen_at, named[:2]), *map(of_outlier, lines), *map(case.seen_at, peers[:2])],
        frame=frame,
        rivals=() if lines else [("p2p_mismatch", "its peer may have issued one send or receive too few")],
    )


def unrecorded(case: Case) -> Match | None:
    """All ranks wait in calls that no dump has, as gloo's recorder keeps no send and no receive: every recorded collective is over."""
    placed, records = case.statements.whereabouts, case.incident.ranks
    recorded = len(records) > 1 and all(r.seen and r.dump_file for r in records.values())
    timed_out = case.statements.ranks(GlooTimeout) >= records.keys()
    if case.graph.waiting or not (recorded and timed_out) or not case.on_gloo:
        return None
    if not placed.keys() >= records.keys() or not all(
        w.inside and (w.op is None or w.op in _PAIRED) for w in placed.values()
    ):
        return None
    odd = [line for line in case.statements.outlier_lines if line.telling]
    named = odd[0].ranks if len({line.ranks for line in odd}) == 1 else ()
    why = "all ranks wait in sends or receives, by their lines, while every collective of their dumps is over"
    if named:
        why = f"{who(named)} probably issued other sends and receives than the others: {odd[0].says()}"
    return answer(
        "p2p_mismatch",
        named,
        why,
        _PRINT,
        strength=1 if named else 0,
        evidence=[*map(of_outlier, odd[:2]), *map(case.seen_at, sorted(placed)[:4])],
        frame=case.frame_of(case.finding.stuck.kind),
    )


def left_by_one(case: Case) -> Match | None:
    """Several ranks stay at one line of the user's that no recorded call explains: in sends or receives, which gloo's recorder does not keep.

    At fault is the one of them that alone printed another value, else the one other rank of their block that has gone on. A block are
    the ranks at one position in the groups of one kind, as those of a ring across replicas, whose own group is not recorded either.
    """
    finding, stacks = case.finding, case.stacks
    named = set(finding.culprits)
    lines = {stacks[r].stack[0] for r in named if r in stacks and stacks[r].stack and not stacks[r].inside}
    if len(named) < 2 or len(lines) != 1 or not named <= stacks.keys() or not case.on_gloo:
        return None
    frame, odd = user_frame(tuple(lines)), [o for o in case.statements.outlier_lines if o.telling]
    others = [block - named for block in _blocks(case.incident.groups) if named < block][:1]
    if len({o.ranks for o in odd}) == 1 and named.issuperset(odd[0].ranks):
        at_fault, why = odd[0].ranks, odd[0].says()
    elif others and len(others[0]) == 1 and others[0].issubset(case.graph.waiting):
        at_fault, odd = tuple(others[0]), []
        why = f"{who(at_fault)} has left it"
    else:
        return None
    why = f"{who(named)} {agree(named, 'is', 'are')} still in an exchange{at(frame)}; {why}"
    fix = "Issue the same sends and receives on both sides whatever the data: a hop may be skipped by both or by none."
    facts = [*map(of_outlier, odd[:1]), *map(case.seen_at, sorted({*sorted(named)[:2], *at_fault}))]
    strength = int(bool(odd))
    return answer(
        "p2p_mismatch",
        at_fault,
        why,
        fix,
        strength=strength,
        evidence=facts,
        frame=frame,
        frame_rank=min(named),
    )


def _blocks(groups: Sequence[Group]) -> list[set[int]]:
    """Return the ranks at each position of the groups that have one description and size, the smallest blocks first."""
    of_kind: dict[tuple[str, int], list[Group]] = defaultdict(list)
    for group in groups:
        of_kind[group.desc, len(group.ranks)].append(group)
    several = [alike for alike in of_kind.values() if len(alike) > 1]
    blocks = [{*ranks} for alike in several for ranks in zip(*(g.ranks for g in alike), strict=True)]
    return sorted(blocks, key=len)


def _skipped(case: Case) -> Match:
    """Return the answer for ranks that skipped a send or receive which the ranks of their role issued at that place."""
    finding, change = case.finding, case.finding.change
    culprits, call = finding.culprits, change.skipped[0]
    rank, votes = culprits[0], change.votes
    peers = f"{agree(culprits, 'its', 'their')} {votes} counterparts"
    why = f"{who(culprits)} skipped {_peered(case, rank, call)}; {peers} issued theirs at that point"
    fact = f"{votes} counterparts of rank {rank} issued their {call.op} before {describe(finding.own.kind)}; rank {rank} issued none"
    evidence, strength = [case.recorded(rank, fact)], 2 if change.proven else 1
    frame = case.frame_of(call)
    return answer("p2p_mismatch", culprits, why, strength=strength, frame=frame, evidence=evidence)


def _somewhere(case: Case) -> Match:
    """Return the answer where every rank waits in a send or receive, and no record shows which one is missing."""
    finding = case.finding
    named, blocked = finding.culprits, sorted({*finding.waiting, *case.statements.inside})
    why = f"{who(blocked)} are blocked in sends and receives: a matching send or recv is missing, or they wait for each other in a cycle"
    placed, waiter = case.statements.whereabouts, finding.stuck.rank
    beyond = [r for r in blocked if r in placed and placed[r].op not in (None, *_PAIRED)]
    if waiter is not None and waiter not in beyond and beyond:
        frame, op = user_frame(placed[waiter].stack), placed[beyond[0]].op
        why = f"rank {waiter} is blocked{at(frame)} while its dump has no pending collective, so in a send or recv; {who(beyond)} {agree(beyond, 'is', 'are')} in {op}, and a matching send or recv of one of them is missing"
    return answer(
        "p2p_mismatch",
        named,
        why,
        _PRINT,
        "Where two ranks exchange data, post the send and the recv in one batch_isend_irecv.",
        frame=case.frame_of(finding.own.kind if named else finding.stuck.kind),
        frame_rank=named[0] if named else finding.stuck.rank,
        evidence=map(case.seen_at, sorted(placed)[:8]),
        rivals=[_SLOW],
        suspects=beyond,
    )


def _instead(case: Case, rank: int) -> list[Evidence]:
    """Return what a rank's own program called for where it issued something else, if that was found."""
    finding = case.finding
    if not finding.change.skipped:
        return []
    wanted = " and ".join(_peered(case, rank, kind) for kind in finding.change.skipped[:2])
    issued = _peered(case, rank, finding.own.kind)
    return [case.recorded(rank, f"where its own schedule has {wanted}, rank {rank} issued {issued}")]


def _peered(case: Case, rank: int, kind: CallKind | None) -> str:
    """Return a collective of a rank for a sentence, a send or receive with its global ranks: `send 2 -> 18`."""
    if kind is None or kind.src is None or kind.dst is None:
        return describe(kind)
    for gid, queue in case.incident.ranks[rank].p2p.items():
        ranks, issued = case.incident.groups[gid].ranks, set(queue.kind.tolist())
        if max(kind.src, kind.dst) < len(ranks) and kind in {case.incident.kinds[k] for k in issued}:
            return f"{kind.op} {ranks[kind.src]} -> {ranks[kind.dst]}"
    return f"{kind.op} {kind.src} -> {kind.dst} (group-local)"


def both_send(case: Case) -> Match | None:
    """Two ranks whose last P2P ops are sends to each other, each beyond the receives that the other one posted, by NCCL's lines."""
    records = case.incident.ranks
    timeouts = case.statements.all(WatchdogTimeout)
    ops, all_of_them = {e.op for e in timeouts}, {e.rank for e in timeouts} >= {*records}
    everybody = stated_size(case.incident, case.statements) == len(records)
    if len(records) > 1 and all_of_them and (ops == {"send"} or (ops == {"recv"} and everybody)):
        way, back = ("send", "recv") if ops == {"send"} else ("recv", "send")
        all_in = "are both" if len(records) == 2 else "are all"
        why = f"{who(records)} {all_in} in a {way}, and each would issue the matching {back} only after its own: each waits for the other"
        fix = "Let one side of each pair receive first, or issue both directions together with batch_isend_irecv: operations between two ranks run in the order in which each issued them; small sends fit in a buffer and seem to work."
        return answer("p2p_mismatch", (), why, fix, strength=1, evidence=timeouts[:4], suspects=records)
    for gid in sorted({gid for record in records.values() for gid in record.p2p}):
        posted, last = Counter[tuple[str, int, int]](), dict[int, tuple[str, int]]()
        for rank in sorted(r for r in records if gid in records[r].p2p):
            for kind in (case.incident.kinds[index] for index in records[rank].p2p[gid].kind.tolist()):
                own, peer = (kind.src, kind.dst) if kind.op == "send" else (kind.dst, kind.src)
                here = rank if own is None or own < 0 else own  # not all lines tell a communicator's members
                posted[kind.op, here, peer or 0] += 1
                last[here] = (kind.op, peer or 0)
        for one, (op, other) in sorted(last.items()):
            facing = op == "send" and last.get(other) == ("send", one) and one < other
            ways = ((one, other), (other, one))
            if facing and all(posted["send", a, b] > posted["recv", b, a] for a, b in ways):
                return _facing(case, one, other, posted["send", one, other], posted["recv", other, one])
    return None


def _facing(case: Case, one: int, other: int, sent: int, taken: int) -> Match:
    why = f"rank {one} posted {sent} sends to rank {other}, which posted {taken} receives and then a send back: from number {taken + 1} on both are sending and neither has a recv posted"
    fix = f"Check the order of sends and receives of ranks {one} and {other} at number {taken + 1}, and issue both directions in one batch_isend_irecv."
    facts = [case.recorded(rank, f"rank {rank}: its last operation is a send") for rank in (one, other)]
    return answer("p2p_mismatch", (), why, fix, strength=0, evidence=facts, suspects=(one, other))
