"""What the NCCL watchdog's lines show: who timed out in which call of which group, and who did not.

A timeout says who waited. Whoever of the group did not time out, although alive (it observed the others' dump signal, or
its counters say that it is idle), never made the call; the counters of `last enqueued` tell the same by number.
"""

from __future__ import annotations

from collections import defaultdict

from hangscope.align.matching import match_key
from hangscope.events import Event
from hangscope.explain.facts import Facts
from hangscope.explain.finding import Finding
from hangscope.explain.text_sides import two_sides
from hangscope.incident import CallKind, Incident
from hangscope.ingest.torch_logs.c10d import DumpObserved, DumpSignal, WatchdogStatus, WatchdogTimeout
from hangscope.ingest.torch_logs.c10d_names import GroupEvent
from hangscope.ingest.torch_logs.desync import FailedStack


def watchdog(incident: Incident, facts: Facts) -> Finding | None:
    """Compare the watchdog's lines group by group; the group with the most ranks waiting comes first."""
    timeouts: dict[str, dict[int, WatchdogTimeout]] = defaultdict(dict)
    for event in facts.all(WatchdogTimeout):
        if event.rank is not None:
            timeouts[_group(event)].setdefault(event.rank, event)
    status: dict[str, dict[int, WatchdogStatus]] = defaultdict(dict)
    for counted in facts.all(WatchdogStatus):
        if counted.rank is not None:
            status[_group(counted)][counted.rank] = counted
    if len(status) == 1 and set(timeouts) == {""}:
        timeouts = {next(iter(status)): timeouts[""]}  # `WorkNCCL` lines name no group before 2.6
    waiting = {r for events in timeouts.values() for r in events}
    found: list[Finding] = []
    for group in sorted(set(timeouts) | set(status), key=lambda g: (-len(timeouts.get(g, ())), g)):
        for finding in (
            _unlike(incident, facts, timeouts.get(group, {})),
            _missing(incident, facts, group, timeouts, waiting),
            _behind(incident, facts, timeouts.get(group, {}), status.get(group, {})),
        ):
            if finding is not None:
                finding.assumed = finding.assumed or any(
                    e.rank_assumed for e in timeouts.get(group, {}).values()
                )
                shown: list[Event] = list(list(timeouts.get(group, {}).values())[:3])
                shown += [e for r, e in sorted(status.get(group, {}).items()) if r in finding.culprits]
                finding.events = shown[:4]
                found.append(finding)
                break
    return max(found, key=lambda f: (f.form == "different", not f.assumed, f.explained), default=None)


def _group(event: GroupEvent) -> str:
    return event.group_name or ""


def _unlike(incident: Incident, facts: Facts, events: dict[int, WatchdogTimeout]) -> Finding | None:
    """Members that timed out at one seq in calls that cannot match."""
    seqs = {e.seq for e in events.values()}
    if len(seqs) != 1 or len(events) < 2:
        return None
    sides: dict[object, list[int]] = defaultdict(list)
    for rank, event in sorted(events.items()):
        sides[match_key(_kind(event, facts))].append(rank)
    if len(sides) < 2:
        return None
    ordered = sorted((tuple(r) for r in sides.values()), key=lambda r: (-len(r), r))
    return two_sides(incident, facts, seqs.pop(), ordered, {r: _kind(e, facts) for r, e in events.items()})


def _missing(
    incident: Incident,
    facts: Facts,
    group: str,
    timeouts: dict[str, dict[int, WatchdogTimeout]],
    waiting: set[int],
) -> Finding | None:
    """Members of a group that did not time out in any group, while others did in this one."""
    events = timeouts.get(group, {})
    if not events:
        return None
    members, known = _members(incident, facts, group, events)
    missing = [r for r in members if r not in waiting]
    if not missing or len(missing) == len(members):
        return None
    alive = [r for r in missing if facts.of(r, DumpObserved) or _idle(facts, r)]
    culprits = tuple(alive or missing)
    if not known and len(culprits) * 2 > len(members):
        return None
    first = min(events)
    return Finding(
        "absent" if alive else "unseen",
        culprits,
        seq=events[first].seq,
        waiting=tuple(sorted(waiting)),
        explained=len(waiting) if known else len(events),
        waiting_rank=first,
        waiting_kind=_kind(events[first], facts),
        assumed=not known,
    )


def _members(
    incident: Incident, facts: Facts, group: str, events: dict[int, WatchdogTimeout]
) -> tuple[list[int], bool]:
    """Return a group's members and whether they are known; all ranks for the default group and where no line names one."""
    desc = next((str(e.group_desc) for e in events.values() if e.group_desc), "")
    for known in incident.groups:
        if known.members_known and group and group in (known.name, known.desc):
            return list(known.ranks), True
    if group in ("0", "") or desc == "default_pg":
        return sorted(incident.ranks), True
    told = set(facts.group_ranks.members(next(iter(events.values())))) | set(events)
    return (sorted(told), False) if len(told) > len(events) else (sorted(incident.ranks), False)


def _idle(facts: Facts, rank: int) -> bool:
    """Return whether a rank's own counters say that all it enqueued is complete."""
    counts = [(e.last_enqueued, e.last_completed) for e in facts.of(rank, WatchdogStatus)]
    signals = [(e.last_enqueued, e.last_completed) for e in facts.of(rank, DumpSignal)]
    told = [pair for pair in (*counts, *signals) if pair[0] is not None]
    return any(enqueued == completed != -1 for enqueued, completed in told)


def _behind(
    incident: Incident, facts: Facts, events: dict[int, WatchdogTimeout], status: dict[int, WatchdogStatus]
) -> Finding | None:
    """Members that enqueued fewer calls than the others completed or wait in."""
    enqueued = {r: e.last_enqueued for r, e in status.items()}
    stuck = [e.seq for e in events.values() if e.seq is not None]
    stuck += [e.seq for e in status.values() if e.seq is not None]
    if len(enqueued) < 2 or not stuck:
        return None
    wanted = max(stuck)
    low = tuple(sorted(r for r, n in enqueued.items() if n < wanted))
    high = tuple(sorted(r for r in (set(enqueued) | set(events)) - set(low)))
    if not low or len(low) > len(high):
        return None
    first = high[0]
    kind = _kind(events[first], facts) if first in events else None
    return Finding(
        "absent",
        low,
        seq=wanted,
        waiting=high,
        explained=len(high),
        waiting_rank=first,
        waiting_kind=kind,
        own_seq=max(enqueued[r] for r in low),
    )


def _kind(event: WatchdogTimeout, facts: Facts) -> CallKind:
    sizes = tuple((n,) for n in (event.numel_in,) if n is not None)
    outs = tuple((n,) for n in (event.numel_out,) if n is not None)
    stack = next((e.frames for e in facts.of(event.rank, FailedStack)), ()) if event.rank is not None else ()
    return CallKind(event.op, "nccl", sizes, outs, stack=stack)
