"""How a process or the whole job ended, as launchers and schedulers tell it: who, by what, when, what followed, and where its reason stands."""

from __future__ import annotations

from dataclasses import replace

from hangscope.causes.case import Case
from hangscope.causes.ends.process import REASONS
from hangscope.causes.ends.unnamed import whose
from hangscope.explain.text.stop import find_stop
from hangscope.ingest.job_logs.endings import CleanupSignal, Exit, ExternalEnd
from hangscope.ingest.job_logs.excerpt import Excerpt
from hangscope.ingest.job_logs.faults import OomHost
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.torch_logs.abort import Terminate
from hangscope.model.conclusion import Collect
from hangscope.model.regex import regex
from hangscope.verdict.answer.observation import Observation, clock

_ENDED_BY_LAUNCHER = frozenset({-15, 143})
#: What a way of ending leaves, and where to look: signals by their names, `code` for an exit code.
_LEAVES = {
    "SIGKILL": ("No process can catch SIGKILL, so it left no traceback of its own: the kernel's out-of-memory killer, the cluster or a person sent it.", "the kernel log of {host} at that time (dmesg -T, oom-kill), and how much memory {whose} had"),
    "SIGSEGV": ("That is a fault of native code (an extension, a driver or NCCL) and not of a timeout.", "the core dump of {whose}, or a rerun with python -X faulthandler, which prints where it was"),
    "SIGBUS": ("A bus error comes mostly of a full /dev/shm, or of a file on a mount that went away.", "df -h /dev/shm in the container of {whose}, and the kernel log of {host}"),
    "SIGABRT": ("An abort follows a line that the process itself printed: an assertion, std::terminate, or the NCCL watchdog that gives up a wait.", "the last lines of {whose} before the abort"),
    "code": ("An exit code without a signal follows a traceback or a message that the program itself printed.", "the standard error of {whose}: the traceback before its end"),
}  # fmt: skip
_OTHER = ("", "the last lines of {whose}, and the kernel log of {host}")
_SIGNAL = regex(r"\bSIG(SEGV|BUS|ABRT|KILL)\b|(?:S|s)egmentation fault")
_JOB = regex(r"(?:JOB|STEP) ([\w.+]{1,40}) ON (\S{1,253}) CANCELLED AT (\S{10,40})")
_SAYS_IT = frozenset({"preemption", "time_limit", "evicted"})


def process(case: Case) -> Observation | None:
    """Read the end of the process that failed first."""
    told = [e for e in case.statements.all(Exit) if e.code and e.code not in _ENDED_BY_LAUNCHER]
    deaths = case.statements.first_deaths
    firsts = [d for d in deaths if isinstance(d.event, Exit)]
    known = len(firsts) < len(deaths) or bool(
        case.statements.all(OomHost)
    )  # its reason is told by another line
    if not told or known or (find_stop(case.statements) is not None and not firsts):
        return None
    first = firsts[0].event if firsts else next((e for e in told if e.first), told[0])
    if not isinstance(first, Exit) or first.message or (not firsts and _all_alike(told)):
        return None
    how = f"was killed by signal {-first.code} ({first.signal})" if first.signal else ""
    how = how or f"ended with exit code {first.code}"
    moment = clock(first.time if first.time is not None else first.stamp)
    at = f" at {moment}" if moment else ""
    also = ", before all others by the launcher's word" if first.first else ""
    crashed = next(iter(case.statements.all(Terminate)), None) if not first.signal else None
    name = _SIGNAL.search(crashed.text) if crashed is not None else None
    said = (
        f"; before that the text reports '{' '.join(crashed.what.split())[:110]}'"
        if crashed is not None
        else ""
    )
    sign = (
        f"SIG{name[1].upper()}" if name is not None and name[1] else "SIGSEGV" if name is not None else "code"
    )
    means, text = _LEAVES.get(first.signal or sign, _OTHER)
    if first.via == "deepspeed":
        means += " The command that is printed is that of the worker started last, whichever failed."
    subject = f"rank {first.rank}" if first.rank is not None else "that process"
    text = text.format(whose=subject, host=first.host or "its host")
    suspects = (first.rank,) if first.rank is not None else ()
    if said:
        text += "; the frames that are printed below that line name the function"
    shows = f"{whose(case, [first])} {how}{at}{also}{said}{_swept(case, first)}"
    return Observation(shows, means, Collect(suspects, "log", text), suspects, True, True, (first,))


