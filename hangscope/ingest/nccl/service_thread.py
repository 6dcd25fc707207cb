"""Who closed its connections first, as NCCL's service threads of the other processes on its node say it.

    gpu07:9001:9121 [0] NCCL INFO [Service thread] Connection closed by localRank 6

(src/proxy.cc of NCCL 2.12 to 2.30.) A healthy job prints it at its end too, and a process that its own watchdog ended leaves
the same lines: alone they accuse nobody. `localRank` counts the ranks of one communicator on one node; the line that lays the
nodes out, `comm 0x.. rank 4 nRanks 8 nNodes 2 localRanks 4 localRank 0`, tells which they are; so do lines of all members but one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace

from hangscope.ingest.lines.parser import LineParser
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.nccl.line import parse_line
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

_CLOSED = regex(r"\[Service thread\] Connection closed by localRank (\d{1,6})\b")
_LAYOUT = regex(
    r"comm 0x[0-9a-f]{1,16} rank (\d{1,7}) n[rR]anks (\d{1,7}) nNodes \d{1,6} localRanks \d{1,6} localRank (\d{1,6})\b"
)
_SIZE = regex(r"comm 0x[0-9a-f]{1,16} rank \d{1,7} nranks (\d{1,7}) cudaDev ")
_LINES = 256  # of one node; who left first stands among the first
_WITNESSES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftFirst(Event, by_launcher=True, calm=True):
    """The process that several others on its node saw go before any other did; `rank` is its own."""

    local: int
    witnesses: int


@dataclass(slots=True)
class _Node:
    closed: list[tuple[Line, int | None, int]] = field(
        default_factory=list
    )  # (line, pid of the printer, who was gone)
    bases: dict[int, set[int]] = field(default_factory=dict)  # size of a communicator -> rank - localRank
    size: int = 0  # of the only communicator that is told of; 0: none, -1: several
    local_of: dict[int, int] = field(default_factory=dict)  # pid -> localRank

    def first(self) -> Event | None:
        """Return who left first, where two processes say so before anybody speaks of another one, and it says nothing itself."""
        gone = self.closed[0][2] if self.closed else 0
        told: set[int | None] = set()
        for _, pid, other in self.closed:
            if other != gone:
                break
            told.add(pid)
        speakers = {self.local_of.get(pid) for _, pid, _ in self.closed if pid is not None}
        if len(told) < _WITNESSES or gone in speakers:
            return None
        # all members but one say so: they are of one node, and their numbers there are their ranks
        alone = {0} if len(told) + 1 == self.size and None not in told else set[int]()
        bases = self.bases[max(self.bases)] if self.bases else alone
        rank = bases.copy().pop() + gone if len(bases) == 1 else None
        if rank is None or not 0 <= rank < MAX_RANKS:
            return None
        event = self.closed[0][0].event(LeftFirst, local=gone, witnesses=len(told))
        return replace(event, rank=rank, pid=None, local_rank=None, task=None)


class ServiceThreadParser(LineParser):
    """Gathers such lines by node; who left first is told at the end."""

    literals = (b"Connection closed by localRank", b" localRanks ", b" cudaDev ")

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}

    def feed(self, line: Line) -> Iterable[Event]:
        """Keep what a line says."""
        for message in parse_line(line.text):
            node = self._nodes.setdefault(message.host, _Node())
            if (closed := _CLOSED.search(message.message)) and len(node.closed) < _LINES:
                node.closed.append((line, message.pid, int(closed[1])))
            elif sized := _SIZE.search(message.message):
                node.size = int(sized[1]) if node.size in (0, int(sized[1])) else -1
            elif layout := _LAYOUT.search(message.message):
                rank, size, local = (int(number) for number in layout.groups())
                node.bases.setdefault(size, set()).add(rank - local)
                if message.pid is not None:
                    node.local_of[message.pid] = local
        return ()

    def close(self) -> Iterable[Event]:
        """Return who left first on each node."""
        return [event for _, node in sorted(self._nodes.items()) if (event := node.first()) is not None]
