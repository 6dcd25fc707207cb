"""What a short paste is answered with: waits are told from other errors, and lines without a group join their peers'."""

from __future__ import annotations

from pathlib import Path

from hangscope.model.conclusion import Verdict
from tests.conftest import analyze


def judged(tmp_path: Path, text: str) -> Verdict:
    (tmp_path / "paste.txt").write_text(text)
    verdict = analyze(tmp_path).verdict
    assert verdict is not None
    return verdict


def test_an_error_that_is_no_timeout_is_not_called_a_wait(tmp_path: Path) -> None:
    taken = "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29531, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n"
    verdict = judged(tmp_path, taken)
    assert verdict.cause == "init_hang" and "wait" not in verdict.explanation


def test_timeouts_with_and_without_their_groups_name_are_one_collective(tmp_path: Path) -> None:
    line = (
        "[rank{0}]:[E108 23:50:41.606220767 ProcessGroupNCCL.cpp:607] [Rank {0}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=77, OpType=_ALLGATHER_BASE, NumelIn=4096, NumelOut=8192, Timeout(ms)=1800000) ran for 1800082 milliseconds before timing out.\n"
    )
    status = (
        "[rank1]:[E108 23:50:41.551190338 ProcessGroupNCCL.cpp:1664] [PG 0 (default_pg) Rank 1] Exception (either an error or timeout) detected by "
        "watchdog at work: 77, last enqueued NCCL work: 79, last completed NCCL work: 76.\n"
    )
    explanation = judged(tmp_path, line.format(0) + line.format(1) + status).explanation
    assert "all 2 members" in explanation and "different groups" not in explanation


def test_local_ranks_on_the_command_lines_of_one_host_place_stacks(tmp_path: Path) -> None:
    stacks = []
    for rank in range(3):
        frame = (
            "_load (data/webset.py:74)"
            if rank == 1
            else "all_reduce (torch/distributed/distributed_c10d.py:2810)"
        )
        stacks += [f"Process {70 + rank}: python -u fit.py --local-rank={rank}", "Python v3.12.3", ""]
        stacks += [f'Thread {70 + rank} (active): "MainThread"', f"    {frame}", "    train (fit.py:40)", ""]
    assert judged(tmp_path, "\n".join(stacks)).culprit_ranks == (1,)


def test_an_unknown_error_is_read_by_what_it_is_about_before_those_who_wait(tmp_path: Path) -> None:
    lines = [
        "2025-03-02 08:10:00 4410:4411 [0] plugin.c:88 XCCL WARN NET/OFI fabric plugin initialization failed"
    ]
    lines += [
        f"2025-03-02 08:1{n}:10 441{n % 2}:4420 [0] sock.h:5 XCCL WARN Timeout waiting for RX - retrying, [init, rank: {n % 2}/8/-1]"
        for n in range(4)
    ]
    explanation = judged(tmp_path, "\n".join(lines)).explanation
    assert explanation.startswith("The text reports 'NET/OFI fabric plugin initialization failed'")
    assert "(4 times from 08:10:10 to 08:13:10, 180 s)" in explanation
    assert "ranks 2-7 are not in this text" in explanation and "fi_info" in explanation


def test_steps_that_became_slow_are_no_hang_and_say_since_when(tmp_path: Path) -> None:
    times = (2.1, 2.0, 9.8, 10.1, 10.0)
    text = "is this stuck??\n" + "".join(
        f"[rank0]: step {70 + n}/900 loss 1.2 {s} s/step\n" for n, s in enumerate(times)
    )
    explanation = judged(tmp_path, text).explanation
    assert "times slower since step 72" in explanation and "slow and not stuck" in explanation


def test_what_was_pasted_is_not_asked_for(tmp_path: Path) -> None:
    text = "\n".join(
        [
            "HW Exception by GPU node-2 (Agent handle: 0x21a) reason :GPU Hang",
            "[68214.119320] amdgpu 0000:5d:00.0: uncorrectable hardware error detected!",
            "[68216.902155] amdgpu 0000:5d:00.0: amdgpu: GPU reset begin!",
        ]
    )
    verdict = judged(tmp_path, text)
    assert "dmesg" not in " ".join((verdict.explanation, *verdict.advice))
    assert "uncorrectable hardware error" in verdict.explanation


