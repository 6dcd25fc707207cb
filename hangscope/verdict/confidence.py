"""How sure a verdict may be, and when there is proof that nothing hangs.

Confidence starts from what the rule itself can establish and falls with everything that is missing or assumed.
"""

from __future__ import annotations

from collections import defaultdict

from hangscope.align.nodes import Untold
from hangscope.align.rankset import ranks_phrase
from hangscope.causes.case import Case, Match
from hangscope.explain.finding import Absent, Different, Lagging, Nothing, Shifted, Unseen
from hangscope.explain.predict import MOST_REPLAYED, Replay
from hangscope.explain.text.excerpt import beyond_the_text, not_collected, without_a_log
from hangscope.incident import Absence, State
from hangscope.ingest.job_logs.faults import CudaError, NoProgress, OomCuda, OomHost, Xid
from hangscope.ingest.job_logs.launcher import Exit, ExternalEnd
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.abort import Terminate
from hangscope.ingest.torch_logs.c10d import AsyncError, DumpObserved, HeartbeatTimeout, WatchdogTimeout
from hangscope.ingest.torch_logs.desync import Desync
from hangscope.ingest.torch_logs.store import DdpUnused, RendezvousTimeout, StoreTimeout, StoreUnreachable
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import CallFingerprint, GlooClosed, GlooTimeout, MonitoredBarrier
from hangscope.verdict.damage import damage, damaged_files, only_communication_failed, torn_death

#: What a rule says of itself whose facts leave other readings open.
USUAL = "the usual reading of this evidence"

#: Causes that say how a rank's program differs, and not only that its call does.
_OF_PROGRAMS = frozenset(
    {
        "shape_mismatch",
        "gradient_sync_mismatch",
        "rank_conditional_collective",
        "uneven_loader",
        "collective_order_mismatch",
        "collective_mismatch",
    }
)


