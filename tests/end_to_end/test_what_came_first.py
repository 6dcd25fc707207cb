"""What came first, and what only followed: ends by people, connections that were cut, calls of which one side lacks the other."""

from __future__ import annotations

from pathlib import Path

from tests.text_lines import judged, short, spy, status, timeout, told

CANCELLED = "slurmstepd: error: *** STEP 7.0 ON gpu01 CANCELLED AT 2026-10-16T03:29:14 DUE TO TIME LIMIT ***"
REPORT = """Not all ranks joining collective, sequence number: {seq}
internal record id: 12
group info: {group}
collective: nccl:{op}
missing ranks: {{{missing}}}
input sizes: [[{size}]]
output sizes: [[{size}]]
world size: 4
expected ranks: {{0, 1, 2, 3}}
collective state: scheduled
collective stack trace:
 {op} at /opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:2810
 step at /workspace/train/train.py:{line}
"""


def test_a_wait_that_had_begun_before_the_end_outranks_it(tmp_path: Path) -> None:
    """The timeouts of 600 s end at 03:31:38, after the job was cancelled."""
    sides = [timeout(0, op="BROADCAST"), *map(timeout, (1, 2, 3))]
    assert short(told(tmp_path, [CANCELLED, *sides]))[:2] == ("rank_conditional_collective", (0,))


def test_the_sides_of_an_even_split_are_named_and_what_one_side_printed_once_decides(tmp_path: Path) -> None:
    lines = [f"[rank{r}] step {n} loss 2.{n}" for n in (28, 29) for r in range(4)]
    lines += [f"[rank{r}] time is up, stopping" for r in (0, 1)]
    lines += [timeout(r, op="BROADCAST") for r in (0, 1)] + [timeout(r) for r in (2, 3)]
    verdict = judged(told(tmp_path, lines))
    assert (
        verdict.culprit_ranks == (0, 1) and "ranks 2 and 3 timed out in all_reduce" in verdict.summary.lower()
    )


def test_reports_that_each_lack_the_ranks_of_another_one_are_of_different_calls(tmp_path: Path) -> None:
    text = REPORT.format(seq=9, group="0:default_pg", op="all_reduce", missing="1, 2, 3", size=1, line=40)
    text += REPORT.format(seq=7, group="3:ep", op="all_to_all", missing="0", size=4096, line=52)
    verdict = judged(told(tmp_path, {"trace.txt": text}))
    assert (verdict.cause, verdict.culprit_ranks) == ("rank_conditional_collective", (0,))
    assert "blocked in all_to_all seq 7" in verdict.summary and "train.py:40" in verdict.explanation


def test_a_launchers_entry_without_its_head_is_an_entry(tmp_path: Path) -> None:
    lines = [
        "Failures:",
        "[1]:",
        "  time      : 2026-11-20_17:01:36",
        "  host      : n1",
        "  rank      : 2 (local_rank: 2)",
    ]
    lines += [
        "  exitcode  : -15 (pid: 903)",
        "  error_file: <N/A>",
        "Root Cause (first observed failure):",
        "[0]:[0]:[0]:",
    ]
    lines += [
        "  time      : 2026-11-20_17:01:35",
        "  host      : n1",
        "  rank      : 1 (local_rank: 1)",
        "  exitcode  : -9 (pid: 902)",
    ]
    assert short(told(tmp_path, lines))[:2] == ("crashed_rank", (1,))


def test_calls_that_detail_lists_have_begun_and_nothing_says_that_they_ended(tmp_path: Path) -> None:
    call = "[I ProcessGroupWrapper.cpp:562] [Rank {}] Running collective: CollectiveFingerPrint(SequenceNumber={}, OpType=ALLREDUCE, TensorShape=[8], TensorDtypes=Float)"
    lines = [call.format(rank, 40) for rank in range(4)] + [call.format(rank, 41) for rank in (0, 1, 3)]
    assert judged(told(tmp_path, lines)).cause != "gpu_stall"


def test_a_connection_that_times_out_was_cut_and_names_nobody(tmp_path: Path) -> None:
    error = "RuntimeError: [/build/gloo/transport/tcp/pair.cc:538] Read error [10.2.4.11]:34077: Connection timed out"
    verdict = judged(told(tmp_path, [f"[rank{rank}]: {error}" for rank in (8, 9, 10)]))
    assert (verdict.cause, verdict.culprit_ranks) == ("network_stall", ())
    assert "had ended" not in verdict.explanation


def test_both_ends_of_a_connection_that_closed_were_alive(tmp_path: Path) -> None:
    lines = [
        "pod-0:21:148 [3] misc/socket.cc:54 NCCL WARN Call to send to 10.2.7.33<41822> failed : Connection reset by peer",
        "pod-1:19:140 [0] misc/socket.cc:50 NCCL WARN Call to recv from 10.2.5.18<36490> failed : Connection reset by peer",
    ]
    assert short(told(tmp_path / "both", lines))[0] == "network_stall"
    assert short(told(tmp_path / "one", lines[:1]))[0] == "crashed_rank"


