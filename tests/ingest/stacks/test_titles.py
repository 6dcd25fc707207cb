"""Whose a stack is, by a line above it or by the command line of its process."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from hangscope.ingest.lines.rank_words import ranks_titled
from hangscope.ingest.stacks.command_lines import ranks_of_commands
from hangscope.ingest.stacks.dumps import read_processes
from tests.text_lines import short, told


@pytest.mark.parametrize(
    ("line", "ranks"),
    [
        ("### gdb -p of rank 3", (3,)),
        ("ranks 1-3 all show", (1, 2, 3)),
        ("Ranks 0, 2 and 5:", (0, 2, 5)),
        ("rank 0 ^^^, ranks 1..3 like this:", (1, 2, 3)),
        ("== /var/dumps/rank7.txt", (7,)),
        ("==> out/stack_rank_2.txt <==", (2,)),
        ("$ cat rank4.stack", (4,)),
        ("$ py-spy dump --native --pid 812   # rank 9", (9,)),
        ("I looked at the one that prints nothing (rank 6) a bit earlier:", (6,)),
        ("this is what py-spy says on rank 5:", (5,)),
    ],
)
def test_a_line_above_a_stack_names_its_ranks(line: str, ranks: tuple[int, ...]) -> None:
    assert ranks_titled(line) == ranks


@pytest.mark.parametrize(
    "line",
    [
        "all ranks wait for rank 0",
        "the same on all others except rank 3:",
        "everything but one (rank 3) shows:",
        "all are waiting for rank 3:",
        "rank 0 (and rank 4) after rank 2 left (rank 1):",
        "nothing more from rank 3",
        "ranks 0-9999999:",
        "rank: " + "x" * 200,
    ],
)
def test_a_sentence_about_a_rank_is_no_title(line: str) -> None:
    assert ranks_titled(line) == ()


@pytest.mark.parametrize(
    ("titles", "ranks"),
    [
        (["python fit.py  # RANK=0", "python fit.py  # RANK=1"], [0, 1]),
        (["python fit.py --rank 1 --world 2", "python fit.py --rank 0 --world 2"], [1, 0]),
        (["python fit.py [rank 3]"], [3]),
        (["trainer rank 2"], [2]),
    ],
)
def test_a_command_line_tells_the_rank(titles: list[str], ranks: list[int]) -> None:
    assert ranks_of_commands(dict(enumerate(titles))) == dict(enumerate(ranks))


@pytest.mark.parametrize(
    "titles",
    [
        ["python fit.py --rank 8", "python fit.py --rank 8"],  # of a matrix
        ["python fit.py --rank 8"],
        ["python fit.py --lora-rank 8", "python fit.py --node_rank=1", "python fit.py --local_rank=1"],
    ],
)
def test_other_ranks_of_a_command_line_are_none(titles: list[str]) -> None:
    assert ranks_of_commands(dict(enumerate(titles))) == {}


def _spy(pid: int, command: str = "python fit.py") -> str:
    return f'Process {pid}: {command}\nPython v3.12.3\n\nThread {pid} (idle): "MainThread"\n    step (fit.py:9)\n'


def _ranks(*parts: str) -> list[int | None]:
    found = read_processes(io.BytesIO("\n".join(parts).encode()), "stacks.txt")
    return [process.rank for process in found]


def test_one_stack_may_be_of_several_ranks() -> None:
    assert _ranks("rank 0:", _spy(1), "ranks 1-3 all look like", _spy(2)) == [0, 1, 2, 3]


def test_the_process_of_no_title_is_the_one_that_the_titles_leave() -> None:
    assert _ranks(_spy(1), "ranks 1-3 all look like", _spy(2)) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "parts",
    [
        (_spy(1, "torchrun fit.py"), "ranks 1-3", _spy(2)),  # a launcher
        (_spy(1), "ranks 0-3", _spy(2)),
        (_spy(1), "ranks 2-3", _spy(2)),
        (_spy(1), _spy(2), "ranks 1-3", _spy(3)),
    ],
)
def test_who_is_left_is_not_told_where_more_than_one_may_be_meant(parts: tuple[str, ...]) -> None:
    assert None in _ranks(*parts)


def test_a_logger_puts_its_prefix_before_the_first_line_alone(tmp_path: Path) -> None:
    c10d = '  File "/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py", line 2501 in all_reduce'
    lines = []
    for rank in range(4):
        lines += [
            f"[2026-03-30 02:00:1{rank} TP{rank}] Current thread 0x00007f4fe54b{rank}480 (most recent call first):",
            '  File "/eng/storage.py", line 18 in get' if rank == 3 else c10d,
            '  File "/eng/cache.py", line 41 in check',
        ]
    assert short(told(tmp_path, {"server.log": lines})) == ("stuck_rank", (3,), "medium")
