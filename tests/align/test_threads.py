"""Calls of threads: each thread goes its own way, and one that is idle is not the script that waits elsewhere."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import analyze
from tests.dump_writer import Recorder, job, write_all
from tests.verdicts import blame

GROUPS = {"0": ("default_pg", range(4)), "1": ("saver", range(4))}


def with_savers(behind: int) -> list[Recorder]:
    """Return ranks that save in a thread now and then, one of which skipped a save and waits for the others at the end."""
    recorders = job(4, groups=GROUPS)
    for recorder in recorders:
        for step in range(12):
            recorder.call("all_reduce", line=41)
            if step % 4 == 3 and (recorder.rank != behind or step < 11):
                late = recorder.rank == 0  # whose thread comes to its call after the next one of the loop
                if late:
                    recorder.call("all_reduce", line=41)
                state = "completed" if step < 11 else "started"
                recorder.call(
                    "all_gather", "1", outputs=[[8]] * 4, line=90, function="save", threaded=True, state=state
                )
                if not late:
                    recorder.call("all_reduce", line=41)
            elif step % 4 == 3:
                recorder.call("all_reduce", line=41)
        if recorder.rank == behind:
            recorder.call("barrier", line=50, sizes=[], state="started")
    return recorders


def test_threads_have_no_order_among_them_and_an_idle_one_is_the_root(tmp_path: Path) -> None:
    report = analyze(write_all(with_savers(2), tmp_path))
    assert blame(report) == ("hang", "rank_conditional_collective", (2,))
