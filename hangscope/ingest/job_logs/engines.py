"""What inference engines and monitors of ranks print when those stand still: vLLM, SGLang and NVIDIA's resiliency extension.

    TimeoutError: RPC call to execute_model timed out.
    [2026-03-02 11:05:24 TP6] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)
    [2026-06-06 16:55:19,004] [WARNING] [RankMonitorServer:gpu02:rank 12] Did not get subsequent heartbeat. Waited 180.00 seconds.

(vllm/v1/executor/multiproc_executor.py; sglang/srt/utils/watchdog.py,
before 0.5 managers/scheduler.py; nvidia_resiliency_ext/fault_tolerance/rank_monitor_server.py.)
"""

from __future__ import annotations

from hangscope.ingest.lines.forms import says
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

_PREFIX = 120  # characters of a line in which its writer is told
_COORDINATES = regex(
    r"(?<![A-Za-z])(?:DP|PP|TP|EP|CP)\d{1,5}(?:[ _](?:DP|PP|TP|EP|CP)\d{1,5}){0,4}(?![A-Za-z\d])"
)


def process_of(raw: str) -> str | None:
    """Return the coordinates by which an engine's process calls itself at the start of its line: `PP1 TP1`, `TP0_EP1`."""
    found = _COORDINATES.search(raw, 0, _PREFIX)
    return found[0].replace("_", " ") if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTimeout(Event, same_by=("what", "process")):
    """An engine gave its workers up: `what` is the call they did not answer, `scheduler` or `heartbeat`.

    `process` is the writer by its coordinates in the engine, such as `PP1 TP1`; `seconds` how long it waited.
    """

    what: str
    process: str | None = None
    seconds: int | None = None
    forms = (
        says(r"TimeoutError: RPC call to (?P<what>\w{1,80}) timed out"),
        says(
            r"atchdog timeout \(self\.watchdog_timeout=(?P<seconds>\d{1,9})",
            what="scheduler",
            read=lambda line, match: {"process": process_of(line.raw)},
        ),
        # A rank whose collectives wait sends its monitor no heartbeat either: its name accuses nobody.
        says(
            r"Did not get (?:subsequent|initial|any) heartbeats?(?: from rank \d{1,7})?\. Waited (?P<seconds>\d{1,9})",
            what="heartbeat",
        ),
    )
