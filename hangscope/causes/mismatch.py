"""Rules about collectives that meet at one seq and do not fit: sizes, types, ops, roots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from hangscope.align.frontier import GroupFrontier
from hangscope.causes.case import Case, Match, answer, at, of_outlier, quote, who
from hangscope.causes.difference import Difference
from hangscope.explain.finding import Nothing, Unseen
from hangscope.explain.statements.gloo_sizes import AbortedPair, aborted_pairs, has_fewer_rows
from hangscope.explain.statements.outlier_lines import OutlierLine
from hangscope.ingest.job_logs.last_lines import Printed
from hangscope.ingest.torch_logs.wrapper import CallFingerprint, GlooSizeMismatch
from hangscope.knowledge.callsite import in_backward, of_equal_sizes, user_frames
from hangscope.model.conclusion import Evidence
from hangscope.model.incident import CallKind
from hangscope.model.rankset import agree, counted

_FEW_BYTES = 64  # of a flag, a loss or some counts
_EARLIER = 64  # all_to_all of a group whose sizes are compared
_PEERS = 2  # members that do as expected, at least

_OTHER_SIZE = (
    "rank_conditional_collective",
    "a different collective on one rank gives a message of another size as well",
)
_OTHER_ROWS = ("shape_mismatch", "the same collective with very different sizes looks the same")
_UNKNOWN_CALL = ("rank_conditional_collective", "no line shows which collective it was")
OWN_GROUP = "Give the second thread a process group of its own (new_group), or wait for it before the next collective: on one group, the order of two threads' collectives differs from rank to rank."
_DETAIL = "The process that gloo aborted is the receiver and may be a victim: rerun with TORCH_DISTRIBUTED_DEBUG=DETAIL, which prints the collective of each rank."
_SKIPPED_BACKWARD = ("gradient_sync_mismatch", "a skipped backward pass leaves the same sizes")


def describe(kind: CallKind | None) -> str:
    """Return a collective for a sentence: `all_reduce([64, 32] Float)`."""
    if kind is None or not (kind.op or kind.stack):
        return "an unrecorded collective"
    sizes = ", ".join(str(list(s)) for s in (kind.input_sizes or kind.output_sizes)[:3])
    dtype = (kind.input_dtypes or kind.output_dtypes or ("",))[0]
    inside = " ".join(p for p in (sizes, dtype) if p)
    root = f" of root {kind.root}" if kind.root is not None else ""
    return (kind.op or "a collective") + (f"({inside})" if inside else "") + root


def meeting(d: Difference) -> str:
    """Return what the culprits called while the others called something else, as a predicate."""
    own, peer = describe(d.own), describe(d.peer) if d.peer.op else "another collective"
    here, there = (at(d.case.frame_of(kind)) for kind in (d.own, d.peer))
    if not (d.own.op or d.own.stack):
        return f"issued a collective that does not match {peer if d.peer.op else 'that'} of the others"
    if not d.own.op and in_backward(d.own.stack):
        return f"is in backward{here} while {d.others} called {peer}"
    if not d.peer.op and in_backward(d.peer.stack):
        return f"called {own}{here} while {d.others} are in backward{there}"
    if d.own.op != d.peer.op:
        during = " in backward" if d.past_backward else ""
        return f"called {own}{here} while {d.others} called {peer}{during}"
    if d.differs in ("shape", "dtype") and not d.another_call:
        mine, theirs = (_argument(kind, d.differs) for kind in (d.own, d.peer))
        return f"called {d.own.op} with {d.differs} {mine}, the others with {theirs}"
    if d.differs == "root" and not d.another_call:
        return f"called {d.own.op} of root {d.own.root}, the others of root {d.peer.root}"
    places = [f"at {place.strip(' ()')}" if place else "" for place in (here, there)]
    called = f"called {d.own.op or 'a collective'} {places[0]}".rstrip()
    if not any(places) and own != peer:
        return f"called {own}, the others {peer}"
    return f"{called}, the others {places[1] or 'a different one'}"


def _argument(kind: CallKind, name: str) -> str:
    """Return the sizes, or the element type, that a collective was called with."""
    if name == "dtype":
        return (kind.input_dtypes or kind.output_dtypes or ("other",))[0]
    sizes = [str(list(s)) for s in (kind.input_sizes or kind.output_sizes)[:3]]
    return ", ".join(sizes) or "no tensor"


def other_arguments(case: Case) -> Match | None:
    """The same collective from the same place with other sizes or another element type."""
    d, finding = Difference(case), case.finding
    if d.differs not in ("shape", "dtype") or finding.change.elsewhere:
        return None
    if d.another_call or (d.times_before(d.own) and d.times_before(d.peer)):
        return None  # two collectives that merely share their name
    why = f"{who(finding.culprits)} {meeting(d)}"
    strength = 1 if d.same_site is None and d.differs == "shape" else 2
    cause, evidence = f"{d.differs}_mismatch", checked(case)
    return answer(cause, finding.culprits, why, strength=strength, evidence=evidence)


def swapped_calls(case: Case) -> Match | None:
    """Two collectives of one group that some ranks issued in the opposite order."""
    finding, change = case.finding, case.finding.change
    other_group = change.elsewhere or finding.own.gid is not None
    if not change.swapped or other_group or len(change.skipped) not in (1, 2):
        return None
    first, second = describe(finding.own.kind), describe(change.skipped[0])
    threads = {kind.of_a_thread for kind in (finding.own.kind, change.skipped[0]) if kind is not None}
    why = f"{who(finding.culprits)} called {first} before {second}, the others in the opposite order"
    fix = "Issue the two in one order on every rank, whatever the data."
    if len(threads) > 1:
        why += "; each is issued by a thread of its own, and nothing orders the two"
        fix = OWN_GROUP
    return answer("collective_mismatch", finding.culprits, why, fix, strength=2)


def other_number(case: Case) -> Match | None:
    """The check of DETAIL counts the collectives of each rank: one that is in the others' collective with a smaller number skipped some."""
    finding, d = case.finding, Difference(case)
    fewer, seq = -finding.change.shift, finding.own.seq
    if not case.from_text or fewer <= 0 or seq is None or d.own.op != d.peer.op or not d.own.op:
        return None
    why = f"{who(finding.culprits)} issued {counted(fewer, 'fewer collective')} before this {d.own.op} than the others: sequence number {seq - 1}, not {seq - 1 + fewer}"
    fix = "Call the collective of each step on every rank: look for a branch, a continue or a return before it that only some ranks take."
    return answer("rank_conditional_collective", finding.culprits, why, fix, evidence=checked(case))


