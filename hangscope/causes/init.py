"""Rules about beginnings: stores, rendezvous and groups that never formed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from hangscope.causes.case import Case, Match, answer, of_odd_line, who
from hangscope.explain.finding import Nothing
from hangscope.explain.text.excerpt import beyond_the_text
from hangscope.explain.text.stop import find_stop
from hangscope.ingest.files.run_evidence import ELSEWHERE
from hangscope.ingest.job_logs.activity import StoreAccess
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.nccl.unmade import UnmadeCommunicator
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.ingest.torch_logs.store import (
    PortInUse,
    RendezvousBegun,
    RendezvousTimeout,
    StoreTimeout,
    StoreUnreachable,
)
from hangscope.ingest.torch_logs.store_barrier import StoreBarrier
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import CallFingerprint, GlooTimeout, MonitoredBarrier
from hangscope.knowledge.callsite import forms_a_group
from hangscope.model.incident import Event, Stack
from hangscope.model.rankset import agree, ranks_phrase

_CONFIG = 32  # lines that an agent prints of its settings
_PATIENCE = 600.0  # seconds that a rendezvous may take
_WITNESSES = 2  # ranks that waited, at least, for one that did not to be told from them


def never_formed(case: Case) -> Match | None:
    """A store, rendezvous or communicator that never became whole."""
    if not isinstance(case.finding, Nothing) and case.solid and not case.from_text:
        return None
    rules = (
        _port,
        _duplicate,
        _versions,
        _bootstrap,
        _communicator,
        _seen_at_the_store,
        _left_behind,
        _store,
        _at_the_start,
        _alone,
    )
    return next((match for rule in rules if (match := rule(case)) is not None), None)


def _port(case: Case) -> Match | None:
    events = case.statements.all(PortInUse)
    if not events:
        return None
    # The store's server is started by process 0 alone, unless an agent has one (torch/distributed/rendezvous.py).
    ranks = _ranks(events) or ((0,) if any(map(_binds, case.statements.all(RankException))) else ())
    port = events[0].port
    return answer(
        "init_hang",
        ranks,
        f"port{f' {port}' if port else ''} of the rendezvous store was already in use on its host",
        f"Another process holds port {port or 'MASTER_PORT'}: end the stale process, or choose a free port per job (--rdzv-endpoint host:0, or MASTER_PORT by job id).",
        strength=2,
        evidence=events[:3],
    )


def _binds(error: RankException) -> bool:
    """Return whether a process that joins a job could not listen itself."""
    return "server socket has failed" in error.message and any(
        frame.name == "init_process_group" or "init_process_group(" in (error.code or "")
        for frame in error.frames
    )


def _duplicate(case: Case) -> Match | None:
    events = case.warned("duplicate_gpu")
    if not events:
        return None
    # Ranks of a smaller communicator are numbered anew.
    own = [e for e in events if e.rank in (None, e.rank_a)]
    named = sorted({r for e in own for r in (e.rank_a, e.peer_rank) if r is not None})
    return answer(
        "init_hang",
        named,
        f"{who(named)} use the same {'GPU' if len(named) == 2 else 'GPUs'}"
        if named
        else "two ranks use one GPU",
        "Call torch.cuda.set_device(LOCAL_RANK) (not RANK) before the first collective, and check CUDA_VISIBLE_DEVICES per process.",
        strength=2,
        evidence=events[:3],
    )


def _versions(case: Case) -> Match | None:
    """NCCL's refusal to join ranks of two versions: those of the rarer one are odd, where so many ranks are known that it is rare."""
    events = case.warned("version_mismatch")
    if not events:
        return None
    # Whose numbers are the job's own where its printer's are: those of a smaller communicator count its members.
    said = [(e.peer_rank, e.peer_version) for e in events if e.rank in (None, e.rank_a)]
    said += [(e.rank if e.rank is not None else e.rank_a, e.version) for e in events]
    told = {rank: version for rank, version in said if rank is not None and version is not None}
    ranks_of: dict[int, list[int]] = defaultdict(list)
    for rank, version in sorted(told.items()):
        ranks_of[version].append(rank)
    sides = sorted(ranks_of.values(), key=len)
    known = len(sides) == 2 and 2 * len(sides[1]) > max(len(case.incident.ranks), *told)
    odd = sides[0] if known else []
    whose = "; ".join(f"{who(ranks)}: {version}" for version, ranks in sorted(ranks_of.items()))
    return answer(
        "init_hang",
        odd,
        f"ranks run different versions of NCCL{f' ({whose})' if whose else ''}, which refuses to join them",
        "Start all hosts from one image, and compare torch.cuda.nccl.version() and LD_LIBRARY_PATH on each of them.",
        strength=2 if odd else 1,
        evidence=sorted(events, key=lambda e: e.rank not in odd)[:3],
    )


