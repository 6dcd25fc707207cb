from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hangscope.ingest.evidence.processes import Processes
from hangscope.ingest.evidence.stack_owners import owners
from hangscope.ingest.workers.reader import read_file
from hangscope.ingest.workers.reading import Reading
from hangscope.model.frames import Stack

FAILURE = """[rank0]: Traceback (most recent call last):
[rank0]:   File "/workspace/train/train.py", line 69, in train_step
[rank0]: ValueError: bad sample
"""
WATCHDOG = (
    "[rank3]:[E1016 03:31:38.928019586 ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=6, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n"
)
STACK = """Fatal Python error: Aborted

Thread 0x00007f4b9c884b80 (most recent call first):
  File "/workspace/train/train.py", line 11 in load
  File "/workspace/train/train.py", line 50 in <module>

Extension modules: numpy.core._multiarray_umath (total: 1)
"""


def read(folder: Path, text: str, name: str = "job.log") -> dict[str, Any]:
    (folder / name).write_text(text)
    return read_file(str(folder / name), name)


def kinds(told: dict[str, Any]) -> list[str]:
    return [row[0] for row in (told["log"] or {"events": []})["events"]]


@pytest.mark.parametrize(
    "head",
    [
        "{'loss': 2.31, 'grad_norm': 1.2, 'epoch': 0.01}\n",
        '{\n  "train_batch_size": 8,\n  "zero": {"stage": 2}\n}\n',
        '{"args": {\n',
        "Job summary: 2 nodes\n",
        '{\n  "nccl_version": "2.27.3"\n}\n',
    ],
)
def test_a_log_may_begin_like_something_else(tmp_path: Path, head: str) -> None:
    told = read(tmp_path, head + FAILURE)
    assert (told["kind"], told["status"]) == ("log", "used") and "exception" in kinds(told)


def test_a_dump_that_was_cut_is_no_log(tmp_path: Path) -> None:
    cut = '{"entries": [{"frames": [{"name": "RuntimeError: Connection closed by peer'
    assert read(tmp_path, cut)["notes"][0][0] == "corrupt"
    assert read(tmp_path, '{"a": [1, 2')["notes"][0][0] == "corrupt"


def test_stacks_and_log_lines_of_one_process(tmp_path: Path) -> None:
    told = read(tmp_path, WATCHDOG + "terminate called without an active exception\n" + STACK)
    assert told["kind"] == "stacks" and [f[2] for f in told["stacks"][0][4][0][1]] == [11, 50]
    assert {"watchdog_timeout", "terminate"} <= set(kinds(told))


def test_stacks_far_behind_the_start_of_a_log(tmp_path: Path) -> None:
    steps = "".join(f"step {n} loss 0.1\n" for n in range(2000))
    told = read(tmp_path, steps + STACK + "more\n" * 9 + STACK.replace("line 11", "line 12"))
    assert told["kind"] == "log" and [f[2] for f in told["stacks"][0][4][0][1]] == [12, 50]
    assert read(tmp_path, steps + "see the stack (most recent call first):\n")["stacks"] == []


def test_dumps_of_two_ranks_in_one_log(tmp_path: Path) -> None:
    def prefixed(rank: int) -> list[str]:
        return [f"[rank{rank}]: {line}\n" for line in STACK.splitlines()]

    woven = "".join(a + b for a, b in zip(prefixed(0), prefixed(1), strict=True))
    told = read(tmp_path, "step 1\n" * 2000 + woven)
    assert [(row[0], len(row[4][0][1])) for row in told["stacks"]] == [(0, 2), (1, 2)]


def test_pure_stacks_stay_stacks(tmp_path: Path) -> None:
    told = read(tmp_path, STACK.split("\n\n", 1)[1])
    assert told["kind"] == "stacks" and told["log"] is None


def test_the_stacks_of_a_log_belong_to_its_only_writer(tmp_path: Path) -> None:
    from hangscope.ingest.assemble import assemble

    incident = assemble([Reading.from_wire("job.log", read(tmp_path, WATCHDOG + STACK))])
    assert incident.ranks[3].threads and incident.ranks[3].stack_file == "job.log"


