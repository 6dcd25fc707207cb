"""What shows that a job ended well, or went on after what looks like a hang: launchers, schedulers, scripts and its own lines."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from hangscope.errors import NoInputError
from tests.dump_writer import Recorder, job
from tests.small_jobs import due, loop
from tests.text_lines import timeout, told
from tests.verdicts import blame, judged, level


def waiting() -> tuple[list[Recorder], float]:
    """Return the recorders of three ranks that wait for rank 0, and when (s) they made their last call."""
    recorders = loop(4)
    for recorder in recorders[1:]:
        due(recorder)
    return recorders, max(entry["time_created_ns"] for r in recorders for entry in r.entries) / 1e9


def test_slurms_word_that_a_job_ended_well_outweighs_a_store_that_was_gone_before_its_last_rank(
    tmp_path: Path,
) -> None:
    noise = '[rank3]:[W806 11:03:31.199494614 ProcessGroupNCCL.cpp:1783] [PG ID 0 PG GUID 0(default_pg) Rank 3] Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Broken pipe'
    lines = [f"{rank}: [rank{rank}]: run complete: 8 steps, exiting" for rank in range(4)]
    ended = ["Job ID: 12", "State: COMPLETED (exit code 0)"]
    assert blame(told(tmp_path / "well", [*lines, noise, *ended])) == ("no_hang", None, ())
    assert blame(told(tmp_path / "unknown", [*lines, noise]))[0] == "inconclusive"
    crash = "[rank2]: ValueError: no such file"
    trace = [
        "[rank2]: Traceback (most recent call last):",
        '[rank2]:   File "train.py", line 3, in main',
        crash,
    ]
    assert blame(told(tmp_path / "hidden", [*lines, *trace, *ended]))[0] == "hang"


def test_an_agents_word_that_all_its_workers_ended_well_outweighs_dumps_that_were_made_before(
    tmp_path: Path,
) -> None:
    """Rank 0 wrote a checkpoint while the dumps were made; the word of one of two nodes does not tell of the other."""
    agent = "I0712 23:45:39.067000 4711 torch/distributed/elastic/agent/server/api.py:879] [default] "
    ended = f"{agent}worker group successfully finished. Waiting 300 seconds for other agents to finish."
    recorders, _ = waiting()
    assert blame(judged(tmp_path / "well", recorders, job=[ended])) == ("no_hang", None, ())
    assert blame(judged(tmp_path / "open", recorders, job=[agent])) == ("hang", "stuck_rank", (0,))
    failed = [
        "[rank2]: Traceback (most recent call last):",
        '[rank2]:   File "t.py", line 3, in f',
        "[rank2]: KeyError: 1",
    ]
    assert blame(judged(tmp_path / "not", recorders, job=[*failed, ended]))[0] == "hang"
    recorders = loop(4)
    for recorder in recorders[2:]:
        due(recorder)
    one_of_two = judged(tmp_path / "two", recorders, job=[ended])
    assert one_of_two.status != "no_hang"
    both = f"{agent}Done waiting for other agents. Elapsed: 0.02 seconds"
    assert judged(tmp_path / "both", recorders, job=[ended, both]).status == "no_hang"


@pytest.mark.parametrize(
    "ended",
    [
        "12|x COMPLETED",
        "12.0 train gpu acct 4 FAILED 1:0",
        "12.batch batch acct 4 COMPLETED 0:0",
        "12 train gpu acct 4 COMPLETED 0:0",
        "   JobState=COMPLETED Reason=None Dependency=(null)",
        "Slurm Job_id=12 Name=train Ended, Run time 00:03:01, COMPLETED, ExitCode 0",
    ],
)
def test_slurms_word_on_a_job_is_read_in_all_its_forms_and_that_on_a_step_is_not(
    tmp_path: Path, ended: str
) -> None:
    well = ended.endswith(("4 COMPLETED 0:0", "(null)", "ExitCode 0")) and ".batch" not in ended
    report = told(tmp_path, ["step 1 loss 2.5", "step 2 loss 2.4", ended])
    assert report.status == ("no_hang" if well else "inconclusive")
    assert "every rank was seen" not in report.to_text()


WELL = "I1120 15:13:29.269000 4200 torch/distributed/elastic/agent/server/api.py:879] [default] worker group successfully finished. Waiting 300 seconds for other agents to finish."


@pytest.mark.parametrize("end", [WELL, "exit code: 0", "Exit status: 0", "train.sh: EXIT_CODE=0"])
def test_a_good_end_behind_what_all_ranks_printed_is_theirs(tmp_path: Path, end: str) -> None:
    lines = [f"[rank{rank}]: step {step}" for step in range(3) for rank in range(4)]
    assert told(tmp_path / "all", [*lines, end]).status == "no_hang"
    assert told(tmp_path / "some", [*lines[1:4], end]).status == "inconclusive"
    others = {"node0.log": [*lines, end], "node1.log": [line.replace("rank", "rank1") for line in lines]}
    assert told(tmp_path / "others", others).status == "inconclusive"
    raised = ["[rank1]: Traceback (most recent call last):", '[rank1]:   File "a.py", line 3, in f']
    assert told(tmp_path / "bad", [*lines, *raised, "[rank1]: ValueError: 3", end]).status == "hang"


def test_an_exit_code_that_a_script_prints_before_the_ranks_speak_is_of_another_command(
    tmp_path: Path,
) -> None:
    lines = [f"[rank{rank}]: step {step}" for step in range(3) for rank in range(4)]
    assert told(tmp_path, ["exit code: 0", *lines]).status == "inconclusive"


def test_words_that_the_loop_is_over_make_a_freeze_in_dumps_a_guess(tmp_path: Path) -> None:
    recorders, _ = waiting()
    for words, sure in (("training complete", "low"), ("step 12/40 loss 0.3", "medium")):
        assert level(judged(tmp_path / sure, recorders, job=[words])) == sure


STEPS = [f"[rank{rank}]: step {step}" for step in range(3) for rank in range(4)]


RETRY = "node1:88:140 [0] NCCL INFO socketPollConnect: connect to 10.9.0.1<33211> returned Connection refused, retrying (1/34) after sleep for 100 msec"


NOISE = '[rank3]:[W806 11:03:31.199494614 ProcessGroupNCCL.cpp:1783] [PG ID 0 PG GUID 0(default_pg) Rank 3] Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Broken pipe'


@pytest.mark.parametrize(
    "end",
    [
        "[launch.sh] torchrun exit code: 0, elapsed 00:41:13",
        "[exit code 0]",
        "[launch.sh] torchrun finished, exit code 0",
        "job over: exit status 0 on node0, exit status 0 on node1",
        "srun: job 81 step 0 completed, all 4 tasks exited with exit code 0",
        "launcher: all workers exited with code 0",
        "launcher: 4/4 ranks returned 0",
        "[launcher] 4 of 4 processes exited, codes [0, 0, 0, 0]",
    ],
)
def test_a_scripts_line_of_a_good_end_is_read_in_the_forms_that_people_give_it(
    tmp_path: Path, end: str
) -> None:
    assert told(tmp_path / "well", [RETRY, *STEPS, NOISE, end]).status == "no_hang"
    assert told(tmp_path / "goes on", [*STEPS, end, "[rank0]: step 3"]).status == "inconclusive"
    assert told(tmp_path / "frozen", [*STEPS, end, timeout(0)]).status == "hang"
    asked = "it hangs on the second start"
    assert told(tmp_path / "asked", [*STEPS, end, asked]).status == "inconclusive"
    calmed = "so it did not hang, it was only slow"
    assert told(tmp_path / "calmed", [*STEPS, end, calmed]).status == "no_hang"


@pytest.mark.parametrize(
    "end",
    [
        "launcher: 3 of 4 workers exited with code 0",
        "launcher: 14/4 ranks returned 0",
        "all workers exited with code 01",
        "all ranks finished step 0",
        "the exit code of the last good run was 0",
        "exit code 1",
    ],
)
def test_what_tells_of_some_ranks_or_of_no_end_proves_none(tmp_path: Path, end: str) -> None:
    assert told(tmp_path, [*STEPS, end]).status == "inconclusive"


WELL_ENDED = "[2026-01-19 08:27:40,021] [INFO] [launch.py:351:main] Process {0} exits successfully."


def test_all_processes_of_a_launcher_ended_where_it_says_so_of_each(tmp_path: Path) -> None:
    pids = (4410, 4411, 4413, 4412)
    started = [
        f"[2026-01-19 07:00:00,001] [INFO] [launch.py:256:main] process {pid} spawned with command: ['python', '-u', 'a.py', '--local_rank={local}']"
        for local, pid in enumerate(sorted(pids))
    ]
    ends = [WELL_ENDED.format(pid) for pid in pids]
    assert told(tmp_path / "all", [*started, *ends]).status == "no_hang"
    assert told(tmp_path / "one is left", [*started, *ends[:3]]).status != "no_hang"
    assert told(tmp_path / "unknown", ends).status != "no_hang"


@pytest.mark.parametrize(
    "word",
    [
        "training complete",
        "bye",
        "exits with 0",
        "all done.",
        "training complete, exit 0",
        "fertig, code retour 0",
    ],
)
def test_a_job_all_of_whose_ranks_take_their_leave_is_over(tmp_path: Path, word: str) -> None:
    leave = [f"[rank{rank}]: {word}" for rank in range(4)]
    assert told(tmp_path / "all", [*STEPS, *leave]).status == "no_hang"
    assert told(tmp_path / "but one", [*STEPS, *leave[:3]]).status != "no_hang"
    assert told(tmp_path / "on", [*STEPS, *leave, "[rank1]: step 3"]).status != "no_hang"
    assert told(tmp_path / "noise", [*STEPS, *leave, NOISE]).status == "inconclusive"
    assert told(tmp_path / "frozen", [*STEPS, *leave, timeout(2)]).status == "hang"


@pytest.mark.parametrize("line", [NOISE, RETRY])
def test_a_line_of_any_end_accuses_nobody_whose_dump_is_lost(tmp_path: Path, line: str) -> None:
    """gloo may call a last call that is over retired: that alone shows no wait for the rank whose dump is not there."""
    recorders = [recorder.call("all_reduce", times=9) for recorder in job(4, backend="gloo")]
    report = judged(tmp_path, [r for r in recorders if r.rank != 3], job=[line])
    assert blame(report)[::2] == ("inconclusive", ())


def test_an_epoch_that_is_done_is_not_the_job(tmp_path: Path) -> None:
    lines = [f"[rank{rank}]: epoch 3 done" for rank in range(4)]
    assert told(tmp_path, [*STEPS, *lines]).status == "inconclusive"


@pytest.mark.parametrize(
    "line",
    [
        "node1:27:27 [0] NCCL INFO P2P is disabled between connected GPUs 0 and 1.",
        "[rank0]:[W225 11:54:51.986111855 ProcessGroupNCCL.cpp:1374] Warning: process group has NOT been destroyed",
        "  AllReduce: opCount 12 count 512",
        "[W1122 23:41:22.762403596 Utils.hpp:137] Warning: Environment variable TORCH_NCCL_TRACE_BUFFER_SIZE is deprecated",
        "03:26:36 r2 it=40023 loss=1.400",
    ],
)
def test_what_is_plainly_of_a_job_is_an_input_though_it_tells_of_nothing(tmp_path: Path, line: str) -> None:
    assert told(tmp_path / "job", [line]).status == "inconclusive"
    with pytest.raises(NoInputError):
        told(tmp_path / "letter", ["the rank and file met at 12:00, see you"])


def test_a_launchers_exit_code_is_that_of_all_its_workers_and_a_scripts_is_not(tmp_path: Path) -> None:
    """Nothing tells which rank printed what."""
    printed = ["client 1: round 7", "client 0: round 7"]
    assert told(tmp_path / "launcher", [*printed, "[fed.sh] torchrun exit code: 0"]).status == "no_hang"
    assert told(tmp_path / "short", [*printed, "torchrun exited with 0"]).status == "no_hang"
    assert told(tmp_path / "script", [*printed, "[fed.sh] exit code: 0"]).status == "inconclusive"


UPLOAD = ["Traceback (most recent call last):", '  File "up.py", line 30, in upload', "OSError: HTTP 504"]


@pytest.mark.parametrize(
    ("seconds", "error", "status"),
    [
        pytest.param(60, None, "no_hang", id="long after"),
        pytest.param(1, None, "hang", id="right after"),
        pytest.param(60, 0, "no_hang", id="an error before, which was survived"),
        pytest.param(60, 2, "hang", id="an error after"),
    ],
)
def test_steps_that_are_printed_long_after_the_last_call_show_that_the_job_moved_on(
    tmp_path: Path, seconds: int, error: int | None, status: str
) -> None:
    recorders, last = waiting()
    steps = [
        f"{datetime.fromtimestamp(last + at, timezone.utc):%Y-%m-%d %H:%M:%S} [trainer] step {7 + at} loss 2.5"
        for at in range(seconds - 1, seconds + 1)
    ]
    if error is not None:
        steps[error:error] = UPLOAD
    assert judged(tmp_path, recorders, train=steps).status == status


@pytest.mark.parametrize(("ranks", "status"), [((0, 1, 2, 3), "no_hang"), ((0, 1), "hang")])
def test_an_error_of_an_unknown_rank_was_survived_where_every_rank_printed_the_end(
    tmp_path: Path, ranks: tuple[int, ...], status: str
) -> None:
    recorders, _ = waiting()
    lines = [*UPLOAD, *(f"[rank{rank}]: finished, loss 0.41" for rank in ranks)]
    assert judged(tmp_path, recorders, train=lines).status == status


@pytest.mark.parametrize(
    ("form", "writers", "status"),
    [
        pytest.param("[rank {rank}] update {n} loss 0.5", 4, "no_hang", id="all count on"),
        pytest.param("[rank {rank}] update {n} loss 0.5", 1, "hang", id="one of those that wait does not"),
        pytest.param("[rank {rank}] no progress for {n} s", 4, "hang", id="a watcher counts"),
    ],
)
def test_lines_of_any_words_in_which_all_who_wait_count_on_show_that_the_job_moved_on(
    tmp_path: Path, form: str, writers: int, status: str
) -> None:
    recorders, last = waiting()
    lines = [
        f"[{datetime.fromtimestamp(last + 30 + n, timezone.utc):%H:%M:%S}] {form.format(rank=rank, n=n)}"
        for n in range(6)
        for rank in range(4)[:writers]
    ]
    assert judged(tmp_path, recorders, console=lines).status == status


FINISHED = [
    "step 500/500 loss 1.8",
    "[rank 0] all done in 3:01:44",
    "I0423 22:48:09.118 3310 torch/distributed/elastic/agent/server/api.py:879] [default] worker group successfully finished. Waiting 300 seconds for other agents to finish.",
]


SERVED = [
    "(Worker_TP0 pid=2301) INFO 12-16 08:28:58 [monitor.py:34] torch.compile takes 233.11 s in total",
    "(EngineCore_DP0 pid=22) INFO 12-16 08:25:51 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 seconds.",
    '(APIServer pid=1) INFO:     10.2.0.9:41230 - "POST /v1/completions HTTP/1.1" 200 OK',
]


@pytest.mark.parametrize(
    ("lines", "said", "expected"),
    [
        (FINISHED, "did it crash? which rank was it?", "no_hang"),
        (SERVED, "which worker hangs?", "no_hang"),
        (SERVED, "It hangs forever.", "inconclusive"),
    ],
)
def test_a_pasted_job_that_finished_or_answers_does_not_hang_unless_its_reporter_states_it(
    tmp_path: Path, lines: list[str], said: str, expected: str
) -> None:
    report = told(tmp_path, [said, "", *lines])
    assert report.status == expected
    if lines is SERVED and report.verdict is not None:
        assert "torch.compile takes 233.11 s in total" in report.verdict.explanation
