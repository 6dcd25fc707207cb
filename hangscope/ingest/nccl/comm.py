"""A communicator as one process knows it, the lines of its life, and its identity across ranks.

    ncclCommInitRank comm 0x5566 rank 3 nranks 16 cudaDev 3 nvmlDev 3 busId 1e000 commId 0x9f21ab - Init COMPLETE

Shapes of src/init.cc by release: 2.4 without busId; 2.5 to 2.15 without commId and without START; commId from 2.16.2; START
from 2.18.3, printed *after* bootstrap up to 2.22 and *before* it from 2.23.4; the API's name from 2.21.5 (2.23.4 for all), with
parent, color and key for splits; splitCount from 2.24.3, called childCount from 2.29.2.

So no release prints a name of every communicator: `commId` names all from 2.16 to 2.22 and from 2.23 on only those that were not
split; for splits there are the parent, a counter (2.24.3 on) and a color; up to 2.15 nothing at all.

Between START and COMPLETE NCCL prints `comm 0x5566 rank 3 nRanks 16 nNodes 2 localRanks 8 localRank 3 MNNVL 0` (from 2.19), which
has no step: it counts as the start where the text begins after that.

Communicators whose creation did not complete, from the life lines of all processes put together.

One process's line states only that it began. Up to 2.22 START follows bootstrap, which waits for every member, so that those
who wait print no more than the one who never came; from 2.23 START comes first and shows who is absent (src/init.cc).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from hangscope.ingest.nccl.line import POINTER
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.ingest.recorder.recording import Recording
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.incident import ASSUMED
from hangscope.model.regex import regex

#: One step in a communicator's life; the groups are named after the fields of `Communicator`.
_LIFE = regex(
    rf"(?:\[Rank \d{{1,7}}\] )?(?:(?P<api>ncclComm\w{{1,40}}) )?comm (?P<pointer>{POINTER}) "
    r"rank (?P<comm_rank>\d{1,7}) n[rR]anks (?P<nranks>\d{1,7})(?: nNodes \d{1,7} localRanks \d{1,7} |"
    r" cudaDev (?P<cuda_dev>-?\d{1,5})(?: nvmlDev -?\d{1,5})?"
    r"(?: busId (?P<bus_id>[0-9a-f]{1,16}))?"
    rf"(?: parent (?P<parent_pointer>{POINTER}))?(?: (?:splitCount|childCount) (?P<split>\d{{1,9}}))?"
    r"(?: color (?P<color>-?\d{1,20}) key -?\d{1,20})?(?: commId (?P<comm_id>0x[0-9a-f]{1,16}))?"
    r"(?: localSize \d{1,7} used \d{1,20} bytes(?: on core \d{1,7})?)?"
    r" ?- (?P<step>(?:Init|Abort|Revoke) (?:START|COMPLETE)|Destroy COMPLETE))"
)


class NcclInit(Event, calm=True, size_field="nranks"):
    """One step in a communicator's life as one process prints it, or (without a `step`) that process's first line.

    `step` is Init START, Init COMPLETE, Abort START, ...; `bus_id` is that of the process's GPU.
    """

    step: str = ""
    nranks: int | None = None
    bus_id: str | None = None


@dataclass(slots=True)
class Communicator:
    """One communicator of one process, from its creation to the reuse of its pointer. Plain builtins only.

    `local_id` is unique over all inputs and is the local group id in the process's Recording. `name` is the identity across
    ranks; `assumed`: it rests on the number of ranks and the order of creation, or on no printed counter. `comm_rank` and
    `nranks` are group-local. `step` is the last one of its life, empty where only calls on it were logged; `completed` stays True
    when it ends later. `intact` is False where a torn line hides how many calls
    follow the last recorded one: its silence proves nothing.
    """

    file: str
    host: str
    pid: int | None
    pointer: str
    local_id: str
    name: str = ""
    comm_rank: int | None = None
    nranks: int | None = None
    bus_id: str | None = None
    cuda_dev: int | None = None
    step: str = ""
    assumed: bool = False
    completed: bool = False
    intact: bool = True
    comm_id: str | None = None
    parent: str | None = None  # local_id of the communicator that it was split from, where that was seen
    split: int | None = None  # which split of the parent, counted from 1
    split_printed: bool = False
    color: int | None = None
    api: str | None = None
    children: int = 0  # how often this process took part in splitting it
    calls: int = 0  # collectives
    first_line: int = 0
    last_line: int = 0
    ip: str | None = None  # the process's bootstrap address
    network: str | None = None  # the process's transport: IB, Socket, or a plugin's name


def parse_life(message: str) -> re.Match[str] | None:
    """Return the match of a line that states a step of a communicator's life, or None for other messages.

    Its groups are fields of `Communicator` and `parent_pointer`.
    """
    match = _LIFE.match(message)
    return match if match is not None and int(match["nranks"]) <= MAX_RANKS else None  # no job has more


def name_communicators(communicators: list[Communicator]) -> None:
    """Give each communicator of one process, in order of creation, its identity across ranks.

    commId where it is printed (with a count where splits of one parent and color share one, as they do up to
    2.23); else the parent's identity, the split's number and its color; else the number of ranks and the
    order of creation.
    """
    by_id = {comm.local_id: comm for comm in communicators}
    used: dict[tuple[str, int | None], int] = {}
    created: dict[int | None, int] = {}
    for comm in communicators:
        if comm.comm_id:
            key = (comm.comm_id, comm.comm_rank)
            used[key] = used.get(key, 0) + 1
            comm.name = f"comm {comm.comm_id}" + (f" #{used[key]}" if used[key] > 1 else "")
        elif comm.split is not None:
            parent = by_id.get(comm.parent) if comm.parent else None
            word = "shrink" if comm.api == "ncclCommShrink" else "split"
            color = f" color {comm.color}" if comm.color is not None else ""
            comm.name = f"{parent.name if parent else 'comm ?'}/{word} {comm.split}{color}"
            comm.assumed = parent is None or parent.assumed or not comm.split_printed
        else:
            nth = created[comm.nranks] = created.get(comm.nranks, 0) + 1
            size = f" of {comm.nranks} ranks" if comm.nranks is not None else ""
            comm.name, comm.assumed = f"comm#{nth}{size} {ASSUMED}", True


_EQUALLY_SPACED = 3  # members that show the distance between all of them


@dataclass(slots=True, eq=False)
class Member:
    """One process (or one device of it), its communicators, and the global rank found for it."""

    recording: Recording
    comms: list[Communicator]
    rank: int | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        """Return where the communicator was created: file, host, and process id (0: not known)."""
        first = self.comms[0]
        return (first.file, first.host, first.pid or 0)


Place = tuple[Member, Communicator]


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