def _bootstrap(case: Case) -> Match | None:
    """NCCL's own word on ranks that could not begin together."""
    warnings = case.warned("bootstrap")
    if not warnings or case.statements.all(WatchdogTimeout, Progress) or case.graph.open_calls:
        return None
    twice = sorted({e.peer_rank for e in warnings if e.peer_rank is not None})
    return answer(
        "init_hang",
        twice,
        f"NCCL's bootstrap failed{f': two processes registered as {who(twice)}' if twice else ''}",
        "Check that every process has its own rank and port, that NCCL_SOCKET_IFNAME names an interface that each host has, and that nothing else connects to the bootstrap port.",
        strength=2 - min(e.tier for e in warnings),
        evidence=warnings[:3],
    )


def _communicator(case: Case) -> Match | None:
    """An NCCL communicator that some members began and not all completed."""
    for event in case.statements.all(UnmadeCommunicator):
        if event.phase == "fewer":
            why = f"{who(event.absent)} did not complete a communicator of {event.nranks} ranks as the others did; the logs do not show which of them never entered it"
            # NCCL up to 2.22 prints nothing of those who wait in bootstrap.
            advice = "Take a stack of each of these ranks (py-spy dump): the one outside ncclCommInit is the one that is missing."
            return answer("init_hang", (), why, advice, strength=0, evidence=[event])
        unproved = beyond_the_text(case.incident, case.statements) & set(event.absent)
        if unproved and find_stop(case.statements) is None:
            continue  # the text may end, or begin, in the middle of a start that went well
        return _incomplete(case, event, bool(unproved))
    return None


def _incomplete(case: Case, event: UnmadeCommunicator, unproved: bool) -> Match:
    """Return the answer for a communicator whose members began it: the absent are to blame, or those who cannot connect.

    `unproved`: of some of the absent nothing shows that their lines should be here, so nobody is named.
    """
    absent, unknown, stuck = event.absent, event.absent_unknown, event.blocked
    why = f"a communicator of {event.nranks} ranks was never completed"
    if absent or unknown:
        absentees = f"{unknown + len(absent)} of its members" if unknown else who(absent)
        culprits = () if unknown or unproved else absent
        why = f"{why}: {absentees} never entered it" + (
            f", and {who(stuck)} {agree(stuck, 'is', 'are')} blocked" if stuck else ""
        )
        advice = f"Find where {absentees} {agree(range(unknown + len(absent)), 'was', 'were')} when the others entered it: not started, crashed before, or in another collective."
    else:
        culprits = stuck if event.complete and len(stuck) <= len(event.complete) else ()
        why = f"{why}: all {event.nranks} of them began it, and {who(stuck)} did not complete it"
        advice = "Some members cannot connect: check NCCL_SOCKET_IFNAME, firewalls between the hosts, and the NCCL_DEBUG=INFO log of those that did not complete it."
    # Whoever ended the job in its start may have done so within the moment that a start takes.
    sure = absent and culprits and not (case.statements.external or event.rank_assumed)
    return answer("init_hang", culprits, why, advice, strength=2 if sure else 1, evidence=[event])


def _seen_at_the_store(case: Case) -> Match | None:
    """Return the answer where live ranks were seen on their way to the store: who does not reach it, or was not started."""
    seen = case.statements.by_rank(StoreAccess)
    if not seen or not all(forms_a_group(w.stack) for rank, w in case.stacks.items() if rank in seen):
        return None  # a rank that has not come that far is at work elsewhere
    world, there = len(case.incident.ranks), [rank for rank, event in seen.items() if event.is_there]
    apart = [rank for rank in seen if rank not in there]
    absent = sorted(set(case.incident.ranks) - set(seen) - set(case.stacks))
    apart_nodes = any(note.code == ELSEWHERE for note in case.incident.notes)
    # a node that has all other ranks is the only one, where one rank was forgotten
    elsewhere = (apart_nodes and (len(absent) > 1 or world < 3)) or any(
        case.incident.ranks[rank].host for rank in absent
    )
    theirs, other = ({seen[rank].address for rank in ranks} for ranks in (there, apart))
    shown, given = " and ".join(sorted(theirs)), " and ".join(sorted(other))
    differ = bool(theirs) and theirs.isdisjoint(other) and 2 * len(apart) <= world
    culprits = apart if 2 * len(apart) <= world else []
    if there and not apart:
        unknown = f"whether {who(absent)} started cannot be seen here"
        culprits, why = (
            [] if elsewhere else absent,
            f"{who(there)} {agree(there, 'is', 'are')} waiting at the store; {unknown if elsewhere else f'{who(absent)} did not join'}",
        )
    elif not there:
        culprits, why = (
            absent if absent == [0] and not elsewhere else [],
            f"{who(apart)} {agree(apart, 'finds', 'find')} no store at {given}",
        )
    elif differ:
        why = f"{who(apart)} {agree(apart, 'was', 'were')} given {given} as the store's address, the others {shown}"
    else:
        why = f"{who(apart)} {agree(apart, 'does', 'do')} not reach the store at {given}, and {who(there)} {agree(there, 'does', 'do')}"
    if there and not apart and not absent:
        return None
    return answer(
        "init_hang",
        culprits,
        why,
        "Compare MASTER_ADDR and MASTER_PORT of all ranks: each needs the address of rank 0's host (or of torchrun's store), which must accept connections at that port.",
        strength=2 if differ and apart else int(bool(culprits)),
        evidence=[seen[rank] for rank in (*apart, *there)[:4]],
    )


