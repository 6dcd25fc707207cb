"""Reports that compare ranks: which ranks called, counted or submitted what, those alike together, and which of them are the fewer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from hangscope.causes.case import Case
from hangscope.explain.finding import Stalled
from hangscope.explain.statements.statements import Statements
from hangscope.explain.text import reports
from hangscope.explain.text.fingerprints import fingerprints
from hangscope.explain.text.group_size import others_of, world_size
from hangscope.ingest.job_logs.launchers.starts import Announced
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.torch_logs.c10d import DumpSignal, WatchdogStatus, WatchdogTimeout
from hangscope.model.conclusion import Collect
from hangscope.model.events import Event
from hangscope.model.incident import Incident, group_label
from hangscope.model.rankset import agree, ranks_phrase
from hangscope.verdict.answer.observation import Observation, who

_SHOWN = 4  # sides
_Sides = Mapping[str, Sequence[int]]
#: Each with what to collect after it.
_REPORTS: tuple[tuple[Callable[[Incident, Statements], reports.Report | None], str], ...] = (
    (reports.horovod, "a stack of {who} now (py-spy dump), and what runs there before that call"),
    (
        fingerprints,
        "what {who} did differently in that step (a branch, a batch, a dtype, other trainable parameters), and this error of every rank",
    ),
    (
        reports.analyzer,
        "stacks of {who} and of one other rank (py-spy dump --native), or where the tensor comes from: configuration, batch, branch",
    ),
    (
        reports.ras,
        "a stack with native frames of {who} (py-spy dump --native), its log, and whether its host answers",
    ),
    (reports.desync, "a stack and the log of {who}"),
)


def compared(
    head: str,
    sides: _Sides,
    wanted: str,
    events: Sequence[Event],
    *,
    what: str = "log",
    suspects: Sequence[int] | None = None,
) -> Observation:
    """Return what ranks show side by side, the fewest ranks first.

    `sides` has the ranks of each side by what they show. The suspects are the given ones, else the smaller of two sides, else all ranks.
    """
    ordered = sorted(sides.items(), key=lambda side: (len(side[1]), *side[1]))
    few, many = ordered[0][1], ordered[-1][1]
    outlier = len(ordered) == 2 and len(few) < len(many)
    everyone = sorted({r for ranks in sides.values() for r in ranks})
    named = tuple(suspects if suspects is not None else few if outlier else everyone)
    parts = [f"{who(ranks, 'other ranks')} {text}" for text, ranks in ordered]
    more = f"; {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else ""
    collect = Collect(named, what, wanted.format(who=who(named, "these ranks")))
    shows = f"{head}: {'; '.join(parts[:_SHOWN])}{more}"
    return Observation(shows, collect, named, True, outlier or bool(suspects), tuple(events))


def reported(case: Case) -> Iterator[Observation]:
    """Yield what reports say of several ranks at once."""
    for read, wanted in _REPORTS:
        report = read(case.incident, case.statements)
        if report is not None:
            named = report.named or (() if isinstance(report.finding, Stalled) else None)
            yield compared(report.by, report.sides, wanted, report.events, what="stack", suspects=named)


def counters(case: Case) -> Observation | None:
    """Read the counters of the group of which ranks print the most different ones; no more than a timeout where they agree."""
    groups: dict[tuple[str, str], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    lowest: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    events: list[WatchdogStatus | DumpSignal] = [
        *case.statements.all(WatchdogStatus),
        *case.statements.all(DumpSignal),
    ]
    for e in events:
        own, key = e.rank if e.rank is not None else e.group_rank, _group(e)
        if (
            e.last_enqueued is not None
            and e.last_completed is not None
            and own is not None
            and own not in lowest[key]
        ):
            lowest[key][own] = e.last_enqueued
            groups[key][f"enqueued {e.last_enqueued} and completed {max(e.last_completed, 0)}"].append(own)
    if not groups:
        return None
    key = max(groups, key=lambda key: (len({*lowest[key].values()}), len(lowest[key])))
    enqueued = lowest[key]
    if len({*enqueued.values()}) == 1 and case.statements.all(WatchdogTimeout, DumpSignal):
        return None
    few = sorted(rank for rank, number in enqueued.items() if number == min(enqueued.values()))
    behind = few if 2 * len(few) <= len(enqueued) else []
    name = f" in group {group_label(*key)}" if key[0] else ""
    wanted = "a stack of {who} (py-spy dump) and the log at that moment, and the same status line of all other ranks of that group"
    of_group = [e for e in events if _group(e) == key]
    return compared(
        f"by their own counters{name}", groups[key], wanted, of_group, what="stack", suspects=behind
    )


def _group(event: WatchdogStatus | DumpSignal) -> tuple[str, str]:
    return (event.group_name or "", event.group_desc or "")


def announced(case: Case) -> Observation | None:
    """Read which ranks reported that they came, of how many."""
    events = [e for e in case.statements.all(Announced) if e.rank is not None]
    world = max((e.world_size for e in events if e.world_size), default=None) or world_size(case.statements)
    came = sorted({e.rank for e in events if e.rank is not None})
    if world is None or not came or case.statements.all(Progress, WatchdogTimeout):
        return None
    missing = others_of(world, came)
    if len(came) >= world:
        return None
    shows = f"{len(came)} of {world} members announced themselves ({ranks_phrase(came)})"
    if len(came) > 1 and all(sum(e.rank == rank for e in events) > 1 for rank in came):
        shows += ", each of them twice or more with the same number"
    shows += f"; {ranks_phrase(missing)} {agree(missing, 'is', 'are')} not in this text" if missing else ""
    text = "NODE_RANK (or SLURM_NODEID), MASTER_ADDR and WORLD_SIZE as each node was started with them"
    return Observation(shows, Collect(missing, "other", text), missing, events=tuple(events))
