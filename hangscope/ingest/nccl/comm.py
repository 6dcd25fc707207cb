"""A communicator as one process knows it, and its identity across ranks.

NCCL prints no name that holds in every release: `commId` for all communicators from 2.16 to 2.22 and from
2.23 on only for those that were not split; for splits the parent, a counter (2.24.3 on) and a color; up to
2.15 nothing at all.
"""

from __future__ import annotations

from hangscope.model.dataclass import dataclass
from hangscope.model.incident import ASSUMED


@dataclass(slots=True)
class Communicator:
    """One communicator of one process, from its creation to the reuse of its pointer. Plain builtins only.

    `local_id` is unique over all inputs and is the local group id in the process's Recording. `name` is the
    identity across ranks; `assumed` says that it rests on the number of ranks and the order of creation, or
    on no printed counter. `comm_rank` and `nranks` are group-local. `phase` is start, bootstrap (passed;
    connecting), complete, abort, destroy, or unseen where only calls on it were logged; `completed` stays
    True when it ends later. `intact` is False where a torn line hides how many calls follow the last recorded
    one: its silence proves nothing.
    """

    file: str
    host: str
    pid: int | None
    pointer: str
    local_id: str
    name: str = ""
    comm_rank: int | None = None
    nranks: int | None = None
    bus_id: str | None = None
    cuda_dev: int | None = None
    phase: str = "unseen"
    assumed: bool = False
    completed: bool = False
    intact: bool = True
    comm_id: str | None = None
    parent: str | None = None  # local_id of the communicator it was made from, where that was seen
    split: int | None = None  # which split of the parent, counted from 1
    split_printed: bool = False
    color: int | None = None
    api: str | None = None
    children: int = 0  # how often this process took part in splitting it
    calls: int = 0  # collectives
    first_line: int = 0
    last_line: int = 0
    version: str = ""
    ip: str | None = None  # the process's bootstrap address
    network: str | None = None  # the process's transport: IB, Socket, or a plugin's name
    task: int | None = None  # srun's or mpirun's number, the global rank only where one task is one rank

    @property
    def is_split(self) -> bool:
        """Whether it was made from another communicator."""
        return self.split is not None


def name_communicators(communicators: list[Communicator]) -> None:
    """Give each communicator of one process, in order of creation, its identity across ranks.

    commId where it is printed (with a count where splits of one parent and color share one, as they do up to
    2.23); else the parent's identity, the split's number and its color; else the number of ranks and the
    order of creation.
    """
    by_id = {comm.local_id: comm for comm in communicators}
    used: dict[tuple[str, int | None], int] = {}
    made: dict[int | None, int] = {}
    for comm in communicators:
        if comm.comm_id:
            key = (comm.comm_id, comm.comm_rank)
            used[key] = used.get(key, 0) + 1
            comm.name = f"comm {comm.comm_id}" + (f" #{used[key]}" if used[key] > 1 else "")
        elif comm.is_split:
            parent = by_id.get(comm.parent) if comm.parent else None
            word = "shrink" if comm.api == "ncclCommShrink" else "split"
            color = f" color {comm.color}" if comm.color is not None else ""
            comm.name = f"{parent.name if parent else 'comm ?'}/{word} {comm.split}{color}"
            comm.assumed = parent is None or parent.assumed or not comm.split_printed
        else:
            nth = made[comm.nranks] = made.get(comm.nranks, 0) + 1
            size = f" of {comm.nranks} ranks" if comm.nranks is not None else ""
            comm.name, comm.assumed = f"comm#{nth}{size} {ASSUMED}", True
