"""Rules about what members have to agree on besides the call: who is the root, and who the members of the group are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangscope.align.frontier import GroupFrontier
from hangscope.causes.case import Case, Match, answer, at, of_outlier, quote, who
from hangscope.explain.finding import Stalled
from hangscope.explain.generate.mismatches import has_root_buffers
from hangscope.explain.text.excerpt import not_collected
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.ingest.torch_logs.wrapper import GlooTimeout
from hangscope.knowledge.callsite import user_frames
from hangscope.model.conclusion import Evidence
from hangscope.model.incident import ROOTED_OPS, CallKind
from hangscope.model.rankset import agree, ranks_phrase

_FROM = ("broadcast", "scatter", "broadcast_object_list", "scatter_object_list")
_PRINT = "Print `{root}` on every rank before that line: it must be the same global rank everywhere, and must not depend on values of the rank itself."
_PATH = ("network_stall", "a stalled transport leaves the same record")
_GLOBAL = "In a subgroup `{root}` is a global rank, and `group_{root}` the rank within the group."
LISTS = "Call new_group on every rank, members or not, with the same list in the same order; compute the list from the world size, so that it is the same everywhere."


def other_members(case: Case) -> Match | None:
    """Ranks created a group with other members than the rest of its members did: it never forms."""
    finding, groups = case.finding, case.incident.groups
    assert finding.own.gid is not None
    own = groups[finding.own.gid]
    theirs = next(g for g in groups if g.name == own.name and g.gid != own.gid)
    others = sorted(r for r, record in case.incident.ranks.items() if theirs.gid in record.queues)
    why = f"{who(finding.culprits)} created group {own.label} with {ranks_phrase(own.ranks)}, {who(others)} with {ranks_phrase(theirs.ranks)}: it never forms"
    lists = [*((r, own) for r in finding.culprits[:2]), *((r, theirs) for r in others[:2])]
    text = "rank {} lists {} as the members of group {}"
    facts = [case.recorded(r, text.format(r, ranks_phrase(g.ranks), g.label)) for r, g in lists]
    return answer("init_hang", finding.culprits, why, LISTS, strength=2, evidence=facts)


def other_root(case: Case) -> Match | None:
    """Ranks have the buffers of a root in a gather or scatter that has another root, and never had them before."""
    finding = case.finding
    assert finding.own.kind is not None
    kind, culprits, usual = finding.own.kind, finding.culprits, finding.stuck.rank
    root = "src" if kind.op in _FROM else "dst"
    frame, seq = case.frame_of(kind), finding.own.seq
    why = f"{who(culprits)} passed another `{root}` to {kind.op} seq {seq}{at(frame)}: {agree(culprits, 'it has', 'they have')} the buffers of its root, as rank {usual} has"
    buffers = "has a buffer for each member, as only the root of {} has, and never had one before"
    facts = [case.recorded(r, f"rank {r} {buffers.format(kind.op)}") for r in culprits[:4]]
    steps = (_PRINT.format(root=root), _GLOBAL.format(root=root))
    return answer("collective_mismatch", culprits, why, *steps, strength=2, evidence=facts, frame=frame)


def other_roots(case: Case) -> Match | None:
    """All members are in the same rooted collective and none completes it: they may disagree about the root.

    No recorder keeps the root, so two ranks that both send, or that wait for different ranks, look alike in it.
    """
    finding, statements = case.finding, case.statements
    in_p2p = any(where.op in ("send", "recv") for where in statements.whereabouts.values())
    broken_path = any(event.tier <= 2 for event in statements.all(NcclWarn))
    if in_p2p or broken_path or not_collected(case.incident, statements):
        return None
    stalled = isinstance(finding, Stalled) and finding.stuck.pair is None
    view, seq = finding.stuck.view, finding.stuck.seq
    kind = finding.stuck.kind if stalled else _all_at_one_line(case)
    if kind is None or kind.op not in ROOTED_OPS or kind.root is not None:
        return None
    if case.from_text and statements.all(WatchdogTimeout):
        return None  # NCCL's watchdog shows no more than that all wait: the transport is the likelier reason
    frame, root = case.frame_of(kind), "src" if kind.op in _FROM else "dst"
    values = [o for o in statements.outlier_lines if o.how == "value" and o.telling]
    outliers = values[:1] if len({o.ranks for o in values}) == 1 else []
    call, ranks = f"{kind.op}{at(frame)}", sorted(case.incident.ranks)
    node = finding.stuck.node
    pending = sorted({rank for rank, _ in case.graph.calls_of(node)}) if node is not None else []
    everybody = f"all {len(ranks)} ranks" if case.whole_group else ranks_phrase(ranks)
    why = f"{everybody} {agree(ranks, 'is', 'are')} in the same {call}, which does not complete"
    if 0 < len(pending) < len(ranks):
        why = f"{everybody} entered the same {call}, which {who(pending)} did not complete"
    why += f": they may disagree about `{root}`"
    named = outliers[0].ranks if outliers else _sends_elsewhere(view, seq, pending)
    if outliers:
        why = f"{who(named)} probably passed another `{root}` to {call}: it printed another value than the others"
    elif named:
        why = f"{who(named)} probably passed another `{root}` to {call}: its root waits for {who(named)} alone, and {who(named)} for another root"
    text = f"has not completed the {kind.op}, as other members did, and is not its root"
    facts = [case.recorded(r, f"rank {r} {text}") for r in named if not outliers]
    unknown = "recorders do not keep the root of a collective, so it is not known whether all ranks pass the same one"
    facts = [
        *map(of_outlier, outliers),
        *facts,
        *map(quote, statements.all(GlooTimeout)[:4]),
        Evidence("method", unknown),
    ]
    steps = (_PRINT.format(root=root), _GLOBAL.format(root=root))
    strength = int({k.backend for k in case.incident.kinds} <= {"gloo", ""})
    match = answer(
        "collective_mismatch", named, why, *steps, strength=strength, evidence=facts, rivals=[_PATH]
    )
    whose = named[0] if named else finding.stuck.rank
    return replace(match, frame=frame, frame_rank=whose, stack=kind.stack)


def _sends_elsewhere(view: GroupFrontier | None, seq: int | None, pending: Sequence[int]) -> tuple[int, ...]:
    """Return the one member besides the root that has not completed a gather which several others completed: what it sends, the root does not take."""
    if view is None or seq is None:
        return ()
    kinds = {rank: kind for rank in view.seen if (kind := view.kind_of(rank, seq)) is not None}
    roots = {rank for rank, kind in kinds.items() if has_root_buffers(kind)}
    waiting, ended = set(pending) - roots, kinds.keys() - set(pending) - roots
    gathers = all(kind.op == "gather" for kind in kinds.values())
    return tuple(waiting) if gathers and len(roots) == len(waiting) == 1 < len(ended) else ()


def _all_at_one_line(case: Case) -> CallKind | None:
    """Return the collective in which all ranks timed out at one line of the user's, in a job of which only text is left."""
    places = case.statements.whereabouts
    lines = {(w.kind, w.inside, w.op, user_frames(w.stack)): w for w in places.values()}
    if len(lines) != 1 or len(places) < 2 or places.keys() != case.incident.ranks.keys():
        return None
    (where,) = lines.values()
    return where.call if where.inside and where.kind == "log" else None
