"""Logs that go on in the same files after a restart: only the last attempt counts."""

from __future__ import annotations

import io
from pathlib import Path

from hangscope.errors import Note
from hangscope.ingest.evidence.text_evidence import collect
from hangscope.ingest.job_logs.endings import Exit
from hangscope.ingest.torch_logs.c10d import DumpObserved, WatchdogTimeout
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.workers.reading import Reading, read_log
from hangscope.model.events import Event
from tests.conftest import analyze

_WORK = "WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000)"


FAILED = "E0312 {at}:02.167000 3900 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: {code}) local_rank: {local} (pid: {pid}) of binary: /opt/venv/bin/python3"
TABLE = (
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    + "=" * 60
    + "\ntrain.py FAILED\n"
    + "-" * 60
    + "\nRoot Cause (first observed failure):\n[0]:\n  time      : 2026-03-12_07:{minute}:01\n  host      : gpu00\n"
    + "  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: {pid})\n  error_file: <N/A>\n  traceback : none\n"
    + "=" * 60
    + "\n"
)


def c10(rank: int, at: str, said: str) -> str:
    return f"[rank{rank}]:[E312 {at}.000000001 ProcessGroupNCCL.cpp:632] {said}"


def timeout(rank: int, at: str, seq: int) -> str:
    work = _WORK.format(seq=seq)
    return c10(
        rank,
        at,
        f"[Rank {rank}] Watchdog caught collective operation timeout: {work} ran for 600031 milliseconds before timing out.",
    )


def down(rank: int, at: str) -> str:
    return c10(
        rank,
        at,
        "[PG ID 0 PG GUID 0(default_pg) Rank 0] To avoid data inconsistency, we are taking the entire process down.",
    )


def observed(rank: int, at: str) -> str:
    return c10(
        rank,
        at,
        "[PG ID 0 PG GUID 0(default_pg) Rank 1] Observed flight recorder dump signal from another rank via TCPStore.",
    )


def events(**logs: str) -> list[Event]:
    readings = [
        Reading(f"{name}.log", "log", "used", "", log=read_log(io.BytesIO(text.encode()), f"{name}.log"))
        for name, text in logs.items()
    ]
    notes: list[Note] = []
    return collect(readings, notes).events


def test_a_rank_that_speaks_after_its_watchdog_ended_it_is_one_attempt_further() -> None:
    text = "\n".join(
        [timeout(0, "07:10:00", 240), down(0, "07:11:00"), timeout(0, "07:40:00", 12), down(0, "07:41:00")]
    )
    assert [e.seq for e in events(rank_0=text) if isinstance(e, WatchdogTimeout)] == [12]


def test_one_attempt_stays_whole() -> None:
    text = "\n".join([timeout(0, "07:10:00", 240), down(0, "07:11:00"), observed(0, "07:11:01")])
    found = events(rank_0=text)
    assert [e.seq for e in found if isinstance(e, WatchdogTimeout)] == [240]
    assert any(isinstance(e, DumpObserved) for e in found)


def test_a_log_without_a_restart_of_its_own_is_cut_by_time() -> None:
    aborted = "\n".join([timeout(0, "07:10:00", 240), down(0, "07:11:00"), timeout(0, "07:40:00", 12)])
    idle = "\n".join([observed(1, "07:10:01"), timeout(1, "07:40:00", 12)])
    found = [e for e in events(rank_0=aborted, rank_1=idle) if e.rank == 1]
    assert [type(e) for e in found] == [WatchdogTimeout]


def test_an_exception_before_lines_of_the_next_attempt_is_the_attempt_befores() -> None:
    aborted = "\n".join([timeout(0, "07:10:00", 240), down(0, "07:11:00"), timeout(0, "07:40:00", 12)])
    raised = "[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: no target\n"
    found = events(rank_0=aborted, rank_1=raised + timeout(1, "07:40:00", 12))
    assert not [e for e in found if isinstance(e, RankException)]
    (kept,) = [e for e in events(rank_1=raised) if isinstance(e, RankException)]
    assert kept.rank == 1


def test_an_agents_table_is_of_the_attempt_that_it_closes() -> None:
    first = (
        FAILED.format(at="07:15", code=-6, local=6, pid=41)
        + "\n"
        + TABLE.format(minute=15, rank=6, code=-6, pid=41)
    )
    second = (
        FAILED.format(at="07:40", code=1, local=2, pid=52)
        + "\n"
        + TABLE.format(minute=40, rank=2, code=1, pid=52)
    )
    found = [e for e in events(launcher=first + second) if isinstance(e, Exit)]
    assert {(e.rank, e.code) for e in found if e.rank is not None} == {(2, 1)}
    assert -6 not in {e.code for e in found}


def test_what_a_launcher_copied_from_an_earlier_attempt_does_not_count(tmp_path: Path) -> None:
    raised = "\n".join(
        ["[rank1]: Traceback (most recent call last):", '[rank1]:   File "train.py", line 6, in <module>',
         '[rank1]:     raise ValueError("bad")', "[rank1]: ValueError: bad", ""]
    )  # fmt: skip
    waits = timeout(0, "07:10:00", 9)
    for name, text in {
        "launcher/node.err": raised,
        "logs/restart_0/rank_1.err": raised,
        "logs/restart_1/rank_0.err": waits,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    verdict = analyze(tmp_path).verdict
    assert verdict is not None and "ValueError" not in str(verdict)
    assert "ValueError" in str(analyze(tmp_path, attempt=0).verdict)


def test_a_task_that_ends_twice_was_started_again(tmp_path: Path) -> None:
    ends = [
        (0, "Segmentation fault (core dumped)"),
        (1, "Aborted"),
        (2, "Aborted"),
        (0, "Aborted"),
        (1, "Aborted"),
    ]
    lines = [f"srun: error: gpu00: task {task}: {how}" for task, how in ends]
    (tmp_path / "slurm.out").write_text("\n".join(lines) + "\n")
    for rank in range(3):
        waits = timeout(rank, "07:50:23", 7) if rank < 2 else "[rank 2] done, leaving"
        (tmp_path / f"rank_{rank}.log").write_text(f"[rank {rank}] step 9 loss 2.1\n{waits}\n")
    statements = analyze(tmp_path).analysis.case.statements
    assert {rank: end.signal for rank, end in statements.exits.items()} == {0: "SIGABRT", 1: "SIGABRT"}
