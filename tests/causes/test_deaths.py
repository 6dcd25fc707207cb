"""Verdicts from text alone: who died first, restarts, and stacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import analyze
from tests.simulator import Remains, collect, simulate
from tests.text_lines import (
    CLOSED,
    at,
    judged,
    raised,
    short,
    timeout,
    told,
)

BARRIER = "CollectiveFingerPrint(SequenceNumber=4OpType=BARRIER)"

# --- deaths ---


@pytest.mark.parametrize(
    ("seconds", "hosts", "expected"),
    [
        ((10, 14), ("", ""), ((2,), "high")),
        ((10, 10), ("", ""), ((1, 2), "medium")),
        ((10, 13), ("gpu01: ", "gpu02: "), ((1, 2), "medium")),
        ((10, 40), ("gpu01: ", "gpu02: "), ((2,), "high")),
    ],
)
def test_the_first_death_wins_as_far_as_clocks_tell(
    tmp_path: Path, seconds: tuple[int, int], hosts: tuple[str, str], expected: object
) -> None:
    lines = at(seconds[1], raised(1, "KeyError: 'b'"), hosts[1]) + at(
        seconds[0], raised(2, "ValueError: a"), hosts[0]
    )
    report = told(tmp_path, [*lines, timeout(0), timeout(3)])
    verdict = judged(report)
    assert verdict.cause == "crashed_rank" and (verdict.culprit_ranks, verdict.confidence) == expected
    assert sum("later or as a consequence" in e.text for e in verdict.evidence) == 2 - len(
        verdict.culprit_ranks
    )


def test_a_cause_beats_an_earlier_consequence(tmp_path: Path) -> None:
    lines = at(11, raised(1, CLOSED)) + at(
        12, raised(2, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
    )
    report = told(tmp_path, [*lines, timeout(0)])
    assert short(report) == ("crashed_rank", (2,), "high")


@pytest.mark.parametrize(("size", "died"), [("more than 1EB memory", ()), ("2.00 GiB", (2,))])
@pytest.mark.parametrize("own", [True, False])
def test_who_asks_for_the_size_in_a_buffer_that_no_call_filled_did_not_run_out_of_memory(
    tmp_path: Path, size: str, died: tuple[int, ...], own: bool
) -> None:
    lines = [timeout(2 if own else 0, op="_ALLGATHER_BASE")]
    lines += raised(2, f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {size}.")
    assert judged(told(tmp_path, lines)).culprit_ranks == died


def test_an_xid_names_the_rank_of_its_process(tmp_path: Path) -> None:
    agent = "E1120 15:13:24.653000 17250 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -6) local_rank: 2 (pid: 4102) of binary: python\n"
    kernel = "[Fri Nov 20 15:00:00 2026] NVRM: Xid (PCI:0000:3b:00): 79, pid=4102, name=python, GPU has fallen off the bus.\n"
    report = told(
        tmp_path,
        {"kernel.log": kernel, "torchrun.stderr": agent, "all.log": [timeout(0), timeout(1), timeout(3)]},
    )
    assert short(report)[:2] == ("gpu_stall", (2,))


def test_an_illegal_access(tmp_path: Path) -> None:
    lines = raised(2, "torch.AcceleratorError: CUDA error: an illegal memory access was encountered")
    assert short(told(tmp_path, [timeout(0), timeout(1), timeout(3), *lines]))[:2] == ("gpu_stall", (2,))


AGENT = "E1120 15:13:24.653000 17250 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: {rank} (pid: {pid}) of binary: python"


@pytest.mark.parametrize(("attempt", "culprit"), [(None, 2), (1, 2), (0, 1)])
def test_restarts_in_one_file(tmp_path: Path, attempt: int | None, culprit: int) -> None:
    lines = [
        *raised(1, "ValueError: a"),
        AGENT.format(rank=1, pid=11),
        *raised(2, "KeyError: 'b'"),
        AGENT.format(rank=2, pid=12),
    ]
    report = told(tmp_path, lines, world_size=4, attempt=attempt)
    assert judged(report).culprit_ranks == (culprit,)
    assert [n.code for n in report.warnings] == ["several_attempts"]


@pytest.mark.parametrize(("attempt", "culprit"), [(None, 2), (0, 1)])
def test_restarts_in_folders(tmp_path: Path, attempt: int | None, culprit: int) -> None:
    files: dict[str, str | list[str]] = {
        f"log/none_x/attempt_{a}/{r}/stderr.log": raised(r, "ValueError: a" if r == a + 1 else CLOSED)
        for a in (0, 1)
        for r in range(3)
    }
    report = told(tmp_path, files, attempt=attempt)
    assert short(report)[:2] == ("crashed_rank", (culprit,))
    assert [n.code for n in report.warnings] == ["earlier_attempt"]


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        ((0, 1), "no input is of restart attempt 7: there are 0, 1"),
        ((), "no input is of restart attempt 7: no input states any"),
    ],
)
def test_an_attempt_that_no_input_is_of(tmp_path: Path, folders: tuple[int, ...], message: str) -> None:
    files: dict[str, str | list[str]] = {
        f"log/none_x/attempt_{a}/2/stderr.log": raised(2, "ValueError: a") for a in folders
    } or {"train.log": raised(2, "ValueError: a")}
    report = told(tmp_path, files, attempt=7)
    assert message in [n.message for n in report.warnings]
    # nothing of another attempt is taken for the one that was asked for
    assert report.verdict is not None and (report.verdict.cause == "unknown") == bool(folders)


# --- stacks of all ranks in one file ---


def test_stacks_of_the_debug_server(tmp_path: Path) -> None:
    inside = "    wait (threading.py:320)\n    all_reduce (torch/distributed/distributed_c10d.py:3252)\n    train (train.py:11)\n    <module> (train.py:20)\n"
    outside = "    read (data.py:3)\n    train (train.py:9)\n    <module> (train.py:20)\n"
    text = "".join(
        f'=== Rank {r}: http://gpu07:2599{r} ===\nThread {100 + r} (idle): "MainThread"\n{outside if r == 1 else inside}\n'
        for r in range(4)
    )
    verdict = judged(told(tmp_path, {"stacks.txt": text}))
    assert (verdict.cause, verdict.culprit_ranks) == ("stuck_rank", (1,))
    assert verdict.location is not None and (verdict.location.file, verdict.location.line) == ("data.py", 3)


def test_the_only_stack_is_of_the_rank_that_all_others_wait_for(tmp_path: Path) -> None:
    stack = 'Process 77: python train.py\nPython v3.11\n\nThread 77 (idle): "MainThread"\n    acquire (logging/__init__.py:920)\n    encode (rag/index.py:88)\n'
    files: dict[str, str | list[str]] = {
        "pyspy_rank2.txt": stack,
        "w.err": [timeout(rank, seq=71) for rank in (0, 1, 3)],
    }
    assert short(told(tmp_path, files))[:2] == ("stuck_rank", (2,))


def _ended(codes: dict[int, int], late: dict[int, str] | None = None, host: str = "localhost") -> list[str]:
    """Return the lines in which torchrun lists how its workers ended, some later than the others."""
    lines = [
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "=" * 60,
        "train.py FAILED",
        "-" * 60,
    ]
    for number, (rank, code) in enumerate(codes.items()):
        lines += ["Root Cause (first observed failure):" if number == len(codes) - 1 else "Failures:"] * (
            number in (0, len(codes) - 1)
        )
        lines += [
            f"[{number}]:",
            f"  time      : 2026-11-22_{(late or {}).get(rank, '11:36:19')}",
            f"  host      : {host}",
            f"  rank      : {rank} (local_rank: {rank})",
            f"  exitcode  : {code} (pid: {5570 + rank})",
            "  error_file: <N/A>",
            "  traceback : Signal",
        ]
    return [*lines, "=" * 60]


def test_an_abort_of_which_the_rank_itself_says_nothing_is_no_death_on_gloo(tmp_path: Path) -> None:
    """Gloo aborts whoever gets a message that does not fit, and its words may not be here."""
    lines = raised(1, CLOSED) + _ended({2: -15, 1: 1, 0: -6})
    report = told(tmp_path, {"launcher.log": lines, "rank_0.log": ["step 5 loss 1.0"]})
    assert report.verdict is None or 0 not in report.verdict.culprit_ranks


def test_a_kill_of_which_the_rank_itself_says_nothing_is_one(tmp_path: Path) -> None:
    lines = raised(1, CLOSED) + _ended({2: -15, 1: 1, 0: -9})
    assert short(told(tmp_path, {"launcher.log": lines, "rank_0.log": ["step 5 loss 1.0"]}))[:2] == (
        "crashed_rank",
        (0,),
    )


@pytest.mark.parametrize("late", [{}, {1: "11:36:45"}])
def test_aborts_in_one_second_do_not_tell_who_was_first(tmp_path: Path, late: dict[int, str]) -> None:
    """The launcher's first observed failure is whom it polled first."""
    verdict = judged(told(tmp_path, _ended({1: -6, 2: -6, 3: -6, 0: -6}, late)))
    assert (verdict.cause, verdict.culprit_ranks) == ("unknown", ())
    assert verdict.confidence != "high"


