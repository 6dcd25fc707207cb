"""Calls on two groups in opposite orders."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import analyze
from tests.dump_writer import job, write_all
from tests.verdicts import blame


def test_two_open_calls_in_opposite_orders_show_which_is_first(tmp_path: Path) -> None:
    """Seen for the first time, so that no history tells; the few whose order nobody shares are the odd ones."""
    groups = {"0": ("default_pg", range(6)), "1": ("tp", range(3)), "2": ("tp", range(3, 6))}
    recorders = job(6, groups=groups)
    for recorder in recorders:
        own = "1" if recorder.rank < 3 else "2"
        recorder.call("all_reduce", times=10, line=41)
        order = [own, "0"] if recorder.rank == 1 else ["0", own]
        for name in order:
            recorder.call(
                "all_reduce",
                name,
                sizes=[[2 if name == "0" else 4]],
                line=50 + int(name > "0"),
                state="scheduled",
            )
    report = analyze(write_all(recorders, tmp_path))
    assert blame(report) == ("hang", "collective_order_mismatch", (1,))
