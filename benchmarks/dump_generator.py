"""Write the Flight Recorder dumps of a large frozen NCCL job, quickly: N ranks x M entries x F frames.

    python benchmarks/dump_generator.py FOLDER --ranks 256 --entries 2000 --frames 20 --unshared --layout mesh

The files have the shape that torch 2.13 writes (version 2.10): protocol 2, every container opened by a mark, strings
memoized by their content, sequence numbers per group. Frame dicts are one object per code line (`shared`, what torch
writes), or every entry carries its own frames down to their strings (`unshared`, what tools that rewrite dumps leave).

Layouts: `world` has one group; `mesh` is tensor parallelism over 8 neighbours with sharded data parallelism over ranks of
equal place, and the world: three groups whose calls interleave on every rank. In both, one rank stops before the last
step (`CULPRIT` of the world's size), its peers wait for it, and theirs for them.

Ranks of one role differ in times, names and members only, so one pickle per role is made and patched for each rank.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

TP = 8
LAYERS = 4
EPOCH = 1_773_300_000 * 10**9
#: the share of the way through the ranks at which the culprit sits
CULPRIT = 0.66
PREFIX = "nccl_trace_rank_"
_LONG = b"\x8a\x08"
_THREAD = "140200000000000"
_LIBRARY = "/opt/venv/lib/python3.11/site-packages/torch"
_INNER = (
    ("all_reduce", f"{_LIBRARY}/distributed/distributed_c10d.py", 3012),
    ("wrapper", f"{_LIBRARY}/distributed/c10d_logger.py", 83),
)
_OUTER = (
    ("forward", "/workspace/train/layers.py"),
    ("_call_impl", f"{_LIBRARY}/nn/modules/module.py"),
    ("forward_step", "/workspace/train/schedules.py"),
    ("train_step", "/workspace/train/trainer.py"),
)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a step: the local number of its group, its op, element counts and line."""

    group: int
    op: str
    numel_in: int
    numel_out: int
    line: int


