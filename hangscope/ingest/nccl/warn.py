"""The fault that an NCCL warning reports, and whether it is a fault itself or the consequence of one.

The process that prints "Connection closed by remote peer" or a retry-exceeded completion is a victim; a port
error, a CUDA failure or a full /dev/shm is the printer's own. The wordings and their sources are in knowledge/faults/nccl.toml.
Torch quotes NCCL's last warning below an exception, which is often the only line of NCCL's in a paste:

    ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.
    Last error:
    NET/IB : Got completion from peer 192.0.2.7<40112> with status=12 opcode=0 len=0 vendor err 129 (Recv)

(torch/csrc/distributed/c10d/NCCLUtils.cpp; the quote is `ncclGetLastError`, on the same line or the next.) In copies the lines may
be reordered or "Last error:" may be missing; what only NCCL prints is read without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from hangscope.ingest.lines.blocks import Found, block
from hangscope.ingest.lines.forms import says, typed
from hangscope.ingest.nccl.line import NcclLine
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex
from hangscope.model.tables import entries


class NcclWarn(Event):
    """An NCCL warning that names a fault.

    `fault`: port_error, catastrophic, cuda, shm, oom, ib_error (of libfabric, too), connect, timed_out, closed_by_peer, bootstrap,
    duplicate_gpu, version_mismatch, size_mismatch, collective_mismatch, set_up (a proxy could not connect) or other. `tier`: 1 a
    fault itself, of the process that printed it; 2 a path that failed; 3 a consequence, of which the printer is a victim.
    `peer_host` is a name or address without port, `peer_node` the host of that address where bootstrap lines state it;
    `peer_rank` and `rank_a` (the printer) are ranks of that communicator, `peer_version` and `version` their versions of NCCL
    as numbers; `status` is an ibv_wc_status; `received` and `expected` are bytes of a message. `retrying`: it retries, so nothing failed yet.
    """

    fault: str
    tier: int
    peer_host: str | None = None
    peer_node: str | None = None
    peer_rank: int | None = None
    rank_a: int | None = None
    status: int | None = None
    nic: str | None = None
    bus_id: str | None = None
    version: int | None = None
    peer_version: int | None = None
    received: int | None = None
    expected: int | None = None
    retrying: bool = False

    @property
    def refuses(self) -> bool:
        """Return whether NCCL refuses how the job was started: all ranks that get it raise its error and did nothing else."""
        return self.fault in ("duplicate_gpu", "version_mismatch")

    @property
    def of_transport(self) -> bool:
        """Return whether it is about what carries messages between processes."""
        return any(rule.fault == self.fault and rule.transport for rule in rules())


@dataclass(frozen=True, slots=True)
class WarnRule:
    """One wording. `tier` as in `NcclWarn`, `transport`: its fault is `of_transport`, `info`: some releases print it at level INFO.

    Without a fault it is benign.
    """

    pattern: re.Pattern[str]
    fault: str = ""
    tier: int = 3
    info: bool = False
    transport: bool = False
    examples: tuple[str, ...] = ()


@cache
def rules() -> tuple[WarnRule, ...]:
    """Return the wordings of the table, knowledge/faults/nccl.toml; the first that matches counts."""
    table = entries("faults/nccl.toml", "warning")
    return tuple(WarnRule(**{**row, "pattern": regex(row["pattern"], re.IGNORECASE)}) for row in table)


_STATUS = regex(r"\b(?:error |status=)(?:IBV_WC_\w{1,40}\()?(?P<status>\d{1,4})", re.IGNORECASE)
_RETRY = regex(r"retrying \((?P<nth>\d{1,9})/(?P<of>\d{1,9})\)")
_HCA = regex(
    r"\bhca ([\w.\-:]{1,64})|\bNET/IB ?: ?(\w[\w.\-]{0,63}:\d{1,3}) |\bon dev ([\w.\-]{1,64}:\d{1,3})"
)
# No space separates `remoteGids` from the address since 2.20; `::ffff:` marks an IPv4 address.
_REMOTE_GID = regex(r"remote ?Gids? ?(?:::ffff:)?(?P<gid>[0-9a-fA-F:.]{2,45})", re.IGNORECASE)

# ibv_wc_status: whose fault a failed completion is. 5 (flushed) is never primary.
_TIER_OF_STATUS = {1: 1, 2: 1, 3: 1, 4: 1, 5: 3, 6: 1}
_LIMIT = 2_048  # of a message: NCCL itself cut lines at 1,024 bytes up to 2.28, RCCL at 4,096


def classify(line: NcclLine) -> dict[str, Any] | None:
    """Return the fields of an NcclWarn for a line, or None where it names no fault."""
    message = line.message[:_LIMIT]
    warned = line.level in ("WARN", "ABORT")
    for rule in rules():
        if (warned or rule.info) and (match := rule.pattern.search(message)) is not None:
            return _fields(rule, match, message) if rule.fault else None
    return {"fault": "other", "tier": 3} if warned else None


def _fields(rule: WarnRule, match: re.Match[str], message: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"fault": rule.fault, "tier": rule.tier, **dict(typed(NcclWarn, match))}
    retry = _RETRY.search(message)
    if retry is not None and int(retry["nth"]) < int(retry["of"]):
        fields.update(tier=3, retrying=True)  # it tries again: no fault yet
    gid = _REMOTE_GID.search(message)
    if "peer_host" not in fields and gid is not None and gid["gid"] != "::":
        fields["peer_host"] = gid["gid"]
    if (nic := _HCA.search(message)) is not None:
        fields["nic"] = nic[nic.lastindex or 1]
    status = _STATUS.search(message) if rule.fault == "ib_error" else None
    if status is not None:
        code = fields["status"] = int(status["status"])
        fields["tier"] = _TIER_OF_STATUS.get(code, fields["tier"])
    return fields


def _warning(found: Found) -> Iterator[Event]:
    """Yield the payload like NCCL's own warning."""
    fields = classify(NcclLine("WARN", (found.last("payload") or "").strip()))
    if fields is not None and fields["fault"] != "other":
        yield found.parts[-1][0].event(NcclWarn, **fields)


LAST_ERROR = block(
    says("Last error:"),
    says(r"^(?!.*NCCL WARN).*Duplicate GPU detected :"),
    says(r"^(?!.*NCCL WARN).*Got completion from peer "),
    ends=regex(r"(?:Last error:|^(?!.*Last error:))\s*(?P<payload>\S.*)$"),
    lines=6,
    made=_warning,
)
