"""What launchers say when processes end: Slurm's srun, and torchrun's agent of each host.

The agent's lines and its failure table have the shapes of torch/distributed/elastic (multiprocessing/api.py
and errors/__init__.py). A process that ends with code 0 is not mentioned, as in reality.
"""

from __future__ import annotations

import time as clock
from collections.abc import Sequence
from dataclasses import dataclass

from .dump_writer import EPOCH
from .job import Job

_SRUN = {
    -9: "Killed",
    -11: "Segmentation fault (core dumped)",
    -7: "Bus error (core dumped)",
    -6: "Aborted (core dumped)",
    -15: "Terminated",
}
_SIGNALS = {-9: "SIGKILL", -11: "SIGSEGV", -7: "SIGBUS", -6: "SIGABRT", -15: "SIGTERM"}
_API = "torch/distributed/elastic/multiprocessing/api.py"
_TRACEBACK_HINT = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"


@dataclass(slots=True)
class Ending:
    """How a rank's process ended: exit code, and when on the job's clock."""

    code: int
    time: float


class Launcher:
    """The launcher's output of one job. `pids` are the ranks' process ids; `clocks` their hosts' offsets in
    seconds; `cancelled` is when somebody ended the job.
    """

    def __init__(
        self,
        job: Job,
        endings: dict[int, Ending],
        pids: list[int],
        clocks: Sequence[float],
        cancelled: float | None = None,
    ) -> None:
        self._job, self._endings, self._pids, self._clocks = job, endings, pids, clocks
        self._cancelled = cancelled

    def files(self) -> dict[str, list[str]]:
        """Return file name -> lines."""
        job, layout = self._job, self._job.layout
        started = (rank for rank in self._endings if rank not in job.silent)
        order = sorted(started, key=lambda rank: (self._endings[rank].time, rank))
        if job.launcher == "srun":
            return {"slurm.out": job.launcher_lines + self._srun(order)}
        files: dict[str, list[str]] = {}
        for first in range(0, layout.world_size, layout.per_host):
            ranks = [rank for rank in order if first <= rank < first + layout.per_host]
            own = job.launcher_lines if first == 0 else []
            files[f"launcher_{layout.host(first)}.log"] = own + self._agent(first, ranks)
        return files

    def _srun(self, order: list[int]) -> list[str]:
        lines: list[str] = []
        told = False
        for rank in order:
            code = self._endings[rank].code
            if self._cancelled is not None and self._endings[rank].time >= self._cancelled and not told:
                at = clock.strftime("%Y-%m-%dT%H:%M:%S", clock.gmtime(EPOCH + self._cancelled))
                lines.append(f"slurmstepd: error: *** STEP 7341.0 ON gpu00 CANCELLED AT {at} ***")
                told = True
            if code:
                what = _SRUN.get(code, f"Exited with exit code {code}")
                lines.append(f"srun: error: {self._job.layout.host(rank)}: task {rank}: {what}")
        return lines

    def _agent(self, first: int, ranks: list[int]) -> list[str]:
        """Return what one host's torchrun prints: it ends the others when one of its processes fails."""
        failed = [rank for rank in ranks if self._endings[rank].code]
        if not failed:
            return []
        start = self._endings[failed[0]].time
        ended = [rank for rank in failed if self._endings[rank].code == -15]
        closing = [
            self._log("W", first, start + 0.1, 1028, f"Sending process {pid} closing signal SIGTERM")
            for pid in (self._pids[rank] for rank in ended)
        ]
        from_outside = self._job.ended_together or self._cancelled is not None
        if len(ended) == len(failed) and from_outside:
            told = self._log("W", first, start, 1010, "Received 15 death signal, shutting down workers")
            return [told, *closing]
        root = failed[0]
        process = f"local_rank: {root - first} (pid: {self._pids[root]}) of binary: /opt/venv/bin/python3"
        text = f"failed (exitcode: {self._endings[root].code}) {process}"
        lines = [*closing, self._log("E", first, start + 0.3, 1002, text)]
        lines.append("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ")
        lines += ["=" * 60, "train.py FAILED", "-" * 60, "Failures:"]
        for number, rank in enumerate(failed[1:], 1):
            lines += self._failure(number, rank, first)
        lines += ["-" * 60, "Root Cause (first observed failure):", *self._failure(0, root, first), "=" * 60]
        return lines

    def _log(self, level: str, first: int, time: float, line: int, text: str) -> str:
        time += self._clocks[first]
        at = clock.strftime("%m%d %H:%M:%S", clock.gmtime(EPOCH + time))
        return f"{level}{at}.{int(time * 1000) % 1000:03d}000 {3900 + first} {_API}:{line}] {text}"

    def _failure(self, number: int, rank: int, first: int) -> list[str]:
        ending, pid = self._endings[rank], self._pids[rank]
        name = _SIGNALS.get(ending.code, "")
        trace = f"Signal {-ending.code} ({name}) received by PID {pid}" if name else _TRACEBACK_HINT
        at = clock.strftime("%Y-%m-%d_%H:%M:%S", clock.gmtime(EPOCH + ending.time + self._clocks[rank]))
        return [
            f"[{number}]:",
            f"  time      : {at}",
            f"  host      : {self._job.layout.host(rank)}",
            f"  rank      : {rank} (local_rank: {rank - first})",
            f"  exitcode  : {ending.code} (pid: {pid}) " + (f" ({name})" if name else ""),
            "  error_file: <N/A>",
            f"  traceback : {trace}",
        ]
