"""Programs of ranks compared: with each other, and each with what it repeated before."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hangscope.align.program import Programs
from tests.conftest import analyze
from tests.dump_writer import Recorder, job, write_all

#: a loop: the lines of its calls, and how often it went round
BODIES = st.lists(st.integers(40, 49), min_size=1, max_size=5, unique=True)
ROUNDS = st.integers(4, 8)
TWO_PAIRS = {"0": ("default_pg", range(4)), "1": ("tp", (0, 1)), "2": ("tp", (2, 3))}


def programs(recorders: list[Recorder]) -> Programs:
    with TemporaryDirectory() as folder:
        analysis: Any = analyze(write_all(recorders, Path(folder))).analysis
    return Programs(analysis.incident)


def rounds(recorder: Recorder, body: list[int], times: int) -> Recorder:
    for _ in range(times):
        for line in body:
            recorder.call("all_reduce", line=line)
    return recorder


@settings(max_examples=20)
@given(body=BODIES, times=ROUNDS)
def test_calls_stand_in_the_order_in_which_they_were_made(body: list[int], times: int) -> None:
    recorders = job(2)
    for recorder in recorders:
        rounds(recorder, body, times)
    found = programs(recorders)
    program = found.of(1)
    assert program.seq.tolist() == list(range(1, len(body) * times + 1))
    assert program.tokens == program.tokens[: len(body)] * times
    assert program.tokens == found.of(0).tokens
    assert [found.call(1, row)[2].stack[2].line for row in range(len(body))] == body


@settings(max_examples=20)
@given(body=BODIES, times=ROUNDS, data=st.data())
def test_a_loop_keeps_its_pattern_until_another_call_comes(
    body: list[int], times: int, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(body) - 1))
    recorders = job(2)
    for recorder in recorders:
        rounds(recorder, body, times)
        for line in body[:cut]:
            recorder.call("all_reduce", line=line)
        recorder.call("all_reduce", line=90 if recorder.rank else body[cut])
    found = programs(recorders)
    last = len(body) * times + cut
    assert found.keeps_pattern(0, last) is True
    assert found.keeps_pattern(1, last) is False
    order = int(found.of(1).order[last])
    assert found.row_of(1, order) == last


def test_a_first_call_has_no_pattern_to_keep() -> None:
    recorders = [recorder.call("all_reduce", line=41) for recorder in job(2)]
    assert programs(recorders).keeps_pattern(0, 0) is None


@settings(max_examples=10)
@given(times=st.integers(1, 6))
def test_ranks_of_one_role_in_different_groups_make_the_same_calls(times: int) -> None:
    recorders = job(4, groups=TWO_PAIRS)
    for recorder in recorders:
        for _ in range(times):
            recorder.call("all_reduce", "1" if recorder.rank < 2 else "2", line=50).call(
                "all_reduce", line=41
            )
    found = programs(recorders)
    assert found.of(0).tokens == found.of(3).tokens
    assert set(found.of(0).gid.tolist()) != set(found.of(3).gid.tolist())
