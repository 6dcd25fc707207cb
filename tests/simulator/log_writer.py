"""Writes what a job prints: each rank's own log, the launcher's, and stacks.

Shapes follow torch's ProcessGroupNCCL.cpp, torch/distributed/elastic and Slurm's srun, with the line numbers
of three releases; the wording beyond the fields that they carry is shortened.
"""

from __future__ import annotations

import time as clock
from collections.abc import Collection, Sequence
from pathlib import Path

from .dump_writer import EPOCH
from .engine import Made, Outcome, RankState
from .job import Base, Job
from .launcher import Ending, Launcher

#: release -> lines of: watchdog caught, status, process down, dump, first, received, observed
_LINES = {
    "2.7": (632, 2271, 698, 1536, 2103, 1533, 1746),
    "2.8": (683, 2241, 758, 1575, 2573, 1858, 1794),
    "2.10": (689, 2303, 764, 1628, 2636, 1914, 1849),
}
_OBSERVED = "Observed flight recorder dump signal from another rank via TCPStore."
_DUMPING = "ProcessGroupNCCL preparing to dump debug info. Include stack trace: 1"
_ENDING = "To avoid data inconsistency, we are taking the entire process down."
_OP_TYPES = {
    "all_reduce": "ALLREDUCE",
    "all_reduce_barrier": "ALLREDUCE",
    "_all_gather_base": "_ALLGATHER_BASE",
    "_reduce_scatter_base": "_REDUCE_SCATTER_BASE",
    "all_gather": "ALLGATHER",
    "broadcast": "BROADCAST",
    "reduce": "REDUCE",
    "all_to_all": "ALLTOALL_BASE",
    "send": "SEND",
    "recv": "RECV",
}


