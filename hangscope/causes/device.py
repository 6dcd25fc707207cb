"""Rules about devices and the network: every rank that was seen issued the collective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import chain
from math import inf

from hangscope.causes.case import Case, Match, answer, quote, who
from hangscope.causes.faults import CALM_XIDS, device_error, remedy
from hangscope.causes.pairs import far_side, met, paired, posted
from hangscope.explain.finding import Absent, Lagging, Nothing, Stalled, Unseen, Unstarted
from hangscope.explain.statements.group_ranks import label_of
from hangscope.explain.text.group_size import all_timed_out
from hangscope.ingest.excerpts.commands import setting
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.ingest.job_logs.activity import WaitedFor
from hangscope.ingest.job_logs.faults import CudaError, DeviceReset, Xid
from hangscope.ingest.lines.vocabulary import words
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.ingest.torch_logs.wrapper import GlooClosed
from hangscope.model.conclusion import Evidence
from hangscope.model.events import Event
from hangscope.model.incident import on_group
from hangscope.model.rankset import agree
from hangscope.model.tables import entries

_DROPPED = ("network_stall", "a network that drops connections looks the same")
_ENDED_BOTH = ("crashed_rank", "two processes that end at one time leave the same lines")
_AT_ONCE = 2  # devices that may stop at one moment; more of them lag where what they share did: a host, its network card
_SPLITS = ("shape_mismatch", "mismatched splits stall it the same way, and recorders keep no splits")
_NCCL_PATH = "Rerun with NCCL_DEBUG=INFO and one NCCL_DEBUG_FILE per process to see which pair does not connect, and check the links between the hosts of this group."
_ON_ONE_HOST = "Rerun with NCCL_DEBUG=INFO, then once with NCCL_P2P_DISABLE=1: if that runs, look at PCIe ACS, the IOMMU and NVLink (nvidia-smi topo -p2p r) of this host, else at the size of /dev/shm."
_NCCL_HOSTS = "Compare NCCL_SOCKET_IFNAME and NCCL_IB_GID_INDEX over the hosts; PCIe ACS or an IOMMU on one host can look the same."
_PORTS = "Check whether connections{where} get through at that port, which ping and ssh do not show: a firewall (NCCL uses any free port), another subnet, or the wrong interface (NCCL_SOCKET_IFNAME)."
_GLOO_HOSTS = "Compare GLOO_SOCKET_IFNAME and the addresses that the host names resolve to over the hosts; a firewall between them can look the same."


@cache
def ib_statuses() -> dict[int, Mapping[str, str]]:
    """Return by its number what a status of a failed completion means, and what to check."""
    return {entry["number"]: entry for entry in entries("faults/ib_status.toml", "status")}


def device_fault(case: Case) -> Match | None:
    """A sticky CUDA error, an Xid, or a device that lags behind what its peers completed with it."""
    finding, statements = case.finding, case.statements
    reported = (statements.all(Xid, DeviceReset, CudaError), case.warned("cuda"))
    by_rank = ([e for e in events if e.rank is not None] for events in reported)
    # A kernel that gives up its wait for another rank ends with an error of its device.
    waited = {(e.rank, e.file): e.line for e in reversed(statements.all(WaitedFor))}
    faults = [e for e in next(filter(None, by_rank), ()) if not _of_the_program(e)]
    faults = [e for e in faults if waited.get((e.rank, e.file), e.line) >= e.line]
    broken_path = any(e.tier < 3 for e in statements.all(NcclWarn) if e.of_transport)
    if isinstance(finding, Lagging) and 0 < len(finding.culprits) <= _AT_ONCE and not broken_path:
        return _lags(case, finding) if faults or not (apart := _out_of_step(case)) else apart
    ranks = {e.rank for e in faults if e.rank is not None}
    # Lines of processes of no known rank count as well: what all of them report is no fault of one device.
    unknown = {e.pid for e in chain(*reported) if e.rank is None} - {None}
    few = 0 < 2 * max(len(ranks), len(unknown)) <= len(case.incident.ranks)
    if not (faults and few) or not isinstance(finding, Nothing | Stalled | Unseen | Absent):
        return None
    first = min(faults, key=_moment)
    whose = f"rank {first.rank}"
    by_kernel = isinstance(first, Xid | DeviceReset)
    why = f"{f'the GPU of {whose} failed' if by_kernel else f'{whose} reported a device error'}: {device_error(first)}"
    named = [rank for rank in (first.rank,) if rank is not None]
    return answer("gpu_stall", named, why, remedy(first, whose), strength=2, evidence=faults[:4])


def _out_of_step(case: Case) -> Match | None:
    """Return the answer for the two members of a group whose watchdogs gave up in other collectives, several apart.

    A device finishes its collectives in order, and none without the other member: it was paired with other ones than those of its seqs.
    """
    timed_out = case.statements.all(WatchdogTimeout)
    waits = {e.rank: e for e in timed_out if e.rank is not None and e.seq is not None}
    if len(waits) != 2 or len(case.incident.ranks) != 2 or not case.from_text:
        return None
    (a, first), (b, second) = sorted(waits.items())
    apart = abs((first.seq or 0) - (second.seq or 0))
    if apart < 2 or first.op == second.op or label_of(first) != label_of(second):
        return None
    why = f"ranks {a} and {b} are {apart} collectives out of step: rank {a} waits in {first.op} seq {first.seq}, rank {b} in {second.op} seq {second.seq}; one of them issued what the other did not"
    return answer("collective_mismatch", (), why, strength=1, evidence=[first, second], suspects=[a, b])


def _of_the_program(event: Event) -> bool:
    """Return whether a device error is one of a program or its set-up and not of a device."""
    if isinstance(event, Xid):
        return event.code in CALM_XIDS
    return bool(words("program_errors").search(event.text))


def _moment(event: Event) -> tuple[float, str, int]:
    moment = event.in_the_year
    return (inf if moment is None else moment, event.file, event.line)


def _lags(case: Case, finding: Lagging) -> Match:
    """Return the answer for devices that have not completed, or not started, what those of all others have."""
    culprits, view, seq = finding.culprits, finding.lag.view, finding.own.seq
    unstarted = isinstance(finding, Unstarted)
    others = [rank for rank in view.members if rank not in culprits] if view is not None else []
    if view is not None and not unstarted:
        others = [rank for rank in others if (view.completed(rank) or 0) >= (seq or 0)]
    which = who(others) if len(others) == 1 else f"{len(others):,} other members"
    behind = f"not {'started' if unstarted else 'completed'} {_lagging_call(finding)}, which {which} {agree(others, 'has', 'have')}"
    why = f"the {agree(culprits, 'GPU', 'GPUs')} of {who(culprits)} {agree(culprits, 'has', 'have')} {behind}"
    sure = (
        len(culprits) == 1
        and not (unstarted or finding.tie)
        and _is_no_older_dump(case, finding, culprits[0])
    )
    evidence: list[Evidence | Event] = [
        case.recorded(r, f"the GPU of rank {r} has {behind}") for r in culprits
    ]
    evidence += [e for r in culprits for e in case.statements.of(r, WatchdogTimeout) if e.seq == seq]
    return answer("gpu_stall", culprits, why, strength=2 if sure else 1, evidence=evidence)


def _lagging_call(finding: Lagging) -> str:
    """Return the collective that devices have not finished: `all_reduce seq 15 on group 0 (default_pg)`."""
    group, kind = finding.lag.group, finding.own.kind
    on = f" {on_group(group.label)}" if group is not None else ""
    return f"{kind.op if kind is not None and kind.op else 'a collective'} seq {finding.own.seq}{on}"


def _is_no_older_dump(case: Case, finding: Lagging, rank: int) -> bool:
    """Return whether more than the moment of a dump shows a rank behind: its own log, or a lag of more than one collective.

    An extra collective before would shift those that a recorder of pending ones, or without a peer's entry, still has.
    """
    view, seq = finding.lag.view, finding.own.seq
    member = view.members.get(rank) if view is not None else None
    if view is None or member is None or member.queue.pending_only:
        return False
    if seq is not None and all(view.kind_of(r, seq) is None for r in view.members if r != rank):
        return False
    timed_out = any(e.seq == seq for e in case.statements.of(rank, WatchdogTimeout))
    return timed_out or sum(s <= view.proven for s in member.pending) > 1


def network_fault(case: Case) -> Match | None:
    """Every member entered a collective that none completes, or the transport itself reports a fault.

    Of NCCL's warnings a fault of the printer's own adapter counts before a path that failed, and that before the report
    of a peer that is gone, whose printer is a victim.
    """
    finding, stuck = case.finding, case.finding.stuck
    warnings = [e for e in case.statements.all(NcclWarn) if e.of_transport]
    timed = case.statements.all(WatchdogTimeout)
    if not warnings and timed and all(e.is_late for e in timed):
        return None  # all processes stood still far beyond their limits: they were suspended, and no path is in question
    joined = isinstance(finding, Stalled | Lagging)
    joined |= isinstance(finding, Nothing) and len({(e.op, e.seq) for e in timed}) == 1
    # Watchdog lines show that all came only where the size of the group is stated; one rank alone never shows it.
    by_lines = case.from_text and bool(timed)
    complete = joined and (not by_lines or all_timed_out(case.statements))
    several = stuck.view is None or len(stuck.view.seen) > 1 or stuck.pair is not None
    if not (warnings or (complete and several)):
        return None
    tier = min((e.tier for e in warnings), default=3)
    first = [e for e in warnings if e.tier == tier]
    if first and not (complete and case.whole_group) and all(e.fault == "closed_by_peer" for e in first):
        return _cut_between(first) or _peer_ended(first)
    # What adapters of several hosts report, or of processes that no line names, is no fault of the one whose rank is known.
    apart = len({e.host for e in first}) > 1 or any(e.rank is None for e in first)
    local = tuple(sorted({e.rank for e in first if e.rank is not None})) if tier == 1 and not apart else ()
    culprits = local or (_both_ends(first) if tier == 2 else ())
    minor = all(e.retrying or e.fault == "size_mismatch" for e in first)  # sizes are the program's own
    if isinstance(finding, Nothing) and not complete and (tier > 2 or (minor and not culprits)):
        return None
    where, look = _hosts(first if tier == 1 else warnings), _NCCL_PATH
    hosts = [_GLOO_HOSTS if case.on_gloo else _NCCL_HOSTS]
    if case.on_one_host and not warnings and not case.on_gloo:
        look, hosts = _ON_ONE_HOST, []
    why = _joined(case) if complete else ""
    if warnings or not why:
        known = [who(culprits)] * bool(culprits) + sorted({str(e.nic) for e in first if e.nic})[:3]
        statuses = {e.status for e in first}
        status = ib_statuses().get(statuses.pop() or 0) if len(statuses) == 1 else None
        known += [status["means"]] if status else []
        fault = f"the transport reported a fault{where}" + (f" ({', '.join(known)})" if known else "")
        why = f"{why}; {fault}" if why else fault
        look = f"Check NIC, cable and switch port{where or ' of the hosts in this group'}; then run a pairwise bandwidth test over these hosts."
        if status or all(e.fault == "connect" for e in first):
            look, hosts = status["check"] if status else _PORTS.format(where=where), []
    far = far_side(case)
    later = [quote(e, f"a consequence: {e.text}") for e in warnings if e.tier > tier]
    facts = [*map(quote, first[:4]), *later[:3], *(posted(case) if complete else ())]
    # The rank at one end of a path alone may be the victim.
    strength = 2 if local else int(bool(warnings) and len(culprits) != 1)
    splits = stuck.kind is not None and stuck.kind.op.startswith("all_to_all")
    match = answer("network_stall", culprits, why, look, *hosts, strength=strength, evidence=facts)
    rivals = [_SPLITS] if splits else []
    return replace(match, frame=case.frame_of(far.kind), frame_rank=far.rank, rivals=rivals)


def unanswered(case: Case) -> Match | None:
    """Connections of gloo that timed out: the other end did not close them, as the kernel does for a process that ends."""
    lost = case.statements.all(GlooClosed)
    if not lost or any(e.what != "Connection timed out" for e in lost) or case.statements.first_deaths:
        return None
    whose = sorted({e.rank for e in lost if e.rank is not None})
    peers = sorted({e.peer for e in lost if e.peer})
    at = f" from {peers[0]}" if len(peers) == 1 else ""
    why = f"{who(whose, 'a process')} got no answer{at} any more: the connection timed out, which it does where the network between the hosts is cut or the other host is frozen; a process that ends closes its connections"
    look = f"Look at the kernel log and the counters of the network card of both hosts, ping{at.replace(' from', '')} from the other one, and take the stack of a process there (py-spy dump)."
    return answer("network_stall", (), why, look, evidence=lost[:4])


def _cut_between(closed: list[NcclWarn]) -> Match | None:
    """Return that a connection was cut where both of its ends report that the peer closed it: neither of them had ended."""
    hosts, peers = ({getattr(e, name) for e in closed} - {None} for name in ("host", "peer_host"))
    if len(hosts) < 2 or len(hosts) != len(peers):
        return None
    why = f"both ends of a connection report that the other one closed it (hosts {' and '.join(sorted(hosts))}): neither process had ended, so it was cut between them"
    look = "Look at what is between these hosts: an overlay network or a firewall that drops connections (conntrack), a link that went down, and the kernel log of both at that time."
    return answer("network_stall", (), why, look, evidence=closed[:4], rivals=[_ENDED_BOTH])


def _peer_ended(closed: list[NcclWarn]) -> Match:
    """Return that a process which no line names ended: a connection is closed at once by an end, and never by a stall."""
    printers = {e.rank for e in closed if e.rank is not None}
    hosts = sorted({h for e in closed if (h := e.peer_node or e.peer_host)})
    on = f" on {hosts[0]}" if len(hosts) == 1 else ""
    lost = f"{who(printers)} report" + ("s" if len(printers) == 1 else "") if printers else "NCCL reports"
    why = f"a process{on} ended: {lost} that the peer closed the connection"
    look = f"Find out which process{on or ' of the group'} ended first, and how: its last lines, its exit code or signal in the launcher's output, and the kernel log of the host."
    return answer("crashed_rank", (), why, look, evidence=closed[:4], rivals=[_DROPPED])


def helped_by_a_setting(case: Case) -> Match | None:
    """The job runs with a setting of NCCL, by its reporter: the path that the setting changes is what does not work."""
    helped = next((e for e in case.statements.all(Excerpt) if e.helped), None)
    if helped is None:
        return None
    known = setting(helped.helped)
    why = f"according to the reporter, the job runs with {helped.helped}; what does not work is {known.path}"
    return answer("network_stall", (), why, f"Check {known.look}.", strength=0, evidence=[helped])


def _hosts(warnings: list[NcclWarn]) -> str:
    """Return the hosts whose path failed, as the end of a clause; empty where they are not known, or too many."""
    paths = [e for e in warnings if e.tier <= 2]
    hosts = sorted({n for e in paths for n in (e.host, e.peer_node or e.peer_host) if n})
    if len(hosts) == 1:
        return f" {'on' if hosts[0] in {e.host for e in warnings} else 'towards'} {hosts[0]}"
    writers, peers = {e.host or "" for e in paths}, {e.peer_node or e.peer_host or "" for e in paths}
    if len(hosts) <= 4 and len(writers) > 1 and all(writers | peers):
        return f" on {' and '.join(sorted(writers))}, towards {' and '.join(sorted(peers))}"
    return f" between {' and '.join(hosts)}" if 1 < len(hosts) <= 4 else ""


def _both_ends(warnings: list[NcclWarn]) -> tuple[int, ...]:
    """Return the ranks at both ends of a failed path: two that report each other's hosts, or that NCCL names; else nobody."""
    paths = {(e.host, e.peer_node or e.peer_host): e.rank for e in warnings}
    named = {rank for (host, peer), rank in paths.items() if host and (peer, host) in paths}
    if not named - {None}:
        named = {r for e in warnings if e.peer_rank is not None for r in (e.rank_a, e.peer_rank)}
    return tuple(sorted(rank for rank in named if rank is not None))


