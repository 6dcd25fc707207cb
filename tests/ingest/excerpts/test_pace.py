"""Lines that are printed at even intervals with numbers that grow."""

from __future__ import annotations

import pytest

from hangscope.ingest.excerpts.pace import counted, pace, silence, slow_steps, steady, went_on

BATCHES = ["[09:31:49 TP0] Prefill batch, token usage: 0.39, #queue-req: 36",
           "[09:32:10 TP0] Prefill batch, token usage: 0.40, #queue-req: 37",
           "[09:32:31 TP0] Prefill batch, token usage: 0.41, #queue-req: 37"]  # fmt: skip


def test_a_number_that_grows_evenly_is_work() -> None:
    assert steady([*enumerate(BATCHES, 1), (4, "Health check failed")]) == (
        "token usage: 0.39 to 0.41, one line every 21 s until 09:32:31",
        3,
    )


@pytest.mark.parametrize(
    "lines",
    [
        BATCHES[:2],
        [BATCHES[0], BATCHES[1], "[09:41:31 TP0] Prefill batch, token usage: 0.41, #queue-req: 37"],
        [f"18:20:{s} Engine 000: generation: 0.0 tokens/s, Running: 1" for s in (14, 24, 34)],
        [f"18:20:{s} still waiting for {s} s" for s in (14, 24, 34)],
    ],
    ids=["too few", "a gap", "nothing grows", "a watcher's"],
)
def test_other_lines_show_no_work(lines: list[str]) -> None:
    assert steady([*enumerate(lines, 1)]) == ("", 0)


def test_rates_of_two_loops_are_not_compared() -> None:
    loads = [f"Tokenizing: {n}% {n}/100 [00:01<00:01, 9220.1 examples/s]" for n in (10, 20, 30)]
    trains = [f"epoch 1 {n}/300 [00:09<00:30, 9.7 s/it]" for n in (100, 200, 300)]
    assert pace(counted([*enumerate([*loads, *trains], 1)])) == ""


def test_steps_that_take_longer_each_time_are_told_from_a_change() -> None:
    grows = [f"iteration {n}/90 | elapsed time per iteration (ms): {900 * n}.5" for n in (10, 20, 30, 40)]
    assert pace(counted([*enumerate([*grows, "[exiting program at iteration 40]"], 1)])) == (
        "a step takes longer each time: 9 s at iteration 10, 36 s at iteration 40"
    )


def test_the_longest_pause_is_told_where_it_is_far_longer_than_the_others() -> None:
    lines = [f"Sep 12 21:14:{s:02} box node: reading" for s in (2, 12, 22, 31)]
    assert silence([*enumerate([*lines, "Sep 12 21:17:48 box node: reading"])]) == (
        "nothing was printed for 197 s, from 21:14:31 to 21:17:48", 197, 3,
    )  # fmt: skip
    assert silence([*enumerate(lines)]) == ("", 0, 0)


@pytest.mark.parametrize(
    "line",
    [
        "  1%|2         | 307/25000 [08:40<21:17:48,  1.69s/it]",
        " 47%|4         | 1412/3005 [21:17:48<11:04:33, 25.03s/it]",
        "[r6] done, wall 21:17:48",
        "Training  [ 41210/125000] eta: 21:17:48 time: 0.8182",
        "#SBATCH --time=21:17:48",
        "31018 Dl   -   46:11:20 python train.py",
    ],
)
def test_a_time_within_what_a_line_says_is_no_time_stamp(line: str) -> None:
    lines = [f"Sep 12 21:14:{s:02} box node: reading" for s in (2, 12, 22, 31)]
    assert silence([*enumerate([*lines, line])]) == ("", 0, 0)


@pytest.mark.parametrize(
    "prefix",
    ["", "[", "[rank1]:[E714 ", "(Worker pid=5, ip=10.0.0.1) INFO 05-28 ", "gpu-a: ", "0: [rank3]:[W528 ", "[Rank 3] ",
     "INFO:2026-11-27 ", "[INFO|trainer.py:2134] 2025-02-11 ", "[Tue May 13 ", "node-1 | W0918 ", "rank 0  (pid=39871) [", "{'loss': 1.8}   2024-07-03 "],
)  # fmt: skip
def test_a_time_behind_the_prefix_of_a_line_is_its_time_stamp(prefix: str) -> None:
    times = ("21:14:02", "21:14:12", "21:14:22", "21:14:31", "21:17:48")
    assert silence([*enumerate(f"{prefix}{time} reading" for time in times)])[1] == 197


def test_steps_that_count_up_anywhere_in_a_text_went_on() -> None:
    lines = [f"Epoch: [3][{n}/5004]  Time 0.6{n % 7} (0.619)  Loss 2.4" for n in (2340, 2360, 2380)]
    assert (
        went_on(counted([*enumerate([*lines, "Thu Apr 16 10:42:07 2020"])])) == "[2340/5004] to [2380/5004]"
    )
    assert went_on(counted([*enumerate([lines[1], lines[0], lines[2]])])) == ""


def test_a_few_steps_that_took_far_longer_than_those_between_are_told() -> None:
    lines = [
        f"step {n} loss 2.6 {'213.40' if n % 1000 == 0 else '0.91'}s"
        for n in (999, 1000, 1001, 1999, 2000, 2001)
    ]
    assert (
        slow_steps(counted([*enumerate(lines)]))
        == "step 1000 and step 2000 took 213 s, the steps between 0.91 s"
    )
    assert slow_steps(counted([*enumerate(lines[:-1])])) == ""  # it may be the one that hangs
    assert slow_steps(counted([*enumerate(lines[::1])][::3])) == ""


def test_a_timer_that_is_long_at_every_nth_step_is_told_by_its_name() -> None:
    waits = [27.3 if n % 8 == 0 else 0.006 for n in range(20)]
    lines = [
        f"Train Epoch: 0 [ {1000 + n}/9000 (6%)] Data (t): {t:.3f} Batch (t): {t + 0.75:.3f}, 145.9/s"
        for n, t in enumerate(waits)
    ]
    assert (
        slow_steps(counted([*enumerate(lines)]))
        == "'Data (t)', the wait for input, is 27.3 to 27.3 s at every 8th step and 0.006 s at the others"
    )
