"""Devices that lag behind what their peers' completions prove to be over, and calls that stand still themselves.

A call that all its members joined and that none finishes lacks nobody: the call itself stands still. Where a recorder notes
when a device begins a call, and those of most members have begun, the device of one that has not still works at what was
enqueued before, outside of any call: else the wait-for graph would lead to that call.
"""

from __future__ import annotations

from hangscope.align.frontier import GroupFrontier
from hangscope.align.matching import proves_participation
from hangscope.align.nodes import Called, Instance
from hangscope.align.waitgraph import Root
from hangscope.dataclass import dataclass
from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import Lagging, OwnCall, Stalled, Unstarted
from hangscope.incident import State
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout


@dataclass(frozen=True, slots=True)
class Lag:
    """Ranks that have not finished one instance; `long`: those of them that lag by more than a moment."""

    node: Instance
    ranks: tuple[int, ...]
    long: frozenset[int]
    few: bool
    explains: frozenset[int]
    created: int


class DeviceLag:
    """Finds the ranks whose devices stopped. `ranks` are all that lag, whoever is named (global)."""

    def __init__(self, aligned: Aligned) -> None:
        self.aligned = aligned
        lags = (self._lag(root) for root in aligned.roots("call"))
        self._lags = sorted(
            (lag for lag in lags if lag is not None), key=lambda lag: (lag.created, str(lag.node))
        )
        self.ranks = frozenset(rank for lag in self._lags for rank in lag.ranks)

    def find(self) -> Lagging | None:
        """Return the finding of lagging devices, or None where nobody lags or nobody waits for those who do."""
        aligned, lagging = self.aligned, tuple(sorted(self.ranks))
        explains = frozenset[int]().union(*(lag.explains for lag in self._lags))
        if not explains - self.ranks:
            return None  # nobody waits for them: their dumps are a moment older than their peers'
        # Of one rank alone whose own watchdog tells of that call the dump is no older; several lag where a network is slow.
        told = {e.seq for e in aligned.stated.of(lagging[0], WatchdogTimeout)} if len(lagging) == 1 else set()
        few = all(lag.few for lag in self._lags) or any(lag.node.seq in told for lag in self._lags)
        named = lagging
        if (len(lagging) > 1 and not few) or 2 * len(lagging) > len(aligned.incident.ranks):
            named = ()  # where most did not finish, the few that did are no measure
        elif len(lagging) > 1:
            named = tuple(sorted(r for lag in self._lags for r in lag.long))
        first = self._lags[0]
        view = aligned.views[first.node.gid]
        own = view.kind_of(next(r for r in lagging if r in view.members), first.node.seq)
        # What the others are stuck in lies behind what the lagging device did not finish.
        stuck = aligned.stuck_in(aligned.first_instance(lagging) or first.node, lagging)
        return aligned.reached_by(Lagging(named, stuck, OwnCall(own, first.node.seq), tie=not few), explains)

    def _lag(self, root: Root) -> Lag | None:
        node = root.nodes[0]
        if not isinstance(node, Instance):
            return None
        view = self.aligned.views[node.gid]
        # A dump older than its peers' shows calls open that were finished after it was taken.
        behind = tuple(r for r in root.ranks if r not in self.aligned.early and lags(view, r, node.seq))
        if not behind or len(behind) >= len(view.members):
            return None
        long = frozenset(r for r in behind if sum(s <= view.proven for s in view.members[r].pending) > 1)
        few = len(long) == len(behind) or 2 * len(behind) < len(view.members)
        created = min(view.created(r, node.seq) for r in behind)
        return Lag(node, behind, long, few, root.explains | set(behind), created)


def lags(view: GroupFrontier, rank: int, seq: int) -> bool:
    """Return whether peers' completions prove that a call is over which this rank's device has not finished."""
    kind = view.kind_of(rank, seq)
    if kind is not None and kind.op.startswith("all_to_all"):
        # One completion proves nothing of another member here; that most have finished what all began does.
        members = view.members.values()
        done = sum((member.completed or 0) >= seq for member in members)
        return 2 * done > len(members) and all((member.enqueued or 0) >= seq for member in members)
    return view.proven > seq or (view.proven == seq and (kind is None or proves_participation(kind)))


def standing_call(aligned: Aligned) -> Stalled | Unstarted | None:
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
        if row is None or member.queue is None or rank in aligned.early or not view.created(rank, node.seq):
            return ()
        begun[rank] = int(member.queue.state[row]) != State.PENDING
    behind = tuple(sorted(rank for rank, has in begun.items() if not has))
    return behind if 2 * len(behind) < len(begun) else ()
