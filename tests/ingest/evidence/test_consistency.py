"""Dumps that contradict themselves or each other: it is said, and nobody is named with high confidence because of them."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hangscope.report.report import Report
from tests.conftest import analyze
from tests.dump_writer import Recorder, job, write_all
from tests.small_jobs import due
from tests.verdicts import culprits

STEPS = 30


def recorders() -> list[Recorder]:
    """Return four ranks of which rank 3 does not make the last call."""
    ranks = job(4)
    for recorder in ranks:
        recorder.time_ns += 1_000 * recorder.rank
        for _ in range(STEPS):
            due(recorder, "completed")
        if recorder.rank != 3:
            due(recorder)
    return ranks


def shift(dump: dict[str, Any]) -> None:
    for entry in dump["entries"]:
        entry["collective_seq_id"] += 1


def lose(dump: dict[str, Any]) -> None:
    del dump["entries"][STEPS // 2]


@pytest.mark.parametrize(
    ("lie", "message"), [(shift, "entries end with 31"), (lose, "`record_id` 16 follows 14")]
)
def test_a_dump_that_contradicts_itself_names_nobody_at_high(
    tmp_path: Path, lie: Callable[[dict[str, Any]], None], message: str
) -> None:
    write_all(recorders(), tmp_path)
    file = tmp_path / "nccl_trace_rank_3"
    dump = pickle.loads(file.read_bytes())
    lie(dump)
    file.write_bytes(pickle.dumps(dump, protocol=2))
    report = analyze(tmp_path)
    assert any(message in note.message and "rank_3" in (note.file or "") for note in report.warnings)
    assert report.verdict is not None and report.verdict.confidence != "high"


def test_a_copy_under_another_ranks_name_speaks_for_nobody(tmp_path: Path) -> None:
    write_all(recorders(), tmp_path)
    files = sorted(tmp_path.iterdir())
    assert culprits(analyze(tmp_path)) == (3,)
    shutil.copy(files[2], files[3])
    report: Report = analyze(tmp_path)
    said = {note.file for note in report.warnings if "one of them is a copy" in note.message}
    assert said == {files[2].name, files[3].name}
    assert report.verdict is not None and report.verdict.confidence == "low"
    assert set(report.verdict.culprit_ranks) <= {2, 3}


@pytest.mark.parametrize(
    ("lie", "message"), [("gap", "`record_id` 16 follows 14"), ("seq 0", "collective_seq_id")]
)
def test_a_gap_and_a_number_below_one_are_noticed_in_dumps_of_gloo(
    tmp_path: Path, lie: str, message: str
) -> None:
    recorders = job(3, backend="gloo")
    for recorder in recorders:
        recorder.call("all_reduce", times=STEPS)
    write_all(recorders, tmp_path)
    file = next(tmp_path.glob("*_1"))
    dump = pickle.loads(file.read_bytes())
    if lie == "gap":
        del dump["entries"][STEPS // 2]
    else:
        for entry in dump["entries"]:
            entry["collective_seq_id"] -= 1
    file.write_bytes(pickle.dumps(dump, protocol=2))
    assert any(message in note.message for note in analyze(tmp_path).warnings)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[rank1]: RuntimeError:[rank1]:     main()", "two lines of rank 1 are glued together"),
        (
            "n1:77:78 [1] NCCL INFO comm 0x1a rank 32768 nranks 8 cudaDev 1 busId 43000 commId 0x8f - Init COMPLETE",
            "of rank 32768 of 8",
        ),
    ],
)
def test_a_line_that_no_program_prints_is_noticed(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "rank1.log").write_text(
        f'[rank1]: Traceback (most recent call last):\n[rank1]:   File "train.py", line 3, in main\n{line}\n'
    )
    assert message in str(analyze(tmp_path).warnings)
