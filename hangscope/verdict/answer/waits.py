"""Who timed out in which collective, how many ranks take part in it, and who of them is not shown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from time import gmtime, strftime

from hangscope.causes.case import Case
from hangscope.conclusion import Collect
from hangscope.dataclass import dataclass
from hangscope.explain.text.group_size import size_by_elements, world_size
from hangscope.incident import group_label
from hangscope.ingest.torch_logs.c10d import WatchdogStatus, WatchdogTimeout
from hangscope.ingest.torch_logs.c10d_names import is_default_group
from hangscope.rankset import ranks_phrase
from hangscope.verdict.answer.observation import Observation, lasted, others_of, who

_FIRST = 5  # collectives of a group that are still its start
_LARGE = 2**31
_OPS = {"coalesced": "a coalesced batch (usually the sends and receives of a pipeline)"}
_POINT_TO_POINT = frozenset({"send", "recv", "coalesced"})


@dataclass(frozen=True, slots=True)
class Wait:
    """One collective that ranks timed out in, as their watchdogs print it. `events` are one of each rank.

    `ranks` are global, or as their group counts where `local`; `group` is (name, description), either of which may be empty.
    """

    events: tuple[WatchdogTimeout, ...]
    ranks: tuple[int, ...]
    local: bool
    group: tuple[str, str]

    @property
    def first(self) -> WatchdogTimeout:
        """Return the line that stands for all of them."""
        return self.events[0]

    @property
    def default(self) -> bool:
        """Return whether the group is the one of all ranks."""
        return is_default_group({"group_name": self.group[0] or None, "group_desc": self.group[1] or None})

    def size(self, world: int | None) -> int | None:
        """Return how many ranks take part, by the sizes of what goes in and out, or in the group of all by the size of the job."""
        if (size := size_by_elements(self.first)) is not None:
            return size
        return world if self.default or not self.group[0] else None

    def who(self) -> str:
        """Return who waited."""
        return who(self.ranks)

    def call(self) -> str:
        """Return the collective as a phrase: its name, seq, group and sizes."""
        e = self.first
        seq = f" seq {e.seq}" if e.seq is not None else ""
        group = f" of group {group_label(*self.group)}" if self.group[0] else ""
        sizes = ""
        if e.numel_in == e.numel_out == 1:
            sizes = " (one element" + (", perhaps a barrier)" if e.op == "all_reduce" else ")")
        elif e.numel_in == 1 and not e.numel_out:
            sizes = " (one element)"
        elif e.numel_in and e.numel_in == e.numel_out:
            sizes = f" ({e.numel_in} elements)"
        elif e.numel_in:
            sizes = (
                f" ({e.numel_in} elements in, {e.numel_out} out)"
                if e.numel_out
                else f" ({e.numel_in} elements)"
            )
        return f"{_OPS.get(e.op, e.op)}{seq}{group}{sizes}"


def waits(case: Case) -> list[Wait]:
    """Return the collectives that ranks timed out in, the one with most ranks first."""
    groups = {
        (e.rank, e.group_rank, e.seq): (e.group_name, e.group_desc or "")
        for e in case.statements.all(WatchdogStatus)
        if e.group_name
    }
    found: dict[tuple[object, ...], dict[int | None, WatchdogTimeout]] = defaultdict(dict)
    for e in case.statements.all(WatchdogTimeout):
        group = (e.group_name or "", e.group_desc or "")
        group = group if group[0] else groups.get((e.rank, e.group_rank, e.seq), group)
        own = e.rank if e.rank is not None else e.group_rank
        found[(e.op, e.seq, e.numel_in, e.numel_out, *group)].setdefault(own, e)
    for key in [
        key for key in found if not key[4]
    ]:  # the group of a line that names none is that of its peers' lines
        named = [other for other in found if other[:4] == key[:4] and other[4]]
        if len(named) == 1:
            found[named[0]] = {**found.pop(key), **found[named[0]]}
    told = []
    for (*_, name, desc), by_rank in found.items():
        local = any(e.rank is None or e.rank_assumed for e in by_rank.values())
        ranks = tuple(sorted(rank for rank in by_rank if rank is not None))
        told.append(Wait(tuple(by_rank.values()), ranks, local, (str(name), str(desc))))
    return sorted(told, key=lambda wait: (-len(wait.ranks), wait.first.seq or 0, wait.first.line))


def timeouts(case: Case) -> Observation | None:
    """Read the watchdogs' timeouts, held against the size of their group."""
    told = waits(case)
    if not told:
        return None
    if len(told) > 1:
        return _several(case, told)
    wait, world = told[0], world_size(case.statements)
    size = wait.size(world)
    number = ""
    if size and size_by_elements(wait.first):
        number = f", so {size} ranks take part"
    elif size:
        number = f"; the job has {size} ranks"
    shows = f"{wait.who()} timed out after {_span(wait)} in {wait.call()}{_clock(wait)}{number}{_status(case, wait)}{_place(case, wait)}"
    seen = len(wait.ranks)
    if size is not None and seen == size:
        return _complete(wait, shows, size)
    whole = wait.default or size == world or (size is not None and not wait.group[0] and not wait.local)
    missing = others_of(size, wait.ranks) if whole else ()
    text = _to_compare(wait, missing, size)
    return Observation(shows, _meaning(wait, size, missing), Collect(missing, "log", text), missing, True)


def _span(wait: Wait) -> str:
    e = wait.first
    limit, ran = e.timeout_ms or 0, e.ran_ms or e.timeout_ms or 0
    late = f", well over the limit of {lasted(limit)}" if limit and ran > 1.05 * limit + 2000 else ""
    return lasted(ran) + late


