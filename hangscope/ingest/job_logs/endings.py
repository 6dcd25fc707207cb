"""How processes and jobs ended, as launchers, schedulers and agents report it: torchrun, srun, Slurm, mpirun, DeepSpeed, Kubernetes.

    E1120 15:31:49.819000 29458 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) local_rank: 1 (pid: 29461) of binary: ...
    srun: error: gpu07: task 3: Killed
    slurmstepd: error: *** JOB 12 ON gpu07 CANCELLED AT 2026-11-20T15:13:24 DUE TO PREEMPTION ***

(torch/distributed/elastic/multiprocessing/api.py, agent/server; the wordings of 1.9 to 2.13.) What a launcher calls the first
failure is the first that it *noticed*, with a clock of one second; a rank that exited with code 0 is not in its table.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hangscope.ingest.job_logs.faults import OomHost
from hangscope.ingest.job_logs.signals import KILLED_ABROAD, WORDS, is_shells, signal_name
from hangscope.ingest.lines.forms import says
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.recorder.values import short_number
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event, in_leap_year
from hangscope.model.regex import regex

if TYPE_CHECKING:
    from typing_extensions import Self

_TASKS_SHOWN = 64
_RANK_SET = regex(r"\bRANK=(\d{1,7})\b")  # an argument `--rank` may be of a matrix
_LIGHTNING_RANK = regex(r"\[rank: (\d{1,6})\] Child process")
_SLURM_TIME = regex(r" AT \d{4}-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)")
_RAY_PID, _RAY_ADDRESS = regex(r"Worker PID: (\d{1,9})\b"), regex(r"Worker IP address: ([\w.:]{2,64})")
_REPLICA = regex(r"_DP[1-9]")
_REASONS = {"preemption": ("PREEMPT", "REQUEUE"), "time_limit": ("TIME",), "node_failure": ("NODE",)}


def _of_agent(line: Line, match: re.Match[str]) -> dict[str, Any]:
    return {"agent": line.pid}


def _cleanup(line: Line, match: re.Match[str]) -> Sequence[Event]:
    name = match.group(2).split(".")[-1]
    swept = line.event(CleanupSignal, pid=int(match.group(1)), signal=name, agent=line.pid)
    # An agent closes its workers with SIGTERM, but with the signal that it got itself where one ended it.
    passed_on = name in ("SIGHUP", "SIGINT", "SIGQUIT")
    return [swept, line.event(ExternalEnd, reason="cancelled", signal=name)] if passed_on else [swept]


def _death_signal(line: Line, match: re.Match[str]) -> dict[str, Any]:
    number = short_number(match.group(1))
    name = signal_name(-number) if number is not None else match.group(1).rsplit(".", 1)[-1]
    return {"reason": "sigterm" if name == "SIGTERM" else "cancelled", "signal": name}


def _watched(line: Line, match: re.Match[str]) -> dict[str, Any]:
    return {**_death_signal(line, match), "moving": match.group(2) != "stalled"}


def _slurm(line: Line, match: re.Match[str]) -> dict[str, Any]:
    why = (match.group(1) or "").upper()
    reason = next(
        (reason for reason, words in _REASONS.items() if any(word in why for word in words)), "cancelled"
    )
    at = _SLURM_TIME.search(match.group(0))
    if at is None or line.time is not None or line.stamp is not None:
        return {"reason": reason}
    return {"reason": reason, "stamp": in_leap_year(*map(int, at.groups()))}


def _evicted(line: Line, match: re.Match[str]) -> dict[str, str]:
    return {"reason": "preemption" if "reempt" in match.group(0) else "evicted"}


def _srun(line: Line, match: re.Match[str]) -> Sequence[Event]:
    host, tasks, what = match.groups()
    exited = re.search(r"exit code (\d{1,3})", what)
    code = (
        int(exited.group(1))
        if exited
        else next((n for word, n in WORDS.items() if what.startswith(word)), None)
    )
    if code is None:
        return []
    numbers = _task_numbers(tasks)
    events: list[Event] = [Exit.of(line, code=code, task=task, host=host, via="srun") for task in numbers]
    killed = [line.event(OomHost, host=host, task=task) for task in numbers]
    return [*events, *killed] if what.startswith("Out Of Memory") else events


def _task_numbers(text: str) -> list[int]:
    """Return the task numbers of `0-3,7`, at most 64."""
    numbers: list[int] = []
    for part in text.split(",")[:_TASKS_SHOWN]:
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), min(int(last or first), int(first) + _TASKS_SHOWN) + 1))
    return numbers[:_TASKS_SHOWN]


def _signalled(line: Line, match: re.Match[str]) -> dict[str, int]:
    return {"code": -int(match["number"])}


def _spawn(line: Line, match: re.Match[str]) -> dict[str, int]:
    number = -int(getattr(signal, match["name"], 0)) if match["name"] else int(match["exit"] or 1)
    return {"code": number}


def _lightning(line: Line, match: re.Match[str]) -> Event:
    # the number before it, of which the prefix took note, counts the processes of this node
    local = _LIGHTNING_RANK.search(line.raw)
    event = Exit.of(replace(line, rank=None), code=int(match[2]), pid=int(match[1]), via="lightning")
    return replace(event, local_rank=int(local[1]) if local else None)


def _executor(line: Line, match: re.Match[str]) -> Sequence[Event]:
    swept = line.event(WorkersSwept, failed=match[1])
    # its number is the rank within its engine (vllm/v1/executor/multiproc_executor.py), of which a replica is another world
    if match[2] is None or _REPLICA.search(line.raw):
        return [swept]
    return [swept, replace(line.event(WorkerDied, rank=int(match[2])), pid=None)]


def _died(line: Line, match: re.Match[str]) -> Event:
    pid, address = _RAY_PID.search(line.text), _RAY_ADDRESS.search(line.text)
    event = line.event(WorkerDied, host=address[1] if address else None)
    return replace(event, pid=int(pid[1]) if pid else None)


def _shell(line: Line, match: re.Match[str]) -> dict[str, Any]:
    told = _RANK_SET.search(line.text, match.end())  # bash quotes the command with what is set before it
    return {"rank": int(told[1]) if told else None, "code": WORDS.get(match["word"], -9)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit(Event, by_launcher=True):
    """A process's end as a launcher tells it. `code` is negative for a signal; `pid` and `host` are the process's.

    `first`: the launcher's own root cause; `via` says whose word it is: table, agent, srun, mpirun, spawn, deepspeed,
    shell, script, docker, test, lightning, composer, engine, kubernetes or error_file; `agent` is the process id of the launcher's agent.
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
        says(r"srun: error: ([\w.-]{1,253}): tasks? ([\d,-]{1,4000}): (.{1,120})", read=_srun),
        says(
            r"process rank (?P<task>\d{1,7}) with PID (?P<pid>\d{1,9}) on node (?P<host>\S{1,253}) exited on signal (?P<number>\d{1,3})",
            read=_signalled,
            via="mpirun",
        ),
        says(
            r"rocess (?P<local_rank>\d{1,6}) terminated with "
            r"(?:signal (?P<name>SIG[A-Z]{2,8})|exit code (?P<exit>\d{1,3})|the following error:)",
            read=_spawn,
            via="spawn",
        ),
        # lightning/fabric/strategies/launchers/subprocess_script.py, `_ChildProcessObserver`
        says(
            r"Child process with PID (\d{1,9}) terminated with code (-?\d{1,4})\. Forcefully terminating all other",
            read=_lightning,
        ),
        says(r"MPI_ABORT was invoked on rank (?P<task>\d{1,7}) in communicator", code=1, via="mpirun"),
        # vllm/executor/multiproc_worker_utils.py (V0)
        says(
            r"Worker VllmWorkerProcess pid (?P<pid>\d{1,9}) died, exit code: (?P<code>-?\d{1,4})",
            via="engine",
        ),
        # composer/cli/launcher.py
        says(
            r"Global rank (?P<rank>\d{1,7}) \(PID (?P<pid>\d{1,9})\) exited with code (?P<code>-?\d{1,4})\b",
            via="composer",
        ),
        # the command line before it is that of the worker that was spawned last, whichever failed (deepspeed/launcher/launch.py)
        says(r"exits with return code = (?P<code>-?\d{1,4})", via="deepspeed"),
        says(
            r": line \d{1,7}: +(?P<pid>\d{1,9}) "
            r"(?P<word>Killed|Terminated|Aborted|Segmentation fault|Bus error|Floating point exception)\b",
            read=_shell,
            via="shell",
        ),
        *(
            says(
                rf": [^\W\d]{{1,10}} ?\d{{1,7}}: +(?P<pid>\d{{1,9}}) (?P<word>{re.escape(word)})",
                literal=word,
                read=_shell,
                via="shell",
            )
            for word in KILLED_ABROAD
        ),
        # torch/testing/_internal/common_distributed.py: the processes of a test are numbered by rank
        says(
            r"Process (?P<rank>\d{1,7}) exited with error code (?P<code>\d{1,3}) and exception:", via="test"
        ),
    )

    @classmethod
    def of(cls, line: Any, **fields: Any) -> Self:
        """Return the end of the process that `pid` names, if any; a shell's 128 + n becomes -n."""
        code = fields["code"] if not is_shells(fields["code"]) else 128 - fields["code"]
        event: Self = line.event(cls, **{"signal": signal_name(code), **fields, "code": code})
        return replace(event, pid=fields.get("pid"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitOk(Event, by_launcher=True, calm=True):
    """A process ended with exit code 0."""

    forms = (says(r"Process (?P<pid>\d{1,9}) exits successfully"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDied(Event, same_by=("pid",), by_launcher=True):
    """Ray's raylet lost the process `pid`. It reports survivors that were aborted by their watchdogs as well."""

    forms = (says(r"Worker unexpectedly exits with a connection error", read=_died),)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersEnded(Event, same_by=("everywhere",), by_launcher=True, calm=True):
    """An elastic agent's word that all its workers exited with 0, or (`everywhere`) that those of all other agents did as well.

    torch/distributed/elastic/agent/server/api.py, `_exit_barrier`. `of_a_script`: it is a line such as `exit code: 0`, which a script
    prints of its last command, whichever that was, or (`everywhere`) of all workers that it started.
    """

    everywhere: bool
    of_a_script: bool = False
    forms = (
        says("worker group successfully finished", everywhere=False),
        says("Done waiting for other agents", everywhere=True),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCompleted(Event, same_by=(), by_launcher=True, calm=True):
    """Slurm's word that the whole job ended with exit code 0, as seff, sacct, scontrol and its mails print it."""

    forms = (
        says(
            # a row of sacct is of the job, and not of a step of it, where no dot follows its number
            r"^State: COMPLETED \(exit code 0\)|\bJobState=COMPLETED\b|, COMPLETED, ExitCode 0\b"
            r"|^(?:JobID )?\d{1,12}(?:_\d{1,9})? .{0,200}\bCOMPLETED +(?:ExitCode )?0:0(?: |$)",
            literal="COMPLETED",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupSignal(Event, by_launcher=True):
    """The line "Sending process … closing signal SIGTERM" about a process that still ran; `signal` is a name, or `restart`."""

    signal: str
    agent: int | None = None
    forms = (
        says(r"Sending process (\d{1,9}) closing signal ([\w.]{1,30})", read=_cleanup),
        says(
            r"Unable to shutdown process (\d{1,9}) via .{1,40}, forcefully exiting via ([\w.]{1,30})",
            read=_cleanup,
        ),
        says("attempts left; will restart worker group", read=_of_agent, signal="restart"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersSwept(Event, same_by=("failed",), by_launcher=True):
    """A launcher ends all its workers and says no more: `failed` which of them failed, in its words, empty where a signal may be why."""

    failed: str = ""
    forms = (
        # deepspeed/launcher/launch.py's handler runs when a worker failed and when the launcher itself gets a signal
        says(r"sigkill_handler\] Killing subprocess \d"),
        # vllm/v1/executor/multiproc_executor.py and ray_executor_v2.py
        says(
            r"(Worker proc (?:VllmWorker-(\d{1,5})|\S{1,60})|RayWorkerProc rank=\S{1,60}) died unexpectedly, shutting down executor",
            read=_executor,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalEnd(Event, same_by=("reason",), by_launcher=True):
    """The job was ended from outside: `reason` is preemption, time_limit, cancelled, sigterm, evicted or node_failure.

    `moving` is whether it was still making progress, as its watcher saw it.
    """

    reason: str
    signal: str | None = None
    moving: bool | None = None
    forms = (
        says(r"Received ([\w.]{1,30}) death signal, shutting down workers", read=_death_signal),
        says(r"SignalException: Process \d+ got signal: ([\w.]{1,30})", read=_death_signal),
        says(r"\*\*\* (?:JOB|STEP) .{0,300}? CANCELLED AT \S{1,40}(?: DUE TO (.{1,60}))?", read=_slurm),
        says("node was low on resource", read=_evicted),
        says("DisruptionTarget", read=_evicted),
        says("PreemptionByScheduler", read=_evicted),
        says(r"Main process received (SIG[A-Z]{2,8}), exiting", read=_death_signal),
        says(r"hangscope: (SIG[A-Z]{2,8}): the job was (making progress|stalled)", read=_watched),
    )
