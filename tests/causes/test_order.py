"""Calls on two groups in opposite orders."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangscope.api import Report
from tests.conftest import analyze
from tests.dump_writer import SCRIPT, TORCH, Recorder, job, write_all
from tests.simulator import write_incident
from tests.text_lines import short
from tests.verdicts import blame, judged, level, said


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


def test_orders_that_go_round_over_four_groups_are_a_circle(tmp_path: Path) -> None:
    """No two ranks of a mesh share both of their groups: rows first on a diagonal, columns first on the other."""
    groups = {"1": ("row", (0, 1)), "2": ("row", (2, 3)), "3": ("col", (0, 2)), "4": ("col", (1, 3))}
    recorders = [Recorder(rank, groups) for rank in range(4)]
    for recorder in recorders:
        row, col = ("1", "2")[recorder.rank // 2], ("3", "4")[recorder.rank % 2]
        for name in (row, col) if recorder.rank in (0, 3) else (col, row):
            recorder.call("all_reduce", name, sizes=[[64]], line=19, state="scheduled")
    report = analyze(write_all(recorders, tmp_path))
    assert blame(report)[:2] == ("hang", "collective_order_mismatch") and level(report) != "high"


@pytest.mark.parametrize(
    ("epoch", "cause"), [(1, "rank_conditional_collective"), (2, "collective_order_mismatch")]
)
def test_only_a_call_that_comes_next_was_made_first(tmp_path: Path, epoch: int, cause: str) -> None:
    """Each round has two epochs, an exchange of objects of any length and a barrier: behind the first epoch that one leaves them."""
    groups = {"0": ("default_pg", range(8)), "1": ("dp", range(4)), "2": ("dp", range(4, 8))}
    recorders = job(8, groups=groups)
    for recorder in recorders:
        own = "1" if recorder.rank < 4 else "2"
        for n in range(8):
            recorder.call("all_gather", sizes=[[4100 + n]], outputs=[[4100 + n]] * 8, dtype="Byte", line=31)
            for step in range(1, 3):
                last = n == 7 and step == epoch
                recorder.call("all_reduce", own, sizes=[[1000]], line=41)
                recorder.call("all_reduce", own, sizes=[[2000]], line=41)
                if not last:
                    recorder.call("all_reduce", own, sizes=[[1]], line=43)
                    continue
                if recorder.rank == 2:
                    recorder.call("barrier", line=45, state="scheduled")
                else:
                    recorder.call(
                        "all_reduce",
                        own,
                        sizes=[[1]],
                        line=43,
                        state="scheduled" if recorder.rank < 4 else "completed",
                    )
                break
            if n < 7:
                recorder.call("barrier", line=45)
            elif recorder.rank >= 4:
                recorder.call("barrier", line=45, state="scheduled")
    assert blame(analyze(write_all(recorders, tmp_path))) == ("hang", cause, (2,))


def _beside_a_thread(odd: int, also: bool) -> list[Recorder]:
    """Return four ranks whose gradients are reduced while a thread calls a barrier, on rank `odd` before; the others' if `also`."""
    recorders = job(4)
    for recorder in recorders:
        recorder.call("all_reduce", sizes=[[1024]], times=12, line=41)
        beat = {"op": "barrier", "function": "beat", "line": 22, "threaded": True}
        step = {"op": "all_reduce", "sizes": [[1024]], "line": 41}
        first, second = (beat, step) if recorder.rank == odd else (step, beat)
        recorder.call(**first, state="scheduled")
        if also or recorder.rank == odd:
            recorder.call(**second, state="scheduled")
    return recorders


def test_a_thread_that_only_one_rank_has_is_its_own_call(tmp_path: Path) -> None:
    report = analyze(write_all(_beside_a_thread(1, False), tmp_path))
    assert blame(report) == ("hang", "rank_conditional_collective", (1,))


def _in_pairs(folder: Path, places: tuple[str, ...]) -> Report:
    """Return what is said of gloo ranks that each wait alone in a group of two, with stacks of them at these functions."""
    size = len(places)
    groups = {
        "0": ("default_pg", range(size)),
        **{str(n + 1): (f"edge_{n}", (n, (n + 1) % size)) for n in range(size)},
    }
    for recorder in job(size, groups=groups, backend="gloo"):
        recorder.call("all_reduce", times=9, line=31)
        recorder.call("all_reduce", str(recorder.rank + 1), line=20, function="exchange", state="scheduled")
        recorder.write(folder)
        called = (
            f'  File "{TORCH}/distributed/distributed_c10d.py", line 3252 in all_reduce\n'
            if places[recorder.rank] == "exchange"
            else ""
        )
        shown = f'Current thread 0x00007f4b7d1296c0 (most recent call first):\n{called}  File "{SCRIPT}", line 20 in {places[recorder.rank]}\n'
        (folder / f"stack_rank_{recorder.rank}.txt").write_text(shown)
    return analyze(folder)


