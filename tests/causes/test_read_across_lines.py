"""What follows from several lines together: numbers by rank, branches, farewells, attempts, sizes, and who alone is silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.text_lines import CLOSED, judged, raised, told
from tests.text_lines import timeout as timed_out

_DCP = "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([{}])"
_OFF_THE_BUS = "NVRM: Xid (PCI:0000:62:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def test_a_rank_in_the_middle_of_a_line_speaks_of_itself(tmp_path: Path) -> None:
    starts = [
        f"[attempt {n}] rank {rank} starts at step {0 if n == 0 else 20}" for n in (0, 1) for rank in range(3)
    ]
    odd = "[attempt 1] rank 3 starts at step 10"
    lines = [*starts[:3], "[attempt 0] rank 3 starts at step 0", *starts[3:], odd, *map(timed_out, (0, 1, 2))]
    verdict = judged(told(tmp_path, lines))
    assert "rank 3 printed 10 where the others printed 20" in str(verdict.evidence) + verdict.explanation


@pytest.mark.parametrize(
    ("counts", "step", "named"),
    [((50, 48, 40, 49), 40, (2,)), ((50, 40, 40, 49), 40, ()), ((50, 48, 40, 49), 45, ())],
)
def test_the_rank_with_the_fewest_batches_is_through_where_the_bar_stops(
    tmp_path: Path, counts: tuple[int, ...], step: int, named: tuple[int, ...]
) -> None:
    lines = [f"[rank {rank}] packed batches for this rank: {count}" for rank, count in enumerate(counts)]
    lines += [" 80%|########  | 40/50 [02:11<00:33,  3.30s/it]"]
    lines += [f" 90%|######### | {step}/50 [02:31<00:13,  3.30s/it]", "NCCL timeout, killed after 30 min"]
    verdict = judged(told(tmp_path, lines))
    assert verdict.culprit_ranks == named
    assert (verdict.cause == "uneven_loader") == bool(named)


@pytest.mark.parametrize(
    ("said", "cause"), [("Training complete", "early_exit"), ("epoch 4 loss 0.2", "crashed_rank")]
)
def test_a_farewell_of_nobody_is_that_of_the_one_silent_rank(tmp_path: Path, said: str, cause: str) -> None:
    lines = [f"2026-03-07 18:20:31 INFO: {said}", *map(timed_out, (1, 2, 3))]
    verdict = judged(told(tmp_path, lines))
    assert (verdict.cause, verdict.culprit_ranks) == (cause, (0,))


def test_a_broken_gpu_is_that_of_the_one_rank_that_did_not_time_out(tmp_path: Path) -> None:
    lines = ["torchrun --standalone --nproc_per_node=3 train.py", timed_out(0), timed_out(2), _OFF_THE_BUS]
    verdict = judged(told(tmp_path, lines))
    assert (verdict.cause, verdict.culprit_ranks) == ("gpu_stall", (1,))


def test_a_checkpoint_that_all_ranks_fail_to_load_is_no_ranks_fault(tmp_path: Path) -> None:
    error = "FileNotFoundError: [Errno 2] No such file or directory: '/data/ckpt/step_900/.metadata'"
    lines = [*raised(1, error), f"[rank1]: {_DCP.format('0, 1, 2, 3')}"]
    verdict = judged(told(tmp_path, lines))
    assert verdict.culprit_ranks == () and "has no .metadata file" in verdict.explanation


def test_the_attempt_that_failed_by_itself_is_read_where_the_next_never_came_to_a_step(
    tmp_path: Path,
) -> None:
    files: dict[str, str | list[str]] = {
        "attempt_0/0/stderr.log": ["step 50 loss 0.1", *raised(0, CLOSED)],
        "attempt_0/1/stderr.log": [
            "step 50 loss 0.1",
            *raised(1, "OSError: [Errno 28] No space left on device"),
        ],
        "attempt_1/0/stderr.log": raised(
            0, "RuntimeError: Gloo connectFullMesh failed with Connection refused"
        ),
    }
    verdict = judged(told(tmp_path, files))
    assert (verdict.cause, verdict.culprit_ranks) == ("crashed_rank", (1,))


def test_the_last_attempt_is_read_where_it_came_to_a_step(tmp_path: Path) -> None:
    files: dict[str, str | list[str]] = {
        "attempt_0/1/stderr.log": [
            "step 50 loss 0.1",
            *raised(1, "OSError: [Errno 28] No space left on device"),
        ],
        "attempt_1/0/stderr.log": ["step 60 loss 0.1", *raised(0, "ValueError: bad sample")],
    }
    assert judged(told(tmp_path, files)).culprit_ranks == (0,)


@pytest.mark.parametrize(
    ("sizes", "cause"), [("831492 vs 16", "collective_mismatch"), ("336 vs 288", "shape_mismatch")]
)
def test_sizes_far_apart_are_of_two_collectives(tmp_path: Path, sizes: str, cause: str) -> None:
    abort = f"[rank0]:   what():  [enforce fail at /build/gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. {sizes}. Received data size doesn't match"
    lines = ["[rank0]: terminate called after throwing an instance of 'gloo::EnforceNotMet'", abort]
    verdict = judged(told(tmp_path, [*lines, *raised(1, CLOSED)]))
    assert verdict.cause == cause


def test_a_rank_that_took_another_branch_may_be_past_the_others(tmp_path: Path) -> None:
    found = [f"[rank{rank}] 11:20:04 resume: latest -> step_400, loading" for rank in (0, 1, 3)]
    spies = [
        "Process 901: python train.py  (rank 1)",
        'Thread 901 (active): "MainThread"',
        "    broadcast_object_list (torch/distributed/distributed_c10d.py:3141)",
        "    load (manager.py:142)",
        "    main (train.py:96)",
        "",
        "Process 902: python train.py  (rank 2)",
        'Thread 902 (active): "MainThread"',
        "    main (train.py:{line})",
    ]
    text = [*found, "[rank2] 11:20:05 resume: nothing there, fresh start", "", *spies]
    answers = [judged(told(tmp_path / str(line), [t.format(line=line) for t in text])) for line in (205, 40)]
    assert [(v.cause, v.culprit_ranks) for v in answers] == [
        ("rank_conditional_collective", (2,)),
        ("stuck_rank", (2,)),
    ]
    assert "may be past" in answers[0].explanation


@pytest.mark.parametrize(("reserved", "others"), [("64.00 MiB", True), ("31.00 GiB", False)])
def test_who_holds_a_full_gpu_follows_from_its_sizes(tmp_path: Path, reserved: str, others: bool) -> None:
    error = f"RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 2; 31.75 GiB total capacity; 58.21 MiB already allocated; 13.75 MiB free; {reserved} reserved in total by PyTorch)"
    verdict = judged(told(tmp_path, raised(2, error)))
    assert ("held by other processes" in " ".join(verdict.advice)) is others


def test_a_stack_with_any_indentation_is_read_below_its_title(tmp_path: Path) -> None:
    lines = [
        "--- rank 0 (1 and 3 the same)",
        "  all_to_all_single (torch/distributed/distributed_c10d.py:4118)",
        "  backward (ep/comm.py:64)",
        "  _engine_run_backward (torch/autograd/graph.py:824)",
        "  train_step (pretrain.py:230)",
        "--- rank 2",
        "  all_reduce (torch/distributed/distributed_c10d.py:2810)",
        "  clip (optim/clip.py:35)",
        "  train_step (pretrain.py:233)",
        "it hangs since an hour, no timeout yet",
    ]
    verdict = judged(told(tmp_path, lines))
    assert verdict.culprit_ranks == (2,)
    assert "in backward" in verdict.title and "cuts the graph" in verdict.explanation


_PS = """UID  PID   PPID  %CPU STAT CMD
ml   50048     1  0.0 S    python -m torch.distributed.launch --nproc_per_node 4 finetune.py
ml   50051 50048 99.1 Rl   python -u finetune.py --local_rank=1 --do_train
ml   50052 50048  100 Rl   python -u finetune.py --local_rank=2 --do_train
ml   50053 50048 99.9 Rl   python -u finetune.py --local_rank=3 --do_train
ml   50731 50051  0.6 Sl   python -u finetune.py --local_rank=0 --do_train"""


@pytest.mark.parametrize("present", [True, False])
def test_who_is_not_in_a_list_of_processes_has_ended(tmp_path: Path, present: bool) -> None:
    """A worker of a loader, whose parent is a rank, is no rank."""
    own = "ml   50050 50048 99.0 Rl   python -u finetune.py --local_rank=0 --do_train"
    lines = ["since then nothing, it hangs:", *_PS.splitlines(), *([own] if present else [])]
    verdict = told(tmp_path, lines).verdict
    named = () if verdict is None else verdict.culprit_ranks
    assert named == (() if present else (0,))


def test_what_all_ranks_print_alike_counts_for_each_of_them(tmp_path: Path) -> None:
    line = timed_out(3, op="ALLGATHER").replace("NumelOut=1024", "NumelOut=4096")
    verdict = judged(told(tmp_path, [line, "(all 4 ranks print the same line)"]))
    assert verdict.cause == "network_stall" and "ranks 0-3 timed out" in verdict.explanation.lower()


def test_a_local_rank_is_a_global_one_by_the_map_of_deepspeeds_launcher(tmp_path: Path) -> None:
    lines = [
        "n2: [INFO] [launch.py:163:main] global_rank_mapping=defaultdict(<class 'list'>, {'n1': [0, 1], 'n2': [2, 3]})",
        "n2: [INFO] [launch.py:256:main] process 4812 spawned with command: ['python', 'train.py', '--local_rank=1']",
        "Out of memory: Killed process 4812 (python) total-vm:4018kB, anon-rss:1210kB",
    ]
    assert judged(told(tmp_path, lines)).culprit_ranks == (3,)


def test_a_process_that_rays_raylet_lost_is_the_rank_that_it_said_it_is(tmp_path: Path) -> None:
    lines = [
        "(Actor pid=6104, ip=10.0.0.8) init done, rank 26/40 local_rank 2",
        "(Actor pid=6107, ip=10.0.0.8) init done, rank 29/40 local_rank 5",
        "(raylet, ip=10.0.0.8) A worker died or was killed while executing a task by an unexpected system error. Worker IP address: 10.0.0.8 Worker port: 10214 Worker PID: 6107 Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file.",
    ]
    verdict = judged(told(tmp_path, lines))
    assert (verdict.cause, verdict.culprit_ranks) == ("crashed_rank", (29,))


def test_who_has_not_announced_itself_is_named_by_what_it_printed_last(tmp_path: Path) -> None:
    came = [
        f"{rank}: Initializing distributed: GLOBAL_RANK: {rank}, MEMBER: {rank + 1}/4" for rank in (0, 1, 3)
    ]
    lines = [f"{rank}: Seed set to 7" for rank in range(4)]
    lines += [*came, "2: indexing tiles, scanning 2.4M files, this can take a while"]
    verdict = judged(told(tmp_path, [*lines, "it hangs there since 25 minutes, nothing more is printed"]))
    assert verdict.culprit_ranks == (2,) and "indexing tiles" in verdict.explanation


def test_a_rank_that_waits_for_its_gpu_is_not_the_one_at_work(tmp_path: Path) -> None:
    spies = [
        "Process 901: python (rank 1)", 'Thread 901 (active): "MainThread"',
        "    synchronize (torch/cuda/streams.py:224)", "    step (engine.py:172)", "",
        "Process 902: python (rank 2)", 'Thread 902 (active+gil): "MainThread"',
        "    compile_schema (grammar.py:131)", "    step (engine.py:101)",
    ]  # fmt: skip
    verdict = judged(told(tmp_path, [timed_out(0), timed_out(3), "", *spies]))
    assert verdict.culprit_ranks == (2,)


def test_collectives_of_nccl_count_on_from_the_middle_of_a_job(tmp_path: Path) -> None:
    line = "n1:74{rank}:2210 [{rank}] NCCL INFO AllReduce: opCount {op} sendbuff 0x7c20a600 recvbuff 0x7c20a600 count {n} datatype 7 op 0 root 0 comm 0x7c1f{rank} [nranks=4] stream 0x7c20"
    calls = [
        (0, "2e17", 7066),
        (0, "2e18", 1),
        (1, "2e18", 1),
        (2, "2e16", 7382),
        (2, "2e17", 7066),
        (3, "2e18", 1),
    ]
    lines = [line.format(rank=rank, op=op, n=n) for rank, op, n in calls]
    verdict = judged(told(tmp_path, ["it hangs, the last lines of each process:", *lines]))
    assert verdict.culprit_ranks == (2,)
