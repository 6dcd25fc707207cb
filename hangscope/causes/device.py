"""Rules about devices and the network: every rank that was seen issued the collective."""

from __future__ import annotations

from hangscope.align.frontier import GroupFrontier
from hangscope.causes.case import Case, Match, answer, quote, who
from hangscope.causes.ends.remedies import remedy
from hangscope.explain.finding import Absent, Circular, Lagging, Nothing, Stalled, Unseen, Unstarted
from hangscope.explain.text.group_size import all_timed_out
from hangscope.ingest.job_logs.faults import CudaError, Xid
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.model.conclusion import Evidence
from hangscope.model.incident import Event
from hangscope.model.rankset import agree

#: cudaGetErrorString's words for what no device does by itself (driver_types.h)
_PROGRAM_ERRORS = (
    "device-side assert", "invalid argument", "invalid configuration", "invalid device ordinal", "no cuda-capable device",
    "no kernel image is available", "initialization error",
)  # fmt: skip
_AT_ONCE = 2  # devices that may stop at one moment; more of them lag where what they share did: a host, its network card
_PROGRAM_XIDS = (45,)  # the channels of a process that ended are torn down (NVIDIA's Xid catalog)


def device_fault(case: Case) -> Match | None:
    """A sticky CUDA error, an Xid, or a device that lags behind what its peers completed with it."""
    finding, statements = case.finding, case.statements
    told = (statements.all(Xid, CudaError), case.warned("cuda"))
    named_by = ([e for e in events if e.rank is not None] for events in told)
    faults = [e for e in next(filter(None, named_by), ()) if not of_the_program(e)]
    broken_path = any(e.tier < 3 for e in statements.all(NcclWarn) if e.of_transport)
    if isinstance(finding, Lagging) and 0 < len(finding.culprits) <= _AT_ONCE and not broken_path:
        return _lags(case, finding, faults)
    few = 0 < 2 * len({e.rank for e in faults}) <= len(case.incident.ranks)
    if not few or not isinstance(finding, Nothing | Stalled | Unseen | Absent):
        return None
    first = min(faults, key=_before)
    return answer(
        "gpu_stall",
        [rank for rank in (first.rank,) if rank is not None],
        f"rank {first.rank} reported a device error: {device_error(first)}",
        remedy(first, f"rank {first.rank}"),
        strength=2,
        evidence=faults[:4],
    )


def device_error(event: Event) -> str:
    """Return a device error in its own words, without what is printed before it."""
    if isinstance(event, CudaError):
        return event.error
    return f"Xid {event.code} on GPU {event.device}" if isinstance(event, Xid) else event.text[:120]


def _lags(case: Case, finding: Lagging, faults: list[Event]) -> Match:
    """Return the answer for devices that have not finished, or not begun, what those of all others have."""
    culprits, whose = finding.culprits, who(finding.culprits)
    behind = "has not completed collectives that its peers have completed with it"
    if unstarted := isinstance(finding, Unstarted):
        behind = "enqueued the collective, but its GPU has not started it; the GPUs of all others have"
    one = len(culprits) == 1
    sure = one and not unstarted and not finding.tie and _is_no_older_dump(case, culprits[0])
    return answer(
        "gpu_stall",
        culprits,
        f"the {'GPU' if one else 'GPUs'} of {whose} stopped completing enqueued collectives",
        f"Drain the GPU of {whose} and look for the first CUDA error or Xid in the kernel log of its host; the timeout came later.",
        "Rerun with compute-sanitizer or CUDA_LAUNCH_BLOCKING=1 to find a kernel that never ends.",
        strength=2 if sure else 1,
        evidence=[
            *(Evidence("dump", f"rank {rank} {behind}", rank) for rank in culprits),
            *[e for e in faults if e.rank in culprits][:4],
            *(
                e
                for r in culprits
                for e in case.statements.of(r, WatchdogTimeout)
                if e.seq == finding.own.seq
            ),
        ],
    )


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
    return (float(moment) if isinstance(moment, (int, float)) else float("inf"), event.file, event.line)


