"""Which hosts stand out: exact probabilities, a bad node before a busy one."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import pytest

from hangscope.history.hosts import ranked, tail


@pytest.mark.parametrize(("times", "drawn", "marked", "total"), [(1, 5, 3, 20), (3, 5, 3, 20), (0, 5, 3, 20), (2, 2, 2, 2), (4, 30, 40, 60), (12, 30, 40, 60)])  # fmt: skip
def test_the_tail_is_the_hypergeometric_one(times: int, drawn: int, marked: int, total: int) -> None:
    ways = sum(
        comb(marked, k) * comb(total - marked, drawn - k) for k in range(times, min(drawn, marked) + 1)
    )
    assert tail(times, drawn, marked, total) == pytest.approx(
        float(Fraction(ways, comb(total, drawn))), rel=1e-9
    )


def test_a_bad_node_stands_out_and_a_busy_one_does_not() -> None:
    counts = [
        ("busy", "0-7", 0, "", 300),
        ("busy", "0-7", 1, "2", 6),
        ("bad", "0-7", 0, "", 6),
        ("bad", "0-7", 1, "5", 4),
    ]
    counts += [(f"gpu{n:02}", "0-7", 0, "", 10) for n in range(40)]
    first, second = ranked(counts)
    assert (first.host, first.faults, first.used) == ("bad", 4, 10)
    assert first.of_any < 0.01 < 0.2 < second.by_chance
    gpus = ranked(counts, gpus=True)
    assert (gpus[0].host, gpus[0].gpu, gpus[0].faults) == ("bad", 5, 4)
    assert gpus[0].by_chance < gpus[0].of_any < 0.01


def test_a_store_without_faults_ranks_nobody() -> None:
    assert ranked([("gpu01", "0-7", 0, "", 10)]) == [] == ranked([])
