"""Failures of torch's analyzer: states, rings and snapshots.

What torch 2.13's own analyzer gets wrong, one test per known failure: same inputs, the known truth. Each docstring says
what that analyzer does with such an input. Nothing here may end in silence, in a traceback or in a verdict against a rank
that did nothing wrong.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import analyze
from tests.dump_writer import Recorder, job, stuck, write_all
from tests.verdicts import blame, culprits

# -- F4 to F7: states ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["scheduled", "started"])
def test_f4_a_network_hang_is_not_silence(tmp_path: Path, state: str) -> None:
    """No output and rc 0, the same as for a healthy job, when all ranks started a call and none completed it."""
    recorders = job(4)
    for recorder in recorders:
        recorder.call("all_reduce", times=20).call("all_gather", outputs=[[8]] * 4, state=state, line=44)
    report = analyze(write_all(recorders, tmp_path))
    assert blame(report) == ("hang", "network_stall", ())
    verdict = report.verdict
    assert verdict is not None
    assert (verdict.op, verdict.seq, verdict.waiting_ranks) == ("all_gather", 21, (0, 1, 2, 3))
    assert verdict.confidence != "high"


def mesh(steps: int, *, ring: int, unequal: bool = True) -> list[Recorder]:
    """Return a healthy job of 8 ranks in two tensor-parallel groups, the first of which may make two more calls a step."""
    groups = {
        "0": ("default_pg", range(8)),
        "1": ("mesh_tp", range(4)),
        "2": ("mesh_tp", range(4, 8)),
        **{str(3 + i): ("mesh_dp", (i, i + 4)) for i in range(4)},
    }
    recorders = job(8, groups=groups, ring=ring)
    for recorder in recorders:
        tp, dp = ("1" if recorder.rank < 4 else "2"), str(3 + recorder.rank % 4)
        for _ in range(steps):
            recorder.call("all_reduce", tp, line=30, times=4 + 2 * (unequal and recorder.rank < 4))
            recorder.call("all_reduce", dp, sizes=[[512]], line=40).call("all_reduce", sizes=[[1]], line=44)
    return recorders


def test_f5_rings_that_wrapped_at_different_points_are_healthy(tmp_path: Path) -> None:
    """21 false reports, all on completed calls, because one group's calls pushed others out of the ring."""
    assert analyze(write_all(mesh(60, ring=120), tmp_path)).status == "no_hang"


def test_f5_the_incident_of_wrapped_rings(incidents: Path) -> None:
    """The generated set on which those 21 reports were counted."""
    assert analyze(incidents / "healthy" / "wrapped_rings" / "dumps").status == "no_hang"


def test_f5_a_fault_behind_wrapped_rings_is_found(tmp_path: Path) -> None:
    """Output identical to that of the healthy job when a rank really stopped in it."""
    recorders = mesh(60, ring=120)
    for recorder in recorders:
        if recorder.rank == 6:
            continue
        tp = "1" if recorder.rank < 4 else "2"
        if tp == "2":
            recorder.call("all_reduce", tp, line=30, state="scheduled")
        else:
            recorder.call("all_reduce", tp, line=30, times=6).call(
                "all_reduce",
                str(3 + recorder.rank),
                sizes=[[512]],
                line=40,
                state="scheduled" if recorder.rank == 2 else "completed",
            )
            if recorder.rank != 2:
                recorder.call("all_reduce", sizes=[[1]], line=44, state="scheduled")
    # Ranks 4, 5 and 7 wait for rank 6 in their tensor-parallel group, so their data-parallel peers wait for them.
    for rank in (0, 1, 3):
        recorders[rank].reopen(-2)
    report = analyze(write_all(recorders, tmp_path))
    assert culprits(report) == (6,)
    assert (
        report.verdict is not None and report.verdict.explains.ranks == len(report.verdict.waiting_ranks) == 7
    )


def test_f6_a_dump_taken_early_is_not_blamed(tmp_path: Path) -> None:
    """Eleven reports against a rank whose dump is 20 entries older than its peers', and none on the rank that is stuck."""
    recorders = stuck(4, culprit=2)
    del recorders[1].entries[-20:]
    report = analyze(write_all(recorders, tmp_path))
    assert culprits(report) == (2,)
    assert 1 not in report.verdict.culprit_ranks if report.verdict else False


def test_f6_a_short_ring_is_not_blamed(tmp_path: Path) -> None:
    """A rank that kept fewer calls than its peers did not make fewer."""
    recorders = stuck(4, culprit=2)
    recorders[0].ring = 3
    assert culprits(analyze(write_all(recorders, tmp_path))) == (2,)


def test_f7_a_call_that_still_reads_started_does_not_hide_the_stuck_one(tmp_path: Path) -> None:
    """A state mismatch on the call before, then "No errors found" for the one that is stuck."""
    recorders = stuck(4, culprit=2)
    recorders[3].reopen(-2).entries[-2]["state"] = "started"
    report = analyze(write_all(recorders, tmp_path))
    assert culprits(report) == (2,)
    assert report.verdict is not None and report.verdict.seq == 25


def test_f7_the_device_that_did_not_finish_what_its_peers_did(tmp_path: Path) -> None:
    """Where all made the last call, the rank that alone has not finished the one before is the stalled one."""
    recorders = job(4)
    for recorder in recorders:
        recorder.call("all_reduce", times=10).call(
            "all_reduce", state="started" if recorder.rank == 3 else "completed"
        ).call("all_reduce", state="scheduled")
    assert blame(analyze(write_all(recorders, tmp_path))) == ("hang", "gpu_stall", (3,))
