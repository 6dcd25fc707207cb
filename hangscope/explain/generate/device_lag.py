"""Devices that lag behind what their peers' completions prove to be over, and calls that stand still themselves.

A call that all its members joined and that none finishes lacks nobody: the call itself stands still. Where a recorder notes
when a device begins a call, and those of most members have begun, the device of one that has not still works at what was
enqueued before, outside of any call: else the wait-for graph would lead to that call.
"""

from __future__ import annotations

from hangscope.align.frontier import GroupFrontier
from hangscope.align.waitgraph import Called, Host, Instance
from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import Lagging, OwnCall, Stalled, Unstarted
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.model.incident import PROVING_OPS, State


def device_lag(aligned: Aligned) -> tuple[frozenset[int], Lagging | None]:
    """Return the ranks (global) whose devices lag, whoever is named, and the finding of that, if anybody waits for them."""
    found: list[
        tuple[int, Instance, frozenset[int]]
    ] = []  # when a call was made, and who has not finished it
    explains: set[int] = set()
    for root in aligned.roots("call"):
        if isinstance(node := root.nodes[0], Instance):
            view = aligned.views[node.gid]
            # A dump older than its peers' shows calls open that were finished after it was taken.
            behind = frozenset(r for r in root.ranks if r not in aligned.early and lags(view, r, node.seq))
            if 0 < len(behind) < len(view.members):
                found.append((min(view.created(r, node.seq) for r in behind), node, behind))
                explains |= root.explains
    all_behind = frozenset(rank for *_, behind in found for rank in behind)
    if not explains - all_behind:
        return all_behind, None  # nobody waits for them: their dumps are a moment older than their peers'
    by_more: set[int] = set()  # who lags by more than a moment
    few = True
    for _, node, behind in found:
        view = aligned.views[node.gid]
        long = {r for r in behind if sum(s <= view.proven for s in view.members[r].pending) > 1}
        few = few and (long == behind or 2 * len(behind) < len(view.members))
        by_more |= long | {r for r in behind if _holds_up(aligned, r, all_behind)}
    named = lagging = tuple(sorted(all_behind))
    if len(lagging) == 1:
        # Whose own watchdog tells of that call, its dump is no older; several lag where a network is slow.
        told = {event.seq for event in aligned.stated.of(lagging[0], WatchdogTimeout)}
        few = few or any(node.seq in told for _, node, _ in found)
    else:
        named = tuple(sorted(by_more)) if few else ()
    if 2 * len(lagging) > len(aligned.incident.ranks):
        named = ()  # where most did not finish, the few that did are no measure
    _, node, _ = min(found, key=lambda lag: (lag[0], str(lag[1])))
    view = aligned.views[node.gid]
    own = OwnCall(view.kind_of(next(r for r in lagging if r in view.members), node.seq), node.seq)
    # What the others are stuck in lies behind what the lagging device did not finish.
    stuck = aligned.stuck_in(aligned.first_instance(lagging) or node, lagging)
    return all_behind, aligned.reached_by(
        Lagging(named, stuck, own, tie=not few), frozenset(explains) | all_behind
    )


def _holds_up(aligned: Aligned, rank: int, lagging: frozenset[int]) -> bool:
    """Return whether ranks that do not lag wait in a later call that this one has enqueued, too, and that lacks nobody: its dump is no older."""
    for call in aligned.graph.open_calls.get(rank, [])[1:]:
        node = call.node
        if not isinstance(node, Instance) or any(isinstance(t, Host) for t in aligned.graph.edges[node]):
            continue
        for other, _ in aligned.graph.calls_of(node):
            if other not in lagging and aligned.graph.open_calls[other][0].node == node:
                return True
    return False


def lags(view: GroupFrontier, rank: int, seq: int) -> bool:
    """Return whether peers' completions prove that a call is over which this rank's device has not finished."""
    kind = view.kind_of(rank, seq)
    if kind is not None and kind.op.startswith("all_to_all"):
        # One completion proves nothing of another member here; that most have finished what all began does.
        members = view.members.values()
        done = sum((member.completed or 0) >= seq for member in members)
        return 2 * done > len(members) and all((member.enqueued or 0) >= seq for member in members)
    if view.proven < seq:
        return False
    return kind is None or kind.op in PROVING_OPS or view.proven > seq


def pending_call(aligned: Aligned) -> Stalled | Unstarted | None:
    """Return the finding of the call that most ranks wait for and that waits for nobody; of equals the earliest."""
    roots = [
        (root, node) for root in aligned.roots("call") for node in root.nodes[:1] if isinstance(node, Called)
    ]
    if not roots:
        return None
    root, node = min(roots, key=lambda r: (-len(r[0].explains), aligned.when(r[1])))
    behind = _not_begun(aligned, node) if isinstance(node, Instance) else ()
    stuck = aligned.stuck_in(node, behind)
    finding: Stalled | Unstarted = Stalled((), stuck)
    if isinstance(node, Instance) and behind:
        own = aligned.views[node.gid].kind_of(behind[0], node.seq)
        finding = Unstarted(behind, stuck, OwnCall(own, node.seq))
    return aligned.reached_by(finding, root.explains | set(root.ranks))


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
    return behind if 2 * len(behind) < len(begun) else ()
