"""What Ascend's HCCL reports about a failed collective, in the lines that torch_npu quotes below its exception.

    [ERROR] 2026-01-14-05:02:11 (PID:5201, Device:0, RankID:9) ERR01100 OPS call acl api failed.
    EI0006: [PID: 5201] 2026-01-14-05:02:11.300.711 Getting socket times out. Reason: Remote Rank did not send the data in time.

(The wordings of EI0002 to EI0013 and EJ0002: the table of messages of HCCL's hcomm, src/.../err_msg.cc, CANN 8.5; the line with
RankID: torch_npu's NPUException, whose number is the environment's RANK.) The rank that times out is the one that waited; a remote rank is local to its group.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from hangscope.ingest.lines.forms import FormParser, says
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

_LINES = 12  # in which HCCL's messages follow the line with the rank
_RANK = regex(r"\(PID:\d{1,10}, Device:-?\d{1,6}, RankID:(\d{1,7})\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class HcclTimeout(Event, same_by=("what",)):
    """HCCL waited for a peer until its timeout: `what` is notify or task (in a call), or socket (while it connects)."""

    what: str
    peer_group_rank: int | None = None
    forms = (
        says(
            r"Notify register times out\.(?:.{0,120}?from remote rank:? ?\[(?P<peer_group_rank>\d{1,7})\])?",
            what="notify",
        ),
        says(r"\bhccl \w{1,20} task timeout occurred", what="task"),
        says("Getting socket times out", what="socket"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HcclWarn(NcclWarn):
    """A fault that HCCL reports, in the terms of NCCL's warnings."""

    forms = (
        says(
            "arguments for collective communication are inconsistent between ranks",
            fault="collective_mismatch",
            tier=3,
        ),
        says(
            r"An error CQE occurred during operator execution\."
            r"(?:.{0,300}?Peer information: server (?P<peer_host>[^\s,]{1,255}))?",
            fault="ib_error",
            tier=2,
        ),
        says(r"EJ0002: .{0,80}?The network port is down", fault="port_error", tier=1),
    )


class StatedRank:
    """Keeps the rank that a process of Ascend's stated last; it applies to the next few lines."""

    literal = b", RankID:"

    def __init__(self) -> None:
        self._stated: dict[str, tuple[int, int]] = {}  # by writer: the rank, and the number of the line

    def of(self, line: Line) -> int | None:
        """Return whose line it is: by its prefix, or by the last line of that writer that stated a rank."""
        if match := _RANK.search(line.text):
            self._stated[line.origin] = (int(match[1]), line.number)
        rank, number = self._stated.get(line.origin, (None, 0))
        return line.rank if line.rank is not None else rank if line.number - number <= _LINES else None


class HcclParser(FormParser):
    """Reads HCCL's messages; an earlier line states the rank of their process."""

    def __init__(self) -> None:
        super().__init__(sys.modules[__name__])
        self.literals = (*self.literals, StatedRank.literal)
        self._stated = StatedRank()

    def feed(self, line: Line) -> list[Event]:
        """Return the events of a line, with the rank that its writer stated last."""
        rank = self._stated.of(line)
        return [replace(event, rank=rank) for event in super().feed(line)]
