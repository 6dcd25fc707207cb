"""NCCL logs of whole jobs of 16 ranks on two nodes, with a known fault."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.nccl_writer import PER_NODE, Comm, NcclWriter, Proc

RANKS = 16
STEPS = 5
_OPS = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast",
}
FAULTS = (
    "healthy",
    "extra_call",
    "skipped_call",
    "stopped_rank",
    "count_mismatch",
    "opposite_orders",
    "init_never_completes",
    "ib_error",
)


@dataclass(frozen=True)
class Call:
    comm: str  # world, tp, dp or ep
    op: str
    count: int


@dataclass(frozen=True)
class Answer:
    """What an incident should lead to: `group` is the kind of communicator that stops, `seq` the call."""

    fault: str
    culprits: tuple[int, ...]
    group: str
    seq: int | None
    files: tuple[str, ...]


def procs() -> list[Proc]:
    return [Proc(f"node{rank // PER_NODE}", 4000 + 13 * rank, rank % PER_NODE) for rank in range(RANKS)]


def communicators() -> dict[str, list[Comm]]:
    """Return all communicators by kind: one world, two tp of 8, eight dp of 2, one ep of all ranks."""
    world = Comm("world", tuple(range(RANKS)), 0x51A0)
    tp = [Comm("tp", tuple(range(8 * i, 8 * i + 8)), 0x52A0 + i, world, 1, 77 + i) for i in range(2)]
    dp = [Comm("dp", (i, i + 8), 0x53A0 + i, world, 2, 90 + i) for i in range(8)]
    ep = [Comm("ep", tuple(range(RANKS)), 0x54A0, world, 3, 5)]
    return {"world": [world], "tp": tp, "dp": dp, "ep": ep}


def _step() -> list[Call]:
    return [
        Call("tp", "all_gather", 4096),
        Call("tp", "reduce_scatter", 4096),
        Call("dp", "all_reduce", 65536),
        Call("ep", "all_reduce", 2048),
        Call("world", "all_reduce", 1),
    ]


def programs(fault: str) -> tuple[list[list[list[Call]]], tuple[int, ...], str, int | None]:
    """Return per rank its steps (calls that end in a wait), the culprits, the group's kind, the seq."""
    job = [[_step() for _ in range(STEPS)] for _ in range(RANKS)]
    if fault == "extra_call":
        job[5][2].insert(4, Call("world", "all_gather", 7))
        return job, (5,), "world", 3
    if fault == "skipped_call":
        del job[5][2][1]
        return job, (5,), "tp", 6
    if fault == "stopped_rank":
        job[5] = [*job[5][:2], job[5][2][:3]]
        return job, (5,), "ep", 3
    if fault == "count_mismatch":
        job[5][2][2] = Call("dp", "all_reduce", 65537)
        return job, (5,), "dp", 3
    if fault == "opposite_orders":
        step = job[5][2]
        step[3], step[4] = step[4], step[3]
        return [[[call] for step in steps for call in step] for steps in job], (5,), "world", 3
    return job, (), "", None


def _run(job: list[list[list[Call]]], comm_of: dict[tuple[str, int], Comm]) -> list[list[Call]]:
    """Return the calls that each rank came to make: a step begins when all calls before it are complete."""
    made: list[list[Call]] = [[] for _ in job]
    next_step = [0] * len(job)
    queues: dict[tuple[int, int], list[Call]] = {}

    def whole(rank: int) -> bool:
        seen: dict[int, int] = {}
        for call in made[rank]:
            comm = comm_of[(call.comm, rank)]
            k = seen[comm.comm_id] = seen.get(comm.comm_id, 0) + 1
            for peer in comm.ranks:
                theirs = queues.get((comm.comm_id, peer), [])
                if len(theirs) < k or theirs[k - 1] != call:
                    return False
        return True

    moved = True
    while moved:
        moved = False
        for rank, steps in enumerate(job):
            if next_step[rank] < len(steps) and whole(rank):
                for call in steps[next_step[rank]]:
                    made[rank].append(call)
                    queues.setdefault((comm_of[(call.comm, rank)].comm_id, rank), []).append(call)
                next_step[rank] += 1
                moved = True
    return made


