"""Who timed out in which collective, how many ranks take part in it, and which of them the text does not show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from hangscope.causes.case import Case, who
from hangscope.explain.text.group_size import others_of, stated_size, world_size
from hangscope.explain.text.stop import begun, clock
from hangscope.ingest.job_logs.last_lines import Printed
from hangscope.ingest.torch_logs.c10d import WatchdogStatus, WatchdogTimeout, is_default_group
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import group_label
from hangscope.model.rankset import agree, ranks_phrase
from hangscope.model.regex import regex
from hangscope.verdict.answer.comparisons import compared, path_between
from hangscope.verdict.answer.observation import Observation, lasted
from hangscope.verdict.answer.text import groups
from hangscope.verdict.phrasing import short

_FEW = 8  # ranks that are suspects together
_OPS = {"coalesced": "a coalesced batch (usually the sends and receives of a pipeline)"}
_HALVES = {
    "send": "; a send ends only when its peer posts the matching recv",
    "recv": "; a recv ends only when its peer posts the matching send",
}
_QUOTED = 2  # last lines of other ranks
_Group = tuple[str, str]  # name and description, either of which may be empty
_PAUSED = ". A watchdog fires so late only if its process or host was stopped or suspended, or if it was blocked itself"
_Key = tuple[str, int | None, int | None, int | None, _Group]  # op, seq, elements in and out, group
#: ray/_private/log_monitor.py and ray_logging: lines alike are shown once
_REPEATED = regex(r"\[repeated (\d{1,7})x across cluster\]")


@dataclass(frozen=True, slots=True)
class Wait:
    """One collective that ranks timed out in, as their watchdogs print it. `events` are one of each rank.

    `ranks` are global, or as their group counts where no line has a global one; `group` is (name, description), either of which may be empty.
    """

    events: tuple[WatchdogTimeout, ...]
    ranks: tuple[int, ...]
    group: _Group

    @property
    def default(self) -> bool:
        """Return whether the group is the one of all ranks, or may be."""
        names = {"group_name": self.group[0] or None, "group_desc": self.group[1] or None}
        return not any(self.group) or is_default_group(names)

    def size(self, world: int | None) -> int | None:
        """Return how many ranks take part, by the sizes of what goes in and out, or in the group of all by the size of the job."""
        by_elements = self.events[0].members
        return by_elements if by_elements is not None else world if self.default else None

    @property
    def repeats(self) -> int:
        """Return how many more times the line was printed, of which Ray shows one."""
        return max((int(m[1]) for e in self.events if (m := _REPEATED.search(e.text))), default=0)

    def call(self) -> str:
        """Return the collective as a phrase: its name, seq and group."""
        e = self.events[0]
        seq = f" seq {e.seq}" if e.seq is not None else ""
        group = f" of group {group_label(*self.group)}" if self.group[0] else ""
        if self.group[1] and not group:
            group = f" of the groups {self.group[1]}"
        return f"{_OPS.get(e.op, e.op)}{seq}{group}"

    @property
    def paused(self) -> str:
        """Return what it means that the watchdog reported it long after its limit, empty where it did not."""
        return _PAUSED if any(e.is_late for e in self.events) else ""

    def sizes(self) -> str:
        """Return how many elements go in and out, empty where the line does not say."""
        e = self.events[0]
        if e.numel_in and e.numel_in == (e.numel_out or e.numel_in):
            return f"{e.numel_in} elements" if e.numel_in > 1 else "one element"
        return f"{e.numel_in or 0} elements in, {e.numel_out or 0} out" if e.numel_in or e.numel_out else ""

    def timed_out(self) -> str:
        """Return `timed out after 600 s in all_reduce seq 7 (64 elements)`."""
        return f"timed out after {self.span()} in {self.call()}" + (f" ({s})" if (s := self.sizes()) else "")

    def span(self) -> str:
        """Return how long the first rank waited, from when to when, and its limit where it waited well over it."""
        e = min(self.events, key=lambda e: e.stamp or 0.0)
        limit, ran = e.timeout_ms or 0, e.ran_ms or e.timeout_ms or 0
        late = f", well over the limit of {lasted(limit)}" if limit and ran > 1.05 * limit + 2000 else ""
        if e.stamp is None:
            return f"{lasted(ran)}{late}"
        return f"{lasted(ran)}{late} (from {clock(begun(e.stamp, ran / 1000))} to {clock(e.stamp)})"


def waits(case: Case) -> list[Wait]:
    """Return the collectives that ranks timed out in, the one with most ranks first."""
    statuses, timed = case.statements.all(WatchdogStatus), case.statements.all(WatchdogTimeout)
    lines: list[WatchdogStatus | WatchdogTimeout] = [*statuses, *timed]
    printed = {(e.rank, e.group_rank, e.seq): _group(e) for e in lines if e.group_name}
    named: dict[tuple[str, int | None], set[_Group]] = defaultdict(set)
    for e in timed:
        named[(e.op, e.seq)] |= {group for group in [printed.get((e.rank, e.group_rank, e.seq))] if group}
    found: dict[_Key, dict[int | None, WatchdogTimeout]] = defaultdict(dict)
    for e in timed:  # a line that names no group has that of its peers' lines
        group = printed.get((e.rank, e.group_rank, e.seq), ("", ""))
        if not any(group) and len(named[(e.op, e.seq)]) == 1:
            (group,) = named[(e.op, e.seq)]
        own = e.rank if e.rank is not None else e.group_rank
        found[(e.op, e.seq, e.numel_in, e.numel_out, group)].setdefault(own, e)
    result, timed_out = [], {e.rank for e in timed}
    for (_, seq, _, _, group), by_rank in found.items():
        of_it = [e.rank for e in statuses if e.seq == seq and (e.group_name or "") == group[0]]
        also = {*of_it} - timed_out if seq is not None else set()
        ranks = tuple(sorted(rank for rank in {*by_rank, *also} if rank is not None))
        result.append(Wait(tuple(by_rank.values()), ranks, group))
    return sorted(_of_siblings(result), key=lambda w: (-len(w.ranks), w.events[0].seq or 0, w.events[0].line))


def _of_siblings(found: Sequence[Wait]) -> list[Wait]:
    """Return the waits, those that are alike in groups of one purpose (stages of several pipelines) as one."""
    alike: dict[_Key, list[Wait]] = defaultdict(list)
    for wait in found:
        e = wait.events[0]
        purpose = ("", wait.group[1]) if wait.group[1] and not wait.default else wait.group
        alike[(e.op, e.seq, e.numel_in, e.numel_out, purpose)].append(wait)
    result = []
    for (*_, purpose), waits in alike.items():
        ranks = [rank for wait in waits for rank in wait.ranks]
        if len(waits) == 1 or len(ranks) > len(set(ranks)):
            result += waits
        else:
            events = tuple(event for wait in waits for event in wait.events)
            result.append(Wait(events, tuple(sorted(ranks)), purpose))
    return result


def _group(event: WatchdogStatus | WatchdogTimeout) -> _Group:
    return (event.group_name or "", event.group_desc or "")


def timeouts(case: Case) -> Observation | None:
    """Read the watchdogs' timeouts, compared with the size of their group."""
    found = waits(case)
    if len(found) > 1:
        return _several(case, found)
    if not found:
        return None
    wait, size = found[0], found[0].size(world_size(case.statements))
    job = stated_size(case.incident, case.statements)
    if size is None and wait.ranks and job is not None and wait.ranks == (*range(job),):
        size = job  # all ranks of the job are in it
    complete = size is not None and len(wait.ranks) == size
    missing = others_of(size, wait.ranks) if wait.default and not wait.repeats else ()
    shows = f"{who(wait.ranks, 'a process')} {wait.timed_out()}"
    shows += _HALVES.get(wait.events[0].op, "")
    shows += f"; Ray repeated the line {wait.repeats} times across the cluster" if wait.repeats else ""
    heard = {e.rank for events in case.statements.kinds.values() for e in events if not e.by_launcher}
    shows += _membership(wait, size, missing, [rank for rank in missing if rank in heard])
    others = sorted(case.statements.ranks(Printed) - set(wait.ranks))
    printed = [(rank, e.texts[-1]) for rank in others for e in case.statements.of(rank, Printed)[-1:]]
    shows += "".join(f"; the last line of rank {rank} is '{short(text)}'" for rank, text in printed[:_QUOTED])
    if complete and first_of_all(case, wait):
        shows += ", and it is the first collective of that group: none of them is missing, so the path between their GPUs is in question"
        text = path_between(case)
    elif complete:
        text = "NCCL_DEBUG=INFO and the flight recorder of every rank: whether its kernel had started"
    elif wait.repeats:
        text = "the files of every worker (/tmp/ray/session_latest/logs/worker-*.err): the one without this timeout"
    else:
        text = f"the watchdog lines, or flight recorder dumps, of {who(missing, 'all other members')}: which of them enqueued fewer, or printed no timeout"
        text = text if size is not None or not wait.default else f"how many ranks the job has, and {text}"
    bar = next((g for g in groups(case) if g.unfinished and not set(g.ranks) & set(wait.ranks)), None)
    if bar is not None and not complete:
        shows += f"; a process of the job was at '{bar.text}', which the others may be waiting for"
        text = "which rank prints that bar, and its stack: work that one rank does while the others wait belongs before init_process_group, or needs a longer timeout"
    elif len(missing) == 1:
        text = f"a stack of {ranks_phrase(missing)} (py-spy dump), and its log from that moment on"
    shows += wait.paused
    return Observation(shows, text, "log", missing, True, False, wait.events)


