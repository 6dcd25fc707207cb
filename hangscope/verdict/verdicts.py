"""Verdicts in words: who, what, why and since when; on a match, on a stop without a known cause, and on neither."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from hangscope.align.frontier import GroupFrontier
from hangscope.align.waitgraph import Host, Instance
from hangscope.causes.case import Case, Match, at, of_outlier, quote
from hangscope.explain.finding import Absent, StuckCall
from hangscope.explain.text.stop import Stop, unmoved
from hangscope.ingest.job_logs.endings import Exit, ExternalEnd
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.ingest.torch_logs.wrapper import MonitoredBarrier
from hangscope.knowledge.callsite import user_frame
from hangscope.knowledge.catalog import CATALOG
from hangscope.model.conclusion import CallRef, Collect, Evidence, Location, Verdict
from hangscope.model.incident import CallKind, Group
from hangscope.model.rankset import agree, ranks_phrase
from hangscope.verdict import substantiation
from hangscope.verdict.claims import Act, act, blocked
from hangscope.verdict.confidence import LEVELS, Confidence, stay_blocked
from hangscope.verdict.damage import damage
from hangscope.verdict.phrasing import worded
from hangscope.verdict.substantiation import next_files

_TWICE = "Take the stacks of all ranks twice, a minute apart (py-spy dump): a rank that has moved in between is not hung."
_OTHERS = "Collect the logs of the ranks that are not in this text: the culprit is the one whose last enqueued collective is earlier, or whose process ended."


def unknown(case: Case, wanted: Sequence[Collect]) -> Verdict:
    """Return the verdict if the files do not show whether the job stopped: nothing is pending, or nothing proves that it stays pending."""
    waiting, stuck = tuple(case.graph.waiting), case.finding.stuck
    missing = [item.text for item in wanted]
    why = _snapshot(case)
    if waiting:
        why = f"{ranks_phrase(waiting)} {agree(waiting, 'has', 'have')} pending collectives; the collected files do not show why"
    lacking = (Evidence("method", text, stance="missing") for text in missing)
    verdict = Verdict(
        "unknown", "low", (), "unknown", "",
        is_p2p=stuck.pair is not None,
        waiting_call=_call(stuck.kind, stuck.seq),
        evidence=[*map(case.seen_at, list(case.stacks)[:3]), *lacking],
        advice=[_TWICE, *missing][not case.stacks or unmoved(case.statements) :][:3],
        fingerprint=_fingerprint(case, "unknown", stuck.kind),
        suspect_ranks=case.explanation.suspects,
        collect=next_files(case, wanted),
    )  # fmt: skip
    verdict = _blocked_in(case, verdict, stuck, waiting)
    return worded(verdict, Act((), why), "")


def _blocked_in(case: Case, verdict: Verdict, stuck: StuckCall, waiting: tuple[int, ...]) -> Verdict:
    """Return a verdict with the collective that blocks, and who waits."""
    op, ends = (stuck.kind.op or None) if stuck.kind is not None else None, case.statements.wait_ends
    found = replace(verdict, group=stuck.group, op=op, seq=stuck.seq)
    return replace(found, waiting_ranks=waiting, wait_ends=ends.among(waiting))


def _snapshot(case: Case) -> str:
    """Return what is known if nothing proves a stop: the collective in which stacks show ranks, if any."""
    ranks_at: dict[str, list[int]] = defaultdict(list)
    for rank, where in case.stacks.items():
        if where.inside:
            ranks_at[f"{where.op or 'a collective'}{at(user_frame(where.stack))}"].append(rank)
    if not ranks_at:
        return "the collected files do not show whether the job stopped, or where"
    place, ranks = max(ranks_at.items(), key=lambda item: len(item[1]))
    once = f"one stack does not show whether {agree(ranks, 'it stays', 'they stay')} there"
    return f"{ranks_phrase(ranks)} {agree(ranks, 'is', 'are')} in {place}; {'as the reporter saw more than once' if unmoved(case.statements) else once}"


def stopped(case: Case, stop: Stop, wanted: Sequence[Collect]) -> Verdict:
    """Return the verdict on a stop without a known cause: who waited, in which collective, since when."""
    base = unknown(case, wanted)
    kind = stop.call or case.finding.stuck.kind
    call = StuckCall(seq=stop.seq if stop.seq is not None else case.finding.stuck.seq, kind=kind)
    waiting = tuple(stop.ranks or case.graph.waiting)
    outliers = map(of_outlier, case.statements.outlier_lines)
    complete = len(waiting) == len(case.incident.ranks) and case.incident.size_stated
    verdict = replace(
        _blocked_in(case, base, call, waiting),
        group=_printed_group(case, stop),
        in_call=waiting if stop.call is not None else (),
        waiting_call=_whose(case, call, waiting, None),
        evidence=substantiation.unique((*map(quote, stop.events), *outliers, *base.evidence)),
        advice=[_OTHERS, *(item.text for item in wanted)][complete:][:3],
        fingerprint=_fingerprint(case, "unknown", kind),
        deciding=(0,) if stop.events else (),
        since=_ns(stop.since),
        until=_ns(stop.until),
    )
    why = f"{stop.phrase()}; a rank that prints this was waiting, which is no fault of its own"
    return worded(verdict, Act((), why), "")


def named(
    case: Case, match: Match, sure: Confidence, wanted: Sequence[Collect], views: Sequence[GroupFrontier]
) -> Verdict:
    """Return the verdict on a match; `views` are the frontiers of each group."""
    finding, stuck = case.finding, still_open(case, views)
    culprits = tuple(sorted(set(match.culprits)))
    waiting = _waiting(case, culprits)
    inside = set(case.graph.ranks_in(stuck.node)) if stuck.node is not None else set()
    # If all have left the collective (a device did not finish it), its members are blocked after it.
    members = stuck.view.members if stuck.view is not None and case.graph.open_calls else waiting
    in_call = tuple(r for r in waiting if r in inside) or tuple(r for r in waiting if r in members)
    after = bool(inside) and inside.isdisjoint(in_call)
    now = next_open(case, stuck, in_call, views) if after else stuck
    frame = match.frame or case.frame_of(finding.own.kind)
    whose = match.frame_rank if match.frame_rank is not None else next(iter(culprits), None)
    location = Location(frame.file, frame.line, frame.name, whose) if frame is not None else None
    opened = (calls[0].created for r in in_call if (calls := case.graph.open_calls.get(r)))
    stalled = [created for created in opened if created]
    ends = (*case.statements.all(Exit), *case.statements.all(ExternalEnd))
    evidence = substantiation.collect(case, match, [item.text for item in wanted])
    label = case.incident.groups[finding.own.gid].label if finding.own.gid is not None else None
    if label is None and finding.stuck.group not in (None, stuck.group):
        # of the group on which the programs part, not of the one in which ranks wait
        label = finding.stuck.group.label
    of_a_group = isinstance(finding, Absent) and finding.own.gid is not None
    earlier = stuck.node != finding.stuck.node or of_a_group
    others = () if culprits and sure.rank else match.suspects or case.explanation.suspects
    verdict = replace(
        _blocked_in(case, unknown(case, wanted), stuck, waiting),
        waiting_call=_whose(case, now, in_call, stuck.group),
        cause=match.cause,
        confidence=LEVELS[sure.level],
        rank_confidence=LEVELS[sure.rank],
        cause_confidence=LEVELS[sure.cause],
        suspect_ranks=tuple(sorted({*culprits, *others})),
        culprit_ranks=culprits,
        category=match.category or CATALOG[match.cause].category,
        in_call=in_call,
        explained=_explained(case, match, waiting),
        culprit_call=_culprit_call(case, culprits, label, earlier=earlier),
        location=location,
        api=match.api,
        evidence=evidence,
        deciding=substantiation.deciding(case, match, evidence),
        since=max(min(stalled), case.incident.last_completed()) if stalled else None,
        until=max((_ns(e.time) or 0 for e in ends if e.time is not None), default=None),
        advice=match.advice[:3],
        fingerprint=_fingerprint(case, match.cause, stuck.kind, location),
    )
    goes_on = match.cause == "slow_rank" and not damage(case, match)  # then nobody is blocked any more
    stuck_in = "" if goes_on else blocked(case, stuck, waiting, in_call, after)
    return worded(verdict, act(case, match), stuck_in)


def _waiting(case: Case, culprits: Sequence[int]) -> tuple[int, ...]:
    """Return the ranks that wait: by their pending collectives, else by the text that shows them blocked or timed out.

    Who raised another error than a timeout has ended and does not wait.
    """
    statements = case.statements
    timed_out = statements.witnesses | statements.ranks(MonitoredBarrier)
    by_text = case.finding.waiting or sorted(timed_out)
    waiting = case.graph.waiting or [rank for rank in by_text if rank not in statements.ended]
    return tuple(rank for rank in waiting if rank not in culprits)


def _explained(case: Case, match: Match, waiting: Sequence[int]) -> int:
    """Return how many of the waiting ranks would go on if the named ones, for which those wait that lines alone show, had done as expected."""
    finding, explained = case.finding, case.finding.explained
    if set(match.culprits) != set(finding.culprits):
        named = match.culprits or finding.culprits
        others = set(waiting) - set(case.graph.waiting)
        explained = len((case.replay.accounts_for(named) | others).intersection(waiting))
    if finding.guess and {"send", "recv"} & {e.op for e in case.statements.all(WatchdogTimeout)}:
        return 0  # a line about a send or receive does not name the peer that is waited for
    return min(explained, len(set(waiting) - stay_blocked(case, match)))


def _culprit_call(case: Case, culprits: Sequence[int], group: str | None, earlier: bool) -> CallRef | None:
    """Return what the culprits issued, marked as completed if that was `earlier` than what is stuck, or others are pending, and it is not."""
    own, stuck = case.finding.own, case.finding.stuck.group
    call, pending = _call(own.kind, own.seq, group), case.graph.open_calls.get(next(iter(culprits), -1))
    gid = own.gid if own.gid is not None or stuck is None else stuck.gid
    if call is None or not (pending or earlier) or gid is None or own.seq is None:
        return call
    is_over = all(one.node != Instance(gid, own.seq) for one in pending or ())
    return replace(call, completed=True) if is_over else call


def _call(kind: CallKind | None, seq: int | None, group: str | None = None) -> CallRef | None:
    """Return a collective as a verdict shows it, None where no kind is known; `seq` counts from 1, `group` is its label."""
    if kind is None:
        return None
    sizes, types = kind.input_sizes or kind.output_sizes, kind.input_dtypes or kind.output_dtypes
    return CallRef(kind.op, seq, sizes, types, kind.stack, group)


def _whose(case: Case, stuck: StuckCall, ranks: Sequence[int], shown: Group | None) -> CallRef | None:
    """Return a collective as a verdict on the group `shown` quotes it, with those of its ranks whose frames it has where they are not all."""
    group = stuck.group
    call = _call(stuck.kind, stuck.seq, group.label if group is not None and group != shown else None)
    frame = user_frame(call.frames) if call is not None else None
    if call is None or frame is None:
        return call
    view, places = stuck.view, case.statements.whereabouts
    if stuck.pair is not None:
        own = tuple(rank for rank in ranks if rank == stuck.rank)
    elif view is not None and call.seq is not None:
        indexes = {rank: view.kind_index(rank, call.seq) for rank in ranks}
        there = {i for i in {*indexes.values()} if i is not None and user_frame(view.kinds[i].stack) == frame}
        own = tuple(rank for rank, index in indexes.items() if index in there)
    else:
        own = tuple(r for r in ranks if r in places and user_frame(places[r].stack) == frame)
    return replace(call, ranks=own) if 0 < len(own) < len(ranks) else call


def _fingerprint(case: Case, cause: str, kind: CallKind | None, location: Location | None = None) -> str:
    """Return a short hash that is the same for the same hang in another run (no ranks, seqs, hosts or line numbers).

    It is empty where no line of the program is known: a cause alone does not identify a bug.
    """
    waiting, group = case.frame_of(kind), case.finding.stuck.group
    if location is None and waiting is None:
        return ""
    places = [(location.file, location.function)] if location is not None else [("", "")]
    places += [(waiting.file, waiting.name)] if waiting is not None else [("", "")]
    parts = [cause, kind.op if kind is not None else "", group.desc if group is not None else ""]
    parts += [f"{file.rsplit('/', 1)[-1]}:{name}" if file else "" for file, name in places]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1_000_000_000)


def _printed_group(case: Case, stop: Stop) -> Group | None:
    """Return the group that the lines of a stop name: the incident's own where it is known, else one of unknown members."""
    name, desc = stop.group
    known = (g for g in case.incident.groups if name == g.name and desc in ("", g.desc))
    return next(known, Group(-1, name, desc, stop.ranks, members_known=False)) if name else None


