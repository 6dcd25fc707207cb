"""Pasted texts: who is named by how the job was started, who announced itself, and how it ended."""

from __future__ import annotations

from pathlib import Path

from tests.text_lines import judged, raised, short, timeout, told

HANGS = "It hangs at the start for more than an hour, nothing is printed any more."
ANNOUNCED = "Initializing distributed: GLOBAL_RANK: {0}, MEMBER: {1}/4"


def test_who_did_not_announce_itself_was_perhaps_never_started(tmp_path: Path) -> None:
    came = [ANNOUNCED.format(rank, rank + 1) for rank in (0, 1, 3)]
    report = told(tmp_path / "a", [HANGS, *came])
    assert short(report)[:2] == ("init_hang", ())
    assert judged(report).suspect_ranks == (2,)
    everybody = [ANNOUNCED.format(rank, rank + 1) for rank in range(4)]
    assert judged(told(tmp_path / "b", [HANGS, *everybody])).suspect_ranks == ()


def test_local_ranks_of_a_launch_on_one_node_are_ranks(tmp_path: Path) -> None:
    text = [
        HANGS,
        "torchrun --standalone --nproc_per_node=4 train.py",
        *(timeout(rank) for rank in (0, 1, 3)),
        "E1120 15:13:24.111222 140 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -11) local_rank: 2 (pid: 4711) of binary: /opt/venv/bin/python",
    ]
    assert short(told(tmp_path, text))[:2] == ("crashed_rank", (2,))


def test_a_line_of_a_process_that_leaves_names_the_one_that_did_not_stay(tmp_path: Path) -> None:
    steps = [f"Rank {rank} | Epoch 14 | train 2.1{rank} | val 2.3{rank}" for rank in range(2)]
    text = [
        "2 GPUs, it stops in the middle:",
        *steps,
        "Early stopping",
        "Model saved for epoch 14",
        timeout(0),
    ]
    verdict = judged(told(tmp_path / "a", text))
    assert (verdict.cause, verdict.culprit_ranks) == ("early_exit", (1,))
    assert (
        judged(told(tmp_path / "b", [line for line in text if line != "Early stopping"])).cause
        != "early_exit"
    )


def test_a_process_that_no_signal_can_wake_is_named_by_ps(tmp_path: Path) -> None:
    rows = [f"root {4700 + r} 99.0 3.1 R 10:11:12 python train.py --local_rank={r}" for r in range(4)]
    rows[2] = "root 4702  0.3 3.1 D 10:11:12 python train.py --local_rank=2"
    text = [
        "torchrun --standalone --nproc_per_node=4 train.py",
        HANGS,
        *rows,
        *(timeout(r) for r in (0, 1, 3)),
    ]
    assert judged(told(tmp_path, text)).culprit_ranks == (2,)


def test_refused_connections_come_before_what_ranks_printed_last(tmp_path: Path) -> None:
    refused = "node7:812:901 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.7<41511> failed : Connection refused"
    text = [
        HANGS,
        *(f"[rank{r}] loading data" for r in range(4)),
        "[rank3] still loading data of shard 9",
        refused,
    ]
    assert judged(told(tmp_path, text)).culprit_ranks == ()


def test_steps_after_good_words_take_them_back(tmp_path: Path) -> None:
    said = [
        "Training completed.",
        *raised(1, "RuntimeError: CUDA error: an illegal memory access was encountered"),
    ]
    assert told(tmp_path, said).status != "no_hang"
