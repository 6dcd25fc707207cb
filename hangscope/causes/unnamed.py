"""Rules about faults that no rank's name stands beside: they are the cause all the same, and nobody is accused.

A completion with an error of an InfiniBand adapter, an Xid of a host, a line of an out-of-memory killer, an exception of a
process that no prefix names.
"""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.causes.case import Case, Match, quote
from hangscope.incident import Event

_TRANSPORT = ("port_error", "catastrophic", "ib_error", "connect")
_ENDED_BY_LAUNCHER = frozenset({0, -15, 143})


def fault_without_rank(case: Case) -> Match | None:
    """The first fault that explains a stop by itself, told by a line that names no rank."""
    if case.finding.form not in ("none", "stalled") or (
        case.finding.form == "stalled" and not case.from_text
    ):
        return None
    for rule in (_device, _memory, _adapter, _mismatch, _ended, _exception):
        match = rule(case)
        if match is not None:
            return match
    return None


def _match(
    cause: str, events: Sequence[Event], what: str, category: str, advice: Sequence[str], sure: int = 1
) -> Match:
    first = events[0]
    where = f" on host {first.host}" if first.host else ""
    return Match(
        cause,
        (),
        f"{what}{where}; no line says which rank that was",
        sure=sure,
        category=category,
        evidence=[quote(event) for event in events[:4]],
        advice=list(advice),
    )


def _device(case: Case) -> Match | None:
    events = case.facts.all("xid", "cuda_error", "gpu_hang") + [
        e for e in case.facts.all("nccl_warn") if e.fields.get("class") == "cuda"
    ]
    if not events:
        return None
    first = events[0]
    told = str(first.fields.get("error") or first.fields.get("code") or first.text)[:120]
    told = f"Xid {told}" if first.kind == "xid" else told
    device = f" of device {first.fields['device']}" if first.fields.get("device") else ""
    return _match(
        "gpu_stall",
        events,
        f"a device error was reported{device} ({told})",
        "hardware",
        [
            "Find the process that printed it: its prefix, its file, or the process id in the kernel's log names the rank.",
            "Drain that GPU, and look for the first CUDA error or Xid; timeouts of other ranks came later.",
        ],
    )


def _memory(case: Case) -> Match | None:
    kinds = {
        "oom_cuda": ("a process ran out of GPU memory", "code", "Lower the peak memory of that process: its longest batch, activations, fragmentation."),
        "oom_host": ("the out-of-memory killer ended a process", "code", "Fewer loader workers, smaller prefetch, or a larger memory request."),
        "loader_worker_death": ("a data loader worker died", "code", "Find what killed the worker: host memory, or /dev/shm (a larger --shm-size, fewer workers)."),
        "disk_full": ("a disk was full", "data", "Free space where that process writes."),
    }  # fmt: skip
    for kind, (what, category, advice) in kinds.items():
        events = [e for e in case.facts.all(kind) if not e.fields.get("implausible")]
        if events:
            return _match("crashed_rank", events, what, category, [advice])
    return None


def _adapter(case: Case) -> Match | None:
    warnings = [
        e
        for e in case.facts.all("nccl_warn")
        if e.fields.get("class") in _TRANSPORT
        and e.fields.get("tier", 2) <= 2
        and not e.fields.get("retrying")
    ]
    if not warnings:
        return None
    first = min(warnings, key=lambda e: (e.fields.get("tier", 2), e.file, e.line))
    peer = first.fields.get("peer_node") or first.fields.get("peer_host")
    nic = f" (adapter {first.fields['nic']})" if first.fields.get("nic") else ""
    what = "the transport reported a fault" + (f" towards {peer}" if peer else "") + nic
    return _match(
        "network_stall",
        [first, *(e for e in warnings if e is not first)],
        what,
        "network",
        [
            f"Check NIC, cable and switch port{f' towards {peer}' if peer else ''}; then run a pairwise bandwidth test over these hosts.",
            "Compare NCCL_SOCKET_IFNAME and NCCL_IB_GID_INDEX over the hosts.",
        ],
    )


def _mismatch(case: Case) -> Match | None:
    warnings = [e for e in case.facts.all("nccl_warn") if e.fields.get("class") == "collective_mismatch"]
    if not warnings:
        return None
    return _match(
        "collective_mismatch",
        warnings,
        "NCCL's own check says that calls did not match",
        "code",
        [
            "Rerun with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL and one file per process; compare the calls rank by rank."
        ],
        sure=0,
    )


def _ended(case: Case) -> Match | None:
    exits = [
        e
        for e in case.facts.all("exit")
        if isinstance(e.fields.get("code"), int) and e.fields["code"] not in _ENDED_BY_LAUNCHER
    ]
    if not exits:
        return None
    first = next((e for e in exits if e.fields.get("first")), exits[0])
    signal = first.fields.get("signal")
    how = f"was killed by {signal}" if signal else f"ended with exit code {first.fields['code']}"
    return _match(
        "crashed_rank",
        [first, *(e for e in exits if e is not first)],
        f"a process {how}",
        "code",
        ["Look for its own last lines, and for its signal in the kernel log of its host."],
    )


def _exception(case: Case) -> Match | None:
    events = [
        e
        for e in case.facts.all("exception", "terminate")
        if not e.fields.get("symptom") and not e.fields.get("truncated") and not _went_on(case, e)
        and (e.fields.get("type") or e.kind == "terminate")
        and e.fields.get("type") not in ("KeyboardInterrupt", "SystemExit", "SignalException", "c10::DistBackendError")
    ]  # fmt: skip
    if not events:
        return None
    first = events[0]
    name = first.fields.get("type") or "an abort"
    return _match(
        "crashed_rank",
        events,
        f"a process ended with {name}",
        "code",
        [f"Mend the {name}: {str(first.fields.get('message') or first.fields.get('what') or '')[:120]}"],
        sure=0,
    )


def _went_on(case: Case, event: Event) -> bool:
    """Return whether the file goes on counting steps after an error, so that it was caught."""
    return any(
        e.file == event.file and e.line > event.line and isinstance(e.fields.get("step"), int)
        for e in case.facts.all("progress")
    )
