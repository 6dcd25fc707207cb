"""How torch names groups in text: `[PG ID 2 PG GUID 9(tp) Rank 4]`."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hangscope.ingest.lines.forms import integer
from hangscope.ingest.recorder.values import user_op
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

if TYPE_CHECKING:
    from typing_extensions import Self

# 2.0-2.2 `[Rank 3]`; 2.3 `[PG 0 Rank 3]`; 2.4 `[PG 0 (default_pg) Rank 3]`; since 2.5 `[PG ID 0 PG GUID 0(default_pg) Rank 3]`.
_GROUP = regex(
    r"\[(?:PG (?:ID \d{1,9} PG GUID )?([^\s\](]{1,200}) ?(?:\(([^)\]]{0,200})\))? )?Rank (\d{1,7})\]"
)
#: nccl2, since 2.15 (torch/csrc/distributed/c10d/nccl2/Logging.hpp): the rank in the communicator, the group's name
_GROUP_2 = regex(r"\[TC\](?:\[rank=(\d{1,7})\])?(?:\[name=([^\]]{0,200})\])?")
_OPS = ("op", "started_op")  # fields with the name of an operation


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEvent(Event, kind=""):
    """What c10d prints of one process group: its name across ranks, its description."""

    group_name: str | None = None
    group_desc: str | None = None

    @classmethod
    def of(cls, line: Any, **fields: Any) -> Self:
        """Return an event with the group that the line names; in the default group the printed rank is the global one.

        It is the writer's also where another rank's prefix precedes a `what():`, which std::terminate prints without any.
        Operations get the names that users know.
        """
        group = group_fields(line.text)
        fields |= {name: user_op(fields[name]) for name in _OPS if fields.get(name)}
        event: Self = line.event(cls, **{**group, **fields})
        copied = line.text.lstrip().startswith("what(): ")
        if (event.rank is None or (copied and event.group_rank is not None)) and is_default_group(group):
            return replace(event, rank=event.group_rank)
        return event


def ranks_in(text: str) -> tuple[int, ...]:
    """Return the ranks that a list names, such as `1, 3`."""
    return tuple(sorted({int(number) for number in re.findall(r"\d{1,7}", text)}))


def group_fields(text: str) -> dict[str, Any]:
    """Return group_rank (local to its group), group_name and group_desc, as far as the text names a group.

    A prefix with a group's name is preferred to a bare `[Rank 3]`, which names none.
    """
    best: dict[str, Any] = {}
    for match in _GROUP.finditer(text[:2000]):
        name, desc, rank = match.groups()
        fields: dict[str, Any] = {"group_rank": int(rank)}
        if name is not None:
            fields |= {"group_name": name, "group_desc": desc or ""}
            return fields
        best = best or fields
    if not best and (head := _GROUP_2.search(text)) is not None:
        best = {"group_rank": integer(head[1]), "group_name": head[2] or None}
    return best


def is_default_group(fields: dict[str, Any]) -> bool:
    """Return whether the group is the default one, whose group-local ranks are the global ranks."""
    name, desc = fields.get("group_name"), fields.get("group_desc")
    return desc == "default_pg" or (name in {"0", "default_pg"} and not desc)
