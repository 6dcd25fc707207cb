"""Rules about starts: stores, rendezvous and groups that never formed."""

from __future__ import annotations

from collections import defaultdict
from functools import partial

from hangscope.causes.agreement import LISTS
from hangscope.causes.case import Case, Match, answer, at, of_outlier, who
from hangscope.causes.rendezvous import at_the_store, ranks_of
from hangscope.explain.finding import Nothing
from hangscope.explain.text.excerpt import beyond_the_text
from hangscope.explain.text.group_size import formed, others_of
from hangscope.explain.text.stop import find_stop, says_it_hangs
from hangscope.ingest.files.run_evidence import ELSEWHERE
from hangscope.ingest.job_logs.activity import StoreAccess
from hangscope.ingest.job_logs.last_lines import Printed
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.job_logs.starts import Announced
from hangscope.ingest.nccl.comm import UnmadeCommunicator
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.ingest.torch_logs.store import PortInUse, StoreTimeout
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.knowledge.callsite import forms_a_group, user_frame
from hangscope.model.rankset import agree

_QUOTED = 120  # characters of a line
_ADDRESS = "Compare MASTER_ADDR and MASTER_PORT of all ranks: each needs the address of rank 0's host (or of torchrun's store), which must accept connections at that port."
_AGAIN = "Take the stacks again: a normal start leaves this place within a minute."
_STACKS = "Take a stack of each of these ranks (py-spy dump): the one outside ncclCommInit is the one that is missing."
_ONE_HOST = "If these ranks are on different hosts, NCCL takes two hosts for one, because they have the same name and boot id (clones of one virtual machine): set NCCL_HOSTID to another value on each."
_CONNECT = "Some members cannot connect: check NCCL_SOCKET_IFNAME, firewalls between the hosts, and the NCCL_DEBUG=INFO log of those that did not complete it."


def never_formed(case: Case) -> Match | None:
    """A store, rendezvous or communicator that was never completed."""
    if not isinstance(case.finding, Nothing) and case.solid and not case.from_text:
        return None
    store = partial(at_the_store, world=len(case.incident.ranks))
    rules = (_refused, _communicator, _seen_at_the_store, _left_behind, store, _at_the_start, _announced)
    return next((match for rule in rules if (match := rule(case)) is not None), None)


def _refused(case: Case) -> Match | None:
    """Return the answer for what the store or NCCL itself reports of a start that cannot succeed."""
    if events := case.statements.all(PortInUse):
        ranks = ranks_of(events)
        port = events[0].port
        why = f"port{f' {port}' if port else ''} of the rendezvous store was already in use on its host"
        fix = f"Another process holds port {port or 'MASTER_PORT'}: end the stale process, or choose a free port per job (--rdzv-endpoint host:0, or MASTER_PORT by job id)."
        # Who recorded calls had joined: at that port something else began, or the line is of another start.
        joined = any(r.queues for rank, r in case.incident.ranks.items() if not ranks or rank in ranks)
        return answer("init_hang", ranks, why, fix, strength=1 if joined else 2, evidence=events[:3])
    if shared := case.warned("duplicate_gpu"):
        # Ranks of a smaller communicator are numbered anew.
        own = [e for e in shared if e.rank in (None, e.rank_a, e.peer_rank)]
        named = sorted({r for e in own for r in (e.rank_a, e.peer_rank) if r is not None})
        why = f"{who(named, 'two ranks')} use the same {'GPU' if len(named) <= 2 else 'GPUs'}"
        fix = "Call torch.cuda.set_device(LOCAL_RANK) (not RANK) before the first collective, and check CUDA_VISIBLE_DEVICES per process."
        size = max(len(case.incident.ranks), max(named, default=0) + 1)
        most = len(named) > 2 and 2 * len(named) > size  # the start is wrong, and no rank
        culprits = () if most else named
        return answer("init_hang", culprits, why, fix, _ONE_HOST, strength=2, evidence=shared[:3])
    return _versions(case) or _loopback(case) or _bootstrap(case)


def _versions(case: Case) -> Match | None:
    """Return the answer if NCCL refuses to connect ranks of two versions: the ranks with the rarer version are named if enough ranks are known."""
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
    match = answer("init_hang", rare, why, fix, strength=2 if rare else 1, evidence=evidence)
    return match if events else None


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


def _loopback(case: Case) -> Match | None:
    """Return the answer where processes of several hosts connect to the loopback address: another one announced it as its own."""
    events = [e for e in case.warned("connect") if (e.peer_host or "").startswith("127.")]
    if len({e.host for e in events}) < 2:
        return None
    why = f"the processes connect to {events[0].peer_host}, their own loopback address: the process that they look for, usually rank 0, announced it, because NCCL took the interface lo there"
    fix = "Set NCCL_SOCKET_IFNAME (and GLOO_SOCKET_IFNAME) on every host to the interface that the other hosts reach, without lo."
    return answer("init_hang", (), why, fix, strength=2, evidence=events[:3])


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
            why = f"the initialization of a communicator of {event.nranks} ranks never completed: all of them started it, and {who(stuck)} did not complete it"
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
    culprits = apart if there and 2 * len(apart) <= len(ranks) else []
    if not elsewhere and (not apart or (not there and absent == [0])):
        culprits = absent
    theirs, others = ({seen[rank].address for rank in part} for part in (apart, there))
    differ = bool(culprits and apart and there) and theirs.isdisjoint(others)
    views: dict[str, list[int]] = defaultdict(list)
    for rank in (*apart, *there):
        views[f"{seen[rank].reaches} the store at {seen[rank].address}"].append(rank)
    verbs = {way: ("has", "have") if way.startswith("no ") else ("is", "are") for way in views}
    parts = [f"{who(some)} {agree(some, *verbs[way])} {way}" for way, some in views.items()]
    parts += [f"{who(absent)} {'may be on another node' if elsewhere else 'did not join'}"] if absent else []
    strength, evidence = 2 if differ else int(bool(culprits)), [seen[rank] for rank in (*apart, *there)[:4]]
    return answer("init_hang", culprits, "; ".join(parts), _ADDRESS, strength=strength, evidence=evidence)


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


def _announced(case: Case) -> Match | None:
    """Return the answer where some of all ranks announced that they came, nothing followed, and somebody says that the job hangs."""
    statements, events = case.statements, case.statements.all(Announced)
    came = {e.rank for e in events if e.rank is not None}
    world = max((e.world_size for e in events if e.world_size), default=0)
    absent = others_of(world, came)
    if not (came and absent) or statements.all(Progress, WatchdogTimeout) or not says_it_hangs(statements):
        return None
    if len(formed(statements)) == world:
        return None  # NCCL shows that all of them came
    why = f"{len(came)} of {world} ranks announced themselves ({who(came)}); {who(absent)} did not"
    look = f"Find out whether {who(absent)} {agree(absent, 'was', 'were')} started at all: the log of {agree(absent, 'its', 'their')} node, and what starts the processes there."
    said = [e for e in statements.all(Printed) if e.rank in absent]
    if len(absent) == 1 and said:  # it runs, and is at something else
        why += f"; its last line is '{said[-1].texts[-1][:_QUOTED]}'"
        look = f"Take a stack of {who(absent)} (py-spy dump --pid PID), twice: whether that work goes on; it belongs before the start of the job, or needs a longer timeout."
        return answer("init_hang", absent, why, look, evidence=[*said[-1:], *events[:3]])
    return answer("init_hang", (), why, look, strength=0, evidence=events[:4], suspects=absent)
