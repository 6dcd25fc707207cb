"""How ranks are laid out in groups: DDP, FSDP, HSDP, tensor × pipeline × data, expert and context
parallelism.

Group names are drawn from one counter for the whole job, as `new_group` does it: every rank counts every
group, also those that it is no member of. A rank's *local* ids count only the groups that it made itself, so
the same group has different ids on different ranks.
"""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass, field

from .calls import Group

KINDS = ("ddp", "fsdp", "hsdp", "megatron", "expert", "context")


@dataclass(slots=True)
class Layout:
    """The groups of one job. `roles`: role -> rank -> its group of that role; `replicas`: ranks that share
    batches.
    """

    kind: str
    world_size: int
    per_host: int
    groups: list[Group] = field(default_factory=list)
    roles: dict[str, dict[int, Group]] = field(default_factory=dict)
    replicas: list[tuple[int, ...]] = field(default_factory=list)
    shape: dict[str, int] = field(default_factory=dict)
    gaps: int = 0
    _counter: int = 0

    @property
    def world(self) -> Group:
        """Return the group of all ranks."""
        return self.groups[0]

    def host(self, rank: int) -> str:
        """Return the host name of a rank."""
        return f"gpu{rank // self.per_host:02d}"

    def group(self, role: str, rank: int) -> Group:
        """Return the group that a rank has in a role."""
        return self.roles[role][rank]

    def groups_of(self, rank: int) -> list[Group]:
        """Return the groups that a rank is a member of, in the order of their creation."""
        return [group for group in self.groups if rank in group.ranks]

    def local_ids(self, rank: int) -> dict[int, int]:
        """Return gid -> the rank's own id for the group. Twins on gloo, which are not recorded here, take ids
        too.
        """
        ids, following = {}, 0
        for group in self.groups_of(rank):
            ids[group.gid] = following
            following += 2 if self.gaps and group.gid % self.gaps == 0 and group.gid else 1
        return ids

    def current(self, group: Group) -> Group:
        """Return the group that has taken a group's name and members over, itself where none has."""
        same = [g for g in self.groups if (g.name, g.ranks) == (group.name, group.ranks)]
        return same[-1]

    def rebuild(self) -> dict[int, Group]:
        """Make every group once more under its own name, and return gid -> the new one."""
        again = {g.gid: dataclasses.replace(g, gid=len(self.groups) + g.gid) for g in self.groups}
        self.groups += again.values()
        return again

    def add(self, role: str, desc: str, members: list[tuple[int, ...]], *, shared_name: bool = False) -> None:
        """Make one group per member tuple; with `shared_name` all are sub-groups of one split."""
        table = self.roles.setdefault(role, {})
        for number, ranks in enumerate(members):
            if not (shared_name and number):
                self._counter += 1
            group = Group(len(self.groups), str(self._counter - 1), desc, ranks)
            self.groups.append(group)
            for rank in ranks:
                table[rank] = group


def make_layout(kind: str, world_size: int, rng: random.Random) -> Layout:
    """Lay out `world_size` ranks (a multiple of 8) in groups of one of `KINDS`."""
    layout = Layout(kind, world_size, per_host=rng.choice((4, 8)), gaps=rng.choice((0, 2, 3)))
    everyone = tuple(range(world_size))
    layout.add("world", "default_pg", [everyone])
    layout.replicas = [(rank,) for rank in everyone]
    if kind == "hsdp":
        _hsdp(layout, rng)
    elif kind == "megatron":
        _megatron(layout, rng)
    elif kind in ("expert", "context"):
        _two_dimensional(layout, rng)
    elif kind == "fsdp" and rng.random() < 0.5:
        layout.add("shard", "mesh_fsdp", [everyone])
    layout.roles.setdefault("shard", layout.roles["world"])
    return layout


def _hsdp(layout: Layout, rng: random.Random) -> None:
    size = layout.world_size
    shard = rng.choice([n for n in (2, 4, 8) if n < size])
    shared = rng.random() < 0.5
    layout.shape = {"shard": shard, "replicate": size // shard}
    replicate = [tuple(range(first, size, shard)) for first in range(shard)]
    layout.add("replicate", "mesh_replicate", replicate, shared_name=shared)
    blocks = [tuple(range(first, first + shard)) for first in range(0, size, shard)]
    layout.add("shard", "mesh_shard", blocks, shared_name=shared)


def _megatron(layout: Layout, rng: random.Random) -> None:
    """Lay ranks out as Megatron does: tensor fastest, then data, pipeline slowest."""
    size = layout.world_size
    choices = [(t, p) for t in (2, 4, 8) for p in (2, 4) if size % (t * p) == 0 and size // (t * p) >= 1]
    wide = [(t, p) for t, p in choices if size // (t * p) >= 2]
    tensor, stages = rng.choice(wide or choices)
    data = size // (tensor * stages)
    layout.shape = {"tp": tensor, "pp": stages, "dp": data}
    layout._counter += rng.randrange(0, 3)

    def rank(t: int, d: int, p: int) -> int:
        return t + tensor * (d + data * p)

    layout.add(
        "dp",
        "DATA_PARALLEL_GROUP_WITH_CP",
        [tuple(rank(t, d, p) for d in range(data)) for p in range(stages) for t in range(tensor)],
    )
    layout.add(
        "mp",
        "MODEL_PARALLEL_GROUP",
        [tuple(sorted(rank(t, d, p) for p in range(stages) for t in range(tensor))) for d in range(data)],
    )
    layout.add(
        "tp",
        "TENSOR_MODEL_PARALLEL_GROUP",
        [tuple(rank(t, d, p) for t in range(tensor)) for p in range(stages) for d in range(data)],
    )
    pipelines = [tuple(rank(t, d, p) for p in range(stages)) for d in range(data) for t in range(tensor)]
    for pipeline in pipelines:
        layout.add("pp", "PIPELINE_MODEL_PARALLEL_GROUP", [pipeline])
        layout.add("embedding", "EMBEDDING_GROUP", [(pipeline[0], pipeline[-1])])
    layout.replicas = [
        tuple(sorted(rank(t, d, p) for p in range(stages) for t in range(tensor))) for d in range(data)
    ]


def _two_dimensional(layout: Layout, rng: random.Random) -> None:
    size, kind = layout.world_size, layout.kind
    inner = rng.choice([n for n in (2, 4, 8) if n < size])
    role, desc = ("ep", "EXPERT_MODEL_PARALLEL_GROUP") if kind == "expert" else ("cp", "mesh_cp")
    outer = ("edp", "EXPERT_DATA_PARALLEL_GROUP") if kind == "expert" else ("dp", "mesh_dp")
    layout.shape = {role: inner, outer[0]: size // inner}
    blocks = [tuple(range(first, first + inner)) for first in range(0, size, inner)]
    layout.add(role, desc, blocks)
    layout.add(*outer, [tuple(range(first, size, inner)) for first in range(inner)])
    if kind == "context":
        layout.replicas = blocks
