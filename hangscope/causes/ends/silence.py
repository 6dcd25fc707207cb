"""Rules about ranks whose end is not reported: they fell silent, and all that is known is what others say of them."""

from __future__ import annotations

from hangscope.causes.case import Case, Match, answer, at, of_outlier, quote, who
from hangscope.causes.faults import remedy
from hangscope.causes.participation import busy, calls_stay_open
from hangscope.explain.statements.exits import CLEANUPS
from hangscope.explain.statements.statements import WAITED, Statements
from hangscope.explain.text.excerpt import not_collected
from hangscope.explain.text.steps import is_last, last_output
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.ingest.excerpts.line_groups import tells_of_trouble
from hangscope.ingest.job_logs.faults import OomCuda, OomHost
from hangscope.ingest.job_logs.last_lines import Printed
from hangscope.ingest.job_logs.library_reports import HorovodStall
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.lines.prefixes import cut
from hangscope.ingest.nccl.ras_json import NcclRas
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
from hangscope.knowledge.callsite import user_frame
from hangscope.model.conclusion import Evidence, Source
from hangscope.model.incident import Absence, Event, RankRecord
from hangscope.model.rankset import agree
from hangscope.model.regex import regex

_FAREWELL = regex(r"(?i)\W{0,12}(?:all |rank \d{1,7}:? )?(?:done|finished|completed|exiting|bye)\W{0,12}$")
_CODE = "Check the exit code of rank {}: 0 means that it exited early; otherwise look for what killed it."
_KILLED = ("crashed_rank", "a rank that is killed after that line leaves the same log")
_ENDED = ("crashed_rank", "a process that ended leaves no further output either")
_NO_POWER = ("crashed_rank", "a host that lost power closes no connection either")


def vanished(case: Case) -> Match | None:
    """A rank without a record that every blocked rank waits for, and of whose end nothing is reported but that its peers lost it.

    A rank whose own log says that it waited is none: its dump is missing, but the rank is not.
    """
    finding, ranks, statements = case.finding, case.incident.ranks, case.statements
    heard = {e.rank for e in statements.all(MonitoredBarrier, MonitoredBarrierWitness)} | statements.witnesses
    culprits = tuple(r for r in finding.culprits if r not in heard)
    if not culprits:
        return None
    if (left := _said_goodbye(case, culprits) or _last_words(case, culprits)) is not None:
        return left
    if alone := case.elsewhere(culprits):  # alive, but its recorder did not answer
        return busy(case, alone)
    # The others are where the blocked ranks are.
    culprits = tuple(r for r in culprits if r not in case.stacks)
    if (left := _left_by_the_text(case, culprits)) is not None:
        return left
    if (raised := _by_elimination(case, culprits)) is not None:
        return raised
    lost: list[Event] = [*statements.all(GlooClosed), *case.warned("closed_by_peer")]
    lost += [e for e in statements.all(AsyncError) if e.error == "remote"]
    lives = bool(culprits) and (not lost or _swept(statements).issuperset(culprits))
    if lives and (alive := _alive(case, culprits)) is not None:
        return alive
    one = len(culprits) == 1
    # Silence means something only if the logs of others do report the hang.
    alarmed = statements.all(DumpSignal, DumpObserved, MonitoredBarrier, GlooTimeout)
    silent = bool(alarmed) and all(ranks[r].files for r in culprits)
    if not culprits or not (one or lost or silent):
        return None  # several records that are missing were rather not collected
    complete = not case.from_text or not not_collected(case.incident, statements) - set(culprits)
    dumps = any(record.dump_file for record in ranks.values())
    unusable = any(ranks[r].absence in (Absence.UNREADABLE, Absence.STALE) for r in culprits)
    nothing = "no usable dump" if unusable else "no dump"
    what = f"left {nothing if dumps else 'no further output'}, and {_awaited(case)} {'it' if one else 'them'}"
    ras = {event.what for event in finding.events if isinstance(event, NcclRas)}
    if ras:
        what = f"{agree(culprits, 'is', 'are')} {'reported dead by' if ras == {'dead'} else 'not answering'} NCCL's RAS"
    # A process that ends closes its connections at once: peers that waited for a timeout had one that was still there.
    lived = bool(statements.all(GlooTimeout)) and not silent
    sure = ras == {"dead"} or (complete and (silent or (bool(lost) and one and not lived)))
    evidence: list[Evidence | Event] = [_trace(case, ranks[rank], dumps) for rank in culprits[:8]]
    evidence += [quote(event, f"a peer lost its connection: {event.text}") for event in lost[:1]]
    why = f"{who(culprits)} {what}"
    unknown = any(e.rank is None for e in statements.all(OomCuda, OomHost))  # whose memory ran out
    written = any(e.prose for e in statements.all(Excerpt))
    if written and not (dumps or lost or silent or ras or unknown):
        # Of a paste, lines are missing for any reason, and peers that time out had a connection that was open.
        look = f"Take the stack of {who(culprits)} (py-spy dump --pid PID), and read its log from the time of the others' last collective on."
        return answer("stuck_rank", culprits, why, look, strength=0, evidence=evidence, rivals=[_ENDED])
    look = f"Find out how {who(culprits)} ended: look for an exit code or signal in the launcher's output, and in the kernel log of the host."
    stack = "If the process is still running, take its stack (py-spy dump --pid PID): one that is stuck in teardown writes no dump either."
    return answer("crashed_rank", culprits, why, look, stack, strength=int(sure), evidence=evidence)


