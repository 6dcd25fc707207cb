"""What an NCCL warning says went wrong, and whether that is a fault itself or the consequence of one.

The process that prints "Connection closed by remote peer" or a retry-exceeded completion is a victim; a port
error, a CUDA failure or a full /dev/shm is the printer's own. Wordings: src/misc/socket.cc, src/bootstrap.cc,
src/transport/net_ib*.cc, src/misc/{ibvwrap,shmutils,cudawrap}.cc, src/include/{checks,alloc}.h of NCCL 2.4 to
2.30. Torch quotes NCCL's last warning under an exception, which is often the only line of NCCL's in a paste:

    ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.
    Last error:
    NET/IB : Got completion from peer 192.0.2.7<40112> with status=12 opcode=0 len=0 vendor err 129 (Recv)

(torch/csrc/distributed/c10d/NCCLUtils.cpp; the quote is `ncclGetLastError`, on the same line or the next.) In copies the lines may
be reordered or the mark may be missing: what only NCCL says is read without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from hangscope.ingest.lines.blocks import Found, block
from hangscope.ingest.lines.forms import says
from hangscope.ingest.nccl.line import NcclLine
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

#: Faults of what carries messages between processes, or what a process notices of it.
TRANSPORT = frozenset(
    {"port_error", "catastrophic", "ib_error", "connect", "closed_by_peer", "size_mismatch"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclWarn(Event):
    """An NCCL warning that names a fault.

    `fault`: port_error, catastrophic, cuda, shm, oom, ib_error, connect, closed_by_peer, bootstrap, duplicate_gpu,
    version_mismatch, size_mismatch, collective_mismatch, set_up (a proxy could not make a connection) or other; ib_error is a failed transfer of
    libfabric, too. `tier`: 1 a fault itself, of the process that printed it; 2 a path
    that failed; 3 a consequence, of which the printer is a victim. `peer_host` is a name or address without port, `peer_node` the host of that address where
    bootstrap lines tell it; `peer_rank` and `rank_a` are ranks of that communicator; `status` is an ibv_wc_status; `version` is NCCL's as a number, that of `rank_a`, who prints it, and `peer_version` that of `peer_rank`. `retrying`: it goes on trying, so that nothing failed yet.
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
    retrying: bool = False

    @property
    def refuses(self) -> bool:
        """Return whether it is NCCL's refusal of how a job was started: all whom it tells raise its error, and did nothing else."""
        return self.fault in ("duplicate_gpu", "version_mismatch")

    @property
    def of_transport(self) -> bool:
        """Return whether it speaks of what carries messages between processes."""
        return self.fault in TRANSPORT


@dataclass(frozen=True, slots=True)
class WarnRule:
    """One wording. `tier`: 1 a fault itself, 2 a path that failed, 3 the consequence of another failure."""

    name: str
    pattern: re.Pattern[str]
    tier: int
    info: bool = False  # some releases print it at level INFO


# Bounded, because every mention of the words in a line is another place to begin at.
_IB_EVENT = r"NET/IB\b.{0,120}?\bevent\b.{0,120}?"
_PEER = r"(?P<peer>[^\s<>]{1,255})(?:<\d{0,5}>)?"


def _rule(name: str, pattern: str, tier: int, *, info: bool = False) -> WarnRule:
    return WarnRule(name, regex(pattern, re.IGNORECASE), tier, info)


