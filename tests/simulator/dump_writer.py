"""Writes what each living rank's recorder would have left, in the shapes of torch's versions 2.4, 2.9 and
2.10.

The keys and their meaning follow torch/csrc/distributed/c10d/FlightRecorderDetail.hpp; `pg_status` holds the
seq of the last work of either kind (collective or point-to-point), as real dumps of pipeline jobs show.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .calls import Call, Stack
from .engine import Made, RankState
from .job import Base, Job

#: the job's own clock starts here: seconds since the epoch
EPOCH = 1_773_300_000


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """How recorders are set up. `ring`: entries kept; `pending_only`: dumps without completed calls and
    frames; `frames`: whether call sites were recorded.
    """

    version: str
    ring: int
    as_json: bool = False
    pending_only: bool = False
    frames: bool = True
    prefix: str = "nccl_trace_rank_"


class DumpWriter:
    """Turns the calls of a run into dump files. Static parts of entries are shared, as the recorder's pickles
    share them.
    """

    def __init__(self, job: Job, bases: list[Base], options: DumpOptions, offsets: Sequence[float]) -> None:
        self._job, self._bases, self._options, self._offsets = job, bases, options, offsets
        self._static: dict[int, tuple[Any, ...]] = {}
        self._frames: dict[Stack, list[dict[str, Any]]] = {}
        self._frame: dict[tuple[str, str, int], dict[str, Any]] = {}

    def write(self, folder: Path, state: RankState, taken: float) -> None:
        """Write the dump of one rank as it was at `taken` (seconds on the job's clock)."""
        dump = self.dump(state, taken)
        path = folder / f"{self._options.prefix}{state.rank}"
        if self._options.as_json:
            path.with_name(path.name + ".json").write_text(json.dumps(dump))
        else:
            path.write_bytes(pickle.dumps(dump, protocol=2))

    def dump(self, state: RankState, taken: float) -> dict[str, Any]:
        """Return the dump of one rank as plain data."""
        options, rank = self._options, state.rank
        made = [m for m in state.made if m.created <= taken] if taken < state.time else state.made
        ids = self._job.layout.local_ids(rank)
        used = {m.gid for m in made} | set(self._bases[rank].ops)
        groups = [g for g in self._job.layout.groups_of(rank) if g.gid in used]
        kept = made[-options.ring :]
        if options.pending_only:
            kept = [m for m in kept if not _done(m, taken)]
        entries = [self._entry(m, ids[m.gid], taken) for m in kept]
        dump: dict[str, Any] = {
            "version": options.version,
            "pg_config": {
                g.name: {"name": g.name, "desc": g.desc, "ranks": str(list(g.ranks))} for g in groups
            },
            "pg_status": {str(ids[g.gid]): self._status(rank, g.gid, made, taken) for g in groups},
        }
        if options.version == "2.10":
            dump["comm_lib_version"] = "2.27.5"
        elif options.version == "2.9":
            dump["nccl_version"] = "2.27.3"
        if options.as_json:
            dump["nccl_comm_state"] = {}
        if entries or not options.as_json:
            dump["entries"] = entries
        return dump

    def _status(self, rank: int, gid: int, made: list[Made], taken: float) -> dict[str, Any]:
        base = self._bases[rank]
        work = [m for m in made if m.gid == gid and m.batch is None]
        forgotten = base.collectives.get(gid) or base.p2ps.get(gid) or -1

        def last(of: list[Made]) -> int:
            if not of:
                return forgotten
            return (
                base.p2ps.get(gid, 0) + of[-1].p2p_seq
                if of[-1].is_p2p
                else base.collectives.get(gid, 0) + of[-1].seq
            )

        status: dict[str, Any] = {
            "last_enqueued_collective": last(work),
            "last_started_collective": last([m for m in work if m.started is not None and m.started <= taken])
            if self._job.timing
            else -1,
            "last_completed_collective": last([m for m in work if _done(m, taken)]),
        }
        return {key: str(value) for key, value in status.items()} if self._options.as_json else status

    def _entry(self, made: Made, local_id: int, taken: float) -> dict[str, Any]:
        options, base, gid = self._options, self._bases[made.rank], made.gid
        name, group, inputs, dtypes_in, outputs, dtypes_out = self._static.get(
            id(made.call)
        ) or self._describe(made)
        done = _done(made, taken)
        started = (
            self._job.timing and made.batch is None and made.started is not None and made.started <= taken
        )
        entry: dict[str, Any] = {
            "record_id": made.record_id + base.records,
            "pg_id": local_id,
            "process_group": group,
            "collective_seq_id": made.seq + base.collectives.get(gid, 0),
            "p2p_seq_id": made.p2p_seq + base.p2ps.get(gid, 0),
            "op_id": made.op_id + base.ops.get(gid, 0),
            "profiling_name": name,
            "time_created_ns": self._ns(made.rank, made.created),
            "input_sizes": inputs,
            "input_dtypes": dtypes_in,
            "output_sizes": outputs,
            "output_dtypes": dtypes_out,
            "state": "completed" if done else "started" if started else "scheduled",
            "time_discovered_started_ns": self._ns(made.rank, made.started or 0.0)
            if started
            else self._nothing,
            "time_discovered_completed_ns": self._ns(made.rank, made.completed + 0.05)
            if done and made.completed is not None
            else self._nothing,
            "retired": done,
            "timeout_ms": self._job.timeout * 1000,
            "is_p2p": made.is_p2p,
        }
        if done and self._job.timing and made.completed is not None and made.started is not None:
            entry["duration_ms"] = round((made.completed - made.started) * 1e3, 4)
        if options.version != "2.4":
            main = bool(made.stack) or made.is_p2p
            detached = made.call is not None and made.call.detached
            entry["thread_name"] = (
                "checkpoint_0" if detached else "pt_main_thread" if main else "pt_autograd_0"
            )
            entry["thread_id"] = str(140_200_000_000_000 + made.rank * 4096 + (0 if main else 512))
        if options.frames and not options.as_json and not options.pending_only:
            entry["frames"] = self._shared_frames(made.stack)
        return entry

    @property
    def _nothing(self) -> int | None:
        return 0 if self._options.as_json else None

    def _ns(self, rank: int, time: float) -> int:
        return int((EPOCH + self._offsets[rank]) * 10**9) + int(time * 1e9)

    def _describe(self, made: Made) -> tuple[Any, ...]:
        call = made.call
        group = self._job.layout.groups[made.gid]
        identity = (group.name, group.desc)
        if call is None:
            return ("nccl:coalesced", identity, [], [], [], [])
        described = (
            _profiling_name(call),
            identity,
            [list(shape) for shape in call.inputs],
            [call.dtype] * len(call.inputs),
            [list(shape) for shape in call.outputs],
            [call.dtype] * len(call.outputs),
        )
        self._static[id(call)] = described
        return described

    def _shared_frames(self, stack: Stack) -> list[dict[str, Any]]:
        frames = self._frames.get(stack)
        if frames is None:
            for row in stack:
                if row not in self._frame:
                    self._frame[row] = {"name": row[0], "filename": row[1], "line": row[2]}
            frames = self._frames[stack] = [self._frame[row] for row in stack]
        return frames


def _done(made: Made, taken: float) -> bool:
    return made.completed is not None and made.completed <= taken


def _profiling_name(call: Call) -> str:
    if call.op == "send":
        return f"nccl:send {call.src}->{call.dst}"
    if call.op == "recv":
        return f"nccl:recv {call.dst}<-{call.src}"
    return f"nccl:{call.op}"
