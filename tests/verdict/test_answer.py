"""Answers to text without dumps: size before membership, a wait is no cause, who is pointed at, never an empty shrug."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangscope.model.conclusion import Verdict
from tests.text_lines import DEFAULT, c10, judged, timeout, told


def answer(tmp_path: Path, *lines: str) -> Verdict:
    return judged(told(tmp_path, [*lines]))


def gather(rank: int, numel_in: int, numel_out: int) -> str:
    work = f"WorkNCCL(SeqNum=6, OpType=_ALLGATHER_BASE, NumelIn={numel_in}, NumelOut={numel_out}, Timeout(ms)=600000)"
    return c10(
        rank,
        f"[{DEFAULT}Rank {rank}] Watchdog caught collective operation timeout: {work} ran for 600029 milliseconds before",
    )


def test_without_a_stated_size_nothing_is_said_of_the_whole_group(tmp_path: Path) -> None:
    verdict = answer(tmp_path, *(timeout(r) for r in range(4)))
    assert "size of the group is not stated" in verdict.explanation
    assert (verdict.cause, verdict.suspect_ranks) == ("unknown", ())


def test_a_stated_size_tells_who_is_missing(tmp_path: Path) -> None:
    verdict = answer(tmp_path, "torchrun --nnodes=2 --nproc_per_node=2 train.py", timeout(0), timeout(1))
    assert verdict.suspect_ranks == (2, 3) and "ranks 2-3" in verdict.collect[0].text


def test_elements_in_and_out_tell_the_size(tmp_path: Path) -> None:
    verdict = answer(tmp_path, gather(4, 8, 256))
    assert "32 ranks take part" in verdict.explanation and len(verdict.suspect_ranks) == 31


def test_where_all_of_a_stated_size_waited_nobody_is_missing(tmp_path: Path) -> None:
    verdict = answer(tmp_path, "INFO world_size=2", timeout(0), timeout(1))
    assert "all 2 members" in verdict.explanation and not verdict.suspect_ranks


def test_who_sent_a_dump_signal_is_named_and_an_idle_default_group_is_read(tmp_path: Path) -> None:
    signal = "Received a dump signal due to a collective timeout from  rank 3 and we will try our best to dump the debug info. Last enqueued NCCL work: 41, last completed NCCL work: 41."
    verdict = answer(tmp_path, *(c10(r, f"[{DEFAULT}Rank {r}] {signal}") for r in (0, 1)))
    assert "Rank 3 signalled" in verdict.explanation and "41 of 41" in verdict.explanation
    assert "another group" in verdict.explanation and not verdict.culprit_ranks


def test_fewer_operations_in_a_stuck_watchdogs_list_point_at_a_rank(tmp_path: Path) -> None:
    lines = [
        c10(r, f"[PG 3 Rank {r}] Heartbeat monitor timed out! workMetaList_.size() = {n}")
        for r, n in ((0, 121), (1, 121), (2, 97), (3, 121))
    ]
    assert answer(tmp_path, *lines).suspect_ranks == (2,)


def test_ranks_that_failed_a_monitored_barrier_are_the_suspects(tmp_path: Path) -> None:
    verdict = answer(
        tmp_path, "RuntimeError: [Rank 0]: Ranks 4, 5, 6, 7 failed to pass monitoredBarrier in 60000 ms"
    )
    assert verdict.suspect_ranks == (4, 5, 6, 7) and "4 consecutive ranks" in verdict.explanation


def test_a_timeout_before_the_time_limit_is_the_freeze(tmp_path: Path) -> None:
    end = "slurmstepd: error: *** STEP 9.0 ON n1 CANCELLED AT 2026-10-16T04:10:01 DUE TO TIME LIMIT ***"
    assert answer(tmp_path, timeout(2), end).cause == "unknown"


def test_an_exception_that_is_a_timeout_is_not_to_be_fixed(tmp_path: Path) -> None:
    verdict = answer(tmp_path, "TimeoutError: RPC call to sample_tokens timed out.")
    assert verdict.cause == "unknown" and "not the cause" in verdict.explanation
    assert not any("Fix" in text or "Mend" in text for text in verdict.advice)


def test_a_text_without_a_fault_is_quoted_with_its_stage(tmp_path: Path) -> None:
    verdict = answer(
        tmp_path, "2026-01-14 09:01:53,683 - INFO - Saving checkpoint", "", "It hangs here for hours"
    )
    assert "saving a checkpoint" in verdict.explanation and "It hangs here" in verdict.explanation
    assert verdict.collect[0].what == "stack" and not any("TORCH_FR" in item.text for item in verdict.collect)


def test_members_that_announce_themselves_twice_carry_the_same_ranks(tmp_path: Path) -> None:
    lines = [f"initializing ddp: GLOBAL_RANK: {r}, MEMBER: {r + 1}/4" for r in (0, 0, 1, 1)]
    verdict = answer(tmp_path, *lines)
    assert "2 of 4 members" in verdict.explanation and "same ranks" in verdict.explanation
    assert verdict.suspect_ranks == (2, 3)


def test_the_store_key_of_a_broadcast_names_its_sender(tmp_path: Path) -> None:
    verdict = answer(
        tmp_path, "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /broadcast_from/1/0"
    )
    assert verdict.suspect_ranks == (1,) and not verdict.culprit_ranks


def test_the_rank_inside_what_wins_over_the_prefix_of_whoever_copied_it(tmp_path: Path) -> None:
    verdict = answer(tmp_path, "[rank0]: what():  " + gather(4, 8, 256).partition("] ")[2])
    assert verdict.waiting_ranks == (4,)


@pytest.mark.parametrize(
    "line",
    [
        "n7:8:9 [3] ras/ras.cc:200 NCCL WARN RAS failed to bind to ::1<28028>: Address already in use",
        "OSError: [Errno 98] Address already in use: ('0.0.0.0', 8000)",
    ],
)
def test_another_servers_port_is_not_the_stores(tmp_path: Path, line: str) -> None:
    assert answer(tmp_path, line, timeout(0)).cause != "init_hang"


def test_what_witnesses_wait_for_is_no_advice_beside_a_cause_that_is_told(tmp_path: Path) -> None:
    ecc = "[rank6]: RuntimeError: CUDA error: uncorrectable ECC error encountered"
    verdict = answer(tmp_path, ecc, *(timeout(r) for r in (0, 2, 4)))
    assert verdict.culprit_ranks == (6,) and "timed out after" in verdict.explanation
    assert "not shown" not in verdict.explanation and "Drain the GPU of rank 6" in verdict.explanation


def test_versions_of_nccl_that_differ_ask_for_no_test_of_the_network(tmp_path: Path) -> None:
    warning = "n2:8:9 [0] bootstrap.cc:411 NCCL WARN Mismatched NCCL version detected : rank 0 version 22703 rank 8 version 22602"
    verdict = answer(tmp_path, warning)
    assert "2.27.3" in verdict.explanation and "bandwidth" not in verdict.explanation


def test_counters_in_dump_signals_name_the_rank_that_is_behind(tmp_path: Path) -> None:
    lines = [timeout(3, seq=845)]
    for rank, enqueued in ((9, 845), (12, 844), (14, 845)):
        signal = f"Received a dump signal due to a collective timeout from  rank 3 and we will try our best to dump the debug info. Last enqueued NCCL work: {enqueued}, last completed NCCL work: 844."
        lines.append(c10(rank, f"[{DEFAULT}Rank {rank}] {signal}"))
    verdict = answer(tmp_path, *lines)
    assert verdict.suspect_ranks == (12,) and "rank 12 has enqueued 844" in verdict.explanation


def test_a_line_that_ray_repeated_counts_those_who_are_not_shown(tmp_path: Path) -> None:
    verdict = answer(tmp_path, gather(4, 8, 64) + " timing out. [repeated 6x across cluster]")
    assert "7 of 8 members" in verdict.explanation and not verdict.suspect_ranks


def test_the_last_line_of_the_rank_that_did_not_time_out_is_quoted(tmp_path: Path) -> None:
    verdict = answer(tmp_path, "[rank0] syncing out/step-5000 to s3", *(timeout(r) for r in (1, 2, 3)))
    assert verdict.suspect_ranks == (0,) and "syncing out/step-5000" in verdict.explanation


def test_one_collective_with_another_size_on_one_rank_names_it(tmp_path: Path) -> None:
    verdict = answer(tmp_path, *(timeout(r, n=96 if r == 1 else 128) for r in range(4)))
    assert verdict.suspect_ranks == (1,) and "different groups" not in verdict.explanation


def test_a_signal_says_where_its_reason_stands(tmp_path: Path) -> None:
    line = "E0311 18:40:03.701000 50090 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -11) local_rank: 2 (pid: 50102) of binary: python"
    verdict = answer(tmp_path, line)
    assert "pid 50102" in verdict.explanation and "core dump" in verdict.explanation
    assert "out-of-memory" not in verdict.explanation


def test_a_run_that_finished_is_called_so(tmp_path: Path) -> None:
    verdict = answer(tmp_path, "step 10/10 loss 1.0", "Training finished in 3:12:44")
    assert "nothing here shows a hang" in verdict.explanation and verdict.cause == "unknown"


def test_ranks_that_lack_different_tensors_are_told_apart(tmp_path: Path) -> None:
    head = "W horovod/common/stall_inspector.cc:107] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds."
    lines = [head, "Missing ranks:", "0: [allreduce.conv1]", "1: [allgather.scores]", "2: [allgather.scores]"]
    verdict = answer(tmp_path, *lines)
    assert verdict.suspect_ranks == (0,) and "allgather.scores" in verdict.explanation


def test_what_a_server_waited_for_before_it_came_up_is_over(tmp_path: Path) -> None:
    waits = "(EngineCore_DP0 pid=41) INFO 06-02 17:47:03 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 seconds."
    verdict = answer(tmp_path, waits, "(APIServer pid=37) INFO:     Application startup complete.")
    assert "finished its start" in verdict.explanation and "holding the others up" not in verdict.explanation


def test_an_idle_gpu_beside_busy_ones_is_pointed_at(tmp_path: Path) -> None:
    rows = []
    for gpu, (watts, percent) in enumerate(((131, 100), (128, 100), (70, 0))):
        rows += [
            f"|   {gpu}  NVIDIA H100 80GB HBM3          On  |   00000000:1{gpu}:00.0 Off |                    0 |",
            f"| N/A   39C    P0            {watts:>3}W /  700W |   61204MiB /  81559MiB |    {percent:>3}%      Default |",
        ]
    explanation = answer(tmp_path, "it hangs, nvidia-smi:", *rows).explanation
    assert "GPU 2 is at 0 %" in explanation and "stack of the process on GPU 2" in explanation


def test_a_description_alone_gets_an_answer_that_claims_nothing(tmp_path: Path) -> None:
    verdict = answer(tmp_path, "My 8 GPU job hangs after the first epoch and prints nothing. Any idea?")
    assert "description alone" in verdict.explanation and verdict.confidence == "low"


def test_a_number_left_out_between_those_that_waited_is_pointed_at(tmp_path: Path) -> None:
    verdict = answer(tmp_path, *(timeout(r) for r in (0, 1, 2, 3, 5)))
    assert verdict.suspect_ranks == (4,) and "rank 4 did not report that wait" in verdict.explanation


def test_a_line_of_a_failure_without_a_rank_is_called_so(tmp_path: Path) -> None:
    verdict = answer(tmp_path, "[1]    40211 killed     torchrun --nproc_per_node 2 train.py")
    assert "40211" in verdict.explanation and "Nothing here shows" not in verdict.explanation


def test_a_message_that_establishes_another_cause_does_not_replace_the_claim(tmp_path: Path) -> None:
    taken = "[W socket.cpp:426] [c10d] The server socket has failed to bind to [::]:23456 (errno: 98 - Address already in use)."
    pending = "job-worker-1      0/1     Pending   0          12m"
    assert "Port 23456" in answer(tmp_path, pending, taken).explanation


def test_vllm_says_which_ranks_came(tmp_path: Path) -> None:
    lines = [
        f"INFO [parallel_state.py:1065] rank {r} in world size 4 is assigned as DP rank 0, PP rank 0, TP rank {r}"
        for r in (0, 1, 3)
    ]
    assert answer(tmp_path, *lines).suspect_ranks == (2,)
