"""Logs in UTF-16, logs that begin with NULs, sparse files, and what the kernel only pretends to be a file."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hangscope.ingest.files import sources
from hangscope.ingest.files.opening import open_plain, plain_size
from tests.conftest import analyze

LINE = (
    "[rank2]:[E1103 09:14:55.941470251 ProcessGroupNCCL.cpp:616] [Rank 2] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=3012, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600042 milliseconds before timing out.\n"
)


def verdict_on(folder: Path) -> tuple[str | None, int | None]:
    verdict = analyze(folder).verdict
    assert verdict is not None
    return verdict.op, verdict.seq


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_utf16_log_is_read(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "rank2.log").write_bytes(LINE.encode(encoding))
    assert verdict_on(tmp_path) == ("all_reduce", 3012)


def test_nuls_that_log_rotation_left_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "rank2.log").write_bytes(b"\0" * 300_000 + LINE.encode())
    assert verdict_on(tmp_path) == ("all_reduce", 3012)


def test_a_sparse_log_costs_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "rank2.log"
    with path.open("wb") as log:
        log.write(b"first\n")
        log.seek(8 << 30)
        log.write(LINE.encode())
    began = time.process_time()
    assert verdict_on(tmp_path) == ("all_reduce", 3012)
    assert time.process_time() - began < 5
    assert plain_size(str(path)) < 1 << 20


def test_short_holes_stay_and_the_stream_starts_again(tmp_path: Path) -> None:
    path = tmp_path / "dump"
    with path.open("wb") as dump:
        dump.write(b"a" * 5000)
        dump.seek(100_000)
        dump.write(b"b")
        dump.truncate(4 << 20)
    with open_plain(str(path)) as stream:
        once = stream.read()
        stream.seek(0)
        assert stream.read() == once
    assert once.startswith(b"a" * 5000 + b"\0" * 95_000 + b"b")


def test_folders_full_of_links_to_themselves_are_listed_once(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("x")
    for number in range(4000):
        os.symlink(".", tmp_path / f"link{number}")
    began = time.process_time()
    with sources.find_files([tmp_path], []) as files:
        assert [file.shown for file in files] == ["a.log"]
    assert time.process_time() - began < 2


def test_a_link_into_proc_is_not_read(tmp_path: Path) -> None:
    os.symlink("/proc/kmsg", tmp_path / "kernel.log")
    notes = []
    with sources.find_files([tmp_path], notes) as files:
        assert files == []
    assert [note.code for note in notes] == ["not_a_file"]
