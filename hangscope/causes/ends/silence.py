"""Rules about ranks of whose end nothing is told: they fell silent, and what others say of them is all there is."""

from __future__ import annotations

from hangscope.causes.case import Case, Match, answer, quote, who
from hangscope.causes.participation import busy, calls_stay_open
from hangscope.explain.finding import Absent, Unseen
from hangscope.explain.statements.outlier_lines import said_by_others
from hangscope.explain.statements.statements import WAITED, Statements
from hangscope.explain.text.excerpt import not_collected
from hangscope.explain.text.steps import last_output
from hangscope.ingest.job_logs.printed import Printed
from hangscope.ingest.nccl.ras.snapshot import NcclRas
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.c10d import (
    AsyncError,
    DumpObserved,
    DumpSignal,
    HeartbeatTimeout,
)
from hangscope.ingest.torch_logs.wrapper import (
    GlooClosed,
    GlooTimeout,
    MonitoredBarrier,
    MonitoredBarrierWitness,
)
from hangscope.model.conclusion import Evidence, Source
from hangscope.model.incident import Event, RankRecord
from hangscope.model.rankset import agree

_SWEPT = frozenset({-15, 143})  # how who lives ends when torchrun's agent ends all
_LOOK = "Find out how {} ended: look for an exit code or signal in the launcher's output, and in the kernel log of the host."


def vanished(case: Case) -> Match | None:
    """A rank without a record that everybody waits for, and of whose end nothing is told but that its peers lost it.

    A rank whose own log says that it waited is none: its dump is missing, and it is not known to be.
    """
    finding, ranks, statements = case.finding, case.incident.ranks, case.statements
    heard = {e.rank for e in statements.all(MonitoredBarrier, MonitoredBarrierWitness)} | statements.witnesses
    culprits = tuple(r for r in finding.culprits if r not in heard)
    if not isinstance(finding, Unseen) or not culprits:
        return None
    if (left := _said_goodbye(case, culprits)) is not None:
        return left
    if alone := tuple(case.elsewhere(culprits)):  # alive, but its recorder did not answer
        return busy(case, alone)
    culprits = tuple(r for r in culprits if r not in case.stacks)
    if not culprits:
        return None  # they stand where those stand who wait
    lost = _lost_a_peer(case)
    if (not lost or _swept(statements).issuperset(culprits)) and (
        alive := _alive(case, culprits)
    ) is not None:
        return alive
    records, one = [ranks[r] for r in culprits], len(culprits) == 1
    # Silence speaks only beside logs of others that do tell of the freeze.
    alarmed = statements.all(DumpSignal, DumpObserved, MonitoredBarrier, GlooTimeout)
    silent = bool(alarmed) and all(record.files for record in records)
    if not (one or lost or silent):
        return None  # several records that are missing were rather not collected
    complete = not case.from_text or not not_collected(case.incident, statements) - set(culprits)
    ras = {event.what for event in finding.events if isinstance(event, NcclRas)}
    dumps = any(record.dump_file for record in ranks.values())
    what = f"left {'no dump' if dumps else 'no further output'}, and every blocked rank is waiting for {'it' if one else 'them'}"
    if ras:
        what = f"{agree(culprits, 'is', 'are')} {'reported dead by' if ras == {'dead'} else 'not answering'} NCCL's RAS"
    # Whoever ends closes its connections at once: peers that waited for a timeout had one that was still there.
    lived = bool(statements.all(GlooTimeout)) and not silent
    sure = ras == {"dead"} or (complete and (silent or (bool(lost) and one and not lived)))
    return answer(
        "crashed_rank",
        culprits,
        f"{who(culprits)} {what}",
        _LOOK.format(who(culprits)),
        "If the process is still running, take its stack (py-spy dump --pid PID): one that is stuck in teardown writes no dump either.",
        strength=int(sure),
        evidence=[
            *(_trace(record, dumps) for record in records[:8]),
            *(quote(event, f"a peer lost its connection: {event.text}") for event in lost[:1]),
        ],
    )


