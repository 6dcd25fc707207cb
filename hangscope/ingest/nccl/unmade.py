"""Communicators whose creation did not complete, from the life lines of all processes put together.

One process's line states only that it began. Up to 2.22 START follows bootstrap, which waits for every member, so that those
who wait print no more than the one who never came; from 2.23 START comes first and shows who is absent (src/init.cc).
"""

from __future__ import annotations

from collections import Counter, defaultdict

from hangscope.ingest.nccl.comm import Communicator
from hangscope.ingest.nccl.ranks import Member
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event

_EQUALLY_SPACED = 3  # members that show the distance between all of them

Place = tuple[Member, Communicator]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmadeCommunicator(Event, kind="nccl_unmade", calm=True, size_field="nranks"):
    """A communicator whose creation did not complete, from the lines of all processes. Members are global ranks.

    `phase`: incomplete, or fewer (complete groups of processes created one less than the others). `absent` were never seen to
    start, the `blocked` did and did not complete. `absent_unknown` counts the absent members whose rank is not known. `other_size`: the
    few that began it with `of_other_size` ranks instead of `nranks`.
    """

    phase: str
    nranks: int
    name: str | None = None
    absent: tuple[int, ...] = ()
    blocked: tuple[int, ...] = ()
    complete: tuple[int, ...] = ()
    absent_unknown: int = 0
    other_size: tuple[int, ...] = ()
    of_other_size: int = 0


def unmade(name: str, part: list[Place], known: tuple[int | None, ...]) -> UnmadeCommunicator | None:
    """Return the event of a communicator that some members began and not all completed, else None.

    `known` are its members as far as they are known.
    """
    completed = {comm.comm_rank: comm.completed for _, comm in part if comm.comm_rank is not None}
    blocked, places = sum(not whole for whole in completed.values()), range(len(known))
    if not blocked:
        return None
    members = _equally_spaced(known)
    (size, _), *others = Counter(comm.nranks or 0 for _, comm in part).most_common()
    few = {m.rank for m, comm in part if len(others) == 1 and comm.nranks != size and m.rank is not None}
    few = few if 2 * len(few) < len(part) else set()
    absent, began, complete = (
        tuple(
            rank for place in places if completed.get(place) is state and (rank := members[place]) is not None
        )
        for state in (None, False, True)
    )
    missing = sum(place not in completed for place in places)
    text = f"communicator {name} of {len(known)} ranks: {sum(completed.values())} complete, {blocked} on the way, {missing} not seen"
    first = min((comm for _, comm in part), key=lambda comm: (comm.file, comm.first_line))
    return UnmadeCommunicator(
        first.file,
        first.first_line or 1,
        text,
        phase="incomplete",
        name=name,
        nranks=size if few else len(known),
        rank_assumed=members != known,
        other_size=tuple(sorted(few)),
        of_other_size=others[0][0] if few else 0,
        absent=absent,
        blocked=began,
        complete=complete,
        absent_unknown=missing - len(absent),
    )


def _equally_spaced(members: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """Return the members (global ranks by local one) with the unknown ones, where the others have one distance from each other."""
    known = [(place, rank) for place, rank in enumerate(members) if rank is not None]
    if len(known) < _EQUALLY_SPACED or len(known) == len(members):
        return members
    (first, lowest), (last, highest) = known[0], known[-1]
    step = (highest - lowest) // (last - first)
    line = tuple(lowest + step * (place - first) for place in range(len(members)))
    return line if step > 0 and line[0] >= 0 and all(line[p] == r for p, r in known) else members


def one_less(members: list[Member]) -> list[UnmadeCommunicator]:
    """Return the event `fewer`, where the counts of completed communicators split the job into whole groups."""
    by_count: dict[int, list[Member]] = defaultdict(list)
    for member in members:
        if member.rank is None or any(comm.calls or not comm.completed for comm in member.comms):
            return []
        by_count[len(member.comms)].append(member)
    least, *more = sorted(by_count) or [0]
    if more != [least + 1]:
        return []
    fewer, further = ([m.rank for m in by_count[count] if m.rank is not None] for count in (least, *more))
    lasts = [member.comms[-1] for member in by_count[least + 1]]
    sizes = {comm.nranks or 0 for comm in lasts}
    size = min(sizes)
    # Sister groups of one size cover all processes; anything else is a group that only some ranks have.
    if len(sizes) > 1 or size < 2 or len(further) % size or len(fewer) % size:
        return []
    text = f"{len(further)} processes completed one more communicator of {size} ranks than the other {len(fewer)}"
    place = (lasts[0].file, lasts[0].first_line or 1)
    absent, complete = tuple(sorted(fewer)), tuple(sorted(further))
    return [UnmadeCommunicator(*place, text, phase="fewer", nranks=size, absent=absent, complete=complete)]
