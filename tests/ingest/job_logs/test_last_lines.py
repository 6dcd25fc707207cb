"""The last lines of a rank's log as a report shows them."""

from __future__ import annotations

import io

from hangscope.ingest.job_logs.last_lines import Printed
from hangscope.ingest.workers.reading import LogReading, read_log
from hangscope.model.codec import from_row, to_fields
from tests.text_lines import settled


def read(text: str, name: str) -> LogReading:
    return read_log(io.BytesIO(text.encode()), name)


def test_the_end_of_a_ranks_log_is_kept_as_it_stands() -> None:
    log = read("\n".join(f"step {n} loss 0.{n}" for n in range(50)) + "\n\n", "rank3.err")
    assert log.tail == tuple(f"step {n} loss 0.{n}" for n in range(42, 50))
    assert from_row(LogReading, to_fields(log)).tail == log.tail


def test_of_a_progress_bar_its_last_state() -> None:
    assert read("begin\n 1%|\r 2%|\r 3%|#\n", "rank0.out").tail == ("begin", " 3%|#")


def test_long_and_hostile_lines_are_cut_and_clean() -> None:
    log = read("x" * 5000 + "\n\x1b[31mred\x1b[0m \u202eevil\n" + "\n" * 5000, "rank1.log")
    assert len(log.tail) == 2 and len(log.tail[0]) == 200 and log.tail[0].endswith("…")
    assert log.tail[1] == "red evil"


def test_of_a_log_whose_rank_its_name_does_not_tell_nothing_is_kept() -> None:
    assert read("step 1\nstep 2\n", "slurm-1234.out").tail == ()


def test_a_process_that_says_its_rank_once_is_that_rank_from_then_on() -> None:
    lines = [f"(train pid={700 + r}) rank {r} starts" for r in range(3)]
    lines += [f"(train pid={700 + r}) epoch {n} of 9 done" for n in range(2) for r in range(3)]
    lines.append("(train pid=702) reading the cache again")
    printed = {e.rank: e.texts for e in settled("\n".join(lines)).events if isinstance(e, Printed)}
    assert printed.keys() == {0, 1, 2}
    assert printed[2] == (*printed[1], "reading the cache again")