SPY = """Process {pid}: {title}
Python v3.12.11 (/usr/bin/python3.12)

Thread {pid} (idle): "MainThread"
    {frame} (app/steps.py:{line})
    loop (app/main.py:50)
Thread 9{pid} (idle): "Thread-2"
    wait (threading.py:359)
"""


def test_what_py_spy_prints_far_behind_the_start_of_a_log(tmp_path: Path) -> None:
    blocks = "".join(
        f"[2026-03-02 11:05:25 TP{n}] Pyspy dump for PID {800 + n} (py-spy dump --native --pid {800 + n}):\n"
        + SPY.format(pid=800 + n, title=f"sglang::scheduler_TP{n}", frame="wait" if n else "load", line=n)
        for n in range(3)
    )
    told = read(tmp_path, "step 1 of many\n" * 2000 + blocks + "step 2\n")
    assert told["kind"] == "log"
    mains = [(row[0], row[1], row[4][0][1][0][0]) for row in told["stacks"]]
    assert mains == [(0, 800, "load"), (1, 801, "wait"), (2, 802, "wait")]


def placed(tmp_path: Path, text: str) -> list[tuple[tuple[int | None, int | None], Stack]]:
    reading = Reading.from_wire("job.log", read(tmp_path, text))
    placed, missed = owners(Processes([reading]), reading, None)
    known = [((rank, None), stack) for rank, threads in placed.items() for _, stack, _ in threads]
    return [*known, *(((None, process.pid), stack) for process in missed for _, stack, _ in process.threads)]


@pytest.mark.parametrize(
    ("prefix", "more", "ranks"),
    [
        ("[1,{n}]<stderr>:", "", [0, 1]),
        ("{n}: ", "", [0, 1]),
        (
            "[default{n}]:",
            "[default0]:[rank4]: ValueError: bad\n[default1]:[rank5]: ValueError: bad\n",
            [4, 5],
        ),
        ("(Worker_TP{n} pid=41{n}) ERROR 11-02 19:05:51 [multiproc_executor.py:511] ", "", [0, 1]),
        ("(VllmWorker rank={n} pid=41{n}) ", "", [0, 1]),
        ("[rank{n}]:", "", [0, 1]),
    ],
)
def test_stacks_behind_a_launchers_prefix(tmp_path: Path, prefix: str, more: str, ranks: list[int]) -> None:
    own = [[prefix.format(n=n) + line + "\n" for line in STACK.splitlines()] for n in (0, 1)]
    woven = "".join(a + b for a, b in zip(*own, strict=True))
    for text in (woven + more, "step 1\n" * 2000 + woven + more):
        threads = placed(tmp_path, text)
        assert [(who[0], len(stack)) for who, stack in threads] == [(rank, 2) for rank in ranks]


def test_tasks_that_are_no_ranks_tell_none(tmp_path: Path) -> None:
    own = [[f"{n}: {line}\n" for line in STACK.splitlines()] for n in (0, 1)]
    woven = "".join(a + b for a, b in zip(*own, strict=True))
    assert placed(tmp_path, woven + "0: [rank4]: ValueError: bad\n1: [rank5]: ValueError: bad\n") == []


@pytest.mark.parametrize(
    ("prefix", "whose"),
    [
        # another line may tell their ranks
        ("(RayWorkerWrapper pid=41{n}, ip=192.0.2.{n}) ", [(None, 410), (None, 411)]),
        ("[default{n}]:", []),  # which node's local ranks these are, nothing tells
        ("gpu-0{n}: ", []),
    ],
)
def test_stacks_of_processes_without_a_rank_are_not_mixed(
    tmp_path: Path, prefix: str, whose: list[tuple[int | None, int | None]]
) -> None:
    own = [[prefix.format(n=n) + line + "\n" for line in STACK.splitlines()] for n in (0, 1)]
    woven = "".join(a + b for a, b in zip(*own, strict=True))
    for text in (woven, "step 1\n" * 2000 + woven):
        threads = placed(tmp_path, text)
        assert [(who, len(stack)) for who, stack in threads] == [(who, 2) for who in whose]
