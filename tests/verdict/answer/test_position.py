"""Where a process was when it raised: the line of the program, and the calls of libraries from there."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangscope.model.frames import Frame
from hangscope.verdict.answer.remarks import calls
from tests.dump_writer import SCRIPT, TORCH
from tests.text_lines import CLOSED, judged, told

USER = Frame("main", SCRIPT, 31)
FORWARD = (
    ("nn/modules/module.py", 1501, "_wrapped_call_impl"),
    ("nn/modules/module.py", 1510, "_call_impl"),
    ("nn/parallel/distributed.py", 1139, "forward"),
    ("distributed/c10d_logger.py", 83, "wrapper"),
    ("distributed/utils.py", 323, "_sync_module_states"),
)


def raised(rank: int, error: str = CLOSED) -> list[str]:
    lines = [f'  File "{SCRIPT}", line 31, in main', "    loss = model(batch)"]
    for file, line, name in FORWARD:
        lines += [f'  File "{TORCH}/{file}", line {line}, in {name}', f"    return {name}(*args)"]
    return [f"[rank{rank}]: {line}" for line in ("Traceback (most recent call last):", *lines, error)]


def test_a_traceback_tells_the_line_of_the_program_and_the_calls_from_there(tmp_path: Path) -> None:
    explanation = judged(told(tmp_path, [*raised(0), *raised(1)])).explanation
    assert (
        "Ranks 0 and 1 were at 'loss = model(batch)' (train.py:31), in forward > _sync_module_states"
        in explanation
    )
    assert "wrapper" not in explanation and "_call_impl" not in explanation


def test_of_a_named_rank_its_own_line_is_told_and_not_that_of_its_peers(tmp_path: Path) -> None:
    own = [
        "Traceback (most recent call last):",
        f'  File "{SCRIPT}", line 12, in load',
        "    row = rows[key]",
        "KeyError: 7",
    ]
    verdict = judged(told(tmp_path, [*raised(0), *raised(1), *(f"[rank2]: {line}" for line in own)]))
    assert verdict.culprit_ranks == (2,)
    assert "Rank 2 was at 'row = rows[key]' (train.py:12)" in verdict.explanation
    assert "model(batch)" not in verdict.explanation


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["forward", "wrapper", "_fn", "__call__", "<lambda>"], ["forward"]),
        (["reduce", "wrapper", "reduce", "wait"], ["reduce", "wait"]),
        (["a", "b", "c", "d"], ["a", "b", "c", "d"]),
        (["a", "b", "c", "d", "e", "f"], ["a", "b", "…", "e", "f"]),
        ([], []),
    ],
)
def test_calls_that_only_pass_on_are_left_out_and_long_chains_are_shortened(
    names: list[str], shown: list[str]
) -> None:
    library = [Frame(name, f"{TORCH}/x.py", number) for number, name in enumerate(names)]
    stack = (*reversed(library), USER, Frame("<module>", SCRIPT, 40))
    assert calls(stack, USER) == shown
