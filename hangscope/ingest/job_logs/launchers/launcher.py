"""How processes ended, as launchers and schedulers tell it: torchrun, srun, Slurm, mpirun, DeepSpeed, Kubernetes.

    E1120 15:31:49.819000 29458 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) local_rank: 1 (pid: 29461) of binary: ...
    srun: error: gpu07: task 3: Killed
    slurmstepd: error: *** JOB 12 ON gpu07 CANCELLED AT 2026-11-20T15:13:24 DUE TO PREEMPTION ***

(torch/distributed/elastic/multiprocessing/api.py, agent/server; the wordings of 1.9 to 2.13.) What a launcher
calls the first failure is the first that it *noticed*, with a clock of one second; a rank that left with exit
code 0 is not in its table.
"""

from __future__ import annotations

import datetime
import re
import signal
from collections.abc import Sequence
from dataclasses import replace

from hangscope.events import Event
from hangscope.ingest.job_logs.endings import (
    CleanupSignal,
    ExitOk,
    ExternalEnd,
    JobCompleted,
    WorkersEnded,
    WorkersSwept,
    exit_event,
    signal_name,
)
from hangscope.ingest.job_logs.faults import OomHost
from hangscope.ingest.job_logs.launchers.ray import WorkerDied
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.lines.rules import Rule, rule, told
from hangscope.ingest.recorder.values import short_number
from hangscope.regex import regex

_TASKS_SHOWN = 64
_RANK_SET = regex(r"\bRANK=(\d{1,7})\b")  # an argument `--rank` may be of a matrix
_RANK_ARGUMENT = regex(r"(?<![\w-])--rank[ =](\d{1,7})\b")
#: the C library's words for SIGKILL in German, Russian, French, Spanish, Italian, Chinese, Japanese and Korean
_KILLED_ABROAD = (
    "Getötet", "Убито", "Processus arrêté", "Terminado (killed)", "Ucciso ", "已杀死", "強制終了", "죽었음",
)  # fmt: skip
_LIGHTNING_RANK = regex(r"\[rank: (\d{1,6})\] Child process")
_SLURM_TIME = regex(r" AT \d{4}-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)")
_REPLICA = regex(r"_DP[1-9]")
_A_YEAR = 2024  # stamps count from 1 January of a leap year, whatever the year
_WORDS = {
    "Killed": -9,
    "Terminated": -15,
    "Aborted": -6,
    "Segmentation fault": -11,
    "Bus error": -7,
    "Floating point exception": -8,
    "Out Of Memory": -9,
}


def _agent(line: Line, match: re.Match[str]) -> Event:
    code, local_rank, pid = (int(n) for n in match.groups())
    return exit_event(line, code, local_rank=local_rank, pid=pid, via="agent", agent=line.pid)


def _cleanup(line: Line, match: re.Match[str]) -> Sequence[Event]:
    name = match.group(2).split(".")[-1]
    swept = line.event(CleanupSignal, pid=int(match.group(1)), signal=name, agent=line.pid)
    # An agent closes its workers with SIGTERM, but with the signal that it got itself where one ended it.
    passed_on = name in ("SIGHUP", "SIGINT", "SIGQUIT")
    return [swept, line.event(ExternalEnd, reason="cancelled", signal=name)] if passed_on else [swept]


def _restart(line: Line, match: re.Match[str]) -> Event:
    return line.event(CleanupSignal, signal="restart", agent=line.pid)


def _death_signal(line: Line, match: re.Match[str]) -> Event:
    number = short_number(match.group(1))
    name = signal_name(-number) if number is not None else match.group(1).rsplit(".", 1)[-1]
    return line.event(ExternalEnd, reason="sigterm" if name == "SIGTERM" else "cancelled", signal=name)


def _slurm(line: Line, match: re.Match[str]) -> Event:
    why = (match.group(1) or "").upper()
    reason = (
        "preemption"
        if "PREEMPT" in why or "REQUEUE" in why
        else "time_limit"
        if "TIME" in why
        else "node_failure"
        if "NODE" in why
        else "cancelled"
    )
    event = line.event(ExternalEnd, reason=reason)
    at = _SLURM_TIME.search(match.group(0))
    if at is None or event.time is not None or event.stamp is not None:
        return event
    month, day, hour, minute, second = map(int, at.groups())
    try:
        moment = datetime.datetime(_A_YEAR, month, day, hour, minute, second)
    except ValueError:
        return event
    return replace(event, stamp=(moment - datetime.datetime(_A_YEAR, 1, 1)).total_seconds())


def _evicted(line: Line, match: re.Match[str]) -> Event:
    return line.event(ExternalEnd, reason="preemption" if "reempt" in match.group(0) else "evicted")


