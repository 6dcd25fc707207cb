"""Devices that lag behind what their peers' completions prove to be over."""

from __future__ import annotations

from hangscope.align.frontier import GroupFrontier
from hangscope.align.nodes import Instance
from hangscope.align.waitgraph import Root
from hangscope.dataclass import dataclass
from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import Lagging, OwnCall
from hangscope.incident import PROVING_OPS
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
    """Finds the ranks whose devices stopped. `ranks` are all that lag, whoever is named (global).

    `told`: one rank alone lags, and its own watchdog tells of that call, so that its dump is no older than its peers'. Several
    lag by a call each where a network is slow.
    """

    def __init__(self, aligned: Aligned) -> None:
        self.aligned = aligned
        lags = (self._lag(root) for root in aligned.graph.roots if root.kind == "call")
        self._lags = [lag for lag in lags if lag is not None]
        self.ranks = frozenset(rank for lag in self._lags for rank in lag.ranks)
        self.told = len(self.ranks) == 1 and any(
            event.seq == lag.node.seq
            for lag in self._lags
            for event in aligned.stated.of(lag.ranks[0], WatchdogTimeout)
        )

    def find(self) -> Lagging | None:
        """Return the finding of lagging devices, or None where nobody lags or nobody waits for those who do."""
        explains = frozenset[int]().union(*(lag.explains for lag in self._lags))
        if not explains - self.ranks:
            return None  # nobody waits for them: their dumps are a moment older than their peers'
        first = min(self._lags, key=lambda lag: (lag.created, str(lag.node)))
        own = self._call_of(first)
        # What the others are stuck in lies behind what the lagging device did not finish.
        node = self.aligned.first_instance(lambda absent: bool(absent & self.ranks)) or first.node
        few = self.told or all(lag.few for lag in self._lags)
        finding = Lagging(self._named(few), self.aligned.stuck_in(node, sorted(self.ranks)), own, tie=not few)
        return self.aligned.reached_by(finding, explains)

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

    def _named(self, few: bool) -> tuple[int, ...]:
        lagging = tuple(sorted(self.ranks))
        if (len(lagging) > 1 and not few) or 2 * len(lagging) > len(self.aligned.incident.ranks):
            return ()  # where most did not finish, the few that did are no measure
        return tuple(sorted(r for lag in self._lags for r in lag.long)) if len(lagging) > 1 else lagging

    def _call_of(self, lag: Lag) -> OwnCall:
        """Return what the first of the lagging members did not finish."""
        view = self.aligned.views[lag.node.gid]
        rank = next(r for r in sorted(self.ranks) if r in view.members)
        return OwnCall(view.kind_of(rank, lag.node.seq), lag.node.seq)


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
