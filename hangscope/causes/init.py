"""Rules about starts: stores, rendezvous and groups that never formed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from hangscope.causes.agreement import LISTS
from hangscope.causes.case import Case, Match, answer, at, of_outlier, who
from hangscope.explain.finding import Nothing
from hangscope.explain.text.excerpt import beyond_the_text
from hangscope.explain.text.stop import find_stop
from hangscope.ingest.files.run_evidence import ELSEWHERE
from hangscope.ingest.job_logs.activity import StoreAccess
from hangscope.ingest.job_logs.excerpt import Excerpt
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.nccl.comm import UnmadeCommunicator
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.ingest.torch_logs.store import (
    PortInUse,
    RendezvousTimeout,
    StoreBarrier,
    StoreTimeout,
    StoreUnreachable,
)
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import CallFingerprint, GlooTimeout, MonitoredBarrier
from hangscope.knowledge.callsite import forms_a_group, user_frame
from hangscope.model.conclusion import Evidence, Source
from hangscope.model.incident import Event
from hangscope.model.rankset import agree

_WITNESSES = 2  # ranks that wait, at least, to tell a rank that does not from them
_ADDRESS = "Compare MASTER_ADDR and MASTER_PORT of all ranks: each needs the address of rank 0's host (or of torchrun's store), which must accept connections at that port."
_AGAIN = "Take the stacks again: a normal start leaves this place within a minute."
_BEFORE = "Do the work of one rank before init_process_group, or with more processes (num_proc), or give the group a longer timeout."
_STACKS = "Take a stack of each of these ranks (py-spy dump): the one outside ncclCommInit is the one that is missing."
_CONNECT = "Some members cannot connect: check NCCL_SOCKET_IFNAME, firewalls between the hosts, and the NCCL_DEBUG=INFO log of those that did not complete it."
_IDS = (
    "Use one rendezvous id and one free port per job; a firewall or a wrong network interface looks the same."
)


def never_formed(case: Case) -> Match | None:
    """A store, rendezvous or communicator that was never completed."""
    if not isinstance(case.finding, Nothing) and case.solid and not case.from_text:
        return None
    rules = (_refused, _communicator, _seen_at_the_store, _left_behind, _store, _at_the_start)
    return next((match for rule in rules if (match := rule(case)) is not None), None)


def _refused(case: Case) -> Match | None:
    """Return the answer for what the store or NCCL itself reports of a start that cannot succeed."""
    if events := case.statements.all(PortInUse):
        # Process 0 alone starts the store's server, unless an agent has one (torch/distributed/rendezvous.py).
        ranks = _ranks(events) or ((0,) if any(map(_binds, case.statements.all(RankException))) else ())
        port = events[0].port
        why = f"port{f' {port}' if port else ''} of the rendezvous store was already in use on its host"
        fix = f"Another process holds port {port or 'MASTER_PORT'}: end the stale process, or choose a free port per job (--rdzv-endpoint host:0, or MASTER_PORT by job id)."
        return answer("init_hang", ranks, why, fix, strength=2, evidence=events[:3])
    if shared := case.warned("duplicate_gpu"):
        # Ranks of a smaller communicator are numbered anew.
        own = [e for e in shared if e.rank in (None, e.rank_a)]
        named = sorted({r for e in own for r in (e.rank_a, e.peer_rank) if r is not None})
        why = f"{who(named, 'two ranks')} use the same {'GPU' if len(named) <= 2 else 'GPUs'}"
        fix = "Call torch.cuda.set_device(LOCAL_RANK) (not RANK) before the first collective, and check CUDA_VISIBLE_DEVICES per process."
        return answer("init_hang", named, why, fix, strength=2, evidence=shared[:3])
    return _versions(case) or _bootstrap(case)


def _binds(error: RankException) -> bool:
    """Return whether a process that joins a job could not listen itself."""
    joins = (f.name == "init_process_group" for f in error.frames)
    joins_by_code = "init_process_group(" in (error.code or "")
    return "server socket has failed" in error.message and (any(joins) or joins_by_code)


def _versions(case: Case) -> Match | None:
    """Return the answer where NCCL refuses to join ranks of two versions: those of the rarer one are named, where so many ranks are known that it is rare."""
    events = case.warned("version_mismatch")
    # Peers are the job's own ranks if their printer is: those of a smaller communicator count its members.
    found = [(e.peer_rank, e.peer_version) for e in events if e.rank in (None, e.rank_a)]
    found += [(e.rank if e.rank is not None else e.rank_a, e.version) for e in events]
    ranks_of: dict[int, set[int]] = defaultdict(set)
    for rank, version in found:
        if rank is not None and version is not None:
            ranks_of[version].add(rank)
    parts = sorted(ranks_of.values(), key=len)
    known = len(parts) == 2 and 2 * len(parts[1]) > max(len(case.incident.ranks), *parts[0], *parts[1])
    rare = sorted(parts[0]) if known else []
    which = "; ".join(f"{who(ranks)}: {version}" for version, ranks in sorted(ranks_of.items()))
    why = f"ranks run different versions of NCCL{f' ({which})' if which else ''}, which refuses to join them"
    fix = "Start all hosts from one image, and compare torch.cuda.nccl.version() and LD_LIBRARY_PATH on each of them."
    evidence = sorted(events, key=lambda e: e.rank not in rare)[:3]
    return (
        answer("init_hang", rare, why, fix, strength=2 if rare else 1, evidence=evidence) if events else None
    )


def _bootstrap(case: Case) -> Match | None:
    """Return the answer for NCCL's own report of ranks that could not start together."""
    warnings = case.warned("bootstrap")
    if not warnings or case.statements.all(WatchdogTimeout, Progress) or case.graph.open_calls:
        return None
    twice = sorted({e.peer_rank for e in warnings if e.peer_rank is not None})
    why = f"NCCL's bootstrap failed{f': two processes registered as {who(twice)}' if twice else ''}"
    fix = "Check that every process has its own rank and port, that NCCL_SOCKET_IFNAME names an interface that each host has, and that nothing else connects to the bootstrap port."
    strength = 2 - min(e.tier for e in warnings)
    return answer("init_hang", twice, why, fix, strength=strength, evidence=warnings[:3])


