"""Rules about devices and the network: everybody made the call."""

from __future__ import annotations

from hangscope.align.frontier import GroupFrontier
from hangscope.align.rankset import ranks_phrase
from hangscope.causes.case import Case, Match, quote
from hangscope.conclusion import Evidence
from hangscope.explain.finding import Absent, Circular, Lagging, Nothing, Stalled, Unseen, Unstarted
from hangscope.incident import Event
from hangscope.ingest.job_logs.faults import CudaError, Xid
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout

_LOCAL = ("port_error", "catastrophic")
#: cudaGetErrorString's words for what no device does by itself (driver_types.h)
_PROGRAM_ERRORS = (
    "device-side assert", "invalid argument", "invalid configuration", "invalid device ordinal", "no cuda-capable device",
    "no kernel image is available", "initialization error",
)  # fmt: skip
_AT_ONCE = 2  # devices that may stop at one moment; more of them lag where what they share did: a host, its network card
_PROGRAM_XIDS = (45,)  # the channels of a process that ended are torn down (NVIDIA's Xid catalog)


def device_fault(case: Case) -> Match | None:
    """A sticky CUDA error, an Xid, or a device that lags behind what its peers completed with it."""
    finding = case.finding
    faults = [e for e in case.statements.all(Xid, CudaError) if e.rank is not None] or [
        e for e in case.statements.all(NcclWarn) if e.fault == "cuda" and e.rank is not None
    ]
    faults = [e for e in faults if not of_the_program(e)]
    named = tuple(sorted({e.rank for e in faults if e.rank is not None}))
    broken_path = any(e.tier < 3 for e in case.statements.all(NcclWarn) if e.of_transport)
    if isinstance(finding, Lagging) and 0 < len(finding.culprits) <= _AT_ONCE and not broken_path:
        culprits = finding.culprits
        evidence = [
            Evidence(
                "dump",
                f"rank {r} enqueued the call, and its device has not begun it, while those of all others have"
                if isinstance(finding, Unstarted)
                else f"rank {r} has not finished calls that its peers' completions prove to be over",
                r,
            )
            for r in culprits[:8]
        ]
        evidence += [quote(e) for e in faults if e.rank in culprits][:4]
        evidence += [
            quote(e)
            for r in culprits[:4]
            for e in case.statements.of(r, WatchdogTimeout)
            if e.seq == finding.own.seq
        ]
        return Match(
            "gpu_stall",
            culprits,
            f"{ranks_phrase(culprits)} made {'its' if len(culprits) == 1 else 'their'} calls, and {'its device' if len(culprits) == 1 else 'their devices'} stopped finishing them",
            strength=2
            if len(culprits) == 1
            and not isinstance(finding, Unstarted)
            and not finding.tie
            and _is_no_older_dump(case, culprits[0])
            else 1,
            category="hardware",
            evidence=evidence,
            frame=case.frame_of(finding.own.kind),
            advice=[
                f"Drain the GPU of {ranks_phrase(culprits)} and look for the first CUDA error or Xid in its host's kernel log; the timeout came later.",
                "With compute-sanitizer or CUDA_LAUNCH_BLOCKING=1 a kernel that never ends can be found in a rerun.",
            ],
        )
    if (
        named
        and len(named) * 2 <= len(case.incident.ranks)
        and isinstance(finding, Nothing | Stalled | Unseen | Absent)
    ):
        first = min(faults, key=_before)
        ranks = (first.rank,) if first.rank is not None else named
        return Match(
            "gpu_stall",
            ranks,
            f"{ranks_phrase(ranks)} reported a device error: {first.text[:120]}",
            strength=2,
            category="hardware",
            evidence=[quote(e) for e in faults[:4]],
            advice=[f"Drain the GPU of {ranks_phrase(ranks)}: {first.text[:120]}"],
        )
    return None


def _is_no_older_dump(case: Case, rank: int) -> bool:
    """Return whether more than the moment of a dump shows a rank behind: its own log, or a lag of more than one call."""
    view, seq = case.finding.stuck.view, case.finding.own.seq
    member = view.members.get(rank) if view is not None else None
    if view is None or member is None or member.queue.pending_only:
        return False  # a call too many before shifts what is left, and cannot be seen
    if seq is not None and all(view.kind_of(r, seq) is None for r in view.members if r != rank):
        return False  # nor can it where no peer kept the call that it is compared with
    if any(e.seq == seq for e in case.statements.of(rank, WatchdogTimeout)):
        return True
    return sum(s <= view.proven for s in member.pending) > 1


def of_the_program(event: Event) -> bool:
    """Return whether a device error is told of a program or its set-up and not of a device: an assertion in a kernel, a device that is not there, a cleaned-up channel."""
    if isinstance(event, Xid):
        return event.code in _PROGRAM_XIDS
    text = event.text.lower()
    return any(words in text for words in _PROGRAM_ERRORS)


def _before(event: Event) -> tuple[float, str, int]:
    """Return a key that puts what is printed earlier first."""
    moment = event.time if event.time is not None else event.stamp
    return (
        float(moment) if isinstance(moment, (int, float)) else float("inf"),
        event.file,
        event.line,
    )


