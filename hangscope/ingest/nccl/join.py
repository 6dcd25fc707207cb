"""The NCCL processes of a job put together: which ranks each communicator joins, how far its creation came.

Ranks come from `nccl_ranks`, identities from `nccl_comm`. Everything that rests on an assumption leaves a
note.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from hangscope.errors import Note
from hangscope.ingest.nccl.comm import Communicator
from hangscope.ingest.nccl.init import START_BEFORE_BOOTSTRAP
from hangscope.ingest.nccl.line import version_tuple
from hangscope.ingest.nccl.ranks import Member, rank_members
from hangscope.ingest.recorder.recording import Recording
from hangscope.model.dataclass import dataclass

#: Ranks that all communicators of a job may have together: 16,384 ranks in 256 groups each; forged lines claim more.
_MEMBERS_IN_ALL = 2**22

#: (file, host, pid)
ProcessKey = tuple[str, str, "int | None"]
Place = tuple[Member, Communicator]


@dataclass(slots=True)
class InitState:
    """How far a communicator's members came when it was made; numbers are ranks in that communicator.

    `absent` were never seen to start. `starting` are in bootstrap, which waits for the absent; `connecting`
    are past it.
    """

    nranks: int
    absent: tuple[int, ...]
    starting: tuple[int, ...]
    connecting: tuple[int, ...]
    complete: tuple[int, ...]


@dataclass(slots=True)
class Joined:
    """The processes of a job put together.

    `recordings`: copies with `rank`, `groups` and `config` (name -> members, None where not all are known)
    filled in. `rank_of_process` leaves out processes that drive several ranks. `members_of_group`: global
    ranks in the order of their rank in that communicator, None where a member is not known. `name_of`:
    local_id -> group name.
    """

    recordings: list[Recording] = field(default_factory=list)
    rank_of_process: dict[ProcessKey, int | None] = field(default_factory=dict)
    members_of_group: dict[str, tuple[int | None, ...]] = field(default_factory=dict)
    name_of: dict[str, str] = field(default_factory=dict)
    inits: dict[str, InitState] = field(default_factory=dict)
    host_of_ip: dict[str, str] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)


def join_processes(
    recordings: Sequence[Recording],
    communicators: Sequence[Communicator],
    *,
    rank_hints: Mapping[str, int] | None = None,
    world_size: int | None = None,
) -> Joined:
    """Return the processes with their global ranks and the communicators with their members.

    `recordings` and `communicators` are those of any number of parsers; inputs are not changed. `rank_hints`
    maps a file to the global rank that its name or its torch lines tell; `world_size` is what the launcher
    says, if known. Processes of one restart attempt are expected; of several in one input the last is taken.
    """
    by_id = {comm.local_id: comm for comm in communicators}
    members = []
    for recording in recordings:
        comms = [by_id[group[0]] for group in recording.groups if group[0] in by_id]
        if comms:
            members.append(Member(recording, comms))
    members.sort(key=lambda m: (m.key, m.comms[0].bus_id or ""))
    joined = Joined()
    world = rank_members(members, rank_hints or {}, world_size, joined.notes)
    _group(members, world, joined)
    processes: dict[ProcessKey, set[int | None]] = defaultdict(set)
    for member in members:
        first = member.comms[0]
        processes[(first.file, first.host, first.pid)].add(member.rank)
        if first.ip:
            joined.host_of_ip.setdefault(first.ip, first.host)
        groups = [(g[0], joined.name_of.get(g[0], g[1]), g[2]) for g in member.recording.groups]
        config = {name: ("", _whole(joined.members_of_group.get(name, ()))) for _, name, _ in groups}
        joined.recordings.append(replace(member.recording, rank=member.rank, groups=groups, config=config))
    joined.rank_of_process = {key: next(iter(ranks)) for key, ranks in processes.items() if len(ranks) == 1}
    _network_notes(members, joined.notes)
    return joined


def _whole(members: tuple[int | None, ...]) -> tuple[int, ...] | None:
    known = tuple(rank for rank in members if rank is not None)
    return known if known and len(known) == len(members) else None


def _group(members: list[Member], world: int | None, joined: Joined) -> None:
    """Name the groups, list their members, and tell how far their creation came."""
    places: dict[str, list[Place]] = defaultdict(list)
    for member in members:
        for comm in member.comms:
            places[comm.name].append((member, comm))
    final: dict[str, list[Place]] = {}
    for name in sorted(places):
        parts = _separate(places[name])
        for number, part in enumerate(parts, start=1):
            final[name if len(parts) == 1 else f"{name}, set {number}"] = part
    versions = {version_tuple(comm.version) for part in final.values() for _, comm in part if comm.version}
    after_bootstrap = bool(versions) and max(versions) < START_BEFORE_BOOTSTRAP
    room, too_many = _MEMBERS_IN_ALL, 0
    for name, part in final.items():
        for _, comm in part:
            joined.name_of[comm.local_id] = name
        nranks = max((c.nranks for _, c in part if c.nranks is not None), default=0)
        if nranks > room:
            joined.members_of_group[name] = ()
            too_many += 1
            continue
        room -= nranks
        joined.members_of_group[name] = _members(part, nranks, world)
        _init_state(name, part, nranks, after_bootstrap, joined)
        _group_notes(name, part, joined.notes)
    if too_many:
        text = f"{too_many} communicators claim more ranks than all jobs have; their members are left out"
        joined.notes.append(Note("too_many_communicators", text))
    _splits(final, joined)
    _assumed_note(final, joined.notes)


def _separate(part: list[Place]) -> list[list[Place]]:
    """Return the groups that share one assumed identity: the i-th process with a rank is in the i-th.

    Processes are taken by ascending global rank, which is right for every grid of ranks whose groups list
    their ranks in ascending order.
    """
    if not any(comm.assumed for _, comm in part):
        return [part]
    parts: list[list[Place]] = []
    seen: dict[int | None, int] = defaultdict(int)
    for member, comm in sorted(part, key=lambda p: (p[0].rank is None, p[0].rank or 0, p[0].key)):
        number = seen[comm.comm_rank] if comm.comm_rank is not None else 0
        seen[comm.comm_rank] += 1
        while len(parts) <= number:
            parts.append([])
        parts[number].append((member, comm))
    return parts


def _members(part: list[Place], nranks: int, world: int | None) -> tuple[int | None, ...]:
    if (
        world is not None
        and nranks == world
        and all(m.rank == c.comm_rank for m, c in part if c.comm_rank is not None)
    ):
        return tuple(range(world))
    slots: list[int | None] = [None] * nranks
    for member, comm in part:
        if comm.comm_rank is not None and comm.comm_rank < nranks:
            slots[comm.comm_rank] = member.rank
    return tuple(slots)


def _init_state(name: str, part: list[Place], nranks: int, after_bootstrap: bool, joined: Joined) -> None:
    ranked = {c.comm_rank: c for _, c in part if c.comm_rank is not None}
    if not ranked:
        return
    complete = {rank for rank, c in ranked.items() if c.completed}
    # Up to 2.22 START says that bootstrap has passed; a file without a banner does not know its version.
    starting = set() if after_bootstrap else {rank for rank, c in ranked.items() if c.phase == "start"}
    joined.inits[name] = InitState(
        nranks,
        absent=tuple(rank for rank in range(nranks) if rank not in ranked),
        starting=tuple(sorted(starting)),
        connecting=tuple(sorted(set(ranked) - complete - starting)),
        complete=tuple(sorted(complete)),
    )


def _splits(final: dict[str, list[Place]], joined: Joined) -> None:
    """Fill the one empty place of a split where one process alone was not seen in it."""
    parts: dict[tuple[str, int], list[str]] = defaultdict(list)
    took_part: dict[str, dict[int | None, int]] = defaultdict(dict)
    for name, part in final.items():
        comm = part[0][1]
        parent = joined.name_of.get(comm.parent or "")
        if parent is not None and comm.split is not None:
            parts[(parent, comm.split)].append(name)
        for member, known in part:
            took_part[name][member.rank] = known.children
    for (parent, split), names in sorted(parts.items()):
        members = [rank for rank in joined.members_of_group[parent] if rank is not None]
        missing = [rank for rank in members if took_part[parent].get(rank, 0) < split]
        holes = [
            (name, i)
            for name in names
            for i, rank in enumerate(joined.members_of_group[name])
            if rank is None
        ]
        if len(holes) != 1 or len(missing) != 1:
            continue
        name, place = holes[0]
        slots = list(joined.members_of_group[name])
        slots[place] = missing[0]
        joined.members_of_group[name] = tuple(slots)
        text = (
            f"rank {missing[0]} is taken for unseen member {place} of {name}: it alone was not in the split"
        )
        joined.notes.append(Note("assumed_member", text))


def _assumed_note(final: dict[str, list[Place]], notes: list[Note]) -> None:
    assumed = [name for name, part in final.items() if any(comm.assumed for _, comm in part)]
    if assumed:
        first = final[assumed[0]][0][1]
        text = (
            f"{len(assumed)} communicators were joined across ranks by size, order of creation and rank: "
            f"NCCL printed no id for them; the first is {assumed[0]}"
        )
        notes.append(Note("assumed_communicator", text, first.file, first.first_line or None))


def _group_notes(name: str, part: list[Place], notes: list[Note]) -> None:
    first = part[0][1]
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
            notes.append(
                Note("duplicate_rank", f"{len(keys)} processes are rank {rank} of {name}: {who}", first.file)
            )
    for (host, bus), ranks in sorted(by_bus.items()):
        if len(ranks) > 1:
            notes.append(
                Note(
                    "duplicate_gpu",
                    f"ranks {sorted(ranks)} of {name} share the GPU {bus} of {host}",
                    first.file,
                )
            )


def _network_notes(members: list[Member], notes: list[Note]) -> None:
    networks: dict[str, list[str]] = defaultdict(list)
    for member in members:
        network = member.comms[0].network
        if network:
            networks[network].append(
                str(member.rank) if member.rank is not None else ":".join(map(str, member.key[1:]))
            )
    if len(networks) > 1:
        text = "; ".join(
            f"{name}: {len(who)} processes, first {who[0]}" for name, who in sorted(networks.items())
        )
        notes.append(Note("network_differs", f"processes use different networks between nodes ({text})"))