def _left_behind(case: Case) -> Match | None:
    """Return the answer for the few ranks that are still joining while the others call collectives: they wait for other ranks, or at another store."""
    placed = case.statements.whereabouts
    joining = tuple(sorted(r for r, w in placed.items() if w.op == "init_process_group"))
    others = tuple(sorted(r for r, w in placed.items() if w.inside and r not in joining))
    if not joining or 2 * len(joining) >= len(joining) + len(others):
        return None
    told = [e for r in joining for e in case.statements.of(r, StoreTimeout, RankException)[:1]]
    keys = sorted({e.waited_rank for e in told if isinstance(e, StoreTimeout) and e.waited_rank is not None})
    awaited = f", waiting for {who(keys)}" if keys else ""
    return answer(
        "init_hang",
        joining,
        f"{who(joining)} {agree(joining, 'is', 'are')} still in init_process_group{awaited}, while the others call collectives without {agree(joining, 'it', 'them')}",
        f"Compare WORLD_SIZE, RANK, MASTER_ADDR, MASTER_PORT and the rendezvous id of {who(joining)} with those of the others.",
        evidence=[*told[:3], *(of_odd_line(o) for o in case.statements.outlier_lines if o.ranks == joining)],
    )


def _store(case: Case) -> Match | None:
    # The store that the watchdog finds gone had been there, and is gone when a job ends, too.
    unreachable = [e for e in case.statements.all(StoreUnreachable) if not e.what]
    timeouts, barriers = case.statements.all(StoreTimeout), case.statements.all(StoreBarrier)
    answered: list[Event] = [*timeouts, *barriers, *case.statements.all(RendezvousTimeout)]
    waits = [*answered, *unreachable]
    running = case.statements.all(CallFingerprint, GlooTimeout, WatchdogTimeout, MonitoredBarrier, Progress)
    if running or (case.finding.culprits and not case.from_text):
        return None
    if not waits:
        return _mesh(case)
    world, tellers, reached = range(len(case.incident.ranks)), _ranks(waits), _ranks(answered)
    others = tuple(r for r in world if r not in tellers)  # who does not wait for anybody to join
    logged = {r for r, record in case.incident.ranks.items() if record.files or record.events}
    asked = [e for e in unreachable if e.store_host or e.port]
    apart, address = _ranks(asked), next(map(_address, asked), "")
    if 2 * len(apart) <= len(world):  # else they may be right about where the store should be
        inside = {rank for rank, where in case.stacks.items() if forms_a_group(where.stack)}
        reached = tuple(sorted({*reached, *inside - set(apart)}))
    counts = [(e.joined, e.expected) for e in timeouts] + [(e.joined, e.world_size) for e in barriers]
    joined, of = next(((n, of) for n, of in counts if n is not None and of), (None, 0))
    # Who still waits where the text ends may have waited for moments only.
    still = all(isinstance(e, StoreBarrier) and e.waiting for e in waits)
    if apart and reached and set(apart).isdisjoint(reached):
        missing, why = apart, f"{who(apart)} found no store{address}, while the others wait at theirs"
    elif joined is not None:
        # The host of the store may be the only one that tells of its wait.
        missing = others if set(tellers) - {0} else tuple(r for r in world if r not in logged)
        why = f"only {joined} of {of} ranks {'had joined when the text ends' if still else 'joined'}"
    elif unreachable:
        missing = (0,) if apart and 0 not in apart else ()
        why = f"the rendezvous store did not answer{address}"
    else:
        # Rank 0 serves the store that answered: where its log is not here, it may be waiting for others itself.
        keys = {r for e in timeouts if (r := e.waited_rank) is not None and r not in tellers}
        missing = tuple(sorted(r for r in keys if r or r in logged))
        # One log of all of them holds whoever waits: who does not wait is the one for whom they do.
        one_log = len({e.file for e in waits}) == 1 and len(tellers) >= _WITNESSES
        if not missing and len(others) == 1 and (one_log or logged.issuperset(others)):
            missing = others
        why = f"the rendezvous did not complete{f': the others are waiting for {who(missing)}' if missing else ''}"
    if joined is not None and len(missing) != of - joined:
        missing = ()
    if joined is not None and missing:
        why += f"; {who(missing)} did not"
    check = "Check that every rank was started and reaches MASTER_ADDR:MASTER_PORT."
    if logged and len(logged) < len(world):
        check = f"Check which of the {len(world)} ranks was not started: logs were collected of {ranks_phrase(logged)} only."
    if joined is not None and joined > of:
        why = f"{joined} workers had joined a barrier of {of} ranks: its store also counts those of a second start or of an earlier attempt"
        check = "Check whether the job was started twice, or a restart uses the store of what came before: end what is left of that, and start with a free port."
    if missing:
        check = f"Check that {who(missing)} was started and reaches MASTER_ADDR:MASTER_PORT."
    return answer(
        "init_hang",
        missing,
        why,
        check,
        "Use one rendezvous id and one free port per job; a firewall or a wrong network interface looks the same.",
        strength=0 if still else 2 if missing and not logged.intersection(missing) else 1,
        evidence=sorted(waits, key=lambda e: e.rank not in missing)[:4],
    )


