"""Which exits of processes are their own ends, and which only answer another one: by SIGTERM, SIGKILL after it, or their own watchdog."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

from hangscope.explain.statements.statements import CLOCK_SKEW, WAITED, Statements
from hangscope.ingest.job_logs.endings import CleanupSignal, Exit, ExternalEnd, ended_with, signal_name
from hangscope.ingest.job_logs.last_lines import Printed
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.torch_logs.c10d import AsyncError, HeartbeatTimeout

ABORTS = frozenset({-6, 134})  # by SIGABRT, as a launcher or a shell reports it
CLEANUPS = frozenset({-15, 143})  # how a process ends that lives when a launcher ends all
_LISTED = ("table", "docker")  # exits that stand in one list of all processes
#: Launchers that report the first failure alone: they end all others with SIGTERM, torch's own tests list those that failed.
_OF_THE_FIRST = ("script", "test", "mpirun")
#: Seconds: a torchrun agent waits 30 between SIGTERM and SIGKILL, and its table counts whole seconds.
_GRACE = 25.0


class Exits:
    """The exits of a job, of which it is asked which are own ends."""

    def __init__(self, statements: Statements) -> None:
        self.statements = statements
        listed = (e for e in statements.exits.values() if e.via == "table")
        self._failed = [e for e in listed if e.code not in {0, *CLEANUPS}]
        closed = {(e.file, e.pid) for e in statements.all(CleanupSignal) if e.pid is not None}
        self._answered: set[int | None] = set()
        self._killed = {e.rank for e in self._failed if e.code == -9 and (e.file, e.pid) in closed}
        self._find_sweeps()
        self._times: dict[int, list[float]] = defaultdict(list)  # of ends, by exit code, ascending
        for end in sorted(statements.exits.values(), key=lambda end: end.time or 0.0):
            self._times[end.code].append(end.time or 0.0)
        first = [e for e in statements.all(Exit) if e.via in _OF_THE_FIRST and e.code not in CLEANUPS]
        self._first = first[0] if len(first) == 1 else None

    def _find_sweeps(self) -> None:
        """Find the ranks whose exits an agent answered by ending all others of the job or of a host, and those that it killed after its grace period."""
        of_host: dict[str | None, list[Exit]] = defaultdict(list)
        for event in sorted(self._failed, key=lambda e: (e.time or 0.0, e.rank or 0)):
            for place in {event.host, event.host and ""}:
                of_host[place].append(event)
        for first, *later in of_host.values():
            late = (e.code == -9 and first.time and e.time and e.time - first.time >= _GRACE for e in later)
            if later and all(late):
                self._answered.add(first.rank)
                self._killed.update(e.rank for e in later)

    def own_end(self, rank: int, aborting: bool) -> str:
        """Return how a rank's process ended by itself, for a sentence; else nothing. `aborting`: its own lines show it waiting, or being aborted."""
        end = self.statements.exits.get(rank)
        if end is None or rank in self._killed:
            return ""
        if end.code > 0 and rank in self._answered:
            return ended_with(end.code)
        if end.code < 0 or end.code > 128:
            number = -end.code if end.code < 0 else end.code - 128
            of_others = end.code in ABORTS and (aborting or self._unheard_abort(rank))
            # After a launcher's report that the whole job is being ended, SIGKILL follows.
            ends = [e for e in self.statements.all(ExternalEnd) if e.file == end.file and e.line < end.line]
            swept = number == 9 and bool(ends)
            if of_others or swept or end.code in CLEANUPS or self._not_alone(end):
                return ""
            return f"was killed by signal {number} ({end.signal or signal_name(-number) or '?'})"
        return ended_with(end.code) if end == self._first and not aborting else ""

    def _not_alone(self, end: Exit) -> bool:
        """Return whether one signal ended all processes at once (lists of containers have no times), or an abort was not the first one."""
        at_once = bisect_right(self._times[end.code], (end.time or 0.0) + CLOCK_SKEW) - 1
        of_all = end.via in _LISTED and at_once == len(self.statements.exits) - 1
        return at_once > 0 and (end.code in ABORTS or of_all)

    def _unheard_abort(self, rank: int) -> bool:
        """Return whether only the launcher reports the abort of a rank, in a job whose communication layer aborts processes.

        NCCL's watchdogs abort those that wait, and gloo a process that gets a message which does not fit its buffer.
        """
        said = (e for events in self.statements.of_rank[rank].values() for e in events)
        heard = any(not e.by_launcher and not isinstance(e, Progress | Printed) for e in said)
        return not heard and self.statements.any_of(*WAITED, AsyncError, HeartbeatTimeout)
