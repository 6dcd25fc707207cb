"""Rules about processes whose end is reported: who died first, who left, who was terminated from outside."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from hangscope.causes.case import Case, Match, answer, at, quote, who
from hangscope.causes.faults import remedy
from hangscope.causes.init import never_formed
from hangscope.causes.participation import each_alone
from hangscope.explain.finding import Absent, Different, Lagging, Nothing, Unseen
from hangscope.explain.statements.standstill import HOUR, by_steps, stood_still
from hangscope.explain.statements.statements import Death
from hangscope.explain.text.blocked import ENDS_GROUPS, of_the_program
from hangscope.explain.text.group_size import stated_size
from hangscope.explain.text.steps import is_last
from hangscope.explain.text.stop import says_it_hangs
from hangscope.ingest.job_logs.activity import EngineTimeout
from hangscope.ingest.job_logs.endings import Exit
from hangscope.ingest.job_logs.faults import NoProgress, OomCuda
from hangscope.ingest.job_logs.messages import Message, table
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.c10d import HeartbeatTimeout, WatchdogTimeout
from hangscope.ingest.torch_logs.store import StoreBarrier
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import CallFingerprint, GlooClosed, GlooTimeout, MonitoredBarrier
from hangscope.knowledge.callsite import user_frame
from hangscope.model.conclusion import Evidence, Source
from hangscope.model.events import Event
from hangscope.model.rankset import agree
from hangscope.model.regex import regex

REASONS = {
    "preemption": "was preempted",
    "time_limit": "reached its time limit",
    "cancelled": "was cancelled",
    "sigterm": "was terminated from outside (SIGTERM)",
    "evicted": "was evicted by the cluster",
    "node_failure": "lost a node",
}
_NEAR = 4  # lines of an error below its first one
_LONG_BEFORE = 60  # seconds between the begin of a wait and an end that did not begin it
_FAILED = regex(r"dict_keys\(\[(\d{1,6}(?:, ?\d{1,6}){0,16384})\]\)")
_OF_A_HOST = frozenset({"node_failure", "evicted"})  # ends for which the other hosts' ranks wait
#: What to do, by whether the job had stalled before: yes, no, or not known.
_ADVICE = {
    False: "The job was still making progress. Write a checkpoint on SIGTERM and let the scheduler requeue it.",
    None: "Check whether the job was still making progress when it was terminated: the time of its last step, or a stack of each rank.",
    True: "The job had stalled before it was terminated: take a stack of every rank before ending it next time.",
}
_STOPPED = ("early_exit", "a rank that stopped the loop or the program by itself ends the same way")
_RAISED = (
    "crashed_rank",
    "an exception whose `finally` destroys the groups is not printed while that blocks",
)
_HUNG = ("unknown", "nothing shows that the job was still making progress: it may have been hung before")


def ended_from_outside(case: Case) -> Match | None:
    """Preemption, time limit, cancellation, SIGTERM to the launcher: nobody's fault in the job."""
    return None if _pressed_at_a_wait(case) else _ended_from_outside(case)


def interrupted(case: Case) -> Match | None:
    """Ctrl-C at a job in which all others wait for one rank: people press it when a job hangs, and yet it may have been moving."""
    found = _ended_from_outside(case) if _pressed_at_a_wait(case) else None
    return replace(found, strength=0) if found is not None else None


def _pressed_at_a_wait(case: Case) -> bool:
    """Return whether a person ended the job, and tracebacks show every rank of three or more, all but the awaited ones in a wait."""
    event, placed = case.statements.external, case.statements.whereabouts
    by_hand = event is not None and event.signal == "SIGINT" and shows_a_wait(case)
    return by_hand and len(case.incident.ranks) > 2 and placed.keys() >= case.incident.ranks.keys()