def first_of_all(case: Case, wait: Wait) -> bool:
    """Return whether ranks wait in the first collective of their group: it has the number 1, or their watchdogs count none before it as completed."""
    seq = wait.events[0].seq
    counted = [e for e in case.statements.all(WatchdogStatus) if e.rank in wait.ranks and e.seq == seq]
    return seq == 1 or (bool(counted) and all(e.last_completed <= 0 for e in counted))


def _membership(wait: Wait, size: int | None, missing: Sequence[int], heard: Sequence[int]) -> str:
    """Return how many members the group has, and which of those without a timeout the text does not show; `heard` have other lines."""
    they = agree(wait.ranks or (0,), "it was", "they were")
    if size is None:
        return f"; the text shows neither the size of the group nor which rank {they} waiting for"
    if len(wait.ranks) == size:
        return f"; these are all {size} members"
    if missing:
        unseen = [rank for rank in missing if rank not in heard]
        absent = (
            f"; {ranks_phrase(unseen)} of {size} {agree(unseen, 'is', 'are')} not shown" if unseen else ""
        )
        return absent + (f"; {ranks_phrase(heard)} printed no timeout" if heard else "")
    shown = len(wait.ranks) + wait.repeats
    return f"; {size} ranks take part, of which {shown} reported that wait; the text does not show which rank {they} waiting for"


