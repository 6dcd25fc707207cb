"""What people write around a log: which lines are theirs, and how many devices they count."""

from __future__ import annotations

import pytest

from hangscope.ingest.excerpts.prose import devices, prose, written_by_people


@pytest.mark.parametrize(
    "line",
    [
        "[rank2]:[E421 03:17:08.204 ProcessGroupNCCL.cpp:1484] Watchdog got stuck for 480 seconds, and that is it.",
        "HCCL demo error: In function hcclAllReduceWrapper(): hcclAllReduce(buffer) failed: A device is busy",
        "[Error]: In the specified timeout waiting event, all tasks in the specified stream are not completed.",
        "Training finished after 3 epochs",
        "Rank 0 finished epoch 1",
    ],
)
def test_what_programs_print_in_words_is_not_theirs(line: str) -> None:
    assert not written_by_people([(1, line)])


def test_a_run_of_their_lines_is_theirs_as_a_whole() -> None:
    lines = [
        "Step 200 loss 1.2",
        "The job stops after that step, every time I try it.",
        "controller, isn't it? /kind bug",
        "done",
    ]
    assert prose(written_by_people([*enumerate(lines, 1)])) == " ".join(lines[1:3])


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("8 cards in one pod", 8),
        ("own dataset, 8 x A100, stage 2", 8),
        ("our 8xA800 server", 8),
        ("4x 3090 (one box, torch 1.11)", 4),
        ("4 nodes x 4 GPUs, one task per gpu", 16),
        ("2 machines x 2 GPU", 4),
        ("Multi node (4 x 8), after the log below", 32),
        ("2 pods, 16 GPUs", None),
        ("two 4090s", None),
        ("sometimes with 4 GPUs, sometimes with 8 GPUs", None),
        ("the gpus of 0,1,3 show 100 %", None),
    ],
)
def test_the_devices_that_people_count(text: str, count: int | None) -> None:
    assert devices(text) == count


def test_what_is_around_fences_is_theirs_and_nothing_between_them() -> None:
    lines = [
        "Rank 1 always crashes first here, I see",
        "```",
        "rank 2 epoch 1 finished, steps=611, computing val loss",
        "It hangs after this line, please help.",
        "```",
        "NCCL_DEBUG=WARN shows nothing more than that",
        "[rank1]: step 3",
    ]
    assert list(written_by_people([*enumerate(lines, 1)])) == [1, 6]
