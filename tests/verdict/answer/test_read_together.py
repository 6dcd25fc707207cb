"""Answers to pasted texts for which two parts of it are read together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.text_lines import judged, raised, short, spy, status, timeout, told

HANGS = "It hangs at the start for more than an hour, nothing is printed any more."
STORE = "I0114 05:02:11.417845 1398 distributed_c10d.py:337] Waiting in store based barrier to initialize process group for rank: {0}, key: store_based_barrier_key:1 (world_size=4, worker_count=3, timeout=0:30:00)"
GAVE_UP = "RuntimeError: Timed out initializing process group in store based barrier on rank: {0}, for key: store_based_barrier_key:1 (world_size=4, worker_count=3, timeout=0:30:00)"


LOOP = "_worker_loop (torch/utils/data/_utils/worker.py:309)"
WAITS = (
    "get (queue.py:171)",
    "_try_get_data (torch/utils/data/dataloader.py:1120)",
    "__next__ (torch/utils/data/dataloader.py:630)",
)


def test_who_waited_in_the_store_when_others_gave_up_is_not_the_one_that_is_missing(tmp_path: Path) -> None:
    lines = [STORE.format(0), STORE.format(2), GAVE_UP.format(1)]
    assert short(told(tmp_path, lines))[:2] == ("init_hang", (3,))


def test_stacks_in_the_order_of_ranks_are_of_those_ranks(tmp_path: Path) -> None:
    said = "py-spy of the processes, in order of the ranks, it hangs in the first epoch:"
    barrier = ("barrier (torch/distributed/distributed_c10d.py:4159)", "fit (train.py:31)")
    stacks = [
        spy("", 812 + r, *(barrier if r != 2 else ("resize (data.py:12)", "fit (train.py:29)")))
        for r in range(4)
    ]
    lines = [line for stack in stacks for line in (f"Process {stack[1].split()[1]}: python train.py", *stack)]
    assert judged(told(tmp_path, [said, *lines])).culprit_ranks == (2,)


def test_a_worker_of_a_loader_is_why_its_rank_does_not_come(tmp_path: Path) -> None:
    lines = [
        HANGS,
        "Process 812: rank 0 python train.py",
        *spy("", 812, *WAITS, "fit (train.py:29)"),
        "Process 977: python train.py",
        *spy("", 977, "read (decoder.py:71)", "__getitem__ (data.py:12)", LOOP),
    ]
    said = judged(told(tmp_path, lines)).explanation
    assert "worker process of" in said and "decoder.py:71" in said


def test_what_a_rank_waits_for_on_its_host_gives_the_advice(tmp_path: Path) -> None:
    logs = {f"rank{r}.log": [timeout(r)] for r in (0, 1, 3)}
    stack = "\n".join(["Process 814: python train.py", *spy("", 814, *WAITS, "fit (train.py:29)")])
    verdict = judged(told(tmp_path, {**logs, "rank2.pyspy.txt": stack}, world_size=4))
    assert verdict.culprit_ranks == (2,)
    assert "workers of that data loader" in verdict.advice[0]


def test_all_ranks_that_came_equally_far_leave_the_path_between_them(tmp_path: Path) -> None:
    said = ["torchrun --standalone --nproc_per_node=4 serve.py", HANGS]
    lines = [f"[RANK {rank}] Run warmup for batch size 1" for rank in range(4)]
    found = judged(told(tmp_path / "all", [*said, *lines]))
    assert "ll 4 ranks got equally far" in found.explanation and found.culprit_ranks == ()
    assert "equally far" not in judged(told(tmp_path / "some", [*said, *lines[:3]])).explanation


def test_a_rank_behind_the_words_labels_what_stands_before_it(tmp_path: Path) -> None:
    lines = [
        f"2024-10-21 21:4{n}:31,8{r}1 DEBUG TRAIN Batch 0/2200 loss 2.0{r} rank {r}"
        for n in range(2)
        for r in range(4)
    ]
    lines += ["2024-10-21 21:44:20,204 INFO left train loop after 2287 batches, rank 3"]
    report = told(tmp_path, [*lines, *(timeout(r) for r in range(4))])
    (line,) = [o for o in report.to_dict()["outlier_lines"] if o["how"] == "only"]
    assert line["ranks"] == [3] and "left train loop" in line["text"]


@pytest.mark.parametrize(
    "error", ["ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task."]
)
def test_a_front_end_that_misses_an_actor_did_not_cause_it(tmp_path: Path, error: str) -> None:
    verdict = judged(told(tmp_path, [*raised(0, error), timeout(0), timeout(1)]))
    assert verdict.culprit_ranks == ()


def test_an_order_of_calls_with_state_is_that_of_the_real_collective(tmp_path: Path) -> None:
    code = ["    if rank == 0:", "        out = model(batch)", "        dist.barrier()"]
    waits = [timeout(rank) for rank in (1, 2, 3)]
    said = judged(told(tmp_path, ["torchrun --nproc_per_node=4 train.py", *code, *waits])).explanation
    assert "Only rank 0 calls dist.barrier " in said


def test_counters_that_start_are_told_as_nothing_completed(tmp_path: Path) -> None:
    said = judged(told(tmp_path, [timeout(0, seq=1), status(0, 1, 1, -1)])).explanation
    assert "completed nothing" in said and "-1" not in said