def _communicator(case: Case) -> Match | None:
    """Return the answer for an NCCL communicator that some members began and not all completed: the absent are named, or those who cannot connect."""
    for event in case.statements.all(UnmadeCommunicator):
        absent, unknown = event.absent, event.absent_unknown
        if few := event.other_size:
            why = f"{who(few)} created a communicator of {event.of_other_size} ranks that the others created with {event.nranks}: it never forms"
            return answer("init_hang", few, why, LISTS, strength=2, evidence=[event])
        if event.phase == "fewer":  # NCCL up to 2.22 prints nothing of those who wait in bootstrap
            why = f"{who(absent)} did not complete a communicator of {event.nranks} ranks as the others did; the logs do not show which of them never entered it"
            return answer("init_hang", (), why, _STACKS, strength=0, evidence=[event])
        unproved = beyond_the_text(case.incident, case.statements) & set(absent)
        if unproved and find_stop(case.statements) is None:
            continue  # the text may end, or begin, in the middle of a start that went well
        stuck = event.blocked
        why = f"a communicator of {event.nranks} ranks was never completed"
        if not (absent or unknown):
            culprits = stuck if event.complete and len(stuck) <= len(event.complete) else ()
            why = f"{why}: all {event.nranks} of them began it, and {who(stuck)} did not complete it"
            return answer("init_hang", culprits, why, _CONNECT, evidence=[event])
        culprits = () if unknown or unproved else absent
        absentees = f"{unknown + len(absent)} of its members" if unknown else who(absent)
        blocked = f", and {who(stuck)} {agree(stuck, 'is', 'are')} blocked" if stuck else ""
        why = f"{why}: {absentees} never entered it{blocked}"
        were = agree(range(unknown + len(absent)), "was", "were")
        look = f"Find where {absentees} {were} when the others entered it: not started, crashed before, or in another collective."
        # Whoever ended the job in its start may have done so within the moment that a start takes.
        sure = culprits and not (case.statements.external or event.rank_assumed)
        return answer("init_hang", culprits, why, look, strength=2 if sure else 1, evidence=[event])
    return None