def incident_lines(
    fault: str, writer: NcclWriter
) -> tuple[list[list[str]], tuple[int, ...], str, int | None]:
    """Return each rank's lines, the culprits, the kind of group that stops, and the call's number in it."""
    who = procs()
    kinds = communicators()
    job, culprits, group, seq = programs(fault)
    comm_of = {(kind, rank): comm for kind, comms in kinds.items() for comm in comms for rank in comm.ranks}
    lines: list[list[str]] = [[] for _ in range(RANKS)]
    lines[0].append(writer.banner())
    for rank, proc in enumerate(who):
        lines[rank].append(writer.bootstrap(proc, f"10.1.0.{rank // PER_NODE + 1}"))
        lines[rank].append(writer.info(proc, "Using network IB"))
    if fault == "init_never_completes":
        _init(writer, lines, who, kinds, complete=False, absent=5)
        return lines, (5,), "tp", None
    _init(writer, lines, who, kinds)
    for rank, calls in enumerate(_run(job, comm_of)):
        for call in calls:
            lines[rank].append(
                writer.coll(comm_of[(call.comm, rank)], rank, who[rank], _OPS[call.op], call.count)
            )
    if fault == "ib_error":
        lines[3].append(writer.port_error(who[3]))
        lines[11].append(writer.ib_completion(who[11], "10.1.0.1", 12))
        for rank in (10, 12):
            lines[rank].append(writer.closed_by_peer(who[rank], "10.1.0.2"))
        lines[11].append(writer.end(comm_of[("world", 11)], 11, who[11], "Abort"))
        return lines, (3,), "world", None
    return lines, culprits, group, seq


def _init(
    writer: NcclWriter,
    lines: list[list[str]],
    who: Sequence[Proc],
    kinds: dict[str, list[Comm]],
    complete: bool = True,
    absent: int = -1,
) -> None:
    """Write the creation of all communicators; if not `complete` up to tp, which `absent` never begins."""
    for kind in ("world", "tp", "dp", "ep"):
        for comm in kinds[kind]:
            stuck = kind == "tp" and not complete and absent in comm.ranks
            for rank in comm.ranks:
                if stuck and (rank == absent or writer.version < (2, 23, 4)):
                    continue  # START comes after bootstrap up to 2.22, and bootstrap waits for all
                lines[rank] += writer.start(comm, rank, who[rank])
                if not stuck:
                    lines[rank] += writer.bootstrapped(who[rank])
                    lines[rank].append(writer.complete(comm, rank, who[rank]))
        if kind == "tp" and not complete:
            return


def write_incident(
    folder: Path,
    fault: str = "healthy",
    *,
    version: tuple[int, int, int] = (2, 21, 5),
    rccl: bool = False,
    stamps: bool = False,
    mixed: bool = False,
) -> Answer:
    """Write a frozen job of 16 ranks as NCCL logs; one file per process, or one file of all (`mixed`)."""
    lines, culprits, group, seq = incident_lines(fault, NcclWriter(version, rccl=rccl, stamps=stamps))
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    if mixed:
        (folder / "train.log").write_text("\n".join(_interleave(lines)) + "\n")
        names.append("train.log")
    else:
        for proc, mine in zip(procs(), lines, strict=True):
            names.append(f"nccl.{proc.host}.{proc.pid}.log")
            (folder / names[-1]).write_text("\n".join(mine) + "\n")
    return Answer(fault, culprits, group, seq, tuple(names))


def _interleave(lines: list[list[str]]) -> Iterator[str]:
    """Yield lines of all ranks, a few of each in turn, in an order that does not depend on chance."""
    at = [0] * len(lines)
    turn = 0
    while any(at[rank] < len(mine) for rank, mine in enumerate(lines)):
        rank = (turn * 7) % len(lines)
        take = 1 + turn % 3
        yield from lines[rank][at[rank] : at[rank] + take]
        at[rank] += take
        turn += 1
