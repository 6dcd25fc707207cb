"""What the NCCL watchdog's lines show: who timed out in which call of which group, and who did not.

A timeout says who waited. Whoever of the group did not time out, although alive (it observed the others' dump signal, or
its counters say that it is idle), never made the call; the counters of `last enqueued` tell the same by number.
"""

from __future__ import annotations

from collections import defaultdict

from hangscope.align.matching import match_key
from hangscope.explain.facts import Facts, stack_of
from hangscope.explain.finding import Finding
from hangscope.explain.text_sides import two_sides
from hangscope.incident import CallKind, Event, Incident


def watchdog(incident: Incident, facts: Facts) -> Finding | None:
    """Compare the watchdog's lines group by group; the group with the most ranks waiting comes first."""
    timeouts: dict[str, dict[int, Event]] = defaultdict(dict)
    for event in facts.all("watchdog_timeout"):
        if event.rank is not None:
            timeouts[_group(event)].setdefault(event.rank, event)
    status: dict[str, dict[int, Event]] = defaultdict(dict)
    for event in facts.all("watchdog_status"):
        if event.rank is not None:
            status[_group(event)][event.rank] = event
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
                    e.fields.get("rank_assumed") for e in timeouts.get(group, {}).values()
                )
                finding.events = [
                    *list(timeouts.get(group, {}).values())[:3],
                    *(e for r, e in sorted(status.get(group, {}).items()) if r in finding.culprits),
                ][:4]
                found.append(finding)
                break
    return max(found, key=lambda f: (f.form == "different", not f.assumed, f.explained), default=None)


def _group(event: Event) -> str:
    name = event.fields.get("group_name")
    return str(name) if name else ""


def _unlike(incident: Incident, facts: Facts, events: dict[int, Event]) -> Finding | None:
    """Members that timed out at one seq in calls that cannot match."""
    seqs = {_seq(e) for e in events.values()}
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
    incident: Incident, facts: Facts, group: str, timeouts: dict[str, dict[int, Event]], waiting: set[int]
) -> Finding | None:
    """Members of a group that did not time out in any group, while others did in this one."""
    events = timeouts.get(group, {})
    if not events:
        return None
    members, known = _members(incident, facts, group, events)
    missing = [r for r in members if r not in waiting]
    if not missing or len(missing) == len(members):
        return None
    alive = [r for r in missing if facts.of(r, "dump_observed") or _idle(facts, r)]
    culprits = tuple(alive or missing)
    if not known and len(culprits) * 2 > len(members):
        return None
    first = min(events)
    return Finding(
        "absent" if alive else "unseen",
        culprits,
        seq=_seq(events[first]),
        waiting=tuple(sorted(waiting)),
        explained=len(waiting) if known else len(events),
        waiting_rank=first,
        waiting_kind=_kind(events[first], facts),
        assumed=not known,
    )


def _members(
    incident: Incident, facts: Facts, group: str, events: dict[int, Event]
) -> tuple[list[int], bool]:
    """Return a group's members and whether they are known; all ranks for the default group and where no line names one."""
    desc = next((str(e.fields.get("group_desc")) for e in events.values() if e.fields.get("group_desc")), "")
    for known in incident.groups:
        if known.members_known and group and group in (known.name, known.desc):
            return list(known.ranks), True
    if group in ("0", "") or desc == "default_pg":
        return sorted(incident.ranks), True
    told = set(facts.group_ranks.members(next(iter(events.values())))) | set(events)
    return (sorted(told), False) if len(told) > len(events) else (sorted(incident.ranks), False)


def _idle(facts: Facts, rank: int) -> bool:
    """Return whether a rank's own counters say that all it enqueued is complete."""
    return any(
        e.fields.get("last_enqueued") == e.fields.get("last_completed") != -1
        for e in facts.of(rank, "watchdog_status", "dump_signal")
        if isinstance(e.fields.get("last_enqueued"), int)
    )


def _behind(
    incident: Incident, facts: Facts, events: dict[int, Event], status: dict[int, Event]
) -> Finding | None:
    """Members that enqueued fewer calls than the others completed or wait in."""
    enqueued = {
        r: int(e.fields["last_enqueued"])
        for r, e in status.items()
        if isinstance(e.fields.get("last_enqueued"), int)
    }
    stuck = [s for e in (*events.values(), *status.values()) if (s := _seq(e)) is not None]
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


def _seq(event: Event) -> int | None:
    value = event.fields.get("seq")
    return value if isinstance(value, int) else None


def _kind(event: Event, facts: Facts) -> CallKind:
    sizes = tuple((n,) for n in (event.fields.get("numel_in"),) if isinstance(n, int))
    outs = tuple((n,) for n in (event.fields.get("numel_out"),) if isinstance(n, int))
    stack = (
        next((stack_of(e) for e in facts.of(event.rank, "failed_stack")), ())
        if event.rank is not None
        else ()
    )
    return CallKind(str(event.fields.get("op", "")), "nccl", sizes, outs, stack=stack)
