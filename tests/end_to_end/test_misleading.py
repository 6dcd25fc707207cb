"""Evidence that points at the wrong rank at first sight: what came before the freeze, after it, or from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import analyze
from tests.dump_writer import job, stuck
from tests.nccl_writer import NcclWriter, Proc
from tests.text_lines import observed, raised, timeout
from tests.verdicts import TIMED_OUT, blame, judged, level

# -- earlier than the freeze ---------------------------------------------------------------------------------------


def test_a_group_that_was_made_anew_counts_from_one(tmp_path: Path) -> None:
    recorders = job(4)
    for recorder in recorders:
        for _ in range(15):
            recorder.call("all_reduce", line=41).call("all_gather", outputs=[[8]] * 4, line=43)
        recorder._seq["0"] = 0
        recorder.local_ids["0"] = 1
        for _ in range(5):
            recorder.call("all_reduce", line=41).call("all_gather", outputs=[[8]] * 4, line=43)
        if recorder.rank != 2:
            recorder.call("all_reduce", line=41, state="started")
    report = judged(tmp_path, recorders)
    assert blame(report) == ("hang", "stuck_rank", (2,))
    assert report.verdict is not None and report.verdict.seq == 11


@pytest.mark.parametrize(("dtype", "size"), [("Long", 1), ("Double", 2)])
def test_a_mismatch_that_all_completed_froze_nothing(tmp_path: Path, dtype: str, size: int) -> None:
    """NCCL completes calls of other types or sizes, with wrong results."""
    recorders = job(4)
    for recorder in recorders:
        for step in range(12):
            recorder.call("all_reduce", sizes=[[1024]], line=41)
            if step % 4 == 0:
                odd = recorder.rank == 0
                recorder.call(
                    "all_reduce", sizes=[[size if odd else 1]], dtype=dtype if odd else "Double", line=55
                )
        if recorder.rank != 2:
            recorder.call("all_reduce", sizes=[[1024]], line=41, state="started")
    assert blame(judged(tmp_path, recorders)) == ("hang", "stuck_rank", (2,))


def test_an_error_that_was_caught_is_no_death(tmp_path: Path) -> None:
    logs = {}
    for rank in range(4):
        lines = [f"[rank{rank}]: step 1 loss 2.0"]
        if rank == 0:
            lines += raised(0, "requests.exceptions.ConnectionError: Max retries exceeded")
        lines += [f"[rank{rank}]: step {step} loss 2.0" for step in range(2, 40)]
        logs[f"rank{rank}"] = lines + (raised(rank, TIMED_OUT) if rank != 2 else [])
    assert blame(judged(tmp_path, **logs)) == ("hang", "stuck_rank", (2,))


def test_a_rank_that_says_goodbye_behind_its_error_did_not_catch_it(tmp_path: Path) -> None:
    logs = {f"rank{r}": [f"[rank{r}]: step 5 loss 2.0", *raised(r, TIMED_OUT)] for r in (0, 1, 3)}
    lines = ["[rank2]: step 5 loss 2.0", *raised(2, "ValueError: bad sample"), "[rank2]: training done"]
    assert blame(judged(tmp_path, **logs, rank2=lines)) == ("hang", "crashed_rank", (2,))


def test_an_overflow_that_rank_0_tells_for_all_is_no_skipped_step(tmp_path: Path) -> None:
    recorders = job(4)
    for recorder in recorders:
        for epoch in range(2):
            for _ in range(7 if epoch == 1 and recorder.rank == 0 else 8):
                recorder.call("all_reduce", sizes=[[1024]], line=None)
                recorder.call("all_reduce", sizes=[[2048]], line=None)
            if epoch == 0:
                recorder.call("barrier", sizes=[[1]], line=90, function="main")
        if recorder.rank == 0:
            recorder.call("barrier", sizes=[[1]], line=90, function="main", state="started")
        else:
            recorder.entries[-2:] = []
            recorder._seq["0"] -= 2
            recorder.call("all_reduce", sizes=[[1024]], line=None, state="started")
    said = ["[rank0]: OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768"]
    said += [f"[rank0]: epoch 0 step {step} loss 1.2" for step in range(8)]
    assert blame(judged(tmp_path, recorders, rank0=said)) == ("hang", "uneven_loader", (0,))


# -- later than the freeze -----------------------------------------------------------------------------------------


def test_a_time_limit_does_not_excuse_what_froze_before_it(tmp_path: Path) -> None:
    limit = (
        "slurmstepd: error: *** JOB 123456 ON gpu07 CANCELLED AT 2026-03-04T15:15:01 DUE TO TIME LIMIT ***"
    )
    lines = [*(timeout(r, seq=25) for r in (0, 1, 3)), observed(2), limit]
    assert blame(judged(tmp_path, stuck(4, culprit=2), job=lines)) == ("hang", "stuck_rank", (2,))


def test_a_cancelled_job_may_have_been_frozen(tmp_path: Path) -> None:
    line = "slurmstepd: error: *** JOB 123456 ON gpu07 CANCELLED AT 2026-03-04T15:15:01 ***"
    report = judged(tmp_path, stuck(4, culprit=2), job=[line])
    assert blame(report) == ("hang", "stuck_rank", (2,)) and level(report) == "medium"
    assert report.verdict is not None and "crashed_rank" in {a.cause for a in report.verdict.alternatives}


def test_the_channels_of_a_killed_process_are_cleaned_up(tmp_path: Path) -> None:
    table = [
        "Root Cause (first observed failure):", "[0]:", "  time      : 2026-11-20_15:31:49", "  host      : gpu07",
        "  rank      : 2 (local_rank: 2)", "  exitcode  : -9 (pid: 4242)  (SIGKILL)", "  error_file: <N/A>",
        "  traceback : Signal 9 (SIGKILL) received by PID 4242", "=" * 60,
    ]  # fmt: skip
    kernel = [
        "[12345.1] Memory cgroup out of memory: Killed process 4242 (python) total-vm:1kB",
        "[12346.2] NVRM: Xid (PCI:0000:3b:00): 45, pid=4242, name=python, Ch 00000008",
    ]
    living = [r for r in stuck(4, culprit=2) if r.rank != 2]
    report = judged(tmp_path, living, torchrun=table, dmesg=kernel)
    assert blame(report) == ("hang", "crashed_rank", (2,))


def test_an_assertion_in_a_kernel_is_the_programs(tmp_path: Path) -> None:
    living = [r for r in stuck(4, culprit=2) if r.rank != 2]
    lines = raised(2, "RuntimeError: CUDA error: device-side assert triggered")
    assert blame(judged(tmp_path, living, rank2=lines)) == ("hang", "crashed_rank", (2,))


# -- from elsewhere, or not there ----------------------------------------------------------------------------------


def test_a_launcher_knows_its_own_node_alone(tmp_path: Path) -> None:
    """Node 1 died; the failures that node 0 lists say nothing of its ranks."""
    recorders = job(8)
    for recorder in recorders:
        recorder.call("all_reduce", times=12, line=41).call("all_reduce", line=41, state="started")
    table = ["Failures:"]
    for rank in range(4):
        table += [
            f"[{rank}]:", "  time      : 2026-11-20_15:31:49", "  host      : gpu07", f"  rank      : {rank} (local_rank: {rank})",
            f"  exitcode  : -6 (pid: {100 + rank})", "  error_file: <N/A>", f"  traceback : Signal 6 (SIGABRT) received by PID {100 + rank}",
        ]  # fmt: skip
    report = judged(tmp_path, recorders[:4], node0=[*(timeout(r, seq=13) for r in range(4)), *table])
    assert report.verdict is not None and report.verdict.cause != "early_exit"
    assert level(report) == "low"


@pytest.mark.parametrize("done", [1, 4])
def test_where_most_did_not_finish_a_call_nobodys_device_is_named(tmp_path: Path, done: int) -> None:
    recorders = job(8)
    for recorder in recorders:
        recorder.call("all_reduce", times=12, line=41)
        recorder.call("all_reduce", line=41, state="completed" if recorder.rank < done else "started")
        recorder.call("all_reduce", line=41, state="scheduled")
    report = judged(tmp_path / "dumps", recorders)
    # Dumps alone may be a moment of a job that moves: each of them was made when another call was under way.
    assert blame(report) == ("inconclusive", "unknown", ())
    report = judged(tmp_path / "dumps", rank5=[timeout(5, seq=13)])
    assert blame(report) == ("hang", "network_stall", ()) and level(report) == "low"
    lines = ["[rank4]: hi", NcclWriter((2, 21, 5)).port_error(Proc("gpu01", 1004, 4))]
    assert blame(judged(tmp_path / "dumps", rank4=lines)) == ("hang", "network_stall", (4,))


def test_an_all_to_all_may_complete_without_a_member(tmp_path: Path) -> None:
    """Splits are not recorded; with none between two members neither waits for the other."""
    recorders = job(4)
    for recorder in recorders:
        for step in range(12):
            sizes = {"sizes": [[100 + recorder.rank + step, 64]], "outputs": [[90 + step, 64]]}
            recorder.call("all_to_all", line=41, **sizes).call("all_reduce", line=43)
        if recorder.rank != 3:
            state = "completed" if recorder.rank == 0 else "started"
            recorder.call("all_to_all", sizes=[[5, 64]], outputs=[[3, 64]], line=41, state=state)
        if recorder.rank == 0:
            recorder.call("all_reduce", line=43, state="started")
    assert blame(judged(tmp_path, recorders)) == ("hang", "stuck_rank", (3,))


def test_a_rank_whose_log_is_not_here_was_not_late(tmp_path: Path) -> None:
    recorders = job(4)
    for recorder in recorders:
        recorder.call("all_reduce", times=12, line=41)
    report = judged(tmp_path, recorders, node0=[timeout(0), timeout(1), timeout(2)])
    assert report.verdict is not None and report.verdict.culprit_ranks == ()


def test_a_rank_without_a_log_is_not_said_to_be_busy(tmp_path: Path) -> None:
    logs = {f"rank{r}": [f"[rank{r}]: step 5", *raised(r, TIMED_OUT)] for r in range(3)}
    folder = tmp_path / "logs"
    judged(folder, **logs)
    report = analyze(folder, world_size=4)
    assert report.verdict is not None and report.verdict.cause != "stuck_rank" and level(report) == "low"


def test_no_progress_is_no_proof_of_health(tmp_path: Path) -> None:
    recorders = job(4)
    for recorder in recorders:
        recorder.call("all_reduce", times=12, line=41)
    assert judged(tmp_path, recorders).status == "no_hang"
    assert judged(tmp_path, watch=["[rank0]: no progress for 1800 s"]).status == "inconclusive"


@pytest.mark.parametrize("joined", [1, 4])
def test_the_idle_majority_may_yet_come(tmp_path: Path, joined: int) -> None:
    """A first barrier that few have reached: whoever goes on without a call waits in the next one."""
    recorders = job(8)
    for recorder in recorders:
        for _ in range(12):
            recorder.call("all_reduce", line=41).call("all_gather", outputs=[[8]] * 8, line=43)
        if recorder.rank < joined:
            recorder.call("all_reduce_barrier", sizes=[[1]], line=80, state="started")
    assert level(judged(tmp_path, recorders)) == "low"


@pytest.mark.parametrize("culprit", [0, 3])
def test_a_subgroup_of_some_ranks_on_gloo_does_not_split_the_default_group(
    tmp_path: Path, culprit: int
) -> None:
    """A dump with one group tells its members, one with several does not; the default group is one all the same."""
    recorders = job(8, groups={"0": ("default_pg", range(8)), "1": ("leaders", (0, 4))}, backend="gloo")
    for recorder in recorders:
        for _ in range(10):
            recorder.call("all_reduce", line=41)
            if recorder.rank in (0, 4):
                recorder.call("all_reduce", "1", line=50)
        if recorder.rank != culprit:
            recorder.call("all_reduce", line=41, state="started")
    report = judged(tmp_path, recorders)
    assert blame(report) == ("hang", "stuck_rank", (culprit,))
    assert [(g["name"], g["ranks"]) for g in report.to_dict()["groups"]] == [
        ("0", list(range(8))),
        ("1", [0, 4]),
    ]


def test_a_device_that_is_not_there_is_no_broken_one(tmp_path: Path) -> None:
    lines = raised(2, "RuntimeError: CUDA error: invalid device ordinal")
    assert blame(judged(tmp_path, rank2=lines)) == ("hang", "crashed_rank", (2,))


def test_a_bare_word_of_time_is_of_a_wait_for_peers(tmp_path: Path) -> None:
    logs = {f"rank{rank}": raised(rank, "RuntimeError: Timed out") for rank in (0, 1)}
    report = judged(tmp_path, **logs)
    assert report.verdict is not None and report.verdict.culprit_ranks == ()
    assert report.verdict.cause != "crashed_rank"


# -- of another day ------------------------------------------------------------------------------------------------


def _waits(folder: Path, crashed: str, waited: str) -> tuple[str, str, tuple[int, ...]]:
    """Return what is judged of ranks that wait on 16 October, in a file of this name, beside an exception without a time."""
    for name, lines in (
        (crashed, raised(2, "ModuleNotFoundError: No module named 'flash'")),
        (waited, [timeout(0), timeout(3)]),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join(lines) + "\n")
    return blame(analyze(folder))


def test_a_log_that_may_be_of_the_same_run_counts(tmp_path: Path) -> None:
    for number, (crashed, waited) in enumerate(
        [
            ("out-20261016-r2.log", "out-20261016.log"),
            ("rank2.log", "2026-10-16.log"),
            # the wait began on the day that the older name tells
            ("2026-10-16_r2.log", "2026-10-17_all.log"),
        ]
    ):
        assert _waits(tmp_path / str(number), crashed, waited)[2] == (2,)
