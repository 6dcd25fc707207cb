"""Lines that are printed at even intervals with numbers that grow."""

from __future__ import annotations

import pytest

from hangscope.ingest.job_logs.pace import counted, pace, silence, steady

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
        "no line for 197 s, from 21:14:31 to 21:17:48"
    )
    assert silence([*enumerate(lines)]) == ""