def _several(case: Case, found: Sequence[Wait]) -> Observation:
    """Read timeouts in several collectives, or in one with different sizes."""
    sides = {w.timed_out(): w.ranks for w in found}
    head = ""
    if len({w.call() for w in found}) == 1 and all(w.sizes() for w in found):
        head = f"all of them timed out after {found[0].span()} in {found[0].call()}, with different sizes"
        sides = {f"with {w.sizes()}": w.ranks for w in found}
    groups, ranks = {w.group for w in found}, [r for w in found for r in w.ranks]
    apart = len(groups) == 1 and len(ranks) == len(set(ranks)) <= _FEW
    text = "the earliest timeout of every rank, with its group: which rank waits for which, back to the first one without a timeout"
    if apart:
        text = "where in the program {who} issued it; a rerun with TORCH_DISTRIBUTED_DEBUG=DETAIL stops at the first collective that differs"
    events = [e for w in found for e in w.events]
    sizes = [w.size(world_size(case.statements)) for w in found if w.default]
    unseen = others_of(max(filter(None, sizes), default=None), case.statements.of_rank)
    behind = bool(unseen) and apart and len({w.events[0].seq for w in found}) == len(found)
    if behind:  # whoever printed nothing may be behind all of them
        text = f"the log and a stack of {ranks_phrase(unseen)}; {text}"
    seen = compared(head, sides, text, events, suspects=unseen if behind else None if apart else ())
    unnamed = "; the lines do not name the group" if ("", "") in groups else ""
    unnamed += f"; {ranks_phrase(unseen)} {agree(unseen, 'is', 'are')} not shown" if unseen else ""
    unnamed += max(w.paused for w in found)
    return replace(seen, shows=f"{seen.shows}{unnamed}", blamed=False)
