"""What other tools leave of a frozen job: Ray Train's hang detector and session logs, torch.distributed.debug, NVRx.

Their files are made from the sources that write them (named in each test), with dumps and stacks as the real ones are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.conftest import analyze
from tests.dump_writer import job, stuck

TORCH = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
WAITS = [("all_reduce", TORCH, 2942), ("train", "/workspace/train/train.py", 61)]
LOADS = [("read", "/workspace/train/shards.py", 33), ("train", "/workspace/train/train.py", 57)]
Frames = Sequence[tuple[str, str, int]]


def native(frames: Frames, pid: int) -> str:
    """Return what `py-spy dump --native` prints."""
    lines = [
        f"Process {pid}: ray::_RayTrainWorker__execute",
        "Python v3.11.9 (/usr/bin/python3.11)",
        "",
        f'Thread {pid} (idle): "MainThread"',
    ]
    lines += ["    __poll (libc.so.6)", *(f"    {name} ({file}:{line})" for name, file, line in frames)]
    return "\n".join(lines) + "\n"  # fmt: skip


def without_py_spy(frames: Frames, pid: int) -> str:
    """Return what Ray Train's worker writes where there is no py-spy: `traceback.format_stack` of each thread."""
    lines = [
        "[py-spy unavailable: py-spy not installed; Python-only traceback follows]",
        "",
        f"# Thread 1399{pid}",
    ]
    for name, file, line in reversed(frames):
        lines += [f'  File "{file}", line {line}, in {name}', f"    {name}(batch)"]
    return "\n".join(lines) + "\n"


def snapshot(counts: Sequence[int], stamp: str) -> str:
    """Return what `ncclras -f json` prints of one communicator."""
    fine = {
        "init_state": 0,
        "async_error": 0,
        "finalize_called": False,
        "destroy_flag": False,
        "abort_flag": False,
    }
    ranks = [
        {"rank": r, "host": "192.0.2.7", "pid": 100 + r, "cuda_dev": r, "nvml_dev": r, "status": fine, "collective_counts": {"AllReduce": n}}
        for r, n in enumerate(counts)
    ]  # fmt: skip
    comm = {"hash": "0xab34", "secondary_hash": "0x1:0x2", "size": len(counts), "ranks_count": len(counts), "missing_ranks_count": 0,
            "ranks": ranks, "missing_ranks": []}  # fmt: skip
    return json.dumps(
        {"nccl_version": "2.28.9", "timestamp": stamp, "communicators_count": 1, "communicators": [comm]}
    )


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("stack", [native, without_py_spy])
def test_rays_hang_detector(tmp_path: Path, stack: Callable[[Frames, int], str]) -> None:
    """`<experiment>/hang_detector/<tool>/` (ray/train/v2/_internal/callbacks/nccl_ras.py)."""
    top = tmp_path / "hang_detector"
    for recorder in stuck(4, culprit=2):
        put(
            top / "stack_traces" / f"rank_{recorder.rank}.log",
            stack(LOADS if recorder.rank == 2 else WAITS, 100 + recorder.rank),
        )
        put(
            top / "nvidia_smi" / "node_192.0.2.7.log",
            "==============NVSMI LOG==============\n    ECC Errors\n        DRAM Uncorrectable : 0\n",
        )
        (top / "flight_recorder").mkdir(exist_ok=True)
        recorder.write_json(top / "flight_recorder", f"rank_{recorder.rank}.json")
    for minute in (1, 2):
        stamp = f"2026-03-04 10:0{minute}:00"
        put(
            top / "nccl_ras" / f"ncclras_{stamp.replace(' ', '-').replace(':', '-')}.json",
            snapshot([25, 25, 24, 25], stamp),
        )
    report = analyze(top)
    assert report.verdict is not None
    assert (report.verdict.cause, report.verdict.culprit_ranks) == ("stuck_rank", (2,))
    assert report.verdict.location is not None
    assert report.verdict.location.file.endswith("shards.py")
    assert not [w for w in report.warnings if w.code in ("corrupt", "rank_unknown")]  # fmt: skip


def test_rays_folder_without_recorders(tmp_path: Path) -> None:
    """The recorder was not armed, and one worker was beyond py-spy: placeholders say so, and the rest is read."""
    top = tmp_path / "hang_detector"
    for rank in range(4):
        put(
            top / "flight_recorder" / f"rank_{rank}.json",
            json.dumps({"ray_train_dump_error": "timed out after 30s"}),
        )
        put(
            top / "stack_traces" / f"rank_{rank}.log",
            native(LOADS if rank == 2 else WAITS, 100 + rank) if rank else "timed out after 30s",
        )
    report = analyze(top)
    assert report.verdict is not None and report.verdict.culprit_ranks == (2,)
    assert "timed out after 30s" in " ".join(w.message for w in report.warnings)


