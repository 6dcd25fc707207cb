"""Whom DETAIL's fingerprints name, of which every reporter prints its own call and the first that differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.text_lines import call, mismatch, told
from tests.verdicts import blame

OWN, ODD = call("ALLREDUCE", 64, 33), call("ALLREDUCE", 128, 33)


def log(rank: int, own: str, peer: int, other: str) -> dict[str, str | list[str]]:
    return {f"rank{rank}.log": [mismatch(rank, rank, own, peer, other)]}


def test_two_alike_are_no_majority_where_the_peers_number_alone_tells_how_many_ranks_there_are(
    tmp_path: Path,
) -> None:
    report = told(tmp_path, log(1, OWN, 2, ODD))
    assert report.status == "hang" and blame(report)[2] == ()


@pytest.mark.parametrize(
    "lines",
    [
        log(0, OWN, 1, ODD),  # of 2 and 3 nothing is known
        log(1, OWN, 0, ODD),
        {**log(0, OWN, 1, ODD), **log(3, OWN, 0, ODD)},  # rank 0 cannot be on both sides
    ],
)
def test_half_of_the_ranks_and_less_are_no_majority(
    tmp_path: Path, lines: dict[str, str | list[str]]
) -> None:
    report = told(tmp_path, lines, world_size=4)
    assert report.verdict is not None and report.verdict.culprit_ranks == ()


def test_of_a_garbled_peer_only_the_length_was_compared(tmp_path: Path) -> None:
    """The ranks before it have a fingerprint of the reporter's length, and perhaps another call."""
    garbled = "CollectiveFingerPrint(SequenceNumber=0OpType=GATHER)"
    report = told(tmp_path, log(0, OWN, 3, garbled), world_size=4)
    assert report.verdict is not None and report.verdict.culprit_ranks == ()


BARRIER = "CollectiveFingerPrint(SequenceNumber=33OpType=BARRIER)"
WITH_A_TENSOR, WITHOUT = (
    f"CollectiveFingerPrint(SequenceNumber=0OpType={op})" for op in ("GATHER", "REDUCE")
)


def test_ranks_that_no_half_tells_of_make_no_majority(tmp_path: Path) -> None:
    lines = {**log(0, OWN, 2, WITHOUT), **log(2, BARRIER, 0, WITH_A_TENSOR)}
    report = told(tmp_path, lines, world_size=6)
    assert report.verdict is not None and report.verdict.culprit_ranks == ()


def test_fingerprints_of_before_numbers_were_printed_are_compared_as_well(tmp_path: Path) -> None:
    said = "RuntimeError: Detected mismatch between collectives on ranks. Rank {} is running inconsistent collective: CollectiveFingerPrint(OpType=BROADCAST, TensorShape=[{}], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda))"
    report = told(tmp_path, [said.format(0, 34112), said.format(1, 33280), said.format(2, 34112)])
    assert blame(report)[1:] == ("shape_mismatch", (1,))


def test_a_shortened_fingerprint_is_that_of_the_whole_one_like_it(tmp_path: Path) -> None:
    """Rank 1's report, whole, shows that ranks 0 to 5 issued its call; rank 0's lacks the types."""
    gather, reduce = call("ALLGATHER", 1, 233), call("ALLREDUCE", 64, 233)
    short = gather.split(", TensorDtypes")[0] + ", ...)"
    lines = {**log(1, gather, 6, reduce), **log(0, short, 6, reduce), **log(6, reduce, 0, short)}
    report = told(tmp_path, lines, world_size=8)
    assert report.verdict is not None and report.verdict.culprit_ranks == (6,)


def numbered(rank: int, own: int, peer: int, other: int) -> dict[str, str | list[str]]:
    mine, theirs = (f"CollectiveFingerPrint(SequenceNumber={n}OpType=BARRIER)" for n in (own, other))
    aspects = f"Collectives differ in the following aspects: \t Sequence number: {own}vs {other}"
    return {
        f"rank{rank}.log": f"[rank{rank}]: RuntimeError: Detected mismatch between collectives on ranks. Rank {rank} is running collective: {mine}, but Rank {peer} is running collective: {theirs}.{aspects}\n"
    }


def test_who_has_a_smaller_number_in_the_same_collective_skipped_one_before(tmp_path: Path) -> None:
    lines = {k: v for r in (0, 1, 3) for k, v in numbered(r, 12, 2, 11).items()} | numbered(2, 11, 0, 12)
    report = told(tmp_path, lines)
    assert blame(report) == ("hang", "rank_conditional_collective", (2,))
    assert "1 fewer collective before this barrier" in (report.verdict.summary if report.verdict else "")


def test_of_two_ranks_with_other_numbers_nobody_is_named(tmp_path: Path) -> None:
    assert blame(told(tmp_path, numbered(0, 12, 1, 11) | numbered(1, 11, 0, 12)))[2] == ()
