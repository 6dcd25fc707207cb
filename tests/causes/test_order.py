"""Calls on two groups in opposite orders."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import analyze
from tests.dump_writer import Recorder, job, write_all
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


def test_in_a_circle_the_one_with_the_reverse_order_is_odd(tmp_path: Path) -> None:
    """No history: what most ranks do is the order, whichever of the two is new to each of them."""
    groups = {"0": ("default_pg", range(6)), "1": ("tp", (0, 1)), "2": ("tp", (2, 3)), "3": ("tp", (4, 5))}
    recorders = [Recorder(rank, groups) for rank in range(6)]
    for recorder in recorders:
        own = str(1 + recorder.rank // 2)
        order = [("0", 41), (own, 42)] if recorder.rank != 3 else [(own, 42), ("0", 41)]
        for (group, line), state in zip(order, ("started", "scheduled"), strict=True):
            recorder.call("all_reduce", group, line=line, state=state)
    write_all(recorders, tmp_path)
    assert blame(analyze(tmp_path)) == ("hang", "collective_order_mismatch", (3,))
