"""The stacks of all ranks as one tree."""

from __future__ import annotations

import time

from hangscope.model.frames import Frame, Stack
from hangscope.report.pictures.stack_tree import merged, tree_text

MAIN, STEP, LOAD, WAIT = (
    Frame("<module>", "train.py", 40),
    Frame("step", "train.py", 12),
    Frame("load", "train.py", 7),
    Frame("all_reduce", "torch/distributed/distributed_c10d.py", 3252),
)


def test_who_stands_alone_is_told_first() -> None:
    tree = merged({0: (WAIT, STEP, MAIN), 1: (LOAD, MAIN), 2: (WAIT, STEP, MAIN)})
    assert tree_text(tree) == (
        "ranks 0-2: train.py:40 in <module>\n"
        "  rank 1: train.py:7 in load\n"
        "  ranks 0 and 2: train.py:12 in step\n"
        "  distributed_c10d.py:3252 in all_reduce\n"
    )
    assert [(branch.depth, branch.ranks) for branch in tree] == [(0, "0-2"), (1, "1"), (1, "0,2")]


def test_a_rank_that_stops_where_others_go_on_is_in_the_common_frame() -> None:
    tree = merged({0: (STEP, MAIN), 1: (WAIT, STEP, MAIN)})
    assert tree_text(tree).splitlines()[-1] == "  rank 1: distributed_c10d.py:3252 in all_reduce"


def test_recursion_and_nothing() -> None:
    assert tree_text(merged({})) == "" and merged({0: ()}) == ()
    assert tree_text(merged({0: (STEP, STEP, MAIN)})).count("in step") == 2


def test_stacks_that_each_go_one_deeper_are_no_recursion_of_ours() -> None:
    stacks: dict[int, Stack] = {rank: (*([STEP] * rank), MAIN) for rank in range(600)}
    assert merged(stacks)[-1].depth == 599


def test_a_thousand_ranks_fold_to_their_places() -> None:
    began = time.process_time()
    stacks = {rank: (LOAD, MAIN) if rank == 700 else (WAIT, *([STEP] * 60), MAIN) for rank in range(1024)}
    lines = tree_text(merged(stacks)).splitlines()
    assert lines[1] == "  rank 700: train.py:7 in load" and len(lines) == 63
    assert time.process_time() - began < 2
