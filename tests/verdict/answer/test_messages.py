"""Known messages in an answer: whose line it is, and which of several claims stays."""

from __future__ import annotations

from pathlib import Path

from tests.text_lines import judged, told


def test_a_message_that_establishes_another_cause_does_not_replace_the_claim(tmp_path: Path) -> None:
    taken = "[W socket.cpp:426] [c10d] The server socket has failed to bind to [::]:23456 (errno: 98 - Address already in use)."
    pending = "job-worker-1      0/1     Pending   0          12m"
    assert "Port 23456" in judged(told(tmp_path, [pending, taken])).explanation


def test_more_workers_than_ranks_are_those_of_a_second_start(tmp_path: Path) -> None:
    line = "INFO:torch.distributed.distributed_c10d:Waiting in store based barrier to initialize process group for rank: {}, key: store_based_barrier_key:1 (world_size=4, worker_count=8, timeout=0:30:00)"
    verdict = judged(told(tmp_path, [line.format(rank) for rank in range(4)]))
    assert verdict.cause == "init_hang" and "second start or of an earlier attempt" in verdict.summary


def test_an_error_that_all_ranks_get_over_two_of_them_blames_nobody(tmp_path: Path) -> None:
    error = "[1,{}]<stderr>:horovod.common.exceptions.HorovodInternalError: Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of shape [8], but another rank sent a tensor of shape [9]."
    verdict = judged(told(tmp_path, [error.format(0), error.format(5)]))
    assert verdict.cause == "shape_mismatch" and verdict.culprit_ranks == ()


def test_a_kernels_line_is_no_word_of_the_reporter(tmp_path: Path) -> None:
    line = "[ 5508.496754] watchdog: BUG: soft lockup - CPU#41 stuck for {}s! [cuda-EvtHandlr:9077]"
    explanation = judged(told(tmp_path, [line.format(22), line.format(48)])).explanation
    assert "reporter" not in explanation and "9077" in explanation
