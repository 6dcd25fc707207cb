"""Which hosts stand out: exact probabilities, a bad node before a busy one."""

from __future__ import annotations

from fractions import Fraction
from math import comb
from pathlib import Path

import pytest

from hangscope.history.entry import Use, uses_of
from hangscope.history.hosts import ranked, tail
from tests.conftest import analyze
from tests.dump_writer import stuck, write_all


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


def test_an_error_that_the_kernel_reports_counts_against_its_host(tmp_path: Path) -> None:
    line = "Nov 23 17:00:00 gpu07 kernel: [12345.678] NVRM: Xid (PCI:0000:1b:00): 79, pid=4321, name=python, GPU has fallen off the bus."
    (tmp_path / "dmesg.log").write_text(line + "\n")
    report = analyze(tmp_path)
    assert report.verdict is not None and report.verdict.category == "hardware"
    assert report.analysis is not None
    assert uses_of(report.analysis) == [Use("gpu07", "", 1, "", "")]


def test_a_bug_counts_against_no_host(tmp_path: Path) -> None:
    folder = write_all(stuck(3, culprit=1), tmp_path)
    for rank in range(3):
        (folder / f"rank{rank}.log").write_text(f"gpu0{rank}:100:100 [0] NCCL INFO Bootstrap : Using eth0\n")
    report = analyze(folder)
    assert report.analysis is not None
    assert not any(use.fault for use in uses_of(report.analysis))
