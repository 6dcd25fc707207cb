"""Stories of collectives that do not fit: in their arguments, in their order, or a send without its recv."""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.align.p2p import Half, PairInstance
from hangscope.knowledge.callsite import user_frame
from hangscope.model.conclusion import CallRef
from hangscope.model.incident import on_group
from hangscope.model.rankset import ranks_phrase
from hangscope.report.pictures.call_diff.behaviour import Behaviour, Program
from hangscope.report.schema.page import Box, Boxes, Lines, OrderedCall, Orders, Part, Row, Story, Table
from hangscope.report.subject import Subject, site_of, sizes_of
from hangscope.report.words import sizes_words

_CALLS, _INSTEAD = 5, 3


def mismatch(subject: Subject, _: Sequence[Behaviour]) -> Story | None:
    """Return the two sides' arguments, or None where one of them is not known or they are alike."""
    verdict = subject.verdict
    if verdict.culprit_call is None or verdict.waiting_call is None:
        return None
    pairs = zip(_ARGUMENTS, _values(verdict.waiting_call), _values(verdict.culprit_call), strict=True)
    rows = [(name, one, other) for name, one, other in pairs if one or other]
    if all(one == other for _, one, other in rows):
        return None
    others, named = verdict.in_call or verdict.waiting_ranks, verdict.culprit_ranks
    left = ranks_phrase(others).capitalize() if others else "One side"
    right = ranks_phrase(named).capitalize() if named else "The other side"
    cells = []
    for name, one, other in rows:
        mark = "hit" if one and other and one != other else ""
        cells.append(Row((name, one or "not known", other or "not known"), mark))
    title = "The two collectives, argument by argument"
    return Story("arguments", title, "", (Table(title, ("Argument", left, right), tuple(cells), (1, 2)),))


_ARGUMENTS = ("collective", "seq", "sizes", "type", "line")


def _values(call: CallRef) -> tuple[str, ...]:
    seq = "" if call.seq is None else str(call.seq)
    types = ", ".join(dict.fromkeys(call.dtypes))
    return call.op, seq, sizes_words(call.sizes, most=4), types, str(user_frame(call.frames) or "")


def order(subject: Subject, classes: Sequence[Behaviour]) -> Story | None:
    """Return the last collectives of the side with the different order and of a side that it waits for, or None."""
    stuck = [b for b in classes if len(b.program) and b.role in ("culprit", "waiting")]
    stuck.sort(key=lambda b: b.role != "culprit")
    own = _open_keys(stuck[0].program) if stuck else []
    if not own:
        return None
    named, mine = stuck[0], set(stuck[0].program.tokens)
    others = [b for b in stuck[1:] if (keys := _open_keys(b.program)) and keys[0][0] != own[0][0]]
    if not others:
        return None
    peer = min(others, key=lambda b: (-len(mine & set(b.program.tokens)), -len(b.ranks), b.ranks[0]))
    titles = ranks_phrase(peer.ranks).capitalize(), ranks_phrase(named.ranks).capitalize()
    left = _last(subject, peer.program, named.program)
    right = _last(subject, named.program, peer.program)
    last = [(title, call) for title, calls in zip(titles, (left, right), strict=True) for call in calls[-2:]]
    said = Lines(tuple(f"{title}: {call.text}, {call.state}" for title, call in last))
    text = "The last collectives of two groups of ranks, the newest below; a line joins the same collective on both sides, and lines that cross show a different order."
    return Story("order", "The order of the collectives", text, (Orders(titles, left, right), said))


def _open_keys(program: Program) -> list[tuple[int, int]]:
    return [(call.gid, call.seq) for call in program.last(len(program)) if not call.is_done]


def _last(subject: Subject, program: Program, other: Program) -> tuple[OrderedCall, ...]:
    """Return the last calls of one side, and the one that it would issue next if it did as the other side does."""
    groups = set(program.gid.tolist())
    shared = groups & set(other.gid.tolist())
    calls, issued = [], set()
    for call in program.last(_CALLS):
        issued.add((call.gid, call.seq))
        group = subject.incident.groups[call.gid]
        # Both sides may be in groups of their own with the same purpose.
        key = call.gid if call.gid in shared else group.role or group.desc or group.name
        text = f"{call.kind.op} seq {call.seq} {on_group(group.label)}"
        calls.append(OrderedCall(f"{key} {call.seq}", text, call.site, call.state))
    for gid, seq in _open_keys(other):
        if (gid, seq) not in issued and gid in groups:
            text = f"seq {seq} {on_group(subject.label(gid))}"
            calls.append(OrderedCall(f"{gid} {seq}", text, "", "not issued yet"))
    return tuple(calls)


def pair(subject: Subject, classes: Sequence[Behaviour]) -> Story | None:
    """Return the send and the recv, and what the rank did instead that did not issue its own; None if no pair is known."""
    node = subject.node
    if not isinstance(node, PairInstance) or node not in subject.graph.pairs:
        return None
    node = next((n for n in (node, *subject.graph.pairs) if _missing(subject, n) in subject.culprits), node)
    found, source, destination = subject.graph.pairs[node], node.source, node.destination
    boxes = _half(subject, source, "send", found.send), _half(subject, destination, "recv", found.recv)
    parts: list[Part] = [Boxes(boxes)]
    missing = _missing(subject, node)
    behaviour = next((b for b in classes if missing in b.ranks), None)
    if behaviour is not None and len(behaviour.program):
        last = [(call, call.site or "a line that is not known") for call in behaviour.program.last(_INSTEAD)]
        issued = [f"{call.kind.op} {call.sizes} at {site}, {call.state}" for call, site in last]
        parts.append(Lines(("What the rank with the missing op issued last:",), "note"))
        parts.append(Lines(tuple(issued), "mono"))
    text = f"The pair number {node.index + 1}, from rank {source} to rank {destination}"
    return Story("pair", "The send and its recv", text, tuple(parts))


def _missing(subject: Subject, node: PairInstance) -> int | None:
    """Return the rank that did not issue its send or recv of a pair, None if both are there."""
    found = subject.graph.pairs[node]
    return node.destination if found.recv is None else node.source if found.send is None else None


def _half(subject: Subject, rank: int, verb: str, half: Half | None) -> Box:
    title = f"rank {rank} {verb}"
    if half is None:
        return Box(False, title, "not issued", rank=rank)
    kind = subject.incident.kinds[half.kind]
    text = " ".join(filter(None, (f"seq {half.seq}", sizes_of(kind), f"({half.state.name.lower()})")))
    return Box(True, title, text, site_of(kind), rank)
