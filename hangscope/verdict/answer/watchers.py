"""What monitors say: dump signals, watchdogs that stood still, an engine that gave its workers up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from hangscope.causes.case import Case
from hangscope.explain.text.known_messages import listed
from hangscope.ingest.job_logs.activity import EngineTimeout, GpuUse
from hangscope.ingest.job_logs.excerpt import Excerpt
from hangscope.ingest.torch_logs.c10d import DumpSignal, HeartbeatTimeout, WatchdogTimeout
from hangscope.model.conclusion import Collect
from hangscope.model.rankset import agree, compress, ranks_phrase
from hangscope.model.regex import regex
from hangscope.verdict.answer.observation import Observation, clock, who

_USED = regex(r"(?i)\bgpu ?#?(\d{1,3})\b[^.,;%\d]{0,20}(\d{1,3}) ?%")
_IDLE, _BUSY = 5, 90  # percent
_NATIVE = "native stacks of all threads of {} (py-spy dump --native, or gdb -p PID) while it stands, and the kernel log there (Xid)"


def dump_signals(case: Case) -> Observation | None:
    """Read who signalled a timeout, who dumped on that account, and whether the group of all ranks is idle."""
    told = case.statements.all(DumpSignal)
    detectors = sorted({e.detector for e in told if e.detector is not None})
    own = sorted({e.rank for e in told if e.detector is None and e.rank is not None})
    receivers = sorted({e.rank for e in told if e.detector is not None and e.rank is not None})
    if not detectors and not (own and not case.statements.all(WatchdogTimeout)):
        return None
    first = detectors or own
    parts = [f"{ranks_phrase(first)} signalled a collective timeout of {agree(first, 'its', 'their')} own"]
    if receivers:
        parts.append(f"{ranks_phrase(receivers)} dumped only because of that signal")
    counted = [e for e in told if e.last_enqueued is not None]
    equal = counted if all(e.last_enqueued == e.last_completed for e in counted) else []
    means = f"{ranks_phrase(first)} waited, which does not make {agree(first, 'it', 'them')} guilty."
    if equal:
        numbers = sorted({e.last_enqueued or 0 for e in equal})
        count = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
        parts.append(f"on the default group all that was enqueued is completed ({count} of {count})")
        means += " The default group is idle, so what timed out is a collective of another group (tensor, pipeline or expert parallel)."
    text = f"the line 'Watchdog caught collective operation timeout' of {ranks_phrase(first)}, which names the collective and its group, and the dumps of the members of that group"
    return Observation(
        "; ".join(parts), means, Collect(tuple(first), "log", text), (), True, False, tuple(told)
    )


def heartbeats(case: Case) -> Observation | None:
    """Read the watchdogs that stood still, against the timeouts before them and the work that each still had."""
    told = case.statements.all(HeartbeatTimeout)
    if not told:
        return None
    locked = [e for e in told if e.what == "gil"]
    stuck = [e for e in told if e.what != "gil"] or told
    ranks = sorted(
        {e.rank if e.rank is not None else e.group_rank for e in stuck} - {None}, key=lambda r: r or 0
    )
    named = [r for r in ranks if r is not None]
    seconds = max((e.seconds for e in stuck if e.seconds), default=None)
    span = f" for {seconds} s" if seconds else ""
    pending = {e.rank: e.pending for e in stuck if e.rank is not None and e.pending is not None}
    counts = listed(map(str, pending.values()))
    work = f" ({counts} operation{'' if counts == '1' else 's'} in its list)" if pending else ""
    shows = f"the NCCL watchdog thread of {who(named)} made no progress{span}{work}"
    shows += ", and its process could not get the GIL" if locked else ""
    means = "A CUDA or NCCL call, or a lock such as the GIL, blocked that thread in its own process; this names no collective."
    suspects: tuple[int, ...] = tuple(named)
    earlier = [e for e in case.statements.all(WatchdogTimeout) if e.rank not in named]
    first = min((e for e in stuck if e.stamp is not None), key=lambda e: e.stamp or 0.0, default=None)
    if earlier and first is not None and first.stamp is not None and seconds:
        shows += f", so since about {clock(first.stamp - seconds)}, which is near the timeout of {who(sorted({e.rank for e in earlier if e.rank is not None}))}"
    if earlier:
        means += " It was noticed beside the timeout of another rank, so it is more likely the aftermath of that collective than the origin."
        suspects = ()
    elif len(pending) > 1 and len(set(pending.values())) > 1:
        few = [rank for rank, count in pending.items() if count == min(pending.values())]
        means += f" {ranks_phrase(few).capitalize()} had fewer operations in the list than the others, and is behind them."
        suspects = tuple(few)
    elif len(named) == 1:
        means += f" It is often the aftermath of a collective that hung elsewhere: {who(named)} is where to look first, not yet the culprit."
    else:
        means += " No rank of them stands out."
    text = _NATIVE.format(who(named, "that process"))
    return Observation(shows, means, Collect(tuple(named), "stack", text), suspects, True, False, tuple(told))


def engines(case: Case) -> Observation | None:
    """Read what engines say of workers that did not answer."""
    by_call: dict[str, list[EngineTimeout]] = defaultdict(list)
    for e in case.statements.all(EngineTimeout):
        by_call[e.what].append(e)
    for what, told in sorted(by_call.items()):
        names = [e.process or (f"rank {e.rank}" if e.rank is not None else "") for e in told]
        writers = listed(filter(None, names), 8)
        seconds = next((f" of {e.seconds} s" for e in told if e.seconds), "")
        if what == "scheduler":
            return _schedulers(told, writers, seconds)
        if what == "heartbeat":
            shows = f"the monitor of {who(sorted({e.rank for e in told if e.rank is not None}))} got no heartbeat{seconds}"
            means = "Its training loop did not come round in that time; a rank that waits for others sends none either."
            return Observation(
                shows,
                means,
                Collect(
                    (),
                    "stack",
                    "a stack of every rank at that moment: the one not in a collective is the root",
                ),
                (),
                True,
            )
        shows = f"the engine gave up waiting for its workers' answer to {what}{seconds}"
        means = "The exception is the front end's timeout and not the cause: at least one worker is stuck in that call, or waits for another one."
        text = f"a stack of every worker process with native frames (py-spy dump --native) while it stands, and the last lines of each worker before {what}"
        return Observation(shows, means, Collect((), "stack", text), (), True)
    return None


def _schedulers(told: list[EngineTimeout], writers: str, seconds: str) -> Observation:
    moments = {e.stamp for e in told if e.stamp is not None}
    at_once = (
        ", all within a second" if len(told) > 1 and moments and max(moments) - min(moments) <= 1 else ""
    )
    shows = f"the watchdog{seconds} of {len(told)} scheduler process{'es' if len(told) > 1 else ''} fired{f' ({writers})' if writers else ''}{at_once}"
    means = "They stopped together on one batch, so none stands out: a collective or kernel did not return, or one rank left the others waiting."
    if len(told) == 1:
        means = "Its last batch did not come back: a collective or kernel did not return, or another rank left this one waiting."
    text = "the stacks that the watchdog prints for each process (py-spy blocks), and a replay of the last batch without CUDA graphs"
    return Observation(shows, means, Collect((), "stack", text), (), True)


def gpus(case: Case) -> Observation | None:
    """Read nvidia-smi's table: who spins in a kernel, and who is idle beside them."""
    told = sorted(case.statements.all(GpuUse) or _described(case), key=lambda e: e.gpu)
    if len({e.gpu for e in told}) < 2:
        return None
    idle, busy = ([e for e in told if test(e.percent)] for test in (_IDLE.__ge__, _BUSY.__le__))
    if len(idle) + len(busy) < len(told) or not (idle or busy):
        return None
    parts = [
        f"{_cards(some)} {agree([e.gpu for e in some], 'is', 'are')} at {_range(e.percent for e in some)} %{_power(some)}"
        for some in (busy, idle)
        if some
    ]
    whose = "nvidia-smi" if case.statements.all(GpuUse) else "by the reporter's description"
    shows = f"{whose}: {'; '.join(parts)}"
    if idle and busy and len(idle) > len(busy):
        means = f"Only {_cards(busy)} {agree([e.gpu for e in busy], 'runs', 'run')} a kernel; the other processes are on the CPU or have ended, so it works alone there or waits for them in a collective."
        text = "a stack of every process (py-spy dump --pid PID): what the idle ones do, and which collective the busy one is in"
    elif idle and busy:
        means = f"A busy GPU that draws far less than its limit spins in a collective and waits. The process on {_cards(idle)} is in none: it is stuck on the CPU, has ended, or has not come to that call; it holds the others up."
        text = f"a stack of the process on {_cards(idle)} (its pid is in nvidia-smi's list; py-spy dump --pid PID), and its log"
    elif busy:
        means = "All of them run a kernel; with little power that is the wait in a collective, and the table does not tell for whom: another node, or an operation that does not end."
        text = "stacks of all processes (py-spy dump), and the flight recorder's dumps: which collective each rank is in"
    else:
        means = "None of them computes: their processes are on the CPU (data, a lock, the rendezvous), or have ended."
        text = "a stack of every process (py-spy dump --pid PID): what each of them waits for"
    return Observation(shows, means, Collect((), "stack", text), events=tuple(told))


def _described(case: Case) -> list[GpuUse]:
    """Return how busy GPUs are by what the reporter writes: `GPU 0 is at 100%, GPU 1 at 0%`."""
    told = case.statements.all(Excerpt)
    return [
        GpuUse(e.file, e.line, e.complaint, gpu=int(m[1]), percent=int(m[2]))
        for e in told
        for m in _USED.finditer(e.complaint)
    ]


def _cards(told: Sequence[GpuUse]) -> str:
    numbers = [e.gpu for e in told]
    return f"GPU{agree(numbers, '', 's')} {compress(numbers)}"


def _range(numbers: Iterable[int]) -> str:
    found = sorted(numbers)
    return str(found[0]) if found[0] == found[-1] else f"{found[0]} to {found[-1]}"


def _power(told: Sequence[GpuUse]) -> str:
    watts, limits = [e.watts for e in told if e.watts is not None], {e.limit for e in told if e.limit}
    of = f" of {limits.pop()} W" if len(limits) == 1 else " W"
    return f" ({_range(watts)}{of})" if watts else ""
