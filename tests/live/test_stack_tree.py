"""The stacks of all ranks as one tree."""

from __future__ import annotations

import time

from hangscope.frames import Frame
from hangscope.live.stack_tree import merged

MAIN, STEP, LOAD, WAIT = (
    Frame("<module>", "train.py", 40),
    Frame("step", "train.py", 12),
    Frame("load", "train.py", 7),
    Frame("all_reduce", "torch/distributed/distributed_c10d.py", 3252),
)


def test_who_stands_alone_is_told_first() -> None:
    tree = merged({0: (WAIT, STEP, MAIN), 1: (LOAD, MAIN), 2: (WAIT, STEP, MAIN)})
    assert tree.to_text() == (
        "ranks 0-2: train.py:40 in <module>\n"
        "  rank 1: train.py:7 in load\n"
        "  ranks 0,2: train.py:12 in step\n"
        "  distributed_c10d.py:3252 in all_reduce\n"
    )
    assert [node["ranks"] for node in tree.to_dict()["calls"][0]["calls"]] == [[1], [0, 2]]


def test_a_rank_that_stops_where_others_go_on_is_in_the_common_frame() -> None:
    tree = merged({0: (STEP, MAIN), 1: (WAIT, STEP, MAIN)})
    assert tree.to_text().splitlines()[-1] == "  rank 1: distributed_c10d.py:3252 in all_reduce"


def test_recursion_and_nothing() -> None:
    assert merged({}).to_text() == ""
    assert merged({0: (STEP, STEP, MAIN)}).to_text().count("in step") == 2


def test_a_thousand_ranks_fold_to_their_places() -> None:
    began = time.process_time()
    stacks = {rank: (LOAD, MAIN) if rank == 700 else (WAIT, *([STEP] * 60), MAIN) for rank in range(1024)}
    tree = merged(stacks)
    lines = tree.to_text().splitlines()
    assert lines[1] == "  rank 700: train.py:7 in load" and len(lines) == 63
    assert time.process_time() - began < 2