class LogWriter:
    """Writes the texts of one run. `endings` says which processes ended how; `alarm` is when the first
    timeout struck. `clocks`: each rank's host clock, in seconds off the job's own; `cancelled`: when somebody
    ended the job, before any timeout.
    """

    def __init__(
        self,
        job: Job,
        bases: list[Base],
        outcome: Outcome,
        release: str,
        clocks: Sequence[float],
        cancelled: float | None = None,
    ) -> None:
        self._job, self._bases, self._outcome = job, bases, outcome
        self._lines, self._clocks, self._cancelled = _LINES[release], clocks, cancelled
        self._pids = [4000 + 17 * rank + job.layout.world_size for rank in range(job.layout.world_size)]
        self.endings = self._ended_early()
        self._pending = {
            state.rank: stuck[0]
            for state in outcome.ranks
            if state.rank not in self.endings and (stuck := state.pending_at(job.alarm))
        }
        self._detector = min(self._pending, key=lambda rank: self._pending[rank].created, default=0)
        first = self._pending[self._detector].created if self._pending else outcome.last
        self.alarm = first + job.timeout
        self._end_the_rest()

    def write(self, folder: Path, ranks: Collection[int]) -> None:
        """Write these ranks' logs."""
        (folder / "logs").mkdir(exist_ok=True)
        for rank in sorted(ranks):
            with (folder / "logs" / f"rank_{rank}.log").open("a") as file:
                file.write(self.text(rank))

    def text(self, rank: int) -> str:
        """Return what one rank printed."""
        return self._fill("\n".join(self._rank_lines(self._outcome.ranks[rank])) + "\n")

    def launchers(self) -> dict[str, str]:
        """Return what the launchers printed, by the names of their files."""
        files = Launcher(self._job, self.endings, self._pids, self._clocks, self._cancelled).files()
        return {name: self._fill("\n".join(lines) + "\n" if lines else "") for name, lines in files.items()}

    def write_stacks(self, folder: Path, ranks: Collection[int]) -> None:
        """Write a faulthandler dump of those of these ranks that are still somewhere."""
        (folder / "stacks").mkdir()
        for state in (self._outcome.ranks[rank] for rank in sorted(ranks)):
            stack = (
                state.stalled.stack if state.stalled else state.blocked_at or self._job.source.at("backward")
            )
            if not state.done:
                frames = [f'  File "{file}", line {line} in {name}' for name, file, line in stack]
                lines = [
                    f"Thread 0x{0x7F0000000000 + state.rank * 4096:016x} (most recent call first):",
                    *frames,
                ]
                (folder / "stacks" / f"stack_rank_{state.rank}.txt").write_text("\n".join(lines) + "\n")

    def lives(self, rank: int) -> bool:
        """Return whether a rank was alive when the first timeout struck, and so could still dump."""
        return self.lives_until(rank, self.alarm)

    def lives_until(self, rank: int, time: float) -> bool:
        """Return whether a rank was alive at a time on the job's clock."""
        return rank not in self.endings or self.endings[rank].time >= time

    def _ended_early(self) -> dict[int, Ending]:
        """Return how processes ended before any timeout: by themselves, or by torchrun for a mate's end."""
        layout = self._job.layout
        endings: dict[int, Ending] = {}
        if self._job.seen_until is not None:
            return endings
        for state in self._outcome.ranks:
            if state.ended is not None and not self._is_late(state.time):
                endings[state.rank] = Ending(state.ended.code, state.time)
        if self._job.launcher == "torchrun" and not self._job.ended_together:
            for rank, ending in sorted(endings.items()):
                for mate in range(layout.world_size) if ending.code else ():
                    if layout.host(mate) == layout.host(rank) and mate not in endings:
                        endings[mate] = Ending(-15, ending.time + 0.2)
        return endings

    def _end_the_rest(self) -> None:
        """Let those that waited abort after their timeout, and the launcher end the idle ones after them."""
        if self._cancelled is not None:
            for state in self._outcome.ranks:
                self.endings.setdefault(state.rank, Ending(-15, self._cancelled + 0.01 * state.rank))
        elif self._outcome.frozen and not self._job.ended_together:
            for state in self._outcome.ranks:
                code, after = (-6, 62) if state.pending else (-15, 64)
                self.endings.setdefault(state.rank, Ending(code, self.alarm + after + 0.01 * state.rank))

    def _is_late(self, time: float) -> bool:
        return self._cancelled is not None and time >= self._cancelled

    def _rank_lines(self, state: RankState) -> list[str]:
        job, rank = self._job, state.rank
        ending = self.endings.get(rank)
        timed = [(time, text) for time, text in state.printed if ending is None or time <= ending.time]
        if state.ended is not None and not self._is_late(state.time):
            timed += [(state.time, f"[rank{rank}]: {line}") for line in state.ended.lines]
        if job.lines.get(rank):
            timed += [(self._outcome.last + 31, line) for line in job.lines[rank]]
        alarmed = self._outcome.frozen or job.alarm is not None
        if self._cancelled is None and alarmed and not job.ended_together and self.lives(rank):
            timed += self._alarm_lines(state)
        if self._cancelled is None and not alarmed:
            timed += [(made.created + job.timeout, self._caught(made)) for made in self._late(state)]
        if job.seen_until is not None:
            timed = [(time, text) for time, text in timed if time <= job.seen_until]
        return [text for _, text in sorted(timed, key=lambda pair: pair[0])]

    def _late(self, state: RankState) -> list[Made]:
        limit = self._job.timeout
        return [m for m in state.made if m.completed is not None and m.completed - m.created > limit][:1]

    def _alarm_lines(self, state: RankState) -> list[tuple[float, str]]:
        rank, first = state.rank, self._pending.get(state.rank)
        _, status, down, dump, signal, received, observed = self._lines
        world = self._job.layout.current(self._job.layout.world).gid
        enqueued, completed = self._counters(state, world)
        counters = f"Last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}."
        lines: list[tuple[float, str]] = []

        def say(time: float, line: int, text: str, gid: int = world) -> None:
            lines.append((time, f"{self._prefix(rank, time, line)}{self._pg(rank, gid)}{text}"))

        def received_from(time: float, whom: str) -> None:
            said = f"Received a dump signal due to a collective timeout from {whom}"
            say(time, received, f"{said} and we will try our best to dump the debug info. {counters}")

        if first is None:
            say(self.alarm + 1, observed, _OBSERVED)
            say(self.alarm + 1.1, dump, _DUMPING)
            return lines
        struck = first.created + self._job.timeout
        if struck > self.alarm + 1:
            received_from(self.alarm + 1, f" rank {self._detector}")
            say(self.alarm + 1.1, dump, _DUMPING)
            return lines
        lines.append((struck, self._caught(first)))
        enqueued, completed = self._counters(state, first.gid)
        at = f"work sequence id: {self._number(first)}"
        counted = f"last enqueued work: {enqueued}, last completed work: {completed}"
        say(struck + 0.001, status, f" failure detected by watchdog at {at} PG status: {counted}", first.gid)
        say(struck + 0.002, signal, "First PG on this rank to signal dumping.", first.gid)
        received_from(struck + 0.5, "this local rank")
        say(struck + 0.6, dump, _DUMPING)
        say(struck + 61, down, _ENDING, first.gid)
        return lines

    def _caught(self, made: Made) -> str:
        rank, call, timeout = made.rank, made.call, self._job.timeout
        op = "COALESCED" if call is None else _OP_TYPES[call.op]
        count_in, count_out = (0, 0) if call is None else call.numel
        sizes = f"NumelIn={count_in}, NumelOut={count_out}, Timeout(ms)={timeout}000"
        work = f"WorkNCCL(SeqNum={self._number(made)}, OpType={op}, {sizes})"
        said = f"[Rank {rank}] Watchdog caught collective operation timeout: {work}"
        ran = f"ran for {timeout}0{31 + rank % 60} milliseconds before timing out."
        return f"{self._prefix(rank, made.created + timeout, self._lines[0])}{said} {ran}"

    def _number(self, made: Made) -> int:
        base = self._bases[made.rank]
        if made.is_p2p:
            return made.p2p_seq + base.p2ps.get(made.gid, 0)
        return made.seq + base.collectives.get(made.gid, 0)

    def _counters(self, state: RankState, gid: int) -> tuple[int, int]:
        """Return the numbers of the last work enqueued and completed on a group, -1 for none."""
        none = self._bases[state.rank].collectives.get(gid, -1)
        end = float("inf") if self._job.alarm is None else self._job.alarm
        work = [m for m in reversed(state.made) if m.gid == gid and m.batch is None and m.created <= end]
        completed = next(
            (made for made in work if made.completed is not None and made.completed <= end), None
        )
        return self._number(work[0]) if work else none, self._number(completed) if completed else none

    def _pg(self, rank: int, gid: int) -> str:
        group = self._job.layout.groups[gid]
        own = self._job.layout.local_ids(rank)[gid]
        return f"[PG ID {own} PG GUID {group.name}({group.desc}) Rank {group.local(rank)}] "

    def _prefix(self, rank: int, time: float, line: int) -> str:
        time += self._clocks[rank]
        at = clock.gmtime(EPOCH + time)
        stamp = f"E{at.tm_mon}{at.tm_mday:02d} {clock.strftime('%H:%M:%S', at)}.{int(time * 1e9) % 10**9:09d}"
        return f"[rank{rank}]:[{stamp} ProcessGroupNCCL.cpp:{line}] "

    def _fill(self, text: str) -> str:
        """Fill in what templates leave open: epochs, losses, process ids and the date."""
        for epoch in range(self._job.plan.epochs):
            text = text.replace(f"{{epoch{epoch}}}", str(self._job.epoch_number(epoch)))
        text = text.replace("{loss}", "2.4871")
        text = text.replace(
            "{date}", clock.strftime("%Y-%m-%dT%H:%M:%S", clock.gmtime(EPOCH + self._outcome.last))
        )
        if "{pid" in text or "{tid" in text:
            for number, pid in enumerate(self._pids):
                text = text.replace(f"{{pid{number}}}", str(pid)).replace(f"{{tid{number}}}", str(pid + 211))
        return text
