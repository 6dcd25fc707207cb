"""Rules about calls that meet at one seq and do not fit: sizes, types, ops, roots."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hangscope.align.frontier import GroupFrontier
from hangscope.causes.case import Case, Match, answer, at, of_outlier, quote, who
from hangscope.causes.difference import MET, Difference
from hangscope.explain.finding import Different, Nothing, Stalled, Unseen
from hangscope.explain.statements.gloo_sizes import AbortedPair, aborted_pairs, has_fewer_rows
from hangscope.explain.statements.outlier_lines import OutlierLine
from hangscope.explain.text.excerpt import not_collected
from hangscope.ingest.job_logs.printed import Printed
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.wrapper import CallFingerprint, GlooSizeMismatch, GlooTimeout
from hangscope.knowledge.callsite import of_equal_sizes, user_frames
from hangscope.model.conclusion import Evidence
from hangscope.model.incident import CallKind
from hangscope.model.rankset import agree, ranks_phrase

_FROM = ("broadcast", "scatter", "broadcast_object_list", "scatter_object_list")
ROOTED = (*_FROM, "gather", "reduce", "gather_object")
_FEW_BYTES = 64  # of a flag, a loss or some counts


def describe(kind: CallKind | None) -> str:
    """Return a call for a sentence: `all_reduce([64, 32] Float)`."""
    if kind is None or not (kind.op or kind.stack):
        return "an unrecorded collective"
    sizes = ", ".join(str(list(s)) for s in (kind.input_sizes or kind.output_sizes)[:3])
    dtype = (kind.input_dtypes or kind.output_dtypes or ("",))[0]
    inside = " ".join(p for p in (sizes, dtype) if p)
    root = f" of root {kind.root}" if kind.root is not None else ""
    return (kind.op or "a collective") + (f"({inside})" if inside else "") + root


def _meeting(case: Case, d: Difference) -> str:
    """Return who called what where the others called something else; without whom where nobody is named."""
    own, peer = describe(d.own), describe(d.peer) if d.peer.op else "another collective"
    if own == peer:
        there = at(case.frame_of(d.peer))
        own, peer = (
            f"{own}{at(case.frame_of(d.own))}",
            f"it at another line{there}" if there else "a different one",
        )
    culprits, view, seq = case.finding.culprits, case.finding.stuck.view, case.finding.stuck.seq
    whose = who(culprits, "some ranks")
    seen = view.seen if view is not None and seq is not None else ()
    alike = [r for r in seen if r not in culprits and view and seq and view.kind_of(r, seq) == d.peer]
    peers = who(alike, "the others") if len(alike) < len(seen) - len(culprits) else "the others"
    if not (d.own.op or d.own.stack):
        return f"{whose} issued a collective that does not match {f'{peer} of {peers}' if d.peer.op else 'that of ' + peers}"
    if d.own.op == d.peer.op and d.differs in _FIXES:
        given = [_argument(kind, d.differs) for kind in (d.own, d.peer)]
        return f"{whose} called {d.own.op} with {d.differs} {given[0]}, {peers} with {given[1]}"
    return f"{whose} called {own} while {peers} called {peer}"


def _argument(kind: CallKind, name: str) -> str:
    """Return the sizes, or the element type, that a collective was called with."""
    if name == "dtype":
        return (kind.input_dtypes or kind.output_dtypes or ("other",))[0]
    sizes = [str(list(s)) for s in (kind.input_sizes or kind.output_sizes)[:3]]
    return ", ".join(sizes) or "no tensor"


_FIXES = {
    "dtype": "Make {} use the same dtype as the others at that line: autocast, .to(dtype), or the dtype of the data.",
    "shape": "Pad or drop what made {} use other sizes (a small last batch, a variable length), or exchange the sizes first.",
}


def other_arguments(case: Case) -> Match | None:
    """The same call from the same place with other sizes or another element type."""
    d, finding = Difference(case), case.finding
    if not isinstance(finding, Different) or d.differs not in _FIXES or finding.change.elsewhere:
        return None
    if d.another_call or (d.times_before(d.own) and d.times_before(d.peer)):
        return None  # two calls that merely share their name
    if d.same_site is None and d.steps.skips:
        return None  # who left a step out is in another call than the rest
    # A source and its receivers are two sides by their roles: that one of them has more ranks accuses nobody.
    roles = d.met_before and case.frame_of(d.own) != case.frame_of(d.peer)
    culprits = () if roles else finding.culprits
    return answer(
        f"{d.differs}_mismatch",
        culprits,
        _meeting(case, d),
        _FIXES[d.differs].format(who(culprits)),
        strength=1 if roles or (d.same_site is None and d.differs == "shape") else 2,
        evidence=aspects(case),
    )


def received_sizes(case: Case) -> Match | None:
    """Gloo received more bytes than it expected, from a job without any other record of the calls."""
    events = case.statements.all(GlooSizeMismatch)
    guessed = case.from_text and case.finding.guess
    if not events or not (isinstance(case.finding, Nothing | Unseen) or guessed):
        return None
    pairs = aborted_pairs(case.incident, case.statements)
    alone, other = _told_by_lines(case, pairs), _in_another_call(case, pairs)
    odd = sorted({odd.ranks[0] for odd in alone}) or other
    printed = case.statements.all(Printed)
    culprits = odd or sorted({pair.receiver for pair in _against_all(case, pairs)})
    fewer = [] if culprits else sorted({pair.receiver for pair in pairs if has_fewer_rows(pair, printed)})
    culprits = culprits or fewer
    # Every message differs from its buffer by the factor between two element types.
    types = not odd and all(e.expected and e.received / e.expected in (2, 4, 8) for e in events)
    first = events[0]
    met = f"gloo received {first.received} bytes for a buffer of {first.expected}"
    cause, why = "shape_mismatch", _met(pairs[0]).text if pairs else met
    rival = (
        "rank_conditional_collective",
        "a different collective on one rank gives a message of another size as well",
    )
    if fewer:
        why = f"{who(fewer)} passed fewer rows than the others, by the sizes that the ranks printed; {met}"
    if types:
        rival = ("dtype_mismatch", "another element type would give these sizes as well")
    elif alone:
        cause = "rank_conditional_collective"
        why = f"{who(odd)} was in a different collective than a peer; it alone printed a line just before, and {met}"
        rival = ("gradient_sync_mismatch", "a skipped backward pass leaves the same sizes")
    elif odd:
        cause = "collective_mismatch"
        why = f"{who(odd)} {agree(odd, 'was', 'were')} in a different collective than the others; {met}"
        rival = ("rank_conditional_collective", "no line shows which collective it was")
    return answer(
        cause,
        culprits,
        why,
        "The process that gloo aborted is the receiver and may be a victim: rerun with TORCH_DISTRIBUTED_DEBUG=DETAIL, which prints the collective of each rank.",
        strength=0 if types or not culprits else 1,
        evidence=[*map(of_outlier, alone), *map(_met, pairs), *received(case)],
        rivals=[rival],
        suspects=sorted({rank for pair in pairs for rank in pair.ranks}) if not culprits else (),
    )


def _met(pair: AbortedPair) -> Evidence:
    """Return who met whom in an aborted receive, as their sizes tell."""
    own, theirs = (
        f" ({describe(kinds[0])})" if len(set(map(describe, kinds))) == 1 else ""
        for kinds in (pair.wanted, pair.sent)
    )
    text = f"rank {pair.receiver} expected {pair.event.expected} bytes{own} and received {pair.event.received}{theirs} from {who(pair.senders)}"
    return quote(pair.event, text)


def _told_by_lines(case: Case, pairs: Sequence[AbortedPair]) -> list[OutlierLine]:
    """Return the telling lines that one rank alone printed, where it is the only such rank and one of those that met."""
    lines = [o for o in case.statements.outlier_lines if o.telling and o.how == "only" and len(o.ranks) == 1]
    met = {rank for pair in pairs for rank in pair.ranks}
    return lines if len({o.ranks for o in lines}) == 1 and met.issuperset(lines[0].ranks) else []


def _in_another_call(case: Case, pairs: Sequence[AbortedPair]) -> list[int]:
    """Return the aborted ranks whose own buffer is no part of the collective that several others, their senders among them, were in.

    Where that collective is known only by one place at which all of these others wait: a few bytes are no part of the tensor that
    one rank got instead, and what DDP and FSDP gather or reduce has one size on all ranks.
    """
    stood = case.statements.whereabouts
    if case.finding.stuck.kind is not None and case.finding.stuck.kind.input_sizes:
        return sorted({p.receiver for p in _against_all(case, pairs) if p.wanted or _of_few_bytes(p.event)})
    own = {pair.receiver: pair.event for pair in pairs}
    others = {r: w.stack for r, w in stood.items() if r not in own and w.inside and w.stack}
    senders = {rank for pair in pairs for rank in pair.senders}
    if len(own) != 1 or len(others) < 2 or not senders <= others.keys() or own.keys() & stood.keys():
        return []
    one_line = len(set(map(user_frames, others.values()))) == 1
    small = all(map(_of_few_bytes, own.values())) and len(others) == len(case.incident.ranks) - 1
    return list(own) if one_line and (small or all(map(of_equal_sizes, others.values()))) else []


def _against_all(case: Case, pairs: Sequence[AbortedPair]) -> list[AbortedPair]:
    """Return the pairs of which several other ranks, the senders among them, were seen in the call that was sent."""
    kind, culprits = case.finding.stuck.kind, case.finding.culprits
    inside = {r for r in case.incident.ranks if case.graph.open_calls.get(r)} | case.statements.inside
    met = [p for p in pairs if kind in p.sent and kind not in p.wanted and inside.issuperset(p.senders)]
    several = len(inside - {p.receiver for p in met}) > 1
    return [p for p in met if p.receiver in culprits] if several else []


def _of_few_bytes(event: GlooSizeMismatch) -> bool:
    """Return whether a buffer of a few numbers met what is no part of such a call."""
    return event.expected <= _FEW_BYTES and event.received > 8 * event.expected


def received(case: Case) -> list[Evidence]:
    """Return what gloo says of messages that did not fit."""
    return [
        quote(
            e,
            f"gloo received {e.received} bytes for a buffer of {e.expected}; the aborted process is the receiver and may be a victim",
        )
        for e in case.statements.all(GlooSizeMismatch)[:2]
    ]


def different_calls(case: Case) -> Match | None:
    """Different calls at one seq that no finer rule explains."""
    finding = case.finding
    if not isinstance(finding, Different):
        return None
    d = Difference(case)
    crossed = finding.change.elsewhere and d.known
    return answer(
        "collective_order_mismatch" if crossed else "collective_mismatch",
        finding.culprits,
        f"{_meeting(case, d)}{' on another group' if crossed else ''}",
        "Compare the two lines: all ranks of a group must issue the same collectives in the same order; if one of them is in an exception handler, let the process die instead.",
        strength=int(not crossed),
        evidence=aspects(case),
    )


def aspects(case: Case) -> list[CallFingerprint]:
    """Return what DETAIL itself printed about the difference, for dumps and text alike."""
    ranks = {*case.finding.culprits, *case.finding.waiting[:1]}
    return [e for r in sorted(ranks) for e in case.statements.of(r, CallFingerprint)[:1]]


def refused(case: Case) -> Match | None:
    """All members came to a call that DETAIL let nobody make: calls that do not fit, of which no record tells what they were."""
    kind = case.finding.stuck.kind
    if not isinstance(case.finding, Stalled) or kind is None or kind.op:
        return None
    return answer(
        "collective_mismatch",
        (),
        "the consistency check of TORCH_DISTRIBUTED_DEBUG=DETAIL stopped the next collective on every rank seen: the ranks called different things",
        "Read the error of the check: it prints what each rank called, in the log of that rank.",
        frame=case.frame_of(kind),
    )


def unequal_splits(case: Case) -> Match | None:
    """Members of an all_to_all give in all more, or less, than they take: the splits of some of them do not fit."""
    finding, view, seq = case.finding, case.finding.stuck.view, case.finding.stuck.seq
    op = finding.stuck.kind.op if finding.stuck.kind is not None else ""
    if not isinstance(finding, Stalled) or view is None or seq is None or not op.startswith("all_to_all"):
        return None
    odd, *before = (_given_and_taken(view, at) for at in range(seq, max(0, seq - MET), -1))
    unequal = {r: n for r, n in odd.items() if n[0] != n[1]}
    # A recorder that keeps other sizes than those that are sent shows so in calls that went well.
    if _fits(odd) or not all(map(_fits, before)):
        return None
    alone = tuple(unequal) if len(unequal) == 1 < len(odd) - 1 else ()
    gave, took = (sum(numbers) for numbers in zip(*odd.values(), strict=True))
    return answer(
        "shape_mismatch",
        alone,
        f"the members of the group send {gave:,} elements in {op} but expect {took:,}: the splits of {who(alone, 'some of them')} do not match",
        "Exchange the split sizes before the call on every rank (an all_to_all of the counts), and compare input_split_sizes of each member with the output_split_sizes of its peers.",
        strength=2 if any(before) else 1,
        evidence=[
            case.recorded(rank, f"rank {rank} sends {n[0]:,} elements and expects {n[1]:,}")
            for rank, n in [*unequal.items()][:4]
        ],
        frame=case.frame_of(finding.stuck.kind),
    )


def _given_and_taken(view: GroupFrontier, seq: int) -> dict[int, tuple[int, int]]:
    """Return how many elements each member (global) gives to an all_to_all and takes, none where one's are not known."""
    kinds = {rank: view.kind_of(rank, seq) for rank in view.members}
    numbers = {
        rank: (sum(map(prod, kind.input_sizes)), sum(map(prod, kind.output_sizes)))
        for rank, kind in kinds.items()
        if kind is not None and kind.op.startswith("all_to_all") and kind.output_sizes
    }
    return numbers if len(numbers) == len(view.group.ranks) else {}


