"""What an incident lacks for a sure verdict, and what gives it next time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hangscope.ingest.files.run_evidence import is_of_the_watcher
from hangscope.model.dataclass import dataclass

if TYPE_CHECKING:
    from hangscope.report.schema.document import Document


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of evidence: what there is of it, and what to do where that is not enough (empty where it is)."""

    subject: str
    there: str
    advice: str = ""

    @property
    def enough(self) -> bool:
        """Whether nothing is lacking."""
        return not self.advice


def examine(report: Document) -> list[Finding]:
    """Return what a report says of its evidence, the most decisive kind first."""
    return [check(report) for check in _CHECKS]


def _dumps(report: Document) -> Finding:
    world, count = report.world_size, report.sources.get("dump", 0)
    there = f"of {count} of {world} ranks" if world else f"{count}"
    if count and count >= world:
        return Finding("recorder dumps", there)
    missing = report.partial.missing_ranks
    who = f" (missing: {missing})" if count and missing else ""
    return Finding(
        "recorder dumps", there + who,
        "`hangscope run` gets them from live ranks of any backend; without it TORCH_FR_BUFFER_SIZE=10000,"
        " TORCH_FR_DUMP_TEMP_FILE on a disk that all nodes see, and TORCH_NCCL_DUMP_ON_TIMEOUT=1",
    )  # fmt: skip


def _history(report: Document) -> Finding:
    if not report.sources.get("dump"):
        return Finding("history of calls", "none", "dumps, see above")
    first = next((window for window in report.coverage.windows if window.from_seq > 1), None)
    if first is None:
        return Finding("history of calls", "from the first call")
    return Finding(
        "history of calls", f"of ranks {first.ranks} from seq {first.from_seq} on group {first.group}",
        "a larger TORCH_FR_BUFFER_SIZE (20000; some 800 bytes per call): what was overwritten may be where ranks parted",
    )  # fmt: skip


def _lines(report: Document) -> Finding:
    place = report.verdict.location if report.verdict is not None else None
    if place is not None:
        return Finding("source line", f"{place.file}:{place.line}")
    as_json = any(item.status == "used" and item.file.endswith(".json") for item in report.inputs)
    frameless = as_json and report.sources.get("dump")
    return Finding(
        "source line",
        "none" + (" (JSON dumps hold no frames: take the pickled ones)" if frameless else ""),
        "stacks of the frozen job: `hangscope run`, or `hangscope capture PID` on each node",
    )


def _stacks(report: Document) -> Finding:
    return _of_ranks(
        "stacks", report.sources.get("stack", 0), report.world_size,
        "`hangscope capture PID` on each node before the job is ended, or `hangscope run`, which does it by itself",
    )  # fmt: skip


def _logs(report: Document) -> Finding:
    logs = {item.file for item in report.inputs if item.kind == "log" and not is_of_the_watcher(item.file)}
    own = sum(1 for rank in report.ranks if logs.intersection(rank.files))
    return _of_ranks(
        "a log of each rank", own, report.world_size,
        "`hangscope run`, or `torchrun --log-dir DIR --tee 3`, or `srun --output=DIR/rank%t.log`",
    )  # fmt: skip


def _of_ranks(subject: str, count: int, world: int, advice: str) -> Finding:
    there = f"of {count} of {world} ranks" if world or count else "none"
    return Finding(subject, there, "" if count and count >= world else advice)


def _twice(report: Document) -> Finding:
    files = (item.file for item in report.inputs)
    folders = {file.partition("/")[0] for file in files if file.startswith("capture_")}
    if len(folders) > 1:
        return Finding("two looks at it", f"{len(folders)} captures")
    return Finding(
        "two looks at it",
        "one",
        "`hangscope capture` looks twice: what has not moved is frozen, and not merely busy",
    )


def _decision(report: Document) -> Finding:
    verdict = report.verdict
    if verdict is None:
        lacking = "" if report.status == "no_hang" else "; ".join(report.missing) or "see above"
        return Finding("verdict", report.status, lacking)
    word = f"{verdict.cause}, {verdict.confidence}"
    if verdict.confidence == "high":
        return Finding("verdict", word)
    decides = tuple(h.would_decide for h in report.hypotheses if h.would_decide)
    return Finding("verdict", word, "; ".join(decides[:2] or report.missing or report.confidence_why))


_CHECKS = (_dumps, _history, _stacks, _twice, _logs, _lines, _decision)