def test_two_builds_of_one_library_in_a_list_of_packages_are_told(tmp_path: Path) -> None:
    text = "ImportError: libtorch_cuda.so: undefined symbol: ncclCommResume\n\nnvidia-nccl-cu12    2.27.5\nnvidia-nccl-cu13    2.29.7\n"
    explanation = judged(tmp_path, text).explanation
    assert "nvidia-nccl-cu12 2.27.5 and nvidia-nccl-cu13 2.29.7 are both installed" in explanation


def test_who_waits_in_a_monitored_barrier_names_the_rank_that_leads_it(tmp_path: Path) -> None:
    text = (
        "Map (num_proc=14):  70%|#######   | 588020/838121 [6:02:13<4:21:40, 15.93 examples/s]\n"
        "RuntimeError: Rank 3 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.\n"
        "[gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 21600000ms for recv operation to complete\n"
    )
    verdict = judged(tmp_path, text)
    assert verdict.suspect_ranks == (0,) and verdict.culprit_ranks == ()
    assert "waited 21600 s (6 hours) for rank 0" in verdict.explanation and "4:21:40" in verdict.explanation


def test_ranks_that_no_tensor_is_ready_on_are_missing_where_the_size_is_stated(tmp_path: Path) -> None:
    tensors = ", ".join(f"allreduce.{name} [ready ranks: 0, 1, 4, 5]" for name in ("fc.weight", "fc.bias"))
    head = "WARNING: One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.\n"
    verdict = judged(tmp_path, f"$ horovodrun -np 6 python fit.py\n{head}Stalled ops: {tensors}\n")
    assert verdict.suspect_ranks == (2, 3) and "ranks 2-3 have not submitted" in verdict.explanation


def test_a_native_stack_says_which_call_of_the_library_has_not_returned(tmp_path: Path) -> None:
    frames = (
        "ncclLocalOpAppend (libnccl.so.2)",
        "ncclGroupEndInternal (libnccl.so.2)",
        "ncclAllReduce (libnccl.so.2)",
        "all_reduce (torch/distributed/distributed_c10d.py:4521)",
        "step (moe.py:85)",
    )
    text = (
        "$ py-spy dump --native --pid 41   # rank 9\nProcess 41: python moe.py\n\n"
        + 'Thread 41 (active): "MainThread"\n'
    )
    explanation = judged(tmp_path, text + "".join(f"    {frame}\n" for frame in frames)).explanation
    assert "rank 9 is in ncclAllReduce" in explanation and "has not returned" in explanation


def test_a_server_with_failed_requests_and_a_queue_is_not_calm(tmp_path: Path) -> None:
    text = (
        "[2025-10-08 11:07:32 TP0] cache transfer of request 7 failed: peer might be dead\n"
        "[2025-10-08 11:07:40 TP0] Decode batch. #running-req: 1, #token: 4, #transfer-req: 22, gen throughput (token/s): 0.06\n"
    )
    assert "peer might be dead" in judged(tmp_path, text).explanation


def test_the_worker_that_did_not_print_a_line_is_told(tmp_path: Path) -> None:
    lines = [
        f"(Worker_TP{n} pid=90{n}) INFO 09-03 14:22:3{n} [loader.py:262] Loading weights took 2{n}.10 seconds"
        for n in (0, 1, 3)
    ]
    lines.append(
        "(EngineCore_0 pid=900) INFO 09-03 14:24:31 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 seconds."
    )
    assert (
        "rank 2, by number among them, is not in this text" in judged(tmp_path, "\n".join(lines)).explanation
    )


def test_busy_and_idle_gpus_of_a_description_are_compared(tmp_path: Path) -> None:
    explanation = judged(
        tmp_path,
        "Validation DataLoader 0:   0%|          | 0/40 [00:00<?, ?it/s]\nIt hangs here. GPU 0 is at 100%, GPU 1 at 0%.\n",
    ).explanation
    assert "The process on GPU 1 is in none" in explanation


