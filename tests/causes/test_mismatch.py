"""Calls that meet at one number and do not fit: sizes, types, operations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from tests.conftest import analyze
from tests.dump_writer import SCRIPT, TORCH, Recorder, job, world, write_all
from tests.small_jobs import ODD_ONES, due, frozen, loop
from tests.text_lines import CLOSED, raised, short, status, timeout, told
from tests.verdicts import TIMED_OUT, blame, judged, level, said

#: what the odd ranks call instead, and what that is called
OTHER_CALLS: dict[str, dict[str, Any]] = {
    "shape_mismatch": {"sizes": [[1000]]},
    "dtype_mismatch": {"dtype": "Half"},
}


@pytest.mark.parametrize("cause", sorted(OTHER_CALLS))
@settings(max_examples=8)
@given(job_of=ODD_ONES)
def test_the_one_that_calls_something_else_is_named_and_nobody_else(
    cause: str, job_of: tuple[int, int]
) -> None:
    size, odd = job_of
    report = frozen(loop(size), (odd,), lambda r, is_odd: due(r, **(OTHER_CALLS[cause] if is_odd else {})))
    assert blame(report) == ("hang", cause, (odd,))
    assert report.verdict is not None
    assert sorted(report.verdict.waiting_ranks) == [rank for rank in range(size) if rank != odd]


@settings(max_examples=5)
@given(job_of=ODD_ONES)
def test_another_operation_at_the_same_line_is_a_mismatch_of_calls(job_of: tuple[int, int]) -> None:
    size, odd = job_of

    def last(recorder: Any, is_odd: bool) -> None:
        recorder.call("reduce" if is_odd else "all_reduce", sizes=[[1024]], line=41, state="started")

    assert blame(frozen(loop(size), (odd,), last)) == ("hang", "collective_mismatch", (odd,))


@pytest.mark.parametrize("cause", sorted(OTHER_CALLS))
@pytest.mark.parametrize("size", [2, 4])
def test_half_against_half_in_a_first_call_names_nobody(cause: str, size: int) -> None:
    odd = tuple(range(size // 2, size))
    report = frozen(job(size), odd, lambda r, is_odd: due(r, **(OTHER_CALLS[cause] if is_odd else {})))
    assert blame(report) == ("hang", cause, ())
    assert level(report) != "high"


def test_both_calls_are_told() -> None:
    report = frozen(loop(4), (2,), lambda r, is_odd: due(r, sizes=[[1000 if is_odd else 1024]]))
    assert "Rank 2 called all_reduce with shape [1000], the others with [1024]" in said(report)


def test_a_type_that_only_another_call_has_is_no_wrong_type() -> None:
    """One line of the user's runs a library's loop, which saves on one rank and goes on with the step on the others."""

    def last(recorder: Any, is_odd: bool) -> None:
        due(recorder, dtype="Float" if is_odd else "BFloat16")
        frames = recorder.entries[-1]["frames"]
        way = ("save_parameters", 610) if is_odd else ("training_step", 801)
        for name, line in (("run_loop", 300), way):
            frames.insert(2, {"name": name, "filename": f"{TORCH}/../lib_a/loop.py", "line": line})

    report = frozen(loop(4), (1,), last)
    assert blame(report) == ("hang", "rank_conditional_collective", (1,)) and level(report) != "high"


def test_the_same_call_apart_in_groups_side_by_side_is_one_fault(tmp_path: Path) -> None:
    """Both tensor-parallel ranks of one replica send another type; each of their data-parallel groups shows one of them."""
    groups = {"0": ("default_pg", range(8)), "1": ("dp", (0, 2, 4, 6)), "2": ("dp", (1, 3, 5, 7))}
    recorders = [Recorder(rank, groups) for rank in range(8)]
    for recorder in recorders:
        own = "2" if recorder.rank % 2 else "1"
        for _ in range(6):
            recorder.call("all_reduce", own, line=41).call("all_gather", line=43)
        recorder.call(
            "all_reduce", own, line=41, dtype="Half" if recorder.rank in (4, 5) else "Float", state="started"
        )
    write_all(recorders, tmp_path)
    assert blame(analyze(tmp_path)) == ("hang", "dtype_mismatch", (4, 5))


@pytest.mark.parametrize("first", [True, False])
def test_fsdps_check_of_the_order_blames_nobody(tmp_path: Path, first: bool) -> None:
    """In the first pass it raises on whoever compares, later it only warns (torch/distributed/fsdp/_exec_order_utils.py)."""
    error = "RuntimeError: Forward order differs across ranks: rank 0 is all-gathering 1 parameters while rank 1 is all-gathering 0 parameters"
    warned = "UserWarning: Forward order differs from that of the first iteration on rank 0. Collectives are unchecked and may give incorrect results or hang."
    report = told(tmp_path, raised(0, error) if first else [f"[rank0]: {warned}"])
    verdict = report.verdict
    assert verdict is not None and verdict.culprit_ranks == ()
    assert (verdict.cause == "collective_mismatch") is first


ENFORCE = " what():  [enforce fail at /build/third_party/gloo/gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. {} vs {}. Received data size doesn't match expected size. Is there a distributed collective mismatch in your code?"


def _lost(rank: int, line: int) -> list[str]:
    """Return the traceback of a rank whose peer was aborted while it waited in an all_reduce at `line`."""
    frames = [("train.py", line, "main"), (f"{TORCH}/distributed/distributed_c10d.py", 3252, "all_reduce")]
    shown = [f'  File "{file}", line {number}, in {name}' for file, number, name in frames]
    return [f"[rank{rank}]: {text}" for text in ["Traceback (most recent call last):", *shown, CLOSED]]


def test_the_receiver_of_a_tensor_that_waited_for_a_flag_is_alone_where_all_others_wait_at_one_line(
    tmp_path: Path,
) -> None:
    for name, sizes, lines, named in (
        ("flag", (216, 4), (8, 8), (1,)),
        ("ragged batch", (216, 192), (8, 8), ()),
        ("another line", (216, 4), (8, 9), ()),
    ):
        logs = {f"rank{rank}.log": _lost(rank, line) for rank, line in zip((0, 2), lines, strict=True)}
        aborted = [
            "terminate called after throwing an instance of 'gloo::EnforceNotMet'",
            ENFORCE.format(*sizes),
        ]
        verdict = told(tmp_path / name, {**logs, "rank1.log": aborted}).verdict
        assert verdict is not None and verdict.culprit_ranks == named, name


@pytest.mark.parametrize(("ranks", "sender"), [(2, " from rank 0"), (3, "")])
def test_the_sender_of_a_tensor_that_did_not_fit_is_told_where_only_one_rank_can_be_it(
    tmp_path: Path, ranks: int, sender: str
) -> None:
    logs = {f"rank{rank}.log": _lost(rank, 8) for rank in range(ranks) if rank != 1}
    aborted = ["terminate called after throwing an instance of 'gloo::EnforceNotMet'", ENFORCE.format(20, 4)]
    report = told(tmp_path, {**logs, "rank1.log": aborted})
    met = [f.text for f in report.verdict.evidence if "expected 4" in f.text] if report.verdict else []
    assert met == [f"rank 1 expected 4 bytes and received 20{sender}"]


def test_sizes_of_an_all_to_all_that_never_fitted_tell_nothing(tmp_path: Path) -> None:
    """A recorder that keeps the buffers, and not what is sent of them."""
    recorders = job(4)
    for recorder in recorders:
        took = [[24 + 8 * (recorder.rank != 1)]]
        recorder.call("all_to_all", sizes=[[32]], outputs=took, line=41, times=9)
        recorder.call("all_to_all", sizes=[[32]], outputs=took, line=41, state="started")
    assert short(analyze(write_all(recorders, tmp_path)))[:2] == ("network_stall", ())


@pytest.mark.parametrize(
    ("stands", "cause"), [("broadcast", "collective_mismatch"), ("recv", "network_stall")]
)
def test_ranks_disagree_about_a_source_only_where_all_are_in_that_call(
    tmp_path: Path, stands: str, cause: str
) -> None:
    recorders = [Recorder(rank, world(3), "gloo") for rank in range(3)]
    for recorder in recorders:
        recorder.call("broadcast", times=6, line=91).call("broadcast", state="scheduled", line=91)
    frames = [
        f'  File "{TORCH}/distributed/distributed_c10d.py", line 2799 in {stands}',
        f'  File "{SCRIPT}", line 12 in main',
    ]
    head = "Current thread 0x00007f4b7d1296c0 (most recent call first):"
    (tmp_path / "stack_rank_0.txt").write_text("\n".join([head, *frames]))
    report = judged(
        tmp_path, recorders, **{f"rank{rank}": [f"[rank{rank}]: {TIMED_OUT}"] for rank in range(3)}
    )
    assert blame(report)[1] == cause


@pytest.mark.parametrize(
    ("takes", "answer"),
    [
        ((32, 24, 32, 32), ("shape_mismatch", (1,), "high")),
        ((32, 24, 30, 32), ("shape_mismatch", (), "high")),
        ((32, 24, 40, 32), ("network_stall", (), "low")),  # as many in all: whose splits fit is not told
    ],
)
def test_an_all_to_all_that_takes_less_than_it_is_given_has_splits_that_do_not_fit(
    tmp_path: Path, takes: tuple[int, ...], answer: tuple[str, tuple[int, ...], str]
) -> None:
    recorders = job(4)
    for recorder in recorders:
        recorder.call("all_to_all", sizes=[[32]], line=41, times=9)
        took = [[takes[recorder.rank]]]
        recorder.call("all_to_all", sizes=[[32]], outputs=took, line=41, state="started")
    assert short(analyze(write_all(recorders, tmp_path))) == answer


def test_the_one_that_sends_back_less_than_it_was_sent_is_named(tmp_path: Path) -> None:
    sent, recorders = (28, 36, 31, 33), job(4)
    for recorder in recorders:
        own = [[sent[recorder.rank]]]
        for _ in range(4):
            recorder.call("all_to_all", sizes=[[32]], outputs=own, line=41)
            recorder.call("all_to_all", sizes=own, outputs=[[32]], line=44)
        recorder.call("all_to_all", sizes=[[32]], outputs=own, line=41)
        back = [[sent[recorder.rank] - 5 * (recorder.rank == 2)]]
        recorder.call("all_to_all", sizes=back, outputs=[[32]], line=44, state="started")
    assert short(analyze(write_all(recorders, tmp_path)))[:2] == ("shape_mismatch", (2,))


def test_two_watchdogs_that_give_up_several_collectives_apart_are_out_of_step(tmp_path: Path) -> None:
    lines = [timeout(0, seq=1731, op="_REDUCE_SCATTER_BASE"), timeout(1, seq=1735, op="_ALLGATHER_BASE")]
    counts = [status(0, 1731, 1736, 1730), status(1, 1735, 1737, 1734)]
    verdict = told(tmp_path, [*lines, *counts]).verdict
    assert verdict is not None
    assert (verdict.cause, verdict.culprit_ranks) == ("collective_mismatch", ())
    assert "4 collectives out of step" in verdict.title


@pytest.mark.parametrize("threaded", [False, True])
def test_two_calls_of_one_group_in_opposite_orders_are_said_to_be(tmp_path: Path, threaded: bool) -> None:
    recorders = job(4, backend="gloo")
    for recorder in recorders:
        recorder.call("broadcast", line=30, times=8)
        calls = [("all_reduce", 27, threaded), ("reduce", 39, False)]
        for op, line, of_a_thread in reversed(calls) if recorder.rank == 2 else calls:
            recorder.call(op, line=line, threaded=of_a_thread, state="scheduled")
    report = judged(tmp_path, recorders)
    assert blame(report) == ("hang", "collective_mismatch", (2,))
    assert "Rank 2 called reduce before all_reduce, the others in the opposite order" in said(report)
    assert ("by a thread of its own" in said(report)) == threaded


@pytest.mark.parametrize(("failed", "named"), [((0, 2, 3), (1,)), ((0, 2), ())])
def test_the_one_rank_without_an_error_after_gloo_aborted_somebody_is_the_aborted_one(
    tmp_path: Path, failed: tuple[int, ...], named: tuple[int, ...]
) -> None:
    """Its peers recorded the call whose size was sent; where two ranks are silent, either may have been aborted."""
    recorders = job(4, backend="gloo")
    for recorder in recorders:
        recorder.call("all_gather", sizes=[[64]], outputs=[[64]] * 4, dtype="Long", line=30, times=8)
        recorder.call(
            "all_gather", sizes=[[64]], outputs=[[64]] * 4, dtype="Long", line=30, state="scheduled"
        )
    aborted = [
        "terminate called after throwing an instance of 'gloo::EnforceNotMet'",
        ENFORCE.format(256, 128),
    ]
    lines = [*aborted, *(line for rank in failed for line in _lost(rank, 30))]
    report = judged(tmp_path, [recorders[rank] for rank in failed], console=lines)
    assert ("256 (all_gather([64] Long))" in said(report)) == bool(named)
    assert not named or blame(report) == ("hang", "shape_mismatch", named)


def test_of_ranks_of_which_most_were_not_seen_the_fewer_are_named_at_low(tmp_path: Path) -> None:
    recorders = job(5, backend="gloo")
    for recorder in recorders:
        op, line = ("gather", 34) if recorder.rank == 3 else ("all_reduce", 25)
        recorder.call("broadcast", line=20).call(op, sizes=[[24, 4]], line=line, state="scheduled")
    report = judged(tmp_path, [recorders[rank] for rank in (0, 3, 4)])
    assert (blame(report)[::2], level(report)) == (("hang", (3,)), "low")
    assert report.verdict is not None and report.verdict.suspect_ranks == (1, 2, 3)
