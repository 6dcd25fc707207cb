"""The table that torch's own analyzer prints of the calls of each rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.text_lines import short, told

WIDTH = 52


def _table(rows: list[list[str]], heads: bool = True) -> list[str]:
    cells = [
        [f"{op}(input_sizes=[[{n}]], state={state})" if op else "" for op, n, state in row]
        for row in _told(rows)
    ]
    head = [f"Rank {rank}" for rank in range(len(rows[0]))]
    lines = [head, ["-" * 40] * len(head), *cells] if heads else cells
    return ["".join(cell.ljust(WIDTH) for cell in line).rstrip() for line in lines]


def _told(rows: list[list[str]]) -> list[list[tuple[str, ...]]]:
    return [[tuple(cell.split()) if cell else ("", "", "") for cell in row] for row in rows]


WHOLE = ["all_reduce 4096 completed"] * 4
LAST = "all_reduce 4096 scheduled"


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([WHOLE, [LAST, LAST, "all_gather 8 scheduled", LAST]], ("rank_conditional_collective", (2,))),
        ([WHOLE, [LAST, "", LAST, LAST]], ("stuck_rank", (1,))),
    ],
)
def test_the_first_row_that_differs_is_a_hint(
    tmp_path: Path, rows: list[list[str]], expected: tuple[str, tuple[int, ...]]
) -> None:
    assert short(told(tmp_path, _table(rows))) == (*expected, "low")


@pytest.mark.parametrize(
    "rows",
    [
        [WHOLE, WHOLE],
        [WHOLE, [LAST, LAST, "all_gather 8 scheduled", "all_gather 8 scheduled"]],
        [WHOLE, ["", *WHOLE[1:]]],  # a dump that is shorter than the others
        [WHOLE, ["send 8 scheduled", "recv 8 scheduled", LAST, LAST]],  # stages differ by nature
        [WHOLE[:2], [LAST, "all_gather 8 scheduled"]],
    ],
)
def test_rows_that_prove_nothing_name_nobody(tmp_path: Path, rows: list[list[str]]) -> None:
    verdict = told(tmp_path, [*_table(rows), "[rank0] step 3 loss 2.1"]).verdict
    assert verdict is None or verdict.culprit_ranks == ()


def test_columns_that_nothing_names_are_nobodys(tmp_path: Path) -> None:
    rows = [WHOLE, [LAST, LAST, "all_gather 8 scheduled", LAST]]
    verdict = told(tmp_path, [*_table(rows, heads=False), "[rank0] step 3 loss 2.1"]).verdict
    assert verdict is None or verdict.culprit_ranks == ()