def different_calls(case: Case) -> Match | None:
    """Different collectives at one seq that no finer rule explains."""
    d = Difference(case)
    why = f"{d.whose} {meeting(d)}"
    return answer("collective_mismatch", case.finding.culprits, why, evidence=checked(case))


def checked(case: Case) -> list[CallFingerprint]:
    """Return what the check of TORCH_DISTRIBUTED_DEBUG=DETAIL printed about the difference."""
    ranks = {*case.finding.culprits, *case.finding.waiting[:1]}
    return [e for r in sorted(ranks) for e in case.statements.of(r, CallFingerprint)[:1]]


def refused(case: Case) -> Match | None:
    """All members came to a collective that the check of DETAIL stopped: they do not match, and no record shows what they were."""
    kind = case.finding.stuck.kind
    if kind is None or kind.op:
        return None
    why = "the consistency check of TORCH_DISTRIBUTED_DEBUG=DETAIL stopped the next collective on every rank seen: the ranks called different things"
    look = "Read the error of the check: it prints what each rank called, in the log of that rank."
    return answer("collective_mismatch", (), why, look, frame=case.frame_of(kind))


def received_sizes(case: Case) -> Match | None:
    """Gloo received more bytes than it expected, in a job without any other record of its collectives."""
    events = case.statements.all(GlooSizeMismatch)
    guessed = case.from_text and case.finding.guess
    if not events or not (isinstance(case.finding, Nothing | Unseen) or guessed):
        return None
    pairs, printed = aborted_pairs(case.incident, case.statements), case.statements.all(Printed)
    lines = _own_lines(case, pairs)
    outliers = sorted({line.ranks[0] for line in lines}) or _in_another_call(case, pairs)
    culprits = outliers or sorted({pair.receiver for pair in _against_all(case, pairs)})
    fewer = [] if culprits else sorted({p.receiver for p in pairs if has_fewer_rows(p, printed)})
    sender = [] if culprits or fewer else _only_sender(case, pairs)
    met = f"gloo received {events[0].received} bytes for a buffer of {events[0].expected}"
    cause, why, rivals = "shape_mismatch", _met(pairs[0]).text if pairs else met, [_OTHER_SIZE]
    # Every message differs from its buffer by the factor between two element types.
    if types := not outliers and all(e.received / max(e.expected, 1) in (2, 4, 8) for e in events):
        rivals = [("dtype_mismatch", "another element type would give these sizes as well")]
    # One size is that of a flag, a loss or some counts, the other that of a tensor: no two batches differ so much.
    sizes = [sorted((e.expected, e.received)) for e in events]
    two_calls = all(few <= _FEW_BYTES and many > 8 * _FEW_BYTES for few, many in sizes)
    if lines:
        cause, rivals = "rank_conditional_collective", [_SKIPPED_BACKWARD]
        why = f"{who(outliers)} was in a different collective than a peer; it alone printed a line just before, and {met}"
    elif outliers:
        cause, rivals = "collective_mismatch", [_UNKNOWN_CALL]
        why = f"{who(outliers)} {agree(outliers, 'was', 'were')} in a different collective than the others; {met}"
    elif not (culprits or fewer or sender) and two_calls:
        cause, rivals = "collective_mismatch", [_OTHER_SIZE, _OTHER_ROWS]
        why = f"ranks were in two different collectives, by their sizes: {_met(pairs[0]).text if pairs else met}"
    elif fewer:
        why = f"{who(fewer)} passed fewer rows than the others, by the sizes that the ranks printed; {met}"
    elif sender:
        why = f"{who(sender)} sent {events[0].received} bytes where all others expected {events[0].expected}"
    named = culprits or fewer or sender
    strength, facts = (
        int(bool(named and not types)),
        [*map(of_outlier, lines), *map(_met, pairs), *received(case)],
    )
    match = answer(cause, named, why, _DETAIL, strength=strength, evidence=facts, rivals=rivals)
    return replace(match, suspects=() if named else tuple(sorted({r for pair in pairs for r in pair.ranks})))


