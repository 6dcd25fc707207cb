"""Which global rank a group-local one is, as far as group members or lines that print both tell.

`[rank3]:` is global; `[Rank 1]`, `Rank 1 is running` and everything in a desync report count within a group, which most of
these lines do not name (torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp, TraceUtils.h).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from hangscope.events import Event
from hangscope.incident import Group
from hangscope.ingest.torch_logs.c10d_names import GroupEvent

#: The group that an event speaks of: its name, or for lines that name none whether their own two ranks are equal.
Label = tuple[str | None, bool]


def label_of(event: Event) -> Label:
    """Return which group an event speaks of. Two lines without a name belong together if both or neither print one rank twice."""
    if isinstance(event, GroupEvent) and event.group_name:
        return (event.group_name, True)
    return (None, event.rank is None or event.group_rank is None or event.rank == event.group_rank)


class GroupRanks:
    """The mapping of one incident. `resolve` never guesses across a group whose numbers are known to differ."""

    def __init__(self, groups: Iterable[Group], events: Iterable[Event]) -> None:
        self._members = {g.name: g.ranks for g in groups if g.members_known and g.name}
        self._members.update(
            {g.desc: g.ranks for g in groups if g.members_known and g.desc and g.desc not in self._members}
        )
        self._printed: dict[Label, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        for event in events:
            if event.rank is not None and event.group_rank is not None:
                self._printed[label_of(event)][event.group_rank].add(event.rank)
        self._offset = any(
            rank != local
            for pairs in self._printed.values()
            for local, ranks in pairs.items()
            for rank in ranks
        )

    def resolve(self, event: Event, numbers: Iterable[int]) -> tuple[tuple[int, ...], bool]:
        """Return (global ranks, whether they rest on an assumption) for group-local numbers that an event prints.

        Numbers that nothing maps are taken as global, unless the group is known to count otherwise; then they are left out.
        """
        label = label_of(event)
        members = self._members.get(label[0] or "")
        if members is None and isinstance(event, GroupEvent):
            members = self._members.get(event.group_desc or "")
        pairs = self._printed.get(label, {})
        counts_otherwise = (
            not label[1]
            or any(rank != local for local, ranks in pairs.items() for rank in ranks)
            or (not pairs and _is_a_subgroup(event))
        )
        found: set[int] = set()
        assumed = False
        for number in numbers:
            if members is not None and number < len(members):
                found.add(members[number])
            elif len(pairs.get(number, ())) == 1:
                found |= pairs[number]
            elif not counts_otherwise:
                found.add(number)
                assumed = assumed or not self._is_world(label, pairs)
            else:
                assumed = True
        return tuple(sorted(found)), assumed

    def _is_world(self, label: Label, pairs: dict[int, set[int]]) -> bool:
        """Return whether a group's numbers are the global ones: the default group, or nothing in the job counts otherwise."""
        return label[0] in ("0", "default_pg") or (not self._offset and any(local > 0 for local in pairs))


def _is_a_subgroup(event: Event) -> bool:
    """Return whether an event names a group that is not the default one."""
    if not isinstance(event, GroupEvent):
        return False
    name, desc = event.group_name, event.group_desc
    return bool(name) and name not in ("0", "default_pg") and desc not in ("default_pg", "world")
