"""Which local group is which: process groups are identified across ranks by their name *and* their members.

A rank's `pg_id` is its own creation order and means nothing elsewhere; one name can stand for several groups (the
subgroups of a split); NCCL fills `pg_config` lazily, and gloo writes one nameless group whatever there is: with torch 2.13
the world's ranks where there is no other group, with 2.15 the places 0 to n - 1 of the group that was made last.

Under TORCH_DISTRIBUTED_DEBUG=DETAIL gloo also records the checks that come before each call: the wrapper exchanges fingerprints on a
helper group of its own (torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp). Both groups read ('', '') in a dump, distinguished by the local id alone, of which the helper's is the larger one.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from hangscope.ingest.evidence.claim import Claim, is_default
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.ingest.recorder.recording import COLUMNS, Recording
from hangscope.ingest.recorder.values import short_number
from hangscope.model.incident import Group, State


def detail_helpers(recording: Recording) -> set[str]:
    """Return the local ids of the helper groups."""
    nameless = _nameless_ids(recording)
    return set(nameless[1:]) if len(nameless) > 1 else set()


def with_pending_checks(recording: Recording) -> Recording:
    """Return the recording with a call behind those of the one group that has a helper, where the last check is behind them.

    A rank in such a check has come to its next call and waits for the others there; one that is through with it found that the
    calls do not fit. Nothing but its line is known of the call itself. Columns of the recording stay as they are, for other
    ranks may share them.
    """
    nameless = _nameless_ids(recording)
    columns = recording.columns
    if len(nameless) != 2 or not len(recording):
        return recording
    own, helper = (
        {place for place, (local_id, _, _) in enumerate(recording.groups) if local_id == wanted}
        for wanted in nameless
    )
    last = {of: row for row, of in enumerate(columns["group"])}
    check = max((last[place] for place in helper if place in last), default=-1)
    calls = [row for row, place in enumerate(columns["group"]) if place in own]
    if check < 0 or not calls or calls[-1] > check or recording.own_sizes is not None:
        return recording
    longer = replace(
        recording,
        kinds=list(recording.kinds),
        columns={name: array(column.typecode, column) for name, column in columns.items() if name in COLUMNS},
        _kind_index={},
    )
    stack = recording.kinds[columns["kind"][check]][8]
    longer.add(
        group=min(own), seq=max(columns["seq"][row] for row in calls) + 1, kind=longer.kind(("", "gloo", (), (), (), (), None, None, stack, None)),
        state=State.PENDING, created=columns["created"][check], order=columns["order"][check],
    )  # fmt: skip
    return longer


def _nameless_ids(recording: Recording) -> list[str]:
    ids = {local_id for local_id, name, _ in recording.groups if not name}
    return sorted(ids, key=lambda local_id: (len(local_id), local_id))


_FEW = 8  # at most this part of the ranks that left dumps may have made no call on a dimension yet
Members = tuple[int, ...]
#: name and members; None: the members are not known
Identity = tuple[str, "Members | None"]


class GroupIndex:
    """The groups of a whole job, and for each rank which of its local ids is which group.

    Members from `limit` on are left out.
    """

    def __init__(self, claims: Mapping[int, Claim], limit: int = MAX_RANKS) -> None:
        self._limit = limit
        self._nameless = _nameless_members(claims)
        self._known: dict[str, set[Members]] = defaultdict(set)
        for claim in claims.values():
            for name, (_, ranks) in claim.recording.config.items():
                if ranks and name:
                    self._known[name].add(ranks)
            if self._nameless and (default := _default_name(claim.recording)) is not None:
                self._known[default].add(self._nameless)
        self._of_rank: dict[str, dict[int, list[Members]]] = {}
        self._descs: dict[Identity, Counter[str]] = defaultdict(Counter)
        self._callers: dict[Identity, set[int]] = defaultdict(set)
        self.local: dict[int, dict[int, Identity]] = {}
        self.status_of: dict[int, dict[str, Identity]] = {}
        for rank in sorted(claims):
            self._place(rank, claims[rank].recording)
        self.groups = self._number()
        self.gid = {identity: group.gid for identity, group in zip(self._order, self.groups, strict=True)}

    def _place(self, rank: int, recording: Recording) -> None:
        local: dict[int, Identity] = {}
        by_id: dict[str, Identity] = {}
        helpers = detail_helpers(recording)
        for index, (local_id, name, desc) in enumerate(recording.groups):
            if local_id in helpers:
                continue
            identity = self._identify(rank, recording, name)
            local[index] = by_id[local_id] = identity
            self._descs[identity][desc] += 1
            self._callers[identity].add(rank)
        for name, (desc, ranks) in recording.config.items():
            if name and ranks and rank in ranks:
                self._descs[(name, ranks)][desc] += 1
        self.local[rank] = local
        self.status_of[rank] = self._place_status(rank, recording, by_id)

    def _identify(self, rank: int, recording: Recording, name: str) -> Identity:
        _, ranks = recording.config.get(name, ("", None))
        if ranks and rank in ranks:
            return (name, ranks)
        if self._nameless and _default_name(recording) == name:
            return (name, self._nameless)
        fitting = self._fitting(name).get(rank, ())
        return (name, fitting[0]) if len(fitting) == 1 else (name, None)

    def _fitting(self, name: str) -> dict[int, list[Members]]:
        """Return the groups of a name by member rank, for ranks whose own dump does not list the group."""
        if name not in self._of_rank:
            found = self._of_rank[name] = defaultdict(list)
            for members in sorted(self._known.get(name, ())):
                for rank in members:
                    found[rank].append(members)
        return self._of_rank[name]

    def _place_status(
        self, rank: int, recording: Recording, by_id: dict[str, Identity]
    ) -> dict[str, Identity]:
        """Join `pg_status` (keyed by local id) with groups: through entries, else by the order of creation.

        Group names are numbers counted up over all ranks, local ids are counted up per rank; so the k-th smallest id is
        the k-th smallest name, provided that all names are numbers, the counts agree and no entry contradicts it.
        """
        placed = dict(by_id)
        names = [(short_number(name), name) for name in recording.config if name]
        ids = [(short_number(local_id), local_id) for local_id in recording.status]
        if len(names) == len(ids) and all(number is not None for number, _ in (*names, *ids)):
            in_order = ([name for _, name in sorted(found)] for found in (ids, names))
            pairs = dict(zip(*in_order, strict=True))
            if all(pairs.get(local_id) == identity[0] for local_id, identity in by_id.items()):
                for local_id, name in pairs.items():
                    placed.setdefault(local_id, self._identify(rank, recording, name))
        return placed

    def _number(self) -> list[Group]:
        identities = {*self._descs, *self._callers}.union(*(p.values() for p in self.status_of.values()))
        self._order = sorted(
            identities, key=lambda i: (short_number(i[0]) is None, short_number(i[0]) or 0, i[0], i[1] or ())
        )
        groups = []
        for gid, identity in enumerate(self._order):
            name, members = identity
            described = sorted((-count, desc) for desc, count in self._descs[identity].items() if desc)
            ranks = members if members is not None else tuple(sorted(self._callers[identity]))
            if self._limit < MAX_RANKS:
                ranks = tuple(rank for rank in ranks if rank < self._limit)
            groups.append(Group(gid, name, described[0][1] if described else "", ranks, members is not None))
        return groups

    def complete(self, world_size: int) -> None:
        """Complete groups whose members no dump gives, by the layout of their sister groups (still not *known*).

        The default group has every rank. A mesh dimension's groups partition the world, so where only one partition fits
        the ranks that were seen to call on them, it is taken.
        """
        for group in self.groups:
            # Ranks beyond gloo's nameless list show that it was another group's.
            doubtful = group.ranks == self._nameless and len(group.ranks) < world_size
            if (doubtful or not group.members_known) and is_default(group.name, group.desc):
                self.groups[group.gid] = replace(group, ranks=tuple(range(world_size)), members_known=False)
        families: dict[str, list[Group]] = defaultdict(list)
        for group in self.groups:
            if not group.members_known and group.desc and group.desc != "default_pg":
                families[group.desc].append(group)
        for family in families.values():
            strangers = self.local.keys() - {rank for group in family for rank in group.ranks}
            if len(family) == 1 or len(strangers) > max(1, len(self.local) // _FEW):
                continue  # groups that only some ranks have, such as the ends of pipelines, and no dimension of a mesh
            found = _partitions(family, world_size)
            if len(found) == 1:
                for group, ranks in zip(family, found[0], strict=True):
                    self.groups[group.gid] = replace(group, ranks=ranks)


def _nameless_members(claims: Mapping[int, Claim]) -> Members | None:
    """Return the ranks that gloo's dumps list under the empty name, where they can only be those of the whole world.

    All dumps must list the same and every rank that left one must be among them: places in some smaller group, which is
    what they are where there are more groups, start from 0 on every rank.
    """
    listed = {members for claim in claims.values() if (members := _nameless(claim.recording))}
    members = next(iter(listed)) if len(listed) == 1 else ()
    return members if members and all(rank in members for rank in claims) else None


def _nameless(recording: Recording) -> Members | None:
    return recording.config.get("", ("", None))[1] if len(recording.config) == 1 else None


def _default_name(recording: Recording) -> str | None:
    """Return the name of the default group in a gloo dump that has calls on no other; under DETAIL no group has a name."""
    groups = {(name, desc) for _, name, desc in recording.groups}
    if not _nameless(recording) or len(groups) != 1:
        return None
    name, desc = groups.pop()
    return name if not name or is_default(name, desc) else None


def _partitions(family: list[Group], world_size: int) -> list[list[tuple[int, ...]]]:
    """Return the ways in which the groups of one mesh dimension can partition the world, given who called on them.

    In a mesh, a dimension of size s and stride d groups the ranks b, b + d, ..., b + (s - 1) d of each block of s * d.
    """
    size, rest = divmod(world_size, len(family))
    if rest:
        return []
    found = []
    for stride in range(1, world_size // size + 1):
        block = size * stride
        if world_size % block:
            continue
        bases = [{rank // block * block + rank % stride for rank in group.ranks} for group in family]
        if all(len(base) == 1 for base in bases) and len(set.union(*bases)) == len(family):
            found.append([tuple(first + k * stride for k in range(size)) for (first,) in bases])
    return found


_ROLE_WORDS = (
    # named after several dimensions: Megatron's copies of experts, torchtitan's ranks that shard the weights
    ("dp", ("expert_data",)),
    ("fsdp", ("dp_shard",)),
    ("ep", ("expert_model", "expert_tensor", "expert", "_ep", "moe")),
    ("tp", ("tensor_model", "tensor_parallel", "mesh_tp", "_tp", "tensor")),
    ("pp", ("pipeline", "mesh_pp", "_pp")),
    ("cp", ("context_parallel", "mesh_cp", "_cp", "ulysses", "sequence_parallel", "_sp")),
    ("fsdp", ("fsdp", "shard")),
    ("dp", ("data_parallel", "mesh_dp", "_dp", "replicate", "ddp", "data")),
)


def roles(groups: Iterable[Group], world_size: int) -> list[Group]:
    """Return the groups with their role (`Group.role`); None where neither name nor layout shows it."""
    named = [replace(g, role=_by_name(g, world_size)) for g in groups]
    bare = {g.gid: stride for g in named if g.role is None and (stride := _stride(g)) is not None}
    ordered = sorted(set(bare.values()))
    by_stride = dict(zip(ordered, _BY_STRIDE.get(len(ordered), ()), strict=False))
    return [replace(g, role=by_stride.get(bare[g.gid])) if g.gid in bare else g for g in named]


#: the roles of a layout's dimensions from the narrowest stride to the widest, by how many there are
_BY_STRIDE = {2: ("tp", "dp"), 3: ("tp", "dp", "pp")}


def _by_name(group: Group, world_size: int) -> str | None:
    text = f"{group.desc} {group.name}".lower()
    if group.desc == "default_pg" or (group.members_known and len(group.ranks) == world_size > 1):
        return "world"
    return next((role for role, words in _ROLE_WORDS if any(word in text for word in words)), None)


def _stride(group: Group) -> int | None:
    """Return the one distance between a group's neighbours, or None: too few members, or no regular layout."""
    steps = {b - a for a, b in zip(group.ranks, group.ranks[1:], strict=False)}
    return steps.pop() if len(steps) == 1 and group.members_known and not group.desc else None