def _srun(line: Line, match: re.Match[str]) -> Sequence[Event]:
    host, tasks, what = match.groups()
    exited = re.search(r"exit code (\d{1,3})", what)
    code = (
        int(exited.group(1))
        if exited
        else next((n for word, n in _WORDS.items() if what.startswith(word)), None)
    )
    if code is None:
        return []
    numbers = _task_numbers(tasks)
    events = [exit_event(line, code, task=task, host=host, via="srun") for task in numbers]
    killed = [line.event(OomHost, host=host, task=task) for task in numbers]
    return [*events, *killed] if what.startswith("Out Of Memory") else events


def _task_numbers(text: str) -> list[int]:
    """Return the task numbers of `0-3,7`, at most 64."""
    numbers: list[int] = []
    for part in text.split(",")[:_TASKS_SHOWN]:
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), min(int(last or first), int(first) + _TASKS_SHOWN) + 1))
    return numbers[:_TASKS_SHOWN]


def _mpirun(line: Line, match: re.Match[str]) -> Event:
    task, pid, host, number = match.groups()
    return exit_event(line, -int(number), task=int(task), pid=int(pid), host=host, via="mpirun")


def _spawn(line: Line, match: re.Match[str]) -> Event:
    local, name, code = match.groups()
    number = -int(getattr(signal, name, 0)) if name else int(code or 1)
    return exit_event(line, number, local_rank=int(local), via="spawn")


def _deepspeed(line: Line, match: re.Match[str]) -> Event:
    # the command line in front is that of the worker that was spawned last, whichever failed (deepspeed/launcher/launch.py)
    return exit_event(line, int(match.group(1)), via="deepspeed")


def _lightning(line: Line, match: re.Match[str]) -> Event:
    # the number before it, of which the prefix took note, counts the processes of this node
    local = _LIGHTNING_RANK.search(line.raw)
    code = int(match[2])
    event = exit_event(replace(line, rank=None), code, pid=int(match[1]), via="lightning")
    return replace(event, local_rank=int(local[1]) if local else None)


def _mpi_abort(line: Line, match: re.Match[str]) -> Event:
    return exit_event(line, 1, task=int(match[1]), via="mpirun")


def _engine(line: Line, match: re.Match[str]) -> Event:
    return exit_event(line, int(match[2]), pid=int(match[1]), via="engine")


def _executor(line: Line, match: re.Match[str]) -> Sequence[Event]:
    swept = line.event(WorkersSwept, failed=match[1])
    # its number is the rank within its engine (vllm/v1/executor/multiproc_executor.py), of which a replica is another world
    if match[2] is None or _REPLICA.search(line.raw):
        return [swept]
    return [swept, replace(line.event(WorkerDied), rank=int(match[2]), pid=None)]


def _composer(line: Line, match: re.Match[str]) -> Event:
    rank, pid, code = map(int, match.groups())
    return replace(exit_event(line, code, pid=pid, via="composer"), rank=rank)


def _shell(line: Line, match: re.Match[str]) -> Event:
    told = _RANK_SET.search(line.text, match.end())  # bash quotes the command with what is set before it
    line = replace(line, rank=int(told[1])) if told else line
    return exit_event(line, _WORDS.get(match[2], -9), pid=int(match[1]), via="shell")


def _test_case(line: Line, match: re.Match[str]) -> Event:
    return exit_event(replace(line, rank=int(match[1])), int(match[2]), via="test")


def _container(line: Line, match: re.Match[str]) -> Event | None:
    rank, code = _RANK_ARGUMENT.search(line.text), int(match[1])
    # the container's name must have the same number: that an argument is of the job's ranks, one row does not tell
    if rank is None or not code or rank[1] not in re.findall(r"\d+", line.text[: match.start()]):
        return None
    return exit_event(replace(line, rank=int(rank[1])), code, via="docker")