def _by_elimination(case: Case, culprits: tuple[int, ...]) -> Match | None:
    """Return the answer where the only exception without a rank must be that of the one rank which did not wait until a timeout."""
    raised = [e for e in case.statements.all(RankException) if e.rank is None and e.type and not e.symptom]
    others = set(case.incident.ranks).difference(culprits)
    if len(culprits) != 1 or len(raised) != 1 or not others or not others <= case.statements.ranks(*WAITED):
        return None
    own, frame = raised[0], user_frame(raised[0].frames)
    why = f"{who(culprits)} raised {own.type.rsplit('.', 1)[-1]}{at(frame)}: {own.message[:160].rstrip('.')}; its traceback names no rank, and {who(sorted(others))}, all others, {agree(sorted(others), 'was', 'were')} waiting"
    fix = remedy(own, who(culprits), frame)
    return answer("crashed_rank", culprits, why, fix, evidence=[own], frame=frame)


def _left_by_the_text(case: Case, culprits: tuple[int, ...]) -> Match | None:
    """Return the answer where a line of a process that nothing names says that it leaves or is done, and of all but one rank it is known that they stayed."""
    of_nobody = [e for e in case.statements.all(Progress) if e.rank is None]
    ended = [e for e in of_nobody if (e.over or e.done) and e.epoch is None]
    said = [e for e in of_nobody if e.leaving] or ended
    dumped = any(record.dump_file for record in case.incident.ranks.values())
    if dumped or len(culprits) != 1 or not said or not case.statements.all(WatchdogTimeout, GlooTimeout):
        return None
    why = f"{who(culprits)} exited its loop early, as '{cut(said[-1].text.strip(), 80)}' says, and the others wait for it"
    look = "Let all ranks decide together when to stop: reduce what they decide by (all_reduce), or broadcast the decision of one of them."
    return answer("early_exit", culprits, why, look, strength=1, evidence=said[-1:])


def _awaited(case: Case) -> str:
    """Return who waits for a rank without a record, as far as the members of the groups are known."""
    return f"{'every blocked rank is' if case.whole_group else 'the blocked ranks may be'} waiting for"


def _trace(case: Case, record: RankRecord, dumps: bool) -> Evidence:
    """Return what is left of a rank that every blocked rank waits for."""
    said = [f" after '{cut(e.texts[-1], 80)}'" for e in case.statements.of(record.rank, Printed)][-1:]
    left = f"no line{''.join(said)}" if not record.files else "a log that ends without an error"
    if dumps:
        unusable = f" ({record.absence.value})" if record.dump_file and record.absence else ""
        left = f"no {'usable ' if unusable else ''}dump{unusable}"
    text = f"rank {record.rank} left {left}, and {_awaited(case)} it"
    source = Source(record.files[0]) if record.files and not dumps else None
    return Evidence("dump" if dumps else "log", text, record.rank, source)


def _alive(case: Case, culprits: tuple[int, ...]) -> Match | None:
    """Return the answer for ranks that left no record of collectives and live: by their own monitors, or as no connection to them closed.

    A process that ends closes its connections at once, so that nobody waits on gloo until a timeout.
    """
    statements, ranks, one = case.statements, case.incident.ranks, len(culprits) == 1
    locked = [e for r in culprits for e in statements.of(r, HeartbeatTimeout) if e.what == "gil"]
    timeouts, others = statements.all(GlooTimeout), set(ranks).difference(culprits)
    timed_out = all(ranks[r].files for r in culprits) and others <= {e.rank for e in timeouts}
    if not (locked or timed_out or (one and calls_stay_open(case))):
        return None
    whose, are = who(culprits), agree(culprits, "is", "are")
    why = f"{whose} {agree(culprits, 'has', 'have')} no collective in the collected files, and {_awaited(case)} {agree(culprits, 'it', 'them')}"
    look = f"Check whether {whose} {are} still running, and what {agree(culprits, 'it does', 'they do')} (py-spy dump --native --pid PID; `ps -o stat`: T is stopped, D is waiting for a disk), for example a thread that holds the GIL."
    host = "A host that lost power or network leaves its connections open as well: check that it answers."
    strength = 1 if timeouts or locked else 0
    facts: list[Evidence | Event] = [_trace(case, ranks[culprits[0]], True), *[*locked, *timeouts][:3]]
    rivals = [_NO_POWER]
    return answer("stuck_rank", culprits, why, look, host, strength=strength, evidence=facts, rivals=rivals)