def network_fault(case: Case) -> Match | None:
    """Everybody joined a call that nobody finishes, or the transport itself reports a fault.

    Of NCCL's warnings a fault of the printer's own adapter counts before a path that failed, and that before the report
    of a peer that is gone, whose printer is a victim.
    """
    finding = case.finding
    warnings = [e for e in case.statements.all(NcclWarn) if e.of_transport]
    if not isinstance(finding, Stalled | Nothing | Circular | Lagging):
        return None
    if isinstance(finding, Nothing | Circular) and not warnings:
        return None
    if finding.stuck.view is not None and len(finding.stuck.view.seen) < 2 and not warnings:
        return None  # of one rank alone it cannot be said that everybody joined
    tier = min((e.tier for e in warnings), default=3)
    first = [e for e in warnings if e.tier == tier]
    local = [e for e in first if tier == 1 and e.rank is not None]
    culprits = (
        tuple(sorted({e.rank for e in local if e.rank is not None}))
        if local
        else _both_ends(case, first)
        if tier == 2
        else ()
    )
    if isinstance(finding, Nothing) and (tier > 2 or not (culprits or local)):
        return None
    evidence = [quote(e) for e in first[:4]] + [
        quote(e, f"a consequence: {e.text}") for e in warnings if e.tier > tier
    ][:3]
    view = finding.stuck.view
    why = (
        "members joined the call, and not all of them complete it"
        if isinstance(finding, Lagging)
        or (isinstance(finding, Stalled) and view and finding.stuck.seq and _done(view, finding.stuck.seq))
        else "every member joined the call and none completes it"
        if isinstance(finding, Stalled)
        else "the transport reported a fault"
    )
    nodes = sorted({n for e in warnings if e.tier <= 2 for n in (e.host, e.peer_node or e.peer_host) if n})
    pair = f" between {' and '.join(nodes)}" if 1 < len(nodes) <= 4 else ""
    if len(nodes) == 1:
        pair = f" {'of' if nodes[0] in {e.host for e in warnings} else 'towards'} {nodes[0]}"
    nics = sorted({str(e.nic) for e in first if e.nic})
    named = (
        f"; the transport names {ranks_phrase(culprits)}"
        + (f", adapter {', '.join(nics[:3])}" if nics else "")
        if culprits
        else ""
    )
    return Match(
        "network_stall",
        culprits,
        why + named + (pair if warnings else ""),
        # Who is at one end of a path alone may be the one that suffers.
        strength=2 if local else int(bool(warnings) and len(culprits) != 1),
        category="network",
        evidence=evidence,
        frame=case.frame_of(finding.stuck.kind),
        frame_rank=finding.stuck.rank,
        advice=[
            f"Check NIC, cable and switch port{pair or ' of the hosts in this group'}; then run a pairwise bandwidth test over these hosts."
            if warnings
            else "Nothing above the transport is wrong here. Check the links of this group's hosts, and rerun with NCCL_DEBUG=INFO and NCCL_DEBUG_FILE per process to see which pair it is.",
            "Compare GLOO_SOCKET_IFNAME and the addresses that the host names resolve to over the hosts; a firewall between them looks the same."
            if {kind.backend for kind in case.incident.kinds} == {"gloo"}
            else "Compare NCCL_SOCKET_IFNAME and NCCL_IB_GID_INDEX over the hosts; PCIe ACS or an IOMMU on one host looks the same.",
        ],
        rivals=[
            ("shape_mismatch", "splits that do not fit stall it the same way, and recorders keep no splits")
        ]
        if finding.stuck.kind is not None and finding.stuck.kind.op.startswith("all_to_all")
        else [],
    )


def _done(view: GroupFrontier, seq: int) -> list[int]:
    return [rank for rank in view.seen if (view.members[rank].completed or 0) >= seq]


def _both_ends(case: Case, warnings: list[NcclWarn]) -> tuple[int, ...]:
    """Return the ranks on both sides of a failed path: who reports it, and the peer where its rank or host tells it; else nobody.

    Two ranks that report each other's hosts are the two ends, whatever further ranks report. Where paths to several hosts
    failed and one host is an end of all of them, it is that host that lost its network.
    """
    led = [(e, (e.host, e.peer_node or e.peer_host)) for e in warnings]
    pairs = {pair for _, pair in led if all(pair)}
    paths = set(map(frozenset, pairs))
    common = frozenset[str | None].intersection(*paths) if len(paths) > 1 else frozenset()
    if len(common) == 1:
        return tuple(r for r, record in sorted(case.incident.ranks.items()) if record.host in common)
    named = {e.rank for e, pair in led if pair[::-1] in pairs}
    if not named - {None} and (peers := [e for e in warnings if e.peer_rank is not None]):
        named = {e.rank for e in warnings}.union(*((e.peer_rank, e.rank_a) for e in peers))
    return tuple(sorted(rank for rank in named if rank is not None))
