"""What inference engines and monitors of ranks print when those stand still: vLLM, SGLang and NVIDIA's resiliency extension.

    TimeoutError: RPC call to execute_model timed out.
    [2026-03-02 11:05:24 TP6] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)
    [2026-06-06 16:55:19,004] [WARNING] [RankMonitorServer:gpu02:rank 12] Did not get subsequent heartbeat. Waited 180.00 seconds.

(vllm/v1/executor/multiproc_executor.py; sglang/srt/utils/watchdog.py,
before 0.5 managers/scheduler.py; nvidia_resiliency_ext/fault_tolerance/rank_monitor_server.py.)
"""

from __future__ import annotations

from hangscope.dataclass import dataclass
from hangscope.events import Event
from hangscope.ingest.lines.forms import says


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTimeout(Event, same_by=("what",)):
    """An engine gave its workers up: `what` is the call they did not answer, `scheduler` or `heartbeat`."""

    what: str
    forms = (
        says(r"TimeoutError: RPC call to (?P<what>\w{1,80}) timed out"),
        says(r"atchdog timeout \(self\.watchdog_timeout=\d{1,9}", what="scheduler"),
        # A rank whose collectives wait sends its monitor no heartbeat either: its name accuses nobody.
        says(
            r"Did not get (?:subsequent|initial|any) heartbeats?(?: from rank \d{1,7})?\. Waited \d{1,9}",
            what="heartbeat",
        ),
    )