@dataclass(frozen=True, slots=True)
class Job:
    """What is generated."""

    ranks: int
    entries: int = 2000
    frames: int = 12
    shared: bool = True
    layout: str = "world"

    @property
    def culprit(self) -> int:
        """Return the rank that stops first."""
        return int(self.ranks * CULPRIT)

    def step(self) -> list[Call]:
        """Return the calls of one training step."""
        if self.layout == "world":
            return [Call(0, "all_reduce", 1024 * (i + 1), 1024 * (i + 1), 300 + i) for i in range(24)]
        replicas = self.ranks // TP
        calls = []
        for layer in range(LAYERS):
            line = 100 + 20 * layer
            gather = Call(2, "_all_gather_base", 512 * (layer + 1), 512 * (layer + 1) * replicas, line)
            calls += [
                gather,
                Call(1, "all_reduce", 4096, 4096, line + 1),
                Call(1, "all_reduce", 4096, 4096, line + 2),
            ]
        for layer in reversed(range(LAYERS)):
            line, part = 110 + 20 * layer, 512 * (layer + 1)
            calls += [
                Call(2, "_all_gather_base", part, part * replicas, line),
                Call(1, "all_reduce", 4096, 4096, line + 1),
                Call(1, "all_reduce", 4096, 4096, line + 2),
            ]
            calls.append(Call(2, "_reduce_scatter_base", part * replicas, part, line + 3))
        return [*calls, Call(0, "all_reduce", 1, 1, 412)]

    def groups(self, rank: int) -> list[tuple[str, str, str]]:
        """Return (name, description, members as torch prints them) of a rank's groups, by local number."""
        groups = [("0", "default_pg", _members(0, self.ranks, 1))]
        if self.layout == "mesh":
            tensor, data = rank // TP, rank % TP
            groups.append((str(1 + tensor), "mesh_tp", _members(tensor * TP, tensor * TP + TP, 1)))
            groups.append((str(1 + self.ranks // TP + data), "mesh_dp", _members(data, self.ranks, TP)))
        return groups

    def role(self, rank: int) -> str:
        """Return `culprit`, `near` (waits for the culprit) or `far` (waits for a near one)."""
        if rank == self.culprit:
            return "culprit"
        return "near" if self.layout == "world" or rank % TP == self.culprit % TP else "far"

    def calls(self, role: str) -> list[Call]:
        """Return all calls of a role, from the job's first on; the last step is cut where the role stops."""
        step = self.step()
        far = 2 if self.layout == "mesh" else 1  # the tensor-parallel call behind the first gather
        steps, rest = divmod(self.entries - far, len(step))
        wait = {"culprit": 0, "near": 1, "far": far}[role]
        return step[len(step) - rest :] + step * steps + step[:wait]


@lru_cache(maxsize=64)
def _members(first: int, ranks: int, step: int) -> str:
    return str(list(range(first, ranks, step)))


class PickleWriter:
    """Writes plain values as torch's C++ pickler does (torch/csrc/jit/serialization/pickler.cpp)."""

    def __init__(self, memoized: int = 0, strings: dict[str, int] | None = None) -> None:
        self.out = bytearray()
        self.memoized = memoized
        self.strings = dict(strings or {})

    def raw(self, code: bytes) -> None:
        self.out += code

    def put(self) -> int:
        number, self.memoized = self.memoized, self.memoized + 1
        self.out += b"q" + bytes([number]) if number < 256 else b"r" + number.to_bytes(4, "little")
        return number

    def get(self, number: int) -> None:
        self.out += b"h" + bytes([number]) if number < 256 else b"j" + number.to_bytes(4, "little")

    def fresh(self, text: str) -> int:
        """Write a string without looking it up, and return its memo number."""
        data = text.encode()
        self.out += b"X" + len(data).to_bytes(4, "little") + data
        return self.put()

    def text(self, text: str) -> None:
        number = self.strings.get(text)
        if number is None:
            self.strings[text] = self.fresh(text)
        else:
            self.get(number)

    def integer(self, value: int) -> None:
        if 0 <= value < 256:
            self.out += b"K" + bytes([value])
        elif 0 <= value < 65536:
            self.out += b"M" + value.to_bytes(2, "little")
        elif -(2**31) <= value < 2**31:
            self.out += b"J" + value.to_bytes(4, "little", signed=True)
        else:
            self.out += _LONG + value.to_bytes(8, "little", signed=True)

    def time(self) -> int:
        """Write room for a time and return its offset."""
        self.out += _LONG + bytes(8)
        return len(self.out) - 8


class Head:
    """The part of a dump before its entries: version, groups and their status. Its memo numbers are the same for every rank."""

    def __init__(self, job: Job, rank: int, status: tuple[list[int], list[int]]) -> None:
        self.writer = writer = PickleWriter()
        self.names: list[tuple[int, int]] = []
        groups = job.groups(rank)
        writer.raw(b"\x80\x02}(")
        for text in ("version", "2.10", "pg_config"):
            writer.fresh(text)
        writer.raw(b"}(")
        for name, desc, members in groups:
            name_memo = writer.fresh(name)
            writer.raw(b"}(")
            writer.text("name")
            writer.get(name_memo)
            writer.text("desc")
            self.names.append((name_memo, writer.fresh(desc)))
            writer.text("ranks")
            writer.fresh(members)
            writer.raw(b"u")
        writer.raw(b"u")
        for text in ("comm_lib_version", "2.27.5", "pg_status"):
            writer.fresh(text)
        writer.raw(b"}(")
        for local, (enqueued, completed) in enumerate(zip(*status, strict=True)):
            if local < len(groups):
                writer.fresh(str(local))
                writer.raw(b"}(")
                for key, value in (("enqueued", enqueued), ("started", -1), ("completed", completed)):
                    writer.text(f"last_{key}_collective")
                    writer.integer(value)
                writer.raw(b"u")
        writer.raw(b"u")


class Template:
    """The pickle of one role behind its head, with the places that differ between ranks."""

    def __init__(self, job: Job, role: str) -> None:
        start = Head(job, 0, ([0] * 3, [0] * 3))
        self.writer = writer = PickleWriter(
            start.writer.memoized, {key: start.writer.strings[key] for key in ("name", "desc", "ranks")}
        )
        self.names = start.names
        self.shared_frames: dict[tuple[str, str, int], int] = {}
        self.job = job
        calls = job.calls(role)
        done = len(calls) - (role != "culprit")
        self.created, self.completed = [0] * len(calls), [0] * done
        self.thread = 0
        seqs = [0, 0, 0]
        writer.text("entries")
        writer.raw(b"](")
        for position, call in enumerate(calls):
            seqs[call.group] += 1
            self._entry(position, call, seqs[call.group], position < done)
        writer.raw(b"eu.")
        self.body = np.frombuffer(bytes(writer.out), np.uint8)
        finished = [seqs[g] - sum(1 for c in calls[done:] if c.group == g) for g in range(3)]
        self.status = (seqs, finished)
        self._created = np.array(self.created)[:, None] + np.arange(8)
        self._completed = np.array(self.completed)[:, None] + np.arange(8)

    def _entry(self, position: int, call: Call, seq: int, done: bool) -> None:
        writer = self.writer
        writer.raw(b"}(")
        writer.text("frames")
        writer.raw(b"](")
        self._frames(call)
        writer.raw(b"e")
        for key, value in (("record_id", position), ("pg_id", call.group)):
            writer.text(key)
            writer.integer(value)
        writer.text("process_group")
        for memo in self.names[call.group]:
            writer.get(memo)
        writer.raw(b"\x86")
        writer.text("thread_name")
        writer.text("pt_main_thread")
        writer.text("thread_id")
        if not self.thread:
            self.thread = len(writer.out) + 5
        writer.text(_THREAD)
        for key, value in (("collective_seq_id", seq), ("p2p_seq_id", 0), ("op_id", seq)):
            writer.text(key)
            writer.integer(value)
        writer.text("profiling_name")
        writer.text(f"nccl:{call.op}")
        writer.text("time_created_ns")
        self.created[position] = writer.time()
        for key, numel in (("input", call.numel_in), ("output", call.numel_out)):
            writer.text(f"{key}_sizes")
            writer.raw(b"](](")
            writer.integer(numel)
            writer.raw(b"ee")
            writer.text(f"{key}_dtypes")
            writer.raw(b"](")
            writer.text("BFloat16")
            writer.raw(b"e")
        writer.text("state")
        writer.text("completed" if done else "scheduled")
        writer.text("time_discovered_started_ns")
        writer.raw(b"N")
        writer.text("time_discovered_completed_ns")
        if done:
            self.completed[position] = writer.time()
        else:
            writer.raw(b"N")
        writer.text("retired")
        writer.raw(b"\x88" if done else b"\x89")
        writer.text("timeout_ms")
        writer.integer(600000)
        writer.text("is_p2p")
        writer.raw(b"\x89u")

    def _frames(self, call: Call) -> None:
        for row in frames_of(call, self.job.frames):
            if not self.job.shared:
                self._frame(row, self.writer.fresh)
                self.writer.put()
            elif row in self.shared_frames:
                self.writer.get(self.shared_frames[row])
            else:
                self._frame(row, self.writer.text)
                self.shared_frames[row] = self.writer.put()

    def _frame(self, row: tuple[str, str, int], text: Callable[[str], object]) -> None:
        writer = self.writer
        writer.raw(b"}(")
        writer.text("name")
        text(row[0])
        writer.text("filename")
        text(row[1])
        writer.text("line")
        writer.integer(row[2])
        writer.raw(b"u")

    def patched(self, rank: int, head: bytes) -> bytes:
        """Return the dump of one rank."""
        random = np.random.default_rng(rank)
        body = self.body.copy()
        # Every rank enqueues at its own pace around the common one, and never goes back in time.
        created = EPOCH + np.cumsum(random.integers(800_000, 2_200_000, len(self.created))) + rank * 137
        completed = created[: len(self.completed)] + random.integers(400_000, 9_000_000, len(self.completed))
        body[self._created] = created.view(np.uint8).reshape(-1, 8)
        if len(completed):
            body[self._completed] = completed.view(np.uint8).reshape(-1, 8)
        thread = str(int(_THREAD) + rank * 4096).encode()
        body[self.thread : self.thread + len(thread)] = np.frombuffer(thread, np.uint8)
        return head + body.tobytes()


def frames_of(call: Call, count: int) -> Iterator[tuple[str, str, int]]:
    """Yield a call's frames, innermost first: the library's, the call site, and what all sites share."""
    yield from _INNER
    yield "reduce_from_region", "/workspace/train/mappings.py", call.line
    for depth in range(count - 4):
        name, file = _OUTER[depth % len(_OUTER)]
        yield name, file, 40 + 17 * depth
    yield "<module>", "/workspace/train/train.py", 90


def generate(folder: Path, job: Job) -> int:
    """Write the dumps of a job into `folder` and return their size in bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    templates = {role: Template(job, role) for role in sorted({job.role(rank) for rank in range(job.ranks)})}
    total = 0
    for rank in range(job.ranks):
        template = templates[job.role(rank)]
        total += (folder / f"{PREFIX}{rank}").write_bytes(
            template.patched(rank, bytes(Head(job, rank, template.status).writer.out))
        )
    return total


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=256)
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument("--frames", type=int, default=12)
    parser.add_argument("--unshared", action="store_true")
    parser.add_argument("--layout", choices=("world", "mesh"), default="mesh")
    options = parser.parse_args()
    job = Job(options.ranks, options.entries, options.frames, not options.unshared, options.layout)
    size = generate(options.folder, job)
    print(json.dumps({"ranks": job.ranks, "bytes": size, "culprit": job.culprit}))


if __name__ == "__main__":
    main()