def _seen_at_the_store(case: Case) -> Match | None:
    """Return the answer where live ranks were seen on their way to the store: which of them do not reach it, or were not started."""
    seen, ranks = case.statements.by_rank(StoreAccess), case.incident.ranks
    if not all(forms_a_group(w.stack) for rank, w in case.stacks.items() if rank in seen):
        return None  # a rank that is past the store is at work elsewhere
    there = [rank for rank, event in seen.items() if event.is_there]
    apart = [rank for rank in seen if rank not in there]
    absent = sorted(set(ranks) - set(seen) - set(case.stacks))
    if not apart and not (there and absent):
        return None
    # A node that has all other ranks is the only one: one rank was forgotten there.
    other_nodes = any(note.code == ELSEWHERE for note in case.incident.notes)
    elsewhere = (other_nodes and (len(absent) > 1 or len(ranks) < 3)) or any(ranks[r].host for r in absent)
    theirs, others = ({seen[rank].address for rank in part} for part in (apart, there))
    given, shown = " and ".join(sorted(theirs)), " and ".join(sorted(others))
    few = 2 * len(apart) <= len(ranks)
    differ = few and bool(apart) and bool(others) and theirs.isdisjoint(others)
    culprits = apart if few else []
    if not apart:
        culprits = [] if elsewhere else absent
        rest = (
            f"whether {who(absent)} started cannot be seen here"
            if elsewhere
            else f"{who(absent)} did not join"
        )
        why = f"{who(there)} {agree(there, 'is', 'are')} waiting at the store; {rest}"
    elif not there:
        culprits = absent if absent == [0] and not elsewhere else []
        why = f"{who(apart)} {agree(apart, 'finds', 'find')} no store at {given}"
    elif differ:
        why = f"{who(apart)} {agree(apart, 'was', 'were')} given {given} as the store's address, the others {shown}"
    else:
        why = f"{who(apart)} {agree(apart, 'does', 'do')} not reach the store at {given}, and {who(there)} {agree(there, 'does', 'do')}"
    strength, evidence = 2 if differ else int(bool(culprits)), [seen[rank] for rank in (*apart, *there)[:4]]
    return answer("init_hang", culprits, why, _ADDRESS, strength=strength, evidence=evidence)


def _left_behind(case: Case) -> Match | None:
    """Return the answer for the few ranks that are still joining while the others call collectives: they wait for other ranks, or at another store."""
    placed = case.statements.whereabouts
    joining = tuple(sorted(r for r, w in placed.items() if w.op == "init_process_group"))
    others = {r for r, w in placed.items() if w.inside}.difference(joining)
    if not joining or len(joining) >= len(others):
        return None
    events = [e for r in joining for e in case.statements.of(r, StoreTimeout, RankException)[:1]]
    are, them = agree(joining, "is", "are"), agree(joining, "it", "them")
    why = f"{who(joining)} {are} still in init_process_group, and the others call collectives without {them}"
    fix = f"Compare WORLD_SIZE, RANK, MASTER_ADDR, MASTER_PORT and the rendezvous id of {who(joining)} with those of the others."
    lines = [of_outlier(o) for o in case.statements.outlier_lines if o.ranks == joining]
    return answer("init_hang", joining, why, fix, evidence=[*events[:3], *lines])