def _clock(wait: Wait) -> str:
    """Return from when to when the first of them waited, by its own clock."""
    e = min(wait.events, key=lambda e: e.stamp or 0.0)
    if e.stamp is None or e.ran_ms is None:
        return ""
    since, until = (strftime("%H:%M:%S", gmtime(moment)) for moment in (e.stamp - e.ran_ms / 1000, e.stamp))
    return f", from {since} to {until}"


def _status(case: Case, wait: Wait) -> str:
    """Return how far the waiting ranks' own counters are, where they are printed."""
    told = [e for e in case.statements.all(WatchdogStatus) if e.seq == wait.first.seq]
    if not told:
        return ""
    e = told[0]
    done = "nothing" if e.last_completed < 0 else str(e.last_completed)
    started = f", started {e.last_started}" if e.last_started is not None and e.last_started >= 0 else ""
    flying = e.last_enqueued - max(e.last_completed, 0)
    calls = f", {flying} collectives in flight" if flying > 1 else ""
    return f"; it had enqueued {e.last_enqueued}{started} and completed {done}{calls}"


def _place(case: Case, wait: Wait) -> str:
    """Return what the number of the collective says of the moment."""
    seq = wait.first.seq
    if seq is not None and seq <= _FIRST:
        return f"; it is only number {seq} of that group, so the job stopped almost at its start"
    if (wait.first.numel_in or 0) > _LARGE:
        return "; its input has more than 2^31 elements, which proves nothing but is worth a look"
    return ""


def _meaning(wait: Wait, size: int | None, missing: Sequence[int]) -> str:
    label = (
        " (the number counts within that group)" if wait.local and wait.group[0] and not wait.default else ""
    )
    several = len(wait.ranks) > 1
    victims = f"{'They are witnesses' if several else 'A rank that prints this is a witness'}{label} and not the culprit"
    if wait.first.op in _POINT_TO_POINT:
        return f"{victims}: its partner in the exchange, usually the neighbouring pipeline stage, did not post its half, or the connection did not come up."
    if size is None:
        return f"{victims}; the size of the group is not stated, so the rank that did not come is probably one that is not shown here."
    rest = size - len(wait.ranks)
    if rest == 1:
        peer = ranks_phrase(missing) if missing else "the one other member"
        return f"{victims}: {peer} may never have made the call, may have died, or may wait in it as well; its lines are not here."
    root = ""
    if wait.first.op == "broadcast" and 0 not in wait.ranks:
        root = " A broadcast waits for its source, usually rank 0, which is not shown."
    listed = f" ({ranks_phrase(missing)})" if missing else ""
    return f"{victims}: {rest} of the {size} members{listed} are not shown, and which of them did not come cannot be told.{root}"


def _to_compare(wait: Wait, missing: Sequence[int], size: int | None) -> str:
    seq = f" {wait.first.seq}" if wait.first.seq is not None else ""
    whose = (
        f"of {ranks_phrase(missing)}"
        if missing
        else f"of the other {size - len(wait.ranks)} members"
        if size
        else "of all other ranks"
    )
    return f"the watchdog lines, or flight recorder dumps, {whose}: the one whose last enqueued number is below{seq or ' the others'}, or that printed no timeout"


def _complete(wait: Wait, shows: str, size: int) -> Observation:
    means = f"These are all {size} members of the group, each in the same collective, so none is missing: the operation itself did not finish (transport, a GPU, or an earlier kernel on the stream). Nobody can be blamed by this."
    text = "NCCL_DEBUG=INFO and the flight recorder of every rank: whether its kernel had started; then a bandwidth test between the hosts"
    return Observation(shows, means, Collect(wait.ranks, "dump", text), (), True)


def _several(case: Case, told: Sequence[Wait]) -> Observation:
    """Read timeouts in several collectives: of one group they show where the ranks' programs part, or who is behind."""
    shown = "; ".join(f"{w.who()} timed out after {_span(w)} in {w.call()}" for w in told[:3])
    more = f"; {len(told) - 3} more such waits" if len(told) > 3 else ""
    names = {w.group for w in told}
    ranks = tuple(sorted({r for w in told for r in w.ranks}))
    apart = [w for w in told[1:] if set(w.ranks).isdisjoint(told[0].ranks)]
    if len(names) > 1 or not apart:
        means = "They are collectives of different groups or moments, so one wait may be the consequence of another: the first to time out is nearest to the root cause."
        text = "the earliest timeout of every rank, with its group: follow which rank waits for which, back to the first one without a timeout"
        return Observation(shown + more, means, Collect((), "log", text), (), True)
    low, high = (pick(told, key=lambda w: w.first.seq or 0) for pick in (min, max))
    gap = (high.first.seq or 0) - (low.first.seq or 0)
    unnamed = (
        " (the lines do not name the group; different groups with their own counters are possible)"
        if ("", "") in names
        else ""
    )
    ahead = f"{high.who()} is {gap} collectives ahead and " if gap else ""
    means = f"If this is one group{unnamed}, {ahead}the ranks run different collectives: their sequences parted earlier, and which side left the plan cannot be told."
    text = "a rerun with TORCH_DISTRIBUTED_DEBUG=DETAIL, which stops at the first collective that differs, or the flight recorder dumps of these ranks"
    return Observation(
        shown + more, means, Collect(ranks, "dump", text), ranks if len(ranks) <= 8 else (), True
    )
