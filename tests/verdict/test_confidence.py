"""What a verdict's confidence falls with, and that each step of it is told."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hangscope.api import Report
from tests.dump_writer import Recorder, job
from tests.small_jobs import due, frozen, loop
from tests.verdicts import blame, level

WORDS = ("low", "medium", "high")
SIZE, ODD = 8, 2


def sureness(report: Report) -> int:
    return WORDS.index(level(report))


def why(report: Report) -> str:
    return " ".join(report.to_dict()["confidence_why"])


def leaves_out(recorder: Recorder, is_odd: bool, line: int | None = 43) -> None:
    if is_odd:
        recorder.call("all_gather", outputs=[[8]] * SIZE, line=line, state="started")
    else:
        due(recorder, line=None if line is None else 41)


def test_all_evidence_and_no_rival_is_high() -> None:
    report = frozen(loop(SIZE), (ODD,), leaves_out)
    assert (blame(report)[2], level(report)) == ((ODD,), "high")


@settings(max_examples=12)
@given(lost=st.sets(st.integers(0, SIZE - 1).filter(lambda rank: rank != ODD), max_size=SIZE - 2))
def test_dumps_that_are_lost_never_make_it_surer(lost: set[int]) -> None:
    report = frozen([r for r in loop(SIZE) if r.rank not in lost], (ODD,), leaves_out)
    if blame(report)[2]:
        assert blame(report)[2] == (ODD,)
        assert len(lost) * 2 < SIZE or sureness(report) < WORDS.index("high")
        assert len(lost) * 2 < SIZE or "were not seen" in why(report)


def test_even_sides_without_a_history_are_medium_at_most() -> None:
    report = frozen(job(4), (2, 3), lambda r, is_odd: due(r, dtype="Half" if is_odd else "Float"))
    assert blame(report)[2] == () and sureness(report) <= WORDS.index("medium")
    assert "the ranks are evenly divided" in why(report)


def test_without_frames_calls_of_one_operation_look_alike() -> None:
    recorders = job(SIZE)
    for recorder in recorders:
        for _ in range(12):
            due(recorder, "completed", line=None).call("all_gather", outputs=[[8]] * SIZE, line=None)
    report = frozen(recorders, (ODD,), lambda r, is_odd: leaves_out(r, is_odd, line=None))
    assert sureness(report) < sureness(frozen(loop(SIZE), (ODD,), leaves_out))
    assert "no Python frames were recorded" in why(report)


@settings(max_examples=8)
@given(lag=st.integers(2, 4))
def test_a_lag_of_one_call_may_be_the_moment_of_the_dump(lag: int) -> None:
    def behind_by(calls: int) -> Report:
        def last(recorder: Recorder, is_odd: bool) -> None:
            for _ in range(calls):
                due(recorder, "started" if is_odd else "completed")
            due(recorder)

        return frozen(loop(4), (1,), last)

    assert blame(behind_by(1)) == blame(behind_by(lag)) == ("hang", "gpu_stall", (1,))
    assert sureness(behind_by(1)) < sureness(behind_by(lag))


@settings(max_examples=6)
@given(gone=st.sets(st.integers(0, SIZE - 1), min_size=1, max_size=SIZE - 2))
def test_who_is_not_there_is_named_alone_and_as_a_guess_or_not_at_all(gone: set[int]) -> None:
    """Of a rank without a dump and without a log nothing is known: it may as well not have been collected."""
    recorders = [recorder for recorder in loop(SIZE) if recorder.rank not in gone]
    report = frozen(recorders, (), lambda r, is_odd: due(r))
    named = blame(report)[2]
    assert not named or (set(named) == gone and len(gone) == 1 and level(report) == "low")