def _swept(statements: Statements) -> frozenset[int]:
    """Return the ranks that lived until torchrun's agent ended all."""
    return frozenset(r for r, e in statements.exits.items() if e.via == "table" and e.code in CLEANUPS)


def _said_goodbye(case: Case, culprits: tuple[int, ...]) -> Match | None:
    """Return the answer for ranks whose last output says that they leave, or that their loop is over."""
    swept = _swept(case.statements)
    last = [last_output(case.statements, rank) for rank in culprits if rank not in swept]
    bye = [e for e in last if e is not None and (e.leaving or e.done or e.over)]
    if len(bye) < len(culprits):
        return None
    ends = all(is_last(case.statements, e) for e in bye)
    last_word = " last" if ends else ""
    why = f"{who(culprits)} exited without an error; {agree(culprits, 'its', 'their')}{last_word} output says that the work was done"
    code = _CODE.format(culprits[0])
    together = "Exit together: let all ranks agree on the end before any of them returns."
    strength = 1 if all(e.leaving or e.over for e in bye) else 0
    said = "'s last output" if ends else " printed"
    facts = [quote(e, f"rank {e.rank}{said}: {e.text}") for e in bye[-2:]]
    return answer("early_exit", culprits, why, code, together, strength=strength, evidence=facts)


def _last_words(case: Case, culprits: tuple[int, ...]) -> Match | None:
    """Return the answer for a rank whose log ends, without trouble, with a line that it alone printed and that says so, or after which its peers lost it."""
    own = [o for o in case.statements.outlier_lines if o.telling and o.how == "only" and o.ranks == culprits]
    last = [e.texts[-1] for rank in culprits for e in case.statements.of(rank, Printed)]
    if len(culprits) != 1 or not own or last[-1:] != [own[0].text] or tells_of_trouble(own[0].text):
        return None
    if not case.statements.all(GlooClosed) and not _FAREWELL.match(own[0].text):
        return None
    why = f"{who(culprits)} probably exited by itself; its last line, which no other rank printed, is '{cut(own[0].text, 80)}'"
    facts, code = [of_outlier(own[0])], _CODE.format(culprits[0])
    return answer("early_exit", culprits, why, code, strength=0, evidence=facts, rivals=[_KILLED])


def lost_by_peers(case: Case) -> Match | None:
    """A rank that its log shows behind, and whose host the others name as the one that closed their connections."""
    died = may_have_died(case)
    if died is None or len(died.culprits) != 1 or died.culprits[0] not in case.incident.ranks:
        return None
    rank, host = died.culprits[0], case.incident.ranks[died.culprits[0]].host
    lost = [e for e in case.warned("closed_by_peer") if host and host in (e.peer_node, e.peer_host)]
    if not lost or case.statements.of(rank, NcclWarn):
        return None
    why = f"the log of rank {rank} ends before the collective that the others are blocked in, and they report that its host closed their connections"
    return answer("crashed_rank", (rank,), why, evidence=lost[:3])


def may_have_died(case: Case) -> Match | None:
    """A rank that its log shows behind may as well have ended: only a dump or a stack would show that it lives."""
    culprits, ranks = case.finding.culprits, case.incident.ranks
    shown = any(r in case.statements.whereabouts or (r in ranks and ranks[r].dump_file) for r in culprits)
    if not culprits or shown:
        return None
    if reports := [e for e in case.finding.events if isinstance(e, HorovodStall)]:
        stated = [row for e in case.statements.all(Excerpt) for row in e.ranks_of_hosts]
        hosts = [f" (local rank {own.index(culprits[0])} of {h})" for h, own in stated if culprits[0] in own]
        where = hosts[0] if hosts and len(culprits) == 1 else ""
        why = f"{who(culprits)}{where} did not submit the tensors that all other ranks have submitted"
        look = f"Take a stack of {who(culprits)}{where} and of its data loader's workers (py-spy dump --pid PID): mpirun ends the job if a rank dies, so it is alive."
        return answer("stuck_rank", culprits, why, look, evidence=reports)
    why = f"the logs do not show whether {who(culprits)} {agree(culprits, 'is', 'are')} still alive"
    return answer("crashed_rank", culprits, why, strength=0)
