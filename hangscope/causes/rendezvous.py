"""Rules about a store or a rendezvous at which ranks waited in vain."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence

from hangscope.causes.agreement import LISTS
from hangscope.causes.case import Case, Match, answer, who
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.ingest.job_logs.last_lines import Printed
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.job_logs.starts import Announced
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.ingest.torch_logs.store import RendezvousTimeout, StoreBarrier, StoreTimeout, StoreUnreachable
from hangscope.ingest.torch_logs.wrapper import CallFingerprint, GlooTimeout, MonitoredBarrier
from hangscope.knowledge.callsite import forms_a_group
from hangscope.knowledge.doing import doing
from hangscope.model.conclusion import Evidence, Source
from hangscope.model.incident import Event
from hangscope.model.rankset import agree, ranks_phrase

_QUOTED = 120  # characters of a line
_WITNESSES = 2  # ranks that wait, at least, to single out a rank that does not
_BEFORE = "Do the work of one rank before init_process_group, or with more processes (num_proc), or give the group a longer timeout."
_IDS = (
    "Use one rendezvous id and one free port per job; a firewall or a wrong network interface looks the same."
)


def at_the_store(case: Case, world: int) -> Match | None:
    """Return the answer for ranks that waited in vain at a store or rendezvous: for the ranks, of `world`, that are missing there, or for the store."""
    statements = case.statements
    # The store that a watchdog finds gone had been there, and is gone when a job ends, too.
    unreachable = [e for e in statements.all(StoreUnreachable) if not e.what]
    timeouts, barriers = statements.all(StoreTimeout), statements.all(StoreBarrier)
    answered: list[Event] = [*timeouts, *barriers, *statements.all(RendezvousTimeout)]
    waits = [*answered, *unreachable]
    ran = statements.all(CallFingerprint, GlooTimeout, WatchdogTimeout, MonitoredBarrier, Progress)
    end = statements.external  # of an earlier start, if the text has another one behind it
    running = [e for e in ran if end is None or (e.file, e.line) > (end.file, end.line)]
    if running or (case.finding.culprits and not case.from_text):
        return None
    if not waits:
        return _mesh(case)
    if (split := _unlike(unreachable)) is not None:
        return split
    waiting, reached, apart = ranks_of(waits), set(ranks_of(answered)), ranks_of(unreachable)
    # In the barrier of the whole job, the number in a group is the rank.
    of_all = (e.group_rank for e in barriers if e.rank is None and e.world_size == world)
    waiting = tuple(sorted({*waiting, *(rank for rank in of_all if rank is not None)}))
    others = tuple(r for r in range(world) if r not in waiting)  # who does not wait for anybody to join
    logged = {r for r, record in case.incident.ranks.items() if record.files or record.events}
    address = next((_address(e) for e in unreachable if e.store_host or e.port), "")
    counts = [(e.joined, e.expected) for e in timeouts] + [(e.joined, e.world_size) for e in barriers]
    joined, of = next(((n, of) for n, of in counts if n is not None and of), (None, 0))
    # A rank that still waits where the text ends may have waited for moments only.
    still = all(isinstance(e, StoreBarrier) and e.waiting for e in waits)
    missing: tuple[int, ...] = ()
    local = False
    if apart and reached and reached.isdisjoint(apart):
        missing = apart if joined in (None, of - len(apart)) else ()
        why = f"{who(apart)} found no store{address}, while the others wait at theirs"
    elif joined is not None:
        # The host of the store may be the only one that reports its wait; it counts itself.
        came = {r for r, at in statements.whereabouts.items() if forms_a_group(at.stack)}
        came |= {*waiting, *statements.ranks(Announced)}
        arrived = came if came - {0} or len(came) == joined else logged
        lacking = tuple(r for r in range(world) if r not in arrived)
        # Where most are missing, the text has the lines of the few that came, and shows nothing of the others.
        missing = lacking if len(lacking) == of - joined and (not still or joined >= len(lacking)) else ()
        these = f" ({ranks_phrase(waiting)})" if len(waiting) == joined and not missing else ""
        why = f"only {joined} of {of} ranks{these} {'had joined when the text ended' if still else 'joined'}"
        why += f"; {who(missing)} did not" if missing else ""
    elif unreachable:
        heard = any(0 in group.ranks for e in statements.all(Excerpt) for group in e.groups)
        missing = (0,) if apart and 0 not in apart and not heard else ()  # who prints was started
        why = f"the rendezvous store did not answer{address}"
    else:
        waited = {e.waited_rank for e in timeouts if e.waited_rank is not None}
        local = bool(waited & set(waiting))  # these are numbers within a group of fewer ranks
        missing, others = (tuple(sorted(waited)), others) if not local else ((), ())
        # One log of all ranks contains all that wait: the one that does not is the one that they wait for.
        one_log = len({e.file for e in waits}) == 1 and len(waiting) >= _WITNESSES
        if not missing and len(others) == 1 and (one_log or logged.issuperset(others)):
            missing = others
        if missing and (work := _at_work(case)) is not None:
            were = f"{who(missing)} {agree(missing, 'was', 'were')} probably still at work"
            why = f"{were} when the others gave up waiting at the store: that work belongs before init_process_group, or needs a longer timeout"
            return answer("stuck_rank", missing, why, _BEFORE, evidence=[work, *waits[:3]])
        why = f"the rendezvous did not complete{f': the others are waiting for {who(missing)}' if missing else ''}"
    one = len(missing) < 2
    check = f"Check that {who(missing, 'every rank')} {'was' if one else 'were'} started and {'reaches' if one else 'reach'} MASTER_ADDR:MASTER_PORT."
    if local:
        numbers = ", ".join(map(str, sorted(waited)))
        why = f"{who(waiting)} {agree(waiting, 'is', 'are')} waiting for member {numbers} of a group that {agree(waiting, 'it creates', 'they create')} (a number within that group)"
        check = f"Find out which member did not join, from the logs of all ranks up to that moment; if none of them had failed: {LISTS[0].lower()}{LISTS[1:]}"
    if joined is not None and joined > of:
        why = f"{joined} workers had joined a barrier of {of} ranks: its store also counts those of a second start or of an earlier attempt"
        check = "Check whether the job was started twice, or a restart uses the store of what came before: end what is left of that, and start with a free port."
    # That nobody answers does not show whether rank 0, its address or the network is why.
    proved = missing and not logged.intersection(missing) and bool(answered)
    strength = 0 if still else 2 if proved else 1
    return _of_the_missing(case, missing, waits, (why, check), strength)


def _of_the_missing(
    case: Case, missing: Sequence[int], waits: Sequence[Event], said: tuple[str, str], strength: int
) -> Match:
    """Return the answer (`said`: why, and what to check) with what the missing rank printed and does, as far as its lines and its stack show it."""
    why, check = said
    printed, late = _last_of(case, missing, waits)
    if printed:
        when = "when they had given up" if late else "last"
        why = f"{who(missing)} did not join the others{' in time' if late else ''}; it printed '{printed}' {when}; {why}"
        check = f"Find out what {who(missing)} does after that line (py-spy dump --pid PID): a lock, a download, a slow host or file system; and give init_process_group a longer timeout if it only comes later."
    evidence: list[Event | Evidence] = [*sorted(waits, key=lambda e: e.rank not in missing)[:4]]
    busy = {r: at.stack for r, at in case.stacks.items() if r in missing and not forms_a_group(at.stack)}
    for rank, stack in busy.items():
        if (known := doing(stack)) is not None:
            why = f"rank {rank} did not join the others; it is {known.doing}; {why}"
            check = known.remedy or check
        strength, evidence = 2, [case.seen_at(rank), *evidence[:3]]
    return answer("init_hang", missing, why, check, _IDS, strength=strength, evidence=evidence)


def _unlike(events: Sequence[StoreUnreachable]) -> Match | None:
    """Return the answer for ranks that look for the store at different ports or hosts: those that differ from most others are named."""
    at = {e.rank: _address(e) for e in events if e.rank is not None and e.port}
    ranks_at: dict[str, list[int]] = defaultdict(list)
    for rank, place in sorted(at.items()):
        ranks_at[place].append(rank)
    if len(ranks_at) < 2:
        return None
    parts = sorted(ranks_at.values(), key=len)
    most = parts[-1]
    odd = sorted(set(at).difference(most)) if 2 * len(most) > len(at) + 1 else []
    where = "; ".join(f"{who(ranks)}{place}" for place, ranks in ranks_at.items())
    why = f"the ranks look for the store at different addresses and never meet: {where}"
    fix = "Set MASTER_ADDR and MASTER_PORT once for the whole job, before the processes start (in the batch script, from the job's id): a port that each process picks for itself is another one in each of them."
    return answer("init_hang", odd, why, fix, strength=2, evidence=[*events][:4])


def _at_work(case: Case) -> Evidence | None:
    """Return the progress bar that moved and had not come to its end, which the text of a start shows."""
    groups = ((e.file, g) for e in case.statements.all(Excerpt) for g in e.groups)
    bars = [(file, g) for file, g in groups if g.unfinished and g.count > 1]
    if not bars:
        return None
    file, bar = bars[-1]
    return Evidence("log", f"a progress bar was at: {bar.text}", None, Source(file, bar.numbers[-1]))


def _last_of(case: Case, missing: Sequence[int], waits: Sequence[Event]) -> tuple[str, bool]:
    """Return the last line that the one missing rank printed, and whether it did so after the others had given up; ("", False) of several."""
    gave_up = {e.file: e.line for e in reversed(waits)}
    said = [e for e in case.statements.all(Printed) if e.rank in missing]
    if len(missing) != 1 or not said:
        return "", False
    return said[-1].texts[-1][:_QUOTED], said[-1].numbers[-1] > gave_up.get(said[-1].file, sys.maxsize)


def _mesh(case: Case) -> Match | None:
    """Return the answer where gloo tried a rank's address in vain. It names nobody: the address may be one of an earlier attempt."""
    tried = [e for e in case.statements.all(StoreUnreachable) if e.what == "peer"]
    if not tried:
        return None
    place = next((_address(e) for e in tried if e.port), "")
    earlier = any(note.code == "several_attempts" for note in case.incident.notes)
    left = ", which an earlier attempt may have left in the store" if earlier else ""
    look = "Find out whether every rank had reached init_process_group when its peers connected to it."
    check = "If they had, check which address each announces: GLOO_SOCKET_IFNAME, and what its host's own name resolves to."
    why = f"gloo could not connect to a peer{place}{left}"
    return answer("init_hang", (), why, look, check, evidence=tried[:3])


def _address(event: StoreUnreachable) -> str:
    """Return ` at 10.0.0.7:29500`, with the host or the port alone where the line gives no more."""
    place = ":".join(str(part) for part in (event.store_host, event.port) if part)
    return f" at {place}" if event.store_host or not event.port else f" at port {place}"


def ranks_of(events: Iterable[Event]) -> tuple[int, ...]:
    """Return the ranks (global) of events."""
    return tuple(sorted({e.rank for e in events if e.rank is not None}))
