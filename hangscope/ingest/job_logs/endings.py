"""What launchers, schedulers and agents tell of how processes and jobs ended: the events."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Any

from hangscope.dataclass import dataclass
from hangscope.events import Event
from hangscope.ingest.lines.prefixes import Line


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitOk(Event, by_launcher=True, calm=True):
    """A clean end that a launcher or a log tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersEnded(Event, same_by=("everywhere",), by_launcher=True, calm=True):
    """An elastic agent's word that all its workers exited with 0, or (`everywhere`) that those of all other agents did as well.

    torch/distributed/elastic/agent/server/api.py, `_exit_barrier`. `of_a_script`: it is a line such as `exit code: 0`, which a script
    prints of its last command, whichever that was, or (`everywhere`) of all workers that it started.
    """

    everywhere: bool
    of_a_script: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCompleted(Event, same_by=(), by_launcher=True, calm=True):
    """Slurm's word that the whole job ended with exit code 0, as seff, sacct, scontrol and its mails print it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupSignal(Event, by_launcher=True):
    """The line "Sending process … closing signal SIGTERM" about a process that still ran; `signal` is a name, or `restart`."""

    signal: str
    agent: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersSwept(Event, same_by=("failed",), by_launcher=True):
    """A launcher ends all its workers and says no more: `failed` which of them failed, in its words, empty where a signal may be why."""

    failed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalEnd(Event, same_by=("reason",), by_launcher=True):
    """The job was ended from outside: `reason` is preemption, time_limit, cancelled, sigterm, evicted or node_failure."""

    reason: str
    signal: str | None = None


def signal_name(code: int | None) -> str | None:
    """Return SIGKILL for -9 (and for a shell's 137), None for what is no signal."""
    number = (
        -code
        if code is not None and code < 0
        else code - 128
        if code is not None and 128 < code < 128 + 32
        else 0
    )
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def exit_event(line: Line, code: int, **fields: Any) -> Exit:
    """Return an `exit` event of the process that ended; a shell's 128 + n becomes -n. `via` says whose word it is."""
    if 128 < code < 128 + 32:
        code = 128 - code
    event = line.event(Exit, code=code, **{"signal": signal_name(code), **fields})
    return replace(event, pid=fields.get("pid"))
