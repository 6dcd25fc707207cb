"""What a job that has run leaves behind, and what of it was kept: dumps, logs, launchers' files, stacks."""

from __future__ import annotations

import dataclasses
import itertools
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from .dump_writer import DumpOptions, DumpWriter
from .incident import Incident
from .job import Truth
from .log_writer import LogWriter

#: faults that calls alone carry, without frames and history: their dumps may be JSON or of pending calls only
_FRAMELESS = (
    "stuck_rank",
    "two_stuck_ranks",
    "crashed_signal",
    "crashed_oom",
    "gpu_stall",
    "network_stall",
    "healthy",
)

#: what a log line holds of its rank, its group and the time
_OWN = re.compile(
    r"\[[Rr]ank ?\d+(?:/\d+)?\]|E\d+ [\d:.]+|PG ID \d+ PG GUID \d+|(?<=\)) Rank \d+|ran for \d+|gpu\d+:\d+:\d+ \[\d+\]"
)


@dataclass(frozen=True, slots=True)
class Kept:
    """What was kept, and how it was recorded. Ranks are global.

    `taken`: rank -> seconds on the job's clock at which its dump was made, where that is before the end;
    `clocks`: each rank's host clock in seconds off the job's; `cancelled`: when somebody ended the job;
    `stale`: ranks whose file is that of an earlier attempt.
    """

    dumps: frozenset[int]
    logs: frozenset[int]
    stacks: frozenset[int]
    launchers: frozenset[str]
    options: DumpOptions
    clocks: tuple[float, ...]
    taken: dict[int, float] = field(default_factory=dict)
    cancelled: float | None = None
    stale: frozenset[int] = frozenset()

    def without(self, ranks: frozenset[int]) -> Kept:
        """Return the same without all files of some ranks."""
        return dataclasses.replace(
            self,
            dumps=self.dumps - ranks,
            logs=self.logs - ranks,
            stacks=self.stacks - ranks,
            stale=self.stale - ranks,
        )


