"""Whether a job makes progress, and for how long it may make none.

Progress is a call issued or completed, if a recorder on this node reports them; else what the ranks print; else what
processes of ranks without an agent write (to anything, sockets aside); and what the command prints into a file if no rank
shows itself for half a minute. `timeout` counts from the first progress, so that no import, no launcher's line and no start
of a cluster is taken for a freeze; until then `init_timeout` counts from the start, or from the ranks' restart. A job may pause for as long as it was
asked to be given, or half as long again as the longest pause that it came back from: a checkpoint or an evaluation has
its own time. A rank that is at work is given WORK times as long: its main thread moves and uses the processor, or it
compiles or saves, which may wait for a compiler or a disk. That counts on all nodes that share the folder, and for the start
as well, where an import counts only while it computes: one that waits for a disk may do so for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from hangscope.live.agent.hangscope_agent import proc
from hangscope.live.look.activity import Activity
from hangscope.live.look.processes import Status
from hangscope.model.dataclass import dataclass

OWN_TIME = 1.5
SHORT = 5.0  # s: less than that is a step
START = 30.0  # s in which a job may show nothing at all, and its ranks may start
_NEWS = 60.0  # s for which work counts that was seen before the first progress
WORK = 4.0


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at one moment: the clock in s, the ranks of this node, bytes that the command printed, processor seconds that main threads wanted.

    `elsewhere` is a number that changes when another node says that its ranks are at work. `silent` has what each rank
    without an agent has written. `distributed` says that there are ranks, or a launcher that is to start some; `launching`
    that this launcher has started no process yet, so that its own lines (such as retries of a connection) are no progress.
    """

    time: float
    ranks: Sequence[Status]
    printed: int
    cpu: dict[int, float] = field(default_factory=dict)
    elsewhere: int = 0
    silent: dict[int, int] = field(default_factory=dict)
    distributed: bool = True
    launching: bool = False

    @property
    def activity(self) -> Activity:
        """Return what main threads have done so far."""
        return Activity(self.time, self.cpu, {status.pid: status.moves for status in self.ranks})


_MEASURES = ("launcher", "written", "output", "calls")  # the later in the life of a job, the further behind


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a job has come, by what shows it: `calls`, `output` or writes (`written`) of ranks, else the output of the `launcher`."""

    told_by: str
    count: int

    def is_beyond(self, other: Mark) -> bool:
        """Whether the job has come further since, by the same measure or by one that only running ranks give.

        Ranks that end take their counts with them.
        """
        now, before = _MEASURES.index(self.told_by), _MEASURES.index(other.told_by)
        return self.count > (other.count if now == before else 0) and now >= before


def mark_of(look: Look) -> Mark:
    """Return how far the job has come."""
    if calls := sum(rank.changes for rank in look.ranks):
        return Mark("calls", calls)
    if look.ranks:
        return Mark("output", sum(rank.printed for rank in look.ranks if not rank.by_calls))
    if look.silent:
        return Mark("written", sum(look.silent.values()))
    return Mark("launcher", 0 if look.launching else look.printed)


class Patience:
    """How long a job has made no progress, and whether that is too long; timeouts in seconds."""

    def __init__(self, timeout: float = float("inf"), init_timeout: float = float("inf")) -> None:
        self.timeout, self.init_timeout = timeout, init_timeout
        self.longest = 0.0
        self._mark = Mark("", 0)
        self._first = float("inf")
        self._since: float | None = None
        self._moved = float("-inf")
        self._at_work = float("-inf")
        self._last: Look | None = None
        self.active = False  # in the last look there was progress, or a rank of this node was at work

    def frozen(self, look: Look) -> bool:
        """Take note of a look, and return whether the job has been stalled for too long."""
        mark = mark_of(look)
        before, self._last = self._last or look, look
        self._first = min(self._first, look.time)
        if mark != self._mark:
            if self._since is not None and mark.told_by == self._mark.told_by:
                self.longest = max(self.longest, look.time - self._since)
            early = mark.told_by == "launcher" and look.time - self._first < START
            since = look.time if mark.count and not early else None
            if since is None and self._since is not None:
                self._first = look.time  # its ranks are being started again
            self._mark, self._since, self._moved = mark, since, look.time
            self._at_work = float("-inf")
            self.active = since is not None
            return False
        # An import counts also while it does not compute, but for the start.
        known = any(status.work and (self.started or status.work != "import") for status in look.ranks)
        self.active = known or bool(busy(before, look))
        if self.active or before.elsewhere != look.elsewhere:
            self._at_work = look.time
        since, limit = self._since, max(self.timeout, OWN_TIME * self.longest)
        news = limit
        if since is None:
            since, limit, news = self._first, self.init_timeout, min(_NEWS, self.init_timeout)
        if look.time - self._at_work < news:
            limit *= WORK
        return look.time - since >= limit and (self.started or look.distributed)

    def is_beyond(self, look: Look, before: Mark) -> bool:
        """Whether the job has come further than it was; before its first progress a launcher's lines may tell of vain attempts."""
        mark = mark_of(look)
        return mark.is_beyond(before) and (self.started or mark.told_by != "launcher")

    @property
    def started(self) -> bool:
        """Whether there was a first progress."""
        return self._since is not None

    def starting_for(self, now: float) -> float:
        """Return for how long the job has been starting, in seconds."""
        return now - self._first

    def stands_still(self, now: float) -> bool:
        """Return whether the job has paused for longer than it ever did before, or has shown nothing since its start."""
        if self._since is None:
            return self.starting_for(now) >= min(START, self.init_timeout)
        return now - self._since >= max(SHORT, OWN_TIME * self.longest)

    def standstill(self, now: float) -> bool | None:
        """Return whether the job stands still; None before its first progress, if nothing that it printed has moved lately.

        What srun starts is no process of ours: of such a job, for half a minute, nothing more is seen.
        """
        if self.stands_still(now):
            return True
        return None if self._since is None and now - self._moved >= SHORT else False

    def still_for(self, now: float) -> float:
        """Return for how long there was no progress, in seconds."""
        return 0.0 if self._since is None else now - self._since


def busy(before: Look, now: Look) -> set[int]:
    """Return the processes of ranks that computed between two looks; a job with one of them may yet make progress.

    The main thread used the processor and, as far as that is known, moved: it did not spin in a wait.
    """
    work = now.activity.since(before.activity)
    return {pid for pid, does in work.items() if does.moved is not False}


def written(pid: int) -> int:
    """Return how many bytes a process has written so far: to files, pipes and terminals, what it sent aside."""
    try:
        return int(proc.fields_of(f"{pid}/io")["wchar"])
    except (OSError, ValueError, KeyError):
        return 0
