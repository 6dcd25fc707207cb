from __future__ import annotations

from pathlib import Path

import pytest

from hangscope.ingest.job_logs.endings import Exit, signal_name
from hangscope.model.incident import Event
from tests.conftest import analyze
from tests.text_lines import settled

FAILED = "failed (exitcode: -9) local_rank: 1 (pid: 29461) of binary: /opt/venv/bin/python3"


def events(text: str) -> list[Event]:
    reading = settled(text)
    assert reading.notes == []
    return reading.events


@pytest.mark.parametrize(
    "header",
    [
        "ERROR:torch.distributed.elastic.multiprocessing.api:",
        "[2025-08-12 01:00:25,401] torch.distributed.elastic.multiprocessing.api: [ERROR] ",
        "E1120 15:31:49.819000 29458 torch/distributed/elastic/multiprocessing/api.py:1002] ",
        "0: E1120 15:31:49.819000 29458 site-packages/torch/distributed/elastic/multiprocessing/api.py:1002] ",
    ],
)
def test_the_agents_line_of_every_version(header: str) -> None:
    (event,) = events(header + FAILED)
    assert (event.kind, event.rank, event.pid) == ("exit", None, 29461)
    assert (event.code, event.signal, event.local_rank) == (-9, "SIGKILL", 1)
    assert events(header + FAILED[:30]) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Sending process 17252 closing signal SIGTERM",
            ("cleanup_signal", {"signal": "SIGTERM"}),
        ),
        (
            "Unable to shutdown process 17252 via Signals.SIGTERM, forcefully exiting via Signals.SIGKILL",
            ("cleanup_signal", {"signal": "SIGKILL"}),
        ),
        (
            "Received 15 death signal, shutting down workers",
            ("external_end", {"reason": "sigterm", "signal": "SIGTERM"}),
        ),
        (
            "Received Signals.SIGTERM death signal, shutting down workers",
            ("external_end", {"reason": "sigterm"}),
        ),
        ("Received 2 death signal, shutting down workers", ("external_end", {"reason": "cancelled"})),
        (
            "torch.distributed.elastic.multiprocessing.api.SignalException: Process 123 got signal: 15",
            ("external_end", {"reason": "sigterm"}),
        ),
        (
            "slurmstepd: error: *** JOB 12 ON gpu07 CANCELLED AT 2026-11-20T15:13:24 DUE TO PREEMPTION ***",
            ("external_end", {"reason": "preemption"}),
        ),
        (
            "slurmstepd: error: *** STEP 12.0 ON gpu07 CANCELLED AT 2026-11-20T15:13:24 DUE TO TIME LIMIT ***",
            ("external_end", {"reason": "time_limit"}),
        ),
        (
            "slurmstepd: error: *** JOB 12 ON gpu07 CANCELLED AT 2026-11-20T15:13:24 ***",
            ("external_end", {"reason": "cancelled"}),
        ),
        ("The node was low on resource: memory.", ("external_end", {"reason": "evicted"})),
        (
            "mpirun noticed that process rank 3 with PID 99 on node gpu07 exited on signal 9 (Killed).",
            ("exit", {"code": -9, "task": 3, "host": "gpu07"}),
        ),
        (
            "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL",
            ("exit", {"code": -9, "local_rank": 1}),
        ),
        (
            "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with exit code 3",
            ("exit", {"code": 3, "local_rank": 1}),
        ),
        (
            "[rank: 2] Child process with PID 4711 terminated with code -9. Forcefully terminating all other processes to avoid zombies",
            ("exit", {"code": -9, "local_rank": 2, "pid": 4711, "rank": None}),
        ),
        (
            "INFO     lightning.fabric.strategies.launchers.subprocess_script:subprocess_script.py:224 [rank: 1] Child process with PID 29 terminated with code 4. Forcefully terminating all other processes",
            ("exit", {"code": 4, "local_rank": 1, "pid": 29}),
        ),
        (
            "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD",
            ("exit", {"code": 1, "task": 3}),
        ),
        (
            "ERROR multiproc_worker_utils.py:120] Worker VllmWorkerProcess pid 4711 died, exit code: -9",
            ("exit", {"code": -9, "pid": 4711}),
        ),
        (
            "(EngineCore_DP0 pid=77) ERROR [multiproc_executor.py:230] Worker proc VllmWorker-1 died unexpectedly, shutting down executor.",
            ("workers_swept", {"failed": "Worker proc VllmWorker-1"}),
        ),
        (
            "ERROR [ray_executor_v2.py:464] RayWorkerProc rank=[3] died unexpectedly, shutting down executor.",
            ("workers_swept", {"failed": "RayWorkerProc rank=[3]", "rank": None}),
        ),
        (
            "-- Process 3 terminated with the following error:",
            ("exit", {"code": 1, "local_rank": 3}),
        ),
        (
            "[INFO] [launch.py:315:sigkill_handler] Killing subprocess 4242",
            ("workers_swept", {"failed": ""}),
        ),
        (
            "[INFO] [launch.py:330:sigkill_handler] Main process received SIGINT, exiting",
            ("external_end", {"reason": "cancelled"}),
        ),
        (
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
            ("workers_swept", {"failed": "a worker"}),
        ),
        (
            "[ERROR] [launch.py:321:sigkill_handler] ['/usr/bin/python3', '-u', 'train.py', '--local_rank=3'] exits with return code = -9",
            ("exit", {"code": -9, "local_rank": None}),
        ),
        ("[INFO] [launch.py:347:main] Process 4242 exits successfully.", ("exit_ok", {"pid": 4242})),
    ],
)
def test_other_lines_of_launchers(text: str, expected: tuple[str, dict[str, object]]) -> None:
    kind, fields = expected
    (event,) = [event for event in events(text) if event.kind == kind]
    assert {name: getattr(event, name) for name in fields} == fields
    assert [event for event in events(text[: len(text) // 4]) if event.kind == kind] == []


def test_srun_names_tasks() -> None:
    found = events(
        "srun: error: gpu07: tasks 0-1,3: Killed\nsrun: error: gpu08: task 5: Exited with exit code 1\nsrun: error: gpu08: task 6: Out Of Memory\n"
    )
    exits = [event for event in found if event.kind == "exit"]
    assert [(e.task, e.code, e.host) for e in exits] == [
        (0, -9, "gpu07"),
        (1, -9, "gpu07"),
        (3, -9, "gpu07"),
        (5, 1, "gpu08"),
        (6, -9, "gpu08"),
    ]
    assert [e.rank for e in exits] == [0, 1, 3, 5, 6]
    assert [e.kind for e in found if e.kind == "oom_host"] == ["oom_host"]


def test_signal_names() -> None:
    assert [signal_name(code) for code in (-9, 137, -6, 1, 0, None, -999)] == [
        "SIGKILL",
        "SIGKILL",
        "SIGABRT",
        None,
        None,
        None,
        None,
    ]


def table(prefix: str = "", old: bool = False) -> str:
    def entry(number: int, rank: int, code: str, pid: int, say: str) -> str:
        what = "msg" if old else "traceback"
        return f"[{number}]:\n  time      : 2026-11-20_15:31:49\n  host      : gpu07\n  rank      : {rank + 8} (local_rank: {rank})\n  exitcode  : {code} (pid: {pid})\n  error_file: <N/A>\n  {what} : {say}\n"

    text = (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n" + "=" * 60 + "\ntrain.py FAILED\n" + "-" * 60 + "\nFailures:\n"
        + entry(1, 0, "-15", 29460, "Signal 15 (SIGTERM) received by PID 29460") + "-" * 60 + "\nRoot Cause (first observed failure):\n"
        + entry(0, 1, "-9", 29461, "Signal 9 (SIGKILL) received by PID 29461") + "=" * 60 + "\n"
    )  # fmt: skip
    return "".join(prefix + line + "\n" for line in text.splitlines())


@pytest.mark.parametrize("prefix", ["", "0: ", "2026-11-20 15:31:50 "])
@pytest.mark.parametrize("old", [False, True])
def test_failure_table(prefix: str, old: bool) -> None:
    found = events(table(prefix, old))
    assert [(e.kind, e.rank, e.local_rank, e.code, e.first, e.pid) for e in found] == [
        ("exit", 8, 0, -15, False, 29460),
        ("exit", 9, 1, -9, True, 29461),
    ]
    assert {e.host for e in found} == {"gpu07"} and found[0].time == 1795188709.0


def test_a_table_cut_off_gives_what_it_holds() -> None:
    cut_off = settled(table()[:520])
    assert [e.rank for e in cut_off.events] == [8] and [n.code for n in cut_off.notes] == ["truncated"]
    root_only = table()[table().index("Root Cause") :]
    assert [(e.rank, e.first) for e in events(root_only)] == [(9, True)]
    assert events("Root Cause (first observed failure):\nnothing of that kind\n") == []


def test_table_and_agents_line_are_one_exit() -> None:
    agent = f"E1120 15:31:49.819000 29458 torch/distributed/elastic/multiprocessing/api.py:1002] {FAILED}\n"
    found = events(agent + table())
    assert [(e.rank, e.via) for e in found] == [(8, "table"), (9, "table")]


MPI = [
    "the job to be terminated. The first process to do so was:",
    "",
    "  Process name: [[12345,1],3]",
    "  Exit code:    137",
]
SCHEDULER = "[2026-01-14 05:02:11] Rank 0 scheduler is dead. Please check if there are relevant logs there."


@pytest.mark.parametrize(
    ("lines", "code", "task"),
    [(MPI, -9, 3), ([SCHEDULER, "[2026-01-14 05:02:12] Exit code: -9"], -9, None)],
)
def test_an_end_whose_code_stands_in_a_later_line(lines: list[str], code: int, task: int | None) -> None:
    (event,) = [e for e in events("\n".join(lines)) if e.kind == "exit"]
    assert isinstance(event, Exit)
    assert (event.code, event.task) == (code, task)
    assert [e for e in events("\n".join(lines[-1:])) if e.kind == "exit"] == []


def test_a_scheduler_without_a_code_failed_all_the_same() -> None:
    found = events("\n".join([SCHEDULER, *["x"] * 9, "Exit code: 1"]))
    (event,) = [event for event in found if event.kind != "message"]
    assert event.kind == "workers_swept" and event.rank is None


def test_a_task_number_of_thirty_digits_is_none(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(f"srun: error: node07: task {'9' * 30}: Exited with exit code 3\n")
    verdict = analyze(tmp_path).verdict
    assert verdict is not None and verdict.culprit_ranks == ()


@pytest.mark.parametrize(
    ("text", "rank", "code"),
    [
        ("rank 2 exited (code 1)", 2, 1),
        ("[launch] rank 0 (pid 15) exited with code 0", 0, 0),
        ("[launcher] rank 3 exited with -9", 3, -9),
        ("rank 5 exited rc=137", 5, -9),
    ],
)
def test_what_a_launcher_of_ones_own_prints_of_an_exit(text: str, rank: int, code: int) -> None:
    [event] = [event for event in events(text) if isinstance(event, Exit)]
    assert (event.rank, event.code, event.via) == (rank, code, "script")


@pytest.mark.parametrize(
    "text",
    [
        "worker 3 exited with 2 errors",
        "task 3 exits 5 s later",
        "stage 1 exit code 0",
        "process 4711 exited with code 1",
    ],
)
def test_other_lines_with_the_word_exit_tell_of_no_end_of_a_rank(text: str) -> None:
    assert not [event for event in events(text) if isinstance(event, Exit)]