def _trace(record: RankRecord, dumps: bool) -> Evidence:
    """Return what is left of a rank that everybody waits for."""
    left = "a log that ends without an error" if record.files else "no line"
    if dumps:
        unusable = record.dump_file is not None and record.absence is not None
        left = f"no usable dump ({record.absence.value})" if unusable and record.absence else "no dump"
    text = f"rank {record.rank} left {left}, and every blocked rank is waiting for it"
    source = Source(record.files[0]) if record.files and not dumps else None
    return Evidence("dump" if dumps else "log", text, record.rank, source)


def _lost_a_peer(case: Case) -> list[Event]:
    """Return the lines by which ranks say that a peer's process is gone."""
    statements = case.statements
    return [
        *statements.all(GlooClosed),
        *case.warned("closed_by_peer"),
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
    heard = len(others) > 1 and all(ranks[r].files for r in culprits)
    timed_out = heard and others <= {e.rank for e in timeouts}
    swept = len(culprits) == 1 and culprits[0] in _swept(statements) and statements.ranks(*WAITED) >= others
    if not (locked or timed_out or swept or (len(culprits) == 1 and calls_stay_open(case))):
        return None
    whose = who(culprits)
    return answer(
        "stuck_rank",
        culprits,
        f"{whose} {agree(culprits, 'is', 'are')} alive but left no record of collectives, and the others are waiting for {agree(culprits, 'it', 'them')}",
        f"Check whether {whose} {agree(culprits, 'is', 'are')} still running, and what {agree(culprits, 'it does', 'they do')} (py-spy dump --native --pid PID; `ps -o stat`: T is stopped, D is waiting for a disk), for example a thread that holds the GIL.",
        "A host that lost power or network leaves its connections open as well: check that it answers.",
        strength=1 if timeouts or locked else 0,
        evidence=[_trace(ranks[culprits[0]], True), *(*locked, *timeouts)[:3]],
        rivals=[("crashed_rank", "a host that lost power closes no connection either")],
    )


def _swept(statements: Statements) -> frozenset[int]:
    """Return the ranks that lived until torchrun's agent ended all."""
    return frozenset(r for r, e in statements.exits.items() if e.via == "table" and e.code in _SWEPT)


def _said_goodbye(case: Case, culprits: tuple[int, ...]) -> Match | None:
    """Return the answer for ranks whose last output says that they leave, or that their loop is over."""
    statements = case.statements
    last = [
        e for r in culprits if r not in _swept(statements) and (e := last_output(statements, r)) is not None
    ]
    bye = [e for e in last if e.leaving or e.done or e.over]
    if any(said_by_others(e, statements.all(Printed)) for e in bye):
        return None  # the others said so as well, and stayed
    if len(bye) < len(culprits):
        return None
    return answer(
        "early_exit",
        culprits,
        f"{who(culprits)} exited without an error; {agree(culprits, 'its', 'their')} last output says that the work was done",
        f"Check the exit code of rank {culprits[0]}: 0 means that it exited early; otherwise look for what killed it.",
        "Exit together: let all ranks agree on the end before any of them returns.",
        strength=1 if all(e.leaving or e.over for e in bye) else 0,
        evidence=[quote(e, f"rank {e.rank}'s last output: {e.text}") for e in bye[-2:]],
    )


def lost_by_peers(case: Case) -> Match | None:
    """A rank that its log shows behind, and whose host the others name as the one that closed their connections."""
    if (died := may_have_died(case)) is None or len(died.culprits) != 1:
        return None
    rank = died.culprits[0]
    host = case.incident.ranks[rank].host
    lost = [e for e in case.warned("closed_by_peer") if host and host in (e.peer_node, e.peer_host)]
    if not lost or case.statements.of(rank, NcclWarn):
        return None
    why = f"the log of rank {rank} ends before the collective that the others are blocked in, and they report that its host closed their connections"
    return answer("crashed_rank", (rank,), why, _LOOK.format(f"rank {rank}"), evidence=lost[:3])


def may_have_died(case: Case) -> Match | None:
    """A rank that its log shows behind may as well have ended: nothing but a dump or a stack would tell."""
    culprits, ranks = case.finding.culprits, case.incident.ranks
    if not isinstance(case.finding, Absent) or not culprits:
        return None
    if any(r in case.statements.whereabouts or (r in ranks and ranks[r].dump_file) for r in culprits):
        return None
    why = f"the logs do not show whether {who(culprits)} {agree(culprits, 'is', 'are')} still alive"
    return answer("crashed_rank", culprits, why, strength=0)
