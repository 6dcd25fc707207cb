"""What the members of a group have to agree on besides the call: who is the root, and who the members are.

No recorder keeps the root of a gather or scatter, but only the root has a buffer for each member. A group's name counts the
groups that all ranks create, in order: members that list different ranks under one name mean different groups, which never form.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from hangscope.align.frontier import GroupFrontier
from hangscope.align.matching import numel
from hangscope.align.waitgraph import Instance
from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import Different, OtherMembers, OtherRoot, OwnCall, StuckCall
from hangscope.model.incident import CallKind

_ROOTED = ("gather", "scatter")


def has_root_buffers(kind: CallKind) -> bool:
    """Return whether the caller of a gather or scatter is its root, by its buffers: all others have an empty one (ProcessGroupNCCL.cpp).

    It has one for each member, or one for all of them (ProcessGroupGloo.cpp).
    """
    taken, given = sum(numel(kind.output_sizes)), sum(numel(kind.input_sizes))
    return taken > given if kind.op == "gather" else given > taken


def other_root(aligned: Aligned) -> OtherRoot | None:
    """Return the finding of the members of a pending gather or scatter that are its root for the first time, next to another root."""
    pending = (node for node in aligned.graph.edges if isinstance(node, Instance))
    for node in sorted((node for node in pending if _is_rooted(aligned, node)), key=aligned.when):
        view = aligned.views[node.gid]
        kinds = {r: kind for r in view.seen if (kind := view.kind_of(r, node.seq)) is not None}
        roots = [r for r, kind in kinds.items() if kind.op in _ROOTED and has_root_buffers(kind)]
        new = [r for r in roots if _was_never_root(aligned, view, r, node.seq)]
        if not 0 < len(new) < len(roots):
            continue
        usual = next(r for r in roots if r not in new)
        stuck = StuckCall(view, node.seq, usual, kinds[usual])
        finding = OtherRoot(tuple(new), stuck, OwnCall(kinds[new[0]], node.seq))
        return aligned.reached_by(finding)
    return None


def _is_rooted(aligned: Aligned, node: Instance) -> bool:
    """Return whether the first member that is in a collective called a gather or scatter."""
    calls = aligned.graph.calls_of(node)
    kind = aligned.views[node.gid].kind_of(calls[0][0], node.seq) if calls else None
    return kind is not None and kind.op in _ROOTED


def _was_never_root(aligned: Aligned, view: GroupFrontier, rank: int, seq: int) -> bool:
    """Return whether a member made the same collective before, and never as its root."""
    queue, kinds = view.members[rank].queue, aligned.incident.kinds
    now = view.kind_of(rank, seq)
    before = [kinds[int(k)] for k in np.unique(queue.kind[queue.seq < seq])]
    alike = [kind for kind in before if now is not None and kind.op == now.op]
    return bool(alike) and not any(map(has_root_buffers, alike))


def other_members(aligned: Aligned) -> OtherMembers | None:
    """Return the finding of ranks that list other members of a group than its other members do, where no call of either group is complete."""
    groups = aligned.incident.groups
    dumped = [(r, record) for r, record in aligned.incident.ranks.items() if record.dump_file]
    by_name: dict[str, list[int]] = defaultdict(list)
    for group in groups:
        if group.name and group.members_known and not group.partial:
            by_name[group.name].append(group.gid)
    shapes = Counter(aligned.programs.tokens.group_kinds[group.gid][:3] for group in groups)
    for gids in by_name.values():
        if len(gids) != 2:
            continue
        shared = set(groups[gids[0]].ranks).intersection(groups[gids[1]].ranks)
        listed = [{r for r, record in dumped if gid in record.queues} for gid in gids]
        done = (member.completed for gid in gids for member in aligned.views[gid].members.values())
        if not (all(listed) and shared.issuperset(listed[0] | listed[1])) or any(done):
            continue
        usual = [shapes[aligned.programs.tokens.group_kinds[gid][:3]] > 1 for gid in gids]
        if usual[0] == usual[1]:
            usual = [len(listed[0]) > len(listed[1]), len(listed[0]) < len(listed[1])]
        if usual[0] == usual[1]:
            continue
        few, many = (0, 1) if usual[1] else (1, 0)
        own = tuple(sorted(listed[few]))
        members = {rank for gid in gids for rank in groups[gid].ranks}
        node = aligned.first_instance(members)
        stuck = aligned.stuck_in(node, own) if node is not None else StuckCall(aligned.views[gids[many]])
        return aligned.reached_by(OtherMembers(own, stuck, OwnCall(gid=gids[few])), members)
    return None


def disagreement(aligned: Aligned) -> Different | None:
    """Return the finding of what members do not agree on, None where nothing shows that."""
    return other_members(aligned) or other_root(aligned)
