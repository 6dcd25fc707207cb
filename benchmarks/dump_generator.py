"""Write what a large frozen NCCL job leaves, quickly: the dumps of N ranks x M entries x F frames, and logs beside them.

    python benchmarks/dump_generator.py FOLDER --ranks 256 --layout experts --timing --ragged --log-kb 2048

The files have the shape that torch 2.13 writes (version 2.10): protocol 2, every container opened by a mark, strings
memoized by their content, frame dicts one object per code line, sequence numbers per group. `programs.py` has the layouts.

Ranks of one role differ in times, names, members and routed sizes only, so one pickle per role (and beginning of the ring)
is made and patched for each rank.
"""

from __future__ import annotations

import argparse
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from beside import write_log, write_stack
from pickle_writer import PickleWriter, integer
from programs import HIDDEN, LAYOUTS, OWN_FILE, Call, Job

EPOCH = 1_773_300_000 * 10**9
PREFIX = "nccl_trace_rank_"
_THREAD = "140200000000000"


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

    def __init__(self, job: Job, role: str, begin: int) -> None:
        start = Head(job, 0, ([0] * 4, [0] * 4))
        self.writer = writer = PickleWriter(
            start.writer.memoized, {key: start.writer.strings[key] for key in ("name", "desc", "ranks")}
        )
        self.names = start.names
        self.shared_frames: dict[tuple[str, str, int], int] = {}
        self.job = job
        calls = job.calls(role)
        self.done = len(calls) - (not role.endswith("culprit"))
        #: offsets of the 8 bytes of each value, by key
        self.places: dict[str, list[int]] = {key: [] for key in ("created", "started", "completed", "took")}
        self.routed: list[int] = []  # offsets at which a routed call's number of tokens is missing
        self.own: list[int] = []  # offsets of a rank's own digits
        self.thread = 0
        seqs, sends = [0] * 4, [0] * 4
        last = [[0] * 4, [0] * 4]
        writer.text("entries")
        writer.raw(b"](")
        for position, call in enumerate(calls):
            if call.p2p:
                sends[call.group] += 1
            elif not call.ends_batch:
                seqs[call.group] += 1
            number = sends[call.group] if call.p2p or call.ends_batch else seqs[call.group]
            last[0][call.group] = number
            if position < self.done:
                last[1][call.group] = number
            if position >= begin:
                self._entry(position, call, (seqs[call.group], sends[call.group]), position < self.done)
        writer.raw(b"eu.")
        self.body = np.frombuffer(bytes(writer.out), np.uint8)
        self.status = last[0], last[1]
        self.patches = {
            key: np.array(at, np.int64)[:, None] + np.arange(8) for key, at in self.places.items()
        }

    def _entry(self, position: int, call: Call, seqs: tuple[int, int], done: bool) -> None:
        writer = self.writer
        seq, send = seqs
        writer.raw(b"}(")
        writer.text("frames")
        writer.raw(b"](")
        for row in self.job.frames_of(call):
            self._frame(row)
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
        for key, value in (("collective_seq_id", seq), ("p2p_seq_id", send), ("op_id", seq + send)):
            writer.text(key)
            writer.integer(value)
        writer.text("profiling_name")
        writer.text(f"nccl:{call.op}")
        writer.text("time_created_ns")
        self.places["created"].append(writer.time())
        ended = done and not call.p2p  # members of a batch are never updated
        if ended and self.job.timing:
            writer.text("duration_ms")
            self.places["took"].append(writer.duration())
        for key, numel in (("input", call.numel_in), ("output", call.numel_out)):
            self._tensors(key, call, numel)
        writer.text("state")
        writer.text("completed" if ended else "scheduled")
        writer.text("time_discovered_started_ns")
        if ended and self.job.timing:
            self.places["started"].append(writer.time())
        else:
            writer.raw(b"N")
        writer.text("time_discovered_completed_ns")
        if ended:
            self.places["completed"].append(writer.time())
        else:
            writer.raw(b"N")
        writer.text("retired")
        writer.raw(b"\x88" if ended else b"\x89")
        writer.text("timeout_ms")
        writer.integer(600000)
        writer.text("is_p2p")
        writer.raw(b"\x88u" if call.p2p else b"\x89u")

    def _tensors(self, key: str, call: Call, numel: int) -> None:
        writer = self.writer
        writer.text(f"{key}_sizes")
        if call.ends_batch:
            writer.raw(b"]")
        elif call.routed:
            writer.raw(b"](](")
            self.routed.append(len(writer.out))
            writer.integer(HIDDEN)
            writer.raw(b"ee")
        else:
            writer.raw(b"](](")
            writer.integer(numel)
            writer.raw(b"ee")
        writer.text(f"{key}_dtypes")
        if call.ends_batch:
            writer.raw(b"]")
        else:
            writer.raw(b"](")
            writer.text("BFloat16")
            writer.raw(b"e")

    def _frame(self, row: tuple[str, str, int]) -> None:
        writer = self.writer
        if row in self.shared_frames:
            writer.get(self.shared_frames[row])
            return
        writer.raw(b"}(")
        writer.text("name")
        writer.text(row[0])
        writer.text("filename")
        if row[1] == OWN_FILE.format(0) and row[1] not in writer.strings:
            self.own.append(len(writer.out) + 5 + OWN_FILE.index("{"))
        writer.text(row[1])
        writer.text("line")
        writer.integer(row[2])
        writer.raw(b"u")
        self.shared_frames[row] = writer.put()

    def patched(self, rank: int, head: bytes) -> bytes:
        """Return the dump of one rank."""
        random = np.random.default_rng(rank)
        body = self.body.copy()
        # Every rank enqueues at its own pace around the common one, and never goes back in time.
        count = len(self.places["created"])
        created = EPOCH + np.cumsum(random.integers(800_000, 2_200_000, count)) + rank * 137
        ended = np.sort(random.permutation(count)[: len(self.places["completed"])])
        times = {
            "created": created,
            "completed": created[ended] + random.integers(400_000, 9_000_000, len(ended)),
            "started": created[ended[: len(self.places["started"])]] + 250_000,
            "took": random.random(len(self.places["took"])).astype(">f8"),
        }
        for key, values in times.items():
            if len(values):
                body[self.patches[key]] = values.view(np.uint8).reshape(-1, 8)
        digits = dict.fromkeys(self.own, f"{rank:06d}") | {self.thread: str(int(_THREAD) + rank * 4096)}
        for at, text in digits.items():
            body[at : at + len(text)] = np.frombuffer(text.encode(), np.uint8)
        data = body.tobytes()
        if not self.routed:
            return head + data
        pieces, before = [head], 0
        tokens = random.gamma(4.0, 500.0, len(self.routed)).astype(int).tolist()  # a few are below 256
        for at, value in zip(self.routed, tokens, strict=True):
            pieces += data[before:at], integer(value)
            before = at
        return b"".join([*pieces, data[before:]])


