"""How answers are counted: right, part, silent and wrong, and what a confidence word has earned."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from tests.simulator import Truth
from tests.simulator.collecting import write_incident

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import calibrate
from answers import Answer, compare, reliability, share
from score import way_table

RIGHT = Answer(
    "stuck_rank",
    0,
    "full",
    ranks_exact=True,
    cause_exact=True,
    cause_listed=True,
    ranks=(3,),
    innocent=(),
    cause="stuck_rank",
    confidence="high",
    status="hang",
    wanted="[3] stuck_rank",
    false_alarm=False,
    told=True,
)
SILENT = dataclasses.replace(
    RIGHT, ranks_exact=False, ranks=(), cause="unknown", cause_exact=False, confidence="low"
)
WRONG = dataclasses.replace(RIGHT, ranks_exact=False, ranks=(5,), innocent=(5,))
ALARM = dataclasses.replace(SILENT, false_alarm=True)
PART = dataclasses.replace(RIGHT, ranks_exact=False)


def test_an_answer_is_right_part_silent_or_wrong() -> None:
    assert [one.kind for one in (RIGHT, PART, SILENT, WRONG, ALARM)] == [
        "right",
        "part",
        "silent",
        "wrong",
        "wrong",
    ]


def test_a_row_counts_wrong_names_by_their_word() -> None:
    medium = dataclasses.replace(WRONG, confidence="medium")
    (row,) = [
        line for line in way_table([RIGHT, WRONG, SILENT, medium]).splitlines() if line.startswith("| full")
    ]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:3] == ["4", "25%"]
    assert cells[6:9] == ["0%", "25%", "50%"]
    assert cells[9:11] == ["1", "1"]


def test_a_word_has_a_number_a_share_and_a_bound() -> None:
    assert reliability([RIGHT] * 59, "high") == "59 | 100.0% | 95.0%"
    assert reliability([RIGHT], "low") == "0 |  | "
    assert share([True] * 999 + [False]) == "99.9%"


def test_who_names_nobody_where_nothing_tells_claims_nothing_wrong() -> None:
    nobody = dataclasses.replace(RIGHT, ranks_exact=False, ranks=(), told=False)
    assert nobody.holds and not nobody.right
    assert not dataclasses.replace(nobody, told=True).holds
    assert not dataclasses.replace(nobody, cause_exact=False).holds
    assert not dataclasses.replace(WRONG, told=False).holds


@pytest.mark.parametrize(("status", "allowed"), [("inconclusive", True), ("no_hang", True), ("hang", False)])
def test_what_cannot_be_told_may_be_shown_to_be_no_hang(status: str, allowed: bool) -> None:
    assert Truth("still_moving", [], status="inconclusive").allows(status) is allowed


def test_a_promise_is_claimed_from_sixty_verdicts_on() -> None:
    title = calibrate.table("full data", [RIGHT] * 60)
    assert "| high | 60 | 100.0% | 95.1% | 0 | kept |" in title
    assert "too few to claim" in calibrate.table("full data", [RIGHT] * 9)
    assert "broken: 95% is promised" in calibrate.table("full data", [RIGHT, WRONG] * 40)


def test_nothing_to_read_is_silence(tmp_path: Path) -> None:
    truth = write_incident(tmp_path, "init_hang", 0, way="dumps only")
    said = compare(str(tmp_path / "dumps"), truth, 0, "dumps only")
    assert (said.status, said.kind) == ("NoInputError", "silent")
