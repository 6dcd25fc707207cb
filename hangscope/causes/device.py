"""Rules about devices and the network: everybody made the call."""

from __future__ import annotations

from hangscope.align.rankset import compress, ranks_phrase
from hangscope.causes.case import Case, Match, quote
from hangscope.causes.mismatch import describe
from hangscope.incident import Evidence

_TRANSPORT = ("port_error", "catastrophic", "ib_error", "connect", "closed_by_peer", "size_mismatch")
_LOCAL = ("port_error", "catastrophic")


def device_fault(case: Case) -> Match | None:
    """A sticky CUDA error, an Xid, or a device that lags behind what its peers completed with it."""
    finding = case.finding
    faults = [e for e in case.facts.all("xid", "cuda_error") if e.rank is not None] or [e for e in case.facts.all("nccl_warn") if e.fields.get("class") == "cuda" and e.rank is not None]
    named = tuple(sorted({e.rank for e in faults if e.rank is not None}))
    if finding.form == "half":
        culprits = finding.culprits
        evidence = [
            Evidence("dump", f"rank {r} has not finished calls that its peers' completions prove to be over", r) for r in culprits[:8]
        ] + [quote(e) for e in faults if e.rank in culprits][:4]
        return Match(
            "gpu_stall", culprits, f"{ranks_phrase(culprits)} made {'its' if len(culprits) == 1 else 'their'} calls, and {'its device' if len(culprits) == 1 else 'their devices'} stopped finishing them", sure=2, category="hardware",
            evidence=evidence, frame=case.frame_of(finding.own_kind), frame_rank=culprits[0],
            advice=[f"Drain the GPU of {ranks_phrase(culprits)} and look for the first CUDA error or Xid in its host's kernel log; the timeout came later.", "With compute-sanitizer or CUDA_LAUNCH_BLOCKING=1 a kernel that never ends can be found in a rerun."],
        )
    if named and len(named) * 2 <= len(case.incident.ranks) and finding.form in ("none", "stalled", "unseen", "absent"):
        first = min(faults, key=lambda e: (e.time if e.time is not None else float("inf"), e.file, e.line))
        ranks = (first.rank,) if first.rank is not None else named
        return Match(
            "gpu_stall", ranks, f"{ranks_phrase(ranks)} reported a device error before anybody waited: {first.text[:120]}", sure=2, category="hardware", evidence=[quote(e) for e in faults[:4]],
            advice=[f"Drain the GPU of {ranks_phrase(ranks)}: {first.text[:120]}"],
        )
    return None


def network_fault(case: Case) -> Match | None:
    """Everybody joined a call that nobody finishes, or the transport itself reports a fault."""
    finding = case.finding
    warnings = [e for e in case.facts.all("nccl_warn") if e.fields.get("class") in _TRANSPORT]
    if finding.form not in ("stalled", "none", "cycle") or (finding.form != "stalled" and not warnings):
        return None
    local = [e for e in warnings if e.fields.get("class") in _LOCAL and e.rank is not None]
    ranks: set[int] = {e.rank for e in local if e.rank is not None}
    if not local:
        for event in warnings:
            if event.fields.get("class") == "closed_by_peer":
                continue  # a victim's line: its peer is to be looked at, and may be only a process that died
            if event.rank is not None:
                ranks.add(event.rank)
            peer = event.fields.get("peer_rank")
            if isinstance(peer, int):
                ranks.add(peer)
    hosts = {e.fields.get("peer_host") for e in warnings if e.fields.get("peer_host")}
    if finding.form == "none" and not ranks:
        return None
    culprits = tuple(sorted(ranks))
    evidence = [quote(e) for e in (local or warnings)[:4]]
    view = finding.view
    if view is not None and finding.seq is not None:
        evidence.insert(0, Evidence("dump", f"all {len(view.group.ranks)} members of group {view.group.label} enqueued {describe(finding.waiting_kind)} (seq {finding.seq}), and none completed it: ranks {compress(view.group.ranks)}"))
    why = "every member joined the call and none completes it" if finding.form == "stalled" else "the transport reported a fault"
    pair = f" between {', '.join(sorted(str(h) for h in hosts))}" if hosts else ""
    return Match(
        "network_stall", culprits, why + (f"; the transport names {ranks_phrase(culprits)}" if culprits else ""), sure=2 if local else 1 if warnings else 0, category="network", evidence=evidence,
        frame=case.frame_of(finding.waiting_kind), frame_rank=finding.waiting_rank,
        advice=[
            f"Check NIC, cable and switch port{pair or ' of the hosts in this group'}; then run a pairwise bandwidth test over these hosts." if warnings else "Nothing above the transport is wrong here. Check the links of this group's hosts, and rerun with NCCL_DEBUG=INFO and NCCL_DEBUG_FILE per process to see which pair it is.",
            "Compare NCCL_SOCKET_IFNAME and NCCL_IB_GID_INDEX over the hosts; PCIe ACS or an IOMMU on one host looks the same.",
        ],
    )
