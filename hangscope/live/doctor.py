"""What data is missing from an incident, and how to collect it next time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hangscope.ingest.files.run_evidence import is_of_the_watcher
from hangscope.model.dataclass import dataclass

if TYPE_CHECKING:
    from hangscope.report.schema.document import Document


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of evidence: how much of it there is, and what to do if that is not enough (else empty)."""

    subject: str
    there: str
    advice: str = ""

    @property
    def enough(self) -> bool:
        """Whether nothing is missing."""
        return not self.advice


def examine(report: Document) -> list[Finding]:
    """Return the state of each kind of evidence in a report, the most decisive kind first."""
    return [check(report) for check in _CHECKS]


def _dumps(report: Document) -> Finding:
    world, count = report.world_size, report.sources.get("dump", 0)
    there, missing = f"{count} of {world} ranks" if world else f"{count}", report.partial.missing_ranks
    if 0 < count >= world:
        return Finding("recorder dumps", there)
    return Finding(
        "recorder dumps", f"{there} (missing: {missing})" if count and missing else there,
        "`hangscope run` takes them from running ranks of any backend; without it, set TORCH_FR_BUFFER_SIZE=10000,"
        " TORCH_FR_DUMP_TEMP_FILE to a path on a shared disk, and TORCH_NCCL_DUMP_ON_TIMEOUT=1",
    )  # fmt: skip


def _history(report: Document) -> Finding:
    subject = "history of collectives"
    if not report.sources.get("dump"):
        return Finding(subject, "none", "recorder dumps, see above")
    first = next((window for window in report.coverage.windows if window.from_seq > 1), None)
    if first is None:
        return Finding(subject, "from the first collective")
    return Finding(
        subject, f"starts at seq {first.from_seq} on group {first.group} for ranks {first.ranks}",
        "a larger TORCH_FR_BUFFER_SIZE (20000; about 800 bytes per collective): the overwritten part may hold the first difference",
    )  # fmt: skip


def _stacks(report: Document) -> Finding:
    return _of_ranks(
        "stacks", report.sources.get("stack", 0), report.world_size,
        "`hangscope capture PID` on each node before the job is terminated, or `hangscope run`, which does it automatically",
    )  # fmt: skip


def _twice(report: Document) -> Finding:
    folders = {item.file.partition("/")[0] for item in report.inputs if item.file.startswith("capture_")}
    if len(folders) > 1:
        return Finding("several captures", f"{len(folders)}")
    why = "a rank that has not moved in between is frozen and not only busy"
    return Finding("several captures", "only one", f"`hangscope capture` captures twice: {why}")


def _logs(report: Document) -> Finding:
    logs = {item.file for item in report.inputs if item.kind == "log" and not is_of_the_watcher(item.file)}
    own = sum(1 for rank in report.ranks if logs.intersection(rank.files))
    return _of_ranks(
        "a log of each rank", own, report.world_size,
        "`hangscope run`, or `torchrun --log-dir DIR --tee 3`, or `srun --output=DIR/rank%t.log`",
    )  # fmt: skip


def _of_ranks(subject: str, count: int, world: int, advice: str) -> Finding:
    there = f"{count} of {world} ranks" if count else "none"
    return Finding(subject, there, "" if count and count >= world else advice)


def _lines(report: Document) -> Finding:
    place = report.verdict.location if report.verdict is not None else None
    if place is not None:
        return Finding("source line", f"{place.file}:{place.line}")
    as_json = any(item.status == "used" and item.file.endswith(".json") for item in report.inputs)
    is_frameless = as_json and report.sources.get("dump")
    there = "none (JSON dumps contain no frames: use the pickled ones)" if is_frameless else "none"
    advice = "stacks of the frozen job: `hangscope run`, or `hangscope capture PID` on each node"
    return Finding("source line", there, advice)


def _decision(report: Document) -> Finding:
    verdict = report.verdict
    if verdict is None:
        needed = "" if report.status == "no_hang" else "; ".join(report.missing) or "see above"
        return Finding("verdict", report.status, needed)
    decides = [h.would_decide for h in report.hypotheses if h.would_decide]
    needed = "; ".join(decides[:2] or report.missing or report.confidence_why)
    word = f"{verdict.cause}, {verdict.confidence}"
    return Finding("verdict", word, "" if verdict.confidence == "high" else needed)


_CHECKS = (_dumps, _history, _stacks, _twice, _logs, _lines, _decision)