def _store(case: Case) -> Match | None:
    """Return the answer for ranks that waited in vain at a store or rendezvous: for the ranks that are missing there, or for the store."""
    statements, world = case.statements, len(case.incident.ranks)
    # The store that a watchdog finds gone had been there, and is gone when a job ends, too.
    unreachable = [e for e in statements.all(StoreUnreachable) if not e.what]
    timeouts, barriers = statements.all(StoreTimeout), statements.all(StoreBarrier)
    answered: list[Event] = [*timeouts, *barriers, *statements.all(RendezvousTimeout)]
    waits = [*answered, *unreachable]
    running = statements.all(CallFingerprint, GlooTimeout, WatchdogTimeout, MonitoredBarrier, Progress)
    if running or (case.finding.culprits and not case.from_text):
        return None
    if not waits:
        return _mesh(case)
    waiting, reached, apart = _ranks(waits), set(_ranks(answered)), _ranks(unreachable)
    others = tuple(r for r in range(world) if r not in waiting)  # who does not wait for anybody to join
    logged = {r for r, record in case.incident.ranks.items() if record.files or record.events}
    address = next((_address(e) for e in unreachable if e.store_host or e.port), "")
    counts = [(e.joined, e.expected) for e in timeouts] + [(e.joined, e.world_size) for e in barriers]
    joined, of = next(((n, of) for n, of in counts if n is not None and of), (None, 0))
    # A rank that still waits where the text ends may have waited for moments only.
    still = all(isinstance(e, StoreBarrier) and e.waiting for e in waits)
    missing: tuple[int, ...] = ()
    if apart and reached and reached.isdisjoint(apart):
        missing = apart if joined in (None, of - len(apart)) else ()
        why = f"{who(apart)} found no store{address}, while the others wait at theirs"
    elif joined is not None:
        # The host of the store may be the only one that reports its wait.
        lacking = others if set(waiting) - {0} else tuple(r for r in range(world) if r not in logged)
        missing = lacking if len(lacking) == of - joined else ()
        why = f"only {joined} of {of} ranks {'had joined when the text ends' if still else 'joined'}"
        why += f"; {who(missing)} did not" if missing else ""
    elif unreachable:
        missing = (0,) if apart and 0 not in apart else ()
        why = f"the rendezvous store did not answer{address}"
    else:
        missing = tuple(sorted({e.waited_rank for e in timeouts if e.waited_rank is not None} - set(waiting)))
        # One log of all ranks contains all that wait: the one that does not is the one that they wait for.
        one_log = len({e.file for e in waits}) == 1 and len(waiting) >= _WITNESSES
        if not missing and len(others) == 1 and (one_log or logged.issuperset(others)):
            missing = others
        if missing and (work := _at_work(case)) is not None:
            were = f"{who(missing)} {agree(missing, 'was', 'were')} probably still at work"
            why = f"{were} when the others gave up waiting at the store: that work belongs before init_process_group, or needs a longer timeout"
            return answer("stuck_rank", missing, why, _BEFORE, evidence=[work, *waits[:3]])
        why = f"the rendezvous did not complete{f': the others are waiting for {who(missing)}' if missing else ''}"
    check = f"Check that {who(missing, 'every rank')} was started and reaches MASTER_ADDR:MASTER_PORT."
    if joined is not None and joined > of:
        why = f"{joined} workers had joined a barrier of {of} ranks: its store also counts those of a second start or of an earlier attempt"
        check = "Check whether the job was started twice, or a restart uses the store of what came before: end what is left of that, and start with a free port."
    strength = 0 if still else 2 if missing and not logged.intersection(missing) else 1
    evidence = sorted(waits, key=lambda e: e.rank not in missing)[:4]
    return answer("init_hang", missing, why, check, _IDS, strength=strength, evidence=evidence)


def _at_work(case: Case) -> Evidence | None:
    """Return the progress bar that moved and had not come to its end, which the text of a start shows."""
    bars = [
        (e.file, g) for e in case.statements.all(Excerpt) for g in e.groups if g.unfinished and g.count > 1
    ]
    if not bars:
        return None
    file, bar = bars[-1]
    return Evidence("log", f"a progress bar was at: {bar.text}", None, Source(file, bar.numbers[-1]))


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
    return answer(
        "init_hang", (), f"gloo could not connect to a peer{place}{left}", look, check, evidence=tried[:3]
    )


def _at_the_start(case: Case) -> Match | None:
    """Return the answer if all stacks that were taken are where a group forms."""
    stacks = case.stacks
    if not stacks or not all(forms_a_group(where.stack) for where in stacks.values()):
        return None
    absent = sorted(set(case.incident.ranks) - set(stacks))
    rest = f"; {who(absent)} may not have arrived" if absent else ""
    why = f"{who(stacks)} {agree(stacks, 'is', 'are')} waiting where a group is created{rest}"
    facts = [case.seen_at(rank) for rank in list(stacks)[:4]]
    if not absent and case.incident.groups and {where.op for where in stacks.values()} == {"new_group"}:
        frame = user_frame(stacks[min(stacks)].stack)
        why = f"all {len(stacks)} ranks are in new_group{at(frame)}, which does not complete: they probably created another number of groups before, or list other members"
        lines = [of_outlier(o) for o in case.statements.outlier_lines[:2]]
        return answer("init_hang", (), why, LISTS, strength=1, evidence=[*lines, *facts[:2]], frame=frame)
    return answer("init_hang", (), why, _ADDRESS, _AGAIN, strength=0, evidence=facts)


def _address(event: StoreUnreachable) -> str:
    """Return ` at 10.0.0.7:29500`, with the host or the port alone where the line gives no more."""
    place = ":".join(str(part) for part in (event.store_host, event.port) if part)
    return f" at {place}" if event.store_host or not event.port else f" at port {place}"


def _ranks(events: Iterable[Event]) -> tuple[int, ...]:
    return tuple(sorted({e.rank for e in events if e.rank is not None}))
