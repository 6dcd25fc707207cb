"""What a group is for: tensor, pipeline, data, expert or context parallelism, by its name or by its members' stride.

Frameworks name groups (Megatron: `TENSOR_MODEL_PARALLEL_GROUP`, device meshes: `mesh_tp`); where names are bare counters,
the layout is all there is. Launchers number ranks so that tensor parallelism, the chattiest, has stride 1, and the
pipeline, the quietest, the widest (megatron/core/parallel_state.py: order "tp-cp-ep-dp-pp").
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hangscope.model.incident import Group

_ROLE_WORDS = (
    ("ep", ("expert_model", "expert_tensor", "expert", "_ep", "moe")),
    ("tp", ("tensor_model", "tensor_parallel", "mesh_tp", "_tp", "tensor")),
    ("pp", ("pipeline", "mesh_pp", "_pp")),
    ("cp", ("context_parallel", "mesh_cp", "_cp", "ulysses", "sequence_parallel", "_sp")),
    ("fsdp", ("fsdp", "shard")),
    ("dp", ("data_parallel", "mesh_dp", "_dp", "replicate", "ddp", "data")),
)


def roles(groups: Iterable[Group], world_size: int) -> list[Group]:
    """Return the groups with their role (`Group.role`); None where neither name nor layout tells it."""
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
