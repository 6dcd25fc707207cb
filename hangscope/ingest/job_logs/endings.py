"""How processes ended and jobs were terminated, as launchers, schedulers and agents report it: torchrun, srun, Slurm, mpirun, DeepSpeed.

    E1120 15:31:49.819000 29458 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) local_rank: 1 (pid: 29461) of binary: ...
    srun: error: gpu07: task 3: Killed
    slurmstepd: error: *** JOB 12 ON gpu07 CANCELLED AT 2026-11-20T15:13:24 DUE TO PREEMPTION ***

(torch/distributed/elastic/multiprocessing/api.py, agent/server; the wordings of 1.9 to 2.13; submitit/core/job_environment.py;
vllm/v1/executor/ray_executor_v2.py.) What a launcher calls the first
failure is the first that it *noticed*, with a clock of one second; a rank that exited with code 0 is not in its table.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hangscope.ingest.job_logs.faults import OomHost
from hangscope.ingest.lines.forms import any_of, says, spans
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.recorder.values import short_number
from hangscope.model.events import Event, in_leap_year
from hangscope.model.regex import regex

if TYPE_CHECKING:
    from typing_extensions import Self

#: the C library's words for SIGKILL in German, Russian, French, Spanish, Italian, Chinese, Japanese and Korean
KILLED_ABROAD = (
    "Getötet", "Убито", "Processus arrêté", "Terminado (killed)", "Ucciso ", "已杀死", "強制終了", "죽었음",
)  # fmt: skip
WORDS = {
    "Killed": -9,
    "Terminated": -15,
    "Aborted": -6,
    "Segmentation fault": -11,
    "Bus error": -7,
    "Floating point exception": -8,
    "Out Of Memory": -9,
}
_TASKS_SHOWN = 64
_RANK_SET = regex(r"\bRANK=(\d{1,7})\b")  # an argument `--rank` may be of a matrix
_RAY_PID, _RAY_ADDRESS = regex(r"Worker PID: (\d{1,9})\b"), regex(r"Worker IP address: ([\w.:]{2,64})")
_REASONS = {"PREEMPT": "preemption", "REQUEUE": "preemption", "TIME": "time_limit", "NODE": "node_failure"}


#: by POSIX, XCU 2.8.2
_SHELLS = {126: "the command is not executable", 127: "the command was not found"}


def signal_name(code: int | None) -> str | None:
    """Return SIGKILL for -9 (and for a shell's 137), None for what is no signal."""
    number = -code if code is not None and code < 0 else (code or 0) - 128 if is_shells(code or 0) else 0
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def ended_with(code: int) -> str:
    """Return `ended with exit code 127: the command was not found`: what a shell's code means is said."""
    means = _SHELLS.get(code)
    return f"ended with exit code {code}" + (f": {means}" if means else "")


def is_shells(code: int) -> bool:
    """Return whether an exit code is a shell's word for a signal: 128 + n."""
    return 128 < code < 128 + 32


def _of_agent(line: Line, match: re.Match[str]) -> dict[str, Any]:
    return {"agent": line.pid}


def _death_signal(line: Line, match: re.Match[str]) -> dict[str, Any]:
    number = short_number(match["name"])
    name = signal_name(-number) if number is not None else match["name"].rsplit(".", 1)[-1]
    return {"reason": "sigterm" if name == "SIGTERM" else "cancelled", "signal": name}


def _slurm(line: Line, match: re.Match[str]) -> dict[str, Any]:
    why = (match["why"] or "").upper()
    stamp = in_leap_year(*map(int, match.groups()[:5])) if match["month"] and line.stamp is None else None
    return {"reason": next((r for word, r in _REASONS.items() if word in why), "cancelled"), "stamp": stamp}


def _coded(line: Line, match: re.Match[str]) -> dict[str, Any]:
    """Return the exit code that the number, the name or the word of a signal stands for."""
    caught = match.groupdict()
    if caught.get("name"):
        return {"code": -getattr(signal, caught["name"], 0)}
    if caught.get("word"):
        rank = _RANK_SET.search(line.text, match.end())  # bash quotes the command with what is set before it
        return {"code": WORDS.get(caught["word"], -9), "rank": int(rank[1]) if rank else None}
    if caught.get("code"):
        return {}
    return {"code": -int(caught["number"]) if caught.get("number") else int(caught.get("exit") or 1)}


def _of_own_launcher(line: Line, match: re.Match[str]) -> dict[str, Any]:
    by = {"via": "srun"} if line.text.startswith("srun") else {}  # a line of srun's that lost a character
    code = int(match["code"] or match["alone"])
    return {"rank" if match["own"] else "task": int(match["number"]), "code": code, **by}


def _srun(line: Line, match: re.Match[str]) -> Sequence[Event]:
    if not match["exit"] and match["word"] not in WORDS:
        return []
    code = int(match["exit"]) if match["exit"] else WORDS[match["word"]]
    tasks = spans(match["tasks"], _TASKS_SHOWN)
    ends = [Exit.of(line, code=code, task=task, host=match["host"], via="srun") for task in tasks]
    killed = ends if match["word"] == "Out Of Memory" else []
    return [*ends, *(line.event(OomHost, host=match["host"], task=end.task) for end in killed)]


def _of_engine(line: Line, match: re.Match[str]) -> Event | None:
    # a rank within its engine (vllm/v1/executor/multiproc_executor.py), of which another replica is another world
    replica = re.search(r"_DP[1-9]", line.raw)
    return None if replica else replace(line.event(WorkerDied, rank=int(match["number"])), pid=None)


def _lost(line: Line, match: re.Match[str]) -> Event:
    pid, address = _RAY_PID.search(line.text), _RAY_ADDRESS.search(line.text)
    event = line.event(WorkerDied, host=address[1] if address else None)
    return replace(event, pid=int(pid[1]) if pid else None)


class Exit(Event, by_launcher=True):
    """The end of a process as a launcher reports it. `code` is negative for a signal; `pid` and `host` are the process's.

    `first`: the launcher's own root cause; `via` is who reports it: table, agent, srun, mpirun, spawn, deepspeed, shell, script,
    docker, test, lightning, composer, engine or kubernetes; `agent` is the process id of the launcher's agent.
    """

    code: int
    via: str
    signal: str | None = None
    first: bool = False
    message: str | None = None
    agent: int | None = None
    forms = (
        says(
            r"failed \(exitcode: (?P<code>-?\d{1,4})\) local_rank: (?P<local_rank>\d{1,6}) \(pid: (?P<pid>\d{1,9})\) of ",
            read=_of_agent,
            via="agent",
        ),
        says(
            r"srun: error: (?P<host>[\w.-]{1,253}): tasks? (?P<tasks>[\d,-]{1,4000}): "
            rf"(?P<word>{'|'.join(WORDS)})?.{{0,120}}?(?:exit code (?P<exit>\d{{1,3}})|$)",
            read=_srun,
        ),
        *(
            says(pattern, via=via, read=_coded)
            for pattern, via in {
                r"process rank (?P<task>\d{1,7}) with PID (?P<pid>\d{1,9}) on node (?P<host>\S{1,253}) exited on signal (?P<number>\d{1,3})": "mpirun",
                r"MPI_ABORT was invoked on rank (?P<task>\d{1,7}) in communicator": "mpirun",
                r"rocess (?P<local_rank>\d{1,6}) terminated with (?:signal (?P<name>SIG[A-Z]{2,8})|exit code (?P<exit>\d{1,3})|the following error:)": "spawn",
                # lightning/fabric/strategies/launchers/subprocess_script.py, `_ChildProcessObserver`
                r"(?:\[rank: (?P<local_rank>\d{1,6})\] )?Child process with PID (?P<pid>\d{1,9}) terminated with code (?P<code>-?\d{1,4})\. Forcefully terminating all other": "lightning",
                # vllm/executor/multiproc_worker_utils.py (V0)
                r"Worker VllmWorkerProcess pid (?P<pid>\d{1,9}) died, exit code: (?P<code>-?\d{1,4})": "engine",
                # deepspeed/launcher/launch.py prints the command line of the worker that it started last, whichever failed
                r"exits with return code = (?P<code>-?\d{1,4})": "deepspeed",
                # torch/testing/_internal/common_distributed.py: the processes of a test are numbered by rank
                r"Process (?P<rank>\d{1,7}) exited with error code (?P<code>\d{1,3}) and exception:": "test",
                r": line \d{1,7}: +(?P<pid>\d{1,9}) (?P<word>Killed|Terminated|Aborted|Segmentation fault|Bus error|Floating point exception)\b": "shell",
            }.items()
        ),
        *any_of(
            KILLED_ABROAD,
            rf": [^\W\d]{{1,10}} ?\d{{1,7}}: +(?P<pid>\d{{1,9}}) (?P<word>{'|'.join(map(re.escape, KILLED_ABROAD))})",
            read=_coded,
            via="shell",
        ),
        # a launcher of the user's own, or of a library: `task 3: exit code 0`, `Global rank 1 (PID 12) exited with code -9`
        says(
            r"(?i)(?<![a-z])(?:(?P<own>rank)|task|worker|trainer|replica|proc)[ #:=_\[-]{0,2}(?P<number>\d{1,4})\]?(?:,? \(?pid[ =:]{0,2}(?P<pid>\d{1,9})\)?)?"
            r"[: ,]{1,3}(?:has |was )?exit(?:ed|s)?[ ,:(]{0,2}(?:with |on )?(?:error |exit |return )?"
            r"(?:(?:code|status|rc)[ =:]{0,3}(?P<code>-?\d{1,3})\b|(?P<alone>-?\d{1,3})\W{0,3}$)",  # not `exited with 2 errors`
            literal=" exit",
            read=_of_own_launcher,
            via="script",
        ),
    )

    @classmethod
    def of(cls, line: Any, **fields: Any) -> Self:
        """Return the end of the process that `pid` names, if any; a shell's 128 + n becomes -n."""
        code = fields["code"] if not is_shells(fields["code"]) else 128 - fields["code"]
        event: Self = line.event(cls, **{"signal": signal_name(code), **fields, "code": code})
        return replace(event, pid=fields.get("pid"))


class ExitOk(Event, by_launcher=True, calm=True):
    """A process ended with exit code 0."""

    forms = (says(r"Process (?P<pid>\d{1,9}) exits successfully"),)


class WorkerDied(Event, same_by=("pid",), by_launcher=True):
    """Ray's raylet, or an engine, lost a process. The raylet reports survivors that were aborted by their watchdogs as well."""

    forms = (
        says(r"Worker unexpectedly exits with a connection error", read=_lost),
        says(
            r"(?:Worker proc VllmWorker-|RayWorkerProc rank=\[?)(?P<number>\d{1,5})\]? died unexpectedly, shutting down",
            literal="died unexpectedly, shutting down",
            read=_of_engine,
        ),
    )


class CleanupSignal(Event, by_launcher=True):
    """The line "Sending process … closing signal SIGTERM" about a process that still ran; `signal` is a name, or `restart`."""

    signal: str
    agent: int | None = None
    forms = (
        says(
            r"Sending process (?P<pid>\d{1,9}) closing signal (?:Signals\.)?(?P<signal>\w{1,30})",
            read=_of_agent,
        ),
        says(
            r"shutdown process (?P<pid>\d{1,9}) via .{1,40}, forcefully exiting via (?:Signals\.)?(?P<signal>\w{1,30})",
            read=_of_agent,
        ),
        says("attempts left; will restart worker group", read=_of_agent, signal="restart"),
    )


class WorkersSwept(Event, same_by=("failed",), by_launcher=True):
    """A launcher ends all its workers and reports no more: `failed` is which of them failed, empty where a signal may be why."""

    failed: str = ""
    forms = (
        # deepspeed/launcher/launch.py's handler runs when a worker failed and when the launcher itself gets a signal
        says(r"sigkill_handler\] Killing subprocess \d"),
        # vllm/v1/executor/multiproc_executor.py and ray_executor_v2.py
        says(
            r"(?P<failed>Worker proc \S{1,60}|RayWorkerProc rank=\S{1,60}) died unexpectedly, shutting down executor"
        ),
    )


class ExternalEnd(Event, same_by=("reason",), by_launcher=True):
    """The job was terminated externally: `reason` is preemption, time_limit, cancelled, sigterm, evicted or node_failure.

    `moving` is whether it was still making progress, as its watcher saw it; `early` that it had shown no progress yet.
    """

    reason: str
    signal: str | None = None
    moving: bool | None = None
    early: bool = False
    forms = (
        says(r"Received (?P<name>[\w.]{1,30}) death signal, shutting down workers", read=_death_signal),
        says(r"SignalException: Process \d+ got signal: (?P<name>[\w.]{1,30})", read=_death_signal),
        # an agent closes its workers with SIGTERM, or with the signal that it got itself
        says(r" closing signal (?:Signals\.)?(?P<name>SIGHUP|SIGINT|SIGQUIT)\b", read=_death_signal),
        says(r"Main process received (?P<name>SIG[A-Z]{2,8}), exiting", read=_death_signal),
        says(r"hangscope: (?P<name>SIG[A-Z]{2,8}): the job was stalled", read=_death_signal, moving=False),
        says(r"hangscope: (?P<name>SIG[A-Z]{2,8}): the job was making ", read=_death_signal, moving=True),
        says(
            r"hangscope: (?P<name>SIG[A-Z]{2,8}): the job had shown no progress",
            read=_death_signal,
            early=True,
        ),
        says(
            r"\*\*\* (?:JOB|STEP) .{0,300}? CANCELLED AT (?:\d{4}-(?P<month>\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)|\S{1,40})"
            r"(?: DUE TO (?P<why>.{1,60}))?",
            read=_slurm,
        ),
        says("node was low on resource", reason="evicted"),
        says("DisruptionTarget", reason="evicted"),
        says("PreemptionByScheduler", reason="preemption"),
        says(r"Caught signal \w{1,20} on \S{1,100}: this job is preempted", reason="preemption"),
        says(r"Caught signal \w{1,20} on \S{1,100}: this job is timed-out", reason="time_limit"),
    )
