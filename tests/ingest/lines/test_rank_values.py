"""Numbers by rank of which one is far off."""

from __future__ import annotations

import pytest

from hangscope.ingest.lines.rank_values import odd_cells, outlier


def listed(*values: float, unit: str = "ms") -> list[tuple[int, str]]:
    return [
        (0, "forward:"),
        *((n, f"[default0]:    Rank {n}: {value}{unit}") for n, value in enumerate(values)),
    ]


def test_one_number_that_is_far_off_names_its_rank() -> None:
    assert outlier(listed(1104.9, 1112.3, 2348.2, 1108.8)) == (
        2,
        "in the list 'forward' rank 2 has 2348.2 ms, the others 1104.9 to 1112.3",
        False,
    )


@pytest.mark.parametrize(
    "values", [(9.9, 10.2, 9.4, 9.5), (10, 20, 30, 40), (10, 10, 30), (10, 10, 30, 30, 10), (0, 0, 0, 0)]
)
def test_numbers_that_are_alike_or_all_different_name_nobody(values: tuple[float, ...]) -> None:
    assert outlier(listed(*values)) is None


_TABLE = """rank  host   dp     in
 0    gx-11  48209  tp all_reduce    [64]
 1    gx-11  48209  tp all_reduce    [64]
 2    gx-11  48209  tp all_reduce    [64]
 3    gx-11  48208  tp all_gather    [15]
"""


def test_a_table_by_rank_shows_who_differs_in_a_column() -> None:
    found = odd_cells([*enumerate(_TABLE.splitlines())])
    assert found == (
        (3, "'48208' in column 'dp' (most others '48209')"),
        (3, "'tp all_gather [15]' in column 'in' (most others 'tp all_reduce [64]')"),
    )


def test_a_table_in_which_many_differ_names_nobody() -> None:
    rows = "\n".join(f"{rank}  {rank % 2}  {rank * 7}" for rank in range(8))
    assert odd_cells([*enumerate(f"rank  pair  pid\n{rows}".splitlines())]) == ()
