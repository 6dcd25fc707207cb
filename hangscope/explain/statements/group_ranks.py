"""Which global rank a group-local one is, as far as group members or lines that print both show it.

`[rank3]:` is global; `[Rank 1]`, `Rank 1 is running` and everything in a desync report count within a group, which most of
these lines do not name (torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp, TraceUtils.h).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from hangscope.ingest.torch_logs.c10d import GroupEvent
from hangscope.model.events import Event
from hangscope.model.incident import Group

#: The group of an event: its name, or for lines without one whether their own two ranks are equal.
Label = tuple[str | None, bool]
_WORLD = frozenset({"0", "default_pg", "world"})


def label_of(event: Event) -> Label:
    """Return the group of an event. Two lines without a name belong together if both or neither print one rank twice."""
    if isinstance(event, GroupEvent) and event.group_name:
        return (event.group_name, True)
    return (None, event.rank is None or event.group_rank is None or event.rank == event.group_rank)


class GroupRanks:
    """The mapping of one incident, with the descriptions of groups by name (`descs`) that lines print."""

    def __init__(self, groups: Iterable[Group], events: Iterable[Event]) -> None:
        known = [group for group in groups if group.members_known]
        self._members = {group.desc: group.ranks for group in known}
        self._members |= {group.name: group.ranks for group in known}
        self._printed: dict[Label, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        self.descs: dict[str, str] = {}
        for event in events:
            if event.rank is not None and event.group_rank is not None:
                self._printed[label_of(event)][event.group_rank].add(event.rank)
            if isinstance(event, GroupEvent) and event.group_name:
                self.descs.setdefault(event.group_name, event.group_desc or "")
        self._offset = any(map(_differ, self._printed.values()))

    def printed(self, name: str) -> dict[int, int]:
        """Return the global rank of each group-local rank that lines print of the group of a name."""
        return {local: min(ranks) for local, ranks in sorted(self._printed.get((name, True), {}).items())}

    def resolve(self, event: Event, numbers: Iterable[int]) -> tuple[tuple[int, ...], bool]:
        """Return (global ranks, whether assumed) for the group-local numbers of an event: global ones, unless its group counts otherwise."""
        label = label_of(event)
        names = (event.group_name, event.group_desc) if isinstance(event, GroupEvent) else ()
        members = next((self._members[name] for name in names if name and name in self._members), ())
        printed = self._printed.get(label, {})
        subgroup = bool(names and names[0]) and _WORLD.isdisjoint(filter(None, names))
        counts_otherwise = not label[1] or _differ(printed) or (subgroup and not printed)
        # The default group's numbers are the global ones; so they are where nothing in the job counts otherwise.
        is_world = label[0] in _WORLD or not self._offset
        found: set[int] = set()
        assumed = False
        for number in numbers:
            if number < len(members):
                found.add(members[number])
            elif len(printed.get(number, ())) == 1:
                found |= printed[number]
            else:
                assumed = assumed or counts_otherwise or not is_world
                found |= set() if counts_otherwise else {number}
        return tuple(sorted(found)), assumed


def _differ(printed: dict[int, set[int]]) -> bool:
    """Return whether lines print another global rank beside a group-local one."""
    return any(ranks != {local} for local, ranks in printed.items())