def crash(case: Case) -> Observation | None:
    """Read a signal that a process itself reports, as its handler or the C++ runtime prints it."""
    deaths = [d for d in case.statements.first_deaths if isinstance(d.event, Terminate)]
    if len(deaths) != 1 or (name := _SIGNAL.search(deaths[0].event.text)) is None:
        return None
    event, rank = deaths[0].event, deaths[0].rank
    means, text = _LEAVES.get(f"SIG{name[1].upper()}" if name[1] else "SIGSEGV", _OTHER)
    record = case.incident.ranks.get(rank)
    host = event.host or (record.host if record is not None else None)
    subject = whose(case, [replace(event, rank=rank, host=host)])
    said = event.what if isinstance(event, Terminate) else event.text
    shows = f"{subject} crashed: {' '.join(said.split())[:120]}"
    text = text.format(whose=f"rank {rank}", host=host or "its host")
    wanted = Collect((rank,), "log", f"{text}; the frames that are printed below it name the library")
    return Observation(shows, means, wanted, (rank,), True, True, (event,))


def _all_alike(told: list[Exit]) -> bool:
    """Return whether several ends are told of which none is said to be the first."""
    return len(told) > 1 and not any(e.first for e in told)


def _swept(case: Case, first: Exit) -> str:
    """Return what the launcher did to the others after the first failure."""
    ended = [e for e in case.statements.all(Exit) if e is not first and e.pid != first.pid and e.code < 0]
    closed = case.statements.all(CleanupSignal)
    pids = {e.pid for e in ended} | {e.pid for e in closed} - {None, first.pid}
    if not pids:
        return ""
    names = {e.signal for e in ended} | {e.signal.removeprefix("Signals.") for e in closed}
    names.discard(None)
    signal = f" by {names.pop()}" if len(names) == 1 else ""
    many = "another process" if len(pids) == 1 else f"{len(pids)} other processes"
    return f"; {many} ended after it{signal}, which is the launcher's doing"


def outside(case: Case) -> Observation | None:
    """Read who ended the whole job from outside, and how far it was."""
    told = case.statements.all(ExternalEnd)
    broken = any(e.broken for e in case.statements.all(Excerpt))
    if not told or broken or case.statements.first_deaths or find_stop(case.statements) is not None:
        return None
    first = next((e for e in told if e.reason in _SAYS_IT), told[0])
    job = _JOB.search(first.text)
    which = f": {job[1]} on {job[2]}" if job else ""
    moment = clock(first.time if first.time is not None else first.stamp)
    at = f", at {job[3].partition('T')[2] or job[3]}" if job else f" at {moment}" if moment else ""
    steps = [e for e in case.statements.all(Progress) if e.step is not None and e.file == first.file]
    last = max((e for e in steps if e.line < first.line), key=lambda e: e.line, default=None)
    means = "That came from outside of the job; no line tells whether it had stood still before."
    if last is not None:
        means = f"That came from outside: step {last.step} is the last one that is printed before it, and no line tells of a stall or an error, so nothing here shows a freeze."
    text = "how long before that moment the last step was printed: if one step's time, the job was healthy and needs a checkpoint on SIGTERM, or more time"
    if first.reason == "time_limit" and last is None:
        text = (
            "the time of the last step before the limit, or stacks of all ranks: whether the job stood still"
        )
    return Observation(
        f"the whole job {REASONS.get(str(first.reason), 'was terminated from outside')}{which}{at}",
        means,
        Collect((), "log", text),
        (),
        True,
        False,
        (first,),
    )
