"""Writes Flight Recorder dumps call by call: what one rank's recorder would have left, in the shape of any version.

`tests/simulator` decides by itself how far a frozen job comes; here a test says it, call by call, so that each
known failure of an analyzer can be built exactly. The keys follow torch/csrc/distributed/c10d/FlightRecorderDetail.hpp
and, for older versions, torch/distributed/flight_recorder/components/.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TORCH = "/opt/venv/lib/python3.11/site-packages/torch"
SCRIPT = "/workspace/train/train.py"
EPOCH_NS = 1_773_300_000 * 10**9
STEP_NS = 10_000_000

#: (desc, member ranks in group order) by name
Groups = Mapping[str, tuple[str, Sequence[int]]]

#: "bare" is the list of entries of before January 2024
VERSIONS = ("bare", "1.1", "1.5", "2.0", "2.1", "2.3", "2.4", "2.6", "2.9", "2.10")


def world(size: int) -> dict[str, tuple[str, Sequence[int]]]:
    """Return the default group of a job of `size` ranks, as `Recorder` takes groups."""
    return {"0": ("default_pg", range(size))}


THREAD = [
    {"name": name, "filename": "/usr/lib/python3.11/threading.py", "line": line}
    for name, line in (("run", 982), ("_bootstrap_inner", 1045), ("_bootstrap", 1002))
]


def stack(
    line: int, function: str = "train", op: str = "all_reduce", threaded: bool = False
) -> list[dict[str, Any]]:
    """Return the frames of a call that `function` of the training script made at `line`, innermost first."""
    return [
        {"name": op, "filename": f"{TORCH}/distributed/distributed_c10d.py", "line": 2938},
        {"name": "wrapper", "filename": f"{TORCH}/distributed/c10d_logger.py", "line": 81},
        {"name": function, "filename": SCRIPT, "line": line},
        *(THREAD if threaded else [{"name": "<module>", "filename": SCRIPT, "line": 200}]),
    ]


@dataclass
class Recorder:
    """One rank's recorder: `call`, `send`, `recv` and `batch` append what torch would, the `dump_*` methods give it back.

    `local_ids` maps group names to the rank's own numbers for them (default: in the order of `groups`); `ring` is the
    number of entries that are kept.
    """

    rank: int
    groups: Groups
    backend: str = "nccl"
    local_ids: dict[str, int] = field(default_factory=dict)
    ring: int = 2000
    time_ns: int = EPOCH_NS
    entries: list[dict[str, Any]] = field(default_factory=list)
    _seq: dict[str, int] = field(default_factory=dict)
    _p2p: dict[str, int] = field(default_factory=dict)
    _ops: dict[str, int] = field(default_factory=dict)
    _members: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        for number, name in enumerate(self.groups):
            self.local_ids.setdefault(name, number)

    def call(
        self,
        op: str,
        group: str = "0",
        *,
        sizes: Sequence[Sequence[int]] = ((8,),),
        outputs: Sequence[Sequence[int]] | None = None,
        dtype: str = "Float",
        state: str = "completed",
        line: int | None = 40,
        function: str = "train",
        times: int = 1,
        threaded: bool = False,
    ) -> Recorder:
        """Record a collective (`times` of them). `line` is the caller's (None: a call without Python frames), of a thread if `threaded`."""
        for _ in range(times):
            self._seq[group] = self._seq.get(group, 0) + 1
            frames = [] if line is None else stack(line, function, op, threaded)
            self._add(group, op, sizes, sizes if outputs is None else outputs, dtype, state, frames)
        return self

    def send(
        self, to: int, group: str = "0", *, state: str = "completed", line: int = 60, size: int = 64
    ) -> Recorder:
        """Record a send to a global rank."""
        return self._alone("send", to, group, state, line, size)

    def recv(
        self, source: int, group: str = "0", *, state: str = "completed", line: int = 61, size: int = 64
    ) -> Recorder:
        """Record a receive from a global rank."""
        return self._alone("recv", source, group, state, line, size)

    def batch(
        self, halves: Iterable[tuple[str, int]], group: str = "0", *, state: str = "completed", line: int = 70
    ) -> Recorder:
        """Record a batch_isend_irecv of (`send` or `recv`, peer): members stay `scheduled`, the end entry tells."""
        self._p2p[group] = self._p2p.get(group, 0) + 1
        for op, peer in halves:
            self._members.add(len(self.entries))
            self._half(op, peer, group, "scheduled", line, 64)
        self._add(group, "coalesced", [], [], None, state, stack(line, op="batch_isend_irecv"), is_p2p=True)
        return self

    def coalesced(
        self,
        op: str,
        members: Sequence[int],
        end: str,
        *,
        group: str = "0",
        state: str = "completed",
        line: int = 50,
    ) -> Recorder:
        """Record a coalesced collective: one `op` per member size, all of one sequence number, and the entry that ends it."""
        self._seq[group] = self._seq.get(group, 0) + 1
        for size in members:
            self._add(group, op, [[size]], [[size]], "Float", "scheduled", stack(line, op=op))
        self._add(group, end, [], [], None, state, stack(line, op=op))
        return self

    def burn(self, count: int = 1, group: str = "0") -> Recorder:
        """Count sequence numbers that no entry is written for."""
        self._seq[group] = self._seq.get(group, 0) + count
        return self

    def exchange(self, count: int, group: str = "0") -> Recorder:
        """Count sends and receives that gloo's recorder keeps no entry of."""
        self._ops[group] = self._ops.get(group, 0) + count
        return self

    def reopen(self, *positions: int) -> Recorder:
        """Take back the completion of recorded calls."""
        for position in positions:
            self.entries[position].update(state="scheduled", retired=False, time_discovered_completed_ns=None)
        return self

    def later(self, seconds: float) -> Recorder:
        """Let time pass before the next call."""
        self.time_ns += int(seconds * 1e9)
        return self

    # -- what it leaves ---------------------------------------------------------------------------------------------

    def dump(self, version: str = "2.10", *, config: bool = True) -> Any:
        """Return the dump as plain data. `config` False: `pg_config` was never filled, as before a communicator's first use."""
        kept = [self._shape(e, version) for e in self.entries[-self.ring :]]
        if version == "bare":
            return kept
        minor = _version(version)
        dump: dict[str, Any] = {"version": version}
        if minor >= (1, 4):
            dump["pg_config"] = self._config() if config else {}
        if minor >= (2, 3):
            dump["pg_status"] = self._status()
        if minor >= (2, 10):
            dump["comm_lib_version"] = "" if self.backend == "gloo" else "2.27.5"
        elif minor >= (2, 6):
            dump["nccl_version"] = "2.27.3"
        dump["entries"] = kept
        return dump

    def write(self, folder: Path, name: str | None = None, version: str = "2.10", **options: Any) -> Path:
        """Write the pickle into `folder` as `name` (default: torch's own name for it)."""
        path = folder / (name or f"nccl_trace_rank_{self.rank}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(self.dump(version, **options), protocol=2))
        return path

    def write_json(self, folder: Path, name: str | None = None) -> Path:
        """Write the dump as `_dump_fr_trace_json` gives it: no frames, numbers of `pg_status` as text, no empty `entries`."""
        dump = self.dump()
        for entry in dump["entries"]:
            entry.pop("frames")
            entry["process_group"] = list(entry["process_group"])
            entry["time_discovered_started_ns"] = entry["time_discovered_started_ns"] or 0
            entry["time_discovered_completed_ns"] = entry["time_discovered_completed_ns"] or 0
        dump["pg_status"] = {k: {n: str(v) for n, v in s.items()} for k, s in dump["pg_status"].items()}
        dump["nccl_comm_state"] = {}
        if not dump["entries"]:
            del dump["entries"]
        path = folder / (name or f"nccl_trace_rank_{self.rank}.json")
        path.write_text(json.dumps(dump))
        return path

    # -- parts ------------------------------------------------------------------------------------------------------

    def _alone(self, op: str, peer: int, group: str, state: str, line: int, size: int) -> Recorder:
        self._p2p[group] = self._p2p.get(group, 0) + 1
        self._half(op, peer, group, state, line, size)
        return self

    def _half(self, op: str, peer: int, group: str, state: str, line: int, size: int) -> None:
        members = list(self.groups[group][1])
        mine, other = members.index(self.rank), members.index(peer)
        name = f"{op} {mine}{'->' if op == 'send' else '<-'}{other}"
        self._add(group, name, [[size]], [[size]], "Float", state, stack(line, op=f"i{op}"), is_p2p=True)

    def _add(
        self,
        group: str,
        op: str,
        ins: Any,
        outs: Any,
        dtype: str | None,
        state: str,
        frames: list[dict[str, Any]],
        *,
        is_p2p: bool = False,
    ) -> None:
        self.time_ns += STEP_NS
        self._ops[group] = self._ops.get(group, 0) + 1
        gloo, done = self.backend == "gloo", state == "completed"
        sizes_in, sizes_out = [list(s) for s in ins], [list(s) for s in outs]
        self.entries.append(
            {
                "frames": frames,
                "record_id": len(self.entries),
                "pg_id": self.local_ids[group],
                "process_group": (group, self.groups[group][0]),
                "thread_name": "pt_main_thread",
                "thread_id": str(140_000_000_000_000 + self.rank),
                "collective_seq_id": self._seq.get(group, 0),
                "p2p_seq_id": self._p2p.get(group, 0) if is_p2p else 0,
                "op_id": self._ops[group],
                "profiling_name": f"{self.backend}:{op}",
                "time_created_ns": self.time_ns,
                "input_sizes": sizes_in,
                "input_dtypes": [dtype] * len(sizes_in) if dtype else [],
                "output_sizes": sizes_out,
                "output_dtypes": [dtype] * len(sizes_out) if dtype else [],
                "state": "scheduled" if gloo else state,
                "time_discovered_started_ns": None if gloo or state == "scheduled" else self.time_ns + 1000,
                "time_discovered_completed_ns": self.time_ns + 5000 if done and not gloo else None,
                "retired": done,
                "timeout_ms": 1_800_000 if gloo else 600_000,
                "is_p2p": is_p2p,
            }
        )

    def _shape(self, entry: dict[str, Any], version: str) -> dict[str, Any]:
        """Return an entry with the keys that its version had."""
        entry = dict(entry)
        minor = _version(version)
        if minor < (2, 10):
            del entry["thread_name"], entry["thread_id"]
        if minor < (2, 4):
            del entry["timeout_ms"]
        if minor < (2, 1):
            del entry["input_dtypes"], entry["output_dtypes"], entry["is_p2p"]
        if minor < (2, 0):
            seqs = entry.pop("collective_seq_id"), entry.pop("p2p_seq_id")
            entry["seq_id"] = sum(seqs)
        if minor < (1, 4):
            del entry["record_id"], entry["op_id"], entry["process_group"]
        return entry

    def _config(self) -> dict[str, Any]:
        if self.backend == "gloo":  # one nameless group, its members known only where there is no other
            members = list(next(iter(self.groups.values()))[1]) if len(self.groups) == 1 else []
            return {"": {"name": "", "desc": "", "ranks": str(members)}}
        return {
            name: {"name": name, "desc": desc, "ranks": str(list(ranks))}
            for name, (desc, ranks) in self.groups.items()
        }

    def _status(self) -> dict[str, dict[str, int]]:
        status = {}
        for local_id in self.local_ids.values():
            # Members of a batch are no work of their own; its end entry is.
            own = [
                e
                for e in self.entries
                if e["pg_id"] == local_id and not (e["is_p2p"] and e["record_id"] in self._members)
            ]
            done = [e for e in own if (e["retired"] if self.backend == "gloo" else e["state"] == "completed")]
            status[str(local_id)] = {
                "last_enqueued_collective": _number(own),
                "last_started_collective": -1,
                "last_completed_collective": _number(done),
            }
        return status


def _number(entries: list[dict[str, Any]]) -> int:
    if not entries:
        return -1
    last = entries[-1]
    if last["profiling_name"].startswith("gloo:"):
        return int(last["op_id"])
    return int(last["p2p_seq_id"] if last["is_p2p"] else last["collective_seq_id"])


def _version(version: str) -> tuple[int, int]:
    if version == "bare":
        return (1, 0)
    major, minor = version.split(".")
    return int(major), int(minor)


def job(
    size: int, *, groups: Groups | None = None, backend: str = "nccl", ring: int = 2000
) -> list[Recorder]:
    """Return the recorders of all ranks of a job, with the groups that each is a member of."""
    known = groups or world(size)
    return [
        Recorder(rank, {n: g for n, g in known.items() if rank in g[1]}, backend=backend, ring=ring)
        for rank in range(size)
    ]


def write_all(recorders: Iterable[Recorder], folder: Path, version: str = "2.10") -> Path:
    """Write the dump of every recorder into `folder`, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    for recorder in recorders:
        recorder.write(folder, version=version)
    return folder


def stuck(size: int = 4, culprit: int = 2, *, steps: int = 12, state: str = "scheduled") -> list[Recorder]:
    """Return a job in which `culprit` never makes the call after `steps` steps of two collectives; its peers wait in it."""
    recorders = job(size)
    for recorder in recorders:
        for _ in range(steps):
            recorder.call("all_reduce", sizes=[[1024]], line=41).call(
                "all_gather", outputs=[[8]] * size, line=43
            )
        if recorder.rank != culprit:
            recorder.call("all_reduce", sizes=[[1024]], line=41, state=state)
    return recorders
