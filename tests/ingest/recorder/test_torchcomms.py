"""Dumps of torchcomms: torch's keys with another meaning."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import analyze

Calls = Sequence[tuple[str, str, bool]]  # (communicator, operation, whether it ended)


def dump(calls: Calls, sizes: dict[str, int], first: int = 0) -> dict[str, Any]:
    """Return what torchcomms writes of these calls; `first` is the number of the first one in the ring."""
    entries = [
        {
            "record_id": first + n, "pg_id": list(sizes).index(comm), "process_group": [comm, "ncclx"], "thread_name": "python",
            "thread_id": "140", "collective_seq_id": first + n, "p2p_seq_id": 0, "op_id": first + n, "profiling_name": f"nccl:{op}",
            "time_created_ns": 1_773_300_000_000_000_000 + n * 10**7, "input_sizes": [[64]], "input_dtypes": ["Float"],
            "output_sizes": [[64]], "output_dtypes": ["Float"], "state": "scheduled", "time_discovered_started_ns": 0,
            "time_discovered_completed_ns": 0, "retired": done, "timeout_ms": 600000, "is_p2p": False,
        }
        for n, (comm, op, done) in enumerate(calls)
    ]  # fmt: skip
    config = {
        c: {"name": c, "desc": "ncclx", "ranks": ",".join(map(str, range(n)))} for c, n in sizes.items()
    }
    return {
        "version": "2.10",
        "comm_lib_version": "2.28.9",
        "pg_config": config,
        "pg_status": {},
        "entries": entries,
    }


def write(folder: Path, dumps: dict[int, dict[str, Any]], *, as_pickle: bool = False) -> Path:
    for rank, told in dumps.items():
        path = folder / f"comm_lib_trace_rank_{rank}"
        path.write_bytes(pickle.dumps(told, protocol=2) if as_pickle else json.dumps(told).encode())
    return folder


def world(rank: int, *, absent: int = 2) -> Calls:
    done = [("world", "all_reduce", True)] * 5
    return done if rank == absent else [*done, ("world", "all_reduce", False)]


@pytest.mark.parametrize("as_pickle", [False, True])
def test_the_rank_that_does_not_make_the_call(tmp_path: Path, as_pickle: bool) -> None:
    folder = write(tmp_path, {r: dump(world(r), {"world": 4}) for r in range(4)}, as_pickle=as_pickle)
    verdict = analyze(folder).verdict
    assert verdict is not None
    assert (verdict.cause, verdict.culprit_ranks, verdict.op, verdict.seq) == (
        "stuck_rank",
        (2,),
        "all_reduce",
        6,
    )


def test_a_job_that_ended_its_calls_is_none_that_hangs(tmp_path: Path) -> None:
    calls = [("world", "all_reduce", True)] * 5
    assert analyze(write(tmp_path, {r: dump(calls, {"world": 4}) for r in range(4)})).status == "no_hang"


def test_calls_of_other_communicators_do_not_shift_the_worlds_numbers(tmp_path: Path) -> None:
    """Rank 1 logs on a communicator of its own and a peer; all ranks wait in the same call of the world."""
    more: Calls = [("pair", "all_gather", True)] * 3
    dumps = {r: dump([*(more if r < 2 else ()), *world(r)], {"world": 4, "pair": 2}) for r in range(4)}
    report = analyze(write(tmp_path, dumps))
    assert report.verdict is not None
    assert (report.verdict.culprit_ranks, report.verdict.seq) == ((2,), 6)
    assert "3 calls of other communicators" in " ".join(w.message for w in report.warnings)


def test_sends_that_name_no_peer_are_left_out(tmp_path: Path) -> None:
    dumps = {
        r: dump([("world", "recv" if r % 2 else "send", True), *world(r)], {"world": 4}) for r in range(4)
    }
    verdict = analyze(write(tmp_path, dumps)).verdict
    assert verdict is not None and verdict.culprit_ranks == (2,)


def test_a_ring_that_lost_its_beginning_is_aligned_by_the_common_count(tmp_path: Path) -> None:
    dumps = {r: dump(world(r)[-3 + (r == 2) :], {"world": 4}, first=98 if r == 2 else 97) for r in range(4)}
    dumps[2] = dump([("world", "all_reduce", True)] * 2, {"world": 4}, first=97)
    verdict = analyze(write(tmp_path, dumps)).verdict
    assert verdict is not None
    assert (verdict.culprit_ranks, verdict.seq) == ((2,), 100)


def test_groups_smaller_than_the_job_accuse_nobody(tmp_path: Path) -> None:
    calls: Calls = [("tp", "all_reduce", True)] * 3
    dumps = {r: dump([*calls, ("tp", "all_reduce", False)] if r != 5 else calls, {"tp": 4}) for r in range(8)}
    report = analyze(write(tmp_path, dumps))
    assert report.verdict is None or report.verdict.culprit_ranks == ()
    assert "members_unknown" in {warning.code for warning in report.warnings}