@pytest.mark.parametrize(("when", "named"), [("11:36:17", (1,)), ("11:36:19", ())])
def test_an_end_of_another_kind_before_all_aborts_is_the_one_that_they_answer(
    tmp_path: Path, when: str, named: tuple[int, ...]
) -> None:
    verdict = judged(told(tmp_path, _ended({0: -6, 1: 1, 2: -15, 3: -6}, {1: when})))
    assert (verdict.cause, verdict.culprit_ranks, verdict.confidence) == ("crashed_rank", named, "medium")


@pytest.mark.parametrize(("others", "named"), [(-9, ()), (-15, (1,)), (-6, (1,))])
def test_a_signal_that_ended_all_processes_at_once_is_no_rank_s_own_end(
    tmp_path: Path, others: int, named: tuple[int, ...]
) -> None:
    verdict = judged(told(tmp_path, _ended({0: others, 1: -9, 2: others})))
    assert (verdict.cause, verdict.culprit_ranks) == ("crashed_rank", named)


@pytest.mark.parametrize("said", [True, False])
def test_who_outlived_the_grace_of_its_own_agent_was_not_the_first(tmp_path: Path, said: bool) -> None:
    """Another node's ranks wait for half an hour: only on its own node was the agent's answer half a minute."""
    word = "2026-11-22 11:36:49,101 torch.distributed.elastic.multiprocessing.api: [WARNING] Unable to shutdown process 5572 via 15, forcefully exiting via 9"
    files: dict[str, str | list[str]] = {
        "node0.log": [
            timeout(0),
            timeout(1),
            *_ended({1: -6, 0: -6}, {0: "12:06:21", 1: "12:06:21"}, "gpu01"),
        ],
        "node1.log": [*([word] if said else []), *_ended({2: -9, 3: 1}, {2: "11:36:49"}, "gpu02")],
    }
    assert short(told(tmp_path, files))[:2] == ("crashed_rank", (3,))


def test_ranks_that_fail_in_one_second_alike_are_all_named(tmp_path: Path) -> None:
    lines = [
        line for rank in (0, 1) for line in raised(rank, "ModuleNotFoundError: No module named 'kernels'")
    ]
    verdict = judged(told(tmp_path, [*lines, *_ended({1: 1, 0: 1})], world_size=4))
    assert (verdict.cause, verdict.culprit_ranks) == ("crashed_rank", (0, 1)) and verdict.confidence != "high"


# --- who died by the word of an executor, a launcher or a memory monitor ---

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