#: The first rule that matches wins. Benign asynchronous events have the name "" and make no event.
RULES: tuple[WarnRule, ...] = (
    # --- InfiniBand and RoCE: asynchronous events of the local adapter ---
    _rule("catastrophic", rf"{_IB_EVENT}catastrophic", 1),
    _rule(
        "catastrophic",
        r"Marking device \d{1,4} as permanently failed|Fatal error\. Detected \d{1,4} failed devices",
        1,
    ),
    _rule("port_error", rf"{_IB_EVENT}port err", 1, info=True),
    _rule(
        "",
        rf"{_IB_EVENT}"
        r"(?:client reregist|lid change|sm change|gid (?:table )?change|pkey change|port active)",
        3,
    ),
    _rule("ib_error", r"NET/IB\b.{0,120}?(?:async event|async fatal event|async error event)", 1),
    # --- InfiniBand and RoCE: connections and transfers ---
    _rule("connect", r"Call to ibv_modify_qp failed", 2),
    _rule(
        "size_mismatch",
        rf"(?:\[peer {_PEER}\s?\] ?)?collective mismatch error, local size \d+ remote size \d+",
        2,
    ),
    _rule("ib_error", rf"NET/IB\S{{0,64}} ?:? ?Got completion (?:from peer {_PEER} )?with ", 2),
    # --- libfabric (aws-ofi-nccl, src/nccl_ofi_{sendrecv,rdma}.cpp) ---
    _rule("ib_error", r"NET/OFI\b.{0,40}?\bRequest (?:\S{1,40} )?(?:seq \d{1,12} )?completed with error", 2),
    # --- sockets ---
    _rule("size_mismatch", rf"NET/Socket ?: peer {_PEER} message truncated", 2),
    _rule("closed_by_peer", rf"Connection closed by remote peer(?: {_PEER})?", 3),
    _rule("closed_by_peer", rf"Call to recv from {_PEER} failed", 3),
    _rule("connect", rf"connect to {_PEER} (?:failed|returned)", 2, info=True),
    _rule(
        "connect", r"Call to connect (?:failed|timeout)|: connect returned .{1,200}, retrying", 2, info=True
    ),
    _rule("other", r"socketFinalizeAccept: wrong (?:magic|type)|socket magic mismatch", 3),
    # --- bootstrap and versions ---
    _rule(
        "bootstrap", r"Bootstrap Root ?: rank (?P<rank>\d{1,7}) of \d{1,7} ranks has already checked in", 1
    ),
    _rule("bootstrap", r"Bootstrap Root ?: mismatch in (?:rank count|info) from procs", 1),
    _rule(
        "bootstrap",
        r"\bno socket interface found|Invalid NCCL_COMM_ID|No interface found in the same subnet",
        1,
    ),
    _rule("bootstrap", r"Message truncated ?: received \d+ bytes instead of \d+", 2),
    _rule(
        "version_mismatch",
        r"Mismatched NCCL version detected ?: rank (?P<rank_a>\d{1,7}) version (?P<own>\d{1,9}) "
        r"rank (?P<rank>\d{1,7})\b(?: version (?P<other>\d{1,9}))?",
        1,
    ),
    # --- device, memory, topology ---
    _rule("oom", r"Cuda failure.{0,40}out of memory|Failed to (?:CUDA )?(?:malloc|calloc|host alloc)", 1),
    _rule("cuda", r"Cuda failure|CUDA_ERROR_\w{1,60}", 1),
    _rule(
        "duplicate_gpu",
        r"Duplicate GPU detected ?: rank (?P<rank_a>\d{1,7}) and rank (?P<rank>\d{1,7}) both on CUDA device "
        r"(?P<bus>[0-9a-f]{1,16})",
        1,
    ),
    _rule("duplicate_gpu", r"Multiple ranks (?:detected|are) using the same GPU", 1),
    _rule(
        "shm",
        r"(?:creating|attaching to) shared memory segment|failed to extend \S{1,255} to \d+ bytes|"
        r"No space left on device",
        1,
    ),
    _rule(
        "connect", r"No transport found for rank (?P<rank_a>\d{1,7})\[\w{1,16}\] -> rank (?P<rank>\d{1,7})", 2
    ),
    # --- mismatch checks on the device, 2.4.2 to 2.7 only; the rank is the printer's own ---
    _rule(
        "collective_mismatch",
        r"Mismatched collective detected|this may be caused by a collective mismatch around rank",
        3,
    ),
    # --- proxies and communicators: consequences ---
    # Close, Stop and Abort are of the end (src/proxy.cc, ncclProxyMsgTypeStr): they fail in jobs that are over.
    _rule(
        "set_up",
        r"Proxy Call to rank (?P<rank>\d{1,7}) failed \((?:Init|SharedInit|Setup|Connect)\)"
        r"|Failed to execute operation (?:Init|SharedInit|Setup|Connect) from rank",
        3,
    ),
    _rule("other", r"Proxy Call to rank (?P<rank>\d{1,7}) failed", 3),
    _rule(
        "other",
        r"Socket recv failed while polling|\[(?:Proxy|Service)[^\]]{0,40}\] Failed to execute operation",
        3,
    ),
    _rule("other", r"communicator was revoked|communicator encountered a fatal error|GIN Error detected", 3),
)

