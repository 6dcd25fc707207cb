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


def test_a_store_that_ends_before_the_other_ranks_do_is_no_hang(tmp_path: Path) -> None:
    gone = "[rank3]:[W1102 03:20:11.123456789 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=71, addr=[n2]:51234, remote=[n1]:29500): Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?"
    assert (
        judged(told(tmp_path / "end", ["step 20 loss 2.11", "Training completed.", gone])).cause == "unknown"
    )
    raised = "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed."
    assert "store of the process group" in judged(told(tmp_path / "error", [raised])).explanation


def test_an_error_that_was_caught_does_not_end_a_job_that_goes_on(tmp_path: Path) -> None:
    caught = "WARNING: sample 12 skipped: OSError: [Errno 24] Too many open files"
    steps = [f"step {n} loss 2.{n}" for n in range(10, 60, 10)]
    assert judged(told(tmp_path, [caught, *steps])).cause == "unknown"


def test_a_loader_worker_is_explained_by_its_signal(tmp_path: Path) -> None:
    killed = "RuntimeError: DataLoader worker (pid 2217) is killed by signal: {}."
    verdict = judged(told(tmp_path / "memory", [killed.format("Killed")]))
    assert verdict.cause == "crashed_rank" and "out-of-memory" in verdict.explanation
    verdict = judged(told(tmp_path / "shm", [killed.format("Bus error")]))
    assert verdict.cause == "crashed_rank" and "/dev/shm" in verdict.explanation


def test_the_line_that_ends_a_step_of_srun_does_not_hide_whose_end_it_follows(tmp_path: Path) -> None:
    lines = ["srun: error: n2: task 7: Killed", "srun: Terminating StepId=918273.0"]
    assert "kernel log of n2" in judged(told(tmp_path, lines)).explanation


def test_a_restart_is_no_trouble_of_a_job_that_moves(tmp_path: Path) -> None:
    restart = "[default] Worker group FAILED. 3/3 attempts left; will restart worker group"
    verdict = judged(told(tmp_path, [restart, *(f"step {n} loss 2.{n}" for n in range(10, 60, 10))]))
    assert verdict.cause == "unknown" and "steps continue" in verdict.summary