def confidence(case: Case, match: Match) -> tuple[int, list[str]]:
    """Return the level (2 high, 1 medium, 0 low) that a match has earned, and the reasons of each step."""
    finding, incident = case.finding, case.incident
    level = match.strength
    reasons = [
        (
            "no other cause fits the evidence as well",
            USUAL,
            "a guess: other causes fit as well",
        )[2 - match.strength]
    ]

    def lower(to: int, why: str) -> None:
        nonlocal level
        if level > to:
            level = to
            reasons.append(why)

    if why := damage(case, match) or torn_death(case, match) or only_communication_failed(case, match):
        lower(1, why)
    stuck = finding.stuck
    if isinstance(finding, Absent) and stuck.view is not None and stuck.kind is None and case.solid:
        lower(1, "the call that they wait in was not recorded: a number alone tells of it")
    if finding.tie and not match.culprits:
        lower(1, "the sides are even and history does not tell which is wrong")
    if not isinstance(finding, Nothing) and match.cause not in (
        "crashed_rank",
        "early_exit",
        "model_mismatch",
        "init_hang",
    ):
        if finding.waiting and finding.explained * 10 < len(finding.waiting) * 9:
            lower(1, f"it explains only {finding.explained} of {len(finding.waiting)} waiting ranks")
        if 0 < len(match.culprits) <= MOST_REPLAYED and case.graph.waiting:
            unseen = {r for root in case.graph.roots if root.kind == "unseen" for r in root.ranks}
            freed = {*match.culprits, *(unseen if isinstance(finding, Different) else ())}
            left = Replay(case.graph).stuck(freed) - freed - _nowhere(case)
            if len(left) * 10 > len(case.graph.waiting):
                lower(1, f"it leaves unexplained why {ranks_phrase(left)} would wait")
        if finding.guess:
            lower(0, "it rests on what the ranks printed last, or on counts of one moment")
        doubtful = sorted(
            {r for root in case.graph.roots if root.kind == "unseen" for r in root.ranks}
            - set(match.culprits)
        )
        if doubtful and isinstance(finding, Lagging) and match.cause == "gpu_stall":
            lower(
                0,
                f"{ranks_phrase(doubtful)} may have died, whose peers' communicators then finish calls unevenly",
            )
        if doubtful and not isinstance(finding, Different):
            lower(1, f"calls also lack {ranks_phrase(doubtful)}, of which no usable dump was seen")
        if finding.assumed:
            lower(
                1, "it rests on an assumption about who waits for whom, or about which group a log line means"
            )
        if (
            finding.stuck.view is not None
            and not finding.stuck.view.group.members_known
            and isinstance(finding, Absent | Unseen)
        ):
            lower(
                1 if not match.frame else 2,
                "the members of the group are not recorded, so that nobody can be called absent for certain",
            )
        if finding.stuck.view is not None:
            gid = finding.stuck.view.group.gid
            # Of a group with sends and receives a frontier is not always known, although the rank was seen.
            others = [
                r
                for r in finding.stuck.view.unseen
                if r not in match.culprits and not (incident.ranks[r].seen and gid in incident.ranks[r].p2p)
            ]
            if (
                others
                and isinstance(finding, Absent | Different | Shifted | Lagging)
                and len(others) * 2 >= len(finding.stuck.view.members)
            ):
                lower(1, f"half of the group's members were not seen ({ranks_phrase(others)})")
    if (
        case.from_text
        and not case.solid
        and match.cause not in ("crashed_rank", "early_exit", "model_mismatch", "init_hang", "slow_rank")
    ):
        lower(1, "there is no record of the calls: it rests on lines of text")
    own = finding.own.kind
    other_op = own is not None and finding.stuck.kind is not None and own.op != finding.stuck.kind.op
    same_place = not finding.change.elsewhere and not finding.assumed
    if (
        match.cause in _OF_PROGRAMS
        and match.culprits
        and all(incident.ranks[r].absence is Absence.TOLD for r in match.culprits if r in incident.ranks)
        and finding.stuck.view is not None
        and not (other_op and same_place)
    ):
        lower(
            0,
            "lines tell the odd call's op and size, and not what was called before it, so other causes fit as well",
        )
    gone = not_collected(incident, case.statements) - set(match.culprits)
    unread = beyond_the_text(incident, case.statements) | without_a_log(incident, case.statements)
    if case.from_text and finding.tie and unread:
        lower(0, f"the sides are even, and the lines of {ranks_phrase(unread)} are not here")
    placed = any(case.statements.of(r, DumpObserved) for r in match.culprits)
    own_words = any(
        item.rank in match.culprits and item.kind in ("log", "exit", "stack") for item in match.evidence
    )
    alone = len(gone) > 1 and isinstance(finding, Absent) and not placed
    lagging = isinstance(finding, Lagging) and match.cause == "gpu_stall"
    if (
        alone or (gone and (isinstance(finding, Unseen) or lagging) and not own_words)
    ) and not case.from_text:
        lower(0, f"nothing was collected of {ranks_phrase(gone)}, for whom it may wait in its turn")
    blind = not case.frames_recorded and not case.from_text
    if match.cause in _OF_PROGRAMS and blind and finding.stuck.view is not None:
        shown = finding.change.edit is not None or match.cause == "collective_order_mismatch"
        lower(
            1 if shown else 0, "no frames were recorded, so that calls of one op from other lines look alike"
        )
    silent = [r for r, record in incident.ranks.items() if not record.files and not record.events]
    if case.from_text and len(silent) * 2 > len(incident.ranks):
        lower(1, f"most ranks left no text ({len(silent)} of {len(incident.ranks)})")
    kinds = sorted(
        {e.kind for e in match.evidence}
        | (
            {"dump"}
            if finding.stuck.view is not None and any(r.dump_file for r in incident.ranks.values())
            else set()
        )
    )
    if len(kinds) > 1:
        reasons.append(f"independent evidence agrees: {', '.join(kinds)}")
    return level, reasons


def _nowhere(case: Case) -> set[int]:
    """Return the ranks of which text says that they waited, and not for whom."""
    return {
        rank for rank, calls in case.graph.open_calls.items() if calls and isinstance(calls[0].node, Untold)
    }


