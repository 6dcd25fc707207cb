"""A call that all its members joined and that none finishes: nobody is absent, and the call itself stands still.

Where a recorder notes when a device begins a call, and those of most members have begun, the device of one that has not
still works at what was enqueued before, outside of any call: else the wait-for graph would lead to that call.
"""

from __future__ import annotations

from hangscope.align.nodes import Called, Instance
from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import OwnCall, Stalled, Unstarted
from hangscope.incident import State


def standing_call(aligned: Aligned) -> Stalled | Unstarted | None:
    """Return the finding of the call that most ranks wait for and that waits for nobody; of equals the earliest."""
    roots = [r for r in aligned.graph.roots if r.kind == "call" and r.explains]
    if not roots:
        return None
    root = min(roots, key=lambda r: (-len(r.explains), aligned.when(r.nodes[0])))
    (node, *_) = (n for n in root.nodes if isinstance(n, Called))
    reach = root.explains | set(root.ranks)
    behind = _not_begun(aligned, node) if isinstance(node, Instance) else ()
    if behind and isinstance(node, Instance):
        stuck = aligned.stuck_in(node, behind)
        own = OwnCall(aligned.views[node.gid].kind_of(behind[0], node.seq), node.seq)
        return aligned.reached_by(Unstarted(behind, stuck, own), reach)
    return aligned.reached_by(Stalled((), aligned.stuck_in(node)), reach)


def _not_begun(aligned: Aligned, node: Instance) -> tuple[int, ...]:
    """Return the few members (global) whose device has not begun a call that those of all others have; none where a row is missing."""
    begun: dict[int, bool] = {}
    view = aligned.views[node.gid]
    for rank, member in view.members.items():
        row = member.row_of(node.seq)
        # Without a time no recorder, but a line tells of the call.
        if row is None or rank in aligned.early or not view.created(rank, node.seq):
            return ()
        begun[rank] = int(member.queue.state[row]) != State.PENDING
    behind = tuple(sorted(rank for rank, has in begun.items() if not has))
    return behind if behind and 2 * len(behind) < len(begun) else ()
