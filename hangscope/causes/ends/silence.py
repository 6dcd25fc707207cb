"""Rules about ranks of whose end nothing is told: they fell silent, and what others say of them is all there is."""

from __future__ import annotations

from hangscope.align.rankset import ranks_phrase
from hangscope.causes.case import Case, Match, last_output, quote
from hangscope.causes.participation import busy, calls_stay_open
from hangscope.conclusion import Evidence, Source
from hangscope.explain.finding import Absent, Unseen
from hangscope.explain.text.excerpt import not_collected
from hangscope.incident import Event, RankRecord
from hangscope.ingest.nccl.ras.snapshot import NcclRas
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
    if (left := _said_goodbye(case, culprits)) is not None:
        return left
    placed = tuple(
        r for r in culprits if (w := case.statements.whereabouts.get(r)) is not None and w.kind == "stack"
    )
    if alone := tuple(case.elsewhere(placed)):  # alive, but its recorder did not answer
        return busy(case, alone)
    culprits = tuple(r for r in culprits if r not in placed)
    if not culprits:
        return None  # they stand where those stand who wait
    records = [case.incident.ranks[r] for r in culprits]
    lost = _lost_a_peer(case)
    if not lost and (alive := _alive(case, culprits)) is not None:
        return alive
    dumps = any(record.dump_file for record in case.incident.ranks.values())
    them, who = "them" if len(culprits) > 1 else "it", ranks_phrase(culprits)
    # The last lines of a log that breaks off may be what is missing.
    cut = any(queue.cut for record in records for queue in record.queues.values())
    complete = not case.from_text or not not_collected(case.incident, case.statements) - set(culprits)
    ras = [event.what for event in finding.events if isinstance(event, NcclRas)]
    if ras:
        what = f"{'is declared dead by' if set(ras) == {'dead'} else 'does not answer'} NCCL's RAS"
    elif dumps:
        what = f"left no dump, and every waiting rank leads to {them}"
    elif lost:
        what = f"fell silent, and others lost their connection to {them}"
    else:
        what = f"printed nothing while all others waited for {them}"
    evidence = [_trace(record, dumps) for record in records[:8]]
    if lost:
        evidence.append(quote(lost[0], f"a peer lost its connection: {lost[0].text}"))
    # Silence speaks only beside logs of others that do tell of the freeze.
    alarmed = case.statements.all(DumpSignal, DumpObserved, MonitoredBarrier, GlooTimeout)
    silent = all(record.files for record in records) and bool(alarmed)
    if len(culprits) > 1 and not (lost or silent):
        return None  # several records that are missing were rather not collected
    return Match(
        "crashed_rank", culprits, f"{who} {what}", strength=int(set(ras) == {"dead"} or (complete and bool(silent or (lost and not cut and len(culprits) == 1)))), evidence=evidence,
        advice=[
            f"Look for the end of {who}: its exit code or signal in the launcher's output, and the kernel log of its host.",
            "A process that still lives can be asked for its stack (py-spy dump --pid PID): one stuck in teardown writes no dump either.",
        ],
    )  # fmt: skip


def _trace(record: RankRecord, dumps: bool) -> Evidence:
    """Return what is left of a rank that everybody waits for."""
    if dumps:
        reason = record.absence.value if record.absence else "none"
        text = f"rank {record.rank} left no usable dump ({reason}), and every waiting rank leads to it"
        return Evidence("dump", text, record.rank)
    own = "has a log that ends without an error" if record.files else "left no line"
    text = f"rank {record.rank} {own}, while its peers report that they waited"
    return Evidence("log", text, record.rank, Source(record.files[0]) if record.files else None)


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


def _alive(case: Case, culprits: tuple[int, ...]) -> Match | None:
    """Return the answer for ranks that left no record of calls and live: by their own monitors, or as no connection to them closed.

    A process that ends closes its connections at once, so that nobody waits on gloo until a timeout.
    """
    statements, ranks = case.statements, case.incident.ranks
    locked = [e for r in culprits for e in statements.of(r, HeartbeatTimeout) if e.what == "gil"]
    timeouts = statements.all(GlooTimeout)
    others = set(ranks).difference(culprits)
    timed_out = (
        len(others) > 1 and others <= {e.rank for e in timeouts} and all(ranks[r].files for r in culprits)
    )
    if not (locked or timed_out or (len(culprits) == 1 and calls_stay_open(case))):
        return None
    who = ranks_phrase(culprits)
    return Match(
        "stuck_rank", culprits, f"{who} lives, left no record of calls, and the others wait for it",
        strength=1 if timeouts or locked else 0,
        evidence=[*(_trace(ranks[r], True) for r in culprits[:1]), *(quote(e) for e in (*locked, *timeouts)[:3])],
        advice=[
            f"See whether {who} still runs, and what it does (py-spy dump --native --pid PID, `ps -o stat`: T is stopped, D waits for a disk): a thread that keeps the interpreter's lock, say.",
            "A host that lost its power or its network leaves its connections open, too: see that it answers.",
        ],
        rivals=[("crashed_rank", "a host that vanished closes no connection either")],
    )  # fmt: skip


def _said_goodbye(case: Case, culprits: tuple[int, ...]) -> Match | None:
    """Return the answer for ranks whose last output says that they leave, or that their loop is over."""
    last = [e for r in culprits if (e := last_output(case, r)) is not None]
    bye = [e for e in last if e.leaving or e.done]
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
            f"Look for the end of rank {rank}: its exit code or signal in the launcher's output, and the kernel log of its host.",
            "NCCL prints nothing in a process that is killed; whoever prints 'closed by remote peer' is a victim.",
        ],
    )  # fmt: skip


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
