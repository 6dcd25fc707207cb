"""Who died by the word of an executor, a launcher, a memory monitor or a parent, and by what GPUs do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import analyze
from tests.simulator import Remains, collect, simulate
from tests.text_lines import (
    CLOSED,
    judged,
    raised,
    short,
    timeout,
    told,
)

ENGINE = "(EngineCore_DP{} pid=61) ERROR 06-12 15:40:32 [multiproc_executor.py:154] Worker proc VllmWorker-2 died unexpectedly, shutting down executor."
ILLEGAL = "(Worker_TP2 pid=64) Fatal Python error: Illegal instruction"


def test_an_engines_executor_names_the_worker_that_it_lost(tmp_path: Path) -> None:
    others = [
        f"(Worker_TP{rank} pid={62 + rank}) INFO 06-12 15:40:30 [runner.py:4] ready" for rank in range(4)
    ]
    assert short(told(tmp_path / "one", [*others, ILLEGAL, ENGINE.format(0)]))[:2] == ("crashed_rank", (2,))
    assert short(told(tmp_path / "replica", [*others, ENGINE.format(1)]))[:2] == ("crashed_rank", ())


def test_the_process_that_composer_did_not_end_itself_ended_first(tmp_path: Path) -> None:
    ends = [
        f"ERROR:composer.cli.launcher:Global rank {rank} (PID {70 + rank}) exited with code -15"
        for rank in (0, 1)
    ]
    failed = "Global rank 2 (PID 72) exited with code 1"
    assert short(told(tmp_path / "one", [failed, *ends]))[:2] == ("crashed_rank", (2,))
    two = [failed, "Global rank 3 (PID 73) exited with code 1", *ends]
    assert short(told(tmp_path / "two", two))[1] == ()


MONITOR = (
    "(raylet) Memory on the node (IP: 10.0.0.4, ID: 09be1f) where the task (actor ID: 5a3d0, name={}, pid=81, memory used=171.20GB)"
    " was running was 190.11GB / 200.90GB (0.953186), which exceeds the memory usage threshold of 0.95. Ray killed this worker (ID: 4c)"
)


@pytest.mark.parametrize(
    ("name", "ranks"),
    [("a9WorkerDict_0:3", (3,)), ("a9WorkerDict_1:3", ()), ("Rollout.generate", ())],
)
def test_rays_memory_monitor_names_the_worker_that_it_ends(
    tmp_path: Path, name: str, ranks: tuple[int, ...]
) -> None:
    assert short(told(tmp_path, [timeout(0), MONITOR.format(name)]))[:2] == ("crashed_rank", ranks)


def test_a_checkpoint_that_failed_on_another_rank_is_no_death(tmp_path: Path) -> None:
    full = raised(3, "OSError: [Errno 28] No space left on device: '/ckpt/__3_0.distcp'")
    api = "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([3])"
    lines = [*full, *(line for rank in (0, 1, 2) for line in raised(rank, api))]
    assert short(told(tmp_path, lines))[:2] == ("crashed_rank", (3,))


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        ("run.sh: line 7: 4107 Killed                  RANK=3 python -u fit.py", 3),
        ("run.sh: строка 7: 4107 Убито                  RANK=3 python -u fit.py", 3),
        ("./los.sh: Zeile 12: 4107 Getötet                RANK=1 python fit.py --lr 1", 1),
        ("RuntimeError: Process 1 exited with error code 10 and exception:", 1),
    ],
)
def test_what_shells_and_containers_say_of_an_end_names_the_rank_of_the_command(
    tmp_path: Path, line: str, rank: int
) -> None:
    assert short(told(tmp_path, [line, timeout(0)]))[:2] == ("crashed_rank", (rank,))


@pytest.mark.parametrize(
    "line",
    [
        'train_2  Exited (0) 4 minutes ago  "python fit.py --rank 2"',
        'train_2  Exited (137) 4 minutes ago  "python fit.py --node_rank 2 --lora-rank 2"',
        'tuner  Exited (137) 4 minutes ago  "python lora.py --rank 2"',
        "$ docker inspect t2 --format '{{.State.OOMKilled}}'",
        '"OOMKilled": false,',
    ],
)
def test_what_tells_of_no_end_names_nobody(tmp_path: Path, line: str) -> None:
    assert short(told(tmp_path, [line, timeout(0)]))[:2] == ("unknown", ())


def test_containers_that_were_all_killed_name_nobody(tmp_path: Path) -> None:
    lines = [f't_{r}  Exited (137) 2 minutes ago  "python fit.py --rank {r}"' for r in range(3)]
    assert judged(told(tmp_path, [*lines, timeout(0)])).culprit_ranks == ()


def test_the_control_group_of_a_killed_task_tells_its_number(tmp_path: Path) -> None:
    oomd = "May 19 05:10:09 node-c systemd-oomd[700]: Killed /system.slice/slurmstepd.scope/job_771/step_0/user/task_1 due to memory pressure for /system.slice being 74.10% > 60.00% for > 20s with reclaim activity"
    kernel = "[977.1] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=step_0,mems_allowed=0-1,oom_memcg=/slurm/uid_10/job_7/step_0,task_memcg=/slurm/uid_10/job_7/step_0/task_1,task=python,pid=61211,uid=10"
    said = ["0: [rank0]: step 4", *(f"{r}: {timeout(r)}" for r in (0, 2))]
    for number, line in enumerate((oomd, kernel)):
        report = told(tmp_path / str(number), [*said, line])
        assert short(report)[:2] == ("crashed_rank", (1,)), number


def test_the_reset_of_a_device_whose_rank_nobody_tells(tmp_path: Path) -> None:
    line = "[60111.220] amdgpu 0000:c1:00.0: amdgpu: ring comp_1.0.0 timeout, signaled seq=99120, emitted seq=99122"
    assert short(told(tmp_path, [line, timeout(0)]))[:2] == ("gpu_stall", ())


def test_ras_tells_of_a_process_on_the_only_host_by_its_address(tmp_path: Path) -> None:
    lines = ["[2026-12-02 01:10:11] PEER_DEAD: Process 7702 on node 10.3.0.8 managing GPU 2", ""]
    lines += [
        f"hst:770{r}:780{r} [{r}] NCCL INFO ncclCommInitRankConfig comm 0x1{r} rank {r} nranks 4 cudaDev {r} nvmlDev {r} busId {r}a000 commId 0x51 - Init COMPLETE"
        for r in range(4)
    ]
    assert short(told(tmp_path, lines))[:2] == ("crashed_rank", (2,))


def test_whom_mpirun_calls_the_first_ended_the_job(tmp_path: Path) -> None:
    lines = ["The first process to do so was:", "", "  Process name: [[40112,1],2]", "  Exit code:    3"]
    assert short(told(tmp_path, lines)) == ("crashed_rank", (2,), "high")


@pytest.mark.parametrize(
    ("error", "answer"),
    [("ValueError: no such label: 7", ("crashed_rank", (1,))), (CLOSED, ("unknown", ()))],
)
def test_the_parent_of_spawned_processes_prints_the_error_of_the_one_that_failed(
    tmp_path: Path, error: str, answer: tuple[str, tuple[int, ...]]
) -> None:
    spawn = "/opt/torch/multiprocessing/spawn.py"
    lines = [
        "Traceback (most recent call last):",
        f'  File "{spawn}", line 211, in join',
        "    raise ProcessRaisedException(msg)",
    ]
    lines += ["torch.multiprocessing.spawn.ProcessRaisedException: ", ""]
    lines += ["-- Process 1 terminated with the following error:", "Traceback (most recent call last):"]
    lines += [
        f'  File "{spawn}", line 87, in _wrap',
        "    fn(i, *args)",
        '  File "/w/train.py", line 8, in work',
        "    step()",
        error,
    ]
    assert (
        short(told(tmp_path, {"run.err": lines, "run.out": [f"[rank{n}] step 4" for n in range(3)]}))[:2]
        == answer
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_dumps_of_the_attempt_before_do_not_acquit_who_died_in_the_last_one(
    tmp_path: Path, seed: int
) -> None:
    left = Remains(simulate("two_attempts", seed))
    kept = collect(left, "full")
    left.write(tmp_path, kept)
    verdict = judged(analyze(tmp_path))
    assert (verdict.cause, verdict.culprit_ranks) == ("crashed_rank", tuple(left.truth(kept).culprits))


def test_an_error_of_torchs_kind_without_a_message_has_perhaps_lost_it(tmp_path: Path) -> None:
    files = {f"rank{r}.log": [f"rank {r} step 2 loss 1.2"] for r in range(3)}
    whole = told(tmp_path / "whole", files | {"rank3.log": raised(3, "RuntimeError: index out of range")})
    cut = told(tmp_path / "cut", files | {"rank3.log": raised(3, "RuntimeError")})
    assert short(whole) == ("crashed_rank", (3,), "high")
    assert short(cut)[:2] == ("crashed_rank", (3,)) and short(cut)[2] != "high"


def test_a_process_that_raised_is_the_rank_whose_gpu_alone_is_idle(tmp_path: Path) -> None:
    error = [
        "python -m torch.distributed.launch --nproc_per_node=4 main.py",
        "Traceback (most recent call last):",
    ]
    error += ['  File "data.py", line 23, in load', "FileNotFoundError: no such file: a.jpg"]
    gpus = [f"{gpu}, {0 if gpu == 2 else 100} %, 9790 MiB" for gpu in range(4)]
    assert short(told(tmp_path, [*error, *gpus])) == ("crashed_rank", (2,), "medium")
    assert short(told(tmp_path, [*error, *gpus[:3]]))[:2] == ("crashed_rank", ())  # of more ranks than GPUs
