"""The NCCL processes of a job put together: which ranks each communicator joins, how far its creation came.

Ranks come from `ranks`, identities from `comm`. Everything that rests on an assumption leaves a note.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from hangscope.errors import Note
from hangscope.ingest.nccl.comm import Communicator, Member, Place, UnmadeCommunicator, one_less, unmade
from hangscope.ingest.nccl.ranks import rank_members
from hangscope.ingest.recorder.recording import Recording
from hangscope.model.dataclass import dataclass

#: Ranks that all communicators of a job may have together: 16,384 ranks in 256 groups each; forged lines claim more.
_MEMBERS_IN_ALL = 2**22

#: (file, host, pid)
ProcessKey = tuple[str, str, "int | None"]
Ranks = tuple["int | None", ...]


@dataclass(slots=True)
class Joined:
    """The processes of a job put together.

    `recordings`: copies with `rank`, `groups` and `config` (name -> members, None where not all are known)
    filled in. `rank_of_process` leaves out processes that drive several ranks. `members_of_group`: global
    ranks in the order of their rank in that communicator, None where a member is not known. `name_of`:
    local_id -> group name. `unmade`: communicators whose creation did not complete.
    """

    recordings: list[Recording] = field(default_factory=list)
    rank_of_process: dict[ProcessKey, int | None] = field(default_factory=dict)
    members_of_group: dict[str, Ranks] = field(default_factory=dict)
    name_of: dict[str, str] = field(default_factory=dict)
    unmade: list[UnmadeCommunicator] = field(default_factory=list)
    host_of_ip: dict[str, str] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)


def join_processes(
    recordings: Sequence[Recording],
    communicators: Sequence[Communicator],
    rank_hints: Mapping[str, int] | None = None,
) -> Joined:
    """Return the processes with their global ranks and the communicators with their members.

    `recordings` and `communicators` are those of any number of parsers; inputs are not changed. `rank_hints`
    maps a file to the global rank that its name or its torch lines indicate. Processes of one restart attempt are
    expected; of several in one input the last is taken.
    """
    by_id = {comm.local_id: comm for comm in communicators}
    members = []
    for recording in recordings:
        comms = [by_id[group[0]] for group in recording.groups if group[0] in by_id]
        if comms:
            members.append(Member(recording, comms))
    members.sort(key=lambda m: (m.key, m.comms[0].bus_id or ""))
    joined = Joined()
    world = rank_members(members, rank_hints or {}, joined.notes)
    _group(members, world, joined)
    complete = {
        name: tuple(rank for rank in ranks if rank is not None)
        for name, ranks in joined.members_of_group.items()
        if ranks and None not in ranks
    }
    processes: dict[ProcessKey, set[int | None]] = defaultdict(set)
    for member in members:
        first = member.comms[0]
        processes[(first.file, first.host, first.pid)].add(member.rank)
        if first.ip:
            joined.host_of_ip.setdefault(first.ip, first.host)
        groups = [(g[0], joined.name_of.get(g[0], g[1]), g[2]) for g in member.recording.groups]
        config = {name: ("", complete.get(name)) for _, name, _ in groups}
        joined.recordings.append(replace(member.recording, rank=member.rank, groups=groups, config=config))
    joined.rank_of_process = {key: next(iter(ranks)) for key, ranks in processes.items() if len(ranks) == 1}
    joined.unmade = joined.unmade or one_less(members)
    _note_networks(members, joined.notes)
    return joined


def _group(members: list[Member], world: int | None, joined: Joined) -> None:
    """Name the groups, list their members, and find those whose creation did not complete."""
    groups = _groups(members)
    joined.name_of = {comm.local_id: name for name, part in groups.items() for _, comm in part}
    room, too_many = _MEMBERS_IN_ALL, 0
    for name, part in groups.items():
        nranks = max((c.nranks for _, c in part if c.nranks is not None), default=0)
        too_many += nranks > room
        nranks = 0 if nranks > room else nranks
        room -= nranks
        joined.members_of_group[name] = _members(part, nranks, world)
        _note_duplicates(name, part, joined.notes)
    _fill_splits(groups, joined)
    events = (unmade(name, part, joined.members_of_group[name]) for name, part in groups.items())
    joined.unmade = [event for event in events if event is not None]
    if too_many:
        text = f"{too_many} communicators claim more ranks than all jobs have; their members are left out"
        joined.notes.append(Note("too_many_communicators", text))
    if assumed := [name for name, part in groups.items() if any(comm.assumed for _, comm in part)]:
        first = groups[assumed[0]][0][1]
        text = f"{len(assumed)} communicators were joined across ranks by size, order of creation and rank: NCCL printed no id for them; the first is {assumed[0]}"
        joined.notes.append(Note("assumed_communicator", text, first.file, first.first_line or None))


def _groups(members: list[Member]) -> dict[str, list[Place]]:
    """Return the members of each communicator by its name; communicators that share one assumed identity are separated.

    Of several processes with the same rank, the i-th is a member of the i-th such communicator. Processes are taken by ascending global rank, which is right for every
    grid of ranks whose groups list their ranks in ascending order.
    """
    named: dict[str, list[Place]] = defaultdict(list)
    for member in members:
        for comm in member.comms:
            named[comm.name].append((member, comm))
    groups: dict[str, list[Place]] = {}
    for name, places in sorted(named.items()):
        parts: dict[int, list[Place]] = defaultdict(list)
        seen: dict[int, int] = defaultdict(int)
        assumed = any(comm.assumed for _, comm in places)
        for member, comm in sorted(places, key=lambda p: (p[0].rank is None, p[0].rank or 0, p[0].key)):
            number = 0
            if assumed and comm.comm_rank is not None:
                number = seen[comm.comm_rank]
                seen[comm.comm_rank] += 1
            parts[number].append((member, comm))
        for number, part in sorted(parts.items()):
            groups[name if len(parts) == 1 else f"{name}, set {number + 1}"] = part
    return groups


def _members(part: list[Place], nranks: int, world: int | None) -> Ranks:
    """Return the members of a group of so many ranks; one of the size of the job has its ranks."""
    known = [(comm.comm_rank, member.rank) for member, comm in part if comm.comm_rank is not None]
    if nranks and nranks == world and all(number == rank for number, rank in known):
        return tuple(range(world))
    slots: list[int | None] = [None] * nranks
    for number, rank in known:
        if number < nranks:
            slots[number] = rank
    return tuple(slots)


def _fill_splits(groups: Mapping[str, list[Place]], joined: Joined) -> None:
    """Fill the one empty place of a split where one process alone was not seen in it."""
    splits: dict[tuple[str, int], list[str]] = defaultdict(list)
    for name, part in groups.items():
        parent, split = joined.name_of.get(part[0][1].parent or ""), part[0][1].split
        if parent is not None and split is not None:
            splits[(parent, split)].append(name)
    for (parent, split), names in sorted(splits.items()):
        seen = {member.rank for member, comm in groups[parent] if comm.children >= split}
        missing = [r for r in joined.members_of_group[parent] if r is not None and r not in seen]
        holes = [(n, i) for n in names for i, rank in enumerate(joined.members_of_group[n]) if rank is None]
        if len(holes) == len(missing) == 1:
            ((name, place),) = holes
            slots = list(joined.members_of_group[name])
            slots[place] = missing[0]
            joined.members_of_group[name] = tuple(slots)
            text = f"rank {missing[0]} is taken for unseen member {place} of {name}: it alone was not in the split"
            joined.notes.append(Note("assumed_member", text))


def _note_duplicates(name: str, part: list[Place], notes: list[Note]) -> None:
    """Note ranks of a group that several processes claim, and GPUs that several of its ranks use."""
    file = part[0][1].file
    by_rank: dict[int, set[tuple[str, str, int]]] = defaultdict(set)
    by_bus: dict[tuple[str, str], set[int]] = defaultdict(set)
    for member, comm in part:
        if comm.comm_rank is not None:
            by_rank[comm.comm_rank].add(member.key)
            if comm.bus_id and comm.host:
                by_bus[(comm.host, comm.bus_id)].add(comm.comm_rank)
    for rank, keys in sorted(by_rank.items()):
        if len(keys) > 1:
            who = ", ".join(f"{host}:{pid}" for _, host, pid in sorted(keys))
            text = f"{len(keys)} processes are rank {rank} of {name}: {who}"
            notes.append(Note("duplicate_rank", text, file))
    for (host, bus), ranks in sorted(by_bus.items()):
        if len(ranks) > 1:
            text = f"ranks {sorted(ranks)} of {name} share the GPU {bus} of {host}"
            notes.append(Note("duplicate_gpu", text, file))


def _note_networks(members: list[Member], notes: list[Note]) -> None:
    """Note that processes use different networks between nodes."""
    networks: dict[str, list[str]] = defaultdict(list)
    for member in members:
        if network := member.comms[0].network:
            _, host, pid = member.key
            networks[network].append(f"{host}:{pid}" if member.rank is None else str(member.rank))
    if len(networks) > 1:
        text = "; ".join(f"{n}: {len(who)} processes, first {who[0]}" for n, who in sorted(networks.items()))
        notes.append(Note("network_differs", f"processes use different networks between nodes ({text})"))