def test_rays_first_hang_detector(tmp_path: Path) -> None:
    """`nv_hang_detector_artifacts/` (ray/train/v2/_internal/callbacks/nv_hang_detector.py): bare ranks for names."""
    top = tmp_path / "nv_hang_detector_artifacts"
    for recorder in stuck(4, culprit=2):
        put(
            top / "stack_traces" / f"{recorder.rank}.log",
            native(LOADS if recorder.rank == 2 else WAITS, 100 + recorder.rank),
        )
        (top / "flight_recorder").mkdir(exist_ok=True)
        recorder.write_json(top / "flight_recorder", f"{recorder.rank}.log")
    put(top / "nccl_ras" / "2026-03-04-10-01-00.log", snapshot([25, 25, 24, 25], "2026-03-04 10:01:00"))
    report = analyze(top)
    assert report.verdict is not None
    assert (report.verdict.cause, report.verdict.culprit_ranks) == ("stuck_rank", (2,))
    assert report.verdict.location is not None and report.verdict.location.line == 33


def record(rank: int, message: str, **more: str) -> str:
    told = {"asctime": "2026-03-02 11:00:21,118", "levelname": "ERROR", "message": message, "filename": "loop.py", "lineno": 12, **more,
            "job_id": "01000000", "worker_id": "ab" * 14, "node_id": "cd" * 14, "run_name": "sft", "component": "worker",
            "world_rank": rank, "local_rank": rank % 2, "node_rank": rank // 2, "timestamp_ns": 1772449221118000000}  # fmt: skip
    return json.dumps(told) + "\n"


def test_rays_session_logs_tell_their_rank(tmp_path: Path) -> None:
    """`logs/train/ray-train-app-worker-<id>.log`: one JSON record a line (ray/train/v2/_internal/logging/logging.py)."""
    trace = "Traceback (most recent call last):\n  File \"/workspace/train/train.py\", line 57, in train\n    batch = next(it)\nKeyError: 'shard-7'"
    closed = (
        "RuntimeError: [/build/gloo/transport/tcp/pair.cc:553] Connection closed by peer [192.0.2.7]:7827."
    )
    for rank in range(4):
        lines = record(rank, "step 41 done", levelname="INFO")
        lines += (
            record(rank, "the training function raised", exc_text=trace)
            if rank == 3
            else record(rank, closed)
        )
        put(tmp_path / "logs" / "train" / f"ray-train-app-worker-{rank:02}{'ab' * 13}.log", lines)
    verdict = analyze(tmp_path).verdict
    assert verdict is not None
    assert (verdict.cause, verdict.culprit_ranks) == ("crashed_rank", (3,))
    assert verdict.location is not None and (verdict.location.line, verdict.location.rank) == (57, 3)


def test_nvrxs_dumps(tmp_path: Path) -> None:
    """`$NVRX_FR_TRACE_PATH/_dump_<rank>.json`: a pickle put into JSON, of pending calls and without stacks (trace_collector.py)."""
    for recorder in stuck(4, culprit=2):
        dump = recorder.dump("2.9")
        dump["entries"] = [
            {k: v for k, v in e.items() if k != "frames"}
            for e in dump["entries"]
            if e["state"] != "completed"
        ]
        put(tmp_path / f"_dump_{recorder.rank}.json", json.dumps(dump, indent=4))
    verdict = analyze(tmp_path).verdict
    assert verdict is not None
    assert (verdict.culprit_ranks, verdict.op) == ((2,), "all_reduce")


# --- torch.distributed.debug (torch 2.15, torch/distributed/debug/_frontend.py) ---


def section(rank: int, frames: Frames) -> str:
    own = "".join(f'  File "{file}", line {line} in {name}\n' for name, file, line in frames)
    head = f"=== Rank {rank}: http://gpu07:3659{rank}/handler/dump_traceback? ===\n"
    return f"{head}Current thread 0x00007fefe77fe6c0 (most recent call first):\n  <no Python frame>\n\nThread 0x00007ff0ae8a8b80 (most recent call first):\n{own}\n"


def page(frames: dict[int, Frames], silent: dict[int, str] | None = None) -> str:
    """Return one page of stacks; `silent`: what came back for the ranks that gave none."""
    silent = silent or {}
    head = f"PARTIAL DATA: {len(frames)}/{len(frames) + len(silent)} workers responded\n" if silent else ""
    head += "".join(f"  Rank {rank}: {why}\n" for rank, why in silent.items()) + ("\n" if silent else "")
    parts = {rank: section(rank, own) for rank, own in frames.items()}
    parts |= {
        rank: f"=== Rank {rank}: http://gpu07:3659{rank}/handler/dump_traceback? ===\nError: 408\n"
        for rank in silent
    }
    return head + "".join(parts[rank] for rank in sorted(parts))


def test_only_the_last_page_of_stacks_counts(tmp_path: Path) -> None:
    put(tmp_path / "stacks_20261122_084650.txt", page({r: LOADS if r == 1 else WAITS for r in range(4)}))
    put(tmp_path / "stacks_20261122_084658.txt", page({r: LOADS if r == 2 else WAITS for r in range(4)}))
    for second in (50, 58):
        lines = "".join(
            f'=== Rank {r}: http://gpu07/handler/c10d_health_check? ===\n{{"healthy":true,"unhealthy_backends":[]}}\n'
            for r in range(4)
        )
        put(tmp_path / f"c10d_health_check_20261122_0846{second}.txt", lines)
    report = analyze(tmp_path)
    assert report.verdict is not None
    assert (report.verdict.cause, report.verdict.culprit_ranks) == ("stuck_rank", (2,))
    assert "older_pages" in {w.code for w in report.warnings}


def test_a_page_that_no_rank_can_give_accuses_nobody(tmp_path: Path) -> None:
    why = "Handler torchcomms_health_check not found: Failed to find handler torchcomms_health_check"
    put(tmp_path / "stacks_20261122_084650.txt", page(dict.fromkeys(range(4), tuple(WAITS))))
    put(tmp_path / "torchcomms_health_check_20261122_084650.txt", page({}, dict.fromkeys(range(4), why)))
    report = analyze(tmp_path)
    assert report.verdict is None or report.verdict.culprit_ranks == ()


COLUMNS = "  id    group_id  pass_check      collective_seq_id    p2p_seq_id    record_id  pg_desc       collective_name    input_sizes    output_sizes    expected_ranks    collective_state    collective_frames    input_numel    output_numel    missing_ranks    mismatch_collectives    type_of_mismatch"
WHOLE = "   0           0  True                            1             0            0  0:default_pg  nccl:all_reduce    [[1024]]       [[1024]]        {0, 1, 2, 3}      completed           []"
OPEN = "   1           0  True                            2             0            1  0:default_pg  nccl:all_reduce    [[1024]]       [[1024]]        {0, 1, 2, 3}      started             []                                                  {2}"
UNLIKE = "   1           0  False                           2             0            1  0:default_pg  nccl:all_reduce    [[1024]]       [[1024]]        {0, 1, 2, 3}      started             []                                                  {2: Collective(id=1, group_id='0', collective_name='nccl:broadcast')}"


def table(*rows: str) -> str:
    calls = [
        "--- NCCL Calls ---",
        "  id    collective_id    group_id    global_rank    traceback_id  collective_type    sizes",
    ]
    return (
        "\n".join(["=== FR Trace NCCL ===", "--- Groups ---", "--- Collectives ---", COLUMNS, *rows, *calls])
        + "\n"
    )


@pytest.mark.parametrize(("row", "ranks"), [(OPEN, (2,)), (UNLIKE, (2,)), (OPEN[:-4], ()), (WHOLE, ())])
def test_the_tables_of_recorders(tmp_path: Path, row: str, ranks: tuple[int, ...]) -> None:
    put(tmp_path / "fr_trace_20261122_084650.txt", table(WHOLE, OPEN.replace("{2}", "{1}")))
    put(tmp_path / "fr_trace_20261122_084750.txt", table(WHOLE, row))
    verdict = analyze(tmp_path).verdict
    assert (verdict.culprit_ranks if verdict else ()) == ranks
    assert verdict is None or verdict.confidence != "high"


def test_a_healthy_jobs_recorders_in_rays_folder(tmp_path: Path) -> None:
    for recorder in job(4):
        recorder.call("all_reduce", times=5)
        (tmp_path / "hang_detector" / "flight_recorder").mkdir(parents=True, exist_ok=True)
        recorder.write_json(tmp_path / "hang_detector" / "flight_recorder", f"rank_{recorder.rank}.json")
    assert analyze(tmp_path).status == "no_hang"
