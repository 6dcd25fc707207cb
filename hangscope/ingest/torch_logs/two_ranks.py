"""Lines that cannot be of the rank that they say: of one that no job has, or of two ranks at once.

    [rank4]:[E312 07:30:16.261318054 ProcessGroupNCCL.cpp:2636] [PG ID 0 PG GUID 0(default_pg) Rank 7] First PG on this rank ...

In the default group a rank's number is its global one. Whose such a line is cannot be known, nor what else of its file is changed.
"""

from __future__ import annotations

from collections.abc import Iterable

from hangscope.errors import Note
from hangscope.events import Event
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.ingest.torch_logs.c10d_names import GroupEvent, is_default_group
from hangscope.regex import regex

PREFIX = regex(r"\[rank(-?\d{1,400})\]:")
HINT = "copy the log again from where the job wrote it, or leave it out"


def contradiction(events: Iterable[Event]) -> list[Note]:
    """Return a note on the first line that contradicts itself, of the events of one log."""
    for event in events:
        why = _why(event)
        if why:
            return [Note("contradiction", why, event.file, event.line, HINT)]
    return []


def _why(event: Event) -> str:
    prefix = PREFIX.search(event.text)
    if prefix is None:
        return ""
    told = int(prefix[1])
    if not 0 <= told < MAX_RANKS:
        return f"a line says that it is of rank {prefix[1][:24]}, which no job has"
    copied = (
        "]: what(): " in event.text or "]:  what(): " in event.text
    )  # a prefix of whoever copied the line
    if (
        isinstance(event, GroupEvent)
        and event.group_desc
        and event.group_rank not in (None, told)
        and not copied
    ):
        group = {"group_name": event.group_name, "group_desc": event.group_desc}
        if is_default_group(group):
            return f"a line says that it is of rank {told}, and of rank {event.group_rank} of the group of all ranks"
    return ""