def test_hosts_that_connect_to_themselves_look_for_one_that_announced_its_loopback(tmp_path: Path) -> None:
    line = (
        "{}:1:33 [0] include/socket.h:390 NCCL WARN Connect to 127.0.0.1<42107> failed : Connection refused"
    )
    assert short(told(tmp_path, [line.format("w-0"), line.format("w-1")]))[0] == "init_hang"


def test_the_first_device_that_failed_is_named_whatever_its_clock_shows(tmp_path: Path) -> None:
    """The kernel prints the year, c10's logger does not."""
    init = "n1:{pid}:9 [{rank}] NCCL INFO ncclCommInitRankConfig comm 0x5{rank} rank {rank} nranks 8 cudaDev {rank} nvmlDev {rank} busId {bus}000 commId 0x4 - Init COMPLETE"
    lines = [init.format(pid=700 + rank, rank=rank, bus=bus) for rank, bus in ((4, "8d"), (6, "c3"))]
    lines += ["[Fri Oct 16 03:30:04 2026] NVRM: Xid (PCI:0000:c3:00): 79, GPU has fallen off the bus."]
    lines += [
        timeout(4).partition("[Rank")[0]
        + "[PG ID 0 Rank 4] Process group watchdog thread terminated with exception: CUDA error: unspecified launch failure"
    ]
    assert short(told(tmp_path, lines))[:2] == ("gpu_stall", (6,))


def test_who_is_in_a_collective_while_all_others_have_returned_called_it_alone(tmp_path: Path) -> None:
    idle = ["main_loop (ray/_private/worker.py:946)", "<module> (ray/_private/workers/default_worker.py:330)"]
    alone = ["all_reduce (torch/distributed/distributed_c10d.py:2806)", "save (/workspace/train/save.py:88)"]
    lines = ["The trainer hangs after the first save."]
    lines += [
        line
        for rank in range(4)
        for line in spy(f"rank {rank}:", 90 + rank, *(idle if rank else [*alone, *idle]))
    ]
    assert short(told(tmp_path, lines))[:2] == ("rank_conditional_collective", (0,))


def test_tracebacks_of_ctrl_c_show_who_waits_for_its_host(tmp_path: Path) -> None:
    def raised(rank: int, *frames: tuple[str, int, str, str]) -> list[str]:
        lines = [f'  File "{file}", line {line}, in {name}\n    {code}' for file, line, name, code in frames]
        text = "\n".join(["Traceback (most recent call last):", *lines, "KeyboardInterrupt"])
        return [f"[rank{rank}]: {line}" for line in text.split("\n")]

    batch = ("/workspace/train.py", 41, "train", "batch = next(self.loader)")
    queue = (
        "/opt/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py",
        1251,
        "_try_get_data",
        "data = self._data_queue.get(timeout=timeout)",
    )
    lines = ["It hangs at the first step, I pressed ctrl-c.", ""]
    for rank in range(4):
        lines += raised(
            rank,
            *(
                (batch, queue)
                if rank == 2
                else (("/workspace/train.py", 56, "train", "accelerator.backward(loss)"),)
            ),
        )
    assert short(told(tmp_path, lines))[:2] == ("stuck_rank", (2,))


def test_a_finished_job_that_by_its_reporter_does_not_exit_is_not_said_to_be_well(tmp_path: Path) -> None:
    done = [f"[rank {rank}] finished, max diff 0.0" for rank in range(4)]
    assert told(tmp_path / "well", done).status == "no_hang"
    assert (
        told(tmp_path / "not", ["After the upgrade the test does not exit any more.", "", *done]).status
        != "no_hang"
    )


def test_a_server_that_is_cancelled_after_the_end_of_all_agents_is_no_failure(tmp_path: Path) -> None:
    agent = "[2026-03-20 19:12:44,08{}] [INFO] [agent] "
    lines = [f"[default{rank}]:rank {rank} done" for rank in range(2)]
    lines += [
        agent.format(1)
        + "[default] worker group successfully finished. Waiting 300 seconds for other agents to finish.",
        agent.format(3) + "All agents finished, exit barrier took 0.0016 s",
    ]
    lines += [
        "Traceback (most recent call last):",
        '  File "/opt/venv/lib/python3.12/site-packages/uvicorn/lifespan/on.py", line 137, in receive',
        "    return await self.queue.get()",
        "asyncio.exceptions.CancelledError",
    ]
    assert told(tmp_path, lines).status == "no_hang"


def test_a_rank_at_the_prompt_of_a_debugger_is_waited_for(tmp_path: Path) -> None:
    lines = [
        "loss is nan",
        "> /workspace/train/tune.py(28)check()",
        "-> return loss",
        "(Pdb) ",
        timeout(1),
        status(1, 6, 6, 5),
    ]
    assert "debugger" in judged(told(tmp_path, lines)).explanation + judged(told(tmp_path, lines)).title