_STATUS = regex(r"\b(?:error |status=)(?:IBV_WC_\w{1,40}\()?(?P<status>\d{1,4})", re.IGNORECASE)
_RETRY = regex(r"retrying \((?P<nth>\d{1,9})/(?P<of>\d{1,9})\)")
_HCA = regex(
    r"\bhca (?P<nic>[\w.\-:]{1,64})|\bNET/IB ?: ?(?P<dev>\w[\w.\-]{0,63}:\d{1,3}) |"
    r"\bon dev (?P<qp>[\w.\-]{1,64}:\d{1,3})"
)
# No space separates `remoteGids` from the address since 2.20; `::ffff:` marks an IPv4 address.
_REMOTE_GID = regex(r"remote ?Gids? ?(?:::ffff:)?(?P<gid>[0-9a-fA-F:.]{2,45})", re.IGNORECASE)
_TRACE = regex(
    r"^(?:\((?:\w{1,128})\) )?\S{1,512}:\d{1,7} (?:\(\w{1,128}\) )?-> (?P<result>\d{1,2})(?: [\[(]|$)"
)

# ibv_wc_status: whose fault a failed completion is. 5 (flushed) is never primary.
_LOCAL_STATUS = frozenset({1, 2, 3, 4, 6})
_FLUSHED = 5
_NUMBERS = (("rank", "peer_rank"), ("rank_a", "rank_a"), ("own", "version"), ("other", "peer_version"))
_LIMIT = 2_048  # of a message: NCCL itself cut lines at 1,024 bytes up to 2.28, RCCL at 4,096
#: ncclResult_t of a trace-back line: 1 CUDA, 2 system, 5 invalid usage are the printer's own; 6 is remote.
_LOCAL_RESULTS = frozenset({1, 2, 5})
_REMOTE_RESULT = 6


def classify(line: NcclLine) -> dict[str, Any] | None:
    """Return the fields of an NcclWarn for a line, or None where it names no fault.

    Keys: `fault`, `tier`, and where the line carries them `peer_host` (name or address without port), `peer_rank` and
    `rank_a` (ranks of that communicator), `version`, `peer_version`, `status` (ibv_wc_status), `nic`, `bus_id`.
    """
    message = line.message[:_LIMIT]
    for rule in RULES:
        if line.level != "WARN" and line.level != "ABORT" and not rule.info:
            continue
        match = rule.pattern.search(message)
        if match is None:
            continue
        if not rule.name:
            return None
        return _fields(rule, match, message)
    if line.level in ("WARN", "ABORT"):
        return {"fault": "other", "tier": 3}
    return None


def traceback_result(message: str) -> dict[str, Any] | None:
    """Return the fields of the first line of a trace-back, `FILE:LINE -> N`, or None for other messages.

    A chain that starts with 1, 2 or 5 is a local fault, 6 a remote one; other results cascade and tell
    nothing.
    """
    match = _TRACE.match(message)
    if match is None:
        return None
    result = int(match["result"])
    if result in _LOCAL_RESULTS:
        return {"fault": "other", "tier": 2}
    if result == _REMOTE_RESULT:
        return {"fault": "other", "tier": 3}
    return None


def _fields(rule: WarnRule, match: re.Match[str], message: str) -> dict[str, Any]:
    groups = match.groupdict()
    fields: dict[str, Any] = {"fault": rule.name, "tier": rule.tier}
    retry = _RETRY.search(message)
    if retry is not None and int(retry["nth"]) < int(retry["of"]):
        fields.update(tier=3, retrying=True)  # it tries again: no fault yet
    gid = _REMOTE_GID.search(message)
    peer = groups.get("peer") or (gid["gid"] if gid and gid["gid"] != "::" else None)
    if peer:
        fields["peer_host"] = peer
    for name, key in _NUMBERS:
        if groups.get(name):
            fields[key] = int(groups[name])
    if groups.get("bus"):
        fields["bus_id"] = groups["bus"]
    nic = _HCA.search(message)
    if nic is not None:
        fields["nic"] = nic["nic"] or nic["dev"] or nic["qp"]
    if rule.name == "ib_error":
        _completion(fields, message)
    return fields


def _completion(fields: dict[str, Any], message: str) -> None:
    """Add the status of a failed completion, which tells a fault from what follows one."""
    status = _STATUS.search(message)
    if status is None:
        return
    code = fields["status"] = int(status["status"])
    if code == _FLUSHED:
        fields["tier"] = 3
    elif code in _LOCAL_STATUS:
        fields["tier"] = 1


def _warning(found: Found) -> Iterator[Event]:
    """Yield the payload as if NCCL's own warning stood there."""
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
