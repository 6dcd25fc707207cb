"""How far ranks are in a group by their own counters: who has enqueued fewer than the others, where lines of several ranks print them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from hangscope.causes.case import Case
from hangscope.ingest.torch_logs.c10d import DumpSignal, WatchdogStatus, WatchdogTimeout
from hangscope.ingest.torch_logs.desync import Desync
from hangscope.model.conclusion import Collect
from hangscope.model.incident import group_label
from hangscope.model.rankset import agree, ranks_phrase
from hangscope.verdict.answer.observation import Observation, who

_SHOWN = 4  # different numbers that are listed
_Counts = tuple[int, int]  # enqueued, completed


def counters(case: Case) -> Observation | None:
    """Read the counters of the group of which most ranks print some, unless they agree and a timeout or a signal says more."""
    groups: dict[tuple[str, str], dict[int | None, _Counts]] = defaultdict(dict)
    told: list[WatchdogStatus | DumpSignal] = [
        *case.statements.all(WatchdogStatus),
        *case.statements.all(DumpSignal),
    ]
    for e in told:
        if e.last_enqueued is not None and e.last_completed is not None:
            own = e.rank if e.rank is not None else e.group_rank
            groups[_key(e)].setdefault(own, (e.last_enqueued, e.last_completed))
    if not groups:
        return None
    group, by_rank = max(
        groups.items(), key=lambda item: (len({n for n, _ in item[1].values()}), len(item[1]))
    )
    numbers = {enqueued for enqueued, _ in by_rank.values()}
    if len(numbers) == 1 and case.statements.all(WatchdogTimeout, DumpSignal):
        return None
    events = tuple(e for e in told if _key(e) == group)
    name = f" of group {group_label(*group)}" if group[0] else ""
    seq = next((e.seq for e in events if isinstance(e, WatchdogStatus) and e.seq is not None), None)
    stuck = f" at number {seq}" if seq is not None else ""
    shows = f"by their own counters{name}{stuck} {_listed(by_rank)}"
    few = sorted(r for r, (enqueued, _) in by_rank.items() if enqueued == min(numbers) and r is not None)
    if len(numbers) > 1 and 2 * len(few) <= len(by_rank):
        means = f"{ranks_phrase(few).capitalize()} enqueued fewer than the others and {agree(few, 'is', 'are')} behind: the others wait for {agree(few, 'it', 'them')}."
        text = f"a stack of {ranks_phrase(few)} (py-spy dump), and {agree(few, 'its', 'their')} log at that moment"
        return Observation(shows, means, Collect(tuple(few), "stack", text), tuple(few), True, True, events)
    means = "They agree in what they enqueued, so these are witnesses; the rank that did not come is one that prints no such line."
    if len(numbers) > 1:
        means = "They enqueued different numbers, and those with the smaller one are behind; no rank stands out alone."
    elif len(by_rank) == 1:
        means = "That rank waited; whether others enqueued as many the text does not show."
    text = (
        "the same status line of all other ranks of that group: the one whose last enqueued number is lower"
    )
    return Observation(shows, means, Collect((), "log", text), (), True, False, events)


def _key(event: WatchdogStatus | DumpSignal) -> tuple[str, str]:
    return (event.group_name or "", event.group_desc or "")


def _listed(by_rank: Mapping[int | None, _Counts]) -> str:
    """Return who has enqueued and completed how many, ranks of equal numbers together, the fewest first."""
    alike: dict[_Counts, list[int]] = defaultdict(list)
    for rank, counts in by_rank.items():
        alike[counts] += [rank] if rank is not None else []
    parts = [f"{who(sorted(ranks))} {_of(counts, ranks)}" for counts, ranks in sorted(alike.items())]
    more = f" and {len(parts) - _SHOWN} other states" if len(parts) > _SHOWN else ""
    return "; ".join(parts[:_SHOWN]) + more


def _of(counts: _Counts, ranks: Sequence[int]) -> str:
    done = "nothing" if counts[1] < 0 else str(counts[1])
    return f"{agree(ranks or (0,), 'has', 'have')} enqueued {counts[0]} and completed {done}"


def desync(case: Case) -> Observation | None:
    """Read NCCL's desync report: who never joined, or finished one collective and did not join the next."""
    told = case.statements.all(Desync)
    absent = sorted({r for e in told for ranks in (e.never_joined, *e.not_joined.values()) for r in ranks})
    inside = sorted({r for e in told for ranks in e.joined_not_finished.values() for r in ranks})
    began = sorted({r for e in told for ranks in e.started.values() for r in ranks} - set(absent))
    if not absent and not inside:
        return None
    e, joined = told[0], inside or began
    call = f" {e.op}" if e.op else ""
    call += f" #{e.seq}" if e.seq is not None else ""
    if absent:
        last = sorted({seq for e in told for seq in e.not_joined})
        done = f" finished #{last[0] - 1} and" if last else ""
        shows = f"the desync report says that {ranks_phrase(absent)}{done} did not join{call}"
        shows += f", which {ranks_phrase(joined)} joined" if joined else ""
        means = "These numbers count within the group; a rank that did not join is in another call, stuck outside, or dead."
        text = f"a stack and the log of {ranks_phrase(absent)}"
        return Observation(
            shows, means, Collect(tuple(absent), "stack", text), tuple(absent), True, True, tuple(told)
        )
    shows = f"the desync report says that {ranks_phrase(inside)} joined{call} and none finished"
    means = "Nobody that is listed is missing, so the sentence that calls them lagging is void: look at transport and devices."
    text = "NCCL_DEBUG=INFO of these ranks, and the kernel logs of their hosts (Xid, link errors)"
    return Observation(shows, means, Collect(tuple(inside), "log", text), (), True, False, tuple(told))
