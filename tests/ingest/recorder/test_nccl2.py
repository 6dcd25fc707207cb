"""Dumps of torch 2.15's nccl2: other names in them, the same calls."""

from __future__ import annotations

from pathlib import Path

import pytest

import hangscope
from tests.dump_writer import job, write_all


def verdict(folder: Path, backend: str) -> tuple[object, ...]:
    """Return what is said of a rank that left out a call, in dumps of a backend."""
    recorders = job(4, backend=backend)
    for rank, recorder in enumerate(recorders):
        recorder.call("all_reduce", times=6, line=41)
        if rank != 2:
            recorder.call("all_gather", times=1, line=55, state="scheduled")
    write_all(recorders, folder)
    report = hangscope.analyze(str(folder), jobs=1)
    told = report.verdict
    assert told is not None
    return report.status, told.cause, told.culprit_ranks, told.op, told.seq


@pytest.mark.parametrize("backend", ["nccl2", "nccl-lazy", "rccl", "xccl", "hccl"])
def test_other_names_of_backends_change_nothing(tmp_path: Path, backend: str) -> None:
    assert verdict(tmp_path / "other", backend) == verdict(tmp_path / "nccl", "nccl")


def test_a_receive_from_anybody_is_read(tmp_path: Path) -> None:
    recorders = job(2, backend="nccl2")
    for recorder in recorders:
        recorder.call("all_reduce", times=2, line=41)
    recorders[0].call("recv 0<-?", line=60, state="scheduled")
    write_all(recorders, tmp_path)
    report = hangscope.analyze(str(tmp_path), jobs=1)
    assert not [note for note in report.warnings if note.code in ("malformed_entries", "parser_failed")]
    assert "recv" in set(report.table["op"])
