"""The processes of one NCCL log, told apart by host and pid, and by the launcher's prefix for containers that share both."""

from __future__ import annotations

from collections.abc import Iterator

from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.nccl import calls
from hangscope.ingest.nccl.line import NcclLine
from hangscope.ingest.nccl.process import Process

MAX_PROCESSES = 65_536  # bounds what a hostile file can make the parser keep


class Processes:
    """The processes of one input, in the order of their first lines."""

    def __init__(self) -> None:
        self._by_head: dict[tuple[str, str, int | None, str], Process] = {}
        self._by_pid: dict[int, list[Process]] = {}

    def __len__(self) -> int:
        return len(self._by_head)

    def __iter__(self) -> Iterator[Process]:
        return iter(self._by_head.values())

    @property
    def keep(self) -> int:
        """Return how many calls each of them may keep."""
        return max(calls.LEAST_KEPT, calls.CALL_BUDGET // (2 * max(1, len(self))))

    def of(self, message: NcclLine, line: Line) -> Process | None:
        """Return whose line this is; None for a line without a head among lines that have one."""
        if message.pid is None and self._by_pid:
            return None
        lane = f"dev{message.dev}" if message.pid is None and message.dev is not None else ""
        key = (line.origin, message.host, message.pid, lane)
        if message.pid is not None and key not in self._by_head:
            same = [p for p in self._by_pid.get(message.pid, ()) if _may_be(p, message, line)]
            if len(same) == 1:
                return same[0]
        process = self._by_head.get(key)
        if process is None and not message.inner and len(self) < MAX_PROCESSES:
            process = Process(line.file, message.host, message.pid, line.origin, lane, task=line.task)
            process.recording.rank = line.rank
            self._by_head[key] = process
            if message.pid is not None:
                self._by_pid.setdefault(message.pid, []).append(process)
        return process


def _may_be(process: Process, message: NcclLine, line: Line) -> bool:
    """Return whether a line of the same pid is a known process's, though its prefix or host differs."""
    if process.host == message.host:
        return message.truncated or not line.origin
    return joined_to_a_cut_head(message, process)


def joined_to_a_cut_head(message: NcclLine, process: Process) -> bool:
    """Return whether the host begins with the rest of another line: `node1:42node2:12:12 [0] NCCL INFO`."""
    joined = message.inner or message.before
    return bool(
        joined and process.host and message.host != process.host and message.host.endswith(process.host)
    )
