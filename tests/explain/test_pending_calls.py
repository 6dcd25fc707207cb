"""Ranks without a dump count in the collective in which their traceback shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import analyze
from tests.dump_writer import SCRIPT, TORCH, Recorder, job, world
from tests.text_lines import told
from tests.verdicts import TIMED_OUT, blame, judged

HEAD = "[rank0]: Traceback (most recent call last):"


def _traceback(op: str, line: int) -> list[str]:
    """Return the traceback of rank 0, which timed out in a collective of the script's `line`."""
    frames = [(SCRIPT, 200, "<module>"), (SCRIPT, line, "train")]
    frames += [
        (f"{TORCH}/distributed/c10d_logger.py", 81, "wrapper"),
        (f"{TORCH}/distributed/distributed_c10d.py", 2950, op),
    ]
    return [
        HEAD,
        *(f'[rank0]:   File "{f}", line {n}, in {name}' for f, n, name in frames),
        f"[rank0]: {TIMED_OUT}",
    ]


def _pair(other: int = 55) -> list[Recorder]:
    """Return the dumps of ranks 1 and 2 of three: rank 1 goes on with the loop, rank 2 is in a gather at line `other`."""
    recorders = [recorder for recorder in job(3) if recorder.rank]
    for recorder in recorders:
        for _ in range(12):
            recorder.call("all_reduce", line=41, state="completed")
        odd = recorder.rank == 2 and other != 41
        recorder.call("all_gather" if odd else "all_reduce", line=other if odd else 41, state="started")
    return recorders


@pytest.mark.parametrize(("op", "line", "culprit"), [("all_gather", 55, 1), ("all_reduce", 41, 2)])
def test_a_rank_without_a_dump_votes_by_its_traceback(
    tmp_path: Path, op: str, line: int, culprit: int
) -> None:
    assert blame(judged(tmp_path, _pair(), rank_0=_traceback(op, line)))[2] == (culprit,)


def test_a_traceback_that_something_else_caught_votes_by_its_inner_frames(tmp_path: Path) -> None:
    cut = [line for line in _traceback("all_gather", 55) if "<module>" not in line]
    assert blame(judged(tmp_path, _pair(), rank_0=cut))[2] == (1,)


def test_a_rank_at_a_line_of_its_own_is_at_the_seq_of_the_others(tmp_path: Path) -> None:
    report = judged(tmp_path, _pair(41), rank_0=_traceback("barrier", 70))
    assert blame(report)[2] == (0,) and report.verdict is not None and report.verdict.seq == 13


def test_a_rank_in_another_operation_of_the_same_line_is_not_in_the_recorded_one(tmp_path: Path) -> None:
    """A library's call at one line of the user's may gather on one rank and wait in a barrier on another."""
    report = judged(tmp_path, _pair(55)[1:], rank_0=_traceback("barrier", 55))
    assert report.verdict is not None
    assert "the same" not in report.verdict.title and report.verdict.seq == 13


def test_a_rank_at_work_is_not_in_the_call_that_gloo_retired(tmp_path: Path) -> None:
    """Whether gloo's last retired call is over, no recorder tells; the stack of rank 1 does."""
    recorders = job(4, backend="gloo")
    for recorder in recorders:
        recorder.call("all_reduce", line=41, times=12)
        if recorder.rank != 1:
            recorder.call("all_reduce", line=41, state="scheduled")
    head = "Current thread 0x00007f4b7d1296c0 (most recent call first):"
    stack = [head, f'  File "{SCRIPT}", line 77 in write_shard', f'  File "{SCRIPT}", line 200 in <module>']
    (tmp_path / "stack_rank_1.txt").write_text("\n".join(stack) + "\n")
    logs = {f"rank_{rank}": [f"[rank{rank}]: {TIMED_OUT}"] for rank in (0, 2)}
    report = judged(tmp_path, [r for r in recorders if r.rank != 3], **logs)
    assert blame(report) == ("hang", "stuck_rank", (1,))


def test_ranks_in_a_call_that_no_recorder_keeps_have_left_the_last_one_that_gloo_retired(
    tmp_path: Path,
) -> None:
    """Ranks 0, 1 and 3 are in a monitored barrier, and rank 2 is not: their dumps end with the call before."""
    for recorder in job(4, backend="gloo")[:2]:
        recorder.call("all_reduce", line=41, times=6)
        recorder.entries[-1].update(state="scheduled", retired=True)
        recorder.write(tmp_path)
    said = "[rank0]: RuntimeError: Rank 0 failed to pass monitoredBarrier in 12000 ms. Ranks 2 failed to pass monitoredBarrier."
    barrier = [line.replace("rank0", "rank{0}") for line in _traceback("monitored_barrier", 47)[:-1]]
    for rank in (0, 1, 3):
        lines = [line.format(rank) for line in barrier]
        closed = f"[rank{rank}]: RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:3492"
        (tmp_path / f"rank_{rank}.log").write_text("\n".join([*lines, said if rank == 0 else closed]))
    (tmp_path / "rank_2.log").write_text("[rank2]: step 6 loss 2.0\n")
    report = analyze(tmp_path)
    assert blame(report)[2] == (2,)


def test_a_line_that_issues_several_collectives_places_a_rank_by_torchs_own_function(tmp_path: Path) -> None:
    """gloo records a reduce_scatter as the all_reduce that it makes of it."""
    recorders = [Recorder(rank, world(3), "gloo") for rank in (1, 2)]
    for recorder in recorders:
        recorder.call("all_reduce", line=55, times=12).call("all_reduce", line=55, state="started")
        recorder.entries[-1]["frames"][0]["name"] = "reduce_scatter_single"
    report = judged(tmp_path, recorders, rank_0=_traceback("all_gather_single", 55))
    assert blame(report)[2] == (0,)


def test_a_dump_without_the_collective_in_which_its_rank_gave_up_is_older_than_the_freeze(
    tmp_path: Path,
) -> None:
    for rank in range(2):
        Recorder(rank, world(2), backend="gloo").call("all_reduce", times=3).write(tmp_path)
    lines = {f"rank_{rank}.log": _gave_up(rank, op) for rank, op in ((0, "all_reduce"), (1, "barrier"))}
    notes = [note for note in told(tmp_path, lines).warnings if note.code == "older_dump"]
    assert [note.file for note in notes] == ["nccl_trace_rank_1"]
    assert "the traceback in rank_1.log shows rank 1 in a later barrier" in notes[0].message


def _gave_up(rank: int, op: str) -> list[str]:
    return [
        f"[rank{rank}]: Traceback (most recent call last):",
        f'[rank{rank}]:   File "/workspace/train/train.py", line {70 + rank}, in validate',
        f"[rank{rank}]:     dist.{op}(total)",
        f'[rank{rank}]:   File "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 3252, in {op}',
        f"[rank{rank}]:     work.wait()",
        f"[rank{rank}]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 20000ms for recv operation to complete",
    ]
