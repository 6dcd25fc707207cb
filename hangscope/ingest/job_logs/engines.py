"""What inference engines and monitors of ranks print when those stand still: vLLM, SGLang and NVIDIA's resiliency extension.

    (EngineCore_DP1 pid=4410) INFO 11-02 19:05:51 [shm_broadcast.py:501] No available shared memory broadcast block found in 60 seconds. ...
    TimeoutError: RPC call to execute_model timed out.
    [2026-03-02 11:05:24 TP6] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)
    [2026-06-06 16:55:19,004] [WARNING] [RankMonitorServer:gpu02:rank 12] Did not get subsequent heartbeat. Waited 180.00 seconds.

(vllm/distributed/device_communicators/shm_broadcast.py and v1/executor/multiproc_executor.py; sglang/srt/utils/watchdog.py,
before 0.5 managers/scheduler.py; nvidia_resiliency_ext/fault_tolerance/rank_monitor_server.py.) The first line alone proves nothing: workers that compile print it too.
"""

from __future__ import annotations

from hangscope.dataclass import dataclass
from hangscope.events import Event
from hangscope.ingest.job_logs.faults import NoProgress
from hangscope.ingest.lines.rules import Rule, rule, told


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTimeout(Event, same_by=("what",)):
    """An engine gave its workers up: `what` is the call they did not answer, `scheduler` or `heartbeat`."""

    what: str


RULES: tuple[Rule, ...] = (
    rule(
        "No available shared memory broadcast block",
        r"No available shared memory broadcast block found in \d{1,9} seconds",
        told(NoProgress),
    ),
    rule("RPC call to ", r"TimeoutError: RPC call to (?P<what>\w{1,80}) timed out", told(EngineTimeout)),
    rule(
        "atchdog timeout (self.watchdog_timeout",
        r"[Ww]atchdog timeout \(self\.watchdog_timeout=\d{1,9}",
        told(EngineTimeout, what="scheduler"),
    ),
    # A rank whose calls wait sends its monitor no heartbeat either: who it is accuses nobody.
    rule(
        "Did not get ",
        r"Did not get (?:subsequent|initial|any) heartbeats?(?: from rank \d{1,7})?\. Waited \d{1,9}",
        told(EngineTimeout, what="heartbeat"),
    ),
)
