"""Rules about processes whose end is reported: who died first, who left, who was terminated from outside."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from hangscope.causes.case import Case, Match, answer, at, quote, who
from hangscope.causes.faults import remedy
from hangscope.explain.finding import Absent, Nothing, Unseen
from hangscope.explain.statements.standstill import HOUR, by_steps, stood_still
from hangscope.explain.statements.statements import Death
from hangscope.explain.text.blocked import ENDS_GROUPS
from hangscope.explain.text.group_size import stated_size
from hangscope.explain.text.steps import is_last
from hangscope.explain.text.stop import says_it_hangs
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.ingest.job_logs.activity import EngineTimeout
from hangscope.ingest.job_logs.endings import Exit, ExternalEnd
from hangscope.ingest.job_logs.faults import NoProgress, OomCuda
from hangscope.ingest.job_logs.messages import Message, table
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.lines.vocabulary import stage_named
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.c10d import HeartbeatTimeout, WatchdogTimeout
from hangscope.ingest.torch_logs.store import StoreBarrier, StoreUnreachable
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import CallFingerprint, GlooClosed, GlooTimeout, MonitoredBarrier
from hangscope.knowledge.callsite import user_frame
from hangscope.model.conclusion import Evidence, Source
from hangscope.model.events import Event
from hangscope.model.rankset import agree
from hangscope.model.regex import regex

_REASONS = {
    "preemption": "was preempted",
    "time_limit": "reached its time limit",
    "cancelled": "was cancelled",
    "evicted": "was evicted by the cluster",
    "node_failure": "lost a node",
}
_LONG_BEFORE = 60  # seconds between the begin of a wait and an end that did not begin it
_STOPPED = ("early_exit", "a rank that stopped the loop or the program by itself ends the same way")


def how_ended(event: ExternalEnd) -> str:
    """Return how a job ended that was terminated externally: `the job reached its time limit`."""
    sent = event.signal or ("SIGTERM" if event.reason not in _REASONS else "")
    how = f"was terminated from outside ({sent})" if sent else _REASONS[event.reason]
    step = event.reason == "cancelled" and "*** STEP " in event.text
    return f"the job{' step' if step else ''} {how}"


_NEAR = 4  # lines of an error below its first one
_FAILED = regex(r"dict_keys\(\[(\d{1,6}(?:, ?\d{1,6}){0,16384})\]\)")
_BY_THE_CLUSTER = frozenset({"preemption", "node_failure", "evicted"})  # whatever the job does
_AT_ITS_START = frozenset({"store", "communicator"})  # stages in which a job waits for all of its processes
_REQUEUE = "Let the program write a checkpoint on SIGTERM, within the grace time before SIGKILL, and requeue the job (sbatch --requeue)."
#: What to do, by whether the job had stalled before: yes, no, or not known.
_ADVICE = {
    False: "The job was still making progress. Write a checkpoint on SIGTERM and let the scheduler requeue it.",
    None: "Check whether the job was still making progress when it was terminated: the time of its last step, or a stack of each rank.",
    True: "The job had stalled before it was terminated: take a stack of every rank before ending it next time.",
}
_NO_LONGER = "A longer timeout would not help: the process that the others need is gone."
_RAISED = (
    "crashed_rank",
    "an exception whose `finally` destroys the groups is not printed while that blocks",
)
_HUNG = ("unknown", "nothing shows that the job was still making progress: it may have been hung before")


def _external(case: Case) -> ExternalEnd | None:
    """Return the end from outside, unless a rank died of itself, a wait was given up before (it was hung), or the text ends with the job's next start."""
    end, statements = case.statements.external, case.statements
    if end is None or statements.first_deaths:
        return None
    waits = (WatchdogTimeout, GlooTimeout, HeartbeatTimeout, EngineTimeout, MonitoredBarrier, NoProgress)
    moment = end.in_the_year or 0.0
    gave_up = any(
        e.line < end.line if e.file == end.file else (e.in_the_year or inf) < moment
        for e in statements.all(*waits)
    )
    # Others print after the end what they had waited for long before it.
    begun = ((e.in_the_year or inf) - (e.ran_ms or 0) / 1000 for e in statements.all(WatchdogTimeout))
    gave_up = gave_up or any(since < moment - _LONG_BEFORE for since in begun)
    requeued = any(e.file == end.file and e.line > end.line for e in statements.all(StoreBarrier))
    return None if gave_up or requeued else end


