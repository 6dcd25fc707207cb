"""What shows that a process makes no progress: a debugger, a signal or the kernel holds it, it computes, it has not joined, its engine gave up.

    > /workspace/train/loss.py(66)forward()
    -> scale = scale / scale.sum()
    (Pdb)

    [881320.40] INFO: task python:9914 blocked for more than 120 seconds.

    process 9914 is stopped
     7292  7290 TNl  do_signal_stop             00:43 00:00:10 python3.11 -u run.py --local_rank=1
    process 9914 is computing: 98% of a processor, in Python code
    process 9914 on gpu07 is starting: no answer from the store at 10.0.0.9:29500

    TimeoutError: RPC call to execute_model timed out.
    [2026-03-02 11:05:24 TP6] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)
    [2026-06-06 16:55:19,004] [WARNING] [RankMonitorServer:gpu02:rank 12] Did not get subsequent heartbeat. Waited 180.00 seconds.

    |   2  NVIDIA H100 80GB HBM3          On  |   00000000:52:00.0 Off |                    0 |
    | N/A   33C    P0             71W /  700W |   61198MiB /  81559MiB |      0%      Default |

(CPython Lib/pdb.py, IPython's debugger; Linux kernel/hung_task.c, which checks tasks in uninterruptible sleep, and kernel/signal.c;
hangscope/live/look/processes.py, activity.py and meeting.py, one file for each rank; vllm/v1/executor/multiproc_executor.py;
sglang/srt/utils/watchdog.py, before 0.5 managers/scheduler.py; nvidia_resiliency_ext/fault_tolerance/rank_monitor_server.py;
nvidia-smi.) A process that waits in a collective keeps its GPU at 100 % and far below its power limit; one that is on the CPU leaves it
idle.
"""

from __future__ import annotations

from collections.abc import Iterator

from hangscope.ingest.lines.blocks import Found, block
from hangscope.ingest.lines.forms import any_of, says
from hangscope.model.events import Event
from hangscope.model.regex import regex

IDLE, BUSY = 5, 90  # percent of the time with a kernel
_PREFIX = 120  # characters of a line that name its writer
_COORDINATES = regex(
    r"(?<![A-Za-z])(?:DP|PP|TP|EP|CP)\d{1,5}(?:[ _](?:DP|PP|TP|EP|CP)\d{1,5}){0,4}(?![A-Za-z\d])"
)


def process_of(raw: str) -> str | None:
    """Return the coordinates that an engine's process prints at the start of its line: `PP1 TP1`, `TP0_EP1`."""
    found = _COORDINATES.search(raw, 0, _PREFIX)
    return found[0].replace("_", " ") if found else None


class Held(Event, same_by=("by", "victim_pid")):
    """A process is held up: `by` is debugger, kernel or stop (a signal, such as SIGSTOP). The rank follows where one rank alone is known by `victim_pid`."""

    by: str
    victim_pid: int | None = None
    forms = (
        *any_of(("(Pdb", "ipdb>"), r"^(?:\(Pdb\+{0,2}\)|ipdb>)(?: |$)", by="debugger"),
        says(r"\btask \S{1,64}:(?P<victim_pid>\d{1,9}) blocked for more than \d{1,9} seconds", by="kernel"),
        says(r"^process (?P<victim_pid>\d{1,9}) is stopped$", by="stop"),
        # a row of ps with the kernel function in which the process sleeps
        says(
            r"^\s{0,8}(?:[a-z_][\w.+-]{0,31} +)?(?P<victim_pid>\d{1,9}) .{0,80}\bdo_signal_stop\b", by="stop"
        ),
        says(r"^process (?P<victim_pid>\d{1,9}) is traced$", by="debugger"),
        # a row of ps of a training process that no signal can wake
        says(
            r"^\s{0,8}(?:[a-z_][\w.+-]{0,31} +)?(?P<victim_pid>\d{1,9}) (?:.{0,60} )?D[lsN<+]{0,3} .{0,80}\.py\b.{0,200}--local[_-]rank[= ](?P<local_rank>\d{1,4})",
            by="kernel",
        ),
    )


