"""What Ascend's HCCL reports about a failed collective, in the lines that torch_npu quotes below its exception.

    [ERROR] 2026-01-14-05:02:11 (PID:5201, Device:0, RankID:9) ERR01100 OPS call acl api failed.
    EI0006: [PID: 5201] 2026-01-14-05:02:11.300.711 Getting socket times out. Reason: Remote Rank did not send the data in time.

(The wordings of EI0002 to EI0013 and EJ0002: the table of messages of HCCL's hcomm, src/.../err_msg.cc, CANN 8.5; the line with
RankID: torch_npu's NPUException, whose number is the environment's RANK; `messages.MessageParser` applies it to the lines below.) The rank that times out is the one that waited; a remote rank is local to its group.
"""

from __future__ import annotations

from hangscope.ingest.lines.forms import says
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event


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
