"""Communicators that never became whole, told from the life lines of all processes put together.

One process's line says only that it began. Up to 2.22 START follows bootstrap, which waits for every member, so that
those who wait print no more than the one who never came; from 2.23 START comes first and the absent show (src/init.cc).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hangscope.ingest.nccl.comm import Communicator
from hangscope.ingest.nccl.join import Joined
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event

_LAID_OUT = 3  # members at one distance from each other, by which that of another place is known


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmadeCommunicator(Event, kind="nccl_unmade", calm=True, size_field="nranks"):
    """A communicator that never became whole, made from the lines of all processes. Members are global ranks.

    `phase`: incomplete, or fewer (whole groups of processes made one less than the others). `absent_unknown` counts the absent
    members that nothing names.
    """

    phase: str
    nranks: int
    name: str | None = None
    absent: tuple[int, ...] = ()
    starting: tuple[int, ...] = ()
    connecting: tuple[int, ...] = ()
    complete: tuple[int, ...] = ()
    absent_unknown: int = 0


def unmade_events(joined: Joined, communicators: Sequence[Communicator]) -> list[UnmadeCommunicator]:
    """Return one event of phase `incomplete` per communicator that some members began and not all completed.

    Members are named as far as they are known. Where no release's line tells of such a communicator, but whole groups of
    processes made one less than the others, one event of phase `fewer` names those processes.
    """
    first: dict[str, Communicator] = {}
    for comm in communicators:
        first.setdefault(joined.name_of.get(comm.local_id, comm.name), comm)
    events = []
    for name, state in sorted(joined.inits.items()):
        if len(state.complete) >= state.nranks or not (state.starting or state.connecting):
            continue
        told = joined.members_of_group.get(name, ())
        members = _laid_out(told)
        stages = {
            "absent": state.absent,
            "starting": state.starting,
            "connecting": state.connecting,
            "complete": state.complete,
        }
        fields: dict[str, Any] = {"phase": "incomplete", "name": name, "nranks": state.nranks}
        fields["rank_assumed"] = members != told
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
    return events or _fewer(joined, communicators)


def _laid_out(members: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """Return the members (global ranks by local one) with those that nothing names, where the others stand at one distance from each other."""
    known = [(place, rank) for place, rank in enumerate(members) if rank is not None]
    if len(known) < _LAID_OUT or len(known) == len(members):
        return members
    (first, lowest), (last, highest) = known[0], known[-1]
    step = (highest - lowest) // (last - first)
    line = tuple(lowest + step * (place - first) for place in range(len(members)))
    return line if step > 0 and line[0] >= 0 and all(line[p] == r for p, r in known) else members


def _fewer(joined: Joined, communicators: Sequence[Communicator]) -> list[UnmadeCommunicator]:
    """Return the event `fewer`, where the counts of completed communicators split the job into whole groups."""
    if any(comm.calls for comm in communicators):
        return []
    made: Counter[int] = Counter()
    last: dict[int, Communicator] = {}
    for comm in communicators:
        rank = joined.rank_of_process.get((comm.file, comm.host, comm.pid))
        if rank is None or not comm.completed:
            return []
        made[rank] += 1
        last[rank] = comm
    if len(set(made.values())) != 2 or max(made.values()) - min(made.values()) != 1:
        return []
    fewer = sorted(r for r, count in made.items() if count == min(made.values()))
    further = sorted(set(made) - set(fewer))
    sizes = {last[r].nranks or 0 for r in further}
    size = sizes.pop()
    # Sister groups of one size cover all processes; anything else is a group that only some ranks have.
    if sizes or size < 2 or len(further) % size or len(fewer) % size:
        return []
    text = f"{len(further)} processes completed one more communicator of {size} ranks than the other {len(fewer)}"
    return [
        _event(
            last[further[0]],
            text,
            {"phase": "fewer", "nranks": size, "absent": tuple(fewer), "complete": tuple(further)},
        )
    ]


def _event(comm: Communicator, text: str, fields: dict[str, Any]) -> UnmadeCommunicator:
    return UnmadeCommunicator(comm.file, comm.first_line or 1, text, **fields)
