"""What data is missing from an incident, and how to collect it next time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hangscope.ingest.files.run_evidence import is_of_the_watcher
from hangscope.model.dataclass import dataclass

if TYPE_CHECKING:
    from hangscope.report.schema.document import Document

_DUMPS = (
    "`hangscope run` takes them from running ranks of any backend; without it, set TORCH_FR_BUFFER_SIZE=10000,"
    " TORCH_FR_DUMP_TEMP_FILE to a path on a shared disk, and TORCH_NCCL_DUMP_ON_TIMEOUT=1"
)
_HISTORY = "a larger TORCH_FR_BUFFER_SIZE (20000; about 800 bytes per collective): the overwritten part may hold the first difference"
_STACKS = "`hangscope capture PID` on each node before the job is terminated, or `hangscope run`, which does it automatically"
_TWICE = (
    "`hangscope capture` captures twice: a rank that has not moved in between is frozen and not only busy"
)
_LOGS = "`hangscope run`, or `torchrun --log-dir DIR --tee 3`, or `srun --output=DIR/rank%t.log`"
_LINES = "stacks of the frozen job: `hangscope run`, or `hangscope capture PID` on each node"


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of evidence: how much of it there is, and what to do if that is not enough (else empty)."""

    subject: str
    there: str
    advice: str = ""


def examine(report: Document) -> list[Finding]:
    """Return the state of each kind of evidence in a report, the most decisive kind first."""
    world, dumps, missing = report.world_size, report.sources.get("dump", 0), report.partial.missing_ranks
    captures = {item.file.partition("/")[0] for item in report.inputs if item.file.startswith("capture_")}
    logs = {item.file for item in report.inputs if item.kind == "log" and not is_of_the_watcher(item.file)}
    own = sum(1 for rank in report.ranks if logs.intersection(rank.files))
    there = f"{dumps} of {world} ranks" if world else f"{dumps}"
    enough = 0 < dumps >= world
    there += f" (missing: {missing})" if dumps and missing and not enough else ""
    twice = f"{len(captures)}" if len(captures) > 1 else "only one"
    return [
        Finding("recorder dumps", there, "" if enough else _DUMPS),
        _history(report),
        _of_ranks("stacks", report.sources.get("stack", 0), world, _STACKS),
        Finding("several captures", twice, "" if len(captures) > 1 else _TWICE),
        _of_ranks("a log of each rank", own, world, _LOGS),
        _line(report),
        _decision(report),
    ]


def _of_ranks(subject: str, count: int, world: int, advice: str) -> Finding:
    there = f"{count} of {world} ranks" if count else "none"
    return Finding(subject, there, "" if count and count >= world else advice)


def _history(report: Document) -> Finding:
    subject = "history of collectives"
    if not report.sources.get("dump"):
        return Finding(subject, "none", "recorder dumps, see above")
    first = next((window for window in report.coverage.windows if window.from_seq > 1), None)
    if first is None:
        return Finding(subject, "from the first collective")
    there = f"starts at seq {first.from_seq} on group {first.group} for ranks {first.ranks}"
    return Finding(subject, there, _HISTORY)


def _line(report: Document) -> Finding:
    place = report.verdict.location if report.verdict is not None else None
    if place is not None:
        return Finding("source line", f"{place.file}:{place.line}")
    as_json = any(item.status == "used" and item.file.endswith(".json") for item in report.inputs)
    is_frameless = as_json and report.sources.get("dump")
    there = "none (JSON dumps contain no frames: use the pickled ones)" if is_frameless else "none"
    return Finding("source line", there, _LINES)


def _decision(report: Document) -> Finding:
    verdict = report.verdict
    if verdict is None:
        needed = "" if report.status == "no_hang" else "; ".join(report.missing) or "see above"
        return Finding("verdict", report.status, needed)
    decides = [h.would_decide for h in report.hypotheses if h.would_decide]
    needed = (
        ""
        if verdict.confidence == "high"
        else "; ".join(decides[:2] or report.missing or report.confidence_why)
    )
    return Finding("verdict", f"{verdict.cause}, {verdict.confidence}", needed)
