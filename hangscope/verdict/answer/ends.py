"""How a process ended: killed, failed, by an exception, interrupted by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangscope.causes.case import Case, who
from hangscope.causes.ends.unnamed import whose
from hangscope.causes.faults import FAULTS
from hangscope.explain.statements.exits import CLEANUPS
from hangscope.explain.statements.statements import CTRL_C
from hangscope.explain.text.stop import PROOFS, clock, find_stop
from hangscope.ingest.job_logs.endings import Exit, ended_with
from hangscope.ingest.job_logs.faults import OomHost
from hangscope.ingest.job_logs.messages import Message
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.reports import Terminate
from hangscope.ingest.torch_logs.store import StoreTimeout, StoreUnreachable
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.knowledge.callsite import user_frame
from hangscope.knowledge.doing import doing
from hangscope.model.conclusion import Verdict
from hangscope.model.events import Event
from hangscope.model.rankset import agree, ranks_phrase
from hangscope.model.regex import regex
from hangscope.verdict.answer.observation import Observation, quoted
from hangscope.verdict.phrasing import sentence_case, short

_ENDS_OTHERS = frozenset({"crashed_rank", "gpu_stall", "early_exit"})
#: What to collect after the end of a process, by its signal.
_LEAVES = {
    "SIGKILL": "the kernel log of {host} at that time (dmesg -T, oom-kill), and how much memory {whose} had",
    "SIGSEGV": "the core dump of {whose}, or a rerun with python -X faulthandler, which prints where it was",
    "SIGBUS": "df -h /dev/shm in the container of {whose}, and the kernel log of {host}",
    "SIGABRT": "the last lines of {whose} before the abort",
    "": "the standard error of {whose}: the traceback or message before its end",
}
_SIGNAL = regex(r"\bSIG(SEGV|BUS|ABRT|KILL)\b|[Ss]egmentation fault|Fatal Python error: Bus error")


def process(case: Case) -> Observation | None:
    """Read the end of the process that failed first, unless another line gives its reason."""
    deaths = case.statements.first_deaths
    crashes = case.statements.all(Terminate)
    named = [replace(d.event, rank=d.rank) for d in deaths if isinstance(d.event, Terminate)]
    named = named or [e for e in crashes if not deaths and _SIGNAL.search(e.text)]
    if len(named) == 1 and len(deaths) < 2:
        return _ended(case, f"{whose(case, named)} crashed: {quoted(named)}", _signal(named[0]), named[0])
    exits = [e for e in case.statements.all(Exit) if e.code and e.code not in CLEANUPS]
    firsts = [d.event for d in deaths if isinstance(d.event, Exit)]
    explained = len(firsts) < len(deaths) or bool(case.statements.all(OomHost))
    if not exits or explained or (not firsts and find_stop(case.statements) is not None):
        return None
    first = firsts[0] if firsts else next((e for e in exits if e.first), exits[0])
    if first.message or (not firsts and len(exits) > 1 and not any(e.first for e in exits)):
        return None
    how = f"was killed by signal {-first.code} ({first.signal})" if first.signal else ""
    how = how or ended_with(first.code)
    at = f" at {moment}" if (moment := clock(first.time if first.time is not None else first.stamp)) else ""
    before = f"; before that the text has {quoted(crashes[:1])}" if crashes and not first.signal else ""
    return _ended(case, f"{whose(case, [first])} {how}{at}{before}", first.signal or "", first)


def _signal(crash: Terminate) -> str:
    """Return the signal that a line names: SIGABRT where it names none, and SIGSEGV or SIGBUS by their words."""
    if (name := _SIGNAL.search(crash.text)) is None:
        return "SIGABRT"
    return f"SIG{name[1]}" if name[1] else "SIGBUS" if "us" in name[0] else "SIGSEGV"


def _ended(case: Case, shows: str, signal: str, event: Event) -> Observation:
    """Return the end of a process, with what to collect after its signal."""
    suspects = (event.rank,) if event.rank is not None else ()
    hosts = [record.host for rank, record in case.incident.ranks.items() if rank in suspects]
    host = next(filter(None, (event.host, *hosts)), "its host")
    text = _LEAVES.get(signal, _LEAVES["SIGABRT"]).format(whose=who(suspects, "that process"), host=host)
    return Observation(shows, text, "log", suspects, True, True, (event,))


def after_the_end(case: Case) -> str:
    """Return that no rank ended the job, and which ranks only lost their peers or the store after it had been ended from outside."""
    end = case.statements.external
    reports = case.statements.all(*PROOFS, StoreUnreachable, StoreTimeout, RankException)
    after = [e for e in reports if end is not None and e.file == end.file and e.line > end.line]
    later = {e.rank for e in after if e.rank is not None}
    nobody = "No rank caused that end"
    return f"{nobody}: what {ranks_phrase(later)} reported came after it" if later else nobody


def victims(case: Case, verdict: Verdict) -> str:
    """Return which ranks only report what follows from the end of another one, and that a launcher names one of them; empty where none does."""
    culprits = set(verdict.culprit_ranks)
    if verdict.cause not in _ENDS_OTHERS or verdict.category == "external":
        return ""
    symptoms = [e for e in case.statements.all(RankException) if e.symptom]
    lost = [e for e in case.statements.all(NcclWarn) if e.tier > 1]
    reports, exits = [*case.statements.all(*PROOFS), *symptoms, *lost], case.statements.all(Exit)
    hurt = {e.rank for e in reports if e.rank is not None} - culprits
    swept = {e.rank for e in exits if e.rank is not None and e.code in CLEANUPS} - culprits
    first = next((e.rank for e in exits if e.first and e.rank is not None), None)
    said = []
    if hurt:
        said.append(f"what {who(hurt)} {agree(hurt, 'reports', 'report')} is a consequence of it")
    elif reports:
        said.append("the timeouts and lost connections of the others are a consequence of it")
    if culprits and swept:
        said.append(f"the launcher ended {who(swept)} after it (SIGTERM)")
    if culprits and first is not None and first not in culprits:
        said.append(f"the launcher's first observed failure, rank {first}, is the one that it noticed first")
    return sentence_case("; ".join(said))


def exceptions(case: Case) -> Observation | None:
    """Read the first exception that is a fault of its own, else those that report a timeout or a lost peer."""
    raised = [e for e in case.statements.all(RankException) if e.type]
    reports = (e for fault in FAULTS for e in fault.reports(case.statements))
    more = (e for e in (*case.statements.all(Message), *reports) if not isinstance(e, RankException))
    known = {(e.file, e.line) for e in more}  # which say more
    faults = [e for e in raised if not e.symptom and e.type != CTRL_C][:1]
    if faults and (faults[0].file, faults[0].line) not in known:
        suspects = (faults[0].rank,) if faults[0].rank is not None else ()
        text = f"the traceback that belongs above that line, of {who(suspects, 'that process')}"
        wanted = "" if faults[0].frames else text  # of an exception the last line alone
        return Observation(_raised(case, faults), wanted, "log", suspects, True, True, (*faults,))
    text = "the lines of all other ranks before that moment: the first error, or the rank that prints none"
    if waits := [e for e in raised if e.symptom and (e.file, e.line) not in known]:
        return Observation(_raised(case, waits), text, proves=True, events=(*waits,))
    return None


def interrupts(case: Case) -> Observation | None:
    """Read where Ctrl-C ended a process."""
    pressed = [e for e in case.statements.all(RankException) if e.type == CTRL_C and not e.message]
    text = "how long nothing was printed; next time a stack of every worker (py-spy dump --pid PID) before the interrupt"
    busy = dict.fromkeys(known.doing for e in pressed if (known := doing(tuple(e.frames))) is not None)
    if not pressed:
        return None
    doing_it = f", while it was {next(iter(busy))}" if len(busy) == 1 else ""
    shows = f"{_raised(case, pressed)} (Ctrl-C){doing_it}"
    return Observation(shows, text, "stack", events=(*pressed,))


def _raised(case: Case, raised: Sequence[RankException]) -> str:
    """Return who raised what, where; of ranks at different places each with its own."""
    first = raised[0]
    frame = user_frame(first.frames)
    places: dict[str, list[RankException]] = {}
    for event in raised:
        places.setdefault(str(user_frame(event.frames) or ""), []).append(event)
    at = f" at {frame}" if frame is not None else ""
    if len(places) > 1:
        named = [f"{place} ({whose(case, some)})" for place, some in places.items() if place]
        at = f" at {' and '.join(named)}"
    message = f": {short(first.message)}" if first.message else ""
    return f"{whose(case, raised)} raised {first.type.rsplit('.', 1)[-1]}{at}{message}"
