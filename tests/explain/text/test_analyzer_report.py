"""What torch's own analyzer printed of calls that do not match: it compares all with the rank that it read first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.text_lines import judged, short, told

REPORT = [
    "Collective sequence number: 71 has errors",
    "internal record id: 70",
    "group info: 0:default_pg",
    "collective: nccl:all_reduce",
    "input sizes: [[512, 4]]",
    "output sizes: [[512, 4]]",
    "world size: 5",
    "expected ranks: {0, 1, 2, 3, 4}",
    "collective state: scheduled",
]
OP = "Error type: COLLECTIVE_TYPE_MISMATCH, Expected collective type: 'all_reduce' does not match found collective type: '_broadcast_oop'"
SIZE = "Error type: SIZE_OR_SYNTAX_MISMATCH, Expected input sizes: '[[512, 4]]' does not match found input sizes: '[[500, 4]]'"
TYPE = "Error type: COLLECTIVE_DTYPE_MISMATCH, Expected dtypes: '{'Float'}' does not match found dtype: '{'Float'}/{'Half'}/{'Half'}'"
STATE = "Error type: COLLECTIVE_STATE_MISMATCH, Expected state: 'scheduled' does not match found state: 'completed'"


def errors(said: str, *ranks: int) -> str:
    return "error msg: " + ", ".join(f"Culprit rank {rank}; {said}" for rank in ranks)


@pytest.mark.parametrize(
    ("said", "ranks", "expected"),
    [
        (SIZE, (2,), ("shape_mismatch", (2,), "low")),
        (TYPE, (4,), ("dtype_mismatch", (4,), "low")),
        (OP, (3,), ("rank_conditional_collective", (3,), "low")),
        (OP, (1, 2, 3, 4), ("rank_conditional_collective", (0,), "low")),
        (SIZE, (1, 2, 3, 4), ("shape_mismatch", (0,), "low")),
    ],
)
def test_the_fewer_are_odd_whomever_it_compared_with(
    tmp_path: Path, said: str, ranks: tuple[int, ...], expected: tuple[str, tuple[int, ...], str]
) -> None:
    report = told(tmp_path, [*REPORT, errors(said, *ranks)])
    assert short(report) == expected
    assert judged(report).seq == 71


def test_half_against_half_accuses_nobody(tmp_path: Path) -> None:
    lines = [line.replace("{0, 1, 2, 3, 4}", "{0, 1, 2, 3}") for line in REPORT]
    assert judged(told(tmp_path, [*lines, errors(OP, 2, 3)])).culprit_ranks == ()


def test_calls_at_another_stage_are_no_other_calls(tmp_path: Path) -> None:
    verdict = judged(told(tmp_path, [*REPORT, errors(STATE, 1, 2)]))
    assert (verdict.cause, verdict.culprit_ranks, verdict.op) == ("unknown", (), "all_reduce")


def test_what_it_could_not_decide_is_read_and_accuses_nobody(tmp_path: Path) -> None:
    line = (
        "We cannot decide what's wrong with this collective entry because we missed FR dumps from ranks ({{1, 6}}) so we don't have "
        "enough information."
    )
    report = told(tmp_path, [line.format()])
    assert report.status == "inconclusive"
    assert (judged(report).cause, judged(report).culprit_ranks) == ("unknown", ())
