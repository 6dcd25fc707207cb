"""Sends and receives that gloo's recorder counts and does not keep."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangscope.ingest.recorder.flight_recorder import reduce_dump
from hangscope.ingest.recorder.pack_file import read_pack, write_pack
from hangscope.ingest.workers.reader import read_file
from tests.dump_writer import Recorder, job
from tests.verdicts import blame, judged


def _pipeline(microbatches: int) -> list[Recorder]:
    """Three stages; in the fourth step stage 1 runs another number of microbatches and goes on, while its neighbours wait for it."""
    recorders = job(3, backend="gloo")
    for rank, recorder in enumerate(recorders):
        each = 2 if rank == 1 else 1
        for _ in range(3):
            recorder.exchange(4 * each).call("all_reduce")
        if rank == 1:
            recorder.exchange(microbatches * each).call("all_reduce", state="scheduled")
    return recorders


@pytest.mark.parametrize("microbatches", [3, 5])
def test_who_issued_another_number_before_a_collective_is_named(tmp_path: Path, microbatches: int) -> None:
    report = judged(tmp_path, _pipeline(microbatches))
    assert blame(report) == ("hang", "p2p_mismatch", (1,))
    assert report.verdict is not None
    assert f"({2 * microbatches} operations, not 8)" in report.verdict.explanation


def test_equal_counts_name_nobody(tmp_path: Path) -> None:
    """Stages 0 and 2 may be in a send or receive of their own, and are not called stuck for certain."""
    report = judged(tmp_path, _pipeline(4))
    assert report.verdict is None or (report.verdict.confidence, report.verdict.cause) != (
        "medium",
        "stuck_rank",
    )
    assert report.verdict is None or report.verdict.confidence != "high"


def test_the_status_counts_collectives_where_it_counts_all_operations() -> None:
    recorder = job(2, backend="gloo")[0].exchange(5).call("all_reduce", times=2)
    recording = reduce_dump(recorder.dump())
    assert recording.status == {"0": (2, -1, 2)}
    assert list(recording.columns["issued"]) == [6, 7]


def test_the_counts_survive_a_pack(tmp_path: Path) -> None:
    recorders = _pipeline(3)
    answers = [
        (path.name, 1, read_file(str(path), path.name)) for path in (r.write(tmp_path) for r in recorders)
    ]
    with (tmp_path / "pack").open("w+b") as stream:
        write_pack(stream, answers)
        stream.seek(0)
        unpacked = [wire["recordings"][0]["columns"] for _, _, wire in read_pack(stream)]
    assert unpacked == [wire["recordings"][0]["columns"] for _, _, wire in answers]


def test_equal_collectives_are_no_proof_of_a_job_that_also_sends(tmp_path: Path) -> None:
    """Between its last all_reduce and now, every stage may wait in a send or receive."""

    def whole(counted: bool) -> str:
        recorders = job(3, backend="gloo")
        for recorder in recorders:
            for _ in range(3):
                (recorder.exchange(4) if counted else recorder).call("all_reduce")
        return judged(tmp_path / str(counted), recorders).status

    assert (whole(counted=False), whole(counted=True)) == ("no_hang", "inconclusive")