def test_the_process_that_the_kernel_killed_has_the_rank_of_its_id(tmp_path: Path) -> None:
    text = "20:15:02 [rank5] pid 78808 writing shard\n[ 10.5] Out of memory: Killed process 78808 (python) total-vm:1kB\n"
    assert judged(tmp_path, text).culprit_ranks == (5,)


def test_nothing_is_called_unknown_that_a_title_or_the_message_tells(tmp_path: Path) -> None:
    error = 'Traceback (most recent call last):\n  File "train.py", line 4, in <module>\nRuntimeError: Waiting for local rank 0, bailing out: 60 < 61 sec.\n'
    text = f"----------Begin global rank 3 STDERR----------\n{error}----------End global rank 3 STDERR----------\n"
    explanation = judged(tmp_path, text).explanation
    assert explanation.startswith("Rank 3 raised") and "waited for local rank 0" in explanation


def test_a_server_that_works_evenly_behind_a_failed_check_is_no_stop(tmp_path: Path) -> None:
    batch = "[2026-04-12 09:{} TP0] Prefill batch, #new-token: 8192, token usage: 0.{}, #queue-req: 39,\n"
    check = "[2026-04-12 09:33:10] Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic start time: 09:32:50. last_heartbeat time: 09:31:22\n"
    head = batch.format("32:10", 40) + batch.format("32:31", 41) + batch.format("32:52", 42)
    explanation = judged(tmp_path, head + check + batch.format("33:13", 43)).explanation
    assert explanation.startswith("The job still advances") and "is no stop" in explanation


def test_more_workers_than_ranks_are_those_of_a_second_start(tmp_path: Path) -> None:
    line = "INFO:torch.distributed.distributed_c10d:Waiting in store based barrier to initialize process group for rank: {}, key: store_based_barrier_key:1 (world_size=4, worker_count=8, timeout=0:30:00)\n"
    verdict = judged(tmp_path, "".join(line.format(rank) for rank in range(4)))
    assert verdict.cause == "init_hang" and "second start or of an earlier attempt" in verdict.summary


def test_an_error_that_all_ranks_get_over_two_of_them_blames_nobody(tmp_path: Path) -> None:
    error = "[1,{}]<stderr>:horovod.common.exceptions.HorovodInternalError: Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of shape [8], but another rank sent a tensor of shape [9].\n"
    verdict = judged(tmp_path, error.format(0) + error.format(5))
    assert verdict.cause == "shape_mismatch" and verdict.culprit_ranks == ()


def test_a_kernels_line_is_no_word_of_the_reporter(tmp_path: Path) -> None:
    line = "[ 5508.496754] watchdog: BUG: soft lockup - CPU#41 stuck for {}s! [cuda-EvtHandlr:9077]\n"
    verdict = judged(tmp_path, line.format(22) + line.format(48))
    assert "reporter" not in verdict.explanation and "9077" in verdict.explanation


def _stack(pid: int, call: str, line: int) -> str:
    library = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
    return (
        f'Process {pid}: /opt/venv/bin/python train.py\nPython v3.11.4 (/usr/bin/python3.11)\n\nThread {pid} (idle): "MainThread"\n'
        f"    {call} ({library}:3252)\n    sync (train.py:{line})\n    <module> (train.py:92)\n"
    )


def test_stacks_of_several_processes_of_no_known_rank_are_compared_by_their_ids(tmp_path: Path) -> None:
    alike = [_stack(pid, "all_reduce", 41) for pid in (70, 71, 72)]
    odd = judged(tmp_path, "".join([*alike, _stack(73, "all_reduce", 55)]))
    assert odd.summary.startswith(
        "Process 73 alone is at distributed_c10d.py:3252 in all_reduce (from train.py:55"
    )
    assert "rocesses 70, 71 and 72 are at" in odd.explanation and odd.culprit_ranks == ()
    two = judged(tmp_path, alike[0] + _stack(73, "barrier", 55))
    assert (
        "alone is" not in two.summary + two.explanation
        and "do not tell who waits for whom" in two.explanation
    )
    assert "all at the same place" in judged(tmp_path, "".join(alike)).explanation
