"""Faults that a line reports by itself (`knowledge/causes/faults.toml`): what each says, and what to do about it."""

from __future__ import annotations

from hangscope.explain.statements.statements import Statements
from hangscope.ingest.job_logs.faults import CudaError, DeviceReset, OomCuda, Xid
from hangscope.ingest.lines.vocabulary import words
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.incident import Frame
from hangscope.model.tables import entries

#: The channels of a process that ended are torn down; errors that the hardware corrected (NVIDIA's Xid catalog).
CALM_XIDS = frozenset({45, 92, 121})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One kind of fault; `knowledge/causes/faults.toml` describes the fields."""

    remedy: str
    events: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    cause: str = ""
    says: str = ""
    strength: int = 1

    def reported_by(self, event: Event) -> bool:
        """Return whether an event reports this fault."""
        return event.fault in self.warnings if isinstance(event, NcclWarn) else event.kind in self.events

    def reports(self, statements: Statements) -> list[Event]:
        """Return the events that report this fault, kind by kind."""
        kinds = {kind.kind: events for kind, events in statements.kinds.items()}
        found = (event for name in (*self.events, NcclWarn.kind) for event in kinds.get(name, ()))
        return [event for event in found if self.reported_by(event)]


#: What to do about an exception, by its type without the module.
_BY_TYPE: dict[str, str] = {
    name: entry["remedy"] for entry in entries("causes/faults.toml", "exception") for name in entry["types"]
}
FAULTS = tuple(Fault(**entry) for entry in entries("causes/faults.toml", "fault"))
_BY_EVENT = {event: fault for fault in FAULTS for event in fault.events}


def remedy(event: Event, who: str, frame: Frame | None = None) -> str:
    """Return what to do about an event; `frame` is where it happened."""
    fault = next((fault for fault in FAULTS if fault.reported_by(event)), _BY_EVENT["end"])
    if fault.cause == "gpu_stall" and words("memory_access").search(event.text):
        fault = _BY_EVENT["memory_access"]
    if isinstance(event, RankException) and "uncorrectable ECC" in event.text:
        fault = _BY_EVENT["cuda_error"]
    if isinstance(event, OomCuda) and event.held:
        fault = _BY_EVENT["oom_shared"]
    where = f" at {frame.file}:{frame.line} in {frame.name}" if frame is not None else ""
    error = (event.type if isinstance(event, RankException) else "") or "exception"
    held = event.held if isinstance(event, OomCuda) else ""
    # As the kernel prints it where no control group has a limit of its own.
    limit = "" if "CONSTRAINT_NONE" in event.text else ", or the limit of its container or job step,"
    raised = error.rpartition(".")[2] if fault is _BY_EVENT["exception"] else ""
    return _BY_TYPE.get(raised, fault.remedy).format(
        who=who, where=where, error=error, held=held, limit=limit
    )


def device_error(event: Event) -> str:
    """Return a device error in its own words, without what is printed before it."""
    if isinstance(event, CudaError):
        return event.error
    if isinstance(event, Xid):
        printed = "Xid" in event.text  # the driver may also say so in words alone
        return (
            f"Xid {event.code} on GPU {event.device}" if printed else f"GPU {event.device} fell off the bus"
        )
    if isinstance(event, DeviceReset):
        return f"its driver reset GPU {event.device}"
    return event.text[:120]
