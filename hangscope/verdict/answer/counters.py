"""How far ranks are in a group by their own counters: who has enqueued fewer than the others, where lines of several ranks print them."""

from __future__ import annotations

from collections import defaultdict

from hangscope.causes.case import Case
from hangscope.conclusion import Collect
from hangscope.incident import group_label
from hangscope.ingest.torch_logs.c10d import WatchdogStatus, WatchdogTimeout
from hangscope.ingest.torch_logs.desync import Desync
from hangscope.rankset import agree, ranks_phrase
from hangscope.verdict.answer.observation import Observation, who

_SHOWN = 6  # ranks whose numbers are listed


def counters(case: Case) -> Observation | None:
    """Read the status lines of the group of which most ranks print one, unless one rank alone does and its timeout says more."""
    groups: dict[tuple[str, str], dict[int | None, WatchdogStatus]] = defaultdict(dict)
    for e in case.statements.all(WatchdogStatus):
        groups[(e.group_name or "", e.group_desc or "")].setdefault(
            e.rank if e.rank is not None else e.group_rank, e
        )
    if not groups:
        return None
    group, told = max(groups.items(), key=lambda item: len(item[1]))
    numbers = {e.last_enqueued for e in told.values()}
    if len(numbers) == 1 and case.statements.all(WatchdogTimeout):
        return None
    listed = ", ".join(f"{who([r] if r is not None else [])} {_of(e)}" for r, e in [*told.items()][:_SHOWN])
    more = f" and {len(told) - _SHOWN} more ranks" if len(told) > _SHOWN else ""
    name = f" of group {group_label(*group)}" if group[0] else ""
    seq = next((e.seq for e in told.values() if e.seq is not None), None)
    stuck = f" at number {seq}" if seq is not None else ""
    shows = f"watchdogs{name} report{stuck}: {listed}{more}"
    few = sorted(r for r, e in told.items() if e.last_enqueued == min(numbers) and r is not None)
    if len(numbers) > 1 and len(few) < len(told):
        means = f"{ranks_phrase(few).capitalize()} enqueued fewer than the others and {agree(few, 'is', 'are')} behind: the others wait for {agree(few, 'it', 'them')}."
        text = f"a stack of {ranks_phrase(few)} (py-spy dump), and its log at that moment"
        return Observation(shows, means, Collect(tuple(few), "stack", text), tuple(few), True, True)
    means = "They agree in what they enqueued, so these are witnesses; the rank that did not come is one that prints no such line."
    if len(told) == 1:
        means = "That rank waited; whether others enqueued as many the text does not show."
    return Observation(
        shows,
        means,
        Collect(
            (),
            "log",
            "the same status line of all other ranks of that group: the one whose last enqueued number is lower",
        ),
        (),
        True,
    )


def _of(event: WatchdogStatus) -> str:
    done = "nothing" if event.last_completed < 0 else str(event.last_completed)
    return f"enqueued {event.last_enqueued} and completed {done}"


def desync(case: Case) -> Observation | None:
    """Read NCCL's desync report: who never joined, or finished one collective and did not join the next."""
    told = case.statements.all(Desync)
    absent = sorted({r for e in told for ranks in (e.never_joined, *e.not_joined.values()) for r in ranks})
    joined = sorted({r for e in told for ranks in e.joined_not_finished.values() for r in ranks})
    if not absent and not joined:
        return None
    e = told[0]
    call = f" {e.op}" if e.op else ""
    if absent:
        shows = f"the desync report says that {ranks_phrase(absent)} did not join{call}{f' #{e.seq}' if e.seq is not None else ''}"
        shows += f", which {ranks_phrase(joined)} joined" if joined else ""
        means = "These numbers count within the group; a rank that did not join is in another call, stuck outside, or dead."
        text = f"a stack and the log of {ranks_phrase(absent)}"
        return Observation(shows, means, Collect(tuple(absent), "stack", text), tuple(absent), True, True)
    shows = f"the desync report says that {ranks_phrase(joined)} joined{call} and none finished"
    means = "Where all that are listed joined, the sentence that calls them lagging is void: look at transport and devices."
    return Observation(
        shows,
        means,
        Collect(tuple(joined), "log", "NCCL_DEBUG=INFO of these ranks and the members of their group"),
        (),
        True,
    )