RULES: tuple[Rule, ...] = (
    rule(
        "failed (exitcode: ",
        r"failed \(exitcode: (-?\d{1,4})\) local_rank: (\d{1,6}) \(pid: (\d{1,9})\) of ",
        _agent,
    ),
    rule(" closing signal ", r"Sending process (\d{1,9}) closing signal ([\w.]{1,30})", _cleanup),
    rule(
        "forcefully exiting via",
        r"Unable to shutdown process (\d{1,9}) via .{1,40}, forcefully exiting via ([\w.]{1,30})",
        _cleanup,
    ),
    rule("will restart worker group", r"attempts left; will restart worker group", _restart),
    rule(
        " death signal, shutting down workers",
        r"Received ([\w.]{1,30}) death signal, shutting down workers",
        _death_signal,
    ),
    rule(
        "SignalException: Process", r"SignalException: Process \d+ got signal: ([\w.]{1,30})", _death_signal
    ),
    rule(
        " CANCELLED AT ",
        r"\*\*\* (?:JOB|STEP) .{0,300}? CANCELLED AT \S{1,40}(?: DUE TO (.{1,60}?))? \*\*\*",
        _slurm,
    ),
    rule(
        " CANCELLED AT ", r"\*\*\* (?:JOB|STEP) .{0,300}? CANCELLED AT \S{1,40}(?: DUE TO (.{1,60}))?", _slurm
    ),
    rule("low on resource", r"node was low on resource", _evicted),
    rule("DisruptionTarget", r"DisruptionTarget|PreemptionByScheduler", _evicted),
    rule("PreemptionByScheduler", None, _evicted),
    rule("srun: error: ", r"srun: error: ([\w.-]{1,253}): tasks? ([\d,-]{1,4000}): (.{1,120})", _srun),
    rule(
        "noticed that process rank",
        r"process rank (\d{1,7}) with PID (\d{1,9}) on node (\S{1,253}) exited on signal (\d{1,3})",
        _mpirun,
    ),
    rule(
        " terminated with ",
        r"rocess (\d{1,6}) terminated with (?:signal (SIG[A-Z]{2,8})|exit code (\d{1,3})|the following error:)",
        _spawn,
    ),
    # launch.py's handler runs when a worker failed and when the launcher itself gets a signal
    rule("Killing subprocess ", r"sigkill_handler\] Killing subprocess \d", told(WorkersSwept)),
    rule("Main process received SIG", r"Main process received (SIG[A-Z]{2,8}), exiting", _death_signal),
    # lightning/fabric/strategies/launchers/subprocess_script.py, `_ChildProcessObserver`
    rule(
        "Child process with PID ",
        r"Child process with PID (\d{1,9}) terminated with code (-?\d{1,4})\. Forcefully terminating all other",
        _lightning,
    ),
    rule(
        "MPI_ABORT was invoked on rank ",
        r"MPI_ABORT was invoked on rank (\d{1,7}) in communicator",
        _mpi_abort,
    ),
    # vllm/executor/multiproc_worker_utils.py (V0); v1/executor/multiproc_executor.py and ray_executor_v2.py
    rule(
        "VllmWorkerProcess pid ",
        r"Worker VllmWorkerProcess pid (\d{1,9}) died, exit code: (-?\d{1,4})",
        _engine,
    ),
    rule(
        " died unexpectedly, shutting down executor",
        r"(Worker proc (?:VllmWorker-(\d{1,5})|\S{1,60})|RayWorkerProc rank=\S{1,60}) died unexpectedly",
        _executor,
    ),
    # composer/cli/launcher.py
    rule(
        "Global rank ", r"Global rank (\d{1,7}) \(PID (\d{1,9})\) exited with code (-?\d{1,4})\b", _composer
    ),
    rule("exits with return code = ", r"exits with return code = (-?\d{1,4})", _deepspeed),
    rule(
        ": line ",
        r": line \d{1,7}: +(\d{1,9}) (Killed|Terminated|Aborted|Segmentation fault|Bus error|Floating point exception)\b",
        _shell,
    ),
    *(
        rule(word, rf": [^\W\d]{{1,10}} ?\d{{1,7}}: +(\d{{1,9}}) ({re.escape(word)})", _shell)
        for word in _KILLED_ABROAD
    ),
    # torch/testing/_internal/common_distributed.py: the processes of a test are numbered by rank
    rule(
        "exited with error code ",
        r"Process (\d{1,7}) exited with error code (\d{1,3}) and exception:",
        _test_case,
    ),
    # `docker ps -a`, where the command tells the rank
    rule("Exited (", r"\bExited \((\d{1,3})\) [\w ]{1,40} ago\b", _container),
    rule("exits successfully", r"Process (?P<pid>\d{1,9}) exits successfully", told(ExitOk)),
    rule("worker group successfully finished", None, told(WorkersEnded, everywhere=False)),
    rule("Done waiting for other agents", None, told(WorkersEnded, everywhere=True)),
    rule(
        "COMPLETED",
        # a row of sacct is of the job, and not of a step of it, where no dot follows its number
        r"^State: COMPLETED \(exit code 0\)|\bJobState=COMPLETED\b|, COMPLETED, ExitCode 0\b"
        r"|^(?:JobID )?\d{1,12}(?:_\d{1,9})? .{0,200}\bCOMPLETED +(?:ExitCode )?0:0(?: |$)",
        told(JobCompleted),
    ),
)