class Remains:
    """All that one incident could leave. `release` is the torch whose log lines it prints."""

    def __init__(self, incident: Incident) -> None:
        self.incident, self.job, self.outcome = incident, incident.job, incident.outcome
        rng = incident.rng
        self.release = rng.choice(("2.7", "2.8", "2.10"))
        self._logs: dict[tuple[tuple[float, ...], float | None], LogWriter] = {}
        everyone = range(self.job.layout.world_size)
        still = (0.0,) * len(everyone)
        living = [rank for rank in everyone if self.logs(still).lives(rank)]
        self.silent_recorder = self.job.text_only or self.job.ended_together
        fewest = min((len(self.outcome.ranks[rank].made) for rank in living), default=1)
        options = _options(self.job.truth.kind, incident, fewest)
        drift = {host: rng.gauss(0, 0.02) for host in sorted({self.job.layout.host(r) for r in everyone})}
        with_stacks = rng.random() < 0.3 or self.job.with_stacks
        self.full = Kept(
            dumps=frozenset(() if self.silent_recorder else living),
            logs=frozenset(everyone) - self.job.silent,
            stacks=frozenset(
                living if self.outcome.frozen and with_stacks and not self.silent_recorder else ()
            ),
            launchers=frozenset(self.logs(still).launchers()),
            options=options,
            clocks=tuple(drift[self.job.layout.host(r)] for r in everyone),
            taken=self.job.taken,
        )
        self.earlier = Remains(incident.earlier) if incident.earlier is not None else None
        if self.earlier is not None:
            self.full = dataclasses.replace(self.full, stale=self.earlier.full.dumps - self.full.dumps)

    def logs(self, clocks: tuple[float, ...], cancelled: float | None = None) -> LogWriter:
        """Return the writer of the texts under some hosts' clocks."""
        key = (clocks, cancelled)
        if key not in self._logs:
            self._logs[key] = LogWriter(
                self.job, self.incident.bases, self.outcome, self.release, clocks, cancelled
            )
        return self._logs[key]

    @cached_property
    def frozen_at(self) -> float | None:
        """Return when the job came to a halt, in seconds on its own clock; None where it never did."""
        if self.job.text_only:
            return 1.0 if self.job.silent else None
        if self.job.ended_together:
            return None
        if self.outcome.frozen:
            return self.outcome.last
        times = sorted(
            time
            for state in self.outcome.ranks
            for made in state.made
            for time in (made.created, made.completed)
            if time is not None
        )
        gaps = ((one, other - one) for one, other in itertools.pairwise(times))
        return next((start for start, gap in gaps if gap > self.job.timeout * 0.9), None)

    def truth(self, kept: Kept) -> Truth:
        """Return the truth of what was kept: a late rank whose job was ended while all waited froze it."""
        truth = self.job.truth
        if kept.cancelled is None or self.outcome.frozen or truth.status is None:
            return truth
        return dataclasses.replace(truth, accept=["stuck_rank", *truth.accept], status=None)

    def tells(self, kept: Kept) -> bool:
        """Return whether what was kept sets the culprits apart: a dump or a log of theirs that is no innocent's too,
        or a launcher that saw them end.
        """
        culprits = set(self.job.truth.culprits)
        logs = self.logs(kept.clocks, kept.cancelled)
        innocent = {self._said(logs, rank) for rank in kept.logs - culprits}
        ended = {
            rank
            for rank in culprits - self.job.silent
            if not logs.lives(rank)
            and logs.endings[rank].code
            and kept.launchers & {"slurm.out", f"launcher_{self.job.layout.host(rank)}.log"}
        }
        return all(
            rank in kept.dumps
            or rank in ended
            or (rank in kept.logs and self._said(logs, rank) not in innocent)
            or (rank in self.job.silent and len(kept.logs) == self.job.layout.world_size - 1)
            for rank in culprits
        )

    def _said(self, logs: LogWriter, rank: int) -> tuple[str, ...]:
        """Return a rank's lines without what names the rank, its group or the time."""
        lines = _OWN.sub("", logs.text(rank)).splitlines()
        everyone_prints = self.job.plan.print_ranks == "all"
        return tuple(line for line in lines if everyone_prints or " loss " not in line)

    def write(self, folder: Path, kept: Kept) -> None:
        """Write what was kept to `folder`, which exists and is empty or holds what an earlier attempt left."""
        logs = self.logs(kept.clocks, kept.cancelled)
        if self.earlier is not None:
            self._write_earlier(self.earlier, folder, kept)
        if kept.logs:
            logs.write(folder, kept.logs)
        for name, text in logs.launchers().items():
            if name in kept.launchers:
                with (folder / name).open("a") as file:
                    file.write(text)
        if kept.dumps:
            writer = DumpWriter(self.job, self.incident.bases, kept.options, kept.clocks)
            (folder / "recorder").mkdir(exist_ok=True)
            for rank in sorted(kept.dumps):
                taken = kept.taken.get(rank, float("inf"))
                writer.write(folder / "recorder", self.outcome.ranks[rank], taken)
        if kept.stacks:
            logs.write_stacks(folder, kept.stacks)

    def _write_earlier(self, earlier: Remains, folder: Path, kept: Kept) -> None:
        """Write what is left of the attempt before: its logs, and the dumps that this one has not overwritten."""
        ago = earlier.outcome.last + 3 * self.job.timeout
        before = dataclasses.replace(
            kept,
            dumps=kept.stale,
            stacks=frozenset(),
            clocks=tuple(clock - ago for clock in kept.clocks),
            taken={},
            cancelled=None,
        )
        earlier.write(folder, before)


def _options(fault: str, incident: Incident, fewest: int) -> DumpOptions:
    rng = incident.rng
    loose = fault in _FRAMELESS
    drawn = rng.choice((60, 100, 160, 250, 400, 2000))
    return DumpOptions(
        version=rng.choice(("2.10", "2.10", "2.9", "2.4")),
        # Counters that start later than 1 are only true of a ring that is full.
        ring=min(drawn, fewest) if incident.job.prior else drawn,
        as_json=loose and rng.random() < 0.1,
        pending_only=loose and fault != "healthy" and rng.random() < 0.12,
        prefix=rng.choice(("nccl_trace_rank_", "comm_lib_trace_rank_", "_dump_")),
    )
