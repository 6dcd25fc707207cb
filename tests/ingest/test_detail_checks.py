"""Dumps recorded under TORCH_DISTRIBUTED_DEBUG=DETAIL: the checks before a call tell who came to it, and from which line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hangscope.ingest.groups import with_pending_checks
from hangscope.ingest.recorder.recording import Recording
from hangscope.model.incident import State
from tests.conftest import analyze
from tests.verdicts import blame, level, recorder_of

ALL_REDUCE = ("all_reduce", "gloo", ((8,),), ((8,),), ("Float",), ("Float",), None, None)


@pytest.mark.parametrize(
    ("fixture", "culprits"), [("uneven_loader_detail", (1,)), ("rank_conditional_detail", (0,)), ("dtype_mismatch_detail", ())]
)  # fmt: skip
def test_dumps_alone_show_calls_that_were_refused(fixture: str, culprits: tuple[int, ...]) -> None:
    status, cause, named = blame(analyze(recorder_of(fixture)))
    assert (status, named) == ("hang", culprits)
    assert cause == ("rank_conditional_collective" if culprits else "collective_mismatch")


def test_lines_that_differ_in_a_check_are_a_guess_while_a_member_left_no_dump(tmp_path: Path) -> None:
    for rank in (1, 2, 3):
        shutil.copy(recorder_of("uneven_loader_detail") / f"comm_lib_trace_rank_{rank}", tmp_path)
    report = analyze(tmp_path, world_size=4)
    assert (blame(report)[0], blame(report)[2]) == ("hang", (1,)) and level(report) != "high"


def last_ops(folder: Path) -> set[str]:
    incident = analyze(folder).analysis.incident
    return {incident.kinds[int(record.queues[0].kind[-1])].op for record in incident.ranks.values()}


def test_what_all_fingerprints_say_is_put_into_the_queues_and_else_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "all"
    shutil.copytree(recorder_of("dtype_mismatch_detail").parent, folder)
    assert last_ops(folder) == {"all_reduce"}
    (folder / "logs" / "rank2.err").unlink()
    assert last_ops(folder) == {""}


def recorded(*rows: tuple[str, int, int, int]) -> Recording:
    """Return a recording of (local id, seq, stack, state)."""
    recording = Recording("flight_recorder")
    for local_id, seq, line, state in rows:
        stack = recording.stack((("step", "train.py", line),))
        recording.add(
            group=recording.group(local_id, "", ""), seq=seq, kind=recording.kind((*ALL_REDUCE, stack, None)), state=state
        )  # fmt: skip
    return recording


def test_a_check_behind_the_last_call_is_the_next_call() -> None:
    before = recorded(("1", 8, 13, State.DONE), ("0", 4, 13, State.DONE), ("1", 9, 20, State.PENDING))
    after = with_pending_checks(before)
    assert (len(before), len(after)) == (3, 4)
    row = {name: column[3] for name, column in after.columns.items()}
    assert (row["group"], row["seq"], row["state"]) == (1, 5, State.PENDING)
    assert after.kinds[row["kind"]][0] == "" and after.stacks[after.kinds[row["kind"]][8]] == (
        ("step", "train.py", 20),
    )


@pytest.mark.parametrize(
    "rows",
    [
        [("1", 8, 13, State.DONE), ("0", 4, 13, State.PENDING)],  # the check is through, the call was made
        [("0", 4, 13, State.DONE), ("0", 5, 13, State.PENDING)],  # no helper
        [
            ("0", 4, 13, State.DONE),
            ("1", 4, 13, State.DONE),
            ("2", 9, 20, State.PENDING),
        ],  # whose helper, no name tells
    ],
)
def test_nothing_is_added_where_no_check_is_behind_the_last_call(
    rows: list[tuple[str, int, int, int]],
) -> None:
    recording = recorded(*rows)
    assert with_pending_checks(recording) is recording
