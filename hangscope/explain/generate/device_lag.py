"""Devices that lag behind what their peers' completions prove to be over, and collectives that are stalled themselves.

A collective that all its members issued and that none completes lacks nobody: it is stalled itself. Where a recorder notes when a
device begins a collective, and those of most members have begun, the device of a member that has not still works at what was
enqueued before, outside of any collective: else the wait-for graph would lead there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from hangscope.align.frontier import GroupFrontier
from hangscope.align.p2p import PairInstance
from hangscope.align.waitgraph import Called, Host, Instance, Root
from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import Lagging, OwnCall, Stalled, Unstarted
from hangscope.explain.text.excerpt import not_collected
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.model.incident import State

_SEVERAL = 4  # members that were seen, where others were not collected


def device_lag(aligned: Aligned) -> tuple[frozenset[int], Lagging | None]:
    """Return the ranks (global) whose devices lag, and the finding of that, if other ranks wait for them."""
    found = list[
        tuple[Instance, frozenset[int]]
    ]()  # collectives, each with the ranks that have not finished it
    explains: set[int] = set()
    for root in aligned.roots("call"):
        if isinstance(node := root.nodes[0], Instance):
            view = aligned.views[node.gid]
            # A dump that is older than its peers' shows collectives pending that were completed after it was taken.
            behind = frozenset(r for r in root.ranks if r not in aligned.early and _lags(view, r, node.seq))
            if 0 < len(behind) < len(view.members):
                found.append((node, behind))
                explains |= root.explains
    all_behind = frozenset(rank for _, behind in found for rank in behind)
    if not explains - all_behind:
        return all_behind, None  # their dumps are a moment older than their peers'
    named = lagging = tuple(sorted(all_behind))
    views = [(aligned.views[node.gid], behind) for node, behind in found]
    few = all(2 * len(ranks) < len(v.members) or all(_by_several(v, r) for r in ranks) for v, ranks in views)
    if len(lagging) == 1:
        # A timeout of its own watchdog in that collective shows that its dump is no older.
        own = {event.seq for event in aligned.stated.of(lagging[0], WatchdogTimeout)}
        few = few or any(node.seq in own for node, _ in found)
    else:  # several lag where a network is slow, or where dumps are a moment older
        by_more = {r for view, ranks in views for r in ranks if _by_several(view, r)}
        by_more |= {r for r in all_behind if _holds_up(aligned, r, all_behind)}
        named = tuple(sorted(by_more)) if few else ()
    begun = {
        node: min(aligned.views[node.gid].created(r, node.seq) for r in behind) for node, behind in found
    }
    node, behind = min(found, key=lambda lag: (begun[lag[0]], str(lag[0])))
    # What the others are stuck in comes after what the lagging device did not finish.
    stuck = aligned.stuck_in(_held_up(aligned, all_behind) or node, lagging)
    elsewhere = node.gid if stuck.group != aligned.views[node.gid].group else None
    own_call = OwnCall(aligned.views[node.gid].kind_of(min(behind), node.seq), node.seq, elsewhere)
    finding = Lagging(named, stuck, own_call, tie=not few, lag=aligned.stuck_in(node))
    return all_behind, aligned.reached_by(finding, all_behind)


def _held_up(aligned: Aligned, lagging: frozenset[int]) -> Called | None:
    """Return the call that most ranks are in which wait there for some of `lagging`, which have not issued it or have it queued; of equals the earliest."""
    graph = aligned.graph
    inside = Counter(calls[0].node for rank, calls in graph.open_calls.items() if rank not in lagging)
    queued = {node: {rank for rank, _ in graph.calls_of(node)} for node in inside}
    awaited = set(aligned.awaiting(lagging))
    held = (n for n in inside if isinstance(n, Called) and (n in awaited or lagging & queued[n]))
    return min(held, key=lambda node: (-inside[node], *aligned.when(node)), default=None)


def _by_several(view: GroupFrontier, rank: int) -> bool:
    """Return whether a rank has not finished several collectives that are proven to be over."""
    return sum(seq <= view.proven for seq in view.members[rank].pending) > 1


def _holds_up(aligned: Aligned, rank: int, lagging: frozenset[int]) -> bool:
    """Return whether ranks that do not lag wait in a later collective that this one has enqueued, too: its dump is no older."""
    graph = aligned.graph
    queued = [call.node for call in graph.open_calls.get(rank, [])[1:] if isinstance(call.node, Instance)]
    complete = (node for node in queued if not any(isinstance(t, Host) for t in graph.edges[node]))
    inside = ((node, r) for node in complete for r, _ in graph.calls_of(node) if r not in lagging)
    return any(graph.open_calls[other][0].node == node for node, other in inside)


def _lags(view: GroupFrontier, rank: int, seq: int) -> bool:
    """Return whether peers' completions prove that a collective is over which this rank's device has not finished."""
    kind = view.kind_of(rank, seq)
    if kind is not None and kind.op.startswith("all_to_all"):
        # One completion proves nothing of another member here; that most have finished what all began does.
        members = view.members.values()
        done = sum((member.completed or 0) >= seq for member in members)
        return 2 * done > len(members) and all((member.enqueued or 0) >= seq for member in members)
    return view.proven >= seq


def pending_call(aligned: Aligned) -> Stalled | Unstarted | None:
    """Return the finding of the collective that most ranks wait for and that waits for nobody; of equals the earliest."""
    firsts = [(root, root.nodes[0]) for root in aligned.roots("call")]
    roots = [(root, node) for root, node in firsts if isinstance(node, Called)]
    if not roots:
        return None

    def order(place: tuple[Root, Called]) -> tuple[int, int, tuple[int, str]]:
        root, node = place
        by_lines = sum(
            not call.created for _, call in aligned.graph.calls_of(node)
        )  # ranks of which lines alone state it
        return -len(root.explains), by_lines, aligned.when(node)

    root, node = min(roots, key=order)
    if isinstance(node, Instance) and (behind := _not_begun(aligned, node)):
        return _unstarted(aligned, node, behind)
    # What stalls between two hosts stalls many pairs at once.
    pairs = [r for r, other in roots if isinstance(other, PairInstance)]
    alike = pairs if isinstance(node, PairInstance) else [root]
    return aligned.reached_by(Stalled((), aligned.stuck_in(node)), {rank for r in alike for rank in r.ranks})


def one_not_begun(aligned: Aligned) -> Unstarted | None:
    """Return the finding of the one device of several that has not begun a collective which ranks miss of which nothing was collected."""
    left_out = not_collected(aligned.incident, aligned.stated)
    node = aligned.first_instance(left_out)
    behind = _not_begun(aligned, node, left_out) if isinstance(node, Instance) else ()
    return _unstarted(aligned, node, behind) if isinstance(node, Instance) and len(behind) == 1 else None


def _unstarted(aligned: Aligned, node: Instance, behind: tuple[int, ...]) -> Unstarted:
    own = OwnCall(aligned.views[node.gid].kind_of(behind[0], node.seq), node.seq)
    stuck = aligned.stuck_in(node, behind)
    return aligned.reached_by(Unstarted(behind, stuck, own, lag=stuck))


def _not_begun(aligned: Aligned, node: Instance, left_out: Collection[int] = ()) -> tuple[int, ...]:
    """Return the minority (global ranks) whose device has not begun a collective that those of all others have; none where a row is missing."""
    begun: dict[int, bool] = {}
    view = aligned.views[node.gid]
    for rank, member in view.members.items():
        row, kind = member.row_of(node.seq), view.kind_of(rank, node.seq)
        if rank in left_out and row is None:
            continue
        # A collective without a time is stated by a log line, and not by a recorder.
        if row is None or rank in aligned.early or not view.created(rank, node.seq):
            return ()
        if kind is not None and kind.backend == "gloo":
            return ()  # no device is involved
        begun[rank] = int(member.queue.state[row]) != State.PENDING
    behind = tuple(sorted(rank for rank, has in begun.items() if not has))
    enough = len(begun) == len(view.members) or len(begun) >= _SEVERAL
    return behind if 2 * len(behind) < len(begun) and enough else ()
