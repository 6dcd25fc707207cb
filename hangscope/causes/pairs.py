"""Rules about sends and receives that do not pair, and words for those that do and do not complete."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from hangscope.align.matching import numel
from hangscope.align.p2p import Half, Pair
from hangscope.causes.case import Case, Match, answer, at, of_outlier, who
from hangscope.causes.mismatch import describe
from hangscope.explain.finding import Miscounted, StuckCall
from hangscope.explain.text.group_size import stated_size
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.knowledge.callsite import user_frame
from hangscope.model.conclusion import Evidence
from hangscope.model.incident import Absence, CallKind, Group
from hangscope.model.rankset import agree, ranks_phrase

_LISTED = 8  # pairs
_SLOW = ("stuck_rank", "a rank that was slow before its send or recv looks the same once all timed out")
_PRINT = "Print peer, tag and number of each send and receive per rank, and look for the pair that differs."
_BATCH = "Where two ranks exchange data, post the send and the recv in one batch_isend_irecv."
_OTHER_NUMBER = ("p2p_mismatch", "its peers may have issued another number of sends and receives")
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
    evidence, kind, whose = list[Evidence](), finding.stuck.kind, waiter
    if finding.change.skipped:  # what its own program called for where it issued something else
        wanted = " and ".join(_peered(case, culprit, kind) for kind in finding.change.skipped[:2])
        issued = _peered(case, culprit, finding.own.kind)
        fact = f"where its own schedule has {wanted}, rank {culprit} issued {issued}"
        evidence.append(case.recorded(culprit, fact))
        kind, whose = (finding.own.kind, culprit) if culprit != waiter else (kind, whose)
    if more:
        number = f"{abs(more)} {'more' if more > 0 else 'fewer'} {'sends or receives' if abs(more) > 1 else 'send or receive'}"
        apart = f"issued {number} than {agree(named, 'its', 'their')} counterparts in the other groups of this kind"
        evidence += [case.recorded(rank, f"rank {rank} {apart}") for rank in named[:2]]
        why = f"{who(named)} {apart}: {why}"
    other = "another" if case.graph.open_calls.get(absent) else "no"
    unmatched = f"rank {absent} issued no {missing} for it, and has {other} P2P op or collective pending"
    evidence += [case.recorded(absent, unmatched)] if recorded else []
    at_fault = named if culprit in named or finding.tie else (culprit,)
    # A rank that has nothing pending may be busy before its own, and clocks of two hosts do not show what it went past.
    strength = 0 if finding.tie or not recorded else 1 if finding.assumed or more else 2
    match = answer("p2p_mismatch", at_fault, why, strength=strength, evidence=evidence)
    suspects = () if recorded else (absent, waiter)
    return replace(match, frame=case.frame_of(kind), frame_rank=whose, suspects=suspects)


def miscounted(case: Case) -> Match | None:
    """A rank issued another number of sends and receives before a collective than each time before: its recorder counts them and keeps none."""
    finding = case.finding
    assert isinstance(finding, Miscounted)
    named, more = finding.culprits, finding.count - finding.usual
    calls = "sends or receives" if abs(more) > 1 else "send or receive"
    call = f"{describe(finding.own.kind)} seq {finding.own.seq}"
    number = f"{abs(more)} {'more' if more > 0 else 'fewer'} {calls}"
    why = f"{who(named)} issued {number} before {call} than each time before ({finding.count} operations, not {finding.usual})"
    frame, paired = case.frame_of(finding.own.kind), _in_pairs(case) & case.stacks.keys() - {*named}
    fact = f"{why}; gloo's recorder counts sends and receives in op_id and keeps none"
    facts = [case.recorded(named[0], fact), *map(case.seen_at, sorted(paired)[:2])]
    strength, rivals = (2, ()) if paired else (1, (_OTHER_NUMBER,))
    return answer(
        "p2p_mismatch", named, why, _PRINT, strength=strength, frame=frame, evidence=facts, rivals=rivals
    )


def unanswered(case: Case) -> Match | None:
    """A rank waits in a send or receive that its recorder does not keep, as gloo's, and no other rank is in one."""
    finding, placed = case.finding, case.statements.whereabouts
    named, peers = finding.culprits, sorted(placed.keys() - set(finding.culprits))
    inside, known = _in_pairs(case), placed.keys() | case.graph.waiting
    if not named or inside != set(named) or not known >= case.incident.ranks.keys():
        return None
    frame = user_frame(placed[named[0]].stack)
    lines = [o for o in case.statements.outlier_lines if o.ranks == named and o.telling]
    why = f"{who(named)} {agree(named, 'is', 'are')} in a send or receive{at(frame)}, and no other rank is in one that could match it"
    facts = [*map(case.seen_at, named[:2]), *map(of_outlier, lines), *map(case.seen_at, peers[:2])]
    strength, rivals = (2, ()) if lines else (0, (_OTHER_NUMBER,))
    return answer(
        "p2p_mismatch", named, why, _PRINT, strength=strength, frame=frame, evidence=facts, rivals=rivals
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
    match = answer("p2p_mismatch", at_fault, why, fix, strength=int(bool(odd)), evidence=facts)
    return replace(match, frame=frame, frame_rank=min(named))


def _in_pairs(case: Case) -> set[int]:
    """Return the ranks whose stack or traceback shows them in a send or receive."""
    return {rank for rank, w in case.statements.whereabouts.items() if w.inside and w.op in _PAIRED}


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
    facts, kind = map(case.seen_at, sorted(placed)[:8]), finding.own.kind if named else finding.stuck.kind
    match = answer(
        "p2p_mismatch", named, why, _PRINT, _BATCH, evidence=facts, rivals=[_SLOW], suspects=beyond
    )
    return replace(match, frame=case.frame_of(kind), frame_rank=named[0] if named else finding.stuck.rank)


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
    whole = stated_size(case.incident, case.statements) == len(records)
    if len(records) > 1 and all_of_them and (ops == {"send"} or (ops == {"recv"} and whole)):
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
                sent, taken = posted["send", one, other], posted["recv", other, one]
                why = f"rank {one} posted {sent} sends to rank {other}, which posted {taken} receives and then a send back: from number {taken + 1} on both are sending and neither has a recv posted"
                fix = f"Check the order of sends and receives of ranks {one} and {other} at number {taken + 1}, and issue both directions in one batch_isend_irecv."
                facts = [case.recorded(r, f"rank {r}: its last operation is a send") for r in (one, other)]
                suspects = (one, other)
                return answer("p2p_mismatch", (), why, fix, strength=0, evidence=facts, suspects=suspects)
    return None


def met(case: Case) -> list[Pair]:
    """Return the pairs that do not complete although both sides, which wait for nothing before, have posted them, the verdict's own first."""
    stuck = case.finding.stuck.pair
    first = {rank: calls[0].node for rank, calls in case.graph.open_calls.items()}
    stalled = (pair for pair in case.graph.pairs.values() if pair.stalls)
    found = [p for p in stalled if first[p.key.source] == first[p.key.destination] == p.key]
    return sorted(found, key=lambda pair: (pair is not stuck, not all(h.created for h in _halves(pair))))


def paired(pairs: Sequence[Pair]) -> str:
    """Return which sends do not complete."""
    if len(pairs) == 1:
        key = pairs[0].key
        return f"the send from rank {key.source} to rank {key.destination}, posted on both sides, does not complete"
    ends = (ranks_phrase({getattr(pair.key, end) for pair in pairs}) for end in ("source", "destination"))
    return f"sends from {' to '.join(ends)}, posted on both sides, do not complete"


def posted(case: Case) -> list[Evidence]:
    """Return of the first pairs that both sides are there, with the places that posted them."""
    found = []
    for pair in met(case)[:_LISTED]:
        sides = []
        for half in _halves(pair):
            kind = case.incident.kinds[half.kind]
            sides.append(f"rank {half.rank} posted {kind.op} seq {half.seq}{at(case.frame_of(kind))}")
        text = f"{' and '.join(sides)}: one pair, and neither completes"
        found.append(case.recorded(pair.key.source, text))
    return found


def far_side(case: Case) -> StuckCall:
    """Return the call that blocks; of a pair, the side of the other rank than the one that is quoted as blocked."""
    stuck = case.finding.stuck
    sides = _halves(stuck.pair) if stuck.pair is not None else []
    others = [half for half in sides if half.rank != stuck.rank]
    kinds = case.incident.kinds
    return next((StuckCall(stuck.view, h.seq, h.rank, kinds[h.kind]) for h in others), stuck)


def _halves(pair: Pair) -> list[Half]:
    return [half for half in (pair.send, pair.recv) if half is not None]