def _ended_from_outside(case: Case) -> Match | None:
    event, finding, statements = case.statements.external, case.finding, case.statements
    if event is None or statements.first_deaths or _gave_up_before(case, event):
        return None
    if any(e.file == event.file and e.line > event.line for e in statements.all(StoreBarrier)):
        return None  # the job was requeued, and its next start is what the text ends with
    stalled = stood_still(case.incident, statements, event)
    if finding.culprits and not case.from_text and isinstance(finding, Different | Lagging):
        return None
    if stalled is None and event.reason in ("sigterm", "cancelled") and finding.guess and finding.culprits:
        return None  # people end what hangs, and one rank had something of its own to tell
    waits = bool(case.graph.waiting) and event.reason not in _OF_A_HOST
    waits = waits or (bool(finding.waiting) and not isinstance(finding, Nothing))
    if isinstance(finding, Absent) and len(finding.culprits) > len(case.graph.waiting) and not case.from_text:
        waits = False  # of a job that makes progress, some ranks are in their next collective already
    telling = {o.ranks for o in statements.outlier_lines if o.telling}
    if stalled and (waits or len(telling) == 1 or by_steps(statements, event, HOUR)):
        return None  # it was hung, whoever terminated it
    if each_alone(case) is not None:
        return None  # all ranks are in waits of their own hosts, which do not end by themselves
    by_people = event.reason in ("cancelled", "time_limit")
    start = never_formed(case) if stalled or (by_people and stalled is None) else None
    if start is not None and start.culprits:
        return None  # a start takes moments, and people watch a job for longer before they cancel it
    # When it was terminated, a job that makes progress may have been waiting as well.
    waited = stalled is not False and shows_a_wait(case)
    if waited and _stacks_of_their_own(case, set(finding.culprits) or set(case.incident.ranks)):
        return None
    if waited and event.signal == "SIGINT" and _blocked_in_a_library(case):
        return None
    if stalled is None and event.signal == "SIGINT" and says_it_hangs(statements):
        return None  # who reports a hang ended it
    # People cancel jobs that are hung, platforms end those that stall, and mismatched collectives stop a job by themselves.
    doubtful = stalled is not False or event.signal == "SIGINT" or statements.all(CallFingerprint)
    return answer(
        "crashed_rank",
        (),
        f"the job {REASONS.get(str(event.reason), 'was terminated from outside')}",
        _ADVICE[stalled],
        strength=0 if waited else 1 if doubtful else 2,
        category="external",
        rivals=[_HUNG] if stalled is not False else (),
        evidence=[event],
    )


def _gave_up_before(case: Case, end: Event) -> bool:
    """Return whether a wait was given up before the job was terminated, or had begun long before: it was hung."""
    waits = (WatchdogTimeout, GlooTimeout, HeartbeatTimeout, EngineTimeout, MonitoredBarrier, NoProgress)
    return any(
        e.line < end.line if e.file == end.file else (e.in_the_year or inf) < (end.in_the_year or 0.0)
        for e in case.statements.all(*waits)
    ) or any(
        (e.in_the_year or inf) - (e.ran_ms or 0) / 1000 < (end.in_the_year or 0.0) - _LONG_BEFORE
        for e in _timed_out(case)
    )


def _timed_out(case: Case) -> list[WatchdogTimeout | GlooTimeout]:
    return [*case.statements.all(WatchdogTimeout), *case.statements.all(GlooTimeout)]


def shows_a_wait(case: Case) -> bool:
    """Return whether stacks and tracebacks show several ranks waiting for others at work."""
    placed, culprits = case.statements.whereabouts, set(case.finding.culprits)
    others = set(placed) - culprits
    at_work = bool(culprits) and culprits <= case.statements.busy
    return at_work and len(others) > 1 and others <= case.statements.inside


def _blocked_in_a_library(case: Case) -> bool:
    """Return whether all ranks show where they were, and the awaited ones in a library's own wait: not in the program, nor in torch."""
    placed = case.statements.whereabouts
    tops = [frame for rank in case.finding.culprits if rank in placed for frame in placed[rank].stack[:1]]
    at_work = any(map(of_the_program, tops))
    known = placed.keys() | case.graph.waiting
    return bool(tops) and known >= case.incident.ranks.keys() and not at_work


def _stacks_of_their_own(case: Case, ranks: set[int]) -> bool:
    """Return whether the stacks of all `ranks` are in files of their own: one in a log may be of the signal's handler."""
    logs = {event.file for events in case.statements.kinds.values() for event in events}
    files = {case.incident.ranks[rank].stack_file for rank in ranks}
    return bool(ranks) and None not in files and not files & logs


def died(case: Case) -> Match | None:
    """The first rank that died of its own fault, unless the dumps show that it died while it was waiting."""
    deaths = [d for d in case.statements.first_deaths if _is_the_root(case, d)]
    if all(_refused_at_start(case, d.event) for d in deaths):
        return None
    culprits = tuple(sorted({d.rank for d in deaths}))
    first, named = deaths[0], case.finding.culprits
    doubtful = bool(named) and culprits != named and _several_attempts(case)
    why = f"{who(culprits)} {first.how}"
    if isinstance(first.event, RankException | Exit) and first.event.message and first.exception:
        why += f": {first.event.message[:160]}"
    everybody = len(culprits) > 1 and len(culprits) >= (stated_size(case.incident, case.statements) or 0) > 1
    failed = _failed_to_save_or_load(case)
    if everybody:
        why += "; all ranks of the job did, so none of them stands out"
    elif len(failed) > 1 and failed.issuperset(culprits):
        everybody = True
        why += f"; {who(sorted(failed))} failed in the same save or load of a checkpoint, so none of them stands out"
    elif len(culprits) > 1:
        why += "; which of them ended first is not known"
    own, stuck = case.finding.own, case.finding.stuck
    # Whoever fails and yet calls something else there does so while it handles the exception.
    telling = next((d for d in deaths if isinstance(d.event, OomCuda) and d.event.held), first)
    fix = remedy(telling.event, f"rank {telling.rank}", telling.frame)
    if own.kind is not None and own.gid is None and own.seq == stuck.seq:
        fix = f"{fix.rstrip('.')}; issue no collective in an except or finally block."
    return answer(
        "crashed_rank",
        () if everybody else culprits,
        why,
        fix,
        "A longer timeout would not help: the process that the others need is gone.",
        strength=0 if doubtful else 2 if len(culprits) == 1 and not everybody else 1,
        evidence=[death.event for death in deaths],
        frame=first.frame,
        frame_rank=first.rank,
    )


