"""Rules about ranks of whose end nothing is told: they fell silent, and what others say of them is all there is."""

from __future__ import annotations

from hangscope.align.rankset import ranks_phrase
from hangscope.causes.case import Case, Match, quote
from hangscope.causes.participation import busy
from hangscope.causes.rooted import ROOTED
from hangscope.conclusion import Evidence, Source
from hangscope.explain.finding import Absent, Unseen
from hangscope.explain.text.excerpt import not_collected
from hangscope.incident import Event
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.nccl.ras.snapshot import NcclRas
from hangscope.ingest.nccl.service_thread import LeftFirst
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.c10d import (
    AsyncError,
    DumpObserved,
    DumpSignal,
    HeartbeatTimeout,
    WatchdogTimeout,
)
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import (
    GlooClosed,
    GlooTimeout,
    MonitoredBarrier,
    MonitoredBarrierWitness,
)

_WAITING: tuple[type[Event], ...] = (WatchdogTimeout, GlooTimeout, MonitoredBarrier, MonitoredBarrierWitness)


def vanished(case: Case) -> Match | None:
    """A rank without a record that everybody waits for, and of whose end nothing is told but that its peers lost it.

    A rank whose own log says that it waited is none: its dump is missing, and it is not known to be.
    """
    finding = case.finding
    culprits = tuple(r for r in finding.culprits if not _waited(case, r))
    if not isinstance(finding, Unseen) or not culprits:
        return None
    placed = tuple(
        r for r in culprits if (w := case.statements.whereabouts.get(r)) is not None and w.kind == "stack"
    )
    alone = tuple(r for r in placed if _stands_alone(case, r))
    if alone:  # alive, but its recorder did not answer: a thread that holds the GIL, say
        return busy(case, alone)
    culprits = tuple(r for r in culprits if r not in placed)
    if not culprits:
        return None  # they stand where those stand who wait
    if (left := _holding_its_lock(case, culprits) or _said_goodbye(case, culprits)) is not None:
        return left
    if (told := _told_by_ras(case, culprits) or _told_by_its_node(case, culprits)) is not None:
        return told
    lost = _lost_a_peer(case)
    if not lost and (_only_timed_out(case, culprits) or _connected(case, culprits)):
        return _still_there(case, culprits)
    dumps = any(record.dump_file for record in case.incident.ranks.values())
    cut = [r for r in culprits if any(queue.cut for queue in case.incident.ranks[r].queues.values())]
    them = "them" if len(culprits) > 1 else "it"
    complete = not case.from_text or not not_collected(case.incident, case.statements) - set(culprits)
    if dumps:
        what = f"left no dump, and every waiting rank leads to {them}"
    elif cut:
        what = f"is behind in a log that breaks off, and every waiting rank leads to {them}"
    elif lost:
        what = f"fell silent, and every other rank{'' if complete else ' that left a log'} lost its connection to {them}"
    else:
        what = f"printed nothing while all others waited for {them}"
    evidence = [_trace(case, rank, dumps, rank in cut, bool(lost)) for rank in culprits[:8]]
    if lost:
        evidence.append(quote(lost[0], f"a peer lost its connection: {lost[0].text}"))
    # Silence speaks only beside logs of others that do tell of the freeze.
    alarmed = case.statements.all(DumpSignal, DumpObserved, MonitoredBarrier, GlooTimeout)
    silent = all(case.incident.ranks[r].files for r in culprits) and bool(alarmed)
    if len(culprits) > 1 and not (lost or silent or cut):
        return None  # several records that are missing were rather not collected
    return Match(
        "crashed_rank", culprits, f"{ranks_phrase(culprits)} {what}", strength=1 if complete and (silent or (lost and not cut and len(culprits) == 1)) else 0, evidence=evidence,
        advice=[
            *_look_for(culprits),
            "A process that still lives can be asked for its stack (py-spy dump --pid PID): one stuck in teardown writes no dump either.",
        ],
    )  # fmt: skip


