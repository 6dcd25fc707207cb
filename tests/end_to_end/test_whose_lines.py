"""Whose a line is: ranks behind columns and in tags of a program, several in one line, and what people wrote around the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangscope.ingest.job_logs.progress import LoopLength, Progress
from tests.text_lines import judged, settled, short, status, timeout, told


@pytest.mark.parametrize(
    "head",
    [
        "2026-03-02 09:59:{second} | INFO | saver | [rank {rank}] ",
        "INFO:saver:[rank {rank}] ",
        "{{2/save/r{rank}}} ",
        "[rk{rank}] ",
        "2026-03-02 09:59:{second} r{rank} ",
    ],
)
def test_who_works_while_the_others_wait_is_known_by_its_own_prefix(tmp_path: Path, head: str) -> None:
    lines = [head.format(rank=rank, second=10) + "begins to save" for rank in (1, 0, 3, 2)]
    lines += [head.format(rank=0, second=20 + n) + f"{n}/40 tensors written" for n in range(4)]
    assert short(told(tmp_path, [*lines, *map(timeout, (1, 2, 3))]))[1] == (0,)


def test_the_lengths_of_the_loops_of_several_ranks_stand_side_by_side() -> None:
    events = settled(
        "[rank 0] train batches: 40   [rank 1] train batches: 38   [rank 2] train batches: 40\n"
    ).events
    assert {e.rank: e.total for e in events if isinstance(e, LoopLength)} == {0: 40, 1: 38, 2: 40}


def test_bars_of_ranks_whose_loops_differ_show_who_is_through(tmp_path: Path) -> None:
    bars = [
        f"[rk{r}] Evaluating: {100 * 30 // n:3d}%|####| 30/{n} [00:09<00:00,  3.5it/s]"
        for r, n in enumerate((32, 30, 33))
    ]
    assert short(
        told(tmp_path, ["It hangs in the evaluation, every time, on all three of our machines.", "", *bars])
    )[:2] == (
        "uneven_loader",
        (1,),
    )


def test_a_label_of_srun_begins_a_line_and_is_no_rest_of_a_number(tmp_path: Path) -> None:
    lines = [f"{rank}: {line}" for rank in (0, 5) for line in (timeout(rank), status(rank, 6, 6, 5))]
    assert "completed it up to seq 5 " in judged(told(tmp_path, lines)).explanation


def test_what_a_person_writes_first_is_no_line_of_the_job(tmp_path: Path) -> None:
    words = "4 GPUs, zero3 + offload, TORCH_CPP_LOG_LEVEL=INFO, local_rank=3 gets killed with -9, why rank 3 when its GPU has plenty of memory left"
    assert "plenty of memory" not in judged(told(tmp_path, [words, "", timeout(1), timeout(2)])).explanation


def test_lines_without_a_time_are_no_silence(tmp_path: Path) -> None:
    clocks = [f"2026-03-02 09:{minute:02}:00 INFO load part {minute}" for minute in range(6)]
    late = "2026-03-02 10:40:00 INFO load part 7"
    silent = judged(told(tmp_path / "a", [*clocks, late, timeout(1)])).explanation
    untimed = judged(told(tmp_path / "b", [*clocks, "still loading", late, timeout(1)])).explanation
    assert "nothing was printed for 5700 s" in silent and "othing was printed for" not in untimed


def test_the_last_line_before_the_errors_is_known() -> None:
    head = "2026-10-16 03:20:0{},115 - root - INFO - "
    lines = [head.format(1) + "Step 30: loss 2.1", head.format(2) + "Colouring maps", timeout(1), "step 31"]
    excerpt = settled("\n".join(lines) + "\n").excerpt
    assert excerpt is not None and excerpt.before == (2, lines[1])


def test_the_title_of_a_stack_is_no_line_of_its_rank() -> None:
    events = settled(
        "-- 31877 (rank 0)\n    step (train.py:4)\n-- 31878 (rank 1)\n    step (train.py:9)\n"
    ).events
    assert not [e for e in events if e.kind in ("printed", Progress.kind)]


def test_what_follows_the_end_of_a_loop_is_no_skip_inside_it(tmp_path: Path) -> None:
    lines = [f"[rank {r}] epoch 0 step {n} loss 2.{n}" for n in (28, 29) for r in (1, 0, 3, 2)]
    lines += ["[rank 2] train loader exhausted after 30 batches", "[rank 2] gathering epoch statistics"]
    lines += [timeout(r, n=7000) for r in (0, 1, 3)] + [timeout(2, op="ALLGATHER", n=3)]
    assert short(told(tmp_path, lines))[:2] == ("uneven_loader", (2,))


def test_below_the_name_of_a_ranks_log_are_its_lines(tmp_path: Path) -> None:
    lines = ["It hangs at the end of every epoch since I added data.", ""]
    for rank, total in ((0, 60), (1, 57), (2, 60)):
        lines += [f"==> log.rank{rank} <==", *(f"[21:07:4{n}] ep 0 it {56 + n}/{total}" for n in range(2))]
    lines += ["==> other.txt <==", "[21:07:42] all of it was copied"]
    assert short(told(tmp_path, lines))[:2] == ("uneven_loader", (1,))