def _joined(case: Case) -> str:
    """Return which ranks are in the collective that none completes: every member, where it is known who the members are."""
    finding, stuck = case.finding, case.finding.stuck
    view, seq = stuck.view, stuck.seq
    if isinstance(finding, Lagging) and finding.lag.node is not None:
        return f"{_lagging_call(finding)} does not complete on {who(case.graph.ranks_in(finding.lag.node))}"
    if view is None:
        return "the ranks seen are all in one collective, which does not complete"
    if pairs := met(case):
        return paired(pairs)
    op = stuck.kind.op if stuck.kind is not None else ""
    call = f"{op or 'collective'} seq {seq}" if seq is not None else op or "one collective"
    inside = sorted(view.seen)
    if case.whole_group and len(inside) == len(view.members):
        if any((view.completed(rank) or 0) >= (seq or inf) for rank in inside):
            return f"all {len(inside)} members entered {call}, and only some completed it"
        return f"all {len(inside)} group members are in {call} and none completes it"
    inside = sorted({rank for rank, _ in case.graph.calls_of(stuck.node)} if stuck.node else ()) or inside
    unknown = "" if all_timed_out(case.statements) else "; group size unknown"
    return f"{who(inside)} {agree(inside, 'is', 'are')} in {call}, and it does not complete{unknown}"