def _stands_alone(case: Case, rank: int) -> bool:
    """Return whether a rank's stack is outside of any call, at a place where hardly any other rank stands.

    Hosts that run ahead of their devices, or wait for a result, stand outside of any call as well, and stand together.
    """
    told = case.statements.whereabouts
    own = told[rank]
    if own.inside or not own.stack:
        return False
    place = (own.stack[0].name, own.stack[0].file)
    there = sum(bool(w.stack) and (w.stack[0].name, w.stack[0].file) == place for w in told.values())
    return there <= max(1, len(told) // 8)


def _look_for(ranks: tuple[int, ...]) -> list[str]:
    """Return how to find out what became of ranks that left nothing."""
    if len(ranks) == 1:
        return [
            f"Look for the end of rank {ranks[0]}: its exit code or signal in the launcher's output, and the kernel log of its host."
        ]
    who = ranks_phrase(ranks)
    return [
        f"Add the dumps and logs of {who}, if they lie elsewhere, and run again.",
        f"Look for the end of {who}: exit codes or signals in the launcher's output, and the kernel logs of their hosts.",
    ]


def _waited(case: Case, rank: int) -> bool:
    """Return whether a rank's own log says that it waited for others, so that it was alive and no culprit by its silence."""
    statements = case.statements
    return bool(statements.of(rank, *_WAITING, GlooClosed)) or any(
        e.symptom for e in statements.of(rank, RankException)
    )


def _lost_a_peer(case: Case) -> list[Event]:
    """Return the lines by which ranks say that a peer's process is gone."""
    statements = case.statements
    return [
        *statements.all(GlooClosed),
        *(e for e in statements.all(NcclWarn) if e.fault == "closed_by_peer"),
        *(e for e in statements.all(AsyncError) if e.error == "remote"),
    ]


def _only_timed_out(case: Case, culprits: tuple[int, ...]) -> bool:
    """Return whether every other rank waited on gloo until its timeout: a process that ends closes its connections at once."""
    timed_out = {e.rank for e in case.statements.all(GlooTimeout)}
    others = [r for r in case.incident.ranks if r not in culprits]
    collected = all(case.incident.ranks[r].files for r in culprits)
    return collected and len(others) > 1 and timed_out.issuperset(others)


def _connected(case: Case, culprits: tuple[int, ...]) -> bool:
    """Return whether calls that wait for the one who left no dump are open in dumps of gloo, and not given up.

    A process that ends closes its connections, which fails the calls of its peers at once. Of a call with a root some are done
    before others come, and those alone tell who still wait.
    """
    stuck = case.finding.stuck
    if (
        len(culprits) != 1
        or stuck.view is None
        or stuck.seq is None
        or stuck.kind is None
        or stuck.kind.backend != "gloo"
    ):
        return False
    members = (m for rank, m in stuck.view.members.items() if case.incident.ranks[rank].dump_file is not None)
    inside = [m for m in members if m.row_of(stuck.seq) is not None]
    still_open = [stuck.seq in m.pending for m in inside]
    return any(still_open) if stuck.kind.op in ROOTED else bool(inside) and all(still_open)


def _still_there(case: Case, culprits: tuple[int, ...]) -> Match:
    """Return the answer for ranks that left no record and whose connections stayed open: alive, and in no call."""
    who = ranks_phrase(culprits)
    return Match(
        "stuck_rank", culprits, f"{who} left no record of calls, and the others wait for {'it' if len(culprits) == 1 else 'them'} over connections that stay open",
        strength=1 if case.statements.all(GlooTimeout) else 0,
        evidence=[_trace(case, culprits[0], True, False, False), *(quote(e) for e in case.statements.all(GlooTimeout)[:3])],
        advice=[
            f"See whether {who} still runs, and what it does (py-spy dump --pid PID, `ps -o stat`: T is stopped, D waits for a disk).",
            "A host that lost its power or its network leaves its connections open, too: see that it answers.",
        ],
        rivals=[("crashed_rank", "a host that vanished closes no connection either")],
    )  # fmt: skip


def _trace(case: Case, rank: int, dumps: bool, cut: bool, lost: bool) -> Evidence:
    """Return what is left of a rank that everybody waits for."""
    record = case.incident.ranks[rank]
    if dumps:
        reason = record.absence.value if record.absence else "none"
        return Evidence(
            "dump", f"rank {rank} left no usable dump ({reason}), and every waiting rank leads to it", rank
        )
    if cut:
        text = f"rank {rank}'s log breaks off before the call that the others wait in; only its last lines may be missing"
        return Evidence("log", text, rank, Source(record.calls_file or ""))
    own = "has a log that ends without an error" if record.files else "left no line"
    text = f"rank {rank} {own}, while its peers report that they {'lost a connection' if lost else 'waited'}"
    return Evidence("log", text, rank, Source(record.files[0]) if record.files else None)


def _holding_its_lock(case: Case, culprits: tuple[int, ...]) -> Match | None:
    """Return the answer for ranks that are alive by their own monitors, which cannot get the interpreter's lock."""
    told = [e for r in culprits for e in case.statements.of(r, HeartbeatTimeout) if e.what == "gil"]
    if {e.rank for e in told} != set(culprits):
        return None
    who = ranks_phrase(culprits)
    return Match(
        "stuck_rank", culprits, f"a thread of {who} keeps the interpreter's lock, so that it makes no further call", strength=1,
        evidence=[quote(e) for e in told[:4]],
        advice=[f"Take a stack of {who} with its native frames (py-spy dump --native --pid PID): the thread inside of C or C++ code that keeps the GIL is the one."],
    )  # fmt: skip


def _said_goodbye(case: Case, culprits: tuple[int, ...]) -> Match | None:
    """Return the answer for ranks whose last output says that they leave, or that their loop is over."""
    bye = [e for r in culprits if (e := _farewell(case, r)) is not None]
    if len(bye) < len(culprits):
        return None
    return Match(
        "early_exit", culprits, f"{ranks_phrase(culprits)} ended without an error, and its last output says that it was done",
        strength=1 if all(e.leaving for e in bye) else 0, evidence=[quote(e, f"rank {e.rank}'s last output: {e.text}") for e in bye[-2:]],
        advice=[
            f"Check rank {culprits[0]}'s exit code: with 0 it left early; otherwise look for what killed it.",
            "Leave together: agree on the end over all ranks before any returns.",
        ],
    )  # fmt: skip


def _told_by_ras(case: Case, culprits: tuple[int, ...]) -> Match | None:
    """Return the answer for ranks that NCCL's RAS lists as dead or missing."""
    told = [e for e in case.finding.events if isinstance(e, NcclRas)]
    if not told:
        return None
    dead = all(e.what == "dead" for e in told)
    verb, end = ("declares", " dead") if dead else ("misses", "")
    return Match(
        "crashed_rank", culprits, f"NCCL's RAS {verb} {ranks_phrase(culprits)}{end}", strength=1 if dead else 0,
        advice=[
            *_look_for(culprits),
            "RAS cannot reach a process whose host is lost or whose network is down either.",
        ],
    )  # fmt: skip


def _told_by_its_node(case: Case, culprits: tuple[int, ...]) -> Match | None:
    """Return the answer for a rank whose connections several processes of its node saw close before any other's."""
    told = [e for e in case.finding.events if isinstance(e, LeftFirst)]
    if not told:
        return None
    return Match(
        "crashed_rank", culprits,
        f"{ranks_phrase(culprits)} left first: {told[0].witnesses} processes of its node saw its connections close before any other's",
        strength=0, evidence=[quote(e) for e in told[:2]], advice=_look_for(culprits),
    )  # fmt: skip


def lost_by_peers(case: Case) -> Match | None:
    """A rank that its log shows behind, and whose host the others name as the one that closed their connections."""
    finding = case.finding
    if (
        not isinstance(finding, Absent)
        or len(finding.culprits) != 1
        or case.incident.ranks[finding.culprits[0]].dump_file
    ):
        return None
    rank = finding.culprits[0]
    host = case.incident.ranks[rank].host
    lost = [
        e
        for e in case.statements.all(NcclWarn)
        if e.fault == "closed_by_peer"
        and e.rank != rank
        and host is not None
        and host in (e.peer_node, e.peer_host)
    ]
    if not lost or case.statements.of(rank, NcclWarn) or rank in case.statements.whereabouts:
        return None
    why = f"rank {rank}'s log ends before the call that the others wait in, and they report that its host closed their connections"
    return Match(
        "crashed_rank", (rank,), why, strength=1, evidence=[quote(e) for e in lost[:3]],
        advice=[
            *_look_for((rank,)),
            "NCCL prints nothing in a process that is killed; whoever prints 'closed by remote peer' is a victim.",
        ],
    )  # fmt: skip


def _farewell(case: Case, rank: int) -> Progress | None:
    """Return a rank's last line of output, where it says that the rank leaves or that its loop is over."""
    last = max(case.statements.of(rank, Progress), key=lambda e: (e.line, e.file), default=None)
    return last if last is not None and (last.leaving or last.done) else None


def may_have_died(case: Case) -> Match | None:
    """A rank that its log shows behind may as well have ended: nothing but a dump or a stack would tell."""
    finding = case.finding
    if (
        not isinstance(finding, Absent)
        or not finding.culprits
        or any(
            case.incident.ranks[r].dump_file or r in case.statements.whereabouts
            for r in finding.culprits
            if r in case.incident.ranks
        )
    ):
        return None
    why = f"the logs do not tell whether {ranks_phrase(finding.culprits)} is still alive"
    return Match("crashed_rank", finding.culprits, why, strength=0)
