"""One collective that ranks timed out in, of the lines that their watchdogs print."""

from __future__ import annotations

from collections import defaultdict

from hangscope.causes.case import Case
from hangscope.explain.text.group_size import size_by_elements
from hangscope.ingest.torch_logs.c10d import WatchdogStatus, WatchdogTimeout
from hangscope.ingest.torch_logs.c10d_names import is_default_group
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import group_label
from hangscope.model.regex import regex
from hangscope.verdict.answer.observation import lasted, who

_OPS = {"coalesced": "a coalesced batch (usually the sends and receives of a pipeline)"}
_REPEATED = regex(
    r"\[repeated (\d{1,7})x across cluster\]"
)  # ray/_private/log_monitor.py and ray_logging: lines alike are shown once


@dataclass(frozen=True, slots=True)
class Wait:
    """One collective that ranks timed out in, as their watchdogs print it. `events` are one of each rank.

    `ranks` are global, or as their group counts where `local`; `group` is (name, description), either of which may be empty.
    """

    events: tuple[WatchdogTimeout, ...]
    ranks: tuple[int, ...]
    local: bool
    group: tuple[str, str]

    @property
    def first(self) -> WatchdogTimeout:
        """Return the line that stands for all of them."""
        return self.events[0]

    @property
    def default(self) -> bool:
        """Return whether the group is the one of all ranks."""
        return is_default_group({"group_name": self.group[0] or None, "group_desc": self.group[1] or None})

    def size(self, world: int | None) -> int | None:
        """Return how many ranks take part, by the sizes of what goes in and out, or in the group of all by the size of the job."""
        if (size := size_by_elements(self.first)) is not None:
            return size
        return world if self.default or not self.group[0] else None

    @property
    def repeats(self) -> int:
        """Return how many more times the line was printed, of which Ray shows one."""
        return max((int(m[1]) for e in self.events if (m := _REPEATED.search(e.text))), default=0)

    def who(self) -> str:
        """Return who waited."""
        return who(self.ranks)

    def call(self) -> str:
        """Return the collective as a phrase: its name, seq, group and sizes."""
        e = self.first
        seq = f" seq {e.seq}" if e.seq is not None else ""
        group = f" of group {group_label(*self.group)}" if self.group[0] else ""
        sizes = ""
        if e.numel_in == e.numel_out == 1:
            sizes = " (one element" + (", perhaps a barrier)" if e.op == "all_reduce" else ")")
        elif e.numel_in == 1 and not e.numel_out:
            sizes = " (one element)"
        elif e.numel_in and e.numel_in == e.numel_out:
            sizes = f" ({e.numel_in} elements)"
        elif e.numel_in or e.numel_out:
            sizes = f" ({e.numel_in or 0} elements in, {e.numel_out or 0} out)"
        return f"{_OPS.get(e.op, e.op)}{seq}{group}{sizes}"


def waits(case: Case) -> list[Wait]:
    """Return the collectives that ranks timed out in, the one with most ranks first."""
    groups = {
        (e.rank, e.group_rank, e.seq): (e.group_name, e.group_desc or "")
        for e in case.statements.all(WatchdogStatus)
        if e.group_name
    }
    found: dict[tuple[object, ...], dict[int | None, WatchdogTimeout]] = defaultdict(dict)
    for e in case.statements.all(WatchdogTimeout):
        group = (e.group_name or "", e.group_desc or "")
        group = group if group[0] else groups.get((e.rank, e.group_rank, e.seq), group)
        own = e.rank if e.rank is not None else e.group_rank
        found[(e.op, e.seq, e.numel_in, e.numel_out, *group)].setdefault(own, e)
    for key in [
        key for key in found if not key[4]
    ]:  # the group of a line that names none is that of its peers' lines
        named = [other for other in found if other[:2] == key[:2] and other[4]]
        if len({other[4:] for other in named}) == 1:
            whole = (*key[:4], *named[0][4:])
            found[whole] = {**found.pop(key), **found.get(whole, {})}
    told = []
    for key, by_rank in found.items():
        name, desc = key[4:]
        local = any(e.rank is None or e.rank_assumed for e in by_rank.values())
        also = {
            e.rank
            for e in case.statements.all(WatchdogStatus)
            if key[1] is not None and (e.seq, e.group_name or "") == (key[1], name)
        }
        ranks = tuple(sorted(rank for rank in {*by_rank, *also} if rank is not None))
        told.append(Wait(tuple(by_rank.values()), ranks, local, (str(name), str(desc))))
    return sorted(told, key=lambda wait: (-len(wait.ranks), wait.first.seq or 0, wait.first.line))


def span_of(wait: Wait) -> str:
    """Return how long the first of them waited, and whether that is more than its limit."""
    e = wait.first
    limit, ran = e.timeout_ms or 0, e.ran_ms or e.timeout_ms or 0
    late = f", well over the limit of {lasted(limit)}" if limit and ran > 1.05 * limit + 2000 else ""
    return lasted(ran) + late