def status_without_verdict(case: Case) -> str:
    """Return no_hang only with positive proof, else inconclusive."""
    incident, statements = case.incident, case.statements
    trouble = statements.all(
        RankException,
        Exit,
        GlooTimeout,
        GlooClosed,
        WatchdogTimeout,
        Terminate,
        CallFingerprint,
        MonitoredBarrier,
        StoreTimeout,
        NcclWarn,
        ExternalEnd,
        HeartbeatTimeout,
        Desync,
        AsyncError,
        NoProgress,
        RendezvousTimeout,
        StoreUnreachable,
        CudaError,
        Xid,
        OomCuda,
        OomHost,
        DdpUnused,
    )
    trouble = [e for e in trouble if not (isinstance(e, Exit) and e.code == 0)]
    if trouble or case.graph.waiting or damaged_files(incident):
        return "inconclusive"
    ranks = incident.ranks.values()
    # Under DETAIL the call that mismatches is never dispatched, so it is missing from every dump alike.
    blind = any(n.code == "detail_recording" for n in incident.notes)
    all_seen = not blind and bool(incident.ranks) and all(r.seen and r.dump_file for r in ranks)
    logged = any(f != r.dump_file for r in ranks for f in r.files)
    all_seen = all_seen and (logged or not _half_retired(case))
    all_exited = bool(incident.ranks) and all(r.rank in statements.left_quietly for r in ranks)
    return "no_hang" if (all_seen and _equal_frontiers(case)) or all_exited else "inconclusive"


def _half_retired(case: Case) -> bool:
    """Return whether some members retired their last call on gloo and others did not: done or failed, it does not tell."""
    states: dict[tuple[int, int], set[bool]] = defaultdict(set)
    for record in case.incident.ranks.values():
        for gid, queue in record.queues.items():
            if len(queue) and case.incident.kinds.without_sizes(int(queue.kind[-1])).backend == "gloo":
                states[(gid, int(queue.seq[-1]))].add(int(queue.state[-1]) == State.PENDING)
    return any(len(found) > 1 for found in states.values())


def _equal_frontiers(case: Case) -> bool:
    """Return whether all members of every group stand at the same seq, with calls made at all."""
    made = False
    for group in case.incident.groups:
        ends = set()
        for rank in group.ranks:
            queue = case.incident.ranks[rank].queues.get(group.gid) if rank in case.incident.ranks else None
            ends.add(
                max(
                    int(queue.seq.max()) if queue is not None and len(queue) else 0,
                    (queue.frontier.enqueued or 0) if queue is not None else 0,
                )
            )
        made = made or bool(ends - {0})
        if len(ends) > 1 and not any(
            r in case.incident.ranks and group.gid in case.incident.ranks[r].p2p for r in group.ranks
        ):
            return False
    return made


def missing_inputs(case: Case) -> list[str]:
    """Return what was not there, with the setting that brings it next time."""
    incident, result = case.incident, []
    no_dump = [r for r, record in incident.ranks.items() if record.dump_file is None]
    if len(no_dump) == len(incident.ranks):
        result.append(
            "no Flight Recorder dump: keep TORCH_FR_BUFFER_SIZE at 2000 or more, and with gloo call torch._C._distributed_c10d._dump_fr_trace() from a watcher thread"
        )
    elif no_dump:
        result.append(f"no dump of {ranks_phrase(no_dump)}")
    for absence, text in (
        (Absence.STALE, "only a stale dump"),
        (Absence.UNREADABLE, "an unreadable dump"),
    ):
        ranks = [r for r, record in incident.ranks.items() if record.absence == absence]
        if ranks:
            result.append(f"{text} of {ranks_phrase(ranks)}")
    if not case.statements.whereabouts:
        result.append("no stacks: py-spy dump --pid PID on each rank, or faulthandler.dump_traceback_later")
    logged = [
        r
        for r, record in incident.ranks.items()
        if record.events or any(f != record.dump_file for f in record.files)
    ]
    if not logged and not case.statements.kinds:
        result.append("no logs: one file per rank (torchrun --log-dir DIR --tee 3)")
    return result
