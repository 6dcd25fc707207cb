"""Even sides are decided by the line that one rank alone printed shortly before the freeze."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dump_writer import SCRIPT, TORCH, job
from tests.verdicts import TIMED_OUT, blame, judged, level

ODD = "overflow in the scaler, step dropped"


def _log(rank: int, op: str, line: int, *own: str) -> list[str]:
    """Return what a rank printed: the same steps as its peers, lines of its own, and its timeout in a collective."""
    at = [
        (SCRIPT, 200, "<module>"),
        (SCRIPT, line, "train"),
        (f"{TORCH}/distributed/distributed_c10d.py", 2950, op),
    ]
    frames = [f'[rank{rank}]:   File "{file}", line {number}, in {name}' for file, number, name in at]
    head = f"[rank{rank}]: Traceback (most recent call last):"
    return ["step 1", "step 2", *own, head, *frames, f"[rank{rank}]: {TIMED_OUT}"]


@pytest.mark.parametrize("gathers", [1, 2])
def test_of_even_sides_the_one_with_a_line_of_its_own_is_named(tmp_path: Path, gathers: int) -> None:
    recorders = [recorder for recorder in job(3, backend="gloo") if recorder.rank]
    for recorder in recorders:
        recorder.call("barrier", line=30)
        ops = ("all_gather", 42) if recorder.rank == gathers else ("all_reduce", 41)
        recorder.call(ops[0], line=ops[1], state="scheduled")
    logs = {
        f"rank_{rank}": ["step 1", "step 2", *([ODD] if rank == 2 else []), f"[rank{rank}]: {TIMED_OUT}"]
        for rank in range(3)
    }
    assert blame(judged(tmp_path, recorders, **logs))[2] == (2,)


def test_where_all_are_blocked_in_sends_and_receives_it_decides_too(tmp_path: Path) -> None:
    logs = {f"rank_{rank}": _log(rank, "recv", 23, *([ODD] if rank == 1 else [])) for rank in range(3)}
    assert blame(judged(tmp_path, [], **logs))[1:] == ("p2p_mismatch", (1,))


def test_two_ranks_with_lines_of_their_own_decide_nothing(tmp_path: Path) -> None:
    own = {1: ODD, 2: "cache rebuilt from the manifest"}
    logs = {f"rank_{rank}": _log(rank, "recv", 23, *filter(None, [own.get(rank)])) for rank in range(3)}
    assert blame(judged(tmp_path, [], **logs))[2] == ()


def test_of_ranks_without_dumps_the_one_that_alone_dropped_something_is_named(tmp_path: Path) -> None:
    recorders = [recorder for recorder in job(4, backend="gloo") if recorder.rank in (1, 3)]
    for recorder in recorders:
        recorder.call("all_reduce", line=50, times=6).call("all_reduce", line=50, state="scheduled")
    logs = {f"rank{rank}": ["loading", *["batch padded"] * 4] for rank in range(4)}
    logs["rank2"][3:3] = ["feats (8, 190000, 20) too large, batch dropped"]
    report = judged(tmp_path, recorders, **logs)
    assert blame(report) == ("hang", "rank_conditional_collective", (2,)) and level(report) == "low"
    assert report.verdict is not None and report.verdict.suspect_ranks == (0, 2)


@pytest.mark.parametrize(("last", "named"), [("step 30: new best, writing", (2,)), ("step 3", ())])
def test_of_even_sides_the_one_that_lacks_the_last_line_of_all_others_is_named(
    tmp_path: Path, last: str, named: tuple[int, ...]
) -> None:
    recorders = [recorder for recorder in job(4, backend="gloo") if recorder.rank in (0, 2)]
    for recorder in recorders:
        recorder.call("barrier", line=30)
        ops = ("all_gather", 42) if recorder.rank == 0 else ("all_reduce", 41)
        recorder.call(ops[0], line=ops[1], state="scheduled")
    logs = {
        f"rank_{rank}": ["step 25: new best, writing", *([last] if rank != 2 or not named else [])]
        for rank in range(4)
    }
    assert blame(judged(tmp_path, recorders, **logs))[2] == named