def network_fault(case: Case) -> Match | None:
    """Everybody joined a call that nobody finishes, or the transport itself reports a fault.

    Of NCCL's warnings a fault of the printer's own adapter counts before a path that failed, and that before the report
    of a peer that is gone, whose printer is a victim.
    """
    finding, view, kind = case.finding, case.finding.stuck.view, case.finding.stuck.kind
    warnings = [e for e in case.statements.all(NcclWarn) if e.of_transport]
    joined = isinstance(finding, Stalled | Lagging)
    # Lines of watchdogs show that all came only where the size of the group is stated.
    of_lines = case.from_text and bool(case.statements.all(WatchdogTimeout))
    complete = joined and (not of_lines or all_timed_out(case.statements))
    # Of one rank alone it cannot be said that everybody joined.
    told = warnings or (complete and (view is None or len(view.seen) > 1))
    if not told or not (joined or isinstance(finding, Nothing | Circular)):
        return None
    tier = min((e.tier for e in warnings), default=3)
    first = [e for e in warnings if e.tier == tier]
    later = [e for e in warnings if e.tier > tier]
    local = sorted({e.rank for e in first if tier == 1 and e.rank is not None})
    culprits = tuple(local) or (_both_ends(case, first) if tier == 2 else ())
    minor = all(e.retrying or e.fault == "size_mismatch" for e in first)  # the size is the program's own
    if isinstance(finding, Nothing) and (tier > 2 or (minor and not culprits)):
        return None
    why = _joined(case) if complete else ""
    nodes = sorted({n for e in warnings if e.tier <= 2 for n in (e.host, e.peer_node or e.peer_host) if n})
    where = f" between {' and '.join(nodes)}" if 1 < len(nodes) <= 4 else ""
    if len(nodes) == 1:
        where = f" {'of' if nodes[0] in {e.host for e in warnings} else 'towards'} {nodes[0]}"
    nics = sorted({str(e.nic) for e in first if e.nic})
    fault = "the transport reported a fault" + where
    fault += (
        f" ({', '.join([*([who(culprits)] if culprits else []), *nics[:3]])})" if culprits or nics else ""
    )
    why = "; ".join(filter(None, (why, fault if warnings or not why else "")))
    check = "Rerun with NCCL_DEBUG=INFO and one NCCL_DEBUG_FILE per process to see which pair does not connect, and check the links between the hosts of this group."
    if warnings:
        check = f"Check NIC, cable and switch port{where or ' of the hosts in this group'}; then run a pairwise bandwidth test over these hosts."
    compare = "NCCL_SOCKET_IFNAME and NCCL_IB_GID_INDEX over the hosts; PCIe ACS or an IOMMU on one host"
    if case.on_gloo:
        compare = "GLOO_SOCKET_IFNAME and the addresses that the host names resolve to over the hosts; a firewall between them"
    splits = ("shape_mismatch", "mismatched splits stall it the same way, and recorders keep no splits")
    return answer(
        "network_stall",
        culprits,
        why,
        check,
        f"Compare {compare} can look the same.",
        # Who is at one end of a path alone may be the one that suffers.
        strength=2 if local else int(bool(warnings) and len(culprits) != 1),
        evidence=[*first[:4], *(quote(e, f"a consequence: {e.text}") for e in later[:3])],
        frame=case.frame_of(kind),
        frame_rank=finding.stuck.rank,
        rivals=[splits] if kind is not None and kind.op.startswith("all_to_all") else (),
    )


def _joined(case: Case) -> str:
    """Return who is in the collective that nobody completes: every member, where it is known who the members are."""
    view, seq, kind = case.finding.stuck.view, case.finding.stuck.seq, case.finding.stuck.kind
    if view is None:
        return "the ranks seen are all in one collective, which does not complete"
    op = (kind.op if kind is not None else "") or ""
    call = f"{op or 'collective'} seq {seq}" if seq is not None else op or "one collective"
    inside = sorted(view.seen)
    waiting = sorted(
        {rank for rank, _ in case.graph.calls_of(case.finding.stuck.node)} if case.finding.stuck.node else ()
    )
    if case.whole_group and len(inside) == len(view.members):
        return (
            f"all {len(inside)} members of the group are in {call} and none completes it"
            if not _some_done(view, seq)
            else f"all {len(inside)} members entered {call}, and only some completed it"
        )
    unknown = "" if all_timed_out(case.statements) else "; group size unknown"
    inside = waiting or inside
    return f"{who(inside)} {agree(inside, 'is', 'are')} in {call}, and it does not complete{unknown}"


def _some_done(view: GroupFrontier, seq: int | None) -> bool:
    """Return whether a member has completed the collective."""
    return seq is not None and any((view.completed(rank) or 0) >= seq for rank in view.seen)


def _both_ends(case: Case, warnings: list[NcclWarn]) -> tuple[int, ...]:
    """Return the ranks on both sides of a failed path: who reports it, and the peer where its rank or host tells it; else nobody.

    Two that report each other's hosts are the two ends. A host that is an end of several failed paths lost its network.
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