class Computing(Event, same_by=("victim_pid",)):
    """A rank used a processor between two captures. `share` is in percent; where is `in Python code`, or `in one place`, which may be a wait that spins."""

    victim_pid: int
    share: int
    where: str | None = None
    forms = (
        says(
            r"^process (?P<victim_pid>\d{1,9}) is computing: (?P<share>\d{1,3})% of a processor(?:, (?P<where>in Python code|in one place))?$"
        ),
    )


class StoreAccess(Event, same_by=("store_host", "port", "reaches")):
    """A rank in no process group yet: the store that it was given, and whether it reaches it, or serves it itself."""

    store_host: str
    port: int
    reaches: str

    @property
    def address(self) -> str:
        """Return host and port of the store that the rank was given."""
        return f"{self.store_host}:{self.port}"

    @property
    def is_there(self) -> bool:
        """Whether the rank has found the store."""
        return not self.reaches.startswith("no ")

    forms = (
        says(
            r"^process \d{1,9}(?: on (?P<host>[\w.-]{1,253}))? is starting: (?P<reaches>serving|connected to|no answer from|no connection to) the store at (?P<store_host>\S{1,253}):(?P<port>\d{1,5})$"
        ),
    )


class WaitedFor(Event, same_by=("peer_rank",), rank_fields=("peer_rank",)):
    """A process gave up waiting for the rank that it names (`peer_rank`, global as far as the line says)."""

    peer_rank: int
    forms = (
        says(
            r"(?:\b[Rr]ank[ :=#\[]{0,2}(?P<rank>\d{1,7})\b.{0,60}?)?\b(?i:timed out|time-?out|gave up|giving up|expired)\b.{0,40}?\bwaiting\b"
            r".{0,60}?\b(?:for|from|on|of) (?:the )?(?:peer |remote |global |source |src )?[Rr]ank[ :=#\[]{0,2}(?P<peer_rank>\d{1,7})\b",
            literal="waiting",
        ),
    )


class EngineTimeout(Event, same_by=("what", "process")):
    """An engine gave up waiting for its workers: `what` is the call they did not answer, `scheduler` or `heartbeat`.

    `process` is the writer by its coordinates in the engine, such as `PP1 TP1`; `seconds` is how long it waited.
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
        # A rank whose collectives wait sends its monitor no heartbeat either: it need not be the culprit.
        says(
            r"Did not get (?:subsequent|initial|any) heartbeats?(?: from rank \d{1,7})?\. Waited (?P<seconds>\d{1,9})",
            what="heartbeat",
        ),
    )


_WATTS = regex(r", (\d{1,4}(?:\.\d{1,3})?) W\b")


def _use(found: Found) -> Iterator[Event]:
    """Yield the load and the power of a GPU, which its two rows state."""
    if found.last("percent") is not None:
        yield found.parts[-1][0].event(GpuUse, **found.caught(GpuUse))


class GpuUse(Event, same_by=("gpu",), by_launcher=True, calm=True):
    """One GPU of a host by its local number: `percent` of time with a kernel, its power and limit in `watts` and `limit`."""

    gpu: int
    percent: int
    watts: int | None = None
    limit: int | None = None
    forms = (
        # --query-gpu=index,... --format=csv
        says(
            r"^(?P<gpu>\d{1,2}), (?:[^,]{1,40}, ){0,6}?(?P<percent>\d{1,3}) %, [^,]{1,40}(?:, [^,]{1,40}){0,6}$",
            literal=" %, ",
            read=lambda line, match: {
                "watts": int(float(watts[1])) if (watts := _WATTS.search(line.text)) else None
            },
        ),
    )


ROWS = block(
    *any_of(
        (".0 Off |", ".0  On |"),
        r"^\|\s{1,4}(?P<gpu>\d{1,3})\s{1,4}\S.{0,60}\|\s{1,6}[0-9A-F]{4,8}:[0-9A-F]{2}:[0-9A-F]{2}\.\d",
    ),
    ends=regex(
        r"^\|.{1,44}?\s(?:(?P<watts>\d{1,4})W|N/A) ?/ {1,4}(?:(?P<limit>\d{1,4})W|N/A) \|"
        r" {1,8}\d{1,7}MiB / {1,4}\d{1,7}MiB \| {1,8}(?P<percent>\d{1,3})%"
    ),
    lines=2,
    made=_use,
)