@pytest.mark.parametrize("size", [4, 6])
def test_of_a_circle_of_many_in_which_nobody_is_odd_nobody_is_named(tmp_path: Path, size: int) -> None:
    """Each is in a call with its neighbour, who is in one with the next."""
    pairs = {str(n + 1): ("edge", (n, (n + 1) % size)) for n in range(size)}
    recorders = job(size, groups={"0": ("default_pg", range(size)), **pairs})
    for recorder in recorders:
        recorder.call("all_reduce", times=4, line=12)
        recorder.call("all_reduce", str(recorder.rank + 1), line=20, state="started")
    report = judged(tmp_path, recorders, rank0=["[rank0]: step 4"])
    named = tuple(range(size)) if size == 4 else ()
    assert blame(report) == ("hang", "collective_order_mismatch", named)
    assert level(report) == ("medium" if named else "low")


def test_a_rank_that_is_in_no_call_may_be_the_one_they_wait_for(tmp_path: Path) -> None:
    report = _in_pairs(tmp_path, ("exchange", "exchange", "load", "exchange"))
    assert report.verdict is None or report.verdict.cause != "collective_order_mismatch"


def test_an_order_that_is_swapped_in_the_other_branch_of_a_condition_is_one_from_other_lines(
    tmp_path: Path,
) -> None:
    groups = {"0": ("default_pg", range(3)), "1": ("first", range(3)), "2": ("second", range(3))}
    recorders = job(3, groups=groups, backend="gloo")
    for recorder in recorders:
        for _ in range(12):
            recorder.call("all_reduce", "1", sizes=[[513]], line=20).call(
                "all_reduce", "2", sizes=[[900]], line=21
            )
        if recorder.rank == 1:
            recorder.call("all_reduce", "2", sizes=[[900]], line=24, state="scheduled")
        else:
            recorder.call("all_reduce", "1", sizes=[[513]], line=20, state="scheduled")
    report = analyze(write_all(recorders, tmp_path))
    assert blame(report) == ("hang", "collective_order_mismatch", (1,)) and level(report) == "high"


_THREAD = (
    'Thread {tid} (idle): "{name}"\n    {op} (torch/distributed/distributed_c10d.py:48{rank})\n    {user}'
)


def _two_threads(rank: int, *, second: str = "gather_object") -> str:
    main = _THREAD.format(
        tid=700 + rank, name="MainThread", op="barrier", rank=1, user="save (manager.py:231)"
    )
    saver = _THREAD.format(
        tid=800 + rank, name="saver_0", op=second, rank=2, user="run (concurrent/futures/thread.py:59)"
    )
    return f"--- node{rank}, rank {rank}\nProcess {700 + rank}: python pretrain.py\n{main}\n{saver}\n"


def test_two_threads_of_each_rank_in_collectives_have_no_common_order(tmp_path: Path) -> None:
    (tmp_path / "paste.txt").write_text("".join(_two_threads(rank) for rank in range(2)))
    assert short(analyze(tmp_path)) == ("collective_order_mismatch", (), "medium")
    (tmp_path / "paste.txt").write_text("".join(_two_threads(rank, second="_worker") for rank in range(2)))
    assert short(analyze(tmp_path))[0] != "collective_order_mismatch"


@pytest.mark.parametrize(
    ("further", "cause"), [(False, "collective_order_mismatch"), (True, "rank_conditional_collective")]
)
def test_a_stretch_on_one_group_before_the_one_on_the_other_is_another_order(
    tmp_path: Path, further: bool, cause: str
) -> None:
    """Two optimizers, each with a group of all ranks. Who goes on behind what it has not made has skipped that."""
    groups = {"0": ("default_pg", range(4)), "1": ("generator", range(4)), "2": ("critic", range(4))}
    recorders = job(4, groups=groups, backend="gloo")
    for recorder in recorders:
        for _ in range(6):
            _both(recorder, "completed")
        odd = recorder.rank == 3
        _half(recorder, "1" if odd else "2", "scheduled")
        if odd and further:
            _half(recorder, "2", "scheduled")
            _half(recorder, "1", "scheduled")
    report = analyze(write_all(recorders, tmp_path))
    assert blame(report) == ("hang", cause, (3,))
    assert ("match those of the others" in said(report)) == further


def _both(recorder: Recorder, state: str) -> None:
    _half(recorder, "2", state)
    _half(recorder, "1", state)


def _half(recorder: Recorder, group: str, state: str) -> None:
    for size in (64, 16, 8):
        recorder.call("all_reduce", group, sizes=[[size, int(group)]], line=10 * int(group), state=state)


@pytest.mark.parametrize("seed", [4, 8])
def test_who_is_at_the_line_of_its_pending_collective_is_in_it(tmp_path: Path, seed: int) -> None:
    """The wait for a collective is in C++, below the line that issued it."""
    truth = write_incident(tmp_path, "extra_call", seed)
    assert blame(analyze(tmp_path / "dumps")) == (
        "hang",
        "rank_conditional_collective",
        tuple(truth.culprits),
    )
