"""What an incident lacks for a sure verdict, and what gives it next time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hangscope.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of evidence: what there is of it, and what to do where that is not enough (empty where it is)."""

    subject: str
    there: str
    advice: str

    @property
    def enough(self) -> bool:
        """Whether nothing is lacking."""
        return not self.advice


def examine(report: dict[str, Any]) -> list[Finding]:
    """Return what a report (its JSON, as data) says of its evidence, the most decisive kind first."""
    return [check(report) for check in _CHECKS]


def _dumps(report: dict[str, Any]) -> Finding:
    world, count = report["world_size"], report["sources"].get("dump", 0)
    there = f"of {count} of {world} ranks" if world else f"{count}"
    if count and count >= world:
        return Finding("recorder dumps", there, "")
    missing = report["partial"].get("missing_ranks")
    who = f" (missing: {missing})" if count and missing else ""
    return Finding(
        "recorder dumps", there + who,
        "`hangscope run` gets them from live ranks of any backend; without it TORCH_FR_BUFFER_SIZE=20000,"
        " TORCH_FR_DUMP_TEMP_FILE on a disk that all nodes see, and TORCH_NCCL_DUMP_ON_TIMEOUT=1",
    )  # fmt: skip


def _history(report: dict[str, Any]) -> Finding:
    late = [w for w in report["coverage"].get("windows", []) if (w.get("from_seq") or 1) > 1]
    if not report["sources"].get("dump"):
        return Finding("history of calls", "none", "dumps, see above")
    if not late:
        return Finding("history of calls", "from the first call", "")
    first = late[0]
    return Finding(
        "history of calls", f"of ranks {first['ranks']} from seq {first['from_seq']} on group {first['group']}",
        "a larger TORCH_FR_BUFFER_SIZE (20000; some 300 bytes per call): what was overwritten may be where ranks parted",
    )  # fmt: skip


def _lines(report: dict[str, Any]) -> Finding:
    verdict = report["verdict"] or {}
    place = verdict.get("location")
    if place:
        return Finding("source line", f"{place['file']}:{place['line']}", "")
    formats = [
        row["file"] for row in report["inputs"] if row["status"] == "used" and row["file"].endswith(".json")
    ]
    why = (
        " (JSON dumps hold no frames: take the pickled ones)"
        if formats and report["sources"].get("dump")
        else ""
    )
    return Finding(
        "source line",
        "none" + why,
        "stacks of the frozen job: `hangscope run`, or `hangscope capture PID` on each node",
    )


def _stacks(report: dict[str, Any]) -> Finding:
    world, count = report["world_size"], report["sources"].get("stack", 0)
    if count and count >= world:
        return Finding("stacks", f"of {count} of {world} ranks", "")
    return Finding(
        "stacks", f"of {count} of {world} ranks" if world else "none",
        "`hangscope capture PID` on each node before the job is ended, or `hangscope run`, which does it by itself",
    )  # fmt: skip


def _logs(report: dict[str, Any]) -> Finding:
    world = report["world_size"]
    logs = {
        row["file"]
        for row in report["inputs"]
        if row["kind"] == "log"
        and "kernel_rank_" not in row["file"]  # what `capture` was told of a silent rank
    }
    own = [row for row in report["ranks"] if logs.intersection(row["files"])]
    if own and len(own) >= world:
        return Finding("a log of each rank", f"of {len(own)} of {world} ranks", "")
    return Finding(
        "a log of each rank", f"of {len(own)} of {world} ranks" if world else "none",
        "`hangscope run`, or `torchrun --log-dir DIR --tee 3`, or `srun --output=DIR/rank%t.log`",
    )  # fmt: skip


def _twice(report: dict[str, Any]) -> Finding:
    folders = {
        row["file"].partition("/")[0] for row in report["inputs"] if row["file"].startswith("capture_")
    }
    if len(folders) > 1:
        return Finding("two looks at it", f"{len(folders)} captures", "")
    return Finding(
        "two looks at it",
        "one",
        "`hangscope capture` looks twice: what has not moved is frozen, and not merely busy",
    )


def _decision(report: dict[str, Any]) -> Finding:
    verdict = report["verdict"]
    if verdict is None:
        return Finding(
            "verdict",
            report["status"],
            "" if report["status"] == "no_hang" else "; ".join(report["missing"]) or "see above",
        )
    word = f"{verdict['cause']}, {verdict['confidence']}"
    if verdict["confidence"] == "high":
        return Finding("verdict", word, "")
    decides = [h["would_decide"] for h in report["hypotheses"] if h.get("would_decide")]
    return Finding("verdict", word, "; ".join(decides[:2] or report["missing"] or report["confidence_why"]))


_CHECKS: tuple[Callable[[dict[str, Any]], Finding], ...] = (
    _dumps,
    _history,
    _stacks,
    _twice,
    _logs,
    _lines,
    _decision,
)