def _met(pair: AbortedPair) -> Evidence:
    """Return what met in an aborted receive, as the sizes show, with the sender where only one rank can be it."""
    sides = ({*map(describe, kinds)} for kinds in (pair.wanted, pair.sent))
    own, theirs = (f" ({side.pop()})" if len(side) == 1 else "" for side in sides)
    sender = f" from {who(pair.senders)}" if len(pair.senders) == 1 else ""  # the line names none
    text = f"rank {pair.receiver} expected {pair.event.expected} bytes{own} and received {pair.event.received}{theirs}{sender}"
    return quote(pair.event, text)


def _own_lines(case: Case, pairs: Sequence[AbortedPair]) -> list[OutlierLine]:
    """Return the telling lines that one rank alone printed, where it is the only such rank and one of those that met."""
    lines = [o for o in case.statements.outlier_lines if o.telling and o.how == "only" and len(o.ranks) == 1]
    met = {rank for pair in pairs for rank in pair.ranks}
    return lines if len({o.ranks for o in lines}) == 1 and met.issuperset(lines[0].ranks) else []


def _only_sender(case: Case, pairs: Sequence[AbortedPair]) -> list[int]:
    """Return the one rank that gloo did not abort, where it aborted all others at the same two sizes."""
    sizes = {(pair.event.received, pair.event.expected) for pair in pairs}
    others = set(case.incident.ranks) - {pair.receiver for pair in pairs}
    return sorted(others) if len(sizes) == len(others) == 1 < len(case.incident.ranks) - 1 else []


def _in_another_call(case: Case, pairs: Sequence[AbortedPair]) -> list[int]:
    """Return the one aborted rank where all others, the senders among them, wait at one place, and its own buffer is no part of their collective.

    A few bytes are no part of the tensor that it got instead, and what DDP and FSDP gather or reduce has one size on all ranks.
    """
    placed = case.statements.whereabouts
    own = {pair.receiver: pair.event for pair in pairs}
    others = {r: w.stack for r, w in placed.items() if w.inside and w.stack}
    senders = {rank for pair in pairs for rank in pair.senders}
    if len(own) != 1 or len(others) < 2 or not senders <= others.keys() or own.keys() & placed.keys():
        return []
    event = next(iter(own.values()))
    few = event.expected <= _FEW_BYTES and event.received > 8 * event.expected
    small = few and len(others) == len(case.incident.ranks) - 1
    one_line = len(set(map(user_frames, others.values()))) == 1
    return list(own) if one_line and (small or all(map(of_equal_sizes, others.values()))) else []