def as_json(dump: bytes) -> str:
    """Return a dump as torch's recorder writes it as JSON: without frames, statuses as text, times 0 where there are none."""
    top: dict[str, Any] = pickle.loads(dump)
    top["pg_status"] = {
        key: {name: str(value) for name, value in row.items()} for key, row in top["pg_status"].items()
    }
    for entry in top["entries"]:
        del entry["frames"]
        for key in ("time_discovered_started_ns", "time_discovered_completed_ns"):
            entry[key] = entry[key] or 0
    return json.dumps({**top, "nccl_comm_state": {}})


def generate(folder: Path, job: Job) -> int:
    """Write what a job leaves into `folder` and return its size in bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    templates: dict[tuple[str, int], Template] = {}
    total = 0
    for rank in range(job.ranks):
        key = job.role(rank), job.begins(rank)
        template = templates[key] = templates.get(key) or Template(job, *key)
        dump = template.patched(rank, bytes(Head(job, rank, template.status).writer.out))
        if job.as_json:
            total += (folder / f"{PREFIX}{rank}.json").write_text(as_json(dump))
        else:
            total += (folder / f"{PREFIX}{rank}").write_bytes(dump)
        if job.log_kb:
            total += write_log(folder / f"rank{rank}.log", rank, job.log_kb << 10, waits=rank != job.culprit)
            total += write_stack(folder / f"py-spy-rank{rank}.txt", rank, waits=rank != job.culprit)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=256)
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument("--frames", type=int, default=12)
    parser.add_argument("--layout", choices=LAYOUTS, default="mesh")
    for flag in ("timing", "ragged", "own-stacks", "as-json"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--log-kb", type=int, default=0)
    options = vars(parser.parse_args())
    folder = options.pop("folder")
    job = Job(**options)
    size = generate(folder, job)
    print(json.dumps({"ranks": job.ranks, "bytes": size, "culprit": job.culprit}))


if __name__ == "__main__":
    main()