def _failed_to_save_or_load(case: Case) -> set[int]:
    """Return the ranks that torch.distributed.checkpoint lists as those that failed (torch/distributed/checkpoint/api.py)."""
    raised = [e for e in case.statements.all(RankException) if e.type.endswith("CheckpointException")]
    lists = (match[1] for e in raised if (match := _FAILED.search(e.message)))
    return {int(rank) for listed in lists for rank in listed.split(",")}


def _refused_at_start(case: Case, event: Event) -> bool:
    """Return whether an error says that the job cannot start as it was started: NCCL refuses, the store's port is taken, or the host is not ready."""
    if not isinstance(event, RankException):
        return False
    near = (m for m in case.statements.all(Message) if (m.file, m.rank) == (event.file, event.rank))
    here = (table()[m.id] for m in near if 0 <= m.line - event.line <= _NEAR)
    if any(m.cause == "init_hang" and m.category == "environment" and not m.culprit for m in here):
        return True
    if event.type.endswith("DistBackendError"):
        return any(e.refuses for e in case.statements.all(NcclWarn))
    # A server of the program's own raises an OSError.
    of_store = event.type.endswith(("RuntimeError", "DistNetworkError"))
    return of_store and "ddress already in use" in event.message


def _is_the_root(case: Case, death: Death) -> bool:
    finding = case.finding
    if death.rank in finding.culprits or not case.solid or _several_attempts(case):
        return True
    # If the dumps show this rank in a collective, it died there, of the hang or after it.
    return death.rank not in case.graph.waiting and not (isinstance(finding, Absent) and finding.culprits)


def _several_attempts(case: Case) -> bool:
    """Return whether the logs contain a restart: the dumps may be of the attempt before."""
    return any(note.code == "several_attempts" for note in case.incident.notes)


def ends_its_groups(case: Case) -> Match | None:
    """A rank that destroys its groups while all others wait for it inside the loop: it returned, or its error is not printed yet."""
    culprits, placed = case.finding.culprits, case.statements.whereabouts
    if not culprits or any(r not in placed or placed[r].op != ENDS_GROUPS for r in culprits):
        return None
    stack = case.stack_of(None, culprits[:1])
    why = f"{who(culprits)} exited the loop and {agree(culprits, 'is', 'are')} in {ENDS_GROUPS}{at(user_frame(stack))}, while {who(case.finding.waiting)} {agree(case.finding.waiting, 'waits', 'wait')} inside the loop"
    fix = "A `finally` that calls destroy_process_group runs before Python prints the exception, and blocks: print the exception first (except: traceback.print_exc(); raise), and destroy the groups only after success."
    return answer("early_exit", culprits, why, fix, strength=1, stack=stack, rivals=[_RAISED])


def left_quietly(case: Case) -> Match | None:
    """A rank that ended without an error while others still had collectives to issue."""
    quiet, world, finding = case.statements.left_quietly, len(case.incident.ranks), case.finding
    if isinstance(finding, Absent | Unseen):
        # Of several unseen ranks the launcher may have ended some before they could dump; the one that left is the root.
        left = [r for r in finding.culprits if r in quiet]
    else:
        stopped = case.statements.all(GlooClosed, GlooTimeout, RankException, WatchdogTimeout)
        left = sorted(quiet) if not case.solid and (stopped or not isinstance(finding, Nothing)) else []
    if not left or len(left) * 2 > world - (len(left) > 1):
        return None  # where as many left as stayed, there is no outlier
    ends = {r: Source(e.file, e.line) for r, e in case.statements.exits.items() if e.code == 0}
    evidence: list[Evidence | Event] = [
        Evidence("exit", f"rank {r}: {quiet[r]}", r, ends.get(r)) for r in left
    ]
    others = (rank for rank in sorted(case.statements.whereabouts) if rank not in left)
    reading = case.knowledge.read(case.stack_of(finding.stuck.kind, others))
    if reading.loop is not None and reading.stage == "step" and not reading.by_user:
        # The user's code cannot return from within a library's loop: it is over where the batches are, or where something stops it.
        why = f"{who(left)} finished {reading.loop.api} and exited without an error while the others are still in a step"
        return answer("uneven_loader", left, why, evidence=evidence, rivals=[_STOPPED])
    last = [e for r in left for e in case.statements.of(r, Progress)[-1:]]
    why = f"{who(left)} exited without an error while the others still had collectives to issue"
    strength = 2 if any("code 0" in quiet[r] for r in left) else 1
    evidence += [
        quote(e, f"{'its last output' if is_last(case.statements, e) else 'it printed'}: {e.text}")
        for e in last
    ]
    return answer("early_exit", left, why, strength=strength, evidence=evidence)
