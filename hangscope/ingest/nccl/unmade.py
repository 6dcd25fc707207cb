"""Communicators that never became whole, told from the life lines of all processes put together.

One process's line says only that it began. Up to 2.22 START follows bootstrap, which waits for every member, so that
those who wait print no more than the one who never came; from 2.23 START comes first and the absent show (src/init.cc).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hangscope.dataclass import dataclass
from hangscope.events import Event
from hangscope.ingest.nccl.comm import Communicator
from hangscope.ingest.nccl.join import Joined


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmadeCommunicator(Event, kind="nccl_unmade", calm=True):
    """A communicator that never became whole, made from the lines of all processes. Members are global ranks.

    `absent_unknown` counts the absent members that nothing names.
    """

    nranks: int
    name: str | None = None
    absent: tuple[int, ...] = ()
    starting: tuple[int, ...] = ()
    connecting: tuple[int, ...] = ()
    complete: tuple[int, ...] = ()
    absent_unknown: int = 0


def unmade_events(joined: Joined, communicators: Sequence[Communicator]) -> list[UnmadeCommunicator]:
    """Return one event per communicator that some members began and not all completed, with its members as far as they are known."""
    first: dict[str, Communicator] = {}
    for comm in communicators:
        first.setdefault(joined.name_of.get(comm.local_id, comm.name), comm)
    events = []
    for name, state in sorted(joined.inits.items()):
        if len(state.complete) >= state.nranks or not (state.starting or state.connecting):
            continue
        members = joined.members_of_group.get(name, ())
        stages = {
            "absent": state.absent,
            "starting": state.starting,
            "connecting": state.connecting,
            "complete": state.complete,
        }
        fields: dict[str, Any] = {"name": name, "nranks": state.nranks}
        for stage, numbers in stages.items():
            known = tuple(r for n in numbers if n < len(members) and (r := members[n]) is not None)
            fields[stage] = known
            if stage == "absent" and len(known) < len(numbers):
                fields["absent_unknown"] = len(numbers) - len(known)
        on_the_way = len(state.starting) + len(state.connecting)
        text = (
            f"communicator {name} of {state.nranks} ranks: {len(state.complete)} complete, {on_the_way} on the way, "
            f"{len(state.absent)} not seen"
        )
        events.append(_event(first[name], text, fields))
    return events


def _event(comm: Communicator, text: str, fields: dict[str, Any]) -> UnmadeCommunicator:
    return UnmadeCommunicator(comm.file, comm.first_line or 1, text, **fields)
