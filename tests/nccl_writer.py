"""Writes lines as NCCL of a given version prints them.

Used by tests only. The shapes follow src/debug.cc, src/init.cc, src/enqueue.cc and src/transport/net_ib.cc of
each release; no line is copied from a real log.
"""

from __future__ import annotations

from dataclasses import dataclass, field

PER_NODE = 8


@dataclass(frozen=True)
class Proc:
    """One process: where it runs and which GPU it drives."""

    host: str
    pid: int
    dev: int

    @property
    def bus_id(self) -> str:
        return f"{0x1B + self.dev:x}000"


@dataclass
class Comm:
    """One communicator. `ranks` are global, in the order of their rank in it."""

    name: str
    ranks: tuple[int, ...]
    comm_id: int
    parent: Comm | None = None
    split: int = 0
    color: int = 0
    op_counts: dict[int, int] = field(default_factory=dict)

    @property
    def spans_nodes(self) -> bool:
        return len({rank // PER_NODE for rank in self.ranks}) > 1


class NcclWriter:
    """The lines of one NCCL version (`(2, 21, 5)`), or of RCCL."""

    def __init__(self, version: tuple[int, int, int], *, rccl: bool = False, stamps: bool = False) -> None:
        self.version = version
        self.rccl = rccl
        self.stamps = stamps and version >= (2, 26, 2)
        self.clock = 0

    # --- heads ---

    def _stamp(self) -> str:
        if not self.stamps:
            return ""
        self.clock += 1
        return f"[2026-03-04 10:{self.clock // 60 % 60:02d}:{self.clock % 60:02d}] "

    def info(self, proc: Proc, message: str) -> str:
        return f"{self._stamp()}{proc.host}:{proc.pid}:{proc.pid + 7} [{proc.dev}] NCCL INFO {message}"

    def warn(self, proc: Proc, where: str, message: str, function: str = "ncclFn") -> str:
        func = f"({function}) " if self.version >= (2, 30, 7) else ""
        head = f"{self._stamp()}{proc.host}:{proc.pid}:{proc.pid + 9} [{proc.dev}]"
        return f"\n{head} {where} {func}NCCL WARN {message}"

    def call(self, proc: Proc, message: str) -> str:
        return f"{self._stamp()}{proc.host}:{proc.pid}:{proc.pid + 7} NCCL CALL {message}"

    def banner(self) -> str:
        number = ".".join(map(str, self.version))
        return f"RCCL version : {number}-HEAD:0a1b2c3" if self.rccl else f"NCCL version {number}+cuda12.4"

    # --- INIT ---

    def bootstrap(self, proc: Proc, ip: str) -> str:
        form = (
            f"Bootstrap: Using eth0:{ip}<0>"
            if self.version >= (2, 24, 0)
            else f"Bootstrap : Using eth0:{ip}<0>"
        )
        return self.info(proc, form)

    def pointer(self, comm: Comm, rank: int) -> str:
        return f"0x{0x7F0000000000 + comm.comm_id * 0x100000 + rank * 0x1000:x}"

    def start(self, comm: Comm, rank: int, proc: Proc) -> list[str]:
        """Return START where this version prints it."""
        if self.version < (2, 18, 3):
            return []
        return [self.info(proc, self._life(comm, rank, proc, "START"))]

    def bootstrapped(self, proc: Proc) -> list[str]:
        if self.version < (2, 23, 4):
            return []
        times = "0.012000 (create 0.000100, send 0.000200, recv 0.010000, ring 0.001000, delay 0.000000)"
        return [self.info(proc, f"Bootstrap timings total {times}")]

    def complete(self, comm: Comm, rank: int, proc: Proc) -> str:
        return self.info(proc, self._life(comm, rank, proc, "COMPLETE"))

    def _life(self, comm: Comm, rank: int, proc: Proc, step: str) -> str:
        v = self.version
        me = comm.ranks.index(rank)
        head = f"comm {self.pointer(comm, rank)} rank {me} nranks {len(comm.ranks)} cudaDev {proc.dev}"
        if v < (2, 5, 0):
            return f"{head} nvmlDev {proc.dev} - Init {step}"
        if v >= (2, 18, 3) and not self.rccl:
            head += f" nvmlDev {proc.dev}"
        head += f" busId {proc.bus_id}"
        comm_id = f" commId 0x{comm.comm_id:x}"
        if self.rccl:
            return f"{head}{comm_id} localSize 8 used 93331776 bytes on core 12 - Init {step}"
        if v < (2, 16, 2):
            return f"{head} - Init {step}"
        if v < (2, 21, 5):
            return f"{head}{comm_id} - Init {step}"
        if comm.parent is None:
            mark = f"[Rank {me}] " if v >= (2, 29, 2) and step == "START" else ""
            return f"{mark}ncclCommInitRankConfig {head}{comm_id} - Init {step}"
        color = f" color {comm.color} key {rank}"
        parent = f" parent {self.pointer(comm.parent, rank)}"
        if v < (2, 23, 4):
            return f"ncclCommSplit {head}{parent}{color}{comm_id} - Init {step}"
        word = "childCount" if v >= (2, 29, 2) else "splitCount"
        count = f" {word} {comm.split}" if v >= (2, 24, 3) else ""
        space = "" if step == "START" else " "
        return f"ncclCommSplit {head}{parent}{count}{color}{space}- Init {step}"

    def end(self, comm: Comm, rank: int, proc: Proc, word: str = "Destroy") -> str:
        me = comm.ranks.index(rank)
        head = f"comm {self.pointer(comm, rank)} rank {me} nranks {len(comm.ranks)} cudaDev {proc.dev}"
        return self.info(proc, f"{head} busId {proc.bus_id} - {word} COMPLETE")

    # --- COLL ---

    def coll(
        self, comm: Comm, rank: int, proc: Proc, op: str, count: int, *, datatype: int = 7, root: int = 0
    ) -> str:
        number = comm.op_counts.get(rank, 0)
        if (2, 8, 0) <= self.version < (2, 9, 0) or (self.version >= (2, 27, 0) and not comm.spans_nodes):
            number = 0
        comm.op_counts[rank] = number + 1
        text = (
            f"{op}: opCount {number:x} sendbuff 0x7fa200000000 recvbuff 0x7fa200400000 count {count} "
            f"datatype {datatype} op 0 root {root} comm {self.pointer(comm, rank)} "
            f"[nranks={len(comm.ranks)}] stream 0x55d0c0ffee00"
        )
        if self.rccl:
            text += f" task 0 globalrank {comm.ranks.index(rank)}"
        return self.info(proc, text)

    # --- WARN ---

    def ib_completion(self, proc: Proc, peer: str, status: int, hca: str = "mlx5_1") -> str:
        v, where = self.version, "transport/net_ib.cc:1100"
        old = f"error {status}, opcode 0, len 0, vendor err 129"
        gids = "localGid ::ffff:10.9.0.1 remoteGid"
        if v < (2, 10, 0):
            text = f"NET/IB : Got completion with {old}"
        elif v < (2, 18, 0):
            text = f"NET/IB : Got completion from peer {peer}<41000> with {old}"
        elif v < (2, 20, 0):
            text = f"NET/IB : Got completion from peer {peer}<41000> with {old} (Send) {gids} ::ffff:10.9.0.2"
        elif v < (2, 28, 7):
            form = "NET/IB :" if v < (2, 22, 0) else "NET/IB:"
            tail = "" if v < (2, 22, 0) else f" hca {hca}"
            text = (
                f"{form} Got completion from peer {peer}<41000> with status={status} opcode=129 len=0 "
                f"vendor err 129 (Send) {gids}s::ffff:10.9.0.2{tail}"
            )
        else:
            where = "transport/net_ib/p2p.cc:210"
            text = (
                f"NET/IB: Got completion from peer {peer}<41000> with status=IBV_WC_RETRY_EXC_ERR({status}) "
                f"opcode=IBV_WC_RDMA_WRITE(1) vendor_err=129 {gids}s::ffff:10.9.0.2 hca {hca}"
            )
        return self.warn(proc, where, text)

    def port_error(self, proc: Proc, nic: str = "mlx5_3") -> str:
        v = self.version
        if v < (2, 20, 0):
            text = "NET/IB : Got async event : port error"
        elif v < (2, 23, 0):
            text = f"NET/IB : {nic}:1 Got async event : port error"
        elif v < (2, 28, 7):
            text = f"NET/IB : {nic}:1 Got async error event: port error"
        else:
            text = f"NET/IB : {nic}:1 async fatal event: port error"
        return self.warn(proc, "transport/net_ib.cc:87", text)

    def closed_by_peer(self, proc: Proc, peer: str) -> str:
        v = self.version
        if v < (2, 10, 0):
            return self.warn(proc, "include/socket.h:410", "Net : Connection closed by remote peer")
        name = "Net :" if v < (2, 16, 0) else "socketProgress:"
        return self.warn(proc, "misc/socket.cc:57", f"{name} Connection closed by remote peer {peer}<45678>")