def _mesh(case: Case) -> Match | None:
    """Return the answer where gloo tried a rank's address in vain. It names nobody: a rank that came may be listed at an address of its last attempt."""
    tried = [e for e in case.statements.all(StoreUnreachable) if e.what == "peer"]
    if not tried:
        return None
    place = next((_address(e) for e in tried if e.port), "")
    earlier = any(note.code == "several_attempts" for note in case.incident.notes)
    left = ", which an earlier attempt may have left in the store" if earlier else ""
    return answer(
        "init_hang",
        (),
        f"gloo could not connect to a peer{place}{left}",
        "Find out whether every rank had reached init_process_group when its peers connected to it.",
        "If they had, check which address each announces: GLOO_SOCKET_IFNAME, and what its host's own name resolves to.",
        evidence=tried[:3],
    )


def _at_the_start(case: Case) -> Match | None:
    """Return the answer if all stacks that were taken are where a group forms; it names ranks without the store that others have."""
    stood = case.stacks
    if not stood or not all(forms_a_group(where.stack) for where in stood.values()):
        return None
    absent = sorted(set(case.incident.ranks) - set(stood))
    of_whom = f"; {who(absent)} may not have arrived" if absent else ""
    storeless = tuple(r for r, where in sorted(stood.items()) if _connects(where.stack))
    culprits = storeless if 0 not in storeless and 2 * len(storeless) <= len(stood) and not absent else ()
    why = f"{who(stood)} {agree(stood, 'is', 'are')} waiting where a group is created{of_whom}"
    if culprits:
        why = f"{who(culprits)} {agree(culprits, 'is', 'are')} still connecting to the store, while the others wait in the rendezvous"
    return answer(
        "init_hang",
        culprits,
        why,
        "Compare MASTER_ADDR, MASTER_PORT, the world size and the rendezvous id of each rank, and count the processes: ranks that use two addresses, or expect one that was not started, wait for ever.",
        "Take the stacks again: a normal start leaves this place within a minute.",
        strength=0,
        evidence=[case.stands(rank) for rank in list(stood)[:4]],
    )


def _connects(stack: Stack) -> bool:
    """Return whether a rank is still connecting to the store (torch/distributed/rendezvous.py), which comes before all else."""
    return bool(stack) and stack[0].name == "_create_c10d_store"


def _alone(case: Case) -> Match | None:
    """Return the answer where an agent began and no rank spoke until an end from outside came, longer than a start takes."""
    end, begun = case.statements.external, case.statements.all(RendezvousBegun)
    last = max(begun, key=lambda e: e.line, default=None)
    if end is None or last is None or any(e.complete or e.file != end.file for e in begun):
        return None
    spoke = any(not e.by_launcher for kinds in case.statements.kinds.values() for e in kinds)
    waited = (end.in_the_year or 0.0) - (last.in_the_year or 0.0)
    near = 0 < end.line - last.line <= _CONFIG
    if not near or spoke or last.in_the_year is None or waited <= _PATIENCE:
        return None
    return answer(
        "init_hang",
        (),
        "an agent entered its rendezvous and printed nothing more until the job was terminated: its workers did not start",
        "Check the agents of the other nodes: whether each was started, with the same endpoint and rendezvous id, and reaches that address.",
        strength=0,
        evidence=[*begun[:2], end],
    )


def _address(event: StoreUnreachable) -> str:
    """Return ` at 10.0.0.7:29500`, with the host or the port alone where the line gives no more."""
    host, port = event.store_host or "", event.port or ""
    return f" at {host}:{port}" if host and port else f" at {host}" if host else f" at port {port}"


def _ranks(events: Sequence[Event]) -> tuple[int, ...]:
    return tuple(sorted({e.rank for e in events if e.rank is not None}))
