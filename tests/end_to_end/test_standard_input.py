"""`hangscope analyze -`: a paste is read from standard input like a file."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hangscope.ingest.files import scratch
from tests.conftest import Run

LINE = (
    "[rank{rank}]:[E1014 08:41:55.070415220 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=7, OpType={op}, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600031 milliseconds before timing out.\n"
)


Analyze = Callable[..., dict[str, object]]


@pytest.fixture
def analyze(inside: Run, monkeypatch: pytest.MonkeyPatch) -> Analyze:
    """Return a function that gives the JSON report of the command on what comes through its standard input."""

    def analyzed(text: bytes, *more: str) -> dict[str, object]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        report: dict[str, object] = json.loads(inside("analyze", "-", *more, "--format", "json", "-q").stdout)
        return report

    return analyzed


@pytest.mark.slow
def test_a_paste_of_several_ranks_is_told_apart_by_prefixes(tmp_path: Path) -> None:
    text = "".join(LINE.format(rank=r, op="BROADCAST" if r == 2 else "ALLREDUCE") for r in range(3))
    command = [sys.executable, "-m", "hangscope", "analyze", "-", "--format", "json", "-q"]
    command += ["-o", str(tmp_path / "report.html")]
    done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=60, check=True)
    report = json.loads(done.stdout)
    assert report["verdict"]["culprit_ranks"] == [2]
    assert [row["file"] for row in report["inputs"]] == ["stdin"]


def test_it_mixes_with_files_and_with_one_of_the_same_name(analyze: Analyze, tmp_path: Path) -> None:
    (tmp_path / "stdin").write_text(LINE.format(rank=1, op="ALLREDUCE"))
    report = analyze(LINE.format(rank=0, op="ALLREDUCE").encode(), str(tmp_path / "stdin"))
    assert report["verdict"]["waiting_ranks"] == [0, 1]  # type: ignore[index]
    assert len(report["inputs"]) == 2  # type: ignore[arg-type]


def test_several_stacks_without_a_rank_are_told_apart_by_their_processes(analyze: Analyze) -> None:
    waits = "    all_reduce (torch/distributed/distributed_c10d.py:2501)\n    <module> (train.py:30)\n"
    loads = "    load (train.py:12)\n    <module> (train.py:30)\n"
    text = "".join(
        f'Process {pid}: python train.py\nPython v3.11.7 (/usr/bin/python3.11)\n\nThread {pid} (idle): "MainThread"\n{rows}'
        for pid, rows in ((123, waits), (124, loads), (125, waits))
    )
    said = str(analyze(text.encode())["verdict"])
    assert "(process 124) is at load (train.py:12)" in said and "(process 123)" in said


def test_an_empty_paste_is_no_usable_input(inside: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    done = inside("analyze", "-")
    assert done.returncode == 3
    assert "stdin" in done.stderr and "Traceback" not in done.stderr


def test_what_is_longer_than_a_paste_is_cut_with_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from contextlib import ExitStack

    from hangscope.errors import Note

    monkeypatch.setattr(scratch, "LIMIT", 10)
    source = tmp_path / "long.txt"
    source.write_bytes(b"x" * 25)
    notes: list[Note] = []
    with source.open() as stream, ExitStack() as cleanup:
        monkeypatch.setattr(sys, "stdin", stream)
        copy = Path(scratch.copy_of_input(cleanup, notes))
        assert copy.read_bytes() == b"x" * 10
    assert [note.code for note in notes] == ["truncated"]
    assert not copy.exists()
