"""Lines of scripts that tell how each process ended."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from hangscope.events import Event
from hangscope.ingest.workers.log_reading import read_log
from tests.text_lines import CLOSED, short, told


def read(*lines: str) -> list[Event]:
    return read_log(io.BytesIO(("\n".join(lines) + "\n").encode()), "job.log").events


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("rank 1 exited with code 0", 0),
        ("[rank 1] (pid 812) returned with status 3", 3),
        ("run.sh: rank=1 exit code: 137", -9),
        ("exit code of rank 1: -11", -11),
        ("rank1: rc=0", 0),
        ("rank 1 (pid 812) killed by signal 9 (SIGKILL)", -9),
        ("rank 1 (pid 812): terminated with signal 15", -15),
        ("rank 1, pid 812, exited with code 2", 2),
        ("12:00:01 rank 1 terminated with exit status 1 (SIGHUP)", 1),
    ],
)
def test_a_line_tells_how_a_rank_ended(line: str, code: int) -> None:
    exits = [e for e in read(line) if e.kind == "exit"]
    assert [(e.rank, getattr(e, "code", None)) for e in exits] == [(1, code)]
    assert [e for e in read(line) if e.kind == "workers_ended"] == []


@pytest.mark.parametrize(
    "line",
    [
        "rank 1 returned 3 samples",
        "local rank 1 exited with code 0",
        "rank 1: code 7 of 12",
        "Process 1 exit code: 0",
        "worker 3 exited with code 1",
        "rank 1 caught signal 10",
        "rank 1 will exit with code 3 if it fails to connect",
    ],
)
def test_other_words_tell_of_no_end(line: str) -> None:
    assert [e for e in read(line) if e.kind == "exit"] == []


def test_who_left_with_0_before_its_peers_lost_it_is_the_root(tmp_path: Path) -> None:
    lines = [f"[rank{rank}]: {CLOSED}" for rank in (0, 2)]
    lines += ["Process 1 exit code: 0", "Process 0 exit code: 1", "Process 2 exit code: 1"]
    assert short(told(tmp_path, lines))[:2] == ("early_exit", (1,))


def test_tasks_that_a_script_counts_from_0_are_ranks_and_the_one_that_a_signal_killed_is_the_root(
    tmp_path: Path,
) -> None:
    ends = ["killed by signal 9 (SIGKILL)" if n == 2 else "exited with code 1" for n in range(4)]
    stamps = (12, 14, 10, 13)
    lines = [f"2026-03-02 10:00:{stamps[n]} launcher: task {n} (pid {70 + n}) {ends[n]}" for n in range(4)]
    assert short(told(tmp_path, sorted(lines)))[:2] == ("crashed_rank", (2,))


def test_all_that_left_with_0_left_no_stop(tmp_path: Path) -> None:
    assert told(tmp_path, [f"rank {rank} exited with code 0" for rank in range(3)]).status == "no_hang"