def _against_all(case: Case, pairs: Sequence[AbortedPair]) -> list[AbortedPair]:
    """Return the pairs of which several other ranks, the senders among them, were seen in the collective that was sent.

    Where receives were aborted in two groups, neither side of either is what all others do.
    """
    kind, culprits = case.finding.stuck.kind, case.finding.culprits
    inside = {r for r in case.incident.ranks if case.graph.open_calls.get(r)} | case.statements.inside
    if any(set(p.ranks).isdisjoint(q.ranks) for p in pairs for q in pairs):
        return []
    met = [p for p in pairs if kind in p.sent and kind not in p.wanted and inside.issuperset(p.senders)]
    several = len(inside - {p.receiver for p in met}) > 1
    return [p for p in met if p.receiver in culprits] if several else []


def received(case: Case) -> list[Evidence]:
    """Return what gloo says of messages that did not fit."""
    text = (
        "gloo received {} bytes for a buffer of {}; the aborted process is the receiver and may be a victim"
    )
    return [quote(e, text.format(e.received, e.expected)) for e in case.statements.all(GlooSizeMismatch)[:2]]


def unequal_splits(case: Case) -> Match | None:
    """Members of an all_to_all give in all more, or less, than they take: the splits of some of them do not match."""
    finding, view, seq = case.finding, case.finding.stuck.view, case.finding.stuck.seq
    op = finding.stuck.kind.op if finding.stuck.kind is not None else ""
    if view is None or seq is None or not op.startswith("all_to_all"):
        return None
    known = (_numbers(view, at) for at in range(seq, max(0, seq - _EARLIER), -1))
    now, *before = (sizes if len(sizes) == len(view.group.ranks) else {} for sizes in known)
    gave, took = map(sum, zip(*now.values(), strict=True)) if now else (0, 0)
    # A recorder that keeps other sizes than those that are sent shows so in collectives that went well.
    if gave == took or any(sum(a - b for a, b in sizes.values()) for sizes in before):
        return None
    unequal = [(rank, *sizes) for rank, sizes in now.items() if sizes[0] != sizes[1]]
    alone = [unequal[0][0]] if len(unequal) == 1 < len(now) - 1 else _returns_less(view, seq)
    why = f"the members of the group send {gave:,} elements in {op} but expect {took:,}: {who(alone, 'some of them')} passed splits that do not match"
    fix = "Exchange the split sizes before the call on every rank (an all_to_all of the counts), and compare input_split_sizes of each member with the output_split_sizes of its peers."
    facts = [case.recorded(r, f"rank {r} sends {a:,} elements and expects {b:,}") for r, a, b in unequal[:4]]
    strength, frame = 2 if any(before) else 1, case.frame_of(finding.stuck.kind)
    return answer("shape_mismatch", alone, why, fix, strength=strength, evidence=facts, frame=frame)


def _returns_less(view: GroupFrontier, seq: int) -> list[int]:
    """Return the one member that gives something else than it took in the call before, where several others give exactly that.

    Experts send back what they were sent: a combine follows each dispatch.
    """
    before, now = _numbers(view, seq - 1), _numbers(view, seq)
    known = before.keys() & now.keys()
    other = sorted(rank for rank in known if before[rank][1] != now[rank][0])
    return other if len(other) == 1 and len(known) > _PEERS else []


def _numbers(view: GroupFrontier, seq: int) -> dict[int, tuple[int, int]]:
    """Return how many elements each member of which that is known gives to an all_to_all and takes."""
    kinds = {rank: view.kind_of(rank, seq) for rank in view.members}
    return {
        rank: (sum(map(prod, kind.input_sizes)), sum(map(prod, kind.output_sizes)))
        for rank, kind in kinds.items()
        if kind is not None and kind.op.startswith("all_to_all") and kind.output_sizes
    }
