"""What to do about an event that ended a process or stopped its device, for a rank that is known or not."""

from __future__ import annotations

from hangscope.ingest.job_logs.faults import CudaError, DiskFull, LoaderWorkerDeath, OomCuda, OomHost, Xid
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.store import FsdpOrder
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.model.events import Event
from hangscope.model.incident import Frame

#: cudaGetErrorString's words for what a kernel does with memory that is not its own (driver_types.h)
_MEMORY_ERRORS = (
    "illegal memory access", "misaligned address", "unspecified launch failure", "illegal instruction",
)  # fmt: skip
_REMEDIES: dict[type[Event] | str, str] = {
    OomCuda: "Lower the peak memory of {who}{where}: its longest batch, activations, or fragmentation (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True).",
    OomHost: "The host of {who} ran out of memory: use fewer loader workers, a smaller prefetch, or a larger memory request.",
    LoaderWorkerDeath: "Find what killed the data loader worker of {who}: host memory, or /dev/shm (a larger --shm-size, fewer workers).",
    DiskFull: "Free space where {who} writes.",
    RankException: "Fix the {error} that {who} raised{where}{handler}.",
    FsdpOrder: "Let every rank run the same modules in the same order in its first forward pass: look for a branch on data or on the rank.",
    "oom": "Leave memory for NCCL's buffers: a smaller batch, or a smaller share for the allocator or the engine's cache.",
    "shm": "Enlarge /dev/shm (docker's --shm-size, or --ipc=host) on the host that printed it.",
    "collective_mismatch": "Rerun with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL and one file per process; compare the collectives rank by rank.",
    "size_mismatch": "Rerun with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL and one file per process; compare the collectives rank by rank.",
    "kernel": "Rerun the step of {who} with CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer, which name the kernel; if the error follows the GPU and not the code, drain that GPU.",
    "device": "Drain the GPU of {who} and look at nvidia-smi -q -d ECC and the Xid lines of its host's kernel log; what other ranks report later follows from it.",
}
_OTHER = "Find what ended {who}: the kernel log of its host (out-of-memory killer), a segmentation fault, or an operator."


def remedy(event: Event, who: str, frame: Frame | None = None, handling: bool = False) -> str:
    """Return what to do about an event; `frame` is where it happened, and `handling` whether the rank handled it with a collective."""
    kind: type[Event] | str = event.fault if isinstance(event, NcclWarn) else type(event)
    if isinstance(event, CudaError | Xid) or kind == "cuda":
        kind = "kernel" if any(words in event.text.lower() for words in _MEMORY_ERRORS) else "device"
    where = f" at {frame.file}:{frame.line} in {frame.name}" if frame is not None else ""
    handler = "; issue no collective in an except or finally block" if handling else ""
    error = (event.type if isinstance(event, RankException) else "") or "exception"
    return _REMEDIES.get(kind, _OTHER).format(who=who, where=where, error=error, handler=handler)