def still_open(case: Case, views: Sequence[GroupFrontier]) -> StuckCall:
    """Return the call at which the programs part, where ranks are blocked in it before any other.

    Where all of its group have left it, the first that is open on the group, and where it is queued behind others, the one in which most
    ranks wait, of those that wait for the culprits themselves first.
    """
    stuck, graph, culprits = case.finding.stuck, case.graph, case.finding.culprits
    firsts = {r: calls[0].node for r, calls in graph.open_calls.items() if r not in culprits}
    in_it = stuck.node in graph.edges
    is_first = in_it and (stuck.node in firsts.values() or not firsts)
    if stuck.view is None or stuck.pair is not None or is_first:
        return stuck
    gid = stuck.view.group.gid
    opened = sorted(node.seq for node in graph.edges if isinstance(node, Instance) and node.gid == gid)
    inside = [r for r, _ in graph.calls_of(Instance(gid, opened[0]))] if opened and not in_it else []
    rank = next((r for r in inside if r not in culprits), None)
    if rank is not None:
        return replace(stuck, seq=opened[0], rank=rank, kind=stuck.view.kind_of(rank, opened[0]))
    hosts = {Host(r) for r in culprits}
    numbers = Counter(node for node in firsts.values() if isinstance(node, Instance))
    if (opened and not in_it) or not numbers:
        return stuck
    node = max(numbers, key=lambda one: (not hosts.isdisjoint(graph.edges.get(one, ())), numbers[one]))
    return _at(node, next(r for r, one in firsts.items() if one == node), views)


def next_open(
    case: Case, stuck: StuckCall, ranks: Sequence[int], views: Sequence[GroupFrontier]
) -> StuckCall:
    """Return the collective in which ranks are that have left the stuck one."""
    node = next((calls[0].node for r in ranks[:1] if (calls := case.graph.open_calls.get(r))), None)
    return _at(node, ranks[0], views) if isinstance(node, Instance) else stuck


def _at(node: Instance, rank: int, views: Sequence[GroupFrontier]) -> StuckCall:
    """Return a collective as one that a rank is in."""
    view = next(v for v in views if v.group.gid == node.gid)
    return StuckCall(view, node.seq, rank, view.kind_of(rank, node.seq))