def _fits(numbers: dict[int, tuple[int, int]]) -> bool:
    """Return whether as many elements are taken as are given."""
    return sum(gave - took for gave, took in numbers.values()) == 0


def other_roots(case: Case) -> Match | None:
    """All members are in the same call with a root and none finishes it: they may disagree about who that is.

    No recorder keeps the root, so that two ranks which both send, or which wait for different ranks, look alike in it.
    """
    finding = case.finding
    if not_collected(case.incident, case.statements):
        return None  # what the others are in is not known
    if any(event.tier <= 2 for event in case.statements.all(NcclWarn)):
        return None  # the transport itself reports a fault
    if any(where.op in ("send", "recv") for where in case.statements.whereabouts.values()):
        return None  # not all are in that call
    stalled = isinstance(finding, Stalled) and finding.stuck.pair is None
    kind = finding.stuck.kind if stalled else _all_at_one_line(case)
    if kind is None or kind.op not in ROOTED or kind.root is not None:
        return None
    frame, root = case.frame_of(kind), "src" if kind.op in _FROM else "dst"
    unknown = "recorders do not keep the root of a collective, so it is not known whether all ranks pass the same one"
    values = [o for o in case.statements.outlier_lines if o.how == "value" and o.telling]
    odd = values if len({o.ranks for o in values}) == 1 else []
    claim = f"{_everybody(case)} in the same {kind.op}{at(frame)}, which does not complete: they may disagree about `{root}`"
    if odd:
        claim = f"{who(odd[0].ranks)} probably passed another `{root}` to {kind.op}{at(frame)}: it printed another value than the others"
    return answer(
        "collective_mismatch",
        odd[0].ranks if odd else (),
        claim,
        f"Print `{root}` on every rank before that line: it must be the same global rank everywhere, and must not depend on values of the rank itself.",
        f"In a subgroup `{root}` is a global rank, and `group_{root}` the rank within the group.",
        strength=int({k.backend for k in case.incident.kinds} <= {"gloo", ""}),
        evidence=[
            *map(of_outlier, odd[:1]),
            *case.statements.all(GlooTimeout)[:4],
            Evidence("method", unknown),
        ],
        frame=frame,
        frame_rank=finding.stuck.rank,
        rivals=[("network_stall", "a stalled transport leaves the same record")],
        stack=kind.stack,
    )


def _everybody(case: Case) -> str:
    """Return the ranks that are known to be in the collective, with their verb: all of them only where the job's size is stated."""
    ranks = sorted(case.incident.ranks)
    return (
        f"all {len(ranks)} ranks are"
        if case.whole_group
        else f"{ranks_phrase(ranks)} {agree(ranks, 'is', 'are')}"
    )


def _all_at_one_line(case: Case) -> CallKind | None:
    """Return the call that all ranks timed out in at one line of the user's, of a job of which only text is left."""
    places = case.statements.whereabouts
    stood = [where for where in places.values() if where.inside and where.kind == "log"]
    everybody = len(stood) > 1 and len(stood) == len(places) and set(places) == set(case.incident.ranks)
    one_line = len({(where.op, user_frames(where.stack)) for where in stood}) == 1
    told = isinstance(case.finding, Nothing) and case.statements.witnesses
    return stood[0].call if told and everybody and one_line else None