def ended_from_outside(case: Case) -> Match | None:
    """Preemption, eviction, a lost node, SIGTERM, or an end while the job made progress: nobody's fault in the job."""
    finding = case.finding
    if (event := _external(case)) is None:
        return None
    stalled = stood_still(case.incident, case.statements, event)
    ahead = isinstance(finding, Absent) and len(finding.culprits) > len(case.graph.waiting)
    if stalled is False or event.reason in _BY_THE_CLUSTER or (ahead and not case.from_text):
        # Of a job that makes progress, one rank is always the first in the next collective.
        return _ended(case, event, stalled)
    waits = bool(case.graph.waiting) or (bool(finding.waiting) and not isinstance(finding, Nothing))
    waits = waits or (finding.guess and bool(finding.culprits))  # one rank had something of its own to tell
    return _ended(case, event, stalled) if event.reason == "sigterm" and not stalled and not waits else None


def ended_for_no_known_reason(case: Case) -> Match | None:
    """Cancelled, interrupted or at its time limit: people and schedulers end what hangs as well, so that anything known comes first."""
    statements = case.statements
    if (event := _external(case)) is None:
        return None
    by_reporter = event.signal == "SIGINT" and says_it_hangs(statements)
    if by_reporter or by_steps(statements, event, HOUR):
        return None
    return _at_its_start(case, event) or _ended(case, event, stood_still(case.incident, statements, event))


def _at_its_start(case: Case, event: ExternalEnd) -> Match | None:
    """Return the answer for a job that still set up its communication when it was ended: it had never begun to work."""
    text = next((e for e in case.statements.all(Excerpt) if e.stage in _AT_ITS_START), None)
    stage = stage_named(text.stage) if text is not None else None
    # Who loses the store when the job ends had reached it before.
    if text is None or stage is None or case.statements.any_of(Progress, StoreUnreachable):
        return None
    why = f"{how_ended(event)} while it was still {stage.phrase}"
    look = f"Collect {stage.collect}."
    shown = Evidence("log", f"the last lines of its start: '{text.stage_line}'", None, Source(text.file))
    return answer("init_hang", (), why, look, strength=0, evidence=[shown, event])


def _ended(case: Case, event: ExternalEnd, stalled: bool | None) -> Match:
    # People cancel jobs that are hung, platforms end those that stall, and mismatched collectives stop a job by themselves.
    doubtful = stalled is not False or event.signal == "SIGINT" or case.statements.all(CallFingerprint)
    strength = 0 if doubtful and event.reason not in _BY_THE_CLUSTER else 1 if doubtful else 2
    steps = [_REQUEUE] if event.reason == "preemption" and stalled is not False else []
    match = answer("crashed_rank", (), how_ended(event), *steps, _ADVICE[stalled], evidence=[event])
    rivals = [_HUNG] if stalled is not False else []
    return replace(match, strength=strength, category="external", rivals=rivals)


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
    # Lines alone seldom tell which of several failed first (measured, docs/score.md).
    strength = 1 if everybody else 0 if doubtful else 2 if len(culprits) == 1 else int(case.solid)
    named, facts = () if everybody else culprits, [death.event for death in deaths]
    match = answer("crashed_rank", named, why, fix, _NO_LONGER, strength=strength, evidence=facts)
    return replace(match, frame=first.frame, frame_rank=first.rank)


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
    return replace(answer("early_exit", culprits, why, fix, rivals=[_RAISED]), stack=stack)


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
    evidence = [Evidence("exit", f"rank {r}: {quiet[r]}", r, ends.get(r)) for r in left]
    others = (rank for rank in sorted(case.statements.whereabouts) if rank not in left)
    reading = case.knowledge.read(case.stack_of(finding.stuck.kind, others))
    if reading.loop is not None and reading.stage == "step" and not reading.by_user:
        # The user's code cannot return from within a library's loop: it is over where the batches are, or where something stops it.
        why = f"{who(left)} finished {reading.loop.api} and exited without an error while the others are still in a step"
        return answer("uneven_loader", left, why, evidence=evidence, rivals=[_STOPPED])
    last = [e for r in left for e in case.statements.of(r, Progress)[-1:]]
    why = f"{who(left)} exited without an error while the others still had collectives to issue"
    strength = 2 if any("code 0" in quiet[r] for r in left) else 1
    for e in last:
        said = "its last output" if is_last(case.statements, e) else "it printed"
        evidence.append(quote(e, f"{said}: {e.text}"))
    return answer("early_exit", left, why, strength=strength, evidence=evidence)
