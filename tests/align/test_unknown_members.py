"""A group whose members no dump lists waits for whoever was not seen, and never for those of its sister groups."""

from __future__ import annotations

from pathlib import Path

from tests.dump_writer import Recorder
from tests.verdicts import blame, judged

#: gloo writes no members: what is said of them here is what the calls show
LEFT, RIGHT, WORLD = range(4), range(4, 8), range(8)


def _gloo(rank: int) -> Recorder:
    groups = {"0": ("default_pg", WORLD), "1" if rank < 4 else "2": ("", LEFT if rank < 4 else RIGHT)}
    return Recorder(rank, groups, backend="gloo")


def _recorders(gone: int) -> list[Recorder]:
    recorders = [_gloo(rank) for rank in WORLD if rank != gone]
    for recorder in recorders:
        own = "1" if recorder.rank < 4 else "2"
        for _ in range(6):
            recorder.call("all_reduce", "0", line=12).call("reduce", own, line=14)
        if recorder.rank < 4:
            recorder.call("all_reduce", "0", line=12, state="scheduled")
        else:
            recorder.call("reduce", own, line=14, state="scheduled")
    return recorders


def test_the_rank_without_a_dump_may_be_the_one_that_a_group_waits_for(tmp_path: Path) -> None:
    report = judged(tmp_path, _recorders(6))
    assert blame(report)[2] == (6,) and "every rank is in the same" not in report.to_text()


def test_over_open_connections_it_is_alive(tmp_path: Path) -> None:
    assert blame(judged(tmp_path, _recorders(6)))[1] == "stuck_rank"
