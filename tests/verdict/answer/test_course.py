"""How far a job was: its stage, its pace, its end, and a text that shows no more than a last line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.text_lines import judged, told

BATCH = "[2026-04-12 09:{} TP0] Prefill batch, #new-token: 8192, token usage: 0.{}, #queue-req: 39,"
CHECK = "[2026-04-12 09:33:10] Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic start time: 09:32:50. last_heartbeat time: 09:31:22"
WAITS = "(EngineCore_DP0 pid=41) INFO 06-02 17:47:03 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 seconds."
NO_STORE = "[W socket.cpp:601] [c10d] The client socket has failed to connect to [node-0]:3389 (errno: 22 - Invalid argument)."
PAUSED = (
    ("02:16", 1300),
    ("02:18", 1304),
    ("12:49", 1305),
    ("12:53", 1315),
    ("12:58", 1327),
    ("13:03", 1339),
)
TIMES = (2.1, 2.0, 9.8, 10.1, 10.0)


@pytest.mark.parametrize(
    ("lines", "phrases"),
    [
        pytest.param(
            ["2026-01-14 09:01:53,683 - INFO - Saving checkpoint", "", "It hangs here for hours"],
            ["saving a checkpoint", "'It hangs here", "the log itself shows no hang"],
            id="a stage and a complaint",
        ),
        pytest.param(
            ["step 10/10 loss 1.0", "Training finished in 3:12:44"],
            ["The job finished", "these lines show no hang"],
            id="a job that finished",
        ),
        pytest.param(
            ["my job hangs after the first epoch", "Epoch 1: 100%|###| 500/500 [04:15<00:00, 1.96it/s]"],
            ["The last line is", "the log itself shows no hang"],
            id="a full bar, which is no end of a job",
        ),
        pytest.param(
            [f"2024-04-08 13:{t} batch {n}/3912 loss 2.1" for t, n in PAUSED],
            ["631 s passed before batch 1305", "the steps continued"],
            id="a pause that ended",
        ),
        pytest.param(
            [
                f"batch {n}/2000 loss 2.1 {s} s/batch"
                for n, s in ((10, 64.3), (20, 61.1), (150, 7.9), (1000, 0.7), (1010, 0.6))
            ],
            ["step took 64.3 s at first and takes 0.6 s at the end", "is not hung"],
            id="steps that became fast",
        ),
        pytest.param(
            [WAITS, '(APIServer pid=37) INFO:     10.1.4.20:40110 - "POST /v1/completions HTTP/1.1" 200 OK'],
            ["The server answered requests after these lines"],
            id="a server that answers again",
        ),
        pytest.param(
            [WAITS, "(APIServer pid=37) INFO:     Application startup complete."],
            ["The server finished its start"],
            id="a server that came up",
        ),
        pytest.param(
            [
                "is this stuck??",
                *(f"[rank0]: step {70 + n}/900 loss 1.2 {s} s/step" for n, s in enumerate(TIMES)),
            ],
            ["times slower since step 72", "slow, not hung"],
            id="steps that became slow",
        ),
        pytest.param(
            [
                BATCH.format("32:10", 40),
                BATCH.format("32:31", 41),
                BATCH.format("32:52", 42),
                CHECK,
                BATCH.format("33:13", 43),
            ],
            ["The job still advances where the text ends"],
            id="a server that works on after a failed check",
        ),
        pytest.param(
            [
                "[2025-10-08 11:07:32 TP0] cache transfer of request 7 failed: peer might be dead",
                "[2025-10-08 11:07:40 TP0] Decode batch. #running-req: 1, #token: 4, #transfer-req: 22, gen throughput (token/s): 0.06",
            ],
            ["peer might be dead"],
            id="a server with failed requests",
        ),
    ],
)
def test_a_text_without_a_fault_shows_how_far_the_job_was(
    tmp_path: Path, lines: list[str], phrases: list[str]
) -> None:
    """Who is only slow does not hang; whether anything else does, nothing here shows."""
    report = told(tmp_path, lines)
    said = " ".join(report.to_text().split())
    assert not [phrase for phrase in phrases if phrase not in said]
    if "not hung" in said or "still advances" in said:
        assert (report.status, report.verdict) == ("no_hang", None)
    else:
        verdict = judged(report)
        assert (verdict.cause, verdict.confidence, verdict.culprit_ranks) == ("unknown", "low", ())


@pytest.mark.parametrize(("pause", "stopped"), [("14:02:51", True), ("14:01:07", False)])
def test_a_pause_as_long_as_a_timeout_before_the_first_errors_shows_a_wait(
    tmp_path: Path, pause: str, stopped: bool
) -> None:
    lines = [f"worker-1: {{'loss': 1.8}}   2024-07-03 13:32:{s}" for s in (30, 37, 44, 51)]
    lines += [
        "worker-1: EH9999: Inner Error!",
        f"worker-1: 2024-07-03-{pause} wait for compute device to finish failed",
    ]
    lines += [
        f"worker-1: [2024-07-03 {pause},330] [INFO] [launch.py:316:sigkill_handler] Killing subprocess 50412"
    ]
    lines += [
        f"worker-1: [2024-07-03 {pause},902] [ERROR] [launch.py:322:sigkill_handler] ['python', 'fit.py'] exits with return code = 1"
    ]
    report = told(tmp_path, lines)
    assert ("the length of a timeout" in judged(report).explanation) == stopped
    assert (judged(report).cause == "crashed_rank") != stopped


def test_steps_that_go_on_are_told_beside_what_else_a_text_has(tmp_path: Path) -> None:
    lines = [f"Epoch: [3][{n}/5004]  Time 0.621 (0.619)  Loss 2.4410 (2.6113)" for n in (2340, 2360, 2380)]
    lines += ["", "My job hangs sometimes, GPU 0 is at 0 %"]
    assert "The steps went on from [2340/5004] to [2380/5004]" in judged(told(tmp_path, lines)).explanation


@pytest.mark.parametrize(
    "lines",
    [
        ["is it normal that it hangs here?", "step 10/10 loss 1.0", "Training finished in 3:12:44"],
        [
            "Is it a deadlock? It falls to 0 % and goes on after a minute.",
            "step 10/10 loss 1.0",
            "$ echo $?",
            "0",
        ],
    ],
)
def test_a_job_that_ended_well_while_somebody_asks_is_no_hang(tmp_path: Path, lines: list[str]) -> None:
    report = told(tmp_path, lines)
    assert (report.status, report.verdict) == ("no_hang", None)
    assert any("The job finished" in reason for reason in report.document.confidence_why)
    assert "The job finished" in report.to_text()


def test_a_bar_on_the_line_of_a_failure_is_the_last_progress(tmp_path: Path) -> None:
    bar = " 44%|####      | 443/1000 [00:34<00:52, 10.85it/s]"
    died = "[rank1]:[E1127 18:59:30.232000 ProcessGroupNCCL.cpp:683] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600018 milliseconds before timing out."
    report = told(tmp_path, ["2026-11-27 18:59:26,239 [rank 0] step 400 loss 0.0621", f"{bar}{died}"])
    assert "443/1000 [00:34" in judged(report).explanation


@pytest.mark.parametrize("started_last", [True, False])
def test_a_server_that_came_up_after_its_waits_shows_no_hang_whatever_its_reporter_says(
    tmp_path: Path, started_last: bool
) -> None:
    waits = [WAITS.replace("47:03", f"4{minute}:03") for minute in range(3)]
    started = "(APIServer pid=37) INFO:     Application startup complete."
    lines = [*waits, started] if started_last else [started, *waits]
    report = told(tmp_path, ["vLLM hangs when I start it with tensor parallel size 2", *lines])
    explanation = judged(report).explanation
    assert report.status == "inconclusive"  # it states neither its ranks nor their ends
    assert ("The server finished its start" in explanation) is started_last
    assert ("these lines show no hang" in explanation) is started_last


def test_a_warning_of_a_job_that_ended_well_is_said_to_end_nothing(tmp_path: Path) -> None:
    warning = "[rank1]:[W819 05:58:41.651187702 ProcessGroupNCCL.cpp:1479] Warning: WARNING: destroy_process_group() was not called before program exit, which can leak resources. (function operator())"
    report = told(tmp_path, ["did it hang?", "step 10/10 loss 1.0", "Training finished in 3:12:44", warning])
    assert report.status == "no_hang"
    assert "without destroy_process_group(), which is a warning" in report.to_text()
