"""What DETAIL's fingerprints show: the collective of each rank, and the first peer in rank order that differs from it (ProcessGroupWrapper.cpp)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hangscope.align.matching import match_key
from hangscope.explain.finding import Change, Different
from hangscope.explain.statements.group_ranks import Label, label_of
from hangscope.explain.statements.statements import Statements
from hangscope.explain.text.partitions import different
from hangscope.explain.text.reports import Report
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import CallFingerprint
from hangscope.model.incident import CallKind, Incident

# the only aspect in which collectives differ that are of another place of the program
_NUMBER = ("sequence number",)
_Own = Mapping[int, CallFingerprint]  # by the rank that reports it


def fingerprints(incident: Incident, statements: Statements) -> Report | None:
    """Compare the ranks' own fingerprints at the first seq where they differ; of one reporter alone with its peer's."""
    own: dict[tuple[Label, int | None], dict[int, CallFingerprint]] = defaultdict(dict)
    for event in statements.all(CallFingerprint):
        if event.rank is not None:  # before torch 1.13 no number is printed
            own[(label_of(event), event.seq)].setdefault(event.rank, event)
    for label, seq in sorted(own, key=lambda k: (k[1] or 0, not k[0][1], str(k[0][0]))):
        events = own[(label, seq)]
        if finding := _finding(incident, statements, seq, events):
            return _report(statements, [*events.values()], finding)
    compared = [e for e in statements.all(CallFingerprint) if e.context == "mismatch"]
    by_number = _by_number(statements, compared)
    named = by_number is not None or any(e.peer_group_rank is not None for e in compared)
    return _report(statements, compared, by_number) if named else None


def _report(statements: Statements, events: Sequence[CallFingerprint], finding: Different | None) -> Report:
    """Return which ranks issued what; a garbled line shows its own rank's collective, and of its peer's the length."""
    printed = ((e.rank if e.rank is not None else e.group_rank, e) for e in events)
    form = {rank: _form(e.op, e.shape, e.dtype) for rank, e in printed if rank is not None}
    for e in sorted(events, key=_is_cut):
        if e.peer_group_rank is not None:
            other = _form(e.peer_op or "another collective", e.peer_shape, e.peer_dtype)
            garbled = " by the length of what it sent" if e.garbled else ""
            peer = statements.group_ranks.resolve(e, (e.peer_group_rank,))[0]
            form.setdefault(peer[0] if peer else e.peer_group_rank, f"{other}{garbled}")
    sides: dict[str, list[int]] = defaultdict(list)
    for rank in sorted(form):
        sides[f"issued {form[rank]}"].append(rank)
    first = events[0]
    number = first.sequence_number if first.sequence_number is not None else first.seq
    by = "TORCH_DISTRIBUTED_DEBUG=DETAIL reports a mismatch"
    by += f" at sequence number {number}" if number is not None and first.aspects != _NUMBER else ""
    by += f" in {' and '.join(first.aspects)}" if first.aspects else ""
    return Report(by, sides, finding.culprits if finding is not None else (), events, finding)


def _is_cut(event: CallFingerprint) -> tuple[bool, bool]:
    """Return how much of the peer's collective is missing at the end of a line."""
    return event.peer_dtype is None, event.peer_shape is None


def _form(op: str, shape: tuple[int, ...] | None, dtype: str | None) -> str:
    return " ".join(filter(None, (op, str(list(shape)) if shape is not None else "", dtype)))


def _finding(incident: Incident, statements: Statements, seq: int | None, events: _Own) -> Different | None:
    """Return the finding that ranks reported different collectives at a seq; None where all are alike."""
    kinds = _completed({rank: _kind_of(event, statements) for rank, event in events.items()})
    kinds |= _only_peer(incident, statements, events)
    sides: dict[object, list[int]] = defaultdict(list)
    for rank in sorted(kinds):
        sides[match_key(kinds[rank])].append(rank)
    if len(sides) == 1:
        return None
    ordered = sorted(sides.values(), key=lambda ranks: (-len(ranks), ranks))
    lines = tuple(events[r] for side in ordered for r in side[:2] if r in events)
    assumed = any(e.rank_assumed for e in events.values())
    return replace(different(seq, ordered, kinds, statements), events=lines, assumed=assumed)


def _by_number(statements: Statements, compared: Sequence[CallFingerprint]) -> Different | None:
    """Return the finding that most ranks report one number of the same collective and the others a smaller one; None otherwise."""
    own = {e.rank: e for e in compared if e.rank is not None and e.aspects == _NUMBER}
    sides: dict[int, list[int]] = defaultdict(list)
    for rank, event in sorted(own.items()):
        if event.seq is not None:
            sides[event.seq].append(rank)
    if len(sides) != 2 or len({(label_of(e), e.op) for e in own.values()}) > 1:
        return None
    behind, ahead = sorted(sides)
    if 2 * len(sides[behind]) >= len(sides[ahead]):
        return None
    kinds = {rank: _kind_of(event, statements) for rank, event in own.items()}
    finding = different(ahead, [*sides.values()], kinds, statements)
    call, skipped = replace(finding.own, seq=behind), Change(shift=behind - ahead)
    lines = tuple(own[r] for side in (sides[behind], sides[ahead]) for r in side[:2])
    # Sends and receives count as well.
    return replace(finding, own=call, change=skipped, events=lines, assumed=True)


def _completed(kinds: dict[int, CallKind]) -> dict[int, CallKind]:
    """Return collectives of which a shortened line lacks the types, with those of the one like them."""
    types: dict[object, set[tuple[str, ...]]] = defaultdict(set)
    for kind in kinds.values():
        types[kind.op, kind.input_sizes] |= {kind.input_dtypes} - {()}
    for rank, kind in kinds.items():
        known = types[kind.op, kind.input_sizes]
        if not kind.input_dtypes and len(known) == 1:
            (own,) = known
            kinds[rank] = replace(kind, input_dtypes=own, output_dtypes=own)
    return kinds


def _only_peer(incident: Incident, statements: Statements, events: _Own) -> dict[int, CallKind]:
    """Return the collective of the one rank that several ranks, which with those before it are most, name as unlike their own; it reports nothing itself."""
    reports = sorted(events.values(), key=_is_cut)
    event = reports[0]
    compared = event.peer_group_rank is not None and event.aspects != _NUMBER
    if not compared or len({e.peer_group_rank for e in reports}) > 1 or any(e.garbled for e in reports):
        return {}
    alike = {*events, *statements.group_ranks.resolve(event, range(event.peer_group_rank or 0))[0]}
    found = statements.group_ranks.resolve(event, (event.peer_group_rank or 0,))[0]
    few = 2 * len(alike) <= len(incident.ranks) or len(events) < 2
    if few or len(found) != 1 or found[0] in alike or not event.peer_op:
        return {}
    return {found[0]: _call(event.peer_op, event.peer_shape, event.peer_dtype)}


def _kind_of(event: CallFingerprint, statements: Statements) -> CallKind:
    """Return the collective that a fingerprint describes, with the stack of the same rank's traceback."""
    raised = statements.of(event.rank, RankException) if event.rank is not None else []
    stack = next((e.frames for e in raised if e.frames), ())
    return replace(_call(event.op, event.shape, event.dtype), stack=stack)


def _call(op: str, shape: tuple[int, ...] | None, dtype: str | None) -> CallKind:
    sizes, types = (shape,) if shape is not None else (), (dtype,) if dtype else ()
    return CallKind(op, "", sizes, sizes, types, types)
